# ruff: noqa: E501 - sentences of a table, and programs
"""The page of the book that lists the techniques: ``python -m tests.hostile.page`` writes it."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.techniques import FAMILIES, TECHNIQUES

PATH = Path(__file__).resolve().parents[2] / "book/instructors/hostile.md"

HEAD = """\
(hostile)=
# What a notebook may try, and what stops it

{{.question}}
Can you grade notebooks of people whom you don't know?

A notebook is a program of somebody else's that you run on your machine, with marks as a prize.
The grader therefore expects that every notebook is hostile.
This page lists what was tried on it: {count} techniques, collected from published attacks on graders and added to.
Each one is a notebook in `tests/hostile`, graded by the real grader whenever the tests run, a few slow ones when the long tests do, in one class with honest learners.
It must get the points that its answers are worth and no more, honest learners must get all of theirs, and no file, process, message or page may bear a trace.

## The three walls

The verdict is made outside.
: A learner's code runs in a kernel of its own; the hidden checks run in another process and see of the kernel nothing but numbers that come back.
  Inputs are new for every course and round, and neither expected values nor the checks themselves are ever where a learner's code could read them.
  Whoever takes over the kernel altogether can still answer with the right numbers only by computing them.

The kernel is shut in.
: The outer wall is [bubblewrap](https://github.com/containers/bubblewrap): an empty network, a read-only system, nothing of the course.
  Inside, a warm parent that has PyTorch loaded forks a kernel for each learner, and each fork goes behind a wall of its own before anything of the learner's runs: namespaces for users, processes, mounts, network and messages, a private `/tmp`, no rights, and no way to get any.
  Seen from outside it is a user without rights, even when you grade as root, unless only root can read your installation of Python.
  Memory and processes are bounded by control groups, files and time by the system's limits and the grader's own clock.

Nothing that is handed in is believed.
: The notebook is rebuilt from the released one, with the texts of the answers put in; tags, points, tests and order are yours.
  Files are read up to a size and through no link.
  What learners' code shows is cleaned before it is put on a page, and pages hold no script.

`autograder sandbox` says whether all of this holds on your machine.
Where a limit can't be enforced, for want of control groups for example, grading is refused unless you accept it with `--accept-unenforced`.

## What was tried
"""

TAIL = """
## What this does not stop

A fault of the system.
: The walls are those of Linux.
  Who finds a way through its kernel finds one through these walls; keep the machine up to date, and let nothing else of value be on it.

A grader without a sandbox.
: `nbgrader autograde` runs learners' code as you, and so does `autograder grade --sandbox none`; both are for notebooks that you trust.

Copying.
: Right numbers are right whoever computed them.
"""


def text() -> str:
    """The page, in MyST Markdown."""
    parts = [HEAD.format(count=len(TECHNIQUES))]
    for family, title in FAMILIES.items():
        parts.append(f"\n### {title}\n\n| what is tried | what stops it | points |\n| :-- | :-- | --: |")
        for technique in TECHNIQUES:
            if technique.family == family:
                points = "–" if technique.status != "graded" else f"{technique.points:g}"
                parts.append(f"\n| {technique.tries} | {technique.stops} | {points} |")
        parts.append("\n")
    parts.append(
        "\nPoints are those of the first piece of chapter 3, 5 of 20: where the answer is right, they are earned, whatever "
        "else the notebook tries.\n"
    )
    return "".join(parts) + TAIL


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
