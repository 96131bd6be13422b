"""Run one piece on plain data and give plain data back.

The same function serves a namespace in this process and a learner's kernel in a sandbox: a request goes in as bytes, a
response comes out as bytes. Everything travels as JSON, an array as its type and its shape; behind the JSON follow the numbers
of all arrays as they lie in memory, in the same order. Nothing is pickled.

A request is a dictionary

    {"piece": "SelfAttention", "inputs": [x, mask], "kwargs": {}, "init": [8, 5], "state": {"w_q.weight": …},
     "mode": "eval", "want": ["output", "input_grads"], "seed": 0, "then": None}

and ``"method": "encode"`` where not the module itself is called but a method of it;

and a response either ``{"wanted": {"output": …, "input_grads": [...]}}`` or
``{"error": {"type": …, "message": …, "where": …}}``.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import inspect
import io
import json
import linecache
import math
import os
import random
import re
import struct
import sys
import traceback
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from transformer_lab import pieces

#: What ``want`` may ask for, and what comes back.
WANTS = {
    "output": "what the call returned",
    "again": "what the same call returns a second time",
    "then": "what a call with the request's `then`, other inputs, returns afterwards",
    "inputs": "the inputs as they are after the call",
    "input_grads": "d(Σ first result · cotangent)/d(input) for each input, None where no gradient arrives",
    "parameter_grads": "the same for each trainable parameter, by name",
    "requires_grad": "whether the first result is part of a graph, as it is where gradients could flow back from it",
    "parameter_shapes": "the shape of each trainable parameter, by name",
    "buffer_shapes": "the shape of each buffer, saved or not, by name",
    "padding_ids": "the padding_idx of each nn.Embedding, by name",
    "state_names": "the names in the module's state_dict",
    "initial_state": "the module's state_dict as it was constructed",
    "calls": "the arguments of every call of a probe, by the probe's name",
    "probe_grads": "the gradients that the parameters of each probe hold afterwards, by the probe's name and theirs",
    "probe_parameters": "the parameters of each probe as they are afterwards, in the same way",
    "graphs": "for each call of a `squares` probe, how many graphs of earlier ones were still there, by the probe's name",
    "torch_calls": "the torch functions and torch.nn layers used: [name, the learner's line, the functions around it]",
}


#: What a request may hold besides, and what it does.
SETTINGS = {
    "stand_ins": "names of helpers, which the piece then finds as `transformer_lab.builtin` has them; or, for a function of "
    "(seq_len, d_model), the table of which it is to return the first rows",
    "by_order": "whether parameters that have not the names of the state are set in the order of their creation",
}

#: What can be told of a module alone; all but the gradients without calling it.
MODULE_WANTS = {
    "parameter_grads",
    "parameter_shapes",
    "buffer_shapes",
    "padding_ids",
    "state_names",
    "initial_state",
}


class Opaque:
    """Stands for a value that is no plain data, by the name of its type."""

    def __init__(self, type_name: str):
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<{self.type_name}>"


class Probe:
    """A sub-layer or step function as data: one ``kind`` out of a small public set, with its arrays.

    ``identity``          returns its first argument
    ``linear``            ``arrays = (weight (D_out, D_in), bias (D_out,))``; returns ``first @ weight.T + bias``
    ``layer``             the same, but weight and bias are parameters of these names: they are saved and trained
    ``attention``         ``arrays = (w_q, w_k, w_v)``, each (D, D); called with query, key, value and more, returns
                          ``query @ w_q.T + mean over tokens of (key @ w_k.T + value @ w_v.T)``
    ``mixing``            ``arrays = (w, v)``, each (D, D); called with tokens (B, L, D) and a mask that broadcasts to
                          (B, 1, L, L), or none, returns ``tokens @ w.T + mean of (tokens @ v.T) over the open tokens``
    ``embedding``         ``arrays = (weight (V, D),)``, a parameter of this name; ids (…) look up its rows, and numbers (…)
                          multiply its first row, → (…, D)
    ``crossing``          ``arrays = (w, v, u)``, each (D, D); called with tokens (B, T, D), a memory (B, S, D) and a mask
                          for either, or none, returns what ``mixing`` does and the mean of ``memory @ u.T`` over the open
                          memory
    ``tokens``            ``arrays = (weight (V, D), positions (L, D))``; the weight is a parameter called
                          ``token.embedding.weight``; returns ``weight[ids] + positions[:T]`` for ids (B, T)
    ``logits``            ``arrays = (table (B, T, V),)``; a step function, returns ``table[:, :t]`` for ids (B, t)
    ``prefixes``          ``arrays = (table (R, N, V),)``; a step function that depends on all ids up to each place: for ids
                          (B, t) it returns ``table[row % R, Σ (place + 2) · id % N]``, the sum over the places so far
    ``network``           ``arrays = (w, v)`` or ``(w, v, idle)``, parameters called ``first`` (H, D), ``second`` (O, H) and
                          ``idle``, of any shape and used by nothing; for x (…, D) it returns ``tanh(x @ w.T) @ v.T``
    ``squares``           no arrays; called with a model and a part ``[x (…, D), y (…, O), real (…)]`` it returns the mean of
                          ``Σ (model(x) − y)²`` over the places that are real, and their number, a tensor without axes

    Every probe records the arguments of its calls. Two mentions of one ``name`` in a request are one object.
    """

    KINDS = (
        "identity",
        "linear",
        "layer",
        "attention",
        "mixing",
        "embedding",
        "crossing",
        "tokens",
        "logits",
        "prefixes",
        "network",
        "squares",
    )

    def __init__(self, kind: str, name: str, *arrays: np.ndarray):
        if kind not in self.KINDS:
            raise ValueError(f"A probe is one of {', '.join(self.KINDS)}, not {kind!r}.")
        self.kind, self.name, self.arrays = kind, name, arrays


class Same:
    """An input that is one tensor with the input number ``index`` before it, as x is in ``attention(x, x, x)``."""

    def __init__(self, index: int):
        self.index = index


class Strided:
    """An array that arrives as a tensor whose axes lie in memory the other way round, as after a transpose."""

    def __init__(self, array: np.ndarray):
        self.array = array


# --------------------------------------------------------------------------------------------- plain data and bytes


def encode(value: Any) -> Any:
    """``value`` as JSON has it, but for the numbers of arrays, which are bytes.

    Tensors become arrays; what is no plain data becomes Opaque.
    """
    if type(value) in _PLAIN or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return {"list": [encode(item) for item in value]}
    if isinstance(value, Tensor):
        try:
            dense = value.detach().cpu().resolve_conj().resolve_neg()
            array = (dense.float() if dense.dtype == torch.bfloat16 else dense).numpy()
        except (TypeError, RuntimeError):  # sparse, quantised, on no device: no array of numbers
            return {"opaque": f"torch.Tensor ({value.layout}, {value.dtype}, {value.device})"}
        return {"array": _plain_array(array)}
    if isinstance(value, np.ndarray):
        return {"array": _plain_array(value)} if value.dtype.kind in _KINDS else {"opaque": "numpy.ndarray"}
    if isinstance(value, np.generic) and isinstance(value.item(), (bool, int, float, str)):
        return value.item()
    if isinstance(value, dict):
        return {"dict": [[str(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, Probe):
        return {"probe": [value.kind, value.name, [encode(array) for array in value.arrays]]}
    if isinstance(value, Same):
        return {"same": value.index}
    if isinstance(value, Strided):
        return {"strided": encode(value.array)}
    if isinstance(value, Opaque):
        return {"opaque": value.type_name}
    return {"opaque": f"{type(value).__module__}.{type(value).__qualname__}"}


def decode(value: Any, numbers: bytes = b"") -> Any:
    """The inverse of :func:`encode`; tuples come back as lists, arrays as NumPy arrays. ValueError on anything else.

    An array that does not hold its numbers has the next of ``numbers``: so no array can have those of another, and a short
    text can't become a large one.
    """
    try:
        return _decode(value, io.BytesIO(numbers))
    except (TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError("not plain data") from error


def _decode(value: Any, numbers: io.BytesIO) -> Any:
    if type(value) in _PLAIN:  # and of no other class is what JSON gives
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        if kind == "array":
            return _array(content, numbers)
        if kind == "dict":
            return {str(key): _decode(item, numbers) for key, item in content}
        if kind == "list":
            return [_decode(item, numbers) for item in content]
        if kind == "probe":
            probe_kind, name, arrays = content
            return Probe(probe_kind, name, *[_decode(array, numbers) for array in arrays])
        if kind == "same" and isinstance(content, int):
            return Same(content)
        if kind == "strided":
            return Strided(_decode(content, numbers))
        if kind == "opaque":
            return Opaque(str(content))
    raise ValueError("not plain data")


#: What comes first: the length of the JSON, behind which the numbers of all arrays lie one after another.
_HEAD = struct.Struct("!I")


def dumps(value: Any) -> bytes:
    """``value`` as bytes: JSON, and behind it the numbers of its arrays."""
    numbers: list[bytes] = []
    text = json.dumps(encode(value), default=numbers.append).encode()  # which leaves null in their place
    return b"".join([_HEAD.pack(len(text)), text, *numbers])


def loads(data: bytes) -> Any:
    """The inverse of :func:`dumps`; ValueError for bytes that are nothing of the kind."""
    try:
        end = _HEAD.size + _HEAD.unpack_from(data)[0]
        value = json.loads(data[_HEAD.size : end])
    except (struct.error, RecursionError) as error:
        raise ValueError("not plain data") from error
    return decode(value, data[end:])


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """The fixed weights by which an output is summed before differentiating: cos(1), cos(2), … in the given shape."""
    return np.cos(np.arange(1.0, 1.0 + int(np.prod(shape)))).reshape(shape)


_KINDS = "biufc"

_PLAIN = {type(None), bool, int, float, str}


def _array(content: list, numbers: io.BytesIO) -> np.ndarray:
    """The inverse of :func:`_plain_array`; only when as many numbers are there as the shape says."""
    kind, shape, own = content
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("not plain data")
    dtype = _dtype(kind)
    length = math.prod(shape) * dtype.itemsize
    if own is None:
        own = numbers.read(length)
    if type(own) is not bytes or len(own) != length:
        raise ValueError("not plain data")
    return np.frombuffer(own, dtype).reshape(shape).copy()


@functools.lru_cache(maxsize=100)
def _dtype(kind: Any) -> np.dtype:
    if not (isinstance(kind, str) and re.fullmatch(r"[<>|][biufc][0-9]{1,2}", kind)):
        raise ValueError("not plain data")
    return np.dtype(kind)


def _plain_array(array: np.ndarray) -> list:
    """Type, shape and numbers. NumPy's ``.npy`` says the same, but its header, read as Python, takes most of the time."""
    return [array.dtype.str, list(array.shape), array.tobytes()]


# --------------------------------------------------------------------------------------------------------- the run


def answer(namespace: Any, request: bytes) -> bytes:
    """Run the request, made by :func:`dumps`, on ``namespace``, any object or dictionary of pieces; respond in the same way.

    An exception of the piece is part of the response, never raised.
    """
    try:
        question = loads(request)
        with _standing_in(namespace, question["piece"], question.get("stand_ins") or {}):
            return dumps({"wanted": _tensors_only(run(namespace, question))})
    except (Exception, SystemExit) as error:
        return dumps({"error": describe(error)})


def answer_in_base64(namespace: Any, request: str) -> str:
    """:func:`answer` for where only text can pass, as in Jupyter's messages."""
    return base64.b64encode(answer(namespace, base64.b64decode(request))).decode("ascii")


@torch.enable_grad()  # a learner's cell may have turned gradients off
def run(namespace: Any, request: dict) -> dict:
    """The wanted values of one request as live Python objects; raises what the piece raises."""
    piece = find(namespace, request["piece"])
    # The CPU's generator alone: torch.manual_seed also queues a call for every GPU, which takes milliseconds.
    torch.default_generator.manual_seed(request["seed"])
    random.seed(request["seed"])
    np.random.seed(request["seed"] % 2**32)  # noqa: NPY002 - learners may draw from the global generator

    wants = request["want"]
    if request["init"] is None and MODULE_WANTS & set(wants):
        raise ValueError(f"only a module, constructed with init, has {', '.join(sorted(MODULE_WANTS & set(wants)))}")
    probes: dict[str, _LiveProbe] = {}
    inputs = _live_inputs(request["inputs"], probes)
    if (request.get("then") is not None) != ("then" in wants):
        raise ValueError("other inputs are called with when then is both given and wanted")
    kwargs = {name: _live(value, probes) for name, value in request["kwargs"].items()}
    found: dict[str, Any] = {}

    module: Any = None
    names: dict[str, str] = {}
    if request["init"] is not None:
        module = piece(*[_live(value, probes) for value in request["init"]])
        if not isinstance(module, nn.Module):
            raise TypeError(f"{request['piece']} makes a {type(module).__name__}, expected a torch.nn.Module")
        if "initial_state" in wants:
            found["initial_state"] = {name: value.clone() for name, value in module.state_dict().items()}
        state = request["state"] or {}
        names = _names_by_order(module, state) if request.get("by_order") else {}
        state = {names.get(name, name): value for name, value in state.items() if names.get(name, name)}
        module = _prepare(module, state, request["mode"], inputs)
        piece = getattr(module, request["method"]) if request.get("method") else module

    differentiate = "input_grads" in wants or "parameter_grads" in wants
    if differentiate:
        for value in inputs:
            if isinstance(value, Tensor) and value.is_floating_point():
                value.requires_grad_(True)
    needs_call = set(wants) - (MODULE_WANTS - {"parameter_grads"})
    with _recording() if "torch_calls" in wants else contextlib.nullcontext() as recorder:
        output = piece(*inputs, **kwargs) if needs_call else None
    if differentiate:
        _backward(output)

    for want in wants:
        if want == "output":
            found[want] = _snapshot(output) if {"again", "then"} & set(wants) else output
        elif want == "again":
            found[want] = _snapshot(piece(*inputs, **kwargs))
        elif want == "then":
            found[want] = piece(*_live_inputs(request["then"], probes), **kwargs)
        elif want == "inputs":
            found[want] = [value for value in inputs if not isinstance(value, nn.Module)]
        elif want == "input_grads":
            found[want] = [value.grad if isinstance(value, Tensor) else None for value in inputs]
        elif want == "parameter_grads":
            asked = {own: name for name, own in names.items()}
            found[want] = {asked.get(n, n): p.grad for n, p in module.named_parameters()}
        elif want == "parameter_shapes":
            found[want] = {n: list(p.shape) for n, p in module.named_parameters() if p.requires_grad}
        elif want == "buffer_shapes":
            found[want] = {n: list(b.shape) for n, b in module.named_buffers()}
        elif want == "padding_ids":
            found[want] = {n: m.padding_idx for n, m in module.named_modules() if isinstance(m, nn.Embedding)}
        elif want == "requires_grad":
            first = _first(output)
            found[want] = isinstance(first, Tensor) and first.requires_grad
        elif want == "state_names":
            found[want] = sorted(module.state_dict())
        elif want == "calls":
            found[want] = {name: probe.calls for name, probe in probes.items()}
        elif want == "probe_grads":
            found[want] = {name: {n: p.grad for n, p in probe.named_parameters()} for name, probe in probes.items()}
        elif want == "probe_parameters":
            found[want] = {name: dict(probe.named_parameters()) for name, probe in probes.items()}
        elif want == "graphs":
            found[want] = {name: probe.graphs for name, probe in probes.items() if probe.kind == "squares"}
        elif want == "torch_calls":
            found[want] = recorder.calls if recorder else []
    return found


def find(namespace: Any, name: str) -> Any:
    """The piece called ``name`` in a dictionary or any object with attributes; NameError when it is not there."""
    try:
        piece = namespace[name] if isinstance(namespace, dict) else getattr(namespace, name)
    except (KeyError, AttributeError) as error:
        detail = str(error) if isinstance(error, AttributeError) and "; a cell failed" in str(error) else ""
        raise NameError(detail or f"{name} is not defined") from None
    if not callable(piece):
        raise TypeError(f"{name} is a {type(piece).__name__}, not something that can be called")
    return piece


def describe(error: BaseException) -> dict:
    """Type, message and place of an exception: the last line of the learner's own code that it passed through."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        where = _place(frame.filename, frame.lineno or 0, frame.name) or where
    try:
        message = str(error).strip().splitlines()
    except Exception:  # an exception class of the learner's own may have a broken __str__
        message = []
    return {"type": type(error).__name__, "message": message[0] if message else "", "where": where}


# ----------------------------------------------------------------------------------------------------------- parts


@contextlib.contextmanager
def _standing_in(namespace: Any, piece: str, stand_ins: dict[str, Any]):
    """For a while, the names of ``stand_ins`` are right helpers where ``piece`` looks for the namespace's own."""
    places = _globals_of(namespace, piece) if stand_ins else []
    before = []
    for name, table in stand_ins.items():
        right = _first_rows(table) if isinstance(table, np.ndarray) else getattr(_builtin(), name)
        own = _defined(namespace, name)
        for place in places:
            # A name of the module that is not the namespace's is none of the helpers that were judged.
            if place.get(name) is own:
                before.append((place, name, own))
                place[name] = right
    try:
        yield
    finally:
        for place, name, own in before:
            if own is None:
                place.pop(name, None)
            else:
                place[name] = own


def _globals_of(namespace: Any, piece: str) -> list[dict]:
    """Where the definition of ``piece`` looks up its names: the globals of its function, or of its class's methods."""
    found = _defined(namespace, piece)
    found = inspect.unwrap(getattr(found, "func", found)) if callable(found) else found
    classes = [c for c in found.__mro__ if not c.__module__.startswith("torch.")] if isinstance(found, type) else []
    functions = [found, *(value for owner in classes for value in vars(owner).values())]
    places = [getattr(inspect.unwrap(function), "__globals__", None) for function in functions if callable(function)]
    unique = {id(place): place for place in places if isinstance(place, dict) and place.get("__name__") != __name__}
    return list(unique.values())


def _defined(namespace: Any, name: str) -> Any:
    if isinstance(namespace, dict):
        return namespace.get(name)
    try:
        return getattr(namespace, name, None)
    except Exception:  # an object of the learner's own
        return None


def _builtin() -> Any:
    from transformer_lab import builtin

    return builtin


def _first_rows(table: np.ndarray) -> Any:
    def rows(seq_len: int, d_model: int) -> Tensor:
        if seq_len > len(table) or d_model != table.shape[1]:
            raise ValueError(f"there is no table of {seq_len} rows and width {d_model}")
        return torch.from_numpy(table[:seq_len].copy())

    return rows


class _Recorder(TorchFunctionMode):
    """Writes down each torch function that is called and each layer of torch.nn that runs, once for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list] = []

    def __torch_function__(self, function, classes, args=(), kwargs=None):
        self.note(_torch_name(function))
        return function(*args, **(kwargs or {}))

    def before_layer(self, layer: nn.Module, args: tuple) -> None:
        own = next((c for c in type(layer).__mro__ if c.__module__.startswith("torch.nn.modules.")), nn.Module)
        if own is not nn.Module:
            self.note(f"torch.nn.{own.__name__}")

    def note(self, name: str) -> None:
        place, around = "", []
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code is not run.__code__:
            if frame.f_code is _LiveProbe.forward.__code__:
                return  # a probe is not the learner's
            where = _place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            if where:
                place = place or where
                around.append(frame.f_code.co_qualname)
            frame = frame.f_back
        if len(self.calls) < _MAX_CALLS and [name, place, around] not in self.calls:
            self.calls.append([name, place, around])


_MAX_CALLS = 500


@contextlib.contextmanager
def _recording():
    recorder = _Recorder()
    hook = nn.modules.module.register_module_forward_pre_hook(recorder.before_layer)
    try:
        with recorder:
            yield recorder
    finally:
        hook.remove()


def _torch_name(function: Any) -> str:
    """The name by which one writes a torch function, as far as it has one: ``torch.nn.functional.softmax``."""
    name = resolve_name(function) or f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', '')}"
    if name.startswith("aten."):  # an operator with its overload: aten.softmax.int
        return "torch.ops." + ".".join(name.split(".")[:2])
    return name


class _LiveProbe(nn.Module):
    def __init__(self, probe: Probe):
        super().__init__()
        self.kind = probe.kind
        self.arrays = [torch.from_numpy(np.array(array)) for array in probe.arrays]
        self.calls: list[list] = []
        if probe.kind == "layer":
            self.weight, self.bias = (nn.Parameter(array) for array in self.arrays)
        elif probe.kind == "embedding":
            self.weight = nn.Parameter(self.arrays[0])
        elif probe.kind == "tokens":
            self.token = nn.Module()
            self.token.embedding = nn.Embedding.from_pretrained(self.arrays[0], freeze=False)
        elif probe.kind == "network":
            for name, array in zip(("first", "second", "idle"), self.arrays, strict=False):
                self.register_parameter(name, nn.Parameter(array))
        self.graphs: list[int] = []  # of `squares`
        self._saved: list[list[weakref.ref]] = []

    def forward(self, *args, **kwargs):
        self.calls.append([a.detach().clone() if isinstance(a, Tensor) else a for a in (*args, *kwargs.values())])
        if not args and not kwargs:
            raise TypeError("a sub-layer was called without its input")
        first = args[0] if args else next(iter(kwargs.values()))
        arrays = [self.weight, self.bias] if self.kind == "layer" else self.arrays
        if self.kind in ("linear", "layer"):
            weight, bias = (array.to(first.dtype) for array in arrays)
            return first @ weight.T + bias
        if self.kind == "attention":
            if len(args) + len(kwargs) < 3:
                raise TypeError("an attention was called without query, key and value")
            query, key, value = (*args, *kwargs.values())[:3]
            w_q, w_k, w_v = (array.to(first.dtype) for array in arrays)
            return query @ w_q.T + (key @ w_k.T + value @ w_v.T).mean(-2, keepdim=True)
        if self.kind == "mixing":
            w, v = (array.to(first.dtype) for array in arrays)
            mask = (*args, *kwargs.values(), None)[1]
            return first @ w.T + _mean_of_open(first @ v.T, mask)
        if self.kind == "embedding":
            return self.weight[0] * first.unsqueeze(-1) if first.is_floating_point() else self.weight[first]
        if self.kind == "crossing":
            w, v, u = (array.to(first.dtype) for array in arrays)
            memory, mask, memory_mask = (*args, *kwargs.values(), None, None, None)[1:4]
            if memory is None:
                raise TypeError("a decoder was called without its memory")
            read = _mean_of_open(first @ v.T, mask) + _mean_of_open(memory @ u.T, memory_mask, first.size(1))
            return first @ w.T + read
        if self.kind == "tokens":
            weight = self.get_parameter("token.embedding.weight")
            return weight[first] + arrays[1][: first.size(1)].to(weight.dtype)
        if self.kind == "logits":
            return self.arrays[0][:, : first.size(1)].clone()
        if self.kind == "prefixes":
            table, (rows, length) = arrays[0], first.shape
            number = (first * torch.arange(2, 2 + length)).cumsum(1) % table.size(1)
            return table[torch.arange(rows)[:, None] % table.size(0), number]
        if self.kind == "network":
            w, v = (getattr(self, name) for name in ("first", "second"))
            return torch.tanh(first @ w.T) @ v.T
        if self.kind == "squares":
            return self._squares(*args, **kwargs)
        return first

    def _squares(self, model: Any, part: Any) -> tuple[Tensor, Tensor]:
        """The loss of ``squares``; counts before how many earlier calls' graphs still hold what their gradients need."""
        x, y, real = part
        self.graphs.append(sum(any(held() is not None for held in saved) for saved in self._saved))
        saved: list[weakref.ref] = []

        def keep(tensor: Tensor) -> _Held:
            held = _Held(tensor)
            saved.append(weakref.ref(held))
            return held

        # PyTorch lets go of these objects when the graph has been differentiated, or when nobody has it any more.
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda held: held.tensor):
            each = (model(x) - y).square().sum(-1)
            mean = (each * real).sum() / real.sum()
        self._saved.append(saved)
        return mean, real.sum()


class _Held:
    """A tensor that a graph has saved for its gradients; detached, because a result's own graph would be a circle."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor.detach()


def _mean_of_open(values: Tensor, mask: Tensor | None, queries: int | None = None) -> Tensor:
    """values (B, L, D), mask broadcastable to (B, 1, queries, L) → for each row of the mask the mean of what it opens."""
    batch, length, _ = values.shape
    rows = length if queries is None else queries
    everything = torch.ones(batch, 1, rows, length, dtype=torch.bool, device=values.device)
    opened = (everything if mask is None else mask.expand_as(everything))[:, 0].to(values.dtype)
    return opened @ values / opened.sum(-1, keepdim=True).clamp(min=1)


def _live(value: Any, probes: dict[str, _LiveProbe]) -> Any:
    """Arrays become tensors of their own, probes become modules, everything else stays."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, Probe):
        live = probes.setdefault(value.name, _LiveProbe(value))
        if live.kind != value.kind:
            raise ValueError(f"two probes of different kinds are both called {value.name}")
        return live
    if isinstance(value, Strided):
        return torch.from_numpy(np.array(value.array, order="F"))
    if isinstance(value, list):
        return [_live(item, probes) for item in value]
    return value


def _live_inputs(values: list, probes: dict[str, _LiveProbe]) -> list:
    """The inputs of one call; where one is the ``Same`` as an earlier one, it is that very object."""
    live: list = []
    for value in values:
        if isinstance(value, Same) and not 0 <= value.index < len(live):
            raise ValueError(f"there is no input {value.index} before it to be the same as")
        live.append(live[value.index] if isinstance(value, Same) else _live(value, probes))
    return live


def _names_by_order(module: nn.Module, state: dict) -> dict[str, str]:
    """For each name of ``state`` that the module has not, the parameter that is set in its place; empty: none.

    Parameters that the state does not name stand for the missing names in the order in which they were created, if their
    shapes are the wanted ones. A missing name whose values are all 0 may be left out: a bias of 0 is no bias.
    """
    own, saved = dict(module.named_parameters()), set(module.state_dict())
    given = {id(p) for part in module.modules() if isinstance(part, _LiveProbe) for p in part.parameters()}
    free = [name for name, parameter in own.items() if name not in state and id(parameter) not in given]
    names: dict[str, str] = {}
    for name, value in state.items():
        if name in own or name in saved:
            continue
        fitting = [other for other in free if list(own[other].shape) == list(value.shape)]
        if fitting:
            names[name] = fitting[0]
            free.remove(fitting[0])
        elif not value.any():
            names[name] = ""
    return names


def _prepare(module: nn.Module, state: dict, mode: str, inputs: list) -> nn.Module:
    """The module in the dtype of its float inputs, with state and mode set.

    A module without float inputs, such as one that takes ids, is left as it was made, or made double for a state in float64.
    """
    floats = [v.dtype for v in inputs if isinstance(v, Tensor) and v.is_floating_point()]
    if floats:
        module = module.to(floats[0])
    elif any(value.dtype == np.float64 for value in state.values()):
        module = module.double()
    for name, value in state.items():
        target = module
        for part in name.split("."):
            if not hasattr(target, part):
                raise AttributeError(f"{type(module).__name__} has no {name}")
            target = getattr(target, part)
        if not isinstance(target, Tensor):
            raise AttributeError(f"{type(module).__name__}.{name} is no parameter")
        if list(target.shape) != list(value.shape):
            shapes = f"{tuple(target.shape)}, expected {tuple(value.shape)}"
            raise ValueError(f"{type(module).__name__}.{name} has shape {shapes}")
        with torch.no_grad():
            target.copy_(torch.from_numpy(np.array(value)))
    return module.train(mode == "train")


def _snapshot(output: Any) -> Any:
    """A copy that a later call can't change."""
    if isinstance(output, Tensor):
        return output.detach().clone()
    return [_snapshot(item) for item in output] if isinstance(output, (tuple, list)) else output


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, (tuple, list)) and output else output


def _backward(output: Any) -> None:
    """Differentiate the first result; further ones, such as attention weights, are there to be looked at."""
    first = _first(output)
    if isinstance(first, Tensor) and first.requires_grad:
        (first * torch.from_numpy(cotangent(tuple(first.shape))).to(first.dtype)).sum().backward()


def _tensors_only(value: Any) -> Any:
    """What a piece returned, with NumPy arrays of its own marked as such: a piece is asked for tensors."""
    if isinstance(value, np.ndarray):
        return Opaque("numpy.ndarray")
    if isinstance(value, dict):
        return {key: _tensors_only(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tensors_only(item) for item in value]
    return value


_LIBRARY = str(Path(linecache.__file__).parent)
_OWN = tuple(str(pieces.COURSE_ROOT / package) + os.sep for package in ("transformer_lab", "autograder"))


def _place(filename: str, line: int, function: str) -> str:
    """A line of the learner's own code in words, with its text; empty for every other line."""
    own = pieces.locate(filename, line)
    if not own and not _is_learners(filename):
        return ""
    text = linecache.getline(filename, line).strip()
    return f"{own}: {text}" if own else f"line {line} of {function}" + (f": {text}" if text else "")


@functools.lru_cache(maxsize=1000)
def _is_learners(filename: str) -> bool:
    if filename.startswith((_LIBRARY, *_OWN, "<frozen")):
        return False
    return not any(part in filename for part in ("site-packages", "dist-packages"))
