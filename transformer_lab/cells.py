"""Read the code cells of a notebook, whatever file it is stored in.

Three formats hold the same thing: a Jupyter notebook (``.ipynb``), its MyST Markdown source (``.md``, read through
jupytext) and a plain Python file (``.py``, one cell).
"""

from __future__ import annotations

import ast
import re
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


def is_test(metadata: dict) -> bool:
    """True for a cell that only tests: nbgrader knows it, and the learner writes nothing in it."""
    nbgrader = metadata.get("nbgrader") or {}
    return bool((nbgrader.get("grade") or nbgrader.get("locked")) and not nbgrader.get("solution"))


def read_notebook(path: Path):
    """The notebook at ``path`` (``.ipynb`` or MyST ``.md``) as an nbformat 4 node.

    Raises ``ValueError`` with one sentence when the file cannot be read as a notebook.
    """
    import nbformat

    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".md":
            import jupytext

            return jupytext.reads(text, fmt="md:myst")
        notebook = nbformat.reads(text, as_version=4)
        notebook.cells  # a JSON object that is no notebook fails here
        return notebook
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{path} cannot be read as a notebook ({detail}); open and save it once in Jupyter.") from error


def read_cells(path: Path) -> list[Cell]:
    """The code cells of ``path`` in order. A cell that tests or is tagged ``skip-execution`` has ``runs=False``."""
    if path.suffix == ".py":
        return [Cell(1, "", path.read_text(encoding="utf-8-sig"), True)]
    cells = []
    for number, cell in enumerate(read_notebook(path).cells, start=1):
        if cell.cell_type != "code":
            continue
        metadata = cell.metadata
        runs = not is_test(metadata) and SKIP_TAG not in (metadata.get("tags") or [])
        name = str((metadata.get("nbgrader") or {}).get("grade_id") or "")
        cells.append(Cell(number, name, "".join(cell.source), runs))
    return cells


_MAGIC = re.compile(r"^(\s*)(%|!|\?)")


def plain_python(source: str) -> str:
    """``source`` without IPython's magics and shell lines, every other line where it was.

    ``%matplotlib inline`` and ``!pip install …`` prepare a notebook; they define no piece.
    """
    try:
        ast.parse(source)
        return source
    except SyntaxError:
        pass
    lines = source.splitlines()
    if lines and lines[0].startswith("%%"):
        keeps_python = lines[0].split()[0] in ("%%time", "%%timeit", "%%capture", "%%prun")
        return "\n".join([""] + lines[1:]) if keeps_python else ""
    kept = [_MAGIC.sub(r"\1pass  # \2", line) if _MAGIC.match(line) else line for line in lines]
    return "\n".join(kept)
