"""What a graded cell calls when it runs inside the learner's own kernel, under plain ``nbgrader autograde``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autograder import seeds, settings
from autograder.registry import title
from autograder.runner import CheckResult, run_checks


def award(namespace: Any, piece: str) -> float:
    """Run the hidden checks of ``piece``, print what a learner should know, and return the points earned.

    nbgrader takes the value of a graded cell's last line as the cell's score. The inputs are those of the course's
    current round (see :mod:`autograder.seeds`), found from the working directory, and so is what using a built-in costs
    (:mod:`autograder.settings`); outside a course folder, as when a source is validated by itself, the inputs are public
    and a built-in costs nothing, and the output says so.
    """
    seed: int | bytes = 0
    costs = 0.0
    try:
        course = seeds.find_course()
    except FileNotFoundError:
        print("Not in a course folder: checked with public inputs, not with those of a grading round.")
    else:
        seed, costs = seeds.round_seed(course, seeds.chapter_of(piece)), settings.builtin_costs(course)
    results = run_checks(namespace, piece=piece, seed=seed, builtin_costs=costs)
    print(lines(results))
    earned = round(sum(result.earned for result in results), 6)
    return int(earned) if earned == int(earned) else earned


def lines(results: Sequence[CheckResult]) -> str:
    """The results of one piece as the learner reads them: on what terms it was judged, each check, the notes on it."""
    return "\n".join([*terms(results), *map(line, results), *notes(results)])


def terms(results: Iterable[CheckResult]) -> list[str]:
    """On what terms pieces were judged where these were not the usual ones, a line each."""
    return [f"Mind: {term}" for result in results for term in result.terms]


def notes(results: Iterable[CheckResult]) -> list[str]:
    """What was noted of the pieces, a line each."""
    return [f"Noted: {note}" for result in results for note in result.notes]


def line(result: CheckResult) -> str:
    """One result as the learner reads it."""
    mark = "✓" if result.passed else "✗"
    text = f"{mark} {title(result.piece, result.check)} ({result.earned:g}/{result.points:g})"
    if result.message:
        text += f": {result.message}"
    if result.diagnosis:
        text += f"\n    Likely slip: {result.diagnosis.hint}"
    return text
