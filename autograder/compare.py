"""Compare what a learner's piece gave with what is right, and say the difference in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from transformer_lab.driver import Opaque

#: Largest accepted deviation, relative to the largest wanted value (or to 1 if that is smaller). Honest float32
#: implementations of the same formula differ by less than 1e-5 at the sizes that the checks use.
TOLERANCE = 1e-4


class CheckFailed(Exception):
    """A check does not hold; the message is the sentence that the learner reads."""


#: Where the comparisons are written down while somebody measures.
_measured: list[tuple[str, float]] | None = None


@contextlib.contextmanager
def measuring() -> Iterator[list[tuple[str, float]]]:
    """A list to which each comparison adds what it compared and the largest deviation over the accepted one.

    Up to 1 it holds; infinite is what no tolerance would accept. Shapes, dtypes and other yes-or-no questions add nothing.
    """
    global _measured
    before, _measured = _measured, []
    try:
        yield _measured
    finally:
        _measured = before


def require(condition: Any, message: str) -> None:
    """Fail the check with ``message`` unless ``condition`` holds."""
    if not condition:
        raise CheckFailed(message)


def require_within(deviation: float, limit: float, message: str) -> None:
    """Fail the check with ``message`` unless ``deviation`` is smaller than ``limit``."""
    if _measured is not None:
        _measured.append((message, float(deviation) / limit))
    require(deviation < limit, message)


def expect(got: Any, want: Any, what: str, *, tolerance: float = TOLERANCE, dtype: str | None = None) -> None:
    """Fail unless ``got`` is an array equal to ``want`` within ``tolerance``.

    Parameters
    ----------
    got
        What came back from :meth:`autograder.student.Student.run`.
    want
        The right array, in any float precision.
    what
        What is compared, as the sentence's subject: "the attention weights".
    tolerance
        Accepted deviation relative to max(1, max |want|).
    dtype
        The dtype that the specification demands; without it any float passes for a float.
    """
    want = np.asarray(want)
    require_array(got, what)
    shape = tuple(got.shape)
    require(shape == want.shape, f"{_capital(what)}: shape {shape}, expected {want.shape}.")
    if dtype is not None:
        require(str(got.dtype) == dtype, f"{_capital(what)}: dtype {got.dtype}, expected {dtype}.")
    same_kind = (got.dtype.kind == "b") == (want.dtype.kind == "b") and (got.dtype.kind == "f") == (
        want.dtype.kind == "f"
    )
    require(same_kind, f"{_capital(what)}: dtype {got.dtype}, expected {_kind(want)}.")
    coarse = got.dtype.kind == "f" and got.dtype.itemsize < 4 <= want.dtype.itemsize
    require(not coarse, f"{_capital(what)}: dtype {got.dtype} is too coarse, expected float32 or float64.")
    if want.size == 0:
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    surprising = np.isnan(a) & ~np.isnan(b)
    if surprising.any():
        share = f"{100 * surprising.mean():.3g} % of the entries are NaN"
        if _measured is not None:
            _measured.append((what, float("inf")))
        raise CheckFailed(f"{_capital(what)}: {share}, the first at index {_first(surprising)}.")
    finite = np.abs(b[np.isfinite(b)])
    allowed = tolerance * max(1.0, float(finite.max()) if finite.size else 1.0)
    with np.errstate(invalid="ignore"):
        wrong = ~((a == b) | (np.abs(a - b) <= allowed) | (np.isnan(a) & np.isnan(b)))
    if _measured is not None:
        _measured.append((what, _furthest(a, b, allowed)))
    if wrong.any():
        index = _first(wrong)
        pair = (got[index], want[index]) if want.dtype.kind == "b" else (f"{a[index]:.5g}", f"{b[index]:.5g}")
        with np.errstate(invalid="ignore"):
            small = bool(np.abs(a - b)[wrong].max() <= 20 * allowed)
        raise CheckFailed(
            f"{_capital(what)}: first difference at index {index}: got {pair[0]}, expected {pair[1]} "
            f"(shape {shape}, {100 * wrong.mean():.3g} % of the entries differ)."
            + (" All differences are small: is something rounded, or in half precision?" if small else "")
        )


def require_array(got: Any, what: str) -> None:
    """Fail unless ``got`` came from one tensor."""
    if isinstance(got, Opaque):
        wanted = "a dense torch.Tensor on the CPU" if got.type_name.startswith("torch.Tensor") else "a torch.Tensor"
        raise CheckFailed(f"{_capital(what)}: a {got.type_name} came back, expected {wanted}.")
    if got is None:
        raise CheckFailed(
            f"{_capital(what)}: None came back, expected a torch.Tensor (is the return statement missing?)."
        )
    if isinstance(got, (list, dict)):
        raise CheckFailed(f"{_capital(what)}: {len(got)} values came back, expected one torch.Tensor.")
    if not isinstance(got, np.ndarray):
        raise CheckFailed(f"{_capital(what)}: the {type(got).__name__} {got!r} came back, expected a torch.Tensor.")


def require_pair(got: Any, what: str) -> list:
    """Fail unless ``got`` is a pair; return its two values."""
    if isinstance(got, list) and len(got) == 2:
        return got
    kind = f"{len(got)} values" if isinstance(got, list) else "one value"
    raise CheckFailed(f"{_capital(what)} returned {kind}, expected a pair.")


def equal(a: Any, b: Any, tolerance: float) -> bool:
    """True when two decoded responses are the same data: same structure, shapes and values within ``tolerance``."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return False
        if a.size == 0:
            return True
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(y[np.isfinite(y)])
        scale = max(1.0, float(finite.max()) if finite.size else 1.0)
        with np.errstate(invalid="ignore"):
            return bool(np.all((x == y) | (np.abs(x - y) <= tolerance * scale) | (np.isnan(x) & np.isnan(y))))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], tolerance) for key in a)
    if isinstance(a, Opaque) and isinstance(b, Opaque):
        return a.type_name == b.type_name
    if type(a) is not type(b):
        return False
    return a == b or (isinstance(a, float) and abs(a - b) <= tolerance * max(1.0, abs(b)))


def _furthest(a: np.ndarray, b: np.ndarray, allowed: float) -> float:
    """The largest deviation between two arrays, over the accepted one."""
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b) / allowed)
    return float(np.nan_to_num(deviation, nan=np.inf, posinf=np.inf).max())


def _kind(array: np.ndarray) -> str:
    return {"b": "bool", "f": "a floating-point dtype", "i": "an integer dtype"}.get(array.dtype.kind, str(array.dtype))


def _first(where: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(where)[0])


def _capital(text: str) -> str:
    """The text as the beginning of a sentence; a name of the code stays as it is."""
    first = text.split(" ", 1)[0]
    return text if set(first) & set("`(_") else text[:1].upper() + text[1:]
