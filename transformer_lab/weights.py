"""Trained weights as a file: one way to write them and one way to read them, for learners and for whoever grades.

    from transformer_lab import weights

    weights.save(model, "classifier")                             # writes classifier.safetensors
    weights.load(model, "classifier.safetensors", "classifier")   # puts them into a model of the same parameters

A file holds the parameters that :func:`specification` lists, no more and no fewer, in float32, as a safetensors file: a
table of contents in JSON and the plain numbers. A pickle, which ``torch.save`` writes, is a program that reading would
run; it is never opened.

The translator of the training lab may have any size within a budget. Its file says how large it is, by the shapes of its
parameters and by two words beside them, and so does whoever saves it:

    weights.save(translator.model, "lab", config=translator.config)   # writes lab.safetensors
    config = weights.read_config("lab.safetensors", "lab")            # a translation.Config of these sizes
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from transformer_lab import builtin, classifier, translation
from transformer_lab.translation import Config

#: The models whose weights are handed in, by kind: how one is built; of the kinds in ``SIZED``, for a configuration.
KINDS: dict[str, Callable[..., nn.Module]] = {
    "classifier": lambda: classifier.build(classifier.GRADED),
    "translator": lambda: translation.Translator(translation.Task.default()).model,
    "lab": lambda config: translation.Translator(translation.Task.default(), config).model,
}

#: The kinds whose files say how large the model is, and the most parameters that it may have.
SIZED = {"lab": 400_000}

#: The most layers that such a model may have on either side: grading has to run it.
MAX_LAYERS = 12

#: A table of contents larger than this is not read. That of a model of a hundred parameters has 12 kB.
MAX_HEADER_BYTES = 1_000_000

#: How many names a sentence lists.
NAMED = 3


class WeightsError(ValueError):
    """A file or a model does not hold the weights that it should; the message is one sentence or two."""


@functools.lru_cache(maxsize=32)
def _specification(kind: str, config: Config | None = None) -> dict[str, tuple[int, ...]]:
    _require_kind(kind, config)
    with torch.random.fork_rng(devices=[]):  # building draws random numbers, which asking must not
        if config is None:
            model = KINDS[kind]()
        else:
            task = translation.Task.default()
            with torch.device("meta"):  # shapes alone: what a file asks for may be too large
                model = translation.build(config, task, builtin)
        return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _require_kind(kind: str, config: Config | None) -> None:
    if kind not in KINDS:
        raise ValueError(f"There are no weights of kind {kind!r}; there are: {', '.join(KINDS)}.")
    if kind in SIZED and config is None:
        raise ValueError(f'How large the model is has to be said: config=translator.config, for the kind "{kind}".')
    if kind not in SIZED and config is not None:
        raise ValueError(f"Weights of kind {kind!r} have one size: leave config out.")


def specification(kind: str, config: Config | None = None) -> dict[str, tuple[int, ...]]:
    """The parameters that a file of weights must hold: the shape of each by its name, a tied one under one name.

    ``config`` is for the kinds in ``SIZED``, and for them alone. Raises ``ValueError`` when there is no such kind.
    """
    return dict(_specification(kind, config))


def file_name(kind: str) -> str:
    """The name under which weights of a kind are handed in."""
    return f"{kind}.safetensors"


def max_bytes(kind: str) -> int:
    """A file larger than this is not read: twice the numbers that it must hold (so that float64 is told as such) and 1 MB."""
    most = SIZED.get(kind) or sum(math.prod(shape) for shape in _specification(kind).values())
    return 8 * most + MAX_HEADER_BYTES


def save(model: nn.Module, kind: str, folder: str | Path = ".", config: Config | None = None) -> Path:
    """Write the parameters of ``model`` to ``<kind>.safetensors`` in ``folder`` and return the path.

    Whatever would be refused when the file is handed in is refused here. A file that is there is replaced as a whole, or
    stays as it is. ``config`` is for the kinds in ``SIZED``: how many heads the model has, its parameters don't tell.

    Raises
    ------
    WeightsError
        ``model`` has not the parameters that :func:`specification` lists, more than it may have, or holds numbers that are
        not finite.
    ValueError
        There is no such kind, or ``config`` is missing or too much.
    OSError
        The file cannot be written.
    """
    _require_kind(kind, config)
    if config is not None:
        _require_config(config, kind, "The model")
    parameters = _parameters(model, _specification(kind, config), kind)
    tensors = {name: p.detach().to("cpu", torch.float32).clone().contiguous() for name, p in parameters.items()}
    _require_finite(tensors, "The model")
    about = {} if config is None else {"num_heads": str(config.num_heads), "norm_first": str(config.norm_first).lower()}
    data = safetensors.torch.save(tensors, metadata={"format": "pt"} | about)
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
    parameters = _parameters(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, kind)
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
    return parse(_bytes_of(path, kind), kind, Path(path).name)


def read_config(path: str | Path, kind: str) -> Config | None:
    """How large the model is whose weights are in a file, as :func:`config_of` says; raises what :func:`read` raises."""
    return config_of(_bytes_of(path, kind), kind, Path(path).name)


def _bytes_of(path: str | Path, kind: str) -> bytes:
    try:
        return read_bytes(path, max_bytes(kind))
    except FileNotFoundError:
        raise WeightsError(f"There is no file {path}.") from None


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
    name = name or file_name(kind)
    wanted = _specification(kind, config_of(data, kind, name))
    contents = _contents(data, name)
    contents.pop("__metadata__", None)
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


def config_of(data: bytes, kind: str, name: str = "") -> Config | None:
    """How large the model is whose weights are in the bytes of a file; None where all of a kind have one size.

    Sizes are read off the shapes, ``num_heads`` and ``norm_first`` off the words that :func:`save` writes beside them.
    Whatever else a configuration says is as by default.

    Raises
    ------
    WeightsError
        There is no table of contents, it does not say how large the model is, or the model is larger than it may be.
    ValueError
        There is no such kind.
    """
    if kind not in SIZED:
        return None
    name = name or file_name(kind)
    contents = _contents(data, name)
    about = contents.pop("__metadata__", None)
    about = about if isinstance(about, dict) else {}
    _, d_model = _matrix(contents, "source_embed.token.embedding.weight", name, kind)
    d_ff, _ = _matrix(contents, "encoder.layers.0.feed_forward.linear1.weight", name, kind)
    layers = {match[1] for parameter in contents if (match := re.match(r"encoder\.layers\.(\d+)\.", parameter))}
    heads, order = about.get("num_heads"), about.get("norm_first")
    if heads is None or order is None:
        missing = "num_heads" if heads is None else "norm_first"
        raise WeightsError(f"{name} does not say {missing}: weights.save(model, {kind!r}, config=…) writes it.")
    if not (isinstance(heads, str) and re.fullmatch(r"[0-9]{1,3}", heads)):
        raise WeightsError(f"{name}: num_heads is {ascii(heads)[:20]}, expected a number, which weights.save writes.")
    if order not in ("true", "false"):
        raise WeightsError(f"{name}: norm_first is {ascii(order)[:20]}, expected 'true' or 'false'.")
    config = Config(
        d_model=d_model, num_heads=int(heads), d_ff=d_ff, num_layers=len(layers), norm_first=order == "true"
    )
    _require_config(config, kind, name)
    return config


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
    return contents


def _matrix(contents: Mapping[str, Any], parameter: str, name: str, kind: str) -> tuple[int, int]:
    """The sizes of a matrix by which the model's are known."""
    about = contents.get(parameter)
    if about is None:
        raise WeightsError(
            f"{name} does not hold the parameters of the course's {kind}; missing: {listed([parameter])}."
        )
    shape = about.get("shape") if isinstance(about, dict) else None
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(size) is int and size > 0 for size in shape)):
        raise WeightsError(f"{name}: `{parameter}` has the shape {str(shape)[:80]}, expected a matrix.")
    return shape[0], shape[1]


def _require_config(config: Config, kind: str, where: str) -> None:
    """Sizes that go together, in a model that may be handed in."""
    if config.d_model % 2:
        raise WeightsError(f"{where}: d_model = {config.d_model} is odd: sines and cosines come in pairs.")
    if config.num_heads < 1 or config.d_model % config.num_heads:
        raise WeightsError(f"{where}: {config.num_heads} heads can't share d_model = {config.d_model} equally.")
    if not 1 <= config.num_layers <= MAX_LAYERS:
        raise WeightsError(f"{where} has {config.num_layers:,} layers a side; 1 to {MAX_LAYERS} are allowed.")
    if config.shared:
        raise WeightsError(f"{where} has one table for both languages; the two have vocabularies of their own.")
    if max(config.d_model, config.d_ff) <= SIZED[kind]:  # a larger one would not even be laid out
        count = sum(math.prod(shape) for shape in _specification(kind, _bare(config)).values())
        if count <= SIZED[kind]:
            return
        found = f"{count:,} parameters"
    else:
        found = f"more than {SIZED[kind]:,} parameters"
    raise WeightsError(f"{where} has {found}; up to {SIZED[kind]:,} are allowed.")


def _bare(config: Config) -> Config:
    """What decides the parameters' shapes."""
    return Config(
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        num_layers=config.num_layers,
        norm_first=config.norm_first,
    )


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


def _parameters(model: nn.Module, wanted: Mapping[str, tuple[int, ...]], kind: str) -> dict[str, nn.Parameter]:
    """The parameters of a model by the names that are wanted. One under a second name, too, is no further one."""
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
