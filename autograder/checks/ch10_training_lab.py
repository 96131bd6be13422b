"""Hidden checks of chapter 10. Batches are made and attention is worked out in NumPy; losses are a probe's."""

import math

import numpy as np
import torch

from autograder.compare import CheckFailed, equal, expect, require, require_array, require_pair
from autograder.oracles import attention, distinct_sizes, normal, require_dtype
from autograder.registry import check
from autograder.student import Probe, StudentError
from autograder.weights import require_accuracy
from transformer_lab import weights

# -------------------------------------------------------------------------------------------------- batches_by_tokens

BATCHES = "batches_by_tokens"


def batches(lengths, budget: int, slip: str = "") -> list[list[int]]:
    """The batches asked for. Three slips: a batch stays below the budget, its real tokens count, or its last longest row."""
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        size, last = lengths[index], found[-1] if found else []
        takes = (len(last) + 1) * (lengths[last[-1]] if slip == "last row" and last else size)
        if slip == "real":
            takes = size + sum(lengths[other] for other in last)
        if last and (takes < budget if slip == "below" else takes <= budget):
            last.append(index)
        else:
            found.append([index])
    return found


def _lengths(rng) -> tuple[list[int], int]:
    """Sentences of many lengths, several of them equal, and a budget by which slips give other batches."""
    while True:
        count = int(rng.integers(17, 30))
        lengths = [int(length) for length in rng.integers(2, 15, size=count)]
        budget = int(rng.integers(30, 61))
        right = batches(lengths, budget)
        slips = [batches(lengths, budget, slip) for slip in ("below", "real", "last row")]
        if right not in slips and len(right) > 3:
            return lengths, budget


def _lists(got, what: str) -> list[list[int]]:
    """The lists of indices that came back."""
    require(got is not None, f"{what}: None came back, expected a list of lists (is the return statement missing?).")
    require(
        isinstance(got, list) and all(isinstance(batch, list) for batch in got),
        f"{what}: something else came back than a list of lists of indices.",
    )
    require(
        all(type(index) is int for batch in got for index in batch),
        f"{what}: the lists hold something else than whole numbers, the sentences' indices.",
    )
    return got


@check(BATCHES, points=1)
def batches_hold_every_sentence_once_and_keep_the_budget(student, rng):
    """Every index is in one batch, none is empty, and in none rows × longest row is more than the budget."""
    for _ in range(3):
        lengths, budget = _lengths(rng)
        answer, after = student.run(BATCHES, lengths, budget, want=("output", "inputs"))
        what = f"{BATCHES} for {len(lengths)} sentences and a budget of {budget}"
        got = _lists(answer, what)
        require(after == [lengths, budget], f"{what}: lengths is another list after the call.")
        every = sorted(index for batch in got for index in batch)
        missing = [index for index in range(len(lengths)) if index not in every]
        require(not missing, f"{what}: {len(missing)} sentences are in no batch, the first is number {missing[:1]}.")
        require(every == list(range(len(lengths))), f"{what}: a sentence is in two batches, or there is no such one.")
        require(all(got), f"{what}: a batch is empty.")
        for batch in got:
            longest = max(lengths[index] for index in batch)
            takes = len(batch) * longest
            require(
                takes <= budget,
                f"{what}: a batch has {len(batch)} rows of up to {longest} tokens, which is {takes} when padded.",
            )


@check(BATCHES, points=1)
def batches_are_filled_shortest_first(student, rng):
    """Shortest first, equal lengths in their order; the next sentence is taken while the padded batch fits the budget."""
    cases = [_lengths(rng) for _ in range(3)]
    size, rows = int(rng.integers(3, 9)), int(rng.integers(3, 6))
    cases.append(([size] * (2 * rows + 1), size * rows))  # a batch that takes exactly the budget
    answers = [student.run(BATCHES, lengths, budget) for lengths, budget in cases]
    for (lengths, budget), answer in zip(cases, answers, strict=True):
        what = f"{BATCHES} for lengths {lengths} and a budget of {budget}"
        got, want = _lists(answer, what), batches(lengths, budget)
        for number, batch in enumerate(want):
            own = got[number] if number < len(got) else None
            require(own == batch, f"{what}: batch number {number} is {own}, expected {batch}.")
        require(len(got) == len(want), f"{what}: {len(got)} batches, expected {len(want)}.")


@check(BATCHES, points=1)
def batches_refuse_a_sentence_that_fits_nowhere(student, rng):
    """No sentence gives no batch; one of the budget's own length is a batch; a longer one raises a ValueError."""
    got = _lists(student.run(BATCHES, [], int(rng.integers(5, 50))), f"{BATCHES} for no sentence")
    require(got == [], f"{BATCHES} for no sentence: got {got}, expected [].")
    lengths, budget = _lengths(rng)
    place = int(rng.integers(len(lengths)))
    lengths[place] = budget
    got = _lists(student.run(BATCHES, lengths, budget), f"{BATCHES} with a sentence as long as the budget")
    own = next((batch for batch in got if place in batch), None)
    require(
        own == [place],
        f"{BATCHES}: sentence {place} has {budget} tokens and fills a budget of {budget} alone, but "
        + (f"its batch is {own}." if own else "it is in no batch."),
    )
    for case in ([*lengths[:place], budget + 1, *lengths[place:]], [budget + 5]):
        what = f"{BATCHES} for a sentence of {max(case)} tokens and a budget of {budget}"
        try:
            student.run(BATCHES, case, budget)
        except StudentError as error:
            if error.type_name in ("Timeout", "TimeoutError", "Hung", "KernelDied", "NameError", "NotImplementedError"):
                raise
            require(error.type_name == "ValueError", f"{what} raised {error.type_name}, expected a ValueError.")
        else:
            raise CheckFailed(f"{what} returned something, expected a ValueError: it fits into no batch.")


# --------------------------------------------------------------------------------------------------------- accumulate

ACCUMULATE = "accumulate"


class _Large:
    """A model, a loss and the parts of a batch, and what the whole batch gives in one piece, in float64."""

    def __init__(self, rng, count: int, dtype=np.float32):
        d_in, hidden, d_out = distinct_sizes(rng, 3, 2, 7)
        self.arrays = [normal(rng, *shape, scale=0.8, dtype=dtype) for shape in ((hidden, d_in), (d_out, hidden))]
        self.counts = [int(n) for n in 2 + 4 * rng.permutation(count) + rng.integers(0, 2, size=count)]
        self.parts: list[list] = []
        for number, tokens in enumerate(self.counts):
            rows, length = int(rng.integers(2, 4)), int(rng.integers(1, 3)) + tokens // 2
            real = np.zeros(rows * length, bool)
            real[rng.permutation(rows * length)[:tokens]] = True
            x, y = (normal(rng, rows, length, width, dtype=dtype) for width in (d_in, d_out))
            # The parts' losses are far apart, or the mean of their means would be near the mean.
            self.parts.append([x, y + 2.0 * dtype(number), real.reshape(rows, length)])
        self.tokens = sum(self.counts)
        w, v = (torch.tensor(array.astype(np.float64), requires_grad=True) for array in self.arrays)
        total = torch.zeros((), dtype=torch.float64)
        for x, y, real in self.parts:
            wide, wanted = (torch.from_numpy(array.astype(np.float64)) for array in (x, y))
            each = (torch.tanh(wide @ w.T) @ v.T - wanted).square().sum(-1)
            total = total + each[torch.from_numpy(real)].sum()
        mean = total / self.tokens
        self.mean = mean.item()
        self.grads = dict(zip(("first", "second"), (g.numpy() for g in torch.autograd.grad(mean, (w, v))), strict=True))
        self.kind = f"{count} parts of {', '.join(map(str, self.counts))} tokens" if count > 1 else "one part"

    def run(self, student, *want: str, then: "_Large | None" = None, parts: list | None = None):
        model, loss = Probe("network", "model", *self.arrays), Probe("squares", "loss")
        further = {} if then is None else {"then": (model, loss, then.parts)}
        return student.run(ACCUMULATE, model, loss, self.parts if parts is None else parts, want=want, **further)


def _grads(found, kind: str) -> dict[str, np.ndarray]:
    """The model's gradients after a call; a parameter that is used by nothing may have none or zeros."""
    own = found["model"]
    for name in ("first", "second"):
        require(own[name] is not None, f"{ACCUMULATE}, {kind}: the model's `{name}` has no gradient after the call.")
        require_array(own[name], f"{ACCUMULATE}, {kind}: the gradient of `{name}`")
    idle = own.get("idle")
    require(
        idle is None or not np.any(idle), f"{ACCUMULATE}, {kind}: a parameter that is used by nothing has a gradient."
    )
    return {name: own[name] for name in ("first", "second")}


@check(ACCUMULATE, points=2)
def accumulate_gives_the_gradients_of_one_large_batch(student, rng):
    """After parts of different sizes, .grad is that of the mean loss over all tokens together; parameters stay."""
    for count, dtype in ((3, np.float32), (5, np.float64), (1, np.float32)):
        large = _Large(rng, count, dtype)
        _, found, parameters = large.run(student, "output", "probe_grads", "probe_parameters")
        own = _grads(found, large.kind)
        for name, want in large.grads.items():
            expect(own[name], want, f"the gradient of the model's `{name}` after {large.kind}", tolerance=2e-4)
        for name, array in zip(("first", "second"), large.arrays, strict=True):
            require(
                np.array_equal(parameters["model"][name], array), f"{ACCUMULATE}: `{name}` is another after the call."
            )


@check(ACCUMULATE, points=1)
def accumulate_returns_the_mean_over_all_tokens_and_their_number(student, rng):
    """The mean loss over the tokens of all parts, as a scalar without a graph, and how many tokens that are."""
    for count, dtype in ((4, np.float32), (2, np.float64)):
        large = _Large(rng, count, dtype)
        got, graph = large.run(student, "output", "requires_grad")
        mean, tokens = require_pair(got, ACCUMULATE)
        what = f"{ACCUMULATE} of {large.kind}"
        own = _scalar(mean, f"{what}: the mean loss")
        require(
            abs(own - large.mean) <= 1e-4 * large.mean, f"{what}: the loss is {own:.6g}, expected {large.mean:.6g}."
        )
        number = _scalar(tokens, f"{what}: the number of tokens")
        require(number == large.tokens, f"{what}: it says {number:g} tokens, expected {large.tokens}.")
        require(not graph, f"{what}: the mean loss still belongs to a graph: detach it.")


def _scalar(got, what: str) -> float:
    """The number that came back, plain or in a tensor without axes."""
    if isinstance(got, np.ndarray):
        require(got.shape == (), f"{what} has the shape {got.shape}, expected a scalar.")
        got = got.item()
    kind = type(got).__name__ if got is not None else "None"
    require(isinstance(got, (int, float)) and not isinstance(got, bool), f"{what}: a {kind} came back.")
    require(math.isfinite(got), f"{what} is {got}.")
    return float(got)


@check(ACCUMULATE, points=1)
def accumulate_forgets_what_was_there_before(student, rng):
    """Gradients of an earlier call are gone, what is not used has none, and no part at all raises a ValueError."""
    before, large = _Large(rng, 3), _Large(rng, 2)
    before.arrays.append(normal(rng, int(rng.integers(1, 5))))  # a parameter that is used by nothing
    large.arrays = before.arrays
    d_in, d_out = before.arrays[0].shape[1], before.arrays[1].shape[0]
    for part in large.parts:  # the same model, other sentences
        part[0], part[1] = normal(rng, *part[2].shape, d_in), 3 + normal(rng, *part[2].shape, d_out)
    alone = _grads(large.run(student, "output", "probe_grads")[1], "called once")
    again = _grads(before.run(student, "output", "then", "probe_grads", then=large)[2], "called twice")
    for name in ("first", "second"):
        require(np.any(alone[name]), f"{ACCUMULATE}: the gradient of the model's `{name}` is 0 everywhere.")
        require(
            equal(again[name], alone[name], 1e-4),
            f"{ACCUMULATE}: after a second call the gradient of `{name}` is not what that call alone gives.",
        )
    try:
        large.run(student, "output", parts=[])
    except StudentError as error:
        if error.type_name != "ValueError":
            raise
    else:
        raise CheckFailed(f"{ACCUMULATE} without any part returned something, expected a ValueError.")


@check(ACCUMULATE, points=1)
def accumulate_holds_the_graph_of_one_part_at_a_time(student, rng):
    """Before the loss of the next part is computed, the graph of the one before is gone: its backward has been."""
    large = _Large(rng, int(rng.integers(3, 6)))
    _, graphs, found = large.run(student, "output", "graphs", "probe_grads")
    _grads(found, large.kind)
    held = graphs["loss"]
    require(len(held) >= len(large.parts), f"{ACCUMULATE}: the loss was computed for {len(held)} of {large.kind}.")
    require(
        not any(held),
        f"{ACCUMULATE} of {large.kind}: up to {max(held) + 1} graphs are held at once, expected one: call backward for "
        "each part before the next one's loss is computed, and keep no graph.",
    )


# -------------------------------------------------------------------------------------------------- attend_with_cache

CACHED = "attend_with_cache"


def attended(q, keys, values, mask=None) -> np.ndarray:
    """The last rows of causal attention over all positions, for q (B, H, n, K) of the last n; zeros where none is open."""
    new, seen = q.shape[-2], keys.shape[-2]
    opened = np.tri(new, seen, seen - new, dtype=bool)[None, None]
    if mask is not None:
        opened = opened & mask[:, None, None, :]
    nothing = ~opened.any(-1, keepdims=True)
    output, _ = attention(q, keys, values, opened | nothing)
    return np.where(nothing, 0.0, output)


def _sizes(rng, new: int | None = None) -> tuple[int, int, int, int, int]:
    """B, H, t, n, K, no two alike."""
    batch, heads, past, own, width = distinct_sizes(rng, 5, 2, 9)
    return batch, heads, past, own if new is None else new, width


def _drawn(rng, sizes, scale=1.0, dtype=np.float32):
    """q, k and v of the new positions, and the keys and values of the past."""
    batch, heads, past, new, width = sizes
    own = [normal(rng, batch, heads, new, width, scale=scale, dtype=dtype) for _ in range(3)]
    return *own, [normal(rng, batch, heads, past, width, scale=scale, dtype=dtype) for _ in range(2)]


def _joined(past, k, v) -> tuple[np.ndarray, np.ndarray]:
    return (k, v) if past is None else (np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2))


def _output(got):
    """The output among what came back: what comes beside it, other checks look at."""
    return got[0] if isinstance(got, list) and got else got


def _about(sizes, past) -> str:
    return f"{CACHED} for {sizes[3]} new position{'s' * (sizes[3] > 1)}" + (
        f" after {sizes[2]} past ones" if past is not None else " and no past"
    )


def _real(rng, batch: int, length: int) -> np.ndarray:
    """A mask (batch, length): in each sentence something is real, and something is not, at either end or within."""
    mask = rng.random((batch, length)) > 0.4
    for row in mask:
        real, padding = rng.permutation(length)[:2]
        row[real], row[padding] = True, False
    return mask


@check(CACHED, points=1)
def cached_attention_returns_all_keys_and_values(student, rng):
    """Beside the output come the keys and values of all positions, past ones first, masked or not; nothing given changes."""
    for number in range(3):
        sizes = _sizes(rng, 1 if number == 2 else None)
        q, k, v, past = _drawn(rng, sizes)
        given = None if number == 0 else past
        keys, values = _joined(given, k, v)
        mask = _real(rng, sizes[0], keys.shape[2]) if number == 1 else None
        inputs = [q, k, v, given, mask]
        got, after = student.run(CACHED, *inputs, want=("output", "inputs"))
        what = _about(sizes, given)
        output, cache = require_pair(got, CACHED)
        require_array(output, f"the output of {what}")
        require(output.shape == q.shape, f"{what}: the output has the shape {output.shape}, expected {q.shape}.")
        own = require_pair(cache, f"What {CACHED} gives beside the output")
        for name, mine, want in zip(("keys", "values"), own, (keys, values), strict=True):
            expect(mine, want, f"the {name} that come back of {what}", tolerance=1e-6)
        require(equal(after, inputs, 0.0), f"{what}: something that was given is another after the call.")


@check(CACHED, points=2)
def cached_attention_is_that_of_the_whole_sentence(student, rng):
    """The output is the last n rows of causal attention over all positions, number by number, for any past and mask."""
    for number, (new, scale, dtype) in enumerate(
        ((1, 1.5, np.float32), (None, 1.5, np.float32), (None, 25.0, np.float64), (None, 1.5, np.float32))
    ):
        sizes = _sizes(rng, new)
        q, k, v, past = _drawn(rng, sizes, scale, dtype)
        given = None if number == 3 else past
        keys, values = _joined(given, k, v)
        mask = None if number == 0 else _real(rng, sizes[0], keys.shape[2])
        got, _ = require_pair(student.run(CACHED, q, k, v, given, mask), CACHED)
        what = f"the output of {_about(sizes, given)}{', with a mask' if mask is not None else ''}"
        require_array(got, what)
        if mask is not None and got.shape == q.shape:  # where nothing is open is another check's matter
            causal = np.tri(sizes[3], mask.shape[1], mask.shape[1] - sizes[3], dtype=bool)
            nothing = ~(mask[:, None, :] & causal).any(-1)
            got = np.where(nothing[:, None, :, None], got.dtype.type(0), got)
        expect(got, attended(q, keys, values, mask), what)
        require_dtype(got, dtype, "inputs", "an output")
    sizes = _sizes(rng)
    length = sizes[2] + sizes[3]
    q, k, v = (normal(rng, sizes[0], sizes[1], length, sizes[4], scale=1.5) for _ in range(3))
    cache, start, rows = None, 0, []
    for stop in (sizes[3], *range(sizes[3] + 1, length + 1)):
        got, cache = require_pair(student.run(CACHED, *(x[:, :, start:stop] for x in (q, k, v)), cache), CACHED)
        require_array(got, f"the output of {CACHED}")
        require_pair(cache, f"What {CACHED} gives beside the output")
        rows.append(got)
        start = stop
    own = np.concatenate(rows, 2)
    expect(own, attended(q, k, v), f"what {CACHED} gives for {sizes[3]} positions and then for one after another")


@check(CACHED, points=1)
def cached_attention_is_causal_with_the_right_offset(student, rng):
    """Of several new positions each attends to all past ones and to the new ones up to itself, seen where all scores agree."""
    for number in range(3):
        sizes = _sizes(rng)
        q, k, v, past = _drawn(rng, sizes)
        given = None if number == 2 else past
        keys, values = _joined(given, k, v)
        got = _output(student.run(CACHED, 0 * q, k, v, given))
        expect(got, attended(0 * q, keys, values), f"the mean of the values that {_about(sizes, given)} opens")


@check(CACHED, points=1)
def cached_attention_leaves_padding_out(student, rng):
    """Keys whose mask is False get no weight, past or new; a query that may attend to nothing gives zeros."""
    for number in range(2):
        sizes = _sizes(rng, 1)
        q, k, v, past = _drawn(rng, sizes)
        keys, values = _joined(past, k, v)
        mask = _real(rng, sizes[0], keys.shape[2])
        mask[0, -1] = False  # the new position of one sentence is padding
        mask[1, :-1], mask[1, -1] = number == 0, True
        got = _output(student.run(CACHED, 0 * q, k, v, past, mask))
        what = f"in {_about(sizes, past)}"
        expect(got, attended(0 * q, keys, values, mask), f"the mean of the real tokens' values {what}")
        mask[rng.integers(sizes[0])] = False
        got = _output(student.run(CACHED, 0 * q, k, v, past, mask))
        want = attended(0 * q, keys, values, mask)
        expect(got, want, f"the output of {_about(sizes, past)}, where one sentence is all padding,")
    sizes = _sizes(rng)
    q, k, v, _ = _drawn(rng, sizes)
    mask = rng.random((sizes[0], sizes[3])) > 0.4
    place = int(rng.integers(sizes[0]))
    mask[place], mask[place - 1, 0], mask[place - 1, 1:] = False, False, True  # all padding; padding at the left
    what = f"the output of {_about(sizes, None)}, where one sentence is all padding,"
    got = _output(student.run(CACHED, q, k, v, None, mask))
    require_array(got, what)
    require(got.shape == q.shape, f"{CACHED}: {what} has the shape {got.shape}, expected {q.shape}.")
    expect(got[place], np.zeros_like(q[place]), what)
    require(np.isfinite(got).all(), f"{CACHED}: where a sentence begins with padding, the output is not finite.")


# ---------------------------------------------------------------------------------------------------------- diagnosis

DIAGNOSIS = "diagnosis"
CAUSES = ("warm-up", "leaking mask", "target shift", "none of these")


def _require_cause(student, run: str, cause: str) -> None:
    got = student.run(DIAGNOSIS, run)
    what = f'{DIAGNOSIS}("{run}")'
    require(isinstance(got, str), f"{what}: expected one of the strings {', '.join(CAUSES)}.")
    require(got in CAUSES, f"{what}: {ascii(got)[:60]} is none of {', '.join(CAUSES)}.")
    require(got == cause, f"{what}: “{got}” is not what was wrong with run {run}.")


@check(DIAGNOSIS, points=1)
def diagnosis_of_run_a(student, rng):
    """What was wrong with run A is named, and a run that there is not is no matter of guessing: an error is raised."""
    _require_cause(student, "A", "target shift")
    unknown = str(rng.choice(list("DEFGHKLMPQRSTUVWXYZ")))
    try:
        student.run(DIAGNOSIS, unknown)
    except StudentError as error:
        if error.type_name not in ("KeyError", "ValueError"):
            raise
    else:
        raise CheckFailed(
            f"There is no run {unknown}, and yet {DIAGNOSIS} has an answer: raise a KeyError or ValueError."
        )


@check(DIAGNOSIS, points=1)
def diagnosis_of_run_b(student, rng):
    """What was wrong with run B is named."""
    _require_cause(student, "B", "warm-up")


@check(DIAGNOSIS, points=1)
def diagnosis_of_run_c(student, rng):
    """What was wrong with run C is named."""
    _require_cause(student, "C", "leaking mask")


# -------------------------------------------------------------------------------------------------------- lab_weights

WEIGHTS, KIND = "lab_weights", "lab"
FILE = weights.file_name(KIND)


@check(WEIGHTS, points=1, file=FILE)
def lab_weights_are_right_every_other_time(student, rng):
    """A translator of at most 400,000 parameters translates at least 50 % of fresh long sentences as it should."""
    require_accuracy(student, rng, KIND, 0.5)


@check(WEIGHTS, points=1, file=FILE)
def lab_weights_are_right_three_times_of_four(student, rng):
    """A translator of at most 400,000 parameters translates at least 75 % of fresh long sentences as it should."""
    require_accuracy(student, rng, KIND, 0.75)


@check(WEIGHTS, points=1, file=FILE)
def lab_weights_are_right_nine_times_of_ten(student, rng):
    """A translator of at most 400,000 parameters translates at least 90 % of fresh long sentences as it should."""
    require_accuracy(student, rng, KIND, 0.9)


@check(WEIGHTS, points=1, file=FILE)
def lab_weights_are_right_97_times_of_100(student, rng):
    """A translator of at most 400,000 parameters translates at least 97 % of fresh long sentences as it should."""
    require_accuracy(student, rng, KIND, 0.97)
