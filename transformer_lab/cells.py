"""Read the code cells of a notebook, whatever file it is stored in.

Three formats hold the same thing: a Jupyter notebook (``.ipynb``), its MyST Markdown source (``.md``, read through
jupytext) and a plain Python file (``.py``, one cell).
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SKIP_TAG = "skip-execution"
FORMATS = (".ipynb", ".md", ".py")


@dataclass(frozen=True)
class Cell:
    """One code cell: its place among all cells of the notebook (from 1), a name if it has one, and its source."""

    number: int
    name: str
    source: str
    runs: bool

    @property
    def label(self) -> str:
        return f"cell {self.number}" + (f" ({self.name})" if self.name else "")


def nbgrader_flags(metadata: dict) -> dict:
    """What nbgrader notes in a cell's metadata: ``grade``, ``solution``, …; empty for a cell that it does not know."""
    flags = metadata.get("nbgrader")
    return flags if isinstance(flags, dict) else {}  # what a learner hands in may hold anything


def grade_id_of(metadata: dict) -> str:
    """The name by which nbgrader knows a cell, or nothing."""
    return str(nbgrader_flags(metadata).get("grade_id") or "")


def points_of(metadata: dict) -> float:
    """The points that a cell is worth: 0 for the visible tests, which nbgrader grades too, and for any other cell."""
    flags = nbgrader_flags(metadata)
    return float(flags.get("points") or 0) if flags.get("grade") else 0.0


def is_test(metadata: dict) -> bool:
    """True for a cell that only tests: nbgrader knows it, and the learner writes nothing in it."""
    flags = nbgrader_flags(metadata)
    return bool((flags.get("grade") or flags.get("locked")) and not flags.get("solution"))


def read_notebook(path: Path):
    """The notebook at ``path`` (``.ipynb`` or MyST ``.md``) as an nbformat 4 node.

    Raises ``ValueError`` with one sentence when the file cannot be read as a notebook.
    """
    with _without_grammars():
        if path.suffix == ".md":
            import jupytext  # learners have no .md files and may lack it
        else:
            import nbformat

    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".md":
            return jupytext.reads(text, fmt="md:myst")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cells without an id are the rule in notebooks of older programs
            notebook = nbformat.reads(text, as_version=4)
        for cell in notebook.cells:  # what nbformat only logs must not surface as an AttributeError later
            cell.cell_type, cell.source, cell.metadata  # noqa: B018
        return notebook
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{path} cannot be read as a notebook ({detail}); open and save it once in Jupyter."
        ) from error


@contextmanager
def _without_grammars() -> Iterator[None]:
    """Import ``nbformat`` in half a second instead of three, where Jupyter's server is installed.

    It imports ``jsonschema``, which builds 39 grammars of internationalised addresses if ``rfc3987_syntax`` is there. No
    notebook's schema has such an address.
    """
    spared = "rfc3987_syntax" not in sys.modules
    if spared:
        sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # importing it fails
    try:
        yield
    finally:
        if spared:
            del sys.modules["rfc3987_syntax"]


def read_cells(path: Path) -> list[Cell]:
    """The code cells of ``path`` in order. A cell that tests or is tagged ``skip-execution`` has ``runs=False``."""
    if path.suffix == ".py":
        try:
            return [Cell(1, "", path.read_text(encoding="utf-8-sig"), True)]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no text in UTF-8 ({error}).") from error
    cells = []
    for number, cell in enumerate(read_notebook(path).cells, start=1):
        if cell.cell_type != "code":
            continue
        metadata = cell.metadata
        runs = not is_test(metadata) and SKIP_TAG not in (metadata.get("tags") or [])
        cells.append(Cell(number, grade_id_of(metadata), "".join(cell.source), runs))
    return cells


def lines_of(source: str) -> list[str]:
    """The lines of ``source`` as Python counts them; ``str.splitlines`` also breaks at form feeds and the like."""
    return re.split(r"\r\n|\r|\n", source)


_MAGIC = re.compile(r"\s*([%!?]|[\w.]+\?{1,2}\s*$)")
_TIMING = ("%%time", "%%timeit", "%%capture", "%%prun")


def plain_python(source: str) -> str:
    """``source`` without IPython's magics, shell and help lines, every other line where it was.

    ``%matplotlib inline`` and ``!pip install …`` prepare a notebook; they define no piece. Only a line at which Python
    itself gives up is taken for one, so that a continued ``% modulus`` or a line of a string stays as it is.
    """
    lines = lines_of(source)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        if lines[first].split()[0] not in _TIMING:
            return ""
        lines[first] = ""
    while True:
        text = "\n".join(lines)
        try:
            ast.parse(text)
            return text
        except (SyntaxError, ValueError) as error:  # a null character is a ValueError before Python 3.11.4
            at = (getattr(error, "lineno", None) or 0) - 1
        if not (0 <= at < len(lines) and _MAGIC.match(lines[at])):
            return text
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        while lines[at].endswith("\\") and at + 1 < len(lines):  # a shell line may go on in the next one
            lines[at], at = "", at + 1
        lines[at] = f"{indent}pass"
