"""Right helpers in place of a learner's own, so that a slip costs its points once: where it was made.

A stand-in is PyTorch's own layer behind the piece's name, which learners have anyway (``transformer_lab.builtin``). Where
PyTorch has none, it is plain data: the numbers that the helper should return for what it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autograder import registry
from transformer_lab import builtin

#: What a request is sent with besides: nothing, or that parameters of other names are set by their order.
NOTHING: dict = {}
BY_ORDER: dict = {"by_order": True}

#: Rows of a table of positions: more than any check can ask of a helper.
ROWS = 1200


def before(piece: str) -> list[tuple[str, int]]:
    """The pieces before ``piece`` in the course that a right one can stand in for, the nearest last, with their chapters."""
    order = {check.piece: check.chapter for check in registry.checks()}
    earlier = list(order)[: list(order).index(piece)]
    return [(name, order[name]) for name in earlier if name in _TABLES or hasattr(builtin, name)]


@dataclass(frozen=True)
class Setting:
    """What to send with a request, beside ``further``, so that the pieces called ``names`` are right ones in it."""

    names: tuple[str, ...]
    further: dict

    def __call__(self, request: dict) -> dict:
        found = {name: _TABLES[name](request) if name in _TABLES else None for name in self.names}
        return self.further | ({"stand_ins": found} if found else {})


def by_order_sentence(piece: str, missing: str) -> str:
    """What a learner is told of parameters that were set by their order, ``missing`` being PyTorch's complaint."""
    return (
        f"`{piece}` lacks parameters of the names that it should have ({missing}). Wherever a check set parameters, those "
        "of other names were set in the order in which they are created."
    )


def sentence(piece: str, names: Sequence[str], failed: bool) -> str:
    """What a learner is told of it."""
    own = " and ".join(f"`{name}`" for name in names)
    verb, them, right = ("fails its", "it", "a right one") if len(names) == 1 else ("fail their", "them", "right ones")
    told = (
        f"Your {own} {verb} own checks, and `{piece}` calls {them}. So that a slip costs its points once, `{piece}` was "
        f"judged with {right} in place of yours: mend {own} first. "
    )
    return told + ("What fails here fails all the same." if failed else "Nothing else is wrong here.")


def _positions(request: dict) -> np.ndarray:
    from autograder.checks.ch02_positional_encoding import encoding

    # What calls it is given the width second: TransformerEmbedding(vocab_size, d_model, …), shift_matrix(offset, d_model).
    width = next((value for value in (request["init"] or request["inputs"])[1:2] if isinstance(value, int)), 2)
    return encoding(range(ROWS), max(2, width - width % 2)).astype(np.float32)  # an odd one asks for no encoding


_TABLES: dict[str, Callable[[dict], np.ndarray]] = {"positional_encoding": _positions}
