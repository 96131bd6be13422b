"""A check failed: which known mistake gives the learner's numbers?

Each known wrong implementation of the piece goes through the same checks with the same inputs. It is named only if it fails
the check too, and if wherever it fails a check, it answers every request of that check as the learner's piece did.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder import registry
from autograder.compare import TOLERANCE, CheckFailed, equal
from autograder.student import Exchange, LocalStudent, StudentError

#: Wider than rounding makes two ways to write the same mistake, much narrower than two mistakes are apart.
MATCHING_TOLERANCE = TOLERANCE


@dataclass(frozen=True)
class Diagnosis:
    """The known mistake that a piece makes, and the hint that a tutor would give."""

    id: str
    hint: str


@dataclass(frozen=True)
class Attempt:
    """One check of a learner's piece: how to run it again with the same inputs, what was exchanged, how it ended.

    ``rerun`` is one object for each check and seed, by which what it found of a known mistake is remembered.
    """

    rerun: Callable[[Any], None]
    exchanges: list[Exchange]
    failed: bool


def explain(piece: str, attempts: list[Attempt], by_order: bool = False) -> list[Diagnosis | None]:
    """For each check of a piece, the known mistake that explains its failure, or None.

    A known mistake must not show in a check in which the learner's numbers are not its own: a learner who passes a check
    that the mistake fails has not made it. Of several that fit, the one that explains most checks is named.
    ``by_order`` says whether parameters of other names were set by their order: they are then, for the mistakes too.
    """
    found: list[Diagnosis | None] = [None] * len(attempts)
    if not any(attempt.failed for attempt in attempts):
        return found
    mistakes = registry.misconceptions(piece)
    first = os.getpid() * 7 % len(mistakes) if _shared is not None and mistakes else 0
    turned = range(first - len(mistakes), first)
    explained = {index % len(mistakes): _explained(mistakes[index], attempts, by_order) for index in turned}
    fitting = [(known, explained[index]) for index, known in enumerate(mistakes)]
    fitting.sort(key=lambda pair: -len(pair[1]))
    for index in range(len(attempts)):
        known = next((known for known, explained in fitting if index in explained), None)
        if known is not None:
            found[index] = Diagnosis(known.id, known.hint)
    return found


def _explained(known: registry.Misconception, attempts: list[Attempt], by_order: bool) -> set[int]:
    """The checks that the known mistake fails with the learner's numbers; none if it fails one with other numbers."""
    explained = set()
    # Failed checks first: most known mistakes are ruled out by the first of them.
    for index in sorted(range(len(attempts)), key=lambda i: not attempts[i].failed):
        attempt = attempts[index]
        failure = _failure(known, attempt.rerun, by_order)
        if failure is None:
            continue
        if not attempt.failed or not failure.comparable or len(attempt.exchanges) != len(failure.answers):
            return set()
        if not all(map(_same, failure.answers, attempt.exchanges)):
            return set()
        explained.add(index)
    return explained


@dataclass(frozen=True)
class _Failure:
    """A check that a known mistake fails: what it answered, and whether the check could compare what came back."""

    answers: list[Exchange]
    comparable: bool


@functools.lru_cache(maxsize=5_000)
def _failure(known: registry.Misconception, rerun: Callable[[Any], None], by_order: bool) -> _Failure | None:
    """How a known mistake fails a check, None where it holds, whoever is graded: asked once for each check and seed."""
    path = _place(known, rerun, by_order)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            return pickle.loads(path.read_bytes())  # of this grader's own processes
    failure = _found_out(known, rerun, by_order)
    if path is not None:
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_bytes(pickle.dumps(failure))
        beside.replace(path)
    return failure


def _place(known: registry.Misconception, rerun: Callable[[Any], None], by_order: bool) -> Path | None:
    """Where the processes of a grader tell each other what they have found out."""
    if _shared is None or not isinstance(rerun, functools.partial):
        return None
    check, seed = rerun.args
    number = registry.misconceptions(known.piece).index(known)  # several ways to make a mistake share its name
    name = repr((known.piece, number, check.piece, check.name, seed, by_order))
    return _shared / hashlib.sha256(name.encode()).hexdigest()


_shared: Path | None = None


def share(folder: Path) -> None:
    """Share what is found out of known mistakes with other processes, through files in a folder that is theirs alone.

    Each begins with other mistakes, so that those that look for the same share the work too.
    """
    global _shared
    _shared = folder


def _found_out(known: registry.Misconception, rerun: Callable[[Any], None], by_order: bool) -> _Failure | None:
    student = LocalStudent({known.piece: known.implementation})
    student.setting = _by_order if by_order else None
    try:
        rerun(student)
    except Exception as failure:
        answers = [Exchange({}, exchange.wanted, exchange.error) for exchange in student.transcript]
        return _Failure(answers, isinstance(failure, (CheckFailed, StudentError)))
    return None


def _same(ours: Exchange, theirs: Exchange) -> bool:
    """Whether a known mistake and the learner's piece answered a request alike: the same numbers, or the same error."""
    if ours.error is not None and theirs.error is not None:
        return (ours.error.type_name, ours.error.message) == (theirs.error.type_name, theirs.error.message)
    if ours.error is not None or theirs.error is not None:
        return False
    return equal(ours.wanted, theirs.wanted, MATCHING_TOLERANCE)


def _by_order(request: dict) -> dict:
    return {"by_order": True}
