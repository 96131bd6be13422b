"""Hidden checks of chapter 8. Means are taken row by row in NumPy; encoder and classifier are run with probes.

The classifier's wiring and its form are told apart from its pooling, which the learner's own piece does: where a check
isn't about padding, none is there, so that a slip of the pooling is not paid for twice.
"""

import numpy as np
import torch.nn.functional as F

from autograder.compare import expect, require, require_array
from autograder.oracles import any_mask, distinct_sizes, gradients, normal, require_dtype
from autograder.registry import check
from autograder.student import Probe, StudentError
from autograder.weights import require_accuracy
from autograder.wiring import apply, maps
from transformer_lab import weights

# --------------------------------------------------------------------------------------------------- masked_mean_pool

POOL = "masked_mean_pool"


def mean_of_real(hidden, mask) -> np.ndarray:
    """The mean of each row's real tokens, in float64."""
    return np.stack([np.asarray(row, np.float64)[real].mean(axis=0) for row, real in zip(hidden, mask, strict=True)])


def _padded_behind(rng, batch: int, length: int) -> np.ndarray:
    """A mask of rows of different lengths with the padding behind; the longest is full, the shortest has one token."""
    lengths = rng.permutation(np.append(rng.integers(1, length, size=batch - 2), (1, length)))
    return np.arange(length) < lengths[:, None]


def _require_pooled(student, hidden, mask, kind: str) -> None:
    what = f"{POOL} for hidden {hidden.shape}, {kind}"
    expect(student.run(POOL, hidden, mask), mean_of_real(hidden, mask), what)


@check(POOL, points=1)
def pool_is_the_mean_over_the_tokens(student, rng):
    """Without padding it is the mean over all tokens of a row, for each feature and each row by itself."""
    for _ in range(3):
        batch, length, width = distinct_sizes(rng, 3, 3)
        _require_pooled(student, normal(rng, batch, length, width), np.ones((batch, length), bool), "without padding")


@check(POOL, points=1)
def pool_leaves_padding_out(student, rng):
    """Padding behind the tokens is neither added nor counted, and each row has a count of its own."""
    for number in range(3):
        batch, length, width = distinct_sizes(rng, 3, 3)
        mask = _padded_behind(rng, batch, length)
        if number == 0:  # the longest row has padding too
            mask = np.concatenate([mask, np.zeros((batch, 1), bool)], axis=1)
        _require_pooled(student, normal(rng, *mask.shape, width), mask, "padding behind the tokens")


@check(POOL, points=1)
def pool_finds_the_real_tokens_anywhere(student, rng):
    """Padding may stand before the tokens or between them, and whatever finite numbers stand there have no influence."""
    batch, length, width = distinct_sizes(rng, 3, 4)
    before = _padded_behind(rng, batch, length)[:, ::-1].copy()
    _require_pooled(student, normal(rng, batch, length, width), before, "padding before the tokens")
    for size in (1.0, 1e6, 1e30):
        batch, length, width = distinct_sizes(rng, 3, 4)
        mask = any_mask(rng, batch, length)
        hidden = normal(rng, batch, length, width)
        hidden[~mask] *= np.float32(size)
        kind = "padding between the tokens" + (f" with hidden states of the size of {size:g} there" if size > 1 else "")
        _require_pooled(student, hidden, mask, kind)


@check(POOL, points=1)
def pool_sends_gradients_to_real_tokens_alone(student, rng):
    """Differentiated, it reaches every number of every real token and not one number of padding."""
    for place in ("behind", "anywhere"):
        batch, length, width = distinct_sizes(rng, 3, 3)
        mask = _padded_behind(rng, batch, length) if place == "behind" else any_mask(rng, batch, length)
        hidden = normal(rng, batch, length, width)
        got, grads = student.run(POOL, hidden, mask, want=("output", "input_grads"))
        require_array(got, f"the result of {POOL}")
        grad = grads[0]
        require(grad is not None, f"No gradient comes back through {POOL}: is something detached?")
        require(grad.shape == hidden.shape and np.isfinite(grad).all(), f"The gradient of {POOL} is not finite.")
        require(not grad[~mask].any(), f"{POOL}: a gradient reaches padding ({place}), so padding has an influence.")
        require(np.abs(grad[mask]).min() > 1e-6, f"{POOL}: no gradient reaches a real token (padding {place}).")


@check(POOL, points=1)
def pool_gives_one_vector_for_each_row(student, rng):
    """The result is (B, D), also where sizes are equal or 1, in the dtype of hidden; inputs stay as they are."""
    batch, length, width = distinct_sizes(rng, 3, 3)
    for shape in (
        (batch, length, width),
        (1, length, width),
        (batch, 1, width),
        (batch, length, 1),
        (length, length, length),
        (1, 1, 1),
    ):
        hidden = normal(rng, *shape)
        mask = any_mask(rng, *shape[:2]) if shape[1] > 1 else np.ones(shape[:2], bool)
        got, after = student.run(POOL, hidden, mask, want=("output", "inputs"))
        what = f"{POOL} for hidden {shape}"
        _require_form(got, (shape[0], shape[2]), "(B, D)", what)
        require(np.array_equal(after[0], hidden), f"{what}: hidden is another after the call; was it changed in place?")
        require(np.array_equal(after[1], mask), f"{what}: the mask is another after the call.")
    hidden = normal(rng, batch, length, width, dtype=np.float64)
    try:
        got = student.run(POOL, hidden, any_mask(rng, batch, length))
    except StudentError as error:
        # Weights in float32 meet hidden states in float64: PyTorch says so at once, and so do the visible tests.
        if error.type_name != "RuntimeError" or ("dtype" not in error.message and "scalar type" not in error.message):
            raise
    else:
        _require_form(got, (batch, width), "(B, D)", f"{POOL} for hidden in float64")
        require_dtype(got, np.float64, "hidden states", "a result")


def _require_form(got, shape: tuple[int, ...], axes: str, what: str) -> None:
    require_array(got, what)
    require(got.shape == shape, f"{what}: shape {got.shape}, expected {axes} = {shape}.")
    require(got.dtype.kind == "f", f"{what}: dtype {got.dtype}, expected floating-point numbers.")


# ------------------------------------------------------------------------------------------------------------ Encoder

ENCODER = "Encoder"


def _mix(pair, x, mask) -> np.ndarray:
    """What a mixing probe returns, in float64."""
    w, v = (np.asarray(array, np.float64) for array in pair)
    x = np.asarray(x, np.float64)
    everything = np.ones((len(x), 1, x.shape[1], x.shape[1]))
    rows = (everything if mask is None else np.broadcast_to(mask, everything.shape).astype(np.float64))[:, 0]
    return x @ w.T + rows @ (x @ v.T) / np.maximum(rows.sum(-1, keepdims=True), 1)


def _mixers(rng, count: int, d_model: int):
    """``count`` layers that let tokens exchange what they know, no two alike: their maps, and the probes."""
    pairs = [tuple(normal(rng, d_model, d_model, scale=d_model**-0.5) for _ in "wv") for _ in range(count)]
    return pairs, [Probe("mixing", f"layer {i}", *pair) for i, pair in enumerate(pairs)]


@check(ENCODER, points=1)
def encoder_runs_its_layers_in_order(student, rng):
    """x goes through the layers, one or many, in the order of the list, each with what the one before returned."""
    for count in (1, 2, 3, 5):
        batch, length, d_model = distinct_sizes(rng, 3, 3)
        pairs, probes = _mixers(rng, count, d_model)
        x = normal(rng, batch, length, d_model)
        mask = any_mask(rng, batch, 1, 1, length)
        got = student.run(ENCODER, x, mask, init=(probes,))
        want = x
        for pair in pairs:
            want = _mix(pair, want, mask)
        layers = "one layer" if count == 1 else f"{count} layers"
        what = f"the output of an {ENCODER} of {layers} for x {x.shape}"
        expect(got, want, what, tolerance=3e-4)


@check(ENCODER, points=1)
def encoder_hands_the_mask_to_every_layer(student, rng):
    """Every layer is called once, with a tensor and the mask as it is; without a mask it gets none; x and mask stay."""
    for kind in ("of keys", "of pairs", "none"):
        batch, length, d_model = distinct_sizes(rng, 3, 3)
        count = int(rng.integers(2, 5))
        probes = _mixers(rng, count, d_model)[1]
        x = normal(rng, batch, length, d_model)
        mask = {
            "of keys": any_mask(rng, batch, 1, 1, length),
            "of pairs": any_mask(rng, batch, 1, length, length),
            "none": None,
        }[kind]
        given = () if mask is None else (mask,)
        calls, after = student.run(
            ENCODER, x, *given, init=(probes, Probe("identity", "norm")), want=("calls", "inputs")
        )
        for place, probe in enumerate(probes):
            name = f"layer {place} of {count}"
            require(len(calls[probe.name]) > 0, f"{ENCODER}: {name} is never called.")
            require(
                len(calls[probe.name]) == 1,
                f"{ENCODER}: {name} is called {len(calls[probe.name])} times, expected once.",
            )
            arguments = calls[probe.name][0]
            require(
                len(arguments) <= 2,
                f"{ENCODER}: {name} gets {len(arguments)} arguments, expected a tensor and the mask.",
            )
            got = arguments[1] if len(arguments) > 1 else None
            if mask is None:
                require(
                    got is None, f"{ENCODER}: without a mask {name} must get none, but it got a {type(got).__name__}."
                )
            else:
                require(got is not None, f"{ENCODER}: no mask reaches {name}.")
                expect(got, mask, f"the mask that {name} gets")
        require(np.array_equal(after[0], x), f"{ENCODER}: x is another after the call; was it changed in place?")
        require(mask is None or np.array_equal(after[1], mask), f"{ENCODER}: the mask is another after the call.")


@check(ENCODER, points=1)
def encoder_norms_once_at_the_end(student, rng):
    """A norm is called once, with one tensor, behind all layers: what it returns is the result."""
    for count in (1, 3):
        batch, length, d_model = distinct_sizes(rng, 3, 3)
        probes = [Probe("linear", f"layer {i}", *maps(rng, d_model)) for i in range(count)]
        last = maps(rng, d_model)
        x, mask = normal(rng, batch, length, d_model), any_mask(rng, batch, 1, 1, length)
        init = (probes, Probe("linear", "norm", *last))
        got, calls = student.run(ENCODER, x, mask, init=init, want=("output", "calls"))
        times = len(calls["norm"])
        require(times > 0, f"{ENCODER}: the norm that it was given is never called.")
        require(
            times == 1, f"{ENCODER} of {count} layers: the norm is called {times} times, expected once, at the end."
        )
        arguments = calls["norm"][0]
        require(len(arguments) == 1, f"{ENCODER}: the norm gets {len(arguments)} arguments, expected a tensor.")
        require_array(arguments[0], "what the norm gets")
        shape = arguments[0].shape
        require(shape == x.shape, f"{ENCODER}: the norm gets shape {shape} for x {x.shape}, expected the same.")
        # Which layers come before it, and in which order, other checks ask.
        expect(got, apply(last, arguments[0]), f"the output of {ENCODER} with a norm, which is what the norm returns,")


@check(ENCODER, points=1)
def encoder_keeps_and_trains_the_layers_that_it_was_given(student, rng):
    """Its state is that of layers.0, layers.1, … and norm; one layer given twice is shared; everything is trained."""
    batch, length, d_model = distinct_sizes(rng, 3, 3)
    first, second, last = (maps(rng, d_model) for _ in range(3))
    one, two = Probe("layer", "one", *first), Probe("layer", "two", *second)
    init = ([one, two, two], Probe("layer", "norm", *last))
    own = [f"{name}.{part}" for name in ("layers.0", "layers.1", "layers.2", "norm") for part in ("weight", "bias")]
    names, shapes = student.run(ENCODER, init=init, want=("state_names", "parameter_shapes"))
    missing = sorted(set(own) - set(names))
    require(not missing, f"The state of {ENCODER} has no {', '.join(missing)}; it has {', '.join(names) or 'nothing'}.")
    extra = sorted((set(names) | set(shapes)) - set(own))
    require(not extra, f"The state of {ENCODER} also has {', '.join(extra)}.")
    require(
        not any(name.startswith("layers.2.") for name in shapes),
        f"{ENCODER}: a layer that stands twice in the list has two sets of parameters; the layers are used, not copied.",
    )
    frozen = sorted(name for name in own if name not in shapes and not name.startswith("layers.2."))
    require(not frozen, f"{', '.join(frozen)} is no trainable parameter of {ENCODER}.")
    alone = student.run(ENCODER, init=([two],), want="state_names")
    require(
        sorted(alone) == ["layers.0.bias", "layers.0.weight"],
        f"The state of an {ENCODER} of one layer and no norm holds that layer's parameters, but it has {', '.join(alone)}.",
    )

    def pytorchs(x, w1, b1, w2, b2, w3, b3):
        x = F.linear(F.linear(F.linear(x, w1, b1), w2, b2), w2, b2)
        return F.linear(x, w3, b3)

    for dtype in (np.float32, np.float64):
        x, other = normal(rng, batch, length, d_model, dtype=dtype), normal(rng, 1, 2, d_model, dtype=dtype)
        mask, other_mask = any_mask(rng, batch, 1, 1, length), any_mask(rng, 1, 1, 1, 2)
        got, then, inputs, parameters = student.run(
            ENCODER,
            x,
            mask,
            init=init,
            mode="train",
            then=(other, other_mask),
            want=("output", "then", "input_grads", "parameter_grads"),
        )
        require_array(got, f"the output of {ENCODER}")
        require_dtype(got, dtype, "x", "an output")
        later = student.run(ENCODER, other, other_mask, init=init)
        require_array(later, f"the output of {ENCODER}")
        expect(then, later, "the output of a later call, compared with that of a new encoder,")
        wanted = gradients(pytorchs, x, *first, *second, *last)
        require(inputs[0] is not None, f"{ENCODER}: no gradient reaches x.")
        expect(inputs[0], wanted[0], "the gradient of x", tolerance=1e-3)
        trained = [name for name in own if not name.startswith("layers.2.")]
        for name, want in zip(trained, wanted[1:], strict=True):
            require(parameters.get(name) is not None, f"{ENCODER}: no gradient reaches {name}.")
            expect(parameters[name], want, f"the gradient of {name}", tolerance=1e-3)


# ------------------------------------------------------------------------------------------------- SequenceClassifier

CLASSIFIER = "SequenceClassifier"
LOGITS = "the logits"


class _Case:
    """A classifier around probes, and what it should give.

    ``kind`` is the encoder's probe: a map of each token by itself (``"layer"``), or tokens that read each other as far as
    the mask allows (``"mixing"``).
    """

    def __init__(self, student, rng, kind: str = "layer", dtype=np.float32):
        self.student, self.kind, self.dtype = student, kind, dtype
        self.batch, self.length, self.d_model, self.classes, self.vocabulary = distinct_sizes(rng, 5, 3, 12)
        self.table = normal(rng, self.vocabulary, self.d_model, dtype=dtype)
        scale = self.d_model**-0.5
        mixing = [normal(rng, self.d_model, self.d_model, scale=scale) for _ in "wv"]
        self.maps = maps(rng, self.d_model) if kind == "layer" else mixing
        self.head = (normal(rng, self.classes, self.d_model, scale=2 * scale), normal(rng, self.classes))
        probes = (Probe("embedding", "embed", self.table), Probe(kind, "encoder", *self.maps))
        self.init = (*probes, self.d_model, self.classes)
        self._names: list[str] | None = None

    def ids(self, rng) -> np.ndarray:
        """Ids from 1 on: 0 is left for padding."""
        return rng.integers(1, self.vocabulary, size=(self.batch, self.length))

    @property
    def names(self) -> list[str]:
        if self._names is None:
            self._names = self.student.run(CLASSIFIER, init=self.init, want="state_names")
        return self._names

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Values for embedding and head, as far as they are there: what they must be called, another check asks."""
        known = dict(zip(("head.weight", "head.bias"), self.head, strict=True)) | {"embed.weight": self.table}
        return {name: value.astype(self.dtype) for name, value in known.items() if name in self.names}

    def run(self, inputs, mask, **how):
        return self.student.run(CLASSIFIER, inputs, mask, init=self.init, state=self.state, **how)

    def logits(self, inputs, mask) -> np.ndarray:
        """Embedding, encoder, mean over the real tokens, head, in float64."""
        weight, bias = self._head()
        table = self.table.astype(np.float64)
        vectors = inputs[..., None] * table[0] if inputs.dtype.kind == "f" else table[inputs]
        hidden = apply(self.maps, vectors) if self.kind == "layer" else _mix(self.maps, vectors, mask[:, None, None])
        return mean_of_real(hidden, mask) @ weight.T.astype(np.float64) + bias

    def _head(self):
        """The head's weight and bias: those of ``state``, or what a head under other names begins with."""
        if "head.weight" in self.names:
            return self.head[0], self.head[1] if "head.bias" in self.names else 0.0
        initial = self.student.run(CLASSIFIER, init=self.init, want="initial_state")
        own = [value for name, value in initial.items() if not name.startswith(("embed.", "encoder."))]
        weights = [value for value in own if value.shape == (self.classes, self.d_model) and value.any()]
        require(
            len(weights) == 1, f"{CLASSIFIER} has no linear map from {self.d_model} features to {self.classes} classes."
        )
        biases = [value for value in own if value.shape == (self.classes,)]
        return weights[0], biases[0] if biases else 0.0


@check(CLASSIFIER, points=1)
def classifier_goes_from_inputs_to_logits(student, rng):
    """Without padding: embedding, encoder, mean over the tokens, linear head, and no softmax, for ids and for numbers."""
    for number in range(3):
        case = _Case(student, rng, "mixing" if number == 2 else "layer")
        inputs = normal(rng, case.batch, case.length) if number == 1 else case.ids(rng)
        mask = np.ones(inputs.shape, bool)
        got = case.run(inputs, mask)
        what = f"{LOGITS} for {'numbers' if number == 1 else 'ids'} {inputs.shape} without padding"
        want = case.logits(inputs, mask)
        if isinstance(got, np.ndarray) and got.shape == want.shape:
            for values, name in ((got, "softmax"), (np.exp(np.minimum(got, 1)), "logarithm of the softmax")):
                probabilities = (values >= 0).all() and np.allclose(values.sum(-1), 1, atol=1e-4)
                require(
                    not probabilities,
                    f"{what[:1].upper()}{what[1:]}: a {name} was taken; logits are what the head returns.",
                )
        expect(got, want, what, tolerance=3e-4)
        if number == 2:  # these parts know of no order, so the classifier doesn't either
            backwards = case.run(inputs[:, ::-1].copy(), mask)
            expect(backwards, want, f"{LOGITS} for the same tokens read backwards, with parts that know no order,")


@check(CLASSIFIER, points=1)
def classifier_averages_the_real_tokens(student, rng):
    """With padding behind, before and between the tokens, what the head gets is the mean over the real ones."""
    for number, place in enumerate(("behind", "before", "between")):
        case = _Case(student, rng)
        mask = any_mask(rng, case.batch, case.length)
        if place != "between":
            mask = _padded_behind(rng, case.batch, case.length)
            mask = mask[:, ::-1].copy() if place == "before" else mask
        inputs = normal(rng, *mask.shape) if number == 1 else case.ids(rng)
        inputs = np.where(mask, inputs, 0) if number == 0 else inputs  # elsewhere only the mask tells what is padding
        inputs = inputs.astype(np.float32) if number == 1 else inputs
        got = case.run(inputs, mask)
        what = f"{LOGITS} for inputs {inputs.shape} with padding {place} the tokens"
        expect(got, case.logits(inputs, mask), what, tolerance=3e-4)


@check(CLASSIFIER, points=1)
def classifier_hands_the_mask_to_the_encoder(student, rng):
    """The embedding gets the inputs and nothing else, the encoder a tensor and the mask as (B, 1, 1, L), each once."""
    for number in range(2):
        case = _Case(student, rng, "mixing")
        mask = any_mask(rng, case.batch, case.length) if number else _padded_behind(rng, case.batch, case.length)
        inputs = case.ids(rng)
        calls, after = student.run(CLASSIFIER, inputs, mask, init=case.init, want=("calls", "inputs"))
        for name in ("embed", "encoder"):
            require(len(calls[name]) > 0, f"{CLASSIFIER}: {name} is never called.")
            require(len(calls[name]) == 1, f"{CLASSIFIER}: {name} is called {len(calls[name])} times, expected once.")
        (embedded,), (encoded,) = calls["embed"], calls["encoder"]
        require(len(embedded) == 1, f"{CLASSIFIER}: embed gets {len(embedded)} arguments, expected the inputs alone.")
        require_array(embedded[0], "what embed gets")
        shape = embedded[0].shape
        require(shape == inputs.shape, f"{CLASSIFIER}: embed gets shape {shape} for inputs {inputs.shape}.")
        same = np.array_equal(embedded[0][mask], inputs[mask])  # what stands at padding is read by nobody
        require(same, f"{CLASSIFIER}: embed gets other inputs than came.")
        require(
            len(encoded) == 2, f"{CLASSIFIER}: encoder gets {len(encoded)} arguments, expected a tensor and the mask."
        )
        require(encoded[1] is not None, f"{CLASSIFIER}: no mask reaches the encoder.")
        expect(encoded[1], mask[:, None, None], "the mask that the encoder gets, (B, 1, 1, L),")
        require(np.array_equal(after[0], inputs), f"{CLASSIFIER}: the inputs are others after the call.")
        require(np.array_equal(after[1], mask), f"{CLASSIFIER}: the mask is another after the call.")


@check(CLASSIFIER, points=1)
def classifier_does_not_see_padding(student, rng):
    """More padding, other padding and other rows beside it change no logits of a row; no gradient reaches padding."""
    case = _Case(student, rng, "mixing")
    mask, inputs = _padded_behind(rng, case.batch, case.length), normal(rng, case.batch, case.length)
    got, grads = case.run(inputs, mask, want=("output", "input_grads"))
    _require_form(got, (case.batch, case.classes), "(B, num_classes)", f"{LOGITS} for inputs {inputs.shape}")
    require(np.ptp(got, axis=0).max() > 1e-3, "The logits of different rows are the same.")
    more = int(rng.integers(1, 5))
    longer = np.concatenate([inputs, normal(rng, case.batch, more)], axis=1)
    longer_mask = np.concatenate([mask, np.zeros((case.batch, more), bool)], axis=1)
    expect(
        case.run(longer, longer_mask), got, f"{LOGITS} with {more} more tokens of padding, held against those without,"
    )
    other = np.where(mask, inputs, normal(rng, *mask.shape, scale=30)).astype(np.float32)
    expect(case.run(other, mask), got, f"{LOGITS} with other numbers at the padding, held against the first,")
    for row in range(case.batch):
        own = mask[row]
        alone = case.run(inputs[row : row + 1, own], np.ones((1, own.sum()), bool))
        what = f"{LOGITS} of a row of {own.sum()} tokens alone, held against those in a batch with padding,"
        expect(alone, got[row : row + 1], what)
    require(grads[0] is not None, f"{CLASSIFIER}: no gradient comes back to the inputs.")
    require(np.abs(grads[0][~mask]).max() < 1e-6, f"{CLASSIFIER}: a gradient reaches padding, which has an influence.")


@check(CLASSIFIER, points=1)
def classifier_has_a_linear_head_and_the_parts_it_was_given(student, rng):
    """Its state is that of embed and encoder, as they were given, and of head: a weight (C, D) and a bias (C,)."""
    case = _Case(student, rng)
    shapes, names = student.run(CLASSIFIER, init=case.init, want=("parameter_shapes", "state_names"))
    width, classes = case.d_model, case.classes
    wanted = {
        "embed.weight": [case.vocabulary, width],
        "encoder.weight": [width, width],
        "encoder.bias": [width],
        "head.weight": [classes, width],
        "head.bias": [classes],
    }
    missing = sorted(set(wanted) - set(names))
    require(
        not missing, f"The state of {CLASSIFIER} has no {', '.join(missing)}; it has {', '.join(names) or 'nothing'}."
    )
    extra = sorted((set(names) | set(shapes)) - set(wanted))
    require(not extra, f"The state of {CLASSIFIER} also has {', '.join(extra)}.")
    for name, shape in wanted.items():
        require(name in shapes, f"{name} is no trainable parameter of {CLASSIFIER}.")
        require(shapes[name] == shape, f"{name} has shape {tuple(shapes[name])}, expected {tuple(shape)}.")
    initial = student.run(CLASSIFIER, init=case.init, want="initial_state")
    for name, array in (("embed.weight", case.table), ("encoder.weight", case.maps[0]), ("encoder.bias", case.maps[1])):
        expect(initial[name], array, f"{name} of a new {CLASSIFIER}, which is the given module's,", tolerance=0)
    require(initial["head.weight"].any(), f"The weight of a new head of {CLASSIFIER} is 0 everywhere.")


@check(CLASSIFIER, points=1)
def classifier_trains_everything(student, rng):
    """Gradients reach the head, the encoder and the embedding; float64 is kept; each call sees its own inputs."""
    for dtype in (np.float32, np.float64):
        case = _Case(student, rng, dtype=dtype)
        inputs, other = case.ids(rng), case.ids(rng)[:, :-1]
        mask, other_mask = np.ones(inputs.shape, bool), np.ones(other.shape, bool)
        got, then, grads = case.run(
            inputs, mask, mode="train", then=(other, other_mask), want=("output", "then", "parameter_grads")
        )
        _require_form(got, (case.batch, case.classes), "(B, num_classes)", f"{LOGITS} for inputs {inputs.shape}")
        require_dtype(got, dtype, "parameters", "logits")
        alone = case.run(other, other_mask)
        require_array(alone, LOGITS)
        expect(then, alone, f"{LOGITS} of a later call, compared with those of a new classifier,")

        def pytorchs(table, weight, bias, head, offset, inputs=inputs):
            return F.linear(F.linear(table[inputs], weight, bias).mean(1), head, offset)

        weight, bias = case._head()
        bias = np.zeros(case.classes) if isinstance(bias, float) else bias
        wanted = gradients(pytorchs, case.table, *case.maps, weight, bias)
        for name, want in zip(("embed.weight", "encoder.weight", "encoder.bias"), wanted, strict=False):
            require(grads.get(name) is not None, f"{CLASSIFIER}: no gradient reaches {name}.")
            expect(grads[name], want, f"the gradient of {name}", tolerance=1e-3)
        for name, want in zip(("head.weight", "head.bias"), wanted[3:], strict=True):
            if name in case.names:
                require(grads.get(name) is not None, f"{CLASSIFIER}: no gradient reaches {name}.")
                expect(grads[name], want, f"the gradient of {name}", tolerance=1e-3)


# ------------------------------------------------------------------------------------------------- classifier_weights

WEIGHTS, KIND = "classifier_weights", "classifier"
FILE = weights.file_name(KIND)


@check(WEIGHTS, points=1, file=FILE)
def classifier_weights_are_right_three_times_of_four(student, rng):
    """With these weights the course's model is right on at least 75 % of a fresh test set."""
    require_accuracy(student, rng, KIND, 0.75)


@check(WEIGHTS, points=2, file=FILE)
def classifier_weights_are_right_19_times_of_20(student, rng):
    """With these weights the course's model is right on at least 95 % of a fresh test set."""
    require_accuracy(student, rng, KIND, 0.95)


@check(WEIGHTS, points=2, file=FILE)
def classifier_weights_are_right_99_times_of_100(student, rng):
    """With these weights the course's model is right on at least 99 % of a fresh test set."""
    require_accuracy(student, rng, KIND, 0.99)
