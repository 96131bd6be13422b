"""Trained weights as a file: one way to write them and one way to read them, for learners and for whoever grades.

    from transformer_lab import weights

    weights.save(model, "classifier")                             # writes classifier.safetensors
    weights.load(model, "classifier.safetensors", "classifier")   # puts them into a model of the same parameters

A file holds the parameters that :func:`specification` lists, no more and no fewer, in float32, as a safetensors file: a
table of contents in JSON and the plain numbers. A pickle, which ``torch.save`` writes, is a program that reading would
run; it is never opened.
"""

from __future__ import annotations

import functools
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from transformer_lab import classifier, translation

#: The models whose weights are handed in, by kind: how one is built.
KINDS: dict[str, Callable[[], nn.Module]] = {
    "classifier": lambda: classifier.build(classifier.GRADED),
    "translator": lambda: translation.Translator(translation.Task.default()).model,
}

#: A table of contents larger than this is not read. That of a model of a hundred parameters has 12 kB.
MAX_HEADER_BYTES = 1_000_000

#: How many names a sentence lists.
NAMED = 3


class WeightsError(ValueError):
    """A file or a model does not hold the weights that it should; the message is one sentence or two."""


@functools.cache
def _specification(kind: str) -> dict[str, tuple[int, ...]]:
    if kind not in KINDS:
        raise ValueError(f"There are no weights of kind {kind!r}; there are: {', '.join(KINDS)}.")
    with torch.random.fork_rng(devices=[]):  # building draws random numbers, which asking must not
        return {name: tuple(parameter.shape) for name, parameter in KINDS[kind]().named_parameters()}


def specification(kind: str) -> dict[str, tuple[int, ...]]:
    """The parameters that a file of weights must hold: the shape of each by its name, a tied one under one name.

    Raises ``ValueError`` when there is no such kind.
    """
    return dict(_specification(kind))


def file_name(kind: str) -> str:
    """The name under which weights of a kind are handed in."""
    return f"{kind}.safetensors"


def max_bytes(kind: str) -> int:
    """A file larger than this is not read: twice the numbers that it must hold (so that float64 is told as such) and 1 MB."""
    return 8 * sum(math.prod(shape) for shape in _specification(kind).values()) + MAX_HEADER_BYTES


def save(model: nn.Module, kind: str, folder: str | Path = ".") -> Path:
    """Write the parameters of ``model`` to ``<kind>.safetensors`` in ``folder`` and return the path.

    Whatever would be refused when the file is handed in is refused here. A file that is there is replaced as a whole, or
    stays as it is.

    Raises
    ------
    WeightsError
        ``model`` has not the parameters that :func:`specification` lists, or holds numbers that are not finite.
    ValueError
        There is no such kind.
    OSError
        The file cannot be written.
    """
    parameters = _parameters(model, kind)
    tensors = {name: p.detach().to("cpu", torch.float32).clone().contiguous() for name, p in parameters.items()}
    _require_finite(tensors, "The model")
    data = safetensors.torch.save(tensors, metadata={"format": "pt"})
    target = Path(folder) / file_name(kind)
    parse(data, kind)
    descriptor, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(beside, 0o644)  # a temporary file is its owner's alone
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise
    return target


def load(model: nn.Module, path: str | Path, kind: str) -> nn.Module:
    """Put the weights in the file at ``path`` into ``model`` and return it.

    Raises
    ------
    WeightsError
        The file is not as :func:`read` wants it, or ``model`` has other parameters. The model stays as it is.
    ValueError
        There is no such kind.
    """
    put(model, read(path, kind), kind)
    return model


def put(model: nn.Module, tensors: Mapping[str, Tensor], kind: str) -> None:
    """Copy weights, as :func:`read` gives them, into the parameters of ``model``; ``WeightsError`` where they don't fit."""
    parameters = _parameters(model, kind)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def read(path: str | Path, kind: str) -> dict[str, Tensor]:
    """The weights in a file: a float32 tensor for each name of :func:`specification`, in its order.

    Raises
    ------
    WeightsError
        There is no such file, it is a link or no regular file, too large, damaged, not a safetensors file, or does not
        hold exactly the parameters asked for, in float32 and finite.
    ValueError
        There is no such kind.
    """
    try:
        data = read_bytes(path, max_bytes(kind))
    except FileNotFoundError:
        raise WeightsError(f"There is no file {path}.") from None
    return parse(data, kind, Path(path).name)


def read_bytes(path: str | Path, limit: int) -> bytes:
    """The bytes of a regular file, read once: no link is followed, and nothing is waited for (a pipe, a device).

    Raises ``FileNotFoundError``, and ``WeightsError`` for whatever else cannot be read or has more than ``limit`` bytes.
    """
    path = Path(path)
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise WeightsError(f"{path.name} is not a regular file.")
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise WeightsError(f"{path.name} cannot be read: {error.strerror}.") from error
    try:
        found = os.fstat(descriptor)  # what was opened may be another file than the one that was looked at
        if not stat.S_ISREG(found.st_mode):
            raise WeightsError(f"{path.name} is not a regular file.")
        parts, left = [], limit + 1
        if found.st_size <= limit:
            while left and (part := os.read(descriptor, min(left, 1 << 24))):
                parts.append(part)
                left -= len(part)
        if not left or found.st_size > limit:
            size = max(found.st_size, limit + 1)
            raise WeightsError(f"{path.name} has {size / 1e6:,.1f} MB; up to {limit / 1e6:,.1f} MB are read.")
        return b"".join(parts)
    except OSError as error:
        raise WeightsError(f"{path.name} cannot be read: {error.strerror}.") from error
    finally:
        os.close(descriptor)


def parse(data: bytes, kind: str, name: str = "") -> dict[str, Tensor]:
    """The weights in the bytes of a file, as :func:`read` gives them; ``name`` is the file's, for the sentences."""
    wanted, name = _specification(kind), name or file_name(kind)
    contents = _contents(data, name)
    _require_names(contents, wanted, name, kind)
    for parameter, about in contents.items():
        _require_form(parameter, about, wanted[parameter], name)
    damaged = f"{name} is damaged or cut off: its table of contents does not fit the {len(data):,} bytes that it has."
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # of the library's own kinds, or of torch's
        raise WeightsError(damaged) from error
    if any(parameter not in tensors or tuple(tensors[parameter].shape) != wanted[parameter] for parameter in wanted):
        raise WeightsError(damaged)
    tensors = {parameter: tensors[parameter].clone() for parameter in wanted}
    _require_finite(tensors, name)
    return tensors


def listed(names: Iterable[str]) -> str:
    """A few names for a sentence: at most ``NAMED``, and how many more there are; odd characters escaped."""
    names = list(names)
    shown = ", ".join(f"`{ascii(name)[1:-1][:80]}`" for name in names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


# --------------------------------------------------------------------------------------------------------------- parts


def _contents(data: bytes, name: str) -> dict[str, Any]:
    """The table of contents of a safetensors file: what it says of each tensor."""
    if not data:
        raise WeightsError(f"{name} is empty.")
    if data[8:9] != b"{":
        raise WeightsError(f"{name} is not a safetensors file{_looks_like(data)}; weights.save writes one.")
    size = int.from_bytes(data[:8], "little")
    if size > min(len(data) - 8, MAX_HEADER_BYTES):
        raise WeightsError(
            f"{name} is damaged or cut off: a table of contents of {size:,} bytes is announced, in a file of {len(data):,}."
        )
    try:
        contents = json.loads(data[8 : 8 + size].decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except WeightsError as error:
        raise WeightsError(f"{name} is damaged: {error}") from None
    except (ValueError, RecursionError):
        raise WeightsError(f"{name} is damaged: its table of contents is not valid JSON.") from None
    if not isinstance(contents, dict):
        raise WeightsError(f"{name} is damaged: its table of contents is none.")
    contents.pop("__metadata__", None)
    return contents


def _looks_like(data: bytes) -> str:
    if data.startswith(b"PK"):
        return " but a zip archive, such as torch.save and numpy.savez write"
    if data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return " but a pickle, which is never opened"
    return " but an array of NumPy" if data.startswith(b"\x93NUMPY") else ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise WeightsError(f"its table of contents names {listed([key])} twice.")
        found[key] = value
    return found


def _no_constant(text: str) -> None:
    raise ValueError(text)


def _require_names(found: Iterable[str], wanted: Mapping[str, Any], where: str, kind: str) -> None:
    found = set(found)
    missing = [name for name in wanted if name not in found]
    extra = sorted(found - set(wanted))
    if missing or extra:
        parts = ["missing: " + listed(missing)] * bool(missing) + ["not expected: " + listed(extra)] * bool(extra)
        raise WeightsError(f"{where} does not hold the parameters of the course's {kind}; {'; '.join(parts)}.")


def _require_form(parameter: str, about: Any, wanted: tuple[int, ...], name: str) -> None:
    """Shape and dtype as a safetensors file states them."""
    shape = about.get("shape") if isinstance(about, dict) else None
    if not isinstance(shape, list) or any(type(size) is not int for size in shape):
        raise WeightsError(f"{name} is damaged: what its table of contents says of `{parameter}` is not understood.")
    _require_shape(parameter, tuple(shape), wanted, name)
    if about.get("dtype") != "F32":
        found = ascii(about.get("dtype"))[:20]
        raise WeightsError(f"{name}: `{parameter}` has the dtype {found}, expected 'F32', which weights.save writes.")


def _require_shape(parameter: str, shape: tuple[int, ...], wanted: tuple[int, ...], where: str) -> None:
    if shape != wanted:
        hint = " Is it transposed?" if shape == wanted[::-1] else ""
        raise WeightsError(f"{where}: `{parameter}` has the shape {str(shape)[:80]}, expected {wanted}.{hint}")


def _require_finite(tensors: Mapping[str, Tensor], where: str) -> None:
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise WeightsError(f"{where} holds numbers that are not finite (NaN or ±inf), in {listed(broken)}.")


def _parameters(model: nn.Module, kind: str) -> dict[str, nn.Parameter]:
    """The parameters of a model by the names of the specification. One under a second name, too, is no further one."""
    wanted = _specification(kind)
    every = dict(model.named_parameters(remove_duplicate=False))
    known = {id(every[name]) for name in wanted if name in every}
    _require_names([n for n, p in every.items() if n in wanted or id(p) not in known], wanted, "The model", kind)
    for name, shape in wanted.items():
        _require_shape(name, tuple(every[name].shape), shape, "The model")
        if not every[name].is_floating_point():
            raise WeightsError(
                f"The model: `{name}` has the dtype {every[name].dtype}, expected floating-point numbers."
            )
    return {name: every[name] for name in wanted}
