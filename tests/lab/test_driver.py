"""transformer_lab.driver: plain data in, plain data out, nothing pickled, and every run on its own."""

from __future__ import annotations

import base64
import contextlib
import math
import pickle
import struct
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from transformer_lab import driver, pieces
from transformer_lab.driver import Opaque, Probe, Same, Strided

from .write_notebooks import answer, code, write

# ------------------------------------------------------------------------------------------- plain data and bytes

DTYPES = st.sampled_from(
    [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64]
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
DATA = st.recursive(
    SCALARS | ARRAYS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@settings(max_examples=60)
@given(DATA)
def test_plain_data_comes_back_as_it_was(value):
    assert same(value, driver.loads(driver.dumps(value)))
    assert same(value, driver.decode(driver.encode(value)))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.0, 10**30, "\ud800", "'\\\n\x00", np.zeros((3, 0, 2))]
)
def test_values_that_text_formats_lose(value):
    back = driver.loads(driver.dumps(value))
    assert same(value, back)
    assert not isinstance(value, float) or math.copysign(1, value) == math.copysign(1, back)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.array(1.5),
        np.asfortranarray(np.eye(3)),
    ],
)
def test_arrays_of_any_layout(array):
    back = driver.loads(driver.dumps(array))
    assert back.shape == array.shape
    assert np.array_equal(back, array)
    back[...] = 0  # an array of its own


def test_tensors_come_back_as_arrays_and_tuples_as_lists():
    value = (torch.eye(2, requires_grad=True), torch.tensor(3), torch.ones(2, dtype=torch.bfloat16), np.float32(0.5))
    back = driver.loads(driver.dumps(value))
    assert [type(item) for item in back] == [np.ndarray, np.ndarray, np.ndarray, float]
    assert back[1].shape == ()
    assert back[2].dtype == np.float32
    assert np.array_equal(driver.loads(driver.dumps(torch.ones(2, 3).T.expand(4, 3, 2))), np.ones((4, 3, 2)))
    conjugate = torch.tensor([1 + 2j]).conj()
    assert driver.loads(driver.dumps(conjugate))[0] == 1 - 2j


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "builtins.object"),
        (nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (np.array([object()]), "numpy.ndarray"),
        (np.array(["a"]), "numpy.ndarray"),
        (1j, "builtins.complex"),
        (np.datetime64("2020-01-01"), "numpy.datetime64"),
        (torch.eye(2).to_sparse(), "torch.Tensor (torch.sparse_coo, torch.float32, cpu)"),
        (torch.empty(2, device="meta"), "torch.Tensor (torch.strided, torch.float32, meta)"),
        (len, "builtins.builtin_function_or_method"),
        ({1, 2}, "builtins.set"),
    ],
)
def test_what_is_no_plain_data_becomes_the_name_of_its_type(value, name):
    (back,) = driver.loads(driver.dumps([value]))
    assert isinstance(back, Opaque)
    assert back.type_name == name
    assert driver.loads(driver.dumps(back)).type_name == name


def test_probes_travel():
    back = driver.loads(driver.dumps(Probe("linear", "norm", np.eye(2), np.zeros(2))))
    assert (back.kind, back.name) == ("linear", "norm")
    assert np.array_equal(back.arrays[0], np.eye(2))
    with pytest.raises(ValueError, match=r"A probe is one of identity, linear, .*, squares, not 'evil'"):
        Probe("evil", "x")


class Bomb:
    """Unpickled, it would leave a trace."""

    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


NUMBERS = np.arange(4.0).tobytes()
THREE = NUMBERS[:24]
HOSTILE = {
    "object array": ["|O", [3], THREE],
    "pickle": pickle.dumps(Bomb()),
    "pickle for numbers": ["|O", [1], pickle.dumps(Bomb())],
    "text array": ["<U2", [3], THREE],
    "structured": ["<f4,<f4", [3], THREE],
    "structured, as a list": [[["a", "<f8"]], [3], THREE],
    "dates": ["<M8", [3], THREE],
    "no such type": ["<f7", [3], THREE],
    "the name of a type": ["float64", [3], THREE],
    "nothing": [],
    "no numbers": ["<f8", [3]],
    "more than numbers": ["<f8", [3], THREE, 5],
    "too short": ["<f8", [3], bytes(23)],
    "too long": ["<f8", [3], bytes(25)],
    "too large a shape": ["<f8", [3000000000000], THREE],
    "a shape that overflows": ["<f8", [10**30, 0], b""],
    "negative shape": ["<f8", [-3], THREE],
    "twice negative shape": ["<f8", [-3, -1], THREE],
    "broken shape": ["<f8", [3.0], THREE],
    "true for a size": ["<f8", [3, True], THREE],
    "number for a shape": ["<f8", 3, THREE],
    "code for a shape": ["<f8", "exit()", THREE],
    "text for numbers": ["<f8", [3], THREE.decode("latin1")],
    "list for numbers": ["<f8", [3], list(THREE)],
    "more numbers than there are": ["<f8", [5], None],
    "more numbers than can be": ["<f8", [10**12], None],
    "more numbers than can be counted": ["<f8", [10**30], None],
    "a place": ["<f8", [3], 0],
    "true for numbers": ["|i1", [1], True],
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_arrays_are_refused(content):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever NumPy says of it
        driver.decode({"array": content}, NUMBERS)
    assert not Bomb.exploded


def test_arrays_have_the_numbers_behind_the_text_one_after_the_other():
    asked = [{"array": ["|i1", [3], None]}, {"array": ["<f8", [2], None]}, {"array": ["<f8", [0, 7], None]}]
    numbers = b"\1\2\3" + np.arange(2.0).tobytes()
    found = driver.decode({"list": asked}, numbers)
    assert [list(array) for array in found] == [[1, 2, 3], [0, 1], []]
    assert all(array.flags.aligned and array.flags.writeable for array in found)


def test_many_arrays_cannot_have_the_same_numbers():
    """Else an answer of eight megabytes could fill the grader's memory."""
    with pytest.raises(ValueError, match="not plain data"):
        driver.decode({"list": [{"array": ["<f8", [3], None]}] * 2}, NUMBERS)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"pickle": "x"},
        {"array": 5},
        {"array": "text"},
        {"array": None},
        {"list": 5},
        {"dict": 5},
        {"dict": [5]},
        {"dict": [[1, 2, 3]]},
        {"list": [], "dict": []},
        {"probe": ["evil", "x", []]},
        {"probe": []},
        [1, 2],
        object(),
        {"list": [{"list": [{"opaque": "a", "x": 1}]}]},
    ],
)
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011
        driver.decode(value)


def framed(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("!I", len(text) if length is None else length) + text


def test_bytes_that_are_nothing_are_refused():
    deep = framed(b'{"list":[' * 20000 + b"1" + b"]}" * 20000)
    shorter, longer = framed(b'"text"', 3), framed(b"\xff", 2**32 - 1)
    for data in (b"", b"abc", b"hello", framed(b""), framed(b"{"), framed(b"\xff"), shorter, longer, deep):
        with pytest.raises(ValueError):  # noqa: PT011
            driver.loads(data)


@given(st.binary(max_size=40), st.integers(0, 50))
def test_of_any_bytes_comes_plain_data_or_a_refusal(data, length):
    for made in (data, framed(data, length), framed(b'{"array":["<f4",[2],null]}' + data, 26)):
        with contextlib.suppress(ValueError):
            driver.loads(made)


def test_a_request_can_go_as_text():
    request = {
        "piece": "f",
        "inputs": [np.eye(2)],
        "kwargs": {},
        "init": None,
        "state": None,
        "mode": "eval",
        "seed": 0,
    }
    asked = driver.dumps(request | {"want": ["output"]})
    text = driver.answer_in_base64({"f": torch.neg}, base64.b64encode(asked).decode())
    assert base64.b64decode(text) == driver.answer({"f": torch.neg}, asked)
    assert np.array_equal(driver.loads(base64.b64decode(text))["wanted"]["output"], -np.eye(2))


# --------------------------------------------------------------------------------------------------------- the run


def run(namespace, piece, *inputs, want="output", **request):
    """The decoded wanted value of one request, or the error as a dictionary, by way of bytes in both directions."""
    wants = [want] if isinstance(want, str) else list(want)
    whole = {
        "piece": piece,
        "inputs": list(inputs),
        "kwargs": {},
        "init": None,
        "state": None,
        "mode": "eval",
        "seed": 0,
        "want": wants,
    } | request
    response = driver.loads(driver.answer(namespace, driver.dumps(whole)))
    if "error" in response:
        return response["error"]
    wanted = response["wanted"]
    assert set(wanted) == set(wants)
    return wanted[want] if isinstance(want, str) else [wanted[name] for name in wants]


class Affine(nn.Module):
    def __init__(self, d_in, d_out, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(d_in, d_out)
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("offset", torch.ones(d_out))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, scale=1.0):
        return self.dropout(self.first(x) * scale + self.offset)


def test_functions_in_any_kind_of_namespace(rng):
    x = rng.normal(size=(2, 3))
    spaces = {"softmax": F.softmax}, types.SimpleNamespace(softmax=F.softmax), F, pieces.load("builtin")
    for space in spaces:
        assert np.allclose(run(space, "softmax", x, kwargs={"dim": 0}).sum(0), 1)


def test_module_with_state_and_keywords(rng):
    x, weight, bias = rng.normal(size=(4, 3)), rng.normal(size=(2, 3)), rng.normal(size=2)
    state = {"first.weight": weight, "first.bias": bias, "offset": np.full(2, 5.0)}
    output, names, shapes, after = run(
        {"Affine": Affine},
        "Affine",
        x,
        init=[3, 2],
        state=state,
        kwargs={"scale": 2.0},
        want=("output", "state_names", "parameter_shapes", "inputs"),
    )
    assert output.dtype == np.float64
    assert np.allclose(output, (x @ weight.T + bias) * 2 + 5)
    assert names == ["first.bias", "first.weight", "frozen", "offset"]
    assert shapes == {"first.weight": [2, 3], "first.bias": [2]}
    assert np.array_equal(after[0], x)


def test_the_module_takes_the_dtype_of_its_inputs(rng):
    x = rng.normal(size=(4, 3)).astype(np.float32)
    assert run({"A": Affine}, "A", x, init=[3, 2]).dtype == np.float32


def test_a_module_without_float_inputs_takes_the_dtype_of_its_state(rng):
    ids, table = np.array([[2, 0]]), rng.normal(size=(3, 4))
    for dtype in (np.float32, np.float64):
        got = run({"E": nn.Embedding}, "E", ids, init=[3, 4], state={"weight": table.astype(dtype)})
        assert got.dtype == dtype
        assert np.array_equal(got, table.astype(dtype)[ids])
    x = rng.normal(size=(1, 3)).astype(np.float32)
    assert run({"A": Affine}, "A", x, init=[3, 2], state={"first.bias": np.ones(2)}).dtype == np.float32


def test_a_module_without_float_inputs_keeps_what_it_has_in_another_dtype():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 4))
            self.register_buffer("shift", torch.zeros(4, dtype=torch.float64))

        def forward(self, ids):
            return self.weight[ids] + self.shift

    state = {"weight": np.ones((3, 4), dtype=np.float32)}
    assert run({"S": Shifted}, "S", np.array([2]), init=[], state=state).dtype == np.float64


def test_initial_state_is_that_before_the_given_one():
    state = {"first.weight": np.zeros((2, 3))}
    initial = run({"A": Affine}, "A", init=[3, 2], state=state, want="initial_state")
    assert set(initial) == {"first.bias", "first.weight", "frozen", "offset"}
    assert initial["first.weight"].any()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"w_q.weight": np.zeros((2, 3))}, "Affine has no w_q.weight"),
        ({"first.gain": np.zeros(2)}, "Affine has no first.gain"),
        ({"dropout": np.zeros(2)}, "Affine.dropout is no parameter"),
        ({"first.weight": np.zeros((3, 2))}, "Affine.first.weight has shape (2, 3), expected (3, 2)"),
    ],
)
def test_state_that_does_not_fit_is_named(state, message):
    assert run({"A": Affine}, "A", np.zeros((1, 3)), init=[3, 2], state=state)["message"] == message


def test_gradients_are_those_of_autograd(rng):
    q, k, v = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 6))
    mask = rng.random((3, 5)) < 0.7
    mask[:, 0] = True
    space = {"attend": lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask)}
    got = run(space, "attend", q, k, v, mask, want="input_grads")
    tensors = [torch.tensor(array, requires_grad=True) for array in (q, k, v)]
    output = F.scaled_dot_product_attention(*tensors, torch.tensor(mask))
    weights = torch.cos(torch.arange(1, 1 + output.numel(), dtype=torch.float64)).view(output.shape)
    assert np.array_equal(driver.cotangent(tuple(output.shape)), weights.numpy())
    want = torch.autograd.grad((output * weights).sum(), tensors)
    assert all(np.allclose(a, b) for a, b in zip(got[:3], want, strict=True))
    assert got[3] is None, "a boolean mask has no gradient"


def test_gradients_of_a_pair_are_those_of_its_first(rng):
    x = rng.normal(size=3)
    both = run({"f": lambda x: (2 * x, 100 * x)}, "f", x, want="input_grads")
    assert np.allclose(both[0], 2 * driver.cotangent((3,)))


def test_parameter_gradients(rng):
    x = rng.normal(size=(4, 3))
    grads = run({"A": Affine}, "A", x, init=[3, 2], want="parameter_grads")
    assert np.allclose(grads["first.weight"], driver.cotangent((4, 2)).T @ x)
    assert np.allclose(grads["first.bias"], driver.cotangent((4, 2)).sum(0))
    assert grads["frozen"] is None


@pytest.mark.parametrize(
    "piece",
    [lambda x: (2 * x).detach(), torch.no_grad()(lambda x: 2 * x), lambda x: torch.tensor(x.tolist()), lambda x: None],
)
def test_no_gradient_where_none_arrives(piece):
    assert run({"f": piece}, "f", np.ones(3), want="input_grads") == [None]


@pytest.mark.parametrize(
    ("piece", "tracked"),
    [
        (lambda n: torch.zeros(n), False),
        (lambda n: nn.Parameter(torch.zeros(n)), True),
        (lambda n: (torch.zeros(n, requires_grad=True) * 2, torch.zeros(n)), True),
        (lambda n: (torch.zeros(n), nn.Parameter(torch.zeros(n))), False),
        (lambda n: None, False),
    ],
)
def test_whether_a_result_is_part_of_a_graph(piece, tracked):
    assert run({"f": piece}, "f", 3, want="requires_grad") is tracked


def test_buffers_saved_or_not():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))
            self.register_buffer("saved", torch.zeros(2, 3))
            self.inner = nn.Module()
            self.inner.register_buffer("unsaved", torch.zeros(4), persistent=False)
            self.plain = torch.zeros(5)

    buffers, names = run({"T": Tables}, "T", init=[], want=("buffer_shapes", "state_names"))
    assert buffers == {"saved": [2, 3], "inner.unsaved": [4]}
    assert names == ["saved", "weight"]


def test_each_input_is_a_tensor_of_its_own(rng):
    x = rng.normal(size=3)
    copy = x.copy()
    after = run({"f": lambda a, b: a.zero_() + b}, "f", x, x, want=("output", "inputs"))
    assert np.array_equal(after[0], copy)
    assert np.array_equal(after[1][0], np.zeros(3))
    assert np.array_equal(after[1][1], copy)
    assert np.array_equal(x, copy)


def test_an_input_may_be_the_same_tensor_as_an_earlier_one(rng):
    x, y = rng.normal(size=3), rng.normal(size=3)
    space = {"f": lambda a, b, c, d: [torch.ones(1) * (a is c), b is d, (a.add_(1), c.clone())[1]]}
    together, apart, seen = run(space, "f", x, y, Same(0), y)
    assert (together[0], apart) == (1, False)
    assert np.allclose(seen, x + 1)
    grads = run({"f": lambda a, b: a * b}, "f", x, Same(0), want="input_grads")
    assert all(np.allclose(grad, 2 * x * driver.cotangent((3,))) for grad in grads)
    for wrong in ([Same(0)], [x, Same(1)], [x, Same(-1)]):
        assert run(space, "f", *wrong)["message"].startswith("there is no input")


def test_a_strided_input_lies_in_memory_the_other_way_round(rng):
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)
    space = {"f": lambda x: [x * 2, x.is_contiguous(), list(x.stride())]}
    twice, contiguous, strides = run(space, "f", Strided(x))
    assert (contiguous, strides) == (False, [1, 2, 6])
    assert np.array_equal(twice, x * 2)
    grads, after = run({"f": lambda x: x.transpose(0, 1)}, "f", Strided(x), want=("input_grads", "inputs"))
    assert np.allclose(grads[0], driver.cotangent((3, 2, 4)).swapaxes(0, 1))
    assert np.array_equal(after[0], x)


def test_a_second_call_with_other_inputs():
    class Hoarder(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x, y):
            self.seen.append(x)
            return self.seen[0] + y

    one, two, three, four = (np.full(2, float(i)) for i in range(1, 5))
    want = ("output", "again", "then")
    got = run({"H": Hoarder}, "H", one, two, init=[], then=[three, four], want=want)
    assert [array.tolist() for array in got] == [[3, 3], [3, 3], [5, 5]]
    kept = run({"f": lambda x, kept=[]: (kept.append(x), kept[0])[1].mul_(2)}, "f", one, then=[two], want=want)
    assert [array.tolist() for array in kept] == [[2, 2], [4, 4], [8, 8]], "each as it was when it came back"
    same_twice = run({"f": lambda x, y: x + y}, "f", one, two, then=[three, Same(0)], want="then")
    assert same_twice.tolist() == [6, 6]
    for request in ({"then": [one], "want": "output"}, {"want": "then"}):
        assert "both given and wanted" in run({"f": lambda x: x}, "f", one, **request)["message"]


def test_padding_rows_are_told_by_the_embeddings_name():
    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = nn.Embedding(5, 2)
            self.inner = nn.Sequential(nn.Embedding(5, 2, padding_idx=-1), nn.Linear(2, 2))

    assert run({"T": Tables}, "T", init=[], want="padding_ids") == {"plain": None, "inner.0": 4}
    assert run({"L": nn.Linear}, "L", init=[2, 3], want="padding_ids") == {}


def test_dropout_is_repeatable_by_seed_and_off_in_eval(rng):
    x = np.ones((20, 3))

    def thinned(**request):
        return run({"A": Affine}, "A", x, init=[3, 50, 0.5], **request)

    first, again, other, whole = thinned(mode="train"), thinned(mode="train"), thinned(mode="train", seed=1), thinned()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert 0.4 < (first == 0).mean() < 0.6
    assert whole.all()


def test_all_three_generators_are_seeded():
    import random

    space = {"f": lambda: [torch.rand(2), float(np.random.rand()), random.random()]}  # noqa: NPY002
    one, two, three = run(space, "f"), run(space, "f"), run(space, "f", seed=5)
    assert all(map(same, one, two))
    assert not any(map(same, one, three))


def test_results_that_are_no_tensors():
    assert isinstance(run({"f": object}, "f"), Opaque)
    assert run({"f": lambda: None}, "f") is None
    assert run({"f": lambda: (1, "a", 2.5, True)}, "f") == [1, "a", 2.5, True]
    array = run({"f": lambda: {"a": [np.zeros(2)]}}, "f")["a"][0]
    assert isinstance(array, Opaque), "a piece is asked for tensors, and an array is none"
    assert array.type_name == "numpy.ndarray"


# ---------------------------------------------------------------------------------------------------------- probes


class Residual(nn.Module):
    """x + sublayer(norm(x)) or norm(x + sublayer(x)); neither part belongs to it."""

    def __init__(self, norm_first=False):
        super().__init__()
        self.norm_first = norm_first

    def forward(self, x, sublayer, norm):
        return x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_residual_wrapper_around_two_probes(rng, norm_first):
    x = rng.normal(size=(2, 3, 4))
    a, b, c, d = rng.normal(size=(4, 4)), rng.normal(size=4), rng.normal(size=(4, 4)), rng.normal(size=4)
    output, calls, grads, after = run(
        {"Residual": Residual},
        "Residual",
        x,
        Probe("linear", "sublayer", a, b),
        Probe("linear", "norm", c, d),
        init=[norm_first],
        want=("output", "calls", "input_grads", "inputs"),
    )
    if norm_first:
        assert np.allclose(output, x + (x @ c.T + d) @ a.T + b)
        seen = {"sublayer": x @ c.T + d, "norm": x}
    else:
        assert np.allclose(output, (x + x @ a.T + b) @ c.T + d)
        seen = {"sublayer": x, "norm": x + x @ a.T + b}
    assert set(calls) == {"sublayer", "norm"}
    for name, value in seen.items():
        assert len(calls[name]) == 1, "called once"
        assert np.allclose(calls[name][0][0], value)
    through = np.eye(4) + a @ c if norm_first else c @ (np.eye(4) + a)
    assert np.allclose(grads[0], driver.cotangent(x.shape) @ through)
    assert grads[1:] == [None, None]
    assert len(after) == 1, "probes are no inputs to look at afterwards"


def test_probes_leave_no_trace_in_the_modules_state(rng):
    class Layer(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def forward(self, x):
            return self.part(x)

    x = rng.normal(size=(2, 3)).astype(np.float32)
    probe = Probe("linear", "part", rng.normal(size=(5, 3)), np.zeros(5))
    output, names, shapes = run({"L": Layer}, "L", x, init=[probe], want=("output", "state_names", "parameter_shapes"))
    assert (output.shape, output.dtype, names, shapes) == ((2, 5), np.float32, [], {})


def test_one_name_is_one_object_and_two_names_are_two(rng):
    space = {"f": lambda x, a, b: (a is b, b(a(x)), a(x, "more", key=x))}
    one, two = Probe("identity", "one"), Probe("identity", "two")
    (alike, _, _), calls = run(space, "f", np.ones(2), one, Probe("identity", "one"), want=("output", "calls"))
    assert alike
    assert [len(call) for call in calls["one"]] == [1, 1, 3]
    assert calls["one"][2][1] == "more"
    (alike, _, _), calls = run(space, "f", np.ones(2), one, two, want=("output", "calls"))
    assert not alike
    assert [len(calls["one"]), len(calls["two"])] == [2, 1]
    error = run(space, "f", np.ones(2), one, Probe("linear", "one", np.eye(2), np.zeros(2)))
    assert error["message"] == "two probes of different kinds are both called one"


def test_probes_inside_lists_and_as_keywords():
    space = {"f": lambda layers, last: last(sum(layer(torch.ones(1)) for layer in layers))}
    layers = [Probe("identity", "a"), Probe("identity", "b"), Probe("identity", "a")]
    output, calls = run(space, "f", layers, kwargs={"last": Probe("identity", "c")}, want=("output", "calls"))
    assert output.tolist() == [3.0]
    assert {name: len(made) for name, made in calls.items()} == {"a": 2, "b": 1, "c": 1}


def test_calls_keep_what_was_passed_at_that_time():
    def f(x, probe):
        probe(x)
        x += 1
        probe(x)
        return x

    calls = run({"f": f}, "f", np.zeros(2), Probe("identity", "p"), want="calls")
    assert [call[0].tolist() for call in calls["p"]] == [[0, 0], [1, 1]]


def test_logits_probe_is_a_step_function(rng):
    table = rng.normal(size=(2, 6, 5)).astype(np.float32)
    space = {"f": lambda step, ids: step(ids)}
    output = run(space, "f", Probe("logits", "step", table), np.zeros((2, 4), dtype=np.int64))
    assert np.array_equal(output, table[:, :4])


class Pair(nn.Module):
    """An attention that reads another sequence, and a sub-layer behind it."""

    def __init__(self, attention, sublayer):
        super().__init__()
        self.attention, self.sublayer = attention, sublayer

    def forward(self, x, memory, mask=None):
        return self.sublayer(self.attention(x, memory, memory, mask))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_attention_probe_reads_query_key_and_value_and_a_layer_probe_is_trained(rng, dtype):
    x, memory = rng.normal(size=(2, 3, 4)).astype(dtype), rng.normal(size=(2, 5, 4)).astype(dtype)
    w_q, w_k, w_v, weight = rng.normal(size=(4, 4, 4))
    bias, mask = rng.normal(size=4), rng.random((3, 5)) > 0.5
    output, calls, names, input_grads, grads = run(
        {"Pair": Pair},
        "Pair",
        x,
        memory,
        mask,
        init=[Probe("attention", "attention", w_q, w_k, w_v), Probe("layer", "sublayer", weight, bias)],
        want=("output", "calls", "state_names", "input_grads", "parameter_grads"),
    )
    read = x @ w_q.T + (memory @ (w_k + w_v).T).mean(1, keepdims=True)
    assert output.dtype == dtype
    assert np.allclose(output, read @ weight.T + bias, atol=1e-4)
    assert [a.shape for a in calls["attention"][0]] == [(2, 3, 4), (2, 5, 4), (2, 5, 4), (3, 5)]
    assert np.array_equal(calls["attention"][0][3], mask)
    assert names == ["sublayer.bias", "sublayer.weight"]
    up = driver.cotangent(x.shape)
    assert np.allclose(grads["sublayer.bias"], up.sum((0, 1)), atol=1e-4)
    assert np.allclose(grads["sublayer.weight"], np.einsum("bti,btj->ij", up, read), atol=1e-3)
    through = (up @ weight).sum(1, keepdims=True) @ (w_k + w_v) / 5
    assert np.allclose(input_grads[1], np.broadcast_to(through, memory.shape), atol=1e-4)


def test_an_attention_probe_wants_three_tensors():
    probe = Probe("attention", "attention", *np.ones((3, 2, 2)))
    answer = run({"f": lambda x, attention: attention(x, x)}, "f", np.ones((1, 2)), probe)
    assert answer["type"] == "TypeError"
    assert answer["message"] == "an attention was called without query, key and value"


class Reader(nn.Module):
    """Looks tokens up and lets them exchange what they know."""

    def __init__(self, table, mix):
        super().__init__()
        self.table, self.mix = table, mix

    def forward(self, inputs, *mask):
        return self.mix(self.table(inputs), *mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_embedding_probe_looks_ids_up_and_stretches_numbers_and_is_trained(rng, dtype):
    ids, weight = rng.integers(0, 5, size=(2, 3)), rng.normal(size=(5, 4)).astype(dtype)
    init = [Probe("embedding", "table", weight), Probe("identity", "mix")]
    output, calls, names, grads = run(
        {"R": Reader},
        "R",
        ids,
        init=init,
        state={"table.weight": weight},
        want=("output", "calls", "state_names", "parameter_grads"),
    )
    assert output.dtype == dtype
    assert np.array_equal(output, weight[ids])
    assert np.array_equal(calls["table"][0][0], ids)
    assert names == ["table.weight"]
    total = np.zeros((5, 4))
    np.add.at(total, ids, driver.cotangent((2, 3, 4)))
    assert np.allclose(grads["table.weight"], total, atol=1e-5)

    numbers = rng.normal(size=(2, 3)).astype(dtype)
    output, input_grads, grads = run(
        {"R": Reader}, "R", numbers, init=init, want=("output", "input_grads", "parameter_grads")
    )
    assert output.dtype == dtype
    assert np.allclose(output, numbers[..., None] * weight[0])
    up = driver.cotangent((2, 3, 4))
    assert np.allclose(input_grads[0], up @ weight[0], atol=1e-5)
    assert np.allclose(grads["table.weight"][0], np.einsum("bl,bld->d", numbers, up), atol=1e-5)
    assert not grads["table.weight"][1:].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mixing_probe_reads_what_the_mask_opens(rng, dtype):
    x, w, v = rng.normal(size=(2, 3, 4)).astype(dtype), rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    init = [Probe("identity", "table"), Probe("mixing", "mix", w, v)]
    keys = np.array([[1, 1, 0], [1, 1, 1]]) == 1
    rows = rng.random((2, 1, 3, 3)) > 0.5
    rows[0, 0, 1] = False
    for mask in (None, keys[:, None, None], rows):
        output = run({"R": Reader}, "R", x, *(() if mask is None else (mask,)), init=init)
        assert output.dtype == dtype
        given = np.ones((2, 3, 3)) if mask is None else np.broadcast_to(mask[:, 0], (2, 3, 3))
        for b in range(2):
            for i in range(3):
                opened = x[b][given[b, i] == 1]
                mean = opened.mean(0) if len(opened) else np.zeros(4)
                assert np.allclose(output[b, i], x[b, i] @ w.T + mean @ v.T, atol=1e-5)
    assert run({"R": Reader}, "R", x, None, init=init).shape == (2, 3, 4)


def test_a_probe_called_without_input_says_so():
    error = run({"f": lambda probe: probe()}, "f", Probe("identity", "p"))
    assert (error["type"], error["message"]) == ("TypeError", "a sub-layer was called without its input")


# ---------------------------------------------------------------------------------------------------------- errors


def test_an_exception_is_described_by_type_message_and_place(tmp_path):
    loaded = pieces.load(
        write(
            tmp_path / "a.ipynb",
            code("def inner(x):\n    return x @ x  # shapes"),
            answer("def outer(x):\n    return inner(x)", "outer"),
        )
    )
    error = run(loaded, "outer", np.ones((2, 3)))
    assert error["type"] == "RuntimeError"
    assert "shapes" in error["message"] or "mat" in error["message"]
    assert "\n" not in error["message"]
    assert error["where"] == "a.ipynb, cell 1, line 2: return x @ x  # shapes"


def test_the_place_is_the_learners_own_line_and_not_the_librarys(tmp_path):
    """Also where the course, or the learner's own folder, is called like one of our packages."""
    path = tmp_path / "autograder" / "transformer_lab" / "answers.py"
    path.parent.mkdir(parents=True)
    path.write_text("import torch\n\n\ndef f(x):\n    return torch.nn.functional.softmax(x, dim=7)  # here\n")
    error = run(pieces.load(path), "f", np.ones(2))
    assert error["type"] == "IndexError"
    assert error["where"] == "line 5 of f: return torch.nn.functional.softmax(x, dim=7)  # here"


class Rude(Exception):
    def __str__(self):
        raise ValueError("no message for you")


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ("error", "type_name", "message"),
    [
        (ValueError("one\ntwo"), "ValueError", "one"),
        (NotImplementedError(), "NotImplementedError", ""),
        (SystemExit(3), "SystemExit", "3"),
        (RecursionError("deep"), "RecursionError", "deep"),
        (Rude(), "Rude", ""),
    ],
)
def test_whatever_a_piece_raises_is_answered(error, type_name, message):
    got = run({"f": lambda: _raise(error)}, "f")
    assert (got["type"], got["message"]) == (type_name, message)


def test_an_interrupt_ends_the_request():
    with pytest.raises(KeyboardInterrupt):
        run({"f": lambda: _raise(KeyboardInterrupt())}, "f")


def test_a_result_that_cannot_be_written_down_is_an_error():
    loop: list = []
    loop.append(loop)
    assert run({"f": lambda: loop}, "f")["type"] == "RecursionError"


@pytest.mark.parametrize("space", [{}, types.SimpleNamespace(), types.ModuleType("empty")])
def test_a_missing_piece(space):
    assert run(space, "softmax") == {"type": "NameError", "message": "softmax is not defined", "where": ""}


def test_a_missing_piece_of_a_notebook_with_a_failing_cell(tmp_path):
    loaded = pieces.load(write(tmp_path / "a.ipynb", code("fine = 1"), answer("def softmax(:", "softmax")))
    error = run(loaded, "softmax")
    assert error["type"] == "NameError"
    assert "a cell failed: a.ipynb, cell 2 (softmax), line 1: SyntaxError" in error["message"]


def test_a_piece_that_is_no_function():
    assert run({"softmax": 5}, "softmax")["message"] == "softmax is a int, not something that can be called"


def test_a_class_that_is_no_module():
    error = run({"P": types.SimpleNamespace}, "P", init=[])
    assert error["type"] == "TypeError"
    assert error["message"] == "P makes a SimpleNamespace, expected a torch.nn.Module"


def test_a_function_has_no_parameters_to_look_at():
    error = run({"f": lambda: 1}, "f", want="state_names")
    assert error["message"] == "only a module, constructed with init, has state_names"


def test_what_may_be_wanted_is_documented():
    assert set(driver.WANTS) >= driver.MODULE_WANTS


@pytest.fixture
def rng():
    return np.random.default_rng(3)
