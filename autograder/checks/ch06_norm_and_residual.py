"""Hidden checks of chapter 6. The oracles are float64 NumPy; gradients are those of PyTorch's own operators.

``Residual`` and ``EncoderLayer`` are run with probes where their sub-layers go. What a probe notes and returns tells the
path of every tensor, so that most checks of ``EncoderLayer`` hold for a layer whose LayerNorm has a slip of its own.
"""

import numpy as np
import torch.nn.functional as F

from autograder.compare import CheckFailed, expect, require, require_array
from autograder.oracles import any_mask, distinct_sizes, gradients, normal, require_dtype
from autograder.registry import check
from autograder.student import Probe
from autograder.wiring import (
    ORDERS,
    anchored,
    apply,
    before_norm,
    features,
    layer_norm,
    maps,
    norm_of,
    norm_state,
    one_call,
    require_dropped,
    require_mask,
    require_norms,
    residual,
)

# ---------------------------------------------------------------------------------------------------------- LayerNorm

NORM = "LayerNorm"
OUTPUT = f"the output of {NORM}"


def _tokens(rng, *shape, dtype=np.float32) -> np.ndarray:
    """Tokens, each with a mean and a standard deviation of its own, so large that no ε shows."""
    means, deviations = rng.uniform(-3, 3, size=(*shape[:-1], 1)), rng.uniform(1, 5, size=(*shape[:-1], 1))
    return (means + deviations * layer_norm(rng.normal(size=shape), eps=0)).astype(dtype)


@check(NORM, points=1)
def layer_norm_takes_mean_and_variance_of_each_token(student, rng):
    """A new layer brings each token of (L, D) to mean 0 and variance 1, dividing by D, and not by D − 1."""
    for _ in range(3):
        length, d_model = distinct_sizes(rng, 2, 3)
        x = _tokens(rng, length, d_model)
        expect(student.run(NORM, x, init=(d_model,)), layer_norm(x), f"{OUTPUT}({d_model}) for x {x.shape}")


@check(NORM, points=1)
def layer_norm_takes_any_number_of_axes(student, rng):
    """Only the last axis is averaged over: one token (D,), a sequence, a batch (B, L, D), and heads (B, H, L, D)."""
    d_model, *leading = distinct_sizes(rng, 4, 3)
    state = features(rng, d_model)
    for count in range(4):
        x = _tokens(rng, *leading[:count], d_model)
        got = student.run(NORM, x, init=(d_model,), state=state)
        expect(got, layer_norm(x, **state), f"{OUTPUT}({d_model}) for x {x.shape}")
    x = _tokens(rng, d_model, d_model, d_model)
    got = student.run(NORM, x, init=(d_model,), state=state)
    expect(got, layer_norm(x, **state), f"{OUTPUT}({d_model}) for x {x.shape}, whose axes are alike,")


@check(NORM, points=1)
def layer_norm_gives_each_feature_gain_and_offset(student, rng):
    """Where gamma is 1 and beta is 0 it gives n: with other ones it gives gamma · n + beta, feature by feature."""
    for leading in (1, 2):
        *shape, d_model = distinct_sizes(rng, leading + 1, 3)
        x, state = _tokens(rng, *shape, d_model), features(rng, d_model)
        none = {"gamma": np.ones(d_model, np.float32), "beta": np.zeros(d_model, np.float32)}
        plain = student.run(NORM, x, init=(d_model,), state=none)
        require_array(plain, OUTPUT)
        require(plain.shape == x.shape, f"{OUTPUT} has shape {plain.shape} for x {x.shape}: the shape must stay.")
        require(np.ptp(plain) > 0, f"With gamma = 1 and beta = 0 {OUTPUT} is {plain.flat[0]:g} everywhere.")
        for other in (state, {**none, "gamma": state["gamma"]}, {**none, "beta": state["beta"]}):
            got = student.run(NORM, x, init=(d_model,), state=other)
            want = other["gamma"] * plain.astype(np.float64) + other["beta"]
            expect(got, want, f"{OUTPUT}({d_model}), compared with gamma · n + beta,", tolerance=5e-4)


@check(NORM, points=1)
def layer_norm_adds_epsilon_inside_the_root(student, rng):
    """Rows of tiny variance and rows without any, with the default eps = 1e-5 and with another."""
    for eps in (float(rng.uniform(1e-3, 1e-2)), 1e-5, None):
        length, d_model = distinct_sizes(rng, 2, 3)
        init = (d_model,) if eps is None else (d_model, eps)
        state = features(rng, d_model)
        value = 1e-5 if eps is None else eps
        scales = np.sqrt(value) * np.array([0.1, 0.4, 1.0, 3.0])[:, None, None]
        x = (scales * rng.normal(size=(4, length, d_model)) + 0.1 * rng.normal(size=(4, length, 1))).astype(np.float32)
        what = f"{OUTPUT}{init if eps is not None else f'({d_model})'} for standard deviations around √eps"
        got = student.run(NORM, x, init=init, state=state)
        expect(got, layer_norm(x, **state, eps=value), what, tolerance=5e-4)
        x = np.repeat(np.array([[0.0], [1.0], [rng.uniform(-2, 2)]], dtype=np.float32), d_model, axis=1)
        got = student.run(NORM, x, init=init, state=state)
        want = np.broadcast_to(state["beta"], x.shape)
        expect(got, want, f"{OUTPUT} for rows of equal entries, which give beta,", tolerance=1e-3)


@check(NORM, points=1)
def layer_norm_keeps_its_digits_far_from_zero(student, rng):
    """The result stays right where the mean of a row is a thousand times its standard deviation, in float32."""
    for scale in (1.0, 20.0):
        length, d_model = distinct_sizes(rng, 2, 6, 20)
        signs = rng.choice([-1, 1], size=(length, 1))
        x = (scale * (1000 * signs + rng.normal(size=(length, d_model)))).astype(np.float32)
        got = student.run(NORM, x, init=(d_model,))
        what = f"{OUTPUT} for tokens around ±{1000 * scale:g} with standard deviation {scale:g}"
        expect(got, layer_norm(x), what, tolerance=1e-3)


@check(NORM, points=1)
def layer_norm_passes_gradients_on(student, rng):
    """The gradients of x, through the mean and the variance too, of gamma and of beta are those of PyTorch's layer norm."""
    batch, length, d_model = distinct_sizes(rng, 3, 4)
    x, state = _tokens(rng, batch, length, d_model), features(rng, d_model)
    inputs, parameters = student.run(
        NORM, x, init=(d_model,), state=state, mode="train", want=("input_grads", "parameter_grads")
    )

    def pytorchs(x, gamma, beta):
        return F.layer_norm(x, (d_model,), gamma, beta)

    wanted = gradients(pytorchs, x, state["gamma"], state["beta"])
    found = (("x", inputs[0]), ("gamma", parameters.get("gamma")), ("beta", parameters.get("beta")))
    for (name, grad), want in zip(found, wanted, strict=True):
        require(grad is not None, f"No gradient reaches {name}.")
        expect(grad, want, f"the gradient of {name}", tolerance=5e-4)


@check(NORM, points=1)
def layer_norm_has_gamma_and_beta(student, rng):
    """All that is trained and saved is gamma (D,), ones at the start, and beta (D,), zeros at the start."""
    for d_model in distinct_sizes(rng, 2):
        shapes, names, buffers, initial = student.run(
            NORM, init=(d_model,), want=("parameter_shapes", "state_names", "buffer_shapes", "initial_state")
        )
        for name, start in (("gamma", 1), ("beta", 0)):
            require(name in shapes, f"{NORM} has no trainable {name}; it has {', '.join(shapes) or 'none'}.")
            require(
                shapes[name] == [d_model],
                f"{name} has shape {tuple(shapes[name])}, expected (d_model,) = ({d_model},).",
            )
            require(
                (initial[name] == start).all(),
                f"A new {name} holds {initial[name].flat[0]:g}, …: it starts as {'ones' if start else 'zeros'}.",
            )
        extra = sorted((set(shapes) | set(names) | set(buffers)) - {"gamma", "beta"})
        require(not extra, f"{NORM} also has {', '.join(extra)}.")


@check(NORM, points=1)
def layer_norm_keeps_nothing_from_call_to_call(student, rng):
    """Training and evaluation do the same, every call sees its own x only, x stays as it was, float64 is kept."""
    for dtype in (np.float32, np.float64):
        batch, length, d_model = distinct_sizes(rng, 3, 3)
        for mode in ("train", "eval"):
            x, other = _tokens(rng, batch, length, d_model, dtype=dtype), _tokens(rng, length + 1, d_model, dtype=dtype)
            got, again, then, after = student.run(
                NORM, x, init=(d_model,), mode=mode, then=(other,), want=("output", "again", "then", "inputs")
            )
            require_array(got, OUTPUT)
            require_dtype(got, dtype, "x", "an output")
            expect(after[0], x, "x after the call (was it changed in place?)", tolerance=0)
            expect(again, got, f"{OUTPUT} in a second call in {mode} mode")
            alone = student.run(NORM, other, init=(d_model,))
            require_array(alone, OUTPUT)
            expect(
                then, alone, f"{OUTPUT} in a later call in {mode} mode, compared with that of a new layer in eval mode,"
            )


# ----------------------------------------------------------------------------------------------------------- Residual

RESIDUAL = "Residual"


def _require_residual(student, rng, norm_first: bool, order: str) -> None:
    for leading in (2, 1, 0):
        *shape, d_model = distinct_sizes(rng, leading + 1)
        x, sublayer, norm = normal(rng, *shape, d_model), maps(rng, d_model), maps(rng, d_model)
        inits = ((0.0, norm_first), *(((), (0.0,)) if not norm_first else ()))
        for init in inits:
            got = student.run(
                RESIDUAL, x, Probe("linear", "sublayer", *sublayer), Probe("linear", "norm", *norm), init=init
            )
            want = residual(x, lambda t, f=sublayer: apply(f, t), lambda t, n=norm: apply(n, t), norm_first)
            expect(got, want, f"the output of {RESIDUAL}{init}, {order}, for x {x.shape}")


@check(RESIDUAL, points=1)
def residual_can_be_post_norm(student, rng):
    """Without norm_first, as is the default, the result is norm(x + sublayer(x)), for x of any shape."""
    _require_residual(student, rng, *ORDERS[0])


@check(RESIDUAL, points=1)
def residual_can_be_pre_norm(student, rng):
    """With norm_first the result is x + sublayer(norm(x)), for x of any shape: the path carries x, and not its norm."""
    _require_residual(student, rng, *ORDERS[1])


@check(RESIDUAL, points=1)
def residual_calls_each_once_and_keeps_neither(student, rng):
    """sublayer and norm are called once with one tensor, others may be given the next time, and nothing is saved."""
    for norm_first, order in ORDERS:
        length, d_model = distinct_sizes(rng, 2)
        x, other = normal(rng, length, d_model), normal(rng, length, d_model)
        pairs = {name: maps(rng, d_model) for name in ("sublayer", "norm", "another sublayer", "another norm")}
        probes = [Probe("linear", name, *pair) for name, pair in pairs.items()]
        then, calls = student.run(
            RESIDUAL,
            x,
            *probes[:2],
            init=(0.0, norm_first),
            then=(other, *probes[2:]),
            want=("then", "calls"),
        )
        for name in pairs:
            arguments = one_call(calls, name, order)
            require(len(arguments) == 1, f"{order}: {name} gets {len(arguments)} arguments, expected one tensor.")
            require_array(arguments[0], f"what {name} is given")
        alone = student.run(RESIDUAL, other, *probes[2:], init=(0.0, norm_first))
        require_array(alone, f"the output of {RESIDUAL}")
        expect(then, alone, f"the output of a later call with another sublayer and norm, {order},")
        names, shapes, buffers = student.run(
            RESIDUAL, init=(0.1, norm_first), want=("state_names", "parameter_shapes", "buffer_shapes")
        )
        extra = sorted({*names, *shapes, *buffers})
        require(not extra, f"{RESIDUAL} has {', '.join(extra)}, expected no parameters and no buffers.")


@check(RESIDUAL, points=1)
def residual_drops_what_the_sublayer_returns(student, rng):
    """In training mode dropout acts on the sub-layer's result before the addition, and neither on x nor on the norm."""
    for norm_first, order in ORDERS:
        rate = float(rng.uniform(0.3, 0.5))
        x = normal(rng, 9, 10, 11)
        sublayer, norm = maps(rng, 11), maps(rng, 11)
        got, again, calls = student.run(
            RESIDUAL,
            x,
            Probe("linear", "sublayer", *sublayer),
            Probe("linear", "norm", *norm),
            init=(rate, norm_first),
            mode="train",
            seed=int(rng.integers(2**31)),
            want=("output", "again", "calls"),
        )
        for name in ("sublayer", "norm"):
            require(len(calls[name]) == 2, f"{order}: in two calls {name} is called {len(calls[name])} times.")
        require_array(got, f"the output of {RESIDUAL}")
        whole = apply(sublayer, apply(norm, x) if norm_first else x)
        first = "norm" if norm_first else "sublayer"
        expect(calls[first][0][0], x, f"what {first} is given in {order} with dropout, which leaves x alone,")
        sums = (got, again) if norm_first else [call[0] for call in calls["norm"]]
        if norm_first:
            what = "what sublayer is given in pre-norm with dropout, which leaves the result of norm alone,"
            expect(calls["sublayer"][0][0], apply(norm, x), what)
        else:
            expect(
                got,
                apply(norm, sums[0]),
                "the output of post-norm with dropout, which leaves the result of norm alone,",
            )
        patterns = [require_dropped(total - x, whole, rate, order, "the sub-layer's result") for total in sums]
        require((patterns[0] != patterns[1]).any(), f"{order}: dropout sets the same entries to 0 in every call.")


@check(RESIDUAL, points=1)
def residual_drops_nothing_in_evaluation(student, rng):
    """In evaluation mode nothing is dropped and nothing rescaled, nor is it in training mode when dropout is 0."""
    for norm_first, _ in ORDERS:
        batch, length, d_model = distinct_sizes(rng, 3)
        x, sublayer, norm = normal(rng, batch, length, d_model), maps(rng, d_model), maps(rng, d_model)
        probes = Probe("linear", "sublayer", *sublayer), Probe("linear", "norm", *norm)
        plain = student.run(RESIDUAL, x, *probes, init=(0.0, norm_first))
        require_array(plain, f"the output of {RESIDUAL}")
        for rate, mode in ((0.6, "eval"), (0.0, "train")):
            got = student.run(RESIDUAL, x, *probes, init=(rate, norm_first), mode=mode)
            what = f"the output of {RESIDUAL}({rate}, {norm_first}) in {mode} mode, compared with that without dropout,"
            expect(got, plain, what)


@check(RESIDUAL, points=1)
def residual_leaves_x_alone_and_passes_gradients_on(student, rng):
    """x stays as it was even where a callable hands it back, float64 is kept, and gradients flow through both summands."""
    for norm_first, order in ORDERS:
        for dtype in (np.float32, np.float64):
            length, d_model = distinct_sizes(rng, 2)
            x = normal(rng, length, d_model, dtype=dtype)
            for rate in (0.0, 0.5):
                got, after = student.run(
                    RESIDUAL,
                    x,
                    Probe("identity", "sublayer"),
                    Probe("identity", "norm"),
                    init=(rate, norm_first),
                    mode="train",
                    want=("output", "inputs"),
                )
                require_array(got, f"the output of {RESIDUAL}")
                require_dtype(got, dtype, "x", "an output")
                what = f"x after a call in {order} with callables that hand back what they are given (was it changed in place?)"
                expect(after[0], x, what, tolerance=0)
            sublayer, norm = maps(rng, d_model), maps(rng, d_model)
            grad = student.run(
                RESIDUAL,
                x,
                Probe("linear", "sublayer", *sublayer),
                Probe("linear", "norm", *norm),
                init=(0.0, norm_first),
                want="input_grads",
            )[0]

            def right(x, w, b, v, c, norm_first=norm_first):
                return x + F.linear(F.linear(x, v, c), w, b) if norm_first else F.linear(x + F.linear(x, w, b), v, c)

            require(grad is not None, f"{order}: no gradient reaches x.")
            expect(grad, gradients(right, x, *sublayer, *norm)[0], f"the gradient of x, {order},", tolerance=5e-4)


# ------------------------------------------------------------------------------------------------------- EncoderLayer

ENCODER = "EncoderLayer"


def _encoder(rng, silent: int = 0):
    """B, L and D, all different, and the maps of the two sub-layers."""
    batch, length, d_model = distinct_sizes(rng, 3, 3)
    return batch, length, d_model, maps(rng, d_model, silent), maps(rng, d_model, silent)


def _encoder_probes(attention, feed_forward) -> tuple[Probe, Probe]:
    return Probe("linear", "self_attention", *attention), Probe("linear", "feed_forward", *feed_forward)


def _require_encoder(student, rng, norm_first: bool, order: str) -> None:
    for number in range(2):
        batch, length, d_model, attention, feed_forward = _encoder(rng)
        x, state = normal(rng, batch, length, d_model), norm_state(rng, d_model, 2)
        order_given = (0.0, norm_first) if norm_first or number else ()
        init = (*_encoder_probes(attention, feed_forward), d_model, *order_given)
        got = student.run(ENCODER, x, init=init, state=state)
        middle = residual(x, lambda t, f=attention: apply(f, t), norm_of(state, 1), norm_first)
        want = residual(middle, lambda t, f=feed_forward: apply(f, t), norm_of(state, 2), norm_first)
        expect(got, want, f"the output of {ENCODER}, {order}, for x {x.shape}", tolerance=3e-4)


@check(ENCODER, points=1)
def encoder_layer_can_be_post_norm(student, rng):
    """By default each half is norm(x + sublayer(x)): self-attention with norm1 first, then feed-forward with norm2."""
    _require_encoder(student, rng, *ORDERS[0])


@check(ENCODER, points=1)
def encoder_layer_can_be_pre_norm(student, rng):
    """With norm_first each half is x + sublayer(norm(x)), and the path from end to end is never normalised."""
    _require_encoder(student, rng, *ORDERS[1])


@check(ENCODER, points=2)
def encoder_layer_hands_tokens_and_mask_to_attention(student, rng):
    """The self-attention gets one tensor as query, key and value, and the mask as it is; the feed-forward one tensor."""
    for norm_first, order in ORDERS:
        batch, length, d_model, attention, feed_forward = _encoder(rng)
        init = (*_encoder_probes(attention, feed_forward), d_model, 0.0, norm_first)
        x, state = normal(rng, batch, length, d_model), norm_state(rng, d_model, 2)
        for mask in (any_mask(rng, batch, 1, length, length), any_mask(rng, length, length), None):
            given = () if mask is None else (mask,)
            calls, after = student.run(ENCODER, x, *given, init=init, state=state, want=("calls", "inputs"))
            arguments = one_call(calls, "self_attention", order)
            require(
                len(arguments) in ((3, 4) if mask is None else (4,)),
                f"{order}: self_attention gets {len(arguments)} arguments, expected query, key, value and mask.",
            )
            query, key, value = arguments[:3]
            require_array(query, f"{order}: the query")
            require(
                query.shape == x.shape, f"{order}: the query has shape {query.shape}, expected that of x, {x.shape}."
            )
            for name, tensor in (("key", key), ("value", value)):
                expect(tensor, query, f"the {name} that self_attention gets, compared with the query, {order},")
            require_mask(arguments, mask, order, "self_attention")
            arguments = one_call(calls, "feed_forward", order)
            require(len(arguments) == 1, f"{order}: feed_forward gets {len(arguments)} arguments, expected one tensor.")
            expect(after[0], x, f"x after the call, {order} (was it changed in place?)", tolerance=0)
            if mask is not None:
                require(np.array_equal(after[1], mask), f"{order}: the mask is another after the call.")


@check(ENCODER, points=0.5)
def encoder_layer_has_two_norms_of_its_own(student, rng):
    """Its state is that of self_attention, feed_forward, norm1 and norm2, under these names, and nothing is shared."""
    d_model = distinct_sizes(rng, 1)[0]
    probes = [Probe("layer", name, *maps(rng, d_model)) for name in ("self_attention", "feed_forward")]
    require_norms(student, ENCODER, probes, d_model, 2)


def _halves(student, rng, norm_first: bool, rate: float, mode: str):
    """What the two halves add to the path, and what they would add without dropout, found without knowing the norm."""
    batch, length, d_model = 8, 9, 12
    attention, feed_forward = maps(rng, d_model, silent=2), maps(rng, d_model, silent=2)
    x, state = anchored(rng, batch, length, d_model), norm_state(rng, d_model, 2)
    init = (*_encoder_probes(attention, feed_forward), d_model, rate, norm_first)
    order = ORDERS[norm_first][1]
    got, calls = student.run(
        ENCODER, x, init=init, state=state, mode=mode, seed=int(rng.integers(2**31)), want=("output", "calls")
    )
    require_array(got, f"the output of {ENCODER}")
    require(got.shape == x.shape, f"{order}: the output has shape {got.shape} for x {x.shape}.")
    seen = [one_call(calls, name, order)[0] for name in ("self_attention", "feed_forward")]
    whole = [apply(pair, tokens) for pair, tokens in zip((attention, feed_forward), seen, strict=True)]
    if norm_first:
        middle = before_norm(seen[1], state, 2, x[..., :2])
        return (middle - x, got - middle), whole
    middle = before_norm(seen[1], state, 1, x[..., :2])
    return (middle - x, before_norm(got, state, 2, seen[1][..., :2]) - seen[1]), whole


@check(ENCODER, points=1)
def encoder_layer_drops_what_its_sublayers_return(student, rng):
    """In training mode dropout acts on each sub-layer's result before the addition, drawn anew, and else on nothing."""
    names = ("the self-attention's result", "the feed-forward's result")
    for norm_first, order in ORDERS:
        rate = float(rng.uniform(0.3, 0.5))
        added, whole = _halves(student, rng, norm_first, rate, "train")
        patterns = [require_dropped(a, w, rate, order, name) for a, w, name in zip(added, whole, names, strict=True)]
        same = (patterns[0] == patterns[1])[..., 2:].all()
        require(not same, f"{order}: both sub-layers lose the same entries; dropout is drawn anew for each.")
        for mode, probability in (("eval", 0.5), ("train", 0.0)):
            added, whole = _halves(student, rng, norm_first, probability, mode)
            for a, w, name in zip(added, whole, names, strict=True):
                if not np.allclose(a, w, atol=1e-3):
                    raise CheckFailed(
                        f"{order}, dropout={probability:g}, {mode} mode: what is added to the residual path is not {name}: "
                        "nothing is to be dropped here."
                    )


@check(ENCODER, points=0.5)
def encoder_layer_trains_everything(student, rng):
    """Gradients reach x, both norms and both sub-layers, float64 is kept, and every call sees its own inputs only."""
    for norm_first, order in ORDERS:
        for dtype in (np.float32, np.float64):
            batch, length, d_model, attention, feed_forward = _encoder(rng)
            pairs = attention, feed_forward
            probes = [Probe("layer", n, *p) for n, p in zip(("self_attention", "feed_forward"), pairs, strict=True)]
            x, other = (normal(rng, batch, length, d_model, dtype=dtype) for _ in range(2))
            state = norm_state(rng, d_model, 2)
            init = (*probes, d_model, 0.0, norm_first)
            got, then, inputs, parameters = student.run(
                ENCODER,
                x,
                init=init,
                state=state,
                mode="train",
                then=(other,),
                want=("output", "then", "input_grads", "parameter_grads"),
            )
            require_array(got, f"the output of {ENCODER}")
            require_dtype(got, dtype, "x", "an output")
            alone = student.run(ENCODER, other, init=init, state=state)
            require_array(alone, f"the output of {ENCODER}")
            expect(then, alone, f"the output of a later call, {order}, compared with that of a new layer,")

            def pytorchs(x, w, b, v, c, g1, b1, g2, b2, norm_first=norm_first, d_model=d_model):
                for (a, d), (g, e) in (((w, b), (g1, b1)), ((v, c), (g2, b2))):
                    norm = lambda t, g=g, e=e: F.layer_norm(t, (d_model,), g, e)  # noqa: E731
                    x = x + F.linear(norm(x), a, d) if norm_first else norm(x + F.linear(x, a, d))
                return x

            wanted = gradients(pytorchs, x, *attention, *feed_forward, *state.values())
            names = [f"{probe.name}.{kind}" for probe in probes for kind in ("weight", "bias")] + list(state)
            require(inputs[0] is not None, f"{order}: no gradient reaches x.")
            expect(inputs[0], wanted[0], f"the gradient of x, {order},", tolerance=1e-3)
            for name, want in zip(names, wanted[1:], strict=True):
                require(parameters.get(name) is not None, f"{order}: no gradient reaches {name}.")
                expect(parameters[name], want, f"the gradient of {name}, {order},", tolerance=1e-3)
