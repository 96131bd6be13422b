"""Hidden checks of chapter 5. The network is computed in float64 NumPy; gradients are those of PyTorch's own operators."""

import numpy as np
import torch.nn.functional as F

from autograder.compare import expect, require, require_array, require_within
from autograder.oracles import distinct_sizes, gradients, normal
from autograder.registry import check
from autograder.student import Strided, StudentError
from transformer_lab.driver import Opaque

FFN = "PositionwiseFeedForward"
NAMES = ("linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias")


def _state(rng, d_model: int, d_ff: int, dtype=np.float32) -> dict[str, np.ndarray]:
    """Weights and biases under which about half of the hidden layer is cut, and results are of either sign."""
    return {
        "linear1.weight": normal(rng, d_ff, d_model, scale=d_model**-0.5, dtype=dtype),
        "linear1.bias": normal(rng, d_ff, scale=0.7, dtype=dtype),
        "linear2.weight": normal(rng, d_model, d_ff, scale=1.5 * d_ff**-0.5, dtype=dtype),
        "linear2.bias": normal(rng, d_model, scale=0.7, dtype=dtype),
    }


def _orthonormal(rng, rows: int, columns: int) -> np.ndarray:
    """A matrix (rows, columns), rows ≥ columns, whose transpose takes its product with any vector back to the vector."""
    return np.linalg.qr(rng.normal(size=(rows, columns)))[0].astype(np.float32)


def hidden_layer(x, state) -> np.ndarray:
    """W₁x + b₁, before it is cut, in float64."""
    return np.asarray(x, dtype=np.float64) @ state["linear1.weight"].astype(np.float64).T + state["linear1.bias"]


def feed_forward(x, state) -> np.ndarray:
    """W₂ max(0, W₁x + b₁) + b₂ for every row of x (Vaswani et al. 2017, equation 2), in float64."""
    hidden = np.maximum(hidden_layer(x, state), 0)
    return hidden @ state["linear2.weight"].astype(np.float64).T + state["linear2.bias"]


def _pytorchs(x, weight1, bias1, weight2, bias2):
    return F.linear(F.relu(F.linear(x, weight1, bias1)), weight2, bias2)


def _what(init, x) -> str:
    return f"the result of {FFN}{init} for x {x.shape}"


# -------------------------------------------------------------------------------------------- PositionwiseFeedForward


@check(FFN, points=2)
def feed_forward_gives_every_token_the_formula(student, rng):
    """Every token of a batch (B, L, D) gets W₂ max(0, W₁x + b₁) + b₂, with a hidden layer wider and narrower than D."""
    for wider in (True, False):
        batch, length, *widths = distinct_sizes(rng, 4, high=10)
        d_model, d_ff = sorted(widths, reverse=not wider)
        x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
        init = (d_model, d_ff)
        expect(student.run(FFN, x, init=init, state=state), feed_forward(x, state), _what(init, x))


@check(FFN, points=1)
def feed_forward_takes_any_leading_axes(student, rng):
    """One token (D,), a sentence, a batch, more axes; axes of one; widths of one, and a hidden layer as wide as the token."""
    batch, length, heads, d_model, d_ff = distinct_sizes(rng, 5, high=10)
    for shape, inside in (
        ((batch, length, d_model), d_model),
        ((d_model, d_model), d_model),
        ((d_model,), d_ff),
        ((length, d_model), d_ff),
        ((batch, heads, length, d_model), d_ff),
        ((1, length, d_model), d_ff),
        ((batch, 1, d_model), d_ff),
        ((batch, length, d_model), 1),
        ((batch, length, 1), d_ff),
    ):
        x, init = normal(rng, *shape), (shape[-1], inside)
        state = _state(rng, *init)
        expect(student.run(FFN, x, init=init, state=state), feed_forward(x, state), _what(init, x))
    x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
    got = student.run(FFN, Strided(x), init=(d_model, d_ff), state=state)
    what = f"{_what((d_model, d_ff), x)}, a transposed view, whose numbers lie otherwise in memory"
    expect(got, feed_forward(x, state), what)


@check(FFN, points=1)
def feed_forward_treats_every_position_alike(student, rng):
    """Tokens that change places take their results with them, and a token's result does not depend on its neighbours."""
    batch, length, d_model, d_ff = distinct_sizes(rng, 4, low=3, high=10)
    init, state = (d_model, d_ff), _state(rng, d_model, d_ff)
    x = normal(rng, batch, length, d_model)
    whole = student.run(FFN, x, init=init, state=state)
    require_array(whole, _what(init, x))
    require(whole.shape == x.shape, f"For x {x.shape} the result has shape {tuple(whole.shape)}, expected {x.shape}.")
    order = np.roll(rng.permutation(length), 1)
    got = student.run(FFN, x[:, order], init=init, state=state)
    expect(got, whole[:, order], "the result for tokens that have changed places, held against the former one")
    got = student.run(FFN, x[::-1].copy(), init=init, state=state)
    expect(got, whole[::-1], "the result for sentences in another order, held against the former one")
    other = normal(rng, batch, length, d_model, scale=3)
    other[1, 2] = x[1, 2]
    got = student.run(FFN, other, init=init, state=state)
    require_array(got, _what(init, other))
    require(got.shape == x.shape, f"For x {x.shape} the result has shape {tuple(got.shape)}, expected {x.shape}.")
    expect(got[1, 2], whole[1, 2], "the result of one token among other neighbours, held against the former one")


@check(FFN, points=2)
def feed_forward_cuts_the_hidden_layer_at_zero_and_nothing_else(student, rng):
    """The hidden layer is max(0, z), exactly 0 for all negative z and z itself for all positive; results may be negative."""
    # With weights that can be undone and without biases, the hidden layer is read off the result.
    d_ff = int(rng.integers(4, 7))
    d_model = d_ff + int(rng.integers(1, 4))
    weight1, weight2 = _orthonormal(rng, d_model, d_ff).T.copy(), _orthonormal(rng, d_model, d_ff)
    state = {
        "linear1.weight": weight1,
        "linear1.bias": np.zeros(d_ff, dtype=np.float32),
        "linear2.weight": weight2,
        "linear2.bias": np.zeros(d_model, dtype=np.float32),
    }
    sizes = np.array([0.05, 0.2, 0.5, 1, 2, 3, 5, 8])[:, None] * rng.uniform(0.8, 1.2, size=(8, d_ff))
    hidden = np.concatenate([sizes * rng.choice([-1, 1], size=(8, d_ff)), -sizes, sizes])
    x = (hidden @ weight1).astype(np.float32)
    got = student.run(FFN, x, init=(d_model, d_ff), state=state)
    expect(got, feed_forward(x, state), f"{_what((d_model, d_ff), x)} for weights that can be undone, and no bias")
    # The large values above widen what is accepted; smaller ones by themselves don't.
    x = ((sizes[:4] * rng.choice([-1, 1], size=(4, d_ff))) @ weight1).astype(np.float32)
    got = student.run(FFN, x, init=(d_model, d_ff), state=state)
    expect(got, feed_forward(x, state), f"{_what((d_model, d_ff), x)}, a hidden layer around 0")


@check(FFN, points=1)
def feed_forward_has_exactly_two_linear_layers(student, rng):
    """linear1 (d_ff, D) and linear2 (D, d_ff) with their biases are all that is learnt and saved, drawn as nn.Linear does."""
    d_model, d_ff = distinct_sizes(rng, 2, low=3, high=10)
    want = ("parameter_shapes", "buffer_shapes", "initial_state")
    for init in ((d_model, d_ff), (d_ff, d_model, 0.2)):
        shapes, buffers, initial = student.run(FFN, init=init, want=want)
        missing = [name for name in NAMES if name not in shapes]
        require(not missing, f"{FFN} has no trainable {', '.join(missing)}; it has {', '.join(shapes) or 'none'}.")
        # A second name of one of the four, as nn.Sequential(self.linear1, …) gives it, is nothing further.
        own = [initial[name] for name in NAMES if name in initial]
        second = {name for name, value in initial.items() if any(np.array_equal(value, other) for other in own)}
        extra = sorted((set(shapes) | set(buffers) | (set(initial) - second)) - set(NAMES))
        require(not extra, f"{FFN} also has {', '.join(extra)}.")
        outside, inside = init[:2]
        for name, wanted in zip(NAMES, ([inside, outside], [inside], [outside, inside], [outside]), strict=True):
            require(
                shapes[name] == wanted,
                f"For d_model={outside} and d_ff={inside}, {name} has shape {tuple(shapes[name])}, "
                f"expected {tuple(wanted)}.",
            )
        for name in NAMES[::2]:
            values = initial[name]
            require(
                np.ptp(values) > 0,
                f"All entries of a new {name} are {values.flat[0]:g}: leave the weights as nn.Linear draws them.",
            )


def _readable(rng):
    """Sizes, a dropout rate, a state and x, for which a result tells every entry of a hidden layer far above 0."""
    d_ff = int(rng.integers(4, 7))
    d_model = d_ff + int(rng.integers(2, 5))
    state = {
        "linear1.weight": _orthonormal(rng, d_model, d_ff).T.copy(),
        "linear1.bias": rng.uniform(5, 6, size=d_ff).astype(np.float32),
        "linear2.weight": _orthonormal(rng, d_model, d_ff),
        "linear2.bias": normal(rng, d_model),
    }
    x = rng.uniform(-1, 1, size=(40, 15, d_model)).astype(np.float32)
    rate = float(rng.choice([0.2, 0.3, 0.4]))
    return d_model, d_ff, rate, state, x


def _ratios(student, state, x, **call) -> list[np.ndarray]:
    """For two calls in training, how much each entry of the hidden layer is of what it is in evaluation."""
    full = np.maximum(hidden_layer(x, state), 0)
    weight, bias = (state[name].astype(np.float64) for name in NAMES[2:])
    ratios = []
    for result in student.run(FFN, x, state=state, mode="train", want=("output", "again"), **call):
        require_array(result, "the result in training mode")
        shape = tuple(result.shape)
        require(shape == x.shape, f"The result in training mode has shape {shape}, expected {x.shape}.")
        hidden = (result - bias) @ weight
        outside = np.abs(hidden @ weight.T - (result - bias)).max()
        require_within(
            outside,
            0.05,
            "In training mode the result is not W₂h + b₂ for any hidden layer h: dropout acts on the hidden layer and "
            "nowhere else, so is the result dropped as well, or something added to it?",
        )
        ratios.append(hidden / full)
    return ratios


def _untouched(ratio) -> bool:
    """True where training leaves the hidden layer as it is. Dropout that is never applied changes no number of a trained
    model, so it keeps its points here; the visible tests insist on it. Dropout in another place or scale does not."""
    return bool(np.abs(ratio - 1).max() < 0.01)


@check(FFN, points=2)
def feed_forward_drops_entries_of_the_hidden_layer_in_training(student, rng):
    """In training, dropout sets entries of the hidden layer to 0: each by itself, as many as stated, others in every call."""
    d_model, d_ff, rate, state, x = _readable(rng)
    call = {"init": (d_model, d_ff, rate), "seed": int(rng.integers(2**31))}
    ratio, again = _ratios(student, state, x, **call)
    if _untouched(ratio):
        return
    dropped = np.abs(ratio) < 0.05
    require(dropped.any(), f"With dropout={rate:g} nothing is dropped from the hidden layer in training mode.")
    require(not dropped.all(), f"With dropout={rate:g} the whole hidden layer is dropped in training mode.")
    stay = ratio[~dropped]
    # How they are scaled is the next check's; that it is one and the same for all tells dropout here from elsewhere.
    require_within(
        np.abs(stay / np.median(stay) - 1).max(),
        0.05,
        "In training mode the entries of the hidden layer are neither 0 nor scaled all alike: dropout acts on the hidden "
        "layer after the ReLU, not on x.",
    )
    share = float(dropped.mean())
    # At least 2400 entries: five standard deviations are 0.05.
    require_within(
        abs(share - rate),
        0.05,
        f"With dropout={rate:g}, {100 * share:.0f} % of the hidden layer is dropped in training, expected "
        f"{100 * rate:.0f} %.",
    )
    for axis, alike in enumerate(("sentences of a batch", "tokens of a sentence", "entries of a token's hidden layer")):
        require(
            (dropped != dropped.take([0], axis)).any(),
            f"Dropout treats all {alike} alike: it draws for each entry of (B, L, d_ff) by itself, as nn.Dropout does.",
        )
    require(
        (dropped != (np.abs(again) < 0.05)).any(),
        "Dropout sets the same entries to 0 in every call: it draws new ones each time, so don't keep or seed the draw.",
    )


@check(FFN, points=1)
def feed_forward_scales_what_dropout_leaves(student, rng):
    """In training, the entries of the hidden layer that stay are divided by 1 − p, so that their mean is what it was."""
    d_model, d_ff, rate, state, x = _readable(rng)
    ratio = _ratios(student, state, x, init=(d_model, d_ff, rate), seed=int(rng.integers(2**31)))[0]
    if _untouched(ratio):
        return
    stay = ratio[np.abs(ratio) >= 0.05]
    factor = float(np.median(stay)) if stay.size else 0.0
    require_within(
        abs(factor * (1 - rate) - 1),
        0.02,
        f"With dropout={rate:g}, the entries of the hidden layer that stay are multiplied by {factor:.3g} in training, "
        f"expected 1 / (1 − {rate:g}) = {1 / (1 - rate):.3g}.",
    )


@check(FFN, points=1)
def feed_forward_drops_nothing_in_evaluation(student, rng):
    """In evaluation nothing is dropped or scaled, whatever dropout is; without dropout, training and evaluation agree."""
    batch, length, d_model, d_ff = distinct_sizes(rng, 4, low=4, high=10)
    x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
    call = {"state": state, "seed": int(rng.integers(2**31))}
    without = student.run(FFN, x, init=(d_model, d_ff, 0.0), **call)
    require_array(without, _what((d_model, d_ff), x))
    for rate in (0.1, float(rng.choice([0.3, 0.6])), 0.9):
        both = student.run(FFN, x, init=(d_model, d_ff, rate), want=("output", "again"), **call)
        for got, time in zip(both, ("", ", in a second call"), strict=True):
            expect(got, without, f"the result in evaluation mode with dropout={rate:g}, held against dropout=0{time}")
    for init, kind in (((d_model, d_ff, 0.0), "with dropout=0"), ((d_model, d_ff), "with no dropout given")):
        both = student.run(FFN, x, init=init, mode="train", want=("output", "again"), **call)
        for got in both:
            expect(got, without, f"the result in training mode {kind}, held against evaluation mode")


@check(FFN, points=1)
def feed_forward_sends_gradients_to_its_input(student, rng):
    """The gradient of x is that of the formula, in training mode too."""
    for mode in ("eval", "train"):
        batch, length, d_model, d_ff = distinct_sizes(rng, 4, high=10)
        x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
        call = {"init": (d_model, d_ff), "state": state, "mode": mode}
        grad = student.run(FFN, x, want="input_grads", **call)[0]
        require(grad is not None, f"No gradient reaches x in {mode} mode.")
        expect(grad, gradients(_pytorchs, x, *state.values())[0], f"the gradient of x in {mode} mode")


@check(FFN, points=1)
def feed_forward_trains_all_its_parameters(student, rng):
    """Gradients reach weight and bias of both layers, in training mode too."""
    for mode in ("train", "eval"):
        batch, length, d_model, d_ff = distinct_sizes(rng, 4, high=10)
        x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
        grads = student.run(FFN, x, init=(d_model, d_ff), state=state, mode=mode, want="parameter_grads")
        for name, want in zip(NAMES, gradients(_pytorchs, x, *state.values())[1:], strict=True):
            require(grads.get(name) is not None, f"No gradient reaches {name} in {mode} mode.")
            expect(grads[name], want, f"the gradient of {name} in {mode} mode")


@check(FFN, points=1)
def feed_forward_leaves_its_input_alone(student, rng):
    """x stays as it was, also in training with dropout; a second call sees its own input only; float64 is right too."""
    batch, length, d_model, d_ff = distinct_sizes(rng, 4, high=10)
    for mode in ("eval", "train"):
        x, state = normal(rng, batch, length, d_model), _state(rng, d_model, d_ff)
        call = {"init": (d_model, d_ff, 0.3), "state": state, "mode": mode}
        after = student.run(FFN, x, want=("output", "inputs"), **call)[1]
        expect(after[0], x, f"x after a call in {mode} mode (was it changed in place?)", tolerance=0)
    other = normal(rng, batch + 1, length + 2, d_model)
    call = {"init": (d_model, d_ff), "state": state}
    alone = student.run(FFN, other, **call)
    then = student.run(FFN, x, then=(other,), want=("output", "then"), **call)[1]
    require_array(alone, _what((d_model, d_ff), other))
    expect(then, alone, "the result for another x in a second call, held against that in a first call")
    x, state = normal(rng, batch, length, d_model, dtype=np.float64), _state(rng, d_model, d_ff, dtype=np.float64)
    try:
        got = student.run(FFN, x, init=(d_model, d_ff), state=state)
    except StudentError as error:
        # x was converted to float32 and met parameters in float64: PyTorch says so at once, and so do the visible tests.
        if error.type_name != "RuntimeError" or "dtype" not in error.message:
            raise
    else:
        expect(got, feed_forward(x, state), f"{_what((d_model, d_ff), x)} in float64")


# --------------------------------------------------------------------------------------------------- count_parameters

COUNT = "count_parameters"
PARTS = ("embedding", "attention", "feed_forward", "norm")


def counted(vocab_size: int, d_model: int, num_heads: int, d_ff: int, num_layers: int) -> dict[str, int]:
    """Layer by layer, tensor by tensor, in Python's integers."""

    def linear(columns, rows):
        return rows * columns + rows

    attention = sum(linear(d_model, d_model) for _ in ("query", "key", "value", "output"))
    network = linear(d_model, d_ff) + linear(d_ff, d_model)
    norm = d_model + d_model
    counts = {"embedding": vocab_size * d_model, "attention": 0, "feed_forward": 0, "norm": 0}
    for attentions, norms in [(1, 2)] * num_layers + [(2, 3)] * num_layers:
        counts["attention"] += attentions * attention
        counts["feed_forward"] += network
        counts["norm"] += norms * norm
    return counts


def _model(rng) -> tuple[int, int, int, int, int]:
    """V, D, H, d_ff and N, no two alike, with H a true divisor of D."""
    while True:
        heads = int(rng.integers(2, 6))
        sizes = (
            int(rng.integers(20, 90)),
            heads * int(rng.integers(2, 7)),
            heads,
            int(rng.integers(7, 60)),
            int(rng.integers(4, 11)),
        )
        if len(set(sizes)) == 5:
            return sizes


def _call(sizes) -> str:
    return f"`{COUNT}({', '.join(str(size) for size in sizes)})`"


def _counts(student, sizes) -> dict:
    """What the piece counts, once it has given a dictionary."""
    got = student.run(COUNT, *sizes)
    kind = got.type_name if isinstance(got, Opaque) else type(got).__name__
    require(isinstance(got, dict), f"{_call(sizes)} returned a {kind}, expected a dict.")
    return got


def _number(counts, key: str, sizes):
    """The entry ``key``, once it is there and a number; whether it is an integer is a check of its own."""
    require(key in counts, f'{_call(sizes)} has no "{key}"; its keys are {", ".join(counts) or "none"}.')
    number = counts[key]
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    require(is_number, f'{_call(sizes)}["{key}"] is a {_kind(number)}, expected an int.')
    return number


def _kind(value) -> str:
    if isinstance(value, np.ndarray):
        return "tensor"
    return value.type_name if isinstance(value, Opaque) else type(value).__name__


def _part(student, rng, part: str) -> None:
    one = _model(rng)
    for sizes in (_model(rng), _model(rng), (*one[:4], 1), (7, 1, 1, 1, 3), (37000, 512, 8, 2048, 6)):
        got, want = _number(_counts(student, sizes), part, sizes), counted(*sizes)[part]
        require(got == want, f'{_call(sizes)}["{part}"] is {got}, expected {want}.')


@check(COUNT, points=1)
def count_parameters_of_the_embedding(student, rng):
    """ "embedding" is one table (V, D), shared by source, target and output."""
    _part(student, rng, "embedding")


@check(COUNT, points=1)
def count_parameters_of_the_attentions(student, rng):
    """ "attention" is four layers (D, D) with bias for each of the three attentions of a pair of layers."""
    _part(student, rng, "attention")


@check(COUNT, points=1)
def count_parameters_of_the_feed_forward_networks(student, rng):
    """ "feed_forward" is two layers with bias in each of the 2N networks."""
    _part(student, rng, "feed_forward")


@check(COUNT, points=1)
def count_parameters_of_the_norms(student, rng):
    """ "norm" is a gain and an offset for each of the five norms of a pair of layers."""
    _part(student, rng, "norm")


@check(COUNT, points=1)
def count_parameters_adds_up(student, rng):
    """ "total" is the sum of the other four, there are five keys and no others, and the number of heads changes nothing."""
    for _ in range(3):
        sizes = _model(rng)
        counts = _counts(student, sizes)
        total = _number(counts, "total", sizes)
        parts = sum(_number(counts, part, sizes) for part in PARTS)
        require(total == parts, f'{_call(sizes)}["total"] is {total}, but its four parts add up to {parts}.')
        extra = ", ".join(sorted(set(counts) - {*PARTS, "total"}))
        require(not extra, f"{_call(sizes)} also has {extra}: the keys are the four parts and total.")
        for heads in (1, sizes[1]):
            other = (*sizes[:2], heads, *sizes[3:])
            require(
                _counts(student, other) == counts,
                f"{_call(other)} differs from {_call(sizes)}: the number of heads changes no matrix of the model.",
            )


@check(COUNT, points=1)
def count_parameters_exactly_however_large(student, rng):
    """All numbers are integers, exact far beyond 2⁵³ and 2⁶³ as well."""
    small = _model(rng)
    counts = _counts(student, small)
    for key in (*PARTS, "total"):
        number = _number(counts, key, small)
        require(isinstance(number, int), f'{_call(small)}["{key}"] is {number!r}, a {_kind(number)}, expected an int.')
    # A wrong formula costs the point of its part alone: what is right for a small model must be right for a large one.
    right = [part for part in PARTS if counts[part] == counted(*small)[part]]
    require(right, f"None of the four parts of {_call(small)} is right, whatever the size.")
    for digits in (10, 19, 30):
        low = 10**digits
        d_model = 3 * (low + 2 * int(rng.integers(10**9)) + 1)
        sizes = (
            low + int(rng.integers(10**9)),
            d_model,
            3,
            7 * low + int(rng.integers(10**9)),
            int(rng.integers(3, 9)),
        )
        got, want = _counts(student, sizes), counted(*sizes)
        for part in right:
            number = _number(got, part, sizes)
            require(number == want[part], f'{_call(sizes)}["{part}"] is {number}, expected {want[part]}: not exact.')
