"""What holds of a piece whatever it computes: its gradients are those of its own function.

A slip in the formula shows in the values. That gradients flow is a matter of its own, so where the values are not the right
ones, gradients are held against what the piece itself computes, and a slip does not cost their points again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autograder.compare import TOLERANCE, equal, require, require_array
from transformer_lab.driver import cotangent

#: Half the distance of the two calls, large enough for a piece that computes in float32, and what it costs in accuracy.
STEP, SLACK = 1e-3, 5e-3


def first(output: Any) -> Any:
    """The first of several results, which is the one that is differentiated."""
    return output[0] if isinstance(output, list) and output else output


def is_right(output: Any, want: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    """Whether the (first) result is the wanted one."""
    got = first(output)
    return isinstance(got, np.ndarray) and equal(got, np.asarray(want), tolerance)


def require_own_gradients(student, rng, piece: str, inputs, names, *, parameters: bool = False, kind: str = "", **call):
    """Fail unless the gradients of a piece are the slopes of what it computes, each along one random direction.

    ``names`` says how the inputs are called, those without a name being left alone; with ``parameters`` they are entries
    of the state. What has no influence on the result may get no gradient, but most of them must have one.
    Everything is in float64.
    """
    wide = [_wide(value) for value in inputs]
    state = {name: _wide(value) for name, value in (call.pop("state", None) or {}).items()}
    want = "parameter_grads" if parameters else "input_grads"
    given = {"state": state} if state else {}
    found = student.run(piece, *wide, want=want, **given, **call)

    def weighed(values, entries) -> float:
        given = {"state": entries} if entries else {}
        output = first(student.run(piece, *values, **given, **call))
        require_array(output, f"the result of {piece}")
        return float((output.astype(np.float64) * cotangent(output.shape)).sum())

    idle: list[str] = []
    for place, name in enumerate(names):
        start = state[name] if parameters else wide[place]
        step = STEP * rng.normal(size=start.shape)
        if parameters:
            ahead, behind = (weighed(wide, state | {name: start + s}) for s in (step, -step))
        else:
            ahead, behind = (weighed([*wide[:place], start + s, *wide[place + 1 :]], state) for s in (step, -step))
        slope = (ahead - behind) / (2 * STEP)
        grad = found.get(name) if parameters else found[place]
        require(grad is not None or abs(slope) < SLACK, f"No gradient reaches {name}{kind}.")
        if grad is None:
            idle.append(name)
            require(len(idle) <= len(names) // 2, f"No gradient reaches {', '.join(idle)}{kind}.")
            continue
        require_array(grad, f"the gradient of {name}")
        require(grad.shape == start.shape, f"The gradient of {name} has shape {grad.shape}, expected {start.shape}.")
        got = float((grad * step).sum()) / STEP
        require(
            abs(got - slope) <= SLACK * max(1.0, abs(slope)),
            f"The gradient of {name}{kind} is not that of what {piece} computes: along one direction it says {got:.4g}, "
            f"but the result changes by {slope:.4g}.",
        )


def _wide(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value
