"""Layers around probes: norms and residual paths as they should be, and what the probes' notes tell of a learner's.

Where a layer's norm is the learner's own LayerNorm, what it was given is found again from two features of it that are known,
so that a slip of the norm does not count as one of the layer.
"""

import numpy as np

from autograder.compare import expect, require, require_within
from autograder.oracles import normal

ORDERS = ((False, "post-norm"), (True, "pre-norm"))


def layer_norm(x, gamma=1.0, beta=0.0, eps=1e-5) -> np.ndarray:
    """γ (x − μ) / √(σ² + ε) + β over the last axis, with the biased variance, in float64."""
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) + beta


def features(rng, d_model: int) -> dict[str, np.ndarray]:
    """γ of both signs, none near 0, and β."""
    gamma = rng.choice([-1, 1], size=d_model) * rng.uniform(0.5, 2.0, size=d_model)
    return {"gamma": gamma.astype(np.float32), "beta": normal(rng, d_model)}


def norm_state(rng, d_model: int, count: int) -> dict[str, np.ndarray]:
    """γ and β of norm1, norm2, …, no two norms alike."""
    return {f"norm{i + 1}.{name}": value for i in range(count) for name, value in features(rng, d_model).items()}


def norm_of(state, number: int):
    return lambda x: layer_norm(x, state[f"norm{number}.gamma"], state[f"norm{number}.beta"])


def residual(x, f, norm, norm_first: bool) -> np.ndarray:
    x = np.asarray(x, np.float64)
    return x + f(norm(x)) if norm_first else norm(x + f(x))


def maps(rng, d_model: int, silent: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of a linear probe; the first ``silent`` features of what it returns are 0."""
    weight, bias = normal(rng, d_model, d_model, scale=1.4 * d_model**-0.5), normal(rng, d_model)
    weight[:silent], bias[:silent] = 0, 0
    return weight, bias


def apply(pair, x) -> np.ndarray:
    weight, bias = (np.asarray(array, np.float64) for array in pair)
    return np.asarray(x, np.float64) @ weight.T + bias


def one_call(calls, name: str, order: str) -> list:
    """The arguments of a probe's only call."""
    require(len(calls[name]) > 0, f"{order}: {name} is never called.")
    require(len(calls[name]) == 1, f"{order}: {name} is called {len(calls[name])} times, expected once.")
    return calls[name][0]


def require_mask(arguments, mask, order: str, name: str) -> None:
    """Fail unless the fourth argument of an attention is the mask; without one it may be left out."""
    got = arguments[3] if len(arguments) > 3 else None
    if mask is None:
        require(got is None, f"{order}: without a mask {name} must get none, but it got {type(got).__name__}.")
        return
    require(got is not None, f"{order}: no mask reaches {name}.")
    expect(got, mask, f"the mask that {name} gets, {order},")


def require_norms(student, piece: str, probes, d_model: int, count: int) -> None:
    """Fail unless a layer's state is that of its sub-layers, here one weight and bias each, and of ``count`` norms."""
    shapes, names, initial = student.run(
        piece, init=(*probes, d_model), want=("parameter_shapes", "state_names", "initial_state")
    )
    wanted = {f"norm{i + 1}.{kind}": [d_model] for i in range(count) for kind in ("gamma", "beta")}
    wanted |= {
        f"{p.name}.{kind}": list(a.shape) for p in probes for kind, a in zip(("weight", "bias"), p.arrays, strict=True)
    }
    missing = sorted(set(wanted) - set(names))
    require(
        not missing,
        f"The state of {piece} has no {', '.join(missing)}; it has {', '.join(names) or 'nothing'}. Assign the sub-layers "
        "and the norms to the attributes of these names.",
    )
    extra = sorted((set(names) | set(shapes)) - set(wanted))
    require(not extra, f"The state of {piece} also has {', '.join(extra)}.")
    shared = sorted(set(wanted) - set(shapes))
    require(
        not shared,
        f"{', '.join(shared)} is no trainable parameter of its own: two norms share one object, or it is frozen.",
    )
    for name, shape in wanted.items():
        require(shapes[name] == shape, f"{name} has shape {tuple(shapes[name])}, expected {tuple(shape)}.")
    for name in wanted:
        if name.startswith("norm"):
            start = 1 if name.endswith("gamma") else 0
            require((initial[name] == start).all(), f"A new {name} does not consist of {'ones' if start else 'zeros'}.")


def require_dropped(added, whole, rate: float, order: str, what: str) -> np.ndarray:
    """Fail unless ``added`` is ``whole`` after dropout; which entries were dropped, where ``whole`` is not 0."""
    there = np.abs(whole) > 1e-3
    zero, kept = np.abs(added) < 1e-4, np.abs(added - whole / (1 - rate)) < 1e-4 * max(1.0, np.abs(whole).max())
    require(
        not np.allclose(added, whole, atol=1e-4),
        f"{order}, dropout={rate:g}, training: nothing is dropped from {what}.",
    )
    require(
        (zero | kept).all(),
        f"{order}, dropout={rate:g}, training: what is added to the residual path must be the entries of {what}, each "
        f"either 0 or divided by 1 − {rate:g}. Dropout acts there, before the addition, and on nothing else.",
    )
    dropped = zero & there
    share = dropped.sum() / there.sum()
    # At least 700 entries: eight standard deviations.
    require_within(
        abs(share - rate),
        0.16,
        f"{order}, dropout={rate:g}, training: {100 * share:.0f} % of {what} is dropped.",
    )
    for axis, alike in ((-1, "features of a token"), (-2, "tokens of a sentence"), (0, "sentences")):
        mixed = dropped.any(axis=axis) & (there & ~dropped).any(axis=axis)
        require(mixed.any(), f"{order}: dropout treats all {alike} alike; it chooses each entry by itself.")
    return zero


def before_norm(returned, state, number: int, known) -> np.ndarray:
    """What a norm was given, from what it returned and the two features of it that are known.

    It holds for every norm that shifts and stretches each token, whatever it takes for its variance.
    """
    plain = (np.asarray(returned, np.float64) - state[f"norm{number}.beta"]) / state[f"norm{number}.gamma"]
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = (known[..., :1] - known[..., 1:2]) / (plain[..., :1] - plain[..., 1:2])
        return np.nan_to_num((plain - plain[..., :1]) * stretch + known[..., :1], posinf=1e9, neginf=-1e9)


def anchored(rng, *shape) -> np.ndarray:
    """Tokens in float64 whose first two features are well apart."""
    x = normal(rng, *shape, dtype=np.float64)
    x[..., 0], x[..., 1] = 2 + rng.random(shape[:-1]), -2 - rng.random(shape[:-1])
    return x
