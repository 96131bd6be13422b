"""A check failed: which known mistake gives the learner's numbers?

Each known wrong implementation of the piece is run on the very requests that the check made. It is named only if it gives
what the learner's piece gave, in every exchange of the failed check.
"""

from __future__ import annotations

from dataclasses import dataclass

from autograder import registry
from autograder.compare import TOLERANCE, equal
from autograder.student import Exchange, LocalStudent, StudentError

#: Much tighter than a check's tolerance, so that what matches a wrong implementation is itself wrong.
MATCHING_TOLERANCE = TOLERANCE / 10


@dataclass(frozen=True)
class Diagnosis:
    """The known mistake that a piece makes, and the hint that a tutor would give."""

    id: str
    hint: str


def explain(piece: str, transcripts: list[list[Exchange]], failed: list[bool]) -> list[Diagnosis | None]:
    """For each check of a piece, the known mistake that explains its failure, or None.

    Parameters
    ----------
    piece
        The piece that all the checks test.
    transcripts
        The exchanges of each check.
    failed
        Whether each check failed.

    Returns
    -------
    list[Diagnosis | None]
        Where several known mistakes explain a check, the one that explains most of the piece's other checks.
    """
    if not any(failed):
        return [None] * len(failed)
    replays: list[tuple[registry.Misconception, list[bool]]] = []
    for known in registry.misconceptions(piece):
        student = LocalStudent({piece: known.implementation})
        matches = [bool(exchanges) and all(_same(student, e) for e in exchanges) for exchanges in transcripts]
        replays.append((known, matches))
    found: list[Diagnosis | None] = []
    for index, wrong in enumerate(failed):
        candidates = [(sum(matches), known) for known, matches in replays if wrong and matches[index]]
        best = max(candidates, key=lambda candidate: candidate[0])[1] if candidates else None
        found.append(Diagnosis(best.id, best.hint) if best else None)
    return found


def _same(student: LocalStudent, exchange: Exchange) -> bool:
    try:
        wanted = student.send(exchange.request)
    except StudentError as error:
        other = exchange.error
        return other is not None and (error.type_name, error.message) == (other.type_name, other.message)
    return exchange.wanted is not None and equal(wanted, exchange.wanted, MATCHING_TOLERANCE)
