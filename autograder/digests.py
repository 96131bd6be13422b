"""What decides a score, as digests: equal digests, equal outcome.

A change must lead to a new judging where it can change the outcome, and only there. So an assignment's digest covers the
code that judges, what the learner's code may import, and of the checks and known mistakes those of its own chapter, with
whatever these import; not the pages, the command line or the other chapters.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

from autograder import intake
from transformer_lab.results import digest
from transformer_lab.weights import WeightsError, read_bytes

PACKAGE = Path(__file__).parent
LAB = PACKAGE.parent / "transformer_lab"

#: Where judging begins; what these import belongs to it.
ROOTS = ("grade.py", "kernel_main.py", "kernel_app.py")

#: What ``grade.py`` uses besides: it writes or shows outcomes and decides none.
ASIDE = ("cli.py", "digests.py", "feedback.py", "gradebook.py", "journal.py", "pool.py", "report.py")

#: What learners' code runs with.
PACKAGES = ("torch", "numpy", "ipython", "ipykernel")


@cache
def of_code(assignment: str) -> str:
    """Of everything besides a submission that decides its score, for one assignment.

    Of Python files only what runs counts (:func:`transformer_lab.results.digest`).
    """
    whole = hashlib.sha256(platform.python_version().encode())
    for name in PACKAGES:
        whole.update(f"{name} {version(name)}\0".encode())
    for path in files(assignment):
        whole.update(f"{path.relative_to(PACKAGE.parent)} {_digest(path)}\0".encode())
    return whole.hexdigest()


@cache
def files(assignment: str) -> list[Path]:
    """The files of code that decide the scores of an assignment."""
    chapter = assignment[:2]
    own = [path for folder in ("checks", "misconceptions") for path in (PACKAGE / folder).glob(f"ch{chapter}_*.py")]
    found: set[Path] = set()
    new = [*(PACKAGE / name for name in ROOTS), *own]
    while new:
        path = new.pop()
        if path not in found:
            found.add(path)
            new += _imported(path)
    return sorted(found | set(LAB.rglob("*.py")))


@cache
def _digest(path: Path) -> str:
    """A file's digest as it was when this process first asked: most files belong to every assignment."""
    return digest(path)


@cache
def _imported(path: Path) -> list[Path]:
    """The files of this package that a file imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    aside = {PACKAGE / name for name in ASIDE}
    found = []
    for name in names:
        if name.partition(".")[0] == PACKAGE.name:
            place = PACKAGE.joinpath(*name.split(".")[1:])
            found += [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return [file for file in found if file not in aside]


def of_submission(folder: Path) -> str:
    """Of everything in a submission's folder that grading may look at."""
    whole = hashlib.sha256()
    for path in intake.listing(folder):
        whole.update(os.fsencode(path.relative_to(folder)) + b"\0" + content(path) + b"\0")
    return whole.hexdigest()


def content(path: Path) -> bytes:
    """What a file holds, or why it is not read."""
    try:
        return read_bytes(path, intake.MAX_BYTES)
    except (OSError, WeightsError) as error:
        return str(error).encode(errors="surrogateescape")
