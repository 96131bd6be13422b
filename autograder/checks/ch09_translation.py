"""Hidden checks of chapter 9. Losses, schedules, decoding and BLEU are worked out in NumPy; modules are run with probes."""

import itertools
import math
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F

from autograder.compare import expect, require, require_array, require_pair
from autograder.oracles import any_mask, distinct_sizes, gradients, normal, require_dtype
from autograder.registry import check
from autograder.student import Probe, StudentError
from autograder.weights import require_accuracy
from autograder.wiring import apply, maps
from transformer_lab import weights

# ------------------------------------------------------------------------------------------------------ shift_targets

SHIFT = "shift_targets"


@check(SHIFT, points=1)
def shift_gives_what_is_read_and_what_is_to_be_said(student, rng):
    """All columns but the last, and all but the first, for sentences of any ids and lengths; the input stays."""
    for number in range(3):
        batch, length = distinct_sizes(rng, 2, 3)
        if number == 2:
            length = 2
        ids = rng.integers(3, 40, size=(batch, length))
        if number == 1:  # <bos> words <eos> padding
            ends = rng.integers(1, length, size=batch)
            ends[rng.integers(batch)] = rng.integers(1, length - 1)  # one at least is read and not only said
            places = np.arange(length)
            ids[places > ends[:, None]] = 0
            ids[np.arange(batch), ends] = 2
            ids[:, 0] = 1
        got, after = student.run(SHIFT, ids, want=("output", "inputs"))
        what = f"for target_ids {ids.shape}"
        given, labels = require_pair(got, SHIFT)
        for result, want, name in ((given, ids[:, :-1], "the decoder's input"), (labels, ids[:, 1:], "the labels")):
            require_array(result, f"{name} {what}")
            require(result.dtype == np.int64, f"{SHIFT}: {name} {what}: dtype {result.dtype}, expected int64.")
            expect(result, want, f"{name} {what}", tolerance=0)
        require(np.array_equal(after[0], ids), f"{SHIFT}: target_ids are others after the call.")


# --------------------------------------------------------------------------------------- label_smoothed_cross_entropy

LOSS = "label_smoothed_cross_entropy"


def smoothed_loss(logits, targets, pad_id: int, smoothing: float) -> float:
    """−Σ q log p for each real token, q = (1 − s) · one-hot + s / V, and the mean over them, in float64."""
    logits, real = np.asarray(logits, np.float64), targets != pad_id
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))[real]
    chosen = log_p[np.arange(len(log_p)), targets[real]]
    return float(-((1 - smoothing) * chosen + smoothing * log_p.mean(-1)).mean())


def _require_loss(got, logits, targets, pad_id: int, smoothing: float, kind: str) -> None:
    what = f"{LOSS} for logits {logits.shape}, pad_id {pad_id}, smoothing {smoothing:g}, {kind}"
    expect(got, np.asarray(smoothed_loss(logits, targets, pad_id, smoothing)), what)


@check(LOSS, points=1)
def smoothed_is_the_mean_against_a_softened_target(student, rng):
    """Without padding: (1 − s) on the right class and s/V on every class, averaged over the tokens; s = 0 if not said."""
    for smoothing in (0.1, 0.0, float(rng.uniform(0.2, 0.6)), 1.0):
        tokens, classes = distinct_sizes(rng, 2, 4, 13)
        logits = normal(rng, tokens, classes, scale=2)
        pad_id = int(rng.integers(classes))
        targets = rng.integers(classes - 1, size=tokens)
        targets[targets >= pad_id] += 1
        got = student.run(LOSS, logits, targets, pad_id, smoothing)
        _require_loss(got, logits, targets, pad_id, smoothing, "without padding")
    while abs(smoothed_loss(logits, targets, pad_id, 0.1) - smoothed_loss(logits, targets, pad_id, 0.0)) < 0.1:
        logits = normal(rng, tokens, classes, scale=2)
    try:
        got = student.run(LOSS, logits, targets, pad_id)
    except StudentError as error:  # a signature without the default: every caller here says what it wants
        if error.type_name != "TypeError" or "missing 1 required positional argument" not in error.message:
            raise
    else:
        _require_loss(got, logits, targets, pad_id, 0.0, "which is left to its default")


@check(LOSS, points=1)
def smoothed_leaves_padding_out_and_stays_finite(student, rng):
    """Padding of any id is neither added nor counted and gets no gradient; logits of ±1000 give no infinity."""
    for number in range(4):
        tokens, classes = distinct_sizes(rng, 2, 5, 14)
        logits = normal(rng, tokens, classes, scale=(1, 3, 400, 2)[number], dtype=(np.float32, np.float64)[number == 3])
        pad_id = 0 if number == 0 else int(rng.integers(1, classes))
        targets = rng.integers(classes, size=tokens)
        targets[targets == pad_id] = (pad_id + 1) % classes
        padding = any_mask(rng, tokens)
        targets[padding] = pad_id
        if number == 1:
            targets[np.flatnonzero(~padding)[0]] = 0  # an ordinary class here
        smoothing = (0.1, 0.3, 0.1, 0.0)[number]
        got, after, grads = student.run(
            LOSS, logits, targets, pad_id, smoothing, want=("output", "inputs", "input_grads")
        )
        kind = "with padding" + (" and logits of the size of 1000" if number == 2 else "")
        _require_loss(got, logits, targets, pad_id, smoothing, kind)
        require_dtype(got, logits.dtype.type, "logits", "a loss")
        require(np.array_equal(after[0], logits), f"{LOSS}: the logits are others after the call.")
        require(np.array_equal(after[1], targets), f"{LOSS}: the targets are others after the call.")
        require(
            grads[0] is not None, f"{LOSS}: no gradient comes back to the logits: is it a mere number, or detached?"
        )
        require(not grads[0][padding].any(), f"{LOSS}: a gradient reaches the logits at padding.")

        def pytorchs(x, targets=targets, pad_id=pad_id, smoothing=smoothing):
            return F.cross_entropy(x, torch.from_numpy(targets), ignore_index=pad_id, label_smoothing=smoothing)

        expect(grads[0], gradients(pytorchs, logits)[0], f"the gradient of the logits, {kind}", tolerance=1e-3)


# ------------------------------------------------------------------------------------------------------------ noam_lr

NOAM = "noam_lr"


@check(NOAM, points=1)
def noam_rises_and_falls(student, rng):
    """D^−½ · min(step^−½, step · warmup^−3/2), before, at and after the end of the warm-up, from step 1 on."""
    # Small sizes first: their rates are large, so that two mistakes are well apart. All is asked before anything is judged.
    for most_wide, most_long in ((20, 40), (600, 5000), (600, 5000)):
        d_model, warmup = int(rng.integers(5, most_wide)), int(rng.integers(5, most_long))
        steps = (1, 2, max(3, warmup // 3), warmup - 1, warmup, warmup + 1, 4 * warmup, 1000 * warmup)
        answers = [student.run(NOAM, step, d_model, warmup) for step in steps]
        for step, answer in zip(steps, answers, strict=True):
            got = _number(answer, f"{NOAM}({step}, {d_model}, {warmup})")
            want = 1 / math.sqrt(d_model * step) if step > warmup else step / math.sqrt(d_model * warmup**3)
            where = "in the warm-up" if step < warmup else "behind the warm-up" if step > warmup else "at the peak"
            require(
                abs(got - want) <= 1e-5 * want,
                f"{NOAM}(step={step}, d_model={d_model}, warmup={warmup}), {where}: got {got:.6g}, expected {want:.6g}.",
            )


def _number(got, what: str) -> float:
    """The number that came back, from Python or in a tensor without axes."""
    if isinstance(got, np.ndarray) and got.shape == () and got.dtype.kind == "f":
        got = float(got)
    kind = type(got).__name__ if got is not None else "None"
    require(
        isinstance(got, (int, float)) and not isinstance(got, bool), f"{what}: a {kind} came back, expected a float."
    )
    require(math.isfinite(got), f"{what}: got {got}, expected a finite number.")
    return float(got)


# ------------------------------------------------------------------------------------------------------------ Decoder

DECODER = "Decoder"


def _mean_of_open(values, mask, queries: int) -> np.ndarray:
    """For each query the mean of the values (B, L, D) that its row of the mask opens; 0 where it opens none."""
    shape = (len(values), 1, queries, values.shape[1])
    rows = np.ones(shape) if mask is None else np.broadcast_to(mask, shape).astype(np.float64)
    return rows[:, 0] @ values / np.maximum(rows[:, 0].sum(-1, keepdims=True), 1)


def _mix(pair, x, mask) -> np.ndarray:
    """What a mixing probe returns, in float64."""
    w, v = (np.asarray(array, np.float64) for array in pair)
    return x @ w.T + _mean_of_open(x @ v.T, mask, x.shape[1])


def _cross(triple, x, memory, mask, memory_mask) -> np.ndarray:
    """What a crossing probe returns, in float64."""
    w, v, u = (np.asarray(array, np.float64) for array in triple)
    x, memory = np.asarray(x, np.float64), np.asarray(memory, np.float64)
    read = _mean_of_open(x @ v.T, mask, x.shape[1]) + _mean_of_open(memory @ u.T, memory_mask, x.shape[1])
    return x @ w.T + read


def _square(rng, d_model: int, count: int) -> tuple[np.ndarray, ...]:
    return tuple(normal(rng, d_model, d_model, scale=d_model**-0.5) for _ in range(count))


@check(DECODER, points=1)
def decoder_hands_memory_and_masks_to_every_layer(student, rng):
    """x goes from layer to layer in their order; each is called once, with the same memory and both masks as they are."""
    for count, kind in ((1, "causal"), (3, "full"), (2, "none"), (4, "memory alone")):
        batch, length, source, d_model = distinct_sizes(rng, 4, 3)
        layers = [_square(rng, d_model, 3) for _ in range(count)]
        probes = [Probe("crossing", f"layer {i}", *arrays) for i, arrays in enumerate(layers)]
        x, memory = normal(rng, batch, length, d_model), normal(rng, batch, source, d_model)
        masks = {
            "causal": (np.tri(length, dtype=bool)[None, None], any_mask(rng, batch, 1, 1, source)),
            "full": (any_mask(rng, batch, 1, length, length), any_mask(rng, batch, 1, length, source)),
            "none": (None, None),
            "memory alone": (None, any_mask(rng, batch, 1, 1, source)),
        }[kind]
        given = () if kind == "none" else masks
        got, calls, after = student.run(DECODER, x, memory, *given, init=(probes,), want=("output", "calls", "inputs"))
        for place, probe in enumerate(probes):
            name = f"layer {place} of {count}"
            times = len(calls[probe.name])
            require(times == 1, f"{DECODER}: {name} is called {times} times, expected once.")
            arguments = [*calls[probe.name][0], None, None, None]
            require(
                len(arguments) <= 7,
                f"{DECODER}: {name} gets {len(arguments) - 3} arguments, expected x, memory, masks.",
            )
            expect(arguments[1], memory, f"the memory that {name} gets")
            for argument, mask, which in zip(arguments[2:4], masks, ("target_mask", "memory_mask"), strict=True):
                if mask is None:
                    require(argument is None, f"{DECODER}: {name} gets a {which} where none was given.")
                else:
                    require(argument is not None, f"{DECODER}: no {which} reaches {name}.")
                    expect(argument, mask, f"the {which} that {name} gets")
        want = x
        for arrays in layers:
            want = _cross(arrays, want, memory, *masks)
        expect(got, want, f"the output of a {DECODER} of {count} layers for x {x.shape}", tolerance=3e-4)
        require(
            np.array_equal(after[0], x) and np.array_equal(after[1], memory), f"{DECODER}: x or memory was changed."
        )


@check(DECODER, points=1)
def decoder_norms_once_and_trains_what_it_was_given(student, rng):
    """A norm is called once, behind the last layer; state and gradients are those of the given layers and the norm."""
    batch, length, source, d_model = distinct_sizes(rng, 4, 3)
    first, second, last = (maps(rng, d_model) for _ in range(3))
    one, two = Probe("layer", "one", *first), Probe("layer", "two", *second)
    init = ([one, two, two], Probe("layer", "norm", *last))
    own = [f"{name}.{part}" for name in ("layers.0", "layers.1", "layers.2", "norm") for part in ("weight", "bias")]
    names, shapes = student.run(DECODER, init=init, want=("state_names", "parameter_shapes"))
    missing = sorted(set(own) - set(names))
    require(not missing, f"The state of {DECODER} has no {', '.join(missing)}; it has {', '.join(names) or 'nothing'}.")
    extra = sorted((set(names) | set(shapes)) - set(own))
    require(not extra, f"The state of {DECODER} also has {', '.join(extra)}.")
    copied = any(name.startswith("layers.2.") for name in shapes)
    require(
        not copied, f"{DECODER}: a layer that stands twice in the list has two sets of parameters; it is one layer."
    )
    x, memory = normal(rng, batch, length, d_model), normal(rng, batch, source, d_model)
    got, calls, inputs, parameters = student.run(
        DECODER, x, memory, init=init, mode="train", want=("output", "calls", "input_grads", "parameter_grads")
    )
    times = len(calls["norm"])
    require(times == 1, f"{DECODER}: the norm is called {times} times, expected once, behind the last layer.")
    require(len(calls["norm"][0]) == 1, f"{DECODER}: the norm gets one tensor and nothing else.")
    for name, calls_of in (("one", calls["one"]), ("two", calls["two"])):
        for arguments in calls_of:
            require(len(arguments) > 1, f"{DECODER}: layer {name} gets no memory.")
            expect(arguments[1], memory, f"the memory that layer {name} gets in a {DECODER} with a norm")
    want = apply(last, apply(second, apply(second, apply(first, x))))
    expect(got, want, f"the output of a {DECODER} with a norm, layers one, two and two again,", tolerance=3e-4)

    def pytorchs(x, w1, b1, w2, b2, w3, b3):
        return F.linear(F.linear(F.linear(F.linear(x, w1, b1), w2, b2), w2, b2), w3, b3)

    wanted = gradients(pytorchs, x, *first, *second, *last)
    require(inputs[0] is not None, f"{DECODER}: no gradient reaches x.")
    expect(inputs[0], wanted[0], "the gradient of x", tolerance=1e-3)
    trained = [name for name in own if not name.startswith("layers.2.")]
    for name, grad in zip(trained, wanted[1:], strict=True):
        require(parameters.get(name) is not None, f"{DECODER}: no gradient reaches {name}.")
        expect(parameters[name], grad, f"the gradient of {name}", tolerance=1e-3)


# -------------------------------------------------------------------------------------------------------- Transformer

TRANSFORMER = "Transformer"
TABLE = "target_embed.token.embedding.weight"
SOURCE_TABLE = "source_embed.token.embedding.weight"


class _Case:
    """A Transformer around probes, and what it should give; ``own`` is whether target tokens read each other."""

    def __init__(self, student, rng, own: bool, pad_id: int | None = None, dtype=np.float32):
        self.student = student
        self.batch, self.source, self.target, self.d_model = distinct_sizes(rng, 4, 3)
        self.words, self.vocabulary = (int(n) for n in rng.permutation(np.arange(14, 22))[:2])
        self.pad_id = int(rng.integers(1, 14)) if pad_id is None else pad_id
        scale = self.d_model**-0.5
        self.tables = [normal(rng, n, self.d_model, scale=scale, dtype=dtype) for n in (self.words, self.vocabulary)]
        self.positions = [normal(rng, 16, self.d_model, scale=0.5) for _ in "st"]
        self.encoder, self.decoder = _square(rng, self.d_model, 2), _square(rng, self.d_model, 3)
        if not own:
            self.decoder[1][:] = 0
        names = ("source_embed", "target_embed")
        embeds = [
            Probe("tokens", name, table, places)
            for name, table, places in zip(names, self.tables, self.positions, strict=True)
        ]
        parts = (Probe("mixing", "encoder", *self.encoder), Probe("crossing", "decoder", *self.decoder))
        self.init = (*embeds, *parts, self.pad_id)
        self.state = dict(zip((SOURCE_TABLE, TABLE), self.tables, strict=True))

    def sentences(self, rng, length: int, words: int) -> np.ndarray:
        """Ids (B, length) without padding."""
        ids = rng.integers(words - 1, size=(self.batch, length))
        return np.where(ids >= self.pad_id, ids + 1, ids)

    def both(self, rng, padded: bool) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for length, words in ((self.source, self.words), (self.target, self.vocabulary)):
            ids = self.sentences(rng, length, words)
            if padded:
                lengths = rng.permutation(np.append(rng.integers(1, length, size=self.batch - 1), length))
                ids = np.where(np.arange(length) < lengths[:, None], ids, self.pad_id)
            found.append(ids)
        return found[0], found[1]

    def run(self, *inputs, **how):
        return self.student.run(TRANSFORMER, *inputs, init=self.init, state=self.state, **how)

    def memory(self, source_ids) -> np.ndarray:
        vectors = self.tables[0].astype(np.float64)[source_ids] + self.positions[0][: source_ids.shape[1]]
        return _mix(self.encoder, vectors, (source_ids != self.pad_id)[:, None, None])

    def logits(self, source_ids, target_ids, memory=None) -> np.ndarray:
        """Embedding, encoder, decoder and the target's table, in float64."""
        table = self.tables[1].astype(np.float64)
        vectors = table[target_ids] + self.positions[1][: target_ids.shape[1]]
        length = target_ids.shape[1]
        mask = (target_ids != self.pad_id)[:, None, None] & np.tri(length, dtype=bool)
        memory = self.memory(source_ids) if memory is None else memory
        memory_mask = (source_ids != self.pad_id)[:, None, None]
        return _cross(self.decoder, vectors, memory, mask, memory_mask) @ table.T


@check(TRANSFORMER, points=1)
def transformer_goes_from_ids_to_logits(student, rng):
    """Without padding: encode gives the memory, decode the logits by the target's table, unscaled, forward does both."""
    case = _Case(student, rng, own=False)
    source_ids, target_ids = case.both(rng, padded=False)
    got, after = case.run(source_ids, target_ids, want=("output", "inputs"))
    what = f"the logits for source_ids {source_ids.shape} and target_ids {target_ids.shape} without padding"
    expect(got, case.logits(source_ids, target_ids), what, tolerance=3e-4)
    require(
        np.array_equal(after[0], source_ids) and np.array_equal(after[1], target_ids),
        f"{TRANSFORMER}: ids were changed.",
    )
    memory = case.run(source_ids, method="encode")
    expect(memory, case.memory(source_ids), f"what encode gives for source_ids {source_ids.shape}", tolerance=3e-4)
    other = normal(rng, case.batch, case.source, case.d_model)
    got = case.run(target_ids, other, source_ids, method="decode")
    want = case.logits(source_ids, target_ids, other.astype(np.float64))
    expect(got, want, "what decode gives for a memory of its own", tolerance=3e-4)


@check(TRANSFORMER, points=1)
def transformer_makes_its_masks(student, rng):
    """Encoder and memory get the padding mask of the source, the decoder one of padding and future; any padding id."""
    for pad_id in (0, None):
        case = _Case(student, rng, own=True, pad_id=pad_id)
        source_ids, target_ids = case.both(rng, padded=True)
        calls = case.run(source_ids, target_ids, want="calls")
        for name in ("source_embed", "target_embed", "encoder", "decoder"):
            times = len(calls[name])
            require(times == 1, f"{TRANSFORMER}: {name} is called {times} times, expected once.")
        source_real = (source_ids != case.pad_id)[:, None, None]
        target_real = (target_ids != case.pad_id)[:, None, None]
        encoder, decoder = calls["encoder"][0], calls["decoder"][0]
        require(
            len(encoder) == 2,
            f"{TRANSFORMER}: the encoder gets {len(encoder)} arguments, expected a tensor and a mask.",
        )
        require(len(decoder) == 4, f"{TRANSFORMER}: the decoder gets {len(decoder)} arguments, expected four.")
        length = case.target
        for mask, want, what in (
            (encoder[1], source_real, "the encoder's mask"),
            (decoder[2], target_real & np.tri(length, dtype=bool), "the decoder's target_mask"),
            (decoder[3], source_real, "the decoder's memory_mask"),
        ):
            queries = case.source if what.startswith("the encoder") else length
            full = (case.batch, 1, queries, want.shape[-1])
            what += f" with padding id {case.pad_id}"
            require(mask is not None, f"{TRANSFORMER}: {what} is None.")
            require_array(mask, what)
            require(mask.dtype == bool, f"{what[:1].upper()}{what[1:]}: dtype {mask.dtype}, expected bool.")
            fits = len(mask.shape) == 4 and all(m in (1, f) for m, f in zip(mask.shape, full, strict=True))
            require(fits, f"{what[:1].upper()}{what[1:]}: shape {mask.shape}, expected one that broadcasts to {full}.")
            expect(np.broadcast_to(mask, full), np.broadcast_to(want, full), what, tolerance=0)


@check(TRANSFORMER, points=1)
def transformer_sees_no_future_and_no_padding(student, rng):
    """A changed target token changes nothing before it; more padding on either side and other rows change no logits."""
    case = _Case(student, rng, own=True)
    source_ids, target_ids = case.both(rng, padded=False)
    got = case.run(source_ids, target_ids)
    shape = (case.batch, case.target, case.vocabulary)
    require_array(got, "the logits")
    require(got.shape == shape, f"The logits: shape {got.shape}, expected (B, T, V) = {shape}.")
    place = int(rng.integers(1, case.target))
    changed = target_ids.copy()
    choices = [token for token in range(case.vocabulary) if token != case.pad_id]
    for row in changed:
        row[place] = choices[(choices.index(row[place]) + 1 + rng.integers(len(choices) - 2)) % len(choices)]
    later = case.run(source_ids, changed)
    expect(later[:, :place], got[:, :place], f"the logits before place {place}, where the target was changed,")
    require(not np.allclose(later[:, place:], got[:, place:], atol=1e-4), "A changed target token changes no logits.")
    more = int(rng.integers(1, 4))
    padding = np.full((case.batch, more), case.pad_id)
    longer = case.run(np.hstack([source_ids, padding]), target_ids)
    expect(longer, got, f"the logits with {more} more tokens of padding in the source, held against those without,")
    longer = case.run(source_ids, np.hstack([target_ids, padding]))
    expect(longer[:, : case.target], got, f"the logits with {more} more tokens of padding in the target,")
    padded = np.hstack([target_ids[:, :1], padding, target_ids[:, 1:]])  # nobody reads it, wherever it stands
    other = padded.copy()
    got = case.run(source_ids, padded)
    want = case.logits(source_ids, other)
    real = padded != case.pad_id
    require_array(got, "the logits")
    expect(got[real], want[real], "the logits at real tokens with padding between them", tolerance=3e-4)
    alone = case.run(source_ids[:1], target_ids[:1])
    expect(alone, case.logits(source_ids, target_ids)[:1], "the logits of a sentence alone", tolerance=3e-4)


@check(TRANSFORMER, points=1)
def transformer_ties_and_initialises_its_table(student, rng):
    """The output is the target's own table, drawn from N(0, 1/√D) with zeros for padding; no parameter besides the parts'."""
    case = _Case(student, rng, own=True)
    names, shapes = student.run(TRANSFORMER, init=case.init, want=("state_names", "parameter_shapes"))
    wanted = {SOURCE_TABLE, TABLE}
    missing = sorted(wanted - set(names))
    require(
        not missing, f"The state of {TRANSFORMER} has no {', '.join(missing)}; it has {', '.join(names) or 'nothing'}."
    )
    extra = sorted((set(names) | set(shapes)) - wanted)
    require(
        not extra, f"The state of {TRANSFORMER} also has {', '.join(extra)}; the output layer is the target's table."
    )
    width, vocabulary, pad_id = 64, 400, int(rng.integers(1, 14))
    table = normal(rng, vocabulary, width, scale=3)
    embeds = (case.init[0], Probe("tokens", "target_embed", table, case.positions[1]))
    init = (*embeds, Probe("identity", "encoder"), Probe("identity", "decoder"), pad_id)
    initial = student.run(TRANSFORMER, init=init, want="initial_state")
    rows = initial[TABLE].astype(np.float64)
    require(rows.shape == table.shape, f"{TABLE} has shape {rows.shape}, expected {table.shape}.")
    require(not rows[pad_id].any(), f"Row {pad_id} of a new table, that of padding, is not 0.")
    drawn = np.delete(rows, pad_id, axis=0)
    deviation, ideal = drawn.std(), width**-0.5
    require(
        abs(deviation / ideal - 1) < 0.05 and abs(drawn.mean()) < 0.05 * ideal,
        f"A new table of width {width} has mean {drawn.mean():.3g} and standard deviation {deviation:.3g}, expected 0 and "
        f"1/√{width} = {ideal:.3g}.",
    )
    inside = (np.abs(drawn) < deviation).mean()  # 0.683 of a normal distribution, 0.577 of a uniform one
    require(
        abs(inside - 0.683) < 0.03, f"A new table is not normally distributed: {inside:.3g} of it lies within one σ."
    )

    for dtype in (np.float32, np.float64):
        case = _Case(student, rng, own=False, dtype=dtype)
        source_ids, target_ids = case.both(rng, padded=False)
        got, grads = case.run(source_ids, target_ids, mode="train", want=("output", "parameter_grads"))
        require_array(got, "the logits")
        require_dtype(got, dtype, "parameters", "logits")

        def pytorchs(source, target, case=case, ids=(source_ids, target_ids)):
            places = [
                torch.from_numpy(p.astype(np.float64))[: i.shape[1]] for p, i in zip(case.positions, ids, strict=True)
            ]
            (w, v), (w2, _, u) = (
                [torch.from_numpy(a.astype(np.float64)) for a in arrays] for arrays in (case.encoder, case.decoder)
            )
            x = source[ids[0]] + places[0]
            memory = x @ w.T + (x @ v.T).mean(1, keepdim=True)
            y = (target[ids[1]] + places[1]) @ w2.T + (memory @ u.T).mean(1, keepdim=True)
            return y @ target.T

        for name, want in zip((SOURCE_TABLE, TABLE), gradients(pytorchs, *case.tables), strict=True):
            require(grads.get(name) is not None, f"{TRANSFORMER}: no gradient reaches {name}.")
            expect(grads[name], want, f"the gradient of {name}, from both its uses,", tolerance=1e-3)


# ------------------------------------------------------------------------------------------------------ greedy_decode

GREEDY = "greedy_decode"


def following(table, row: int, prefix: list[int]) -> np.ndarray:
    """The logits after a prefix, as a ``prefixes`` probe gives them."""
    return table[row % table.shape[0], _entry(table, prefix)].astype(np.float64)


def _entry(table, prefix) -> int:
    """Which row of logits belongs to a prefix."""
    return int(sum((place + 2) * token for place, token in enumerate(prefix)) % table.shape[1])


def greedy(table, bos: int, eos: int, pad: int, batch: int, max_len: int) -> np.ndarray:
    """The likeliest token again and again, row by row, and padding behind the end."""
    rows = []
    for row in range(batch):
        ids = [bos]
        while len(ids) < max_len and (len(ids) == 1 or ids[-1] != eos):
            ids.append(int(following(table, row, ids).argmax()))
        rows.append(ids)
    longest = max(map(len, rows))
    return np.array([ids + [pad] * (longest - len(ids)) for ids in rows])


def _specials(rng, classes: int) -> tuple[int, int, int]:
    """Ids of BOS, EOS and padding, no two alike, none of them where it usually is."""
    while True:
        bos, eos, pad = (int(token) for token in rng.permutation(classes)[:3])
        if bos != 1 and eos not in (0, 2) and pad != 0:  # an end of 0 would look like padding with 0
            return bos, eos, pad


def _require_greedy(student, table, specials, batch: int, max_len: int, kind: str) -> None:
    bos, eos, pad = specials
    want = greedy(table, bos, eos, pad, batch, max_len)
    probe = Probe("prefixes", "step_fn", table)
    got, calls = student.run(GREEDY, probe, *specials, batch, max_len, want=("output", "calls"))
    what = f"{GREEDY} with bos_id, eos_id, pad_id = {specials}, batch_size {batch}, max_len {max_len}, {kind}"
    require_array(got, what)
    require(got.dtype == np.int64, f"{what}: dtype {got.dtype}, expected int64.")
    expect(got, want, what, tolerance=0)
    shapes = [tuple(call[0].shape) for call in calls["step_fn"]]
    wanted = [(batch, t) for t in range(1, want.shape[1])]
    require(
        shapes == wanted,
        f"{what}: step_fn was called {len(shapes)} times, expected {len(wanted)} times, with ids (B, 1), (B, 2), ….",
    )


@check(GREEDY, points=1)
def greedy_takes_the_likeliest_token_each_time(student, rng):
    """While no row has ended: argmax of the last position, given all ids so far, up to max_len ids, BOS counted."""
    for _ in range(2):
        batch, classes, max_len = distinct_sizes(rng, 3, 3, 9)
        classes += 4
        specials = _specials(rng, classes)
        while True:  # padding is a token like others as long as a row goes on
            table = normal(rng, batch, 64, classes, scale=2)
            table[:, :, specials[1]] = -20
            table[:, :, specials[2]] += 2
            if (greedy(table, *specials, batch, max_len)[:, 1:-1] == specials[2]).any():
                break
        _require_greedy(student, table, specials, batch, max_len, "where no row ends")


@check(GREEDY, points=1)
def greedy_ends_each_row_by_itself(student, rng):
    """A row keeps its EOS and has padding behind it; it stops when all have ended, or at once where max_len is 1."""
    for number in range(3):
        batch, classes = int(rng.integers(3, 6)), int(rng.integers(7, 11))
        specials, max_len = _specials(rng, classes), int(rng.integers(11, 14))
        while True:  # rows that end at different times, all of them before max_len; in the last case not all
            table = normal(rng, batch, 64, classes, scale=2)
            table[:, :, specials[1]] += 2
            table[:, :, specials[2]] = -20
            rows = greedy(table, *specials, batch, max_len)
            lengths = (rows != specials[2]).sum(1)
            if len(set(lengths)) < 3 or lengths.min() < 3 or lengths.max() > max_len - 3:
                continue
            # Who goes on behind EOS must not say EOS again, or it would look like filling up with EOS.
            for row, (ids, end) in enumerate(zip(rows, lengths, strict=True)):
                table[row, _entry(table, ids[:end]), specials[1]] = -20
            if np.array_equal(greedy(table, *specials, batch, max_len), rows):
                break
        max_len = max_len if number < 2 else int(lengths.max()) - 1
        _require_greedy(student, table, specials, batch, max_len, "where rows end at different times")
    _require_greedy(student, table, specials, batch, 1, "where BOS is all there is room for")


# -------------------------------------------------------------------------------------------------------- beam_search

BEAM = "beam_search"


def beam(
    table,
    bos: int,
    eos: int,
    max_len: int,
    size: int,
    penalty: float,
    stay: int = 0,
    forget: bool = False,
    one_each: bool = False,
) -> tuple[list[int], float, float]:
    """The best hypothesis, its score, and the smallest margin by which anything was decided on the way.

    Three mistakes: with ``stay`` what has ended keeps its place in the beam for so many turns, with ``forget`` only what has
    ended counts, and with ``one_each`` a hypothesis goes on with its best token alone, the first one excepted.
    """
    live, best, margin = [([bos], 0.0)], ([bos], -math.inf), math.inf
    while live and len(live[0][0]) < max_len:
        grown = []
        for ids, total in live:
            logits = following(table, 0, ids)
            log_p = logits - logits.max()
            log_p = log_p - math.log(np.exp(log_p).sum())
            tokens = [int(log_p.argmax())] if one_each and len(ids) > 1 else range(len(log_p))
            grown += [([*ids, token], total + float(log_p[token])) for token in tokens]
        grown.sort(key=lambda pair: -pair[1])
        totals = [total for _, total in grown[: size + 1]]
        margin = min([margin, *(a - b for a, b in itertools.pairwise(totals))])
        live = []
        for ids, total in grown[:size]:
            goes_on = len(ids) < max_len and eos not in ids[1 : len(ids) - stay]
            if goes_on:
                live.append((ids, total))
            if ids[-1] != eos and (goes_on or forget):
                continue
            score = total / (len(ids) - 1) ** penalty
            margin = min(margin, abs(score - best[1]))
            best = max(best, (ids, score), key=lambda pair: pair[1])
    return *best, margin


def _require_beams(student, *cases) -> None:
    """Ask about every case before any is judged: one alone may look the same for two mistakes."""
    answers = []
    for table, specials, max_len, size, penalty, _ in cases:
        probe = Probe("prefixes", "step_fn", table)
        answers.append(student.run(BEAM, probe, *specials, max_len, size, penalty, want=("output", "calls")))
    for case, (got, calls) in zip(cases, answers, strict=True):
        _require_beam(got, calls, *case)


def _require_beam(got, calls, table, specials, max_len: int, size: int, penalty: float, kind: str) -> None:
    bos, eos, _ = specials
    want, score, _ = beam(table, bos, eos, max_len, size, penalty)
    what = f"{BEAM} with beam_size {size}, length_penalty {penalty:g}, max_len {max_len}{kind}"
    ids, own = require_pair(got, BEAM)
    if isinstance(ids, np.ndarray):
        require(ids.ndim == 1, f"{what}: ids of shape {ids.shape}, expected one row, (length,).")
        ids = ids.tolist()
    require(
        isinstance(ids, list), f"{what}: ids are a {type(ids).__name__}, expected a tensor with one axis or a list."
    )
    require(all(type(token) is int for token in ids), f"{what}: the ids are no whole numbers.")
    require(ids == want, f"{what}: the ids are {ids}, expected {want}.")
    own = _number(own, f"{what}: the score")
    require(abs(own - score) < 1e-3 * max(1, abs(score)), f"{what}: the score is {own:.5g}, expected {score:.5g}.")
    shapes = [call[0].shape for call in calls["step_fn"]]
    widest = max((shape[0] for shape in shapes), default=0)
    require(
        widest <= size, f"{what}: step_fn was asked about {widest} hypotheses at once, expected no more than {size}."
    )
    longest = max((shape[1] for shape in shapes), default=0)
    require(longest < max(2, max_len), f"{what}: step_fn was asked about ids that have max_len already.")


def _led(rng, wanted, sizes=(2, 5), penalties=(0.0,), slope: float = 1.0, ends: float = 0.0):
    """A step function and a search on it for which ``wanted(found, greedy's)`` holds and no decision is a close one."""
    while True:
        classes, max_len = int(rng.integers(6, 9)), int(rng.integers(6, 10))
        specials = _specials(rng, classes)
        size, penalty = int(rng.integers(*sizes)), float(rng.choice(penalties))
        table = normal(rng, 1, 64, classes, scale=slope)
        table[:, :, specials[1]] += ends
        bos, eos, _ = specials
        ids, score, margin = beam(table, bos, eos, max_len, size, penalty)
        one, one_score, _ = beam(table, bos, eos, max_len, 1, penalty)
        if margin > 2e-3 and wanted(ids, score, one, one_score, eos, max_len):
            return table, specials, max_len, size, penalty


@check(BEAM, points=1)
def beam_finds_what_a_greedy_search_misses(student, rng):
    """With beam_size 1 it is greedy; with more it keeps the best sums of all continuations and finds likelier sentences."""
    table, specials, max_len, _, _ = _led(
        rng, lambda ids, score, one, one_score, eos, most: 3 < len(one) < most, (1, 2), slope=1.5, ends=1.0
    )
    cases = [(table, specials, max_len, 1, 0.0, ", which is a greedy search")]
    while len(cases) < 4:
        case = _led(
            rng,
            lambda ids, score, one, one_score, eos, most: ids != one and score > one_score and 3 < len(ids) < most,
            ends=1.0,
        )
        table, (bos, eos, _), max_len, size, penalty = case
        # In one of them at least, two continuations of one hypothesis have to be kept.
        right, slip = (beam(table, bos, eos, max_len, size, penalty, one_each=each)[0] for each in (False, True))
        if len(cases) > 1 or slip != right:
            cases.append((*case, ""))
    _require_beams(student, *cases)


@check(BEAM, points=1)
def beam_scores_by_length_and_keeps_what_has_ended(student, rng):
    """Σ log p is divided by (generated tokens, EOS counted) ** length_penalty; what ended is kept; max_len ends the rest."""
    cases = []
    for penalty in (0.6, 1.0):
        # The penalty decides, something that ended before the last step wins, and it would not if what ended stayed.
        while True:
            case = _led(
                rng, lambda ids, score, one, one_score, eos, most: 3 < len(ids) < most - 1, (2, 5), (penalty,), 1.0, 1.0
            )
            table, (bos, eos, _), max_len, size, _ = case
            right = beam(table, bos, eos, max_len, size, penalty)[0]
            slips = [beam(table, bos, eos, max_len, size, 0.0)]
            slips += [beam(table, bos, eos, max_len, size, penalty, stay) for stay in (1, max_len)]
            if all(found != right for found, _, _ in slips):
                break
        cases.append((*case, ""))
    while True:  # the best one never ends, and another does
        case = _led(
            rng, lambda ids, score, one, one_score, eos, most: len(ids) == most and ids[-1] != eos, (2, 4), (0.8,), 1.5
        )
        table, (bos, eos, _), max_len, size, penalty = case
        if len(beam(table, bos, eos, max_len, size, penalty, forget=True)[0]) > 1:
            break
    cases.append((*case, ", where the best one never ends"))
    case = _led(rng, lambda ids, score, one, one_score, eos, most: len(ids) > 3, (20, 30), (0.7,), 1.0)
    cases.append((*case, ", more than there are tokens"))
    _require_beams(student, *cases)


# -------------------------------------------------------------------------------------------------------- corpus_bleu

BLEU = "corpus_bleu"


def bleu(hypotheses, references) -> float:
    """BLEU of Papineni et al. 2002 with one reference, n up to 4, no smoothing, 0 to 100."""
    matches, totals = np.zeros(4), np.zeros(4)
    for n, (hypothesis, reference) in itertools.product(range(1, 5), zip(hypotheses, references, strict=True)):
        said, right = (
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (hypothesis, reference)
        )
        matches[n - 1] += sum(min(count, right[gram]) for gram, count in said.items())
        totals[n - 1] += said.total()
    if not matches.all():
        return 0.0
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return float(100 * min(1.0, math.exp(1 - r / c)) * np.exp(np.log(matches / totals).mean()))


_TEXT = "der Hund die katze Katze sieht holt heute um halb vier das Kind ab . , <unk> nicht sehr hund"
_WORDS = _TEXT.split()


def _texts(rng, count: int, shorter: bool) -> tuple[list[list[str]], list[list[str]]]:
    """References, and hypotheses in which words were replaced, said twice, or (``shorter``) left out."""
    references, hypotheses = [], []
    for _ in range(count):
        reference = [str(rng.choice(_WORDS)) for _ in range(rng.integers(7, 13))]
        hypothesis: list[str] = []
        for word in reference:
            chance = rng.random()
            if chance < 0.1:
                hypothesis.append(str(rng.choice(_WORDS)))
            elif chance < 0.18:
                hypothesis += [] if shorter else [word, word]
            elif chance < 0.24:
                hypothesis.append(word.swapcase())
            else:
                hypothesis.append(word)
        references.append(reference)
        hypotheses.append(hypothesis[:-2] if shorter else hypothesis)
    return hypotheses, references


def _require_bleu(student, hypotheses, references, kind: str) -> None:
    got, after = student.run(BLEU, hypotheses, references, want=("output", "inputs"))
    what = f"{BLEU} of {len(hypotheses)} sentences, {kind}"
    want = bleu(hypotheses, references)
    number = _number(got, what)
    require(abs(number - want) <= 1e-4 * max(1, want), f"{what}: got {number:.5g}, expected {want:.5g}.")
    require(after == [hypotheses, references], f"{what}: the texts are others after the call.")


@check(BLEU, points=1)
def bleu_pools_clipped_ngrams_over_the_corpus(student, rng):
    """Precisions of n = 1 to 4, each n-gram counted as often as in its reference at most, pooled, and their geometric mean."""
    for number in range(3):
        while True:  # texts that are longer than their references, and as long in the last case
            hypotheses, references = _texts(rng, int(rng.integers(4, 7)), shorter=False)
            c, r = sum(map(len, hypotheses)), sum(map(len, references))
            if c > r and 0 < bleu(hypotheses, references) < 90:
                break
        if number == 2:
            references[0] += [str(word) for word in rng.choice(_WORDS, size=c - r)]
        if number == 1:  # one sentence has no match of four words
            hypotheses[0] = [word.upper() + "x" for word in hypotheses[0]]
        _require_bleu(student, hypotheses, references, "no shorter than their references")


@check(BLEU, points=1)
def bleu_punishes_brevity_and_gives_zero_without_matches(student, rng):
    """Where c < r the score is multiplied by exp(1 − r/c); it is 100 for equal texts and 0 where an order has no match."""
    for number in range(2):
        while True:
            hypotheses, references = _texts(rng, int(rng.integers(4, 7)), shorter=True)
            if bleu(hypotheses, references) > 5:
                break
        if number:
            hypotheses.append([])
            references.append([str(word) for word in rng.choice(_WORDS, size=5)])
        _require_bleu(student, hypotheses, references, "shorter than their references")
    _require_bleu(student, references, references, "all right")
    threes = [reference[:3] for reference in references]
    _require_bleu(student, threes, references, "of three words each, so that there is no n-gram of four,")


# ------------------------------------------------------------------------------------------------- translator_weights

WEIGHTS, KIND = "translator_weights", "translator"
FILE = weights.file_name(KIND)


@check(WEIGHTS, points=1, file=FILE)
def translator_weights_are_right_every_other_time(student, rng):
    """With these weights the course's model translates at least 50 % of fresh sentences word for word as it should."""
    require_accuracy(student, rng, KIND, 0.5)


@check(WEIGHTS, points=1, file=FILE)
def translator_weights_are_right_four_times_of_five(student, rng):
    """With these weights the course's model translates at least 80 % of fresh sentences word for word as it should."""
    require_accuracy(student, rng, KIND, 0.8)


@check(WEIGHTS, points=1, file=FILE)
def translator_weights_are_right_19_times_of_20(student, rng):
    """With these weights the course's model translates at least 95 % of fresh sentences word for word as it should."""
    require_accuracy(student, rng, KIND, 0.95)


@check(WEIGHTS, points=1, file=FILE)
def translator_weights_are_right_49_times_of_50(student, rng):
    """With these weights the course's model translates at least 98 % of fresh sentences word for word as it should."""
    require_accuracy(student, rng, KIND, 0.98)
