"""What a graded cell calls when it runs inside the learner's own kernel, under plain ``nbgrader autograde``."""

from __future__ import annotations

from typing import Any

from autograder import seeds
from autograder.registry import title
from autograder.runner import run_checks


def award(namespace: Any, piece: str) -> float:
    """Run the hidden checks of ``piece``, print what a learner should know, and return the points earned.

    nbgrader takes the value of a graded cell's last line as the cell's score. The inputs are those of the course's
    current round (see :mod:`autograder.seeds`), found from the working directory; outside a course folder, as when a source
    is validated by itself, they are public, and the output says so.
    """
    try:
        seed: int | bytes = seeds.round_seed(seeds.find_course(), seeds.chapter_of(piece))
    except FileNotFoundError:
        seed = 0
        print("Not in a course folder: checked with public inputs, not with those of a grading round.")
    results = run_checks(namespace, piece=piece, seed=seed)
    for result in results:
        print(line(result))
    earned = sum(result.earned for result in results)
    return int(earned) if earned == int(earned) else earned


def line(result) -> str:
    """One result as the learner reads it."""
    mark = "✓" if result.passed else "✗"
    text = f"{mark} {title(result.piece, result.check)} ({result.earned:g}/{result.points:g})"
    if result.message:
        text += f": {result.message}"
    if result.diagnosis:
        text += f"\n    Likely slip: {result.diagnosis.hint}"
    return text
