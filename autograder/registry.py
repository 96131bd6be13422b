"""The table of hidden checks and the table of known mistakes, filled by the modules of ``checks`` and ``misconceptions``."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Check:
    """One hidden check: ``function(student, rng)`` raises when the piece is wrong.

    ``file`` names the file that a piece is which is handed in beside the notebook (``student.file(check.file)``); it is
    empty for code.
    """

    name: str
    piece: str
    chapter: int
    points: float
    function: Callable[[Any, np.random.Generator], None]
    file: str = ""

    @property
    def description(self) -> str:
        """What the check tests, in the words of its docstring's first paragraph."""
        paragraph = (self.function.__doc__ or "").strip().split("\n\n")[0]
        return " ".join(paragraph.split())


@dataclass(frozen=True)
class Misconception:
    """A known wrong implementation of a piece, with the hint that a tutor would give."""

    id: str
    piece: str
    chapter: int
    hint: str
    implementation: Callable


_checks: list[Check] = []
_misconceptions: list[Misconception] = []


def title(piece: str, check: str) -> str:
    """A check's name as words, without those that only repeat the piece's: "obeys a mask" of attention_obeys_a_mask."""
    repeated = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", piece)}
    words = check.split("_")
    while len(words) > 1 and words[0] in repeated:
        words.pop(0)
    return " ".join(words)


def check(piece: str, points: float, file: str = "") -> Callable:
    """Register a function ``(student, rng)`` as a hidden check of ``piece``, worth ``points``.

    ``file`` is for a piece that is not code but a file, handed in beside the notebook under this name. All checks of such
    a piece get the same random numbers, so that they can judge it by one and the same test set.
    """

    def register(function: Callable) -> Callable:
        if not (function.__doc__ or "").strip():
            raise ValueError(f"The check {function.__name__} needs a docstring that says what it tests.")
        _checks.append(Check(function.__name__, piece, _chapter(function), points, function, file))
        return function

    return register


def misconception(piece: str, id: str, hint: str) -> Callable:
    """Register a function or class as a known wrong implementation of ``piece``."""

    def register(implementation: Callable) -> Callable:
        _misconceptions.append(Misconception(id, piece, _chapter(implementation), hint, implementation))
        return implementation

    return register


def checks(*, chapter: int | str | None = None, piece: str | None = None) -> list[Check]:
    """The registered checks of a chapter (3, "3" or "03_attention") or of one piece, in the order of the source.

    Raises ``ValueError`` when there are none.
    """
    _import_all()
    number = None if chapter is None else _number(chapter)
    found = [c for c in _checks if number in (None, c.chapter) and piece in (None, c.piece)]
    if not found:
        wanted = " and ".join(f"{k} {v!r}" for k, v in (("chapter", chapter), ("piece", piece)) if v is not None)
        raise ValueError(
            f"There are no checks for {wanted}; there are checks for: {', '.join([*pieces(), *submitted()])}."
        )
    return found


def pieces(chapter: int | str | None = None) -> list[str]:
    """The names of the pieces of code that have checks, in the order of the course."""
    _import_all()
    number = None if chapter is None else _number(chapter)
    return list(dict.fromkeys(c.piece for c in _checks if number in (None, c.chapter) and not c.file))


def submitted(chapter: int | str | None = None) -> dict[str, str]:
    """The pieces that are no code but a file handed in beside the notebook: the file's name, by piece."""
    _import_all()
    number = None if chapter is None else _number(chapter)
    return {c.piece: c.file for c in _checks if number in (None, c.chapter) and c.file}


def misconceptions(piece: str | None = None) -> list[Misconception]:
    """The known mistakes of a piece (or of all), in the order of the source."""
    _import_all()
    return [m for m in _misconceptions if piece in (None, m.piece)]


@functools.cache
def _import_all() -> None:
    for package in ("checks", "misconceptions"):
        module = importlib.import_module(f"autograder.{package}")
        for info in sorted(pkgutil.iter_modules(module.__path__), key=lambda info: info.name):
            importlib.import_module(f"autograder.{package}.{info.name}")


def _chapter(thing: Callable) -> int:
    return int(thing.__module__.rpartition(".ch")[2][:2])


def _number(chapter: int | str) -> int:
    match = re.match(r"\d+", str(chapter))
    if not match:
        raise ValueError(f"A chapter is a number or a name that begins with one, not {chapter!r}.")
    return int(match.group())
