"""Hidden checks of chapter 3. The oracle is ``autograder.oracles``."""

import numpy as np
import torch

from autograder.compare import expect, require, require_array, require_pair
from autograder.oracles import any_mask, attention, gradients, normal, require_dtype, softmax
from autograder.own_function import is_right, require_own_gradients
from autograder.registry import check

# ------------------------------------------------------------------------------------------------------------ softmax


@check("softmax", points=1)
def softmax_turns_scores_into_shares(student, rng):
    """Along the last axis, for inputs of one to four axes: exp(s) / Σ exp(s)."""
    for shape in ((3, 5), (7,), (2, 3, 4), (2, 1, 3, 6)):
        scores = normal(rng, *shape, scale=2)
        expect(student.run("softmax", scores), softmax(scores), f"softmax of scores {shape}")


@check("softmax", points=1)
def softmax_follows_the_axis_asked_for(student, rng):
    """Along any axis, counted from the front or from the back."""
    scores = normal(rng, 3, 5, 4, scale=2)
    for dim in (1, 0, -2, 2, -3):
        expect(
            student.run("softmax", scores, dim=dim),
            softmax(scores, dim),
            f"softmax of scores (3, 5, 4) along dim={dim}",
        )
    expect(student.run("softmax", scores, 1), softmax(scores, 1), "softmax(scores, 1), the axis given by position,")


@check("softmax", points=1)
def softmax_survives_large_scores(student, rng):
    """Scores of plus and minus thousands and far beyond, and rows of very different size, neither overflow nor vanish."""
    scores = normal(rng, 6, 4)
    offsets = np.array([0, 1000, -1000, 5000, -5000, 120], dtype=np.float32)[:, None]
    expect(
        student.run("softmax", scores + offsets),
        softmax(scores + offsets),
        "softmax of scores around ±1000",
        tolerance=2e-3,
    )
    steep = normal(rng, 3, 5, scale=300)
    expect(student.run("softmax", steep), softmax(steep), "softmax of scores hundreds apart", tolerance=2e-3)
    # The largest score stands alone: beside it, logsumexp and other right forms round to 0 and 1 as well.
    huge = np.array([[4e4, 2e4, 3e4, -5e4], [3e30, 2e20, 7, -4e30], [-3e30, -1e30, -4e30, -2e30]], dtype=np.float32)
    huge = rng.permuted(huge, axis=-1)
    expect(student.run("softmax", huge), softmax(huge), "softmax of scores from ten thousands to 4e30")


@check("softmax", points=1)
def softmax_gives_minus_infinity_no_weight(student, rng):
    """A score of −inf gets weight exactly 0, and the others share the rest."""
    scores = normal(rng, 4, 6)
    scores[~any_mask(rng, 4, 6)] = -np.inf
    got = student.run("softmax", scores)
    expect(got, softmax(scores), "softmax of scores with −inf")
    require((got[np.isneginf(scores)] == 0).all(), "The weight of a score of −inf is small but not exactly 0.")
    down = np.ascontiguousarray(scores.T)
    expect(student.run("softmax", down, dim=0), softmax(down, 0), "softmax along dim=0 of scores with −inf")
    low = np.array([[-np.inf, -20000, -20200, -20400], [-np.inf, -1e20, -2e20, -4e20]], dtype=np.float32)
    low = rng.permuted(low, axis=-1)
    got = student.run("softmax", low)
    expect(got, softmax(low), "softmax of −inf beside scores far below zero")
    require((got[np.isneginf(low)] == 0).all(), "The weight of −inf beside scores far below zero is not exactly 0.")


@check("softmax", points=1)
def softmax_is_differentiable_and_leaves_its_input_alone(student, rng):
    """Gradients flow back to the scores, float64 stays float64, and the input is not changed."""
    for dtype in (np.float32, np.float64):
        scores = normal(rng, 4, 5, dtype=dtype)
        got, after = student.run("softmax", scores, want=("output", "inputs"))
        expect(got, softmax(scores), f"softmax of {dtype.__name__} scores")
        require_dtype(got, dtype, "scores", "weights")
        expect(after[0], scores, "the scores after the call (were they changed in place?)", tolerance=0)
        blocked = np.where(any_mask(rng, 4, 5), scores, -np.inf).astype(dtype)
        for given, what in ((scores, "the scores"), (blocked, "scores with −inf among them")):
            grads = student.run("softmax", given, want="input_grads")
            require(grads[0] is not None, f"No gradient reaches {what}.")
            want = gradients(lambda s: torch.softmax(s, -1), given)
            expect(grads[0], want[0], f"the gradient of {what}")


# --------------------------------------------------------------------------------------- scaled_dot_product_attention

ATTENTION = "scaled_dot_product_attention"
OUTPUT, WEIGHTS = "the output of attention", "the attention weights"


def _qkv(rng, lead=(2, 3), queries=5, keys=7, width=None, values=None, scale=1.0, dtype=np.float32):
    """Queries, keys and values with no two sizes alike, none of them a size that one could have fixed in the code."""
    width = int(rng.integers(8, 13)) if width is None else width
    values = int(rng.choice([4, 6, width + 1])) if values is None else values
    return (
        normal(rng, *lead, queries, width, scale=scale, dtype=dtype),
        normal(rng, *lead, keys, width, scale=scale, dtype=dtype),
        normal(rng, *lead, keys, values, dtype=dtype),
    )


def _attend(student, q, k, v, mask=None):
    got = student.run(ATTENTION, q, k, v) if mask is None else student.run(ATTENTION, q, k, v, mask)
    return require_pair(got, f"`{ATTENTION}`")


def _output(student, q, k, v, mask=None):
    """The output alone; that the weights are returned beside it, other checks ask."""
    got = student.run(ATTENTION, q, k, v) if mask is None else student.run(ATTENTION, q, k, v, mask)
    return got if isinstance(got, np.ndarray) else require_pair(got, f"`{ATTENTION}`")[0]


def _pointing(rng, lead, queries, keys, width, values):
    """Queries, each of which points to one key and is at right angles to the others, so far that it gets all the weight.

    That holds whatever the scores are divided by: what is asked is another thing than the scale.
    """
    _, _, v = _qkv(rng, lead, queries, keys, width, values)
    directions = np.linalg.qr(rng.normal(size=(width, width)))[0] if width > 1 else np.ones((1, 1))
    lengths = np.ones(keys) if width >= keys else np.linspace(-1, 1, keys)  # of width 1: the longest key is pointed to
    k = np.zeros((*lead, keys, width))
    for place in np.ndindex(lead):
        order = rng.permutation(keys)
        k[place] = directions[order] if width >= keys else lengths[order][:, None]
    chosen = rng.integers(0, keys, size=(*lead, queries, 1))
    q = np.take_along_axis(k, chosen, axis=-2) if width >= keys else rng.choice([-1, 1], size=(*lead, queries, width))
    return (300 * np.sqrt(width) * q).astype(np.float32), k.astype(np.float32), v


@check(ATTENTION, points=2)
def attention_output_is_right_without_a_mask(student, rng):
    """The output is softmax(q kᵀ / √K) v, for as many keys as queries and for more, with values of another width."""
    for keys in (5, 7):
        q, k, v = _qkv(rng, keys=keys)
        expect(_output(student, q, k, v), attention(q, k, v)[0], OUTPUT)


@check(ATTENTION, points=2)
def attention_weights_are_right_without_a_mask(student, rng):
    """The second result holds the weights (…, L_q, L_k): every query's row sums to 1."""
    for keys in (5, 7):
        q, k, v = _qkv(rng, keys=keys)
        _, weights = _attend(student, q, k, v)
        expect(weights, attention(q, k, v)[1], WEIGHTS)


@check(ATTENTION, points=2)
def attention_obeys_a_mask(student, rng):
    """True means may attend: blocked keys get weight exactly 0 and the others, whose scores are equal here, equal shares."""
    for lead in ((2, 3), (3,)):
        q, k, v = _qkv(rng, lead)
        q = np.zeros_like(q)  # every score is 0, whatever it is divided by
        # One key is blocked for every query, the others for some.
        mask = np.insert(any_mask(rng, *lead, 5, 6), int(rng.integers(0, 7)), False, axis=-1)
        output, weights = _attend(student, q, k, v, mask)
        right = attention(q, k, v, mask)
        expect(weights, right[1], f"{WEIGHTS} with a mask")
        require((weights[~mask] == 0).all(), "A blocked key has a weight that is small but not exactly 0. −∞ gives 0.")
        expect(output, right[0], f"{OUTPUT} with a mask")


@check(ATTENTION, points=1)
def attention_broadcasts_masks(student, rng):
    """Masks of two, three and four axes are broadcast: causal (L, L), per head (H, L_q, L_k), padding (B, 1, 1, L_k).

    Every score is 0, so that the output is the mean of the values that may be attended to.
    """
    q, k, v = _qkv(rng, keys=5)
    causal = np.tril(np.ones((5, 5), dtype=bool))
    padding = np.arange(7) < rng.integers(2, 7, size=(2, 1, 1, 1))
    q2, k2, v2 = _qkv(rng)
    for a, b, c, mask, kind in (
        (q, k, v, causal, "a causal mask (L, L)"),
        (q2, k2, v2, any_mask(rng, 3, 5, 7), "a mask (H, L_q, L_k)"),
        (q2, k2, v2, any_mask(rng, 1, 7), "a mask (1, L_k)"),
        (q2, k2, v2, padding, "a padding mask (B, 1, 1, L_k)"),
        (q2, k2, v2, np.ones((1, 1, 1, 7), dtype=bool), "a mask that is True everywhere"),
    ):
        a = np.zeros_like(a)
        expect(_output(student, a, b, c, mask), attention(a, b, c, mask)[0], f"{OUTPUT} with {kind}")


@check(ATTENTION, points=1)
def attention_takes_any_leading_axes(student, rng):
    """No leading axis, one, two or three; one query, one key; values as wide as the keys, and all of width one.

    Every query points to one key, whose values it gets.
    """
    some, wide = int(rng.integers(2, 5)), int(rng.integers(8, 13))
    for lead, queries, keys, width, values in (
        ((), some, 6, wide, wide),
        ((4,), some, 6, None, None),
        ((2, 3), 1, 6, None, None),
        ((2, 1, 3), some, 6, 1, 1),
        ((2,), 1, 1, None, None),
    ):
        width = int(rng.integers(8, 13)) if width is None else width
        q, k, v = _pointing(rng, lead, queries, keys, width, values)
        sizes = f"for q {q.shape}, k {k.shape} and v {v.shape}"
        expect(_output(student, q, k, v), attention(q, k, v)[0], f"{OUTPUT} {sizes}")


@check(ATTENTION, points=1)
def attention_survives_large_scores(student, rng):
    """Queries and keys five and fourteen times as large give weights near 0 and 1, and no NaN; with a mask too."""
    for scale in (5.0, 14.0):  # at fourteen alone, a missing scale would show on some seeds only
        q, k, v = _qkv(rng, scale=scale)
        for mask in (None, any_mask(rng, 2, 3, 5, 7)):
            output, weights = _attend(student, q, k, v, mask)
            right = attention(q, k, v, mask)
            expect(weights, right[1], f"{WEIGHTS} for large scores", tolerance=2e-3)
            expect(output, right[0], f"{OUTPUT} for large scores", tolerance=2e-3)
    # Allowed scores just above −1000 beside blocked ones near 1000.
    low, high = rng.uniform(-990, -950, size=4), rng.uniform(900, 1000, size=3)
    mask = np.concatenate([any_mask(rng, 2, 3, 5, 4), np.zeros((2, 3, 5, 3), dtype=bool)], axis=-1)
    order = rng.permutation(7)
    k, mask, width = np.concatenate([low, high])[order], mask[..., order], int(rng.integers(8, 13))
    direction = normal(rng, width, dtype=np.float64)
    q = np.tile(direction * np.sqrt(width) / (direction @ direction), (2, 3, 5, 1))
    k = np.tile(k[:, None] * direction, (2, 3, 1, 1))
    v = normal(rng, 2, 3, 7, 6, dtype=np.float64)
    output, weights = _attend(student, q, k, v, mask)
    right, kind = attention(q, k, v, mask), "for allowed scores near −1000 and blocked ones near 1000"
    expect(weights, right[1], f"{WEIGHTS} {kind}", tolerance=2e-3)
    require(
        (weights[~mask] == 0).all(),
        "Where allowed scores are near −1000, a blocked key has a weight that is small but not exactly 0. −∞ gives 0.",
    )
    expect(output, right[0], f"{OUTPUT} {kind}", tolerance=2e-3)


@check(ATTENTION, points=1)
def attention_is_differentiable_and_leaves_its_inputs_alone(student, rng):
    """Gradients reach q, k and v from the output; inputs stay as they are; two calls agree; float64 is kept."""
    for dtype, masked in ((np.float32, True), (np.float64, True), (np.float32, False)):
        q, k, v = _qkv(rng, dtype=dtype)
        mask = any_mask(rng, 2, 3, 5, 7)
        # a key that is closed to every query would make some wrong answers NaN, by chance of the seed
        mask |= ~mask.any(axis=-2, keepdims=True)
        inputs, kind = ((q, k, v, mask), "with a mask") if masked else ((q, k, v), "without a mask")
        got, again, after = student.run(ATTENTION, *inputs, want=("output", "again", "inputs"))
        output, weights = require_pair(got, f"`{ATTENTION}`")
        right = attention(*inputs)
        for got, want, what in zip((output, weights), right, (OUTPUT, WEIGHTS), strict=True):
            require_array(got, f"{what} {kind}")
            require(got.shape == want.shape, f"{what.capitalize()} {kind}: shape {got.shape}, expected {want.shape}.")
        require_dtype(output, dtype, "inputs", "an output")
        require_dtype(weights, dtype, "inputs", "weights")
        for name, was, now in zip(("q", "k", "v", "mask"), inputs, after, strict=False):
            expect(now, was, f"`{name}` after the call (was it changed in place?)", tolerance=0)
        expect(require_pair(again, f"`{ATTENTION}`")[0], output, f"{OUTPUT} in a second call")
        if not is_right(output, right[0]):
            names = [f"`{name}`" for name in "qkv"]
            require_own_gradients(student, rng, ATTENTION, inputs, names, kind=f" {kind}")
            continue
        expect(weights, right[1], f"{WEIGHTS} of {dtype.__name__} inputs {kind}")
        grads = student.run(ATTENTION, *inputs, want="input_grads")

        def reference(q, k, v, mask=mask, masked=masked):
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
            if masked:
                scores = scores.masked_fill(torch.from_numpy(~mask), float("-inf"))
            return torch.softmax(scores, -1) @ v

        for name, grad, want in zip("qkv", grads, gradients(reference, q, k, v), strict=False):
            require(grad is not None, f"No gradient reaches `{name}` {kind}.")
            expect(grad, want, f"the gradient of `{name}` {kind}")


# ------------------------------------------------------------------------------------------------------ SelfAttention


def _self_attention(rng, d_k=None):
    """Input (B, L, D), init (D, K) and the three projections, all sizes different unless ``d_k`` is given; then D is 9."""
    d_model, length = (int(rng.integers(8, 11)) if d_k is None else 9), 4
    d_k = int(rng.integers(5, 8)) if d_k is None else d_k
    state = {f"w_{name}.weight": normal(rng, d_k, d_model, scale=d_model**-0.5) for name in "qkv"}
    return normal(rng, 3, length, d_model), (d_model, d_k), state


def _projected(x, state, mask=None):
    q, k, v = (x.astype(np.float64) @ state[f"w_{name}.weight"].T for name in "qkv")
    return attention(q, k, v, mask)[0]


@check("SelfAttention", points=2)
def self_attention_projects_and_attends(student, rng):
    """Queries, keys and values are one projection each of the same x, and the output is their attention (B, L, K)."""
    for batch, d_k in ((3, None), (1, None), (2, 9), (2, 13)):
        x, init, state = _self_attention(rng, d_k)
        got = student.run("SelfAttention", x[:batch], init=init, state=state)
        what = f"the output of SelfAttention{init} for x {x[:batch].shape}"
        expect(got, _projected(x[:batch], state), what)


@check("SelfAttention", points=1)
def self_attention_hands_the_mask_on(student, rng):
    """A mask for every sentence (B, L, L), or one for all (L, L), reaches attention, in training too, and stays as it is."""
    x, init, state = _self_attention(rng)
    length = x.shape[1]
    causal = np.tril(np.ones((length, length), dtype=bool))
    padding = np.arange(length) < np.array([4, 2, 3])[:, None, None]
    for mask in (causal, any_mask(rng, 3, length, length), padding, any_mask(rng, 1, length)):
        for mode in ("eval", "train"):
            call = {"init": init, "state": state, "mode": mode, "want": ("output", "inputs")}
            got, after = student.run("SelfAttention", x, mask, **call)
            what = f"the output of SelfAttention with a mask {mask.shape}{' while training' * (mode == 'train')}"
            expect(got, _projected(x, state, mask), what)
            expect(after[1], mask, "`mask` after the call (was it changed in place?)", tolerance=0)


@check("SelfAttention", points=1)
def self_attention_has_exactly_three_projections(student, rng):
    """The parameters are w_q.weight, w_k.weight and w_v.weight, each (d_k, d_model), initialised, and no bias."""
    _, (d_model, d_k), state = _self_attention(rng)
    shapes, names, buffers, initial = student.run(
        "SelfAttention",
        init=(d_model, d_k),
        want=("parameter_shapes", "state_names", "buffer_shapes", "initial_state"),
    )
    found = set(shapes) | (set(names) - set(buffers))  # frozen parameters are no trainable ones, but are saved
    missing, extra = sorted(set(state) - set(shapes)), sorted(found - set(state))
    require(not missing, f"SelfAttention has no trainable {', '.join(missing)}; it has {', '.join(shapes) or 'none'}.")
    require(not extra, f"SelfAttention also has {', '.join(extra)}.")
    for name, shape in shapes.items():
        require(
            shape == [d_k, d_model], f"{name} has shape {tuple(shape)}, expected (d_k, d_model) = {(d_k, d_model)}."
        )
        require(
            np.ptp(initial[name]) > 0,
            f"All entries of a new {name} are {initial[name].flat[0]:g}: leave the weights as nn.Linear draws them.",
        )


@check("SelfAttention", points=1)
def self_attention_trains_all_its_projections(student, rng):
    """Gradients reach x and all three projections; training mode and a second call compute the same; x is not changed."""
    x, init, state = _self_attention(rng)
    names = list(state)
    call = {"init": init, "state": state, "mode": "train"}
    got, again, after = student.run("SelfAttention", x, want=("output", "again", "inputs"), **call)
    expect(got, _projected(x, state), "the output of SelfAttention in training mode")
    expect(again, got, "the output of SelfAttention in a second call")
    expect(after[0], x, "`x` after the call (was it changed in place?)", tolerance=0)
    for shape in (x.shape, (2, x.shape[1] + 2, x.shape[2])):
        other = normal(rng, *shape)
        got = student.run("SelfAttention", x, init=init, state=state, then=(other,), want="then")
        expect(got, _projected(other, state), f"the output of a second call of SelfAttention, with another x {shape}")
    x_grads, grads = student.run("SelfAttention", x, want=("input_grads", "parameter_grads"), **call)

    def reference(x, w_q, w_k, w_v):
        q, k, v = x @ w_q.T, x @ w_k.T, x @ w_v.T
        return torch.softmax(q @ k.transpose(-2, -1) / k.size(-1) ** 0.5, -1) @ v

    wanted = gradients(reference, x, *(state[name] for name in names))
    for name, grad, want in zip(["x", *names], [x_grads[0], *(grads.get(n) for n in names)], wanted, strict=True):
        require(grad is not None, f"No gradient reaches {name}.")
        expect(grad, want, f"the gradient of {name}")
