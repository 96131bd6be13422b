"""The judges of chapter 9 for test_bank_itself: each holds a piece against formulas of its own and notes departures."""

from __future__ import annotations

import math

import torch
from torch import Tensor


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


JUDGES = {
    "shift_targets": judge_shift_targets,
    "label_smoothed_cross_entropy": judge_label_smoothed_cross_entropy,
    "noam_lr": judge_noam_lr,
    "greedy_decode": judge_greedy_decode,
    "corpus_bleu": judge_corpus_bleu,
}
