"""Hidden checks of chapter 7. Masks are written out entry by entry; the decoder layer is run with probes.

A mask of another type or with other axes still has its entries looked at, as far as they can be told: form and entries are
checks of their own.
"""

from itertools import pairwise, product

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
    maps,
    norm_of,
    norm_state,
    one_call,
    require_dropped,
    require_mask,
    require_norms,
    residual,
)


def _entries(got, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The entries of a mask in the given shape, True where they are not 0, whatever its type and its axes of length 1."""
    require_array(got, what)
    require(
        [size for size in got.shape if size != 1] == [size for size in shape if size != 1],
        f"{what[:1].upper()}{what[1:]}: shape {got.shape}, expected {shape}.",
    )
    return got.reshape(shape) != 0


def _agree(got: np.ndarray, want: np.ndarray, what: str) -> None:
    expect(got, want, what, tolerance=0)


def _ids(rng, *shape, pad_id: int, low: int = 0, high: int = 50) -> np.ndarray:
    """Token ids of which none is ``pad_id``."""
    ids = rng.integers(low, high - 1, size=shape)
    return np.where(ids >= pad_id, ids + 1, ids) if low <= pad_id < high else ids


def _padded_behind(rng, batch: int, length: int, pad_id: int, low: int = 0) -> np.ndarray:
    """Sentences of different lengths with padding behind them; one is full, and no id besides is ``pad_id``."""
    lengths = rng.permutation(np.append(rng.integers(1, length, size=batch - 1), length))
    ids = _ids(rng, batch, length, pad_id=pad_id, low=low)
    return np.where(np.arange(length) < lengths[:, None], ids, pad_id)


# ------------------------------------------------------------------------------------------------------- padding_mask

PADDING = "padding_mask"


def _require_padding(student, ids: np.ndarray, pad_id: int, kind: str) -> None:
    what = f"{PADDING} for token_ids {ids.shape}, padding id {pad_id}, {kind}"
    got = student.run(PADDING, ids, pad_id)
    want = np.array([[[[int(token) != pad_id for token in row]]] for row in ids])
    _agree(_entries(got, want.shape, what), want, what)


@check(PADDING, points=1)
def padding_mask_is_true_at_real_tokens(student, rng):
    """With padding id 0 and padding behind the sentences, the mask is True at every real token and False at padding."""
    for _ in range(3):
        batch, length = distinct_sizes(rng, 2, 3)
        _require_padding(student, _padded_behind(rng, batch, length, 0), 0, "padding behind the tokens")


@check(PADDING, points=1)
def padding_mask_takes_any_padding_id(student, rng):
    """The padding id may be any: with another one than 0, 0 is an ordinary token."""
    for pad_id in (int(rng.integers(2, 40)), 1, -1, -100, 50_000):
        batch, length = distinct_sizes(rng, 2, 3)
        ids = _padded_behind(rng, batch, length, pad_id)
        ids[rng.integers(batch), 0] = 0
        _require_padding(student, ids, pad_id, "padding behind the tokens")


@check(PADDING, points=1)
def padding_mask_finds_padding_anywhere(student, rng):
    """Padding may stand before the tokens or between them, and a sentence may be all padding or have none."""
    batch, length = distinct_sizes(rng, 2, 4)
    behind = _padded_behind(rng, batch, length, 0)
    _require_padding(student, behind[:, ::-1].copy(), 0, "padding before the tokens")
    between = np.where(any_mask(rng, batch, length), _ids(rng, batch, length, pad_id=0), 0)
    _require_padding(student, between, 0, "padding between the tokens")
    _require_padding(student, np.zeros((batch, length), dtype=np.int64), 0, "nothing but padding")
    _require_padding(student, _ids(rng, batch, length, pad_id=0), 0, "no padding")


@check(PADDING, points=1)
def padding_mask_is_boolean_with_an_axis_for_heads_and_queries(student, rng):
    """The mask is boolean and (B, 1, 1, L), also for one sentence, one token and B = L; token_ids stay as they are."""
    batch, length = distinct_sizes(rng, 2, 3)
    for shape in ((batch, length), (1, length), (batch, 1), (length, length), (1, 1)):
        pad_id = int(rng.integers(1, 9))
        ids = np.where(any_mask(rng, *shape) if shape[1] > 1 else True, _ids(rng, *shape, pad_id=pad_id), pad_id)
        got, after = student.run(PADDING, ids, pad_id, want=("output", "inputs"))
        what = f"{PADDING} for token_ids {shape}"
        require_array(got, what)
        require(got.shape == (shape[0], 1, 1, shape[1]), f"{what} has shape {got.shape}, expected (B, 1, 1, L).")
        require(got.dtype == bool, f"{what} has dtype {got.dtype}, expected bool.")
        require(np.array_equal(after[0], ids), "token_ids are others after the call: were they changed in place?")


# -------------------------------------------------------------------------------------------------------- causal_mask

CAUSAL = "causal_mask"


def past(size: int) -> np.ndarray:
    return np.array([[key <= query for key in range(size)] for query in range(size)])


@check(CAUSAL, points=2)
def causal_mask_opens_the_past_and_closes_the_future(student, rng):
    """Row i is True up to column i, itself included, and False behind it, for any size."""
    for size in (*distinct_sizes(rng, 3, 2, 12), 40):
        what = f"{CAUSAL}({size})"
        _agree(_entries(student.run(CAUSAL, size), (size, size), what), past(size), what)


@check(CAUSAL, points=1)
def causal_mask_is_a_boolean_square(student, rng):
    """The mask is boolean and (size, size), without further axes."""
    for size in (*distinct_sizes(rng, 2, 2, 12), 1):
        got = student.run(CAUSAL, size)
        require_array(got, f"{CAUSAL}({size})")
        require(got.shape == (size, size), f"{CAUSAL}({size}) has shape {got.shape}, expected {(size, size)}.")
        require(got.dtype == bool, f"{CAUSAL}({size}) has dtype {got.dtype}, expected bool.")


@check(CAUSAL, points=1)
def causal_mask_lets_every_token_see_itself(student, rng):
    """No row is empty: the diagonal is True, for one token too, and a later call with another size gets its own mask."""
    small, large = sorted(distinct_sizes(rng, 2, 2, 12))
    for size, other in ((1, large), (small, large), (large, small)):
        got, then, again = student.run(CAUSAL, size, then=(other,), want=("output", "then", "again"))
        for result, number, when in ((got, size, ""), (then, other, " in a later call"), (again, size, " once more")):
            what = f"the diagonal of {CAUSAL}({number}){when}"
            diagonal = np.diagonal(_entries(result, (number, number), what))
            require(diagonal.all(), f"{what[0].upper()}{what[1:]} is not True: a token may attend to itself.")


# -------------------------------------------------------------------------------------------------------- target_mask

TARGET = "target_mask"


def _target(ids: np.ndarray, pad_id: int) -> np.ndarray:
    length = ids.shape[1]
    return np.array(
        [
            [[[key <= query and int(row[key]) != pad_id for key in range(length)] for query in range(length)]]
            for row in ids
        ]
    )


def _target_masks(student, rng):
    """Masks with their sentences: padding behind, before and between the tokens, and padding ids of all kinds."""
    for pad_id, place in ((0, "behind"), (int(rng.integers(2, 40)), "behind"), (1, "before"), (-1, "between")):
        batch, length = distinct_sizes(rng, 2, 4)
        ids = _padded_behind(rng, batch, length, pad_id)
        if place == "before":
            ids = ids[:, ::-1].copy()
        elif place == "between":
            ids = np.where(any_mask(rng, batch, length), _ids(rng, batch, length, pad_id=pad_id), pad_id)
        what = f"{TARGET} for token_ids {ids.shape}, padding id {pad_id}, padding {place} the tokens"
        got = student.run(TARGET, ids, pad_id)
        yield _entries(got, (batch, 1, length, length), what), _target(ids, pad_id), ids == pad_id, what


@check(TARGET, points=1)
def target_mask_closes_the_future(student, rng):
    """Without padding it is the causal mask for every sentence."""
    for _ in range(2):
        batch, length = distinct_sizes(rng, 2, 3)
        ids = _ids(rng, batch, length, pad_id=0, low=1)
        what = f"{TARGET} for token_ids {ids.shape} without padding"
        got = _entries(student.run(TARGET, ids, 0), (batch, 1, length, length), what)
        _agree(got, _target(ids, 0), what)


@check(TARGET, points=1)
def target_mask_closes_padding_to_real_tokens(student, rng):
    """The row of a real token opens the real tokens up to itself and no padding, wherever the padding stands."""
    for got, want, padding, what in _target_masks(student, rng):
        rows = ~padding
        _agree(got[:, 0][rows], want[:, 0][rows], f"the rows of real tokens in {what}")


@check(TARGET, points=1)
def target_mask_asks_nothing_of_the_query(student, rng):
    """The row of a padding token follows the same rule: the real tokens before it are open, and padding is not."""
    for got, want, padding, what in _target_masks(student, rng):
        _agree(got[:, 0][padding], want[:, 0][padding], f"the rows of padding tokens in {what}")


@check(TARGET, points=1)
def target_mask_is_boolean_with_an_axis_for_heads(student, rng):
    """The mask is boolean and (B, 1, T, T), also for one sentence, one token and B = T; token_ids stay as they are."""
    batch, length = distinct_sizes(rng, 2, 3)
    for shape in ((batch, length), (1, length), (batch, 1), (length, length), (1, 1)):
        pad_id = int(rng.integers(0, 9))
        ids = np.where(any_mask(rng, *shape) if shape[1] > 1 else True, _ids(rng, *shape, pad_id=pad_id), pad_id)
        got, after = student.run(TARGET, ids, pad_id, want=("output", "inputs"))
        what, wanted = f"{TARGET} for token_ids {shape}", (shape[0], 1, shape[1], shape[1])
        require_array(got, what)
        require(got.shape == wanted, f"{what} has shape {got.shape}, expected (B, 1, T, T) = {wanted}.")
        require(got.dtype == bool, f"{what} has dtype {got.dtype}, expected bool.")
        require(np.array_equal(after[0], ids), "token_ids are others after the call: were they changed in place?")


# ------------------------------------------------------------------------------------------------------- DecoderLayer

DECODER = "DecoderLayer"
SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")
ATTENTIONS = SUBLAYERS[:2]


def _sizes(rng) -> tuple[int, int, int, int]:
    """B, T, S and D, all different."""
    batch, target, source, d_model = distinct_sizes(rng, 4, 3)
    return batch, target, source, d_model


def _linear(rng, d_model: int, kind: str = "linear", silent: int = 0):
    """The maps of three sub-layers that answer to their first argument only, and the probes that do so."""
    pairs = [maps(rng, d_model, silent) for _ in SUBLAYERS]
    return pairs, [Probe(kind, name, *pair) for name, pair in zip(SUBLAYERS, pairs, strict=True)]


def _require_decoder(student, rng, norm_first: bool, order: str) -> None:
    for number in range(2):
        batch, target, source, d_model = _sizes(rng)
        source = target if number else source  # as long as the target, memory can be taken for it without an error
        pairs, probes = _linear(rng, d_model)
        x, memory = normal(rng, batch, target, d_model), normal(rng, batch, source, d_model)
        state = norm_state(rng, d_model, 3)
        init = (*probes, d_model, *((0.0, norm_first) if norm_first or number else ()))
        got = student.run(DECODER, x, memory, init=init, state=state)
        want = x
        for place, pair in enumerate(pairs):
            want = residual(want, lambda t, f=pair: apply(f, t), norm_of(state, place + 1), norm_first)
        what = f"the output of {DECODER}, {order}, for x {x.shape} and memory {memory.shape}"
        expect(got, want, what, tolerance=3e-4)


@check(DECODER, points=1)
def decoder_layer_can_be_post_norm(student, rng):
    """By default each third is norm(x + sublayer(x)): self-attention, cross-attention, feed-forward, each with its norm."""
    _require_decoder(student, rng, *ORDERS[0])


@check(DECODER, points=1)
def decoder_layer_can_be_pre_norm(student, rng):
    """With norm_first each third is x + sublayer(norm(x)), and the path from end to end is never normalised."""
    _require_decoder(student, rng, *ORDERS[1])


def _routes(student, rng, masks: bool):
    """For both orders, each with S ≠ T and S = T: the order, x, memory, the masks, and what each attention was given."""
    for (norm_first, order), as_long in product(ORDERS, (False, True)):
        batch, target, source, d_model = _sizes(rng)
        source = target if as_long else source
        _, probes = _linear(rng, d_model)
        x, memory = normal(rng, batch, target, d_model), normal(rng, batch, source, d_model)
        past, real = any_mask(rng, batch, 1, target, target), any_mask(rng, batch, 1, 1, source)
        for given in ((past, real), (past, None), (None, real), (None, None)) if masks else ((past, real),):
            arguments = () if all(mask is None for mask in given) else given
            init, state = (*probes, d_model, 0.0, norm_first), norm_state(rng, d_model, 3)
            calls, after = student.run(DECODER, x, memory, *arguments, init=init, state=state, want=("calls", "inputs"))
            yield order, x, memory, given, calls, after


@check(DECODER, points=1)
def decoder_layer_lets_the_target_read_itself(student, rng):
    """The self-attention gets one tensor as query, key and value, and the feed-forward gets one tensor."""
    for order, x, _, _, calls, _ in _routes(student, rng, masks=False):
        arguments = one_call(calls, "self_attention", order)
        require(
            len(arguments) >= 3,
            f"{order}: self_attention gets {len(arguments)} arguments, expected query, key, value and mask.",
        )
        query, key, value = arguments[:3]
        require_array(query, f"{order}: the query of self_attention")
        require(
            query.shape == x.shape, f"{order}: the query of self_attention has shape {query.shape}, expected {x.shape}."
        )
        for name, tensor in (("key", key), ("value", value)):
            expect(tensor, query, f"the {name} that self_attention gets, compared with the query, {order},")
        arguments = one_call(calls, "feed_forward", order)
        require(len(arguments) == 1, f"{order}: feed_forward gets {len(arguments)} arguments, expected one tensor.")
        require_array(arguments[0], f"{order}: what feed_forward gets")
        require(
            arguments[0].shape == x.shape, f"{order}: feed_forward gets shape {arguments[0].shape}, expected {x.shape}."
        )


@check(DECODER, points=1)
def decoder_layer_lets_the_target_read_the_memory(student, rng):
    """The cross-attention gets the target's tensor as query and the memory, as it came, as key and as value."""
    for order, x, memory, _, calls, after in _routes(student, rng, masks=False):
        arguments = one_call(calls, "cross_attention", order)
        require(
            len(arguments) >= 3,
            f"{order}: cross_attention gets {len(arguments)} arguments, expected query, key, value and mask.",
        )
        query, key, value = arguments[:3]
        require_array(query, f"{order}: the query of cross_attention")
        require(
            query.shape == x.shape,
            f"{order}: the query of cross_attention has shape {query.shape}, expected that of the target, {x.shape}.",
        )
        for name, tensor in (("key", key), ("value", value)):
            expect(tensor, memory, f"the {name} that cross_attention gets, which is the memory as it came, {order},")
        for name, was, now in zip(("x", "memory"), (x, memory), after, strict=False):
            expect(now, was, f"{name} after the call, {order} (was it changed in place?)", tolerance=0)


@check(DECODER, points=2)
def decoder_layer_hands_each_mask_to_its_attention(student, rng):
    """target_mask reaches the self-attention and memory_mask the cross-attention, as they are, and either may be None."""
    for order, _, _, masks, calls, after in _routes(student, rng, masks=True):
        for name, mask in zip(ATTENTIONS, masks, strict=True):
            require_mask(one_call(calls, name, order), mask, order, name)
        for name, was, now in zip(("target_mask", "memory_mask"), masks, after[2:], strict=False):
            require(was is None or np.array_equal(was, now), f"{order}: {name} is another after the call.")


@check(DECODER, points=0.5)
def decoder_layer_has_three_norms_of_its_own(student, rng):
    """Its state is that of its three sub-layers and of norm1, norm2 and norm3, under these names; nothing is shared."""
    d_model = distinct_sizes(rng, 1)[0]
    require_norms(student, DECODER, _linear(rng, d_model, "layer")[1], d_model, 3)


def _thirds(student, rng, norm_first: bool, rate: float, mode: str):
    """What the thirds add to the path, and what they would add without dropout, found without knowing the norm."""
    batch, target, source, d_model = 8, 9, 5, 12
    pairs, probes = _linear(rng, d_model, silent=2)
    x, memory = anchored(rng, batch, target, d_model), normal(rng, batch, source, d_model, dtype=np.float64)
    state = norm_state(rng, d_model, 3)
    order = ORDERS[norm_first][1]
    got, calls = student.run(
        DECODER,
        x,
        memory,
        init=(*probes, d_model, rate, norm_first),
        state=state,
        mode=mode,
        seed=int(rng.integers(2**31)),
        want=("output", "calls"),
    )
    require_array(got, f"the output of {DECODER}")
    require(got.shape == x.shape, f"{order}: the output has shape {got.shape} for x {x.shape}.")
    seen = [one_call(calls, name, order)[0] for name in SUBLAYERS]
    for name, tokens in zip(SUBLAYERS, seen, strict=True):
        require_array(tokens, f"{order}: what {name} gets")
        require(tokens.shape == x.shape, f"{order}: {name} gets shape {tokens.shape}, expected {x.shape}.")
    for tensor in one_call(calls, "cross_attention", order)[1:3]:
        if np.shape(tensor) == memory.shape:  # which tensor it is, another check asks
            require(
                tensor.all(), f"{order}, dropout={rate:g}: cross_attention reads zeros; the memory is never dropped."
            )
    whole = [apply(pair, tokens) for pair, tokens in zip(pairs, seen, strict=True)]
    if norm_first:
        path = [x, *(before_norm(seen[i], state, i + 1, x[..., :2]) for i in (1, 2)), got]
        added = [behind - ahead for ahead, behind in pairwise(path)]
    else:
        ahead, behind = [x, *seen[1:]], [*seen[1:], got]
        added = [
            before_norm(b, state, i + 1, a[..., :2]) - a for i, (a, b) in enumerate(zip(ahead, behind, strict=True))
        ]
    return added, whole


@check(DECODER, points=1)
def decoder_layer_drops_what_its_sublayers_return(student, rng):
    """In training mode dropout acts on each sub-layer's result before the addition, drawn anew, and else on nothing."""
    for norm_first, order in ORDERS:
        rate = float(rng.uniform(0.3, 0.5))
        added, whole = _thirds(student, rng, norm_first, rate, "train")
        patterns = [
            require_dropped(a, w, rate, order, f"the result of {name}")
            for a, w, name in zip(added, whole, SUBLAYERS, strict=True)
        ]
        for i, j in ((0, 1), (0, 2), (1, 2)):
            same = (patterns[i] == patterns[j])[..., 2:].all()
            names = f"{SUBLAYERS[i]} and {SUBLAYERS[j]}"
            require(not same, f"{order}: {names} lose the same entries; dropout is drawn anew for each.")
        for mode, probability in (("eval", 0.5), ("train", 0.0)):
            added, whole = _thirds(student, rng, norm_first, probability, mode)
            for a, w, name in zip(added, whole, SUBLAYERS, strict=True):
                if not np.allclose(a, w, atol=1e-3):
                    raise CheckFailed(
                        f"{order}, dropout={probability:g}, {mode} mode: what is added to the residual path is not the result "
                        f"of {name}: nothing is to be dropped here."
                    )


@check(DECODER, points=0.5)
def decoder_layer_trains_everything(student, rng):
    """Gradients reach x, the memory, the three norms and the sub-layers; float64 is kept; each call sees its own inputs."""
    for norm_first, order in ORDERS:
        for dtype in (np.float32, np.float64):
            batch, target, source, d_model = _sizes(rng)
            attentions = [normal(rng, 3, d_model, d_model, scale=d_model**-0.5) for _ in ATTENTIONS]
            probes = [Probe("attention", name, *arrays) for name, arrays in zip(ATTENTIONS, attentions, strict=True)]
            inside = maps(rng, d_model)
            x, other = (normal(rng, batch, target, d_model, dtype=dtype) for _ in range(2))
            memory, other_memory = (normal(rng, batch, source, d_model, dtype=dtype) for _ in range(2))
            state = norm_state(rng, d_model, 3)
            init = (*probes, Probe("layer", "feed_forward", *inside), d_model, 0.0, norm_first)
            got, then, inputs, parameters = student.run(
                DECODER,
                x,
                memory,
                init=init,
                state=state,
                mode="train",
                then=(other, other_memory),
                want=("output", "then", "input_grads", "parameter_grads"),
            )
            require_array(got, f"the output of {DECODER}")
            require_dtype(got, dtype, "x and memory", "an output")
            alone = student.run(DECODER, other, other_memory, init=init, state=state)
            require_array(alone, f"the output of {DECODER}")
            expect(then, alone, f"the output of a later call, {order}, compared with that of a new layer,")

            def pytorchs(x, memory, weight, bias, q1, k1, v1, q2, k2, v2, *norms, norm_first=norm_first, width=d_model):
                def attention(query, read, q, k, v):
                    return F.linear(query, q) + (F.linear(read, k) + F.linear(read, v)).mean(-2, keepdim=True)

                steps = (
                    lambda t: attention(t, t, q1, k1, v1),
                    lambda t: attention(t, memory, q2, k2, v2),
                    lambda t: F.linear(t, weight, bias),
                )
                for place, step in enumerate(steps):
                    gamma, beta = norms[2 * place : 2 * place + 2]
                    if norm_first:
                        x = x + step(F.layer_norm(x, (width,), gamma, beta))
                    else:
                        x = F.layer_norm(x + step(x), (width,), gamma, beta)
                return x

            wanted = gradients(pytorchs, x, memory, *inside, *attentions[0], *attentions[1], *state.values())
            for name, grad, want in zip(("x", "memory"), inputs, wanted, strict=False):
                require(grad is not None, f"{order}: no gradient reaches {name}.")
                expect(grad, want, f"the gradient of {name}, {order},", tolerance=1e-3)
            names = ["feed_forward.weight", "feed_forward.bias", *state]
            for name, want in zip(names, wanted[2:4] + wanted[10:], strict=True):
                require(parameters.get(name) is not None, f"{order}: no gradient reaches {name}.")
                expect(parameters[name], want, f"the gradient of {name}, {order},", tolerance=1e-3)
