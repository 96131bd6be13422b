"""A check failed: which known mistake gives the learner's numbers?

Each known wrong implementation of the piece goes through the same checks with the same inputs. It is named only if it fails
the check too, and if wherever it fails a check, it answers every request of that check as the learner's piece did.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
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
    fitting = [(known, _explained(known, attempts, by_order)) for known in registry.misconceptions(piece)]
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
        candidate = _Candidate({known.piece: known.implementation}, attempt.exchanges)
        candidate.setting = _by_order if by_order else None
        try:
            attempt.rerun(candidate)
        except _Differs:
            if not _holds(known, attempt.rerun, by_order):
                return set()
        except (CheckFailed, StudentError):
            if not attempt.failed or candidate.rest:
                return set()
            explained.add(index)
        except Exception:  # a check that cannot compare what came back, as it could not for the learner
            return set()
    return explained


@functools.lru_cache(maxsize=100_000)
def _holds(known: registry.Misconception, rerun: Callable[[Any], None], by_order: bool) -> bool:
    """Whether a check holds for the known mistake, whoever is being graded: asked once for each check and seed."""
    try:
        student = LocalStudent({known.piece: known.implementation})
        student.setting = _by_order if by_order else None
        rerun(student)
    except Exception:
        return False
    return True


def _by_order(request: dict) -> dict:
    return {"by_order": True}


class _Differs(Exception):
    """The known mistake answers a request in another way than the learner's piece."""


class _Candidate(LocalStudent):
    """A known mistake whose every answer is held against the learner's."""

    def __init__(self, namespace: Any, exchanges: list[Exchange]):
        super().__init__(namespace)
        self.rest = list(exchanges)

    def send(self, request: dict) -> dict:
        theirs = self.rest.pop(0) if self.rest else None
        try:
            wanted = super().send(request)
        except StudentError as error:
            other = theirs.error if theirs is not None else None
            if other is None or (error.type_name, error.message) != (other.type_name, other.message):
                raise _Differs from None
            raise
        if theirs is None or theirs.wanted is None or not equal(wanted, theirs.wanted, MATCHING_TOLERANCE):
            raise _Differs
        return wanted
