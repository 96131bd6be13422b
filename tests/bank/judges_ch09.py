"""The judges of chapter 9 for test_bank_itself: each holds a piece against formulas of its own and notes departures."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from .judges_ch05_to_ch07 import _judge_call


def judge_shift_targets(space, found) -> None:
    generator = torch.Generator().manual_seed(9)
    for batch, length, largest in [(3, 6, 50), (1, 4, 50), (5, 2, 9), (2, 9, 3), (4, 4, 50), (6, 3, 50)]:
        where = f"({batch}, {length}) below {largest}"
        ids = torch.randint(0, largest, (batch, length), generator=generator)
        for given in (ids, torch.stack([ids, ids + 1], dim=-1)[..., 0], ids.T.contiguous().T):
            copy = given.clone()
            got = found.call(where, space.shift_targets, given)
            if not torch.equal(given, copy):
                found.append(f"{where}: input changed")
                given = copy
            if not (isinstance(got, tuple) and len(got) == 2):
                found.append(f"{where}: no pair")
                continue
            rows = copy.tolist()
            for what, own, want in zip(
                ("input", "labels"), got, ([r[: length - 1] for r in rows], [r[1:] for r in rows]), strict=True
            ):
                found.equal(f"{where}: {what}", own, torch.tensor(want), torch.int64)


def judge_label_smoothed_cross_entropy(space, found) -> None:
    generator = torch.Generator().manual_seed(10)
    for rows, classes, pad, smoothing, scale in [
        (7, 5, 0, 0.1, 1.0),
        (9, 11, 4, 0.3, 3.0),
        (6, 4, 3, 0.0, 2.0),
        (8, 6, -100, 0.1, 2.0),
        (5, 6, 17, 0.2, 1.0),
        (1, 8, 2, 0.4, 1.0),
        (6, 9, 1, 0.1, 600.0),
        (30, 3, 0, 0.05, 1.0),
        (6, 5, 2, 1.0, 1.0),
        (12, 40, 7, None, 2.0),
    ]:
        for dtype in (torch.float32, torch.float64):
            where = f"{dtype} ({rows}, {classes}) pad {pad} smoothing {smoothing} ×{scale:g}"
            logits = (torch.randn(rows, classes, generator=generator, dtype=dtype) * scale).requires_grad_(True)
            targets = torch.randint(0, classes, (rows,), generator=generator)
            targets[targets == pad] = (pad + 1) % classes
            if rows > 1:
                targets[torch.randperm(rows, generator=generator)[: rows // 3]] = pad
            copies = logits.detach().clone(), targets.clone()
            given = () if smoothing is None else (smoothing,)
            got = found.call(where, space.label_smoothed_cross_entropy, logits, targets, pad, *given)
            if not (torch.equal(logits.detach(), copies[0]) and torch.equal(targets, copies[1])):
                found.append(f"{where}: input changed")
                continue
            want, gradient = _smoothed(*copies, pad, smoothing or 0.0)
            found.equal(where, got, want, dtype)
            if not (isinstance(got, Tensor) and got.shape == want.shape):
                continue
            if not got.requires_grad:
                found.append(f"{where}: no gradient")
                continue
            found.call(f"{where}: backward", got.backward)
            if logits.grad is None:
                found.append(f"{where}: no gradient")
                continue
            found.equal(f"{where}: gradient", logits.grad, gradient)
            if logits.grad[copies[1] == pad].any():
                found.append(f"{where}: padding has a gradient")


def _smoothed(logits: Tensor, targets: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss and gradient by their definitions, row by row in float64."""
    rows, classes = logits.shape
    real = [row for row in range(rows) if targets[row] != pad]
    loss, gradient = 0.0, torch.zeros(rows, classes, dtype=torch.float64)
    for row in real:
        x = logits[row].double()
        x = x - x.max()
        log_p = x - x.exp().sum().log()
        wanted = torch.full((classes,), smoothing / classes, dtype=torch.float64)
        wanted[targets[row]] += 1 - smoothing
        loss -= (wanted * log_p).sum().item() / len(real)
        gradient[row] = (log_p.exp() - wanted) / len(real)
    return torch.tensor(loss, dtype=torch.float64), gradient


def judge_noam_lr(space, found) -> None:
    for width, warmup in [(512, 4000), (64, 400), (16, 10), (1, 3), (256, 1), (96, 7)]:
        for step in (1, 2, 3, warmup - 1, warmup, warmup + 1, 10 * warmup, 10**6):
            if step < 1:
                continue
            where = f"step {step} width {width} warmup {warmup}"
            got = found.call(where, space.noam_lr, step, width, warmup)
            want = step / math.sqrt(width * warmup**3) if step <= warmup else 1 / math.sqrt(width * step)
            if not isinstance(got, float):
                found.append(f"{where}: a {type(got).__name__}")
            elif not abs(got - want) <= 1e-6 * want:
                found.append(f"{where}: {got:.6g} for {want:.6g}")


class _Model:
    """Stands for a translator: scores that depend on the whole of a row, on the row's number, and on nothing else.

    ``lengths`` says after how many words a row ends, if ever: before, <eos> is far behind, then it is far ahead.
    """

    def __init__(self, classes, eos, lengths, generator):
        self.classes, self.eos, self.lengths = classes, eos, lengths
        self.weights = torch.randn(64, classes, generator=generator)
        self.given: list[Tensor] = []

    def __call__(self, ids: Tensor) -> Tensor:
        self.given.append(ids.clone())
        rows = [[self.at(row, prefix[: end + 1]) for end in range(len(prefix))] for row, prefix in enumerate(ids)]
        return torch.stack([torch.stack(row) for row in rows]).requires_grad_(True)

    def at(self, row: int, prefix: Tensor) -> Tensor:
        number = (7 * row + sum((place + 2) * int(word) for place, word in enumerate(prefix))) % 64
        scores = self.weights[number].clone()
        length = self.lengths[row % len(self.lengths)]
        scores[self.eos] = 9.0 if len(prefix) == length else -9.0
        return scores


def judge_greedy_decode(space, found) -> None:
    generator = torch.Generator().manual_seed(12)
    for classes, (bos, eos, pad), lengths, max_len in [
        (12, (1, 2, 0), (3, 5, 2), 10),
        (12, (1, 2, 0), (3, 9, 99), 6),
        (9, (4, 8, 7), (4, 1, 6, 2), 9),
        (15, (0, 3, 14), (2, 2), 5),
        (7, (2, 5, 1), (99, 99), 4),
        (11, (10, 0, 3), (4,), 12),
        (11, (6, 1, 2), (5, 3), 6),
        (8, (3, 4, 5), (1, 1, 1), 7),
        (9, (5, 6, 7), (2,), 1),
    ]:
        where = f"ids {(bos, eos, pad)} lengths {lengths} max_len {max_len}"
        model = _Model(classes, eos, lengths, generator)
        state = torch.get_rng_state()
        got = found.call(where, space.greedy_decode, model, bos, eos, pad, len(lengths), max_len)
        torch.set_rng_state(state)
        rows = []
        for number in range(len(lengths)):
            row = [bos]
            while len(row) < max_len and (len(row) == 1 or row[-1] != eos):
                row.append(int(model.at(number, torch.tensor(row)).argmax()))
            rows.append(row)
        longest = max(map(len, rows))
        found.equal(where, got, torch.tensor([row + [pad] * (longest - len(row)) for row in rows]), torch.int64)
        if [tuple(ids.shape) for ids in model.given] != [(len(lengths), t) for t in range(1, longest)]:
            found.append(f"{where}: the step was called {len(model.given)} times")


def _beam(model, bos, eos, max_len, size, penalty) -> tuple[list[int], float]:
    """Beam search over plain lists, in float64."""
    live, ended = [(0.0, [bos])], []
    while live:
        grown = [
            (total + log_p, [*ids, token])
            for total, ids in live
            for token, log_p in enumerate(model.at(0, torch.tensor(ids)).double().log_softmax(0).tolist())
        ]
        grown = sorted(grown, key=lambda pair: pair[0], reverse=True)[:size]
        over = [ids[-1] == eos or len(ids) == max_len for _, ids in grown]
        ended += [pair for pair, end in zip(grown, over, strict=True) if end]
        live = [pair for pair, end in zip(grown, over, strict=True) if not end]
    scored = [(total / (len(ids) - 1) ** penalty, ids) for total, ids in ended]
    score, ids = max(scored, key=lambda pair: pair[0])
    return ids, score


class _Hypotheses(_Model):
    """Hypotheses of one sentence: every row is asked as the first, and EOS is about as likely as a word."""

    def at(self, row: int, prefix: Tensor) -> Tensor:
        number = sum((place + 2) * int(word) for place, word in enumerate(prefix)) % 64
        return self.weights[number] + torch.eye(self.classes)[self.eos] * self.lengths[0]


def judge_beam_search(space, found) -> None:
    generator = torch.Generator().manual_seed(16)
    for classes, (bos, eos, pad), liking, max_len, size, penalty in itertools.chain.from_iterable(
        [
            (9, (1, 2, 0), 1, 8, size, 0.0),
            (7, (4, 6, 3), 2, 7, size, 0.6),
            (11, (0, 5, 1), 1, 6, size, 1.0),
            (6, (3, 0, 2), -9, 5, size, 0.8),
        ]
        for size in (1, 2, 3, 5, 20)
    ):
        where = f"ids {(bos, eos, pad)} size {size} penalty {penalty} max_len {max_len}"
        model = _Hypotheses(classes, eos, (liking,), generator)
        got = found.call(where, space.beam_search, model, bos, eos, pad, max_len, size, penalty)
        ids, score = _beam(model, bos, eos, max_len, size, penalty)
        if not (isinstance(got, tuple) and len(got) == 2):
            found.append(f"{where}: no pair")
            continue
        own = got[0].tolist() if isinstance(got[0], Tensor) else got[0]
        if own != ids:
            found.append(f"{where}: {own} for {ids}")
        elif not abs(float(got[1]) - score) <= 1e-4 * max(1, abs(score)):
            found.append(f"{where}: {float(got[1]):.5g} for {score:.5g}")
        if max(given.size(0) for given in model.given) > size:
            found.append(f"{where}: more hypotheses than the beam has")


#: Pairs of texts, a sentence on either side, words apart by blanks.
TEXTS = [
    ["the cat sat on the mat | the cat sat on the mat", "a dog saw it | a dog saw it"],
    ["the cat sat on the mat today | the cat sat on the red mat today", "a dog barks | a dog barks loudly at night"],
    ["the the the the the the | the cat is on the mat", "there is a cat on the mat | there is a cat on the mat now"],
    ["the small bird saw the cat | the small bird saw the cat", "she picks me up at six | she calls the child at six"],
    ["one two three four five six seven | one two three four", "one two three four five | one two three four five"],
    ["a b c d | a b c d", "a | b", "x y | x z"],
    ["a b c | a b c", "d e f | d e f"],
    ["the <unk> saw the cat there | the <unk> saw the cat there", "a <unk> <unk> bird sings now | a <unk> bird sings now"],
    ["Die Katze sah den Hund heute | die Katze sah den Hund heute", "The dog ran to the house | the dog ran to the house"],
    ["a b c d a b c d a b | a b c d a b x y", "q r s t u | q r s t u v w x y z"],
    [" | a b c d e", "a b c d e | a b c d e", "f g h i j k | f g h i j"],
    ["no word is the same here | alles ist ganz anders als dort"],
    ["m n o p q | m n o p", "g h i j k l | g h i j", "a b c d e f | a b c d e"],
]  # fmt: skip


def judge_corpus_bleu(space, found) -> None:
    import sacrebleu

    for number, text in enumerate(TEXTS):
        pairs = [line.split("|") for line in text]
        hypotheses, references = ([pair[side].split() for pair in pairs] for side in (0, 1))
        given = [list(words) for words in hypotheses], [list(words) for words in references]
        got = found.call(f"text {number}", space.corpus_bleu, *given)
        if given != (hypotheses, references) and list(given) != [hypotheses, references]:
            found.append(f"text {number}: input changed")
        joined = [[" ".join(words) for words in side] for side in (hypotheses, references)]
        want = sacrebleu.corpus_bleu(joined[0], [joined[1]], smooth_method="none", tokenize="none", force=True).score
        if not isinstance(got, (int, float)):
            found.append(f"text {number}: a {type(got).__name__}")
        elif not abs(got - want) <= 1e-6 * max(1.0, want):
            found.append(f"text {number}: {got:.6g} for {want:.6g}")


class _Layer(nn.Module):
    """Tokens that read open tokens and open memory, each layer in its own way; notes what it is given."""

    def __init__(self, width, generator):
        super().__init__()
        for name in ("own", "read", "look"):
            setattr(self, name, nn.Parameter(torch.randn(width, width, generator=generator)))
        self.given: list = []

    def forward(self, *args):
        x, memory, target_mask, memory_mask = (*args, None, None)[:4]
        if len(args) > 4:
            raise TypeError("too many arguments")
        self.given.append((memory, target_mask, memory_mask))
        return _decode(x, memory, target_mask, memory_mask, {n: getattr(self, n) for n in ("own", "read", "look")})


def _open_mean(values, mask, queries):
    rows = torch.ones(len(values), queries, values.size(1), dtype=values.dtype)
    if mask is not None:
        rows = rows * mask[:, 0]
    return rows @ values / rows.sum(-1, keepdim=True).clamp(min=1)


def _decode(x, memory, target_mask, memory_mask, p):
    length = x.size(1)
    seen, looked = _open_mean(x, target_mask, length), _open_mean(memory, memory_mask, length)
    return torch.tanh(x @ p["own"] + seen @ p["read"] + looked @ p["look"])


class _Norm(nn.Module):
    def __init__(self, width, generator):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width, generator=generator))

    def forward(self, x):
        return self.gain * x.sin()


def judge_decoder(space, found) -> None:
    generator = torch.Generator().manual_seed(14)
    for plan, (batch, target, source, width), with_norm in itertools.product(
        ("0", "012", "010"), ((2, 4, 3, 5), (3, 4, 4, 4), (1, 2, 6, 3)), (False, True)
    ):
        where = f"layers {plan} norm {with_norm} {(batch, target, source, width)}"
        layers = [_Layer(width, generator) for _ in range(3)]
        given = [layers[int(place)] for place in plan]
        norm = _Norm(width, generator) if with_norm else None
        module = found.call(where, space.Decoder, given, *((norm,) if with_norm else ()))
        if module is None:
            continue
        state = {f"layers.{i}.{name}" for i in range(len(plan)) for name in ("own", "read", "look")}
        state |= {"norm.gain"} if with_norm else set()
        if set(module.state_dict()) != state:
            found.append(f"{where}: state {list(module.state_dict())}")
            continue
        if [id(layer) for layer in module.layers] != [id(layer) for layer in given] or module.norm is not norm:
            found.append(f"{where}: not the very objects")
            continue
        causal = torch.ones(target, target).tril().bool().expand(batch, 1, target, target)
        some = torch.rand(batch, 1, target, target, generator=generator) < 0.5
        padding = (torch.arange(source) < torch.randint(1, source + 1, (batch, 1), generator=generator))[:, None, None]
        padding = padding.expand(batch, 1, target, source)
        for index, masks in enumerate(((None, None), (causal, padding), (some, None), (None, padding))):
            dtype = torch.float64 if index == 1 else torch.float32
            module = module.to(dtype).train(index % 2 == 0)
            for layer in layers:
                layer.given.clear()
            inputs = [
                torch.randn(batch, length, width, generator=generator, dtype=dtype) for length in (target, source)
            ]

            def formula(x, memory, p, masks=masks, plan=plan, with_norm=with_norm):
                for place in plan:
                    first = plan.index(place)  # a layer that stands there twice has one name for its parameters
                    x = _decode(x, memory, *masks, {n: p[f"layers.{first}.{n}"] for n in ("own", "read", "look")})
                return p["norm.gain"] * x.sin() if with_norm else x

            label = f"{where} {dtype} masks {[None if m is None else tuple(m.shape) for m in masks]}"
            _judge_call(found, label, module, inputs, dict(module.named_parameters()), formula, masks)
            calls = [call for layer in layers for call in layer.given]
            same = all(
                memory is inputs[1] and target_mask is masks[0] and memory_mask is masks[1]
                for memory, target_mask, memory_mask in calls
            )
            if len(calls) != len(plan) or not same:
                found.append(f"{label}: {len(calls)} calls, or with something else")


class _Embed(nn.Module):
    """Stands for TransformerEmbedding: a table under its name, positions, and no dropout."""

    def __init__(self, vocabulary, width, generator):
        super().__init__()
        self.token = nn.Module()
        self.token.embedding = nn.Embedding(vocabulary, width)
        self.register_buffer("positions", torch.randn(20, width, generator=generator), persistent=False)

    def forward(self, ids):
        return _embed(ids, self.token.embedding.weight, self.positions)


def _embed(ids, table, positions):
    return table[ids] * table.size(1) ** 0.5 + positions[: ids.size(1)].to(table.dtype)


class _Encoder(nn.Module):
    def __init__(self, width, generator):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, generator=generator))

    def forward(self, x, mask=None):
        return _encode(x, mask, self.weight)


def _encode(x, mask, weight):
    return torch.tanh(x + _open_mean(x, mask, x.size(1)) @ weight)


class _Decoder(_Layer):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return super().forward(x, memory, target_mask, memory_mask)


def judge_transformer(space, found) -> None:
    generator = torch.Generator().manual_seed(15)
    for (batch, source, target), width, (words, vocabulary), pad in [
        ((2, 5, 4), 6, (11, 13), 0),
        ((3, 4, 4), 5, (9, 9), 7),
        ((1, 3, 6), 4, (8, 12), 2),
        ((4, 6, 1), 8, (12, 10), 5),
    ]:
        where = f"{(batch, source, target)} width {width} words {(words, vocabulary)} pad {pad}"
        parts = [_Embed(words, width, generator), _Embed(vocabulary, width, generator)]
        parts += [_Encoder(width, generator), _Decoder(width, generator)]
        model = found.call(where, space.Transformer, *parts, pad)
        if model is None:
            continue
        names = ("source_embed", "target_embed", "encoder", "decoder")
        if any(getattr(model, name, None) is not part for name, part in zip(names, parts, strict=True)):
            found.append(f"{where}: not the very objects")
            continue
        wanted = {f"{name}.{key}" for name, part in zip(names, parts, strict=True) for key in part.state_dict()}
        if set(model.state_dict()) != wanted:
            found.append(f"{where}: state {list(model.state_dict())}")
            continue
        for dtype, train in ((torch.float32, True), (torch.float64, False)):
            model = model.to(dtype).train(train)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * width**-0.5)
            sides = []
            for length, number in ((source, words), (target, vocabulary)):
                ids = torch.randint(0, number, (batch, length), generator=generator)
                ids[ids == pad] = (pad + 1) % number
                lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
                sides.append(torch.where(torch.arange(length) < lengths, ids, pad))
            _judge_translation(found, f"{where} {dtype}", model, sides, pad)
    # The table as it is drawn: wide enough that chance does not decide.
    for width, vocabulary, pad in ((64, 300, 0), (16, 900, 17)):
        where = f"table ({vocabulary}, {width})"
        parts = [_Embed(5 + pad, width, generator), _Embed(vocabulary, width, generator)]
        table = parts[1].token.embedding.weight
        found.call(where, space.Transformer, *parts, _Encoder(width, generator), _Decoder(width, generator), pad)
        rows = table.detach()[torch.arange(vocabulary) != pad]
        if table.detach()[pad].any():
            found.append(f"{where}: the padding row is not zero")
        if abs(rows.std().item() * width**0.5 - 1) > 0.05 or abs(rows.mean().item()) * width**0.5 > 0.05:
            found.append(f"{where}: mean {rows.mean():.3f}, deviation {rows.std():.3f}")
        if abs((rows.abs() < rows.std()).float().mean().item() - 0.683) > 0.02:
            found.append(f"{where}: not normally distributed")


def _judge_translation(found, where, model, sides, pad) -> None:
    source_ids, target_ids = (ids.clone() for ids in sides)
    exact = {name: p.detach().double().requires_grad_(True) for name, p in model.named_parameters()}
    tables = [exact[f"{side}_embed.token.embedding.weight"] for side in ("source", "target")]
    real_source, real_target = ((ids != pad)[:, None, None, :] for ids in sides)
    causal = torch.ones(sides[1].size(1), sides[1].size(1)).tril().bool()
    embedded = [
        _embed(ids, table, embed.positions.double())
        for ids, table, embed in zip(sides, tables, (model.source_embed, model.target_embed), strict=True)
    ]
    memory = _encode(embedded[0], real_source, exact["encoder.weight"])
    decoder = {name: exact[f"decoder.{name}"] for name in ("own", "read", "look")}
    logits = _decode(embedded[1], memory, real_target & causal, real_source, decoder) @ tables[1].T
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        own_memory = found.call(f"{where}: encode", model.encode, source_ids)
        found.equal(f"{where}: encode", own_memory, memory.detach(), dtype)
        given = memory.detach().to(dtype)
        found.equal(f"{where}: decode", found.call(where, model.decode, target_ids, given, source_ids), logits.detach())
    got = found.call(where, model, source_ids, target_ids)
    found.equal(where, got, logits.detach(), dtype)
    if not (torch.equal(source_ids, sides[0]) and torch.equal(target_ids, sides[1])):
        found.append(f"{where}: input changed")
    if not (isinstance(got, Tensor) and got.shape == logits.shape and got.requires_grad):
        return
    cotangent = torch.cos(torch.arange(1.0, 1 + logits.numel(), dtype=torch.float64)).reshape(logits.shape)
    model.zero_grad()
    found.call(f"{where}: backward", (got * cotangent).sum().backward)
    for (name, parameter), gradient in zip(
        model.named_parameters(), torch.autograd.grad((logits * cotangent).sum(), list(exact.values())), strict=True
    ):
        if parameter.grad is None:
            found.append(f"{where}: no gradient for {name}")
        else:
            found.equal(f"{where}: gradient of {name}", parameter.grad, gradient, tolerance=1e-3)


JUDGES = {
    "Decoder": judge_decoder,
    "Transformer": judge_transformer,
    "shift_targets": judge_shift_targets,
    "label_smoothed_cross_entropy": judge_label_smoothed_cross_entropy,
    "noam_lr": judge_noam_lr,
    "greedy_decode": judge_greedy_decode,
    "beam_search": judge_beam_search,
    "corpus_bleu": judge_corpus_bleu,
}
