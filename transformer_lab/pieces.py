"""Turn notebooks into a namespace of the pieces that they define.

    from transformer_lab import pieces

    reference = pieces.load("solutions")                 # every chapter's solution cells
    mine = pieces.load("notebooks/03_attention")         # one learner's notebook
    mine.softmax, mine.SelfAttention                     # its pieces

Each notebook becomes one module whose text is one pseudo-file, kept in ``linecache`` and never written to disk, so that
tracebacks and ``inspect.getsource`` show the learner's own lines and name the notebook and the cell.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import re
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

from transformer_lab.cells import FORMATS, Cell, plain_python, read_cells

#: Set to a folder, ``builtin`` or ``solutions`` to override what notebooks ask of :func:`earlier`.
PIECES_VARIABLE = "TRANSFORMER_LAB_PIECES"

COURSE_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class CellError:
    """A cell that raised while its notebook was loaded."""

    notebook: Path
    cell: str
    line: int | None
    error: BaseException

    def __str__(self) -> str:
        where = f"{self.notebook.name}, {self.cell}" + (f", line {self.line}" if self.line else "")
        detail = self.error.msg if isinstance(self.error, SyntaxError) else str(self.error)
        return f"{where}: {type(self.error).__name__}" + (f": {detail}" if detail else "")


class Pieces(types.SimpleNamespace):
    """A namespace of pieces: what the notebooks define, as attributes.

    ``cell_errors`` lists the cells that raised; asking for a name that is not there says so and repeats them.
    """

    cell_errors: list[CellError]

    def __init__(self, source: str = "", **names):
        super().__init__(**names)
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "cell_errors", [])

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        message = f"{self._source or 'this namespace'} defines no {name}"
        if self.cell_errors:
            message += "; a cell failed: " + "; ".join(map(str, self.cell_errors))
        raise AttributeError(message)

    def __repr__(self) -> str:
        names = sorted(name for name in vars(self) if not name.startswith("_") and name != "cell_errors")
        return f"Pieces({self._source}: {', '.join(names)})"


def load(path: str | Path) -> Pieces:
    """The pieces that ``path`` defines.

    Parameters
    ----------
    path
        A notebook (``.ipynb``, or MyST Markdown ``.md``), a Python file, or a folder of them (searched one level deep,
        loaded in the order of their names; a later definition replaces an earlier one). The name ``"builtin"`` gives
        PyTorch's own layers. A relative path is looked up from the working directory, then from the course's folder.

    Returns
    -------
    Pieces
        Every public name that the cells define. A cell that raises is listed in ``cell_errors`` and does not keep the
        others from running. Test cells and cells tagged ``skip-execution`` do not run.

    Raises
    ------
    FileNotFoundError
        Nothing to load at ``path``.
    ValueError
        A file there is no notebook.
    """
    if str(path) == "builtin":
        from transformer_lab import builtin

        return Pieces("transformer_lab.builtin", **_public(vars(builtin)))
    resolved = _resolve(path)
    pieces = Pieces(str(path))
    for file in _files(resolved):
        module, errors = _load_file(file)
        vars(pieces).update(_public(vars(module)))
        pieces.cell_errors.extend(errors)
    return pieces


def earlier(choice: str = "builtin") -> Pieces:
    """The pieces of earlier chapters that a notebook builds on.

    Parameters
    ----------
    choice
        ``"builtin"`` for PyTorch's own layers behind the course's names, ``"mine"`` for the notebooks beside this one,
        or a path for :func:`load`. The environment variable ``TRANSFORMER_LAB_PIECES`` overrides it.
    """
    choice = os.environ.get(PIECES_VARIABLE, choice)
    if choice != "mine":
        return load(choice)
    folder = _notebooks_folder(Path.cwd())
    pieces = load(folder)
    for error in pieces.cell_errors:
        print(f"One of your own pieces fails first: {error}")
    return pieces


def locate(filename: str, line: int) -> str | None:
    """``(notebook, cell, line of the cell)`` in words for a line of a loaded notebook, or None for any other file."""
    place = _places.get(filename)
    if place is None:
        return None
    notebook, cell, offset = place
    return f"{notebook.name}, {cell.label}, line {line - offset}"


# --------------------------------------------------------------------------------------------------------------------

_places: dict[str, tuple[Path, Cell, int]] = {}
_loading: set[Path] = set()


def _public(names: dict) -> dict:
    return {name: value for name, value in names.items() if not name.startswith("_")}


def _resolve(path: str | Path) -> Path:
    path = Path(path)
    for candidate in (path, COURSE_ROOT / path):
        if candidate.exists():
            return candidate.resolve()
    raise FileNotFoundError(f"Nothing to load at {path}: give a notebook (.ipynb or .md), a .py file or a folder of them.")


def _notebooks_folder(start: Path) -> Path:
    """The folder of notebooks around ``start``: ``notebooks/NN_name`` or any folder inside ``notebooks``."""
    for folder in (start, *start.parents):
        if folder.name == "notebooks":
            return folder
        if (folder / "notebooks").is_dir():
            return folder / "notebooks"
    raise FileNotFoundError('PIECES = "mine" needs the folder "notebooks" around this notebook; use PIECES = "builtin".')


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix not in FORMATS:
            raise ValueError(f"{path} is none of {', '.join(FORMATS)}.")
        return [path]
    here = [f for f in path.iterdir() if f.is_file() and f.suffix in FORMATS]
    below = [f for folder in path.iterdir() if folder.is_dir() for f in folder.iterdir() if f.suffix in FORMATS]
    files = [f for f in here + below if not f.name.startswith((".", "_"))]
    if not files:
        raise FileNotFoundError(f"{path} holds no notebook (.ipynb, .md) and no .py file.")
    return sorted(files, key=lambda file: (file.name, file))


def _load_file(path: Path) -> tuple[types.ModuleType, list[CellError]]:
    cells = read_cells(path)
    digest = hashlib.sha256("\0".join([str(path), *(cell.source for cell in cells)]).encode()).hexdigest()[:10]
    module = types.ModuleType(f"pieces_{digest}.{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}")
    module.__file__ = str(path)
    if path in _loading:  # a notebook that asks for "mine" while it is itself being loaded
        return module, []
    sys.modules[module.__name__] = module
    _loading.add(path)
    errors = []
    try:
        for cell, filename, offset in _register(path, cells):
            if not cell.runs:
                continue
            try:
                source = "\n" * offset + plain_python(cell.source)
                exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
            except (Exception, SystemExit) as error:
                errors.append(CellError(path, cell.label, _line_of(error, filename, offset), error))
    finally:
        _loading.discard(path)
    return module, errors


def _register(path: Path, cells: list[Cell]) -> list[tuple[Cell, str, int]]:
    """Lay the cells under each other in one pseudo-file; every cell gets a file name of its own and true lines in it.

    One text for all cells, because ``inspect.getsource`` finds a class by its module's file; one name per cell, because
    a traceback shows the file's name and the learner looks for the cell.
    """
    if path.suffix == ".py":
        return [(cells[0], str(path), 0)]
    lines: list[str] = []
    placed = []
    for cell in cells:
        filename = f"{path} [{cell.label}]"
        placed.append((cell, filename, len(lines)))
        lines.extend(line + "\n" for line in cell.source.splitlines() + [""])
    text = "".join(lines)
    for name in [str(path), *(filename for _, filename, _ in placed)]:
        linecache.cache[name] = (len(text), None, lines, name)  # mtime None: linecache never looks for the file
    for cell, filename, offset in placed:
        _places[filename] = (path, cell, offset)
    return placed


def _line_of(error: BaseException, filename: str, offset: int) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == filename and error.lineno:
        return error.lineno - offset
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    return lines[-1] - offset if lines and lines[-1] else None
