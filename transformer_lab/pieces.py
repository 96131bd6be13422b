"""Turn notebooks into a namespace of the pieces that they define.

    from transformer_lab import pieces

    reference = pieces.load("solutions")                 # every chapter's solution cells
    mine = pieces.load("notebooks/03_attention")         # one learner's notebook
    mine.softmax, mine.SelfAttention                     # its pieces

Each notebook becomes one module whose text is one pseudo-file, kept in ``linecache`` and never written to disk, so that
tracebacks and ``inspect.getsource`` show the learner's own lines and name the notebook and the cell.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import os
import re
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

from transformer_lab.cells import FORMATS, Cell, lines_of, plain_python, read_cells

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
        object.__setattr__(self, "_cells", {})

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
        loaded in the order of their names; a later definition replaces an earlier one, a name that a notebook only
        imports does not). The name ``"builtin"`` gives PyTorch's own layers. A relative path is looked up from the
        working directory, then from the course's folder.

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
    return _load_files(_files(_resolve(path)), str(path))


def earlier(choice: str = "builtin") -> Pieces:
    """The pieces of earlier chapters that a notebook builds on.

    Parameters
    ----------
    choice
        ``"builtin"`` for PyTorch's own layers behind the course's names, ``"mine"`` for the notebooks of the chapters
        before this one, or a path for :func:`load`. The environment variable ``TRANSFORMER_LAB_PIECES`` overrides it.
    """
    choice = os.environ.get(PIECES_VARIABLE, choice)
    if choice != "mine":
        return load(choice)
    here = _loading[-1] if _loading else Path.cwd()
    folder = _notebooks_folder(here)
    files = _files(folder)
    if here != folder and here.is_relative_to(folder):
        own = here.relative_to(folder).parts[0]
        files = [file for file in files if file.relative_to(folder).parts[0] < own]
    pieces = _load_files(files, f"{folder} before this chapter")
    for error in pieces.cell_errors:
        print(f"One of your own pieces fails first: {error}")
    return pieces


def cells_of(pieces: Pieces, name: str) -> list[Cell]:
    """The code cells of the notebook from which ``pieces`` has ``name``; none for a name that no notebook defines."""
    return list(vars(pieces)["_cells"].get(name, []))


def locate(filename: str, line: int) -> str | None:
    """``(notebook, cell, line of the cell)`` in words for a line of a loaded notebook, or None for any other file."""
    place = _places.get(filename)
    if place is None:
        return None
    notebook, cell, offset = place
    return f"{notebook.name}, {cell.label}, line {line - offset}"


# --------------------------------------------------------------------------------------------------------------------

_places: dict[str, tuple[Path, Cell, int]] = {}
#: The cells of each loaded notebook, by the name of its module.
_cells: dict[str, list[Cell]] = {}
_loading: list[Path] = []
#: What the outermost load has loaded so far: chapter 3 asks for chapter 2, which has been loaded just before.
_loaded: dict[Path, tuple[types.ModuleType, list[CellError]]] | None = None


def _load_files(files: list[Path], source: str) -> Pieces:
    global _loaded
    outermost = _loaded is None
    if _loaded is None:
        _loaded = {}
    pieces = Pieces(source)
    try:
        for file in files:
            if file not in _loaded:
                _loaded[file] = _load_file(file)
            module, errors = _loaded[file]
            for name, value in _public(vars(module)).items():
                imported = isinstance(value, (type, types.FunctionType)) and value.__module__ != module.__name__
                if name != "cell_errors" and not (imported and name in vars(pieces)):
                    setattr(pieces, name, value)
                    vars(pieces)["_cells"][name] = _cells[module.__name__]
            pieces.cell_errors.extend(errors)
    finally:
        if outermost:
            _loaded = None
    return pieces


def _public(names: dict) -> dict:
    return {name: value for name, value in names.items() if not name.startswith("_")}


def _resolve(path: str | Path) -> Path:
    path = Path(path)
    for candidate in (path, COURSE_ROOT / path):
        if candidate.exists():
            return candidate.resolve()
    raise FileNotFoundError(
        f"Nothing to load at {path}: give a notebook (.ipynb or .md), a .py file or a folder of them."
    )


def _notebooks_folder(start: Path) -> Path:
    """The folder of notebooks around ``start``: ``notebooks/NN_name`` or any folder inside ``notebooks``."""
    for folder in (start, *start.parents):
        if folder.name == "notebooks":
            return folder
        if (folder / "notebooks").is_dir():
            return folder / "notebooks"
    raise FileNotFoundError(
        'PIECES = "mine" needs the folder "notebooks" around this notebook; use PIECES = "builtin".'
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix not in FORMATS:
            raise ValueError(f"{path} is none of {', '.join(FORMATS)}.")
        return [path]
    here = [f for f in path.iterdir() if f.is_file() and f.suffix in FORMATS]
    folders = [f for f in path.iterdir() if f.is_dir() and not f.name.startswith((".", "_"))]  # not .ipynb_checkpoints
    below = [f for folder in folders for f in folder.iterdir() if f.is_file() and f.suffix in FORMATS]
    files = [f for f in here + below if not f.name.startswith((".", "_"))]
    if not files:
        raise FileNotFoundError(f"{path} holds no notebook (.ipynb, .md) and no .py file.")
    return sorted(files, key=lambda file: (file.name, file))


def _load_file(path: Path) -> tuple[types.ModuleType, list[CellError]]:
    cells = read_cells(path)
    digest = hashlib.sha256("\0".join([str(path), *(cell.source for cell in cells)]).encode()).hexdigest()[:10]
    module = types.ModuleType(f"pieces_{digest}.{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}")
    module.__file__ = str(path)
    _cells[module.__name__] = cells
    if path in _loading:  # a notebook that asks for "mine" while it is itself being loaded
        return module, []
    sys.modules[module.__name__] = module
    _loading.append(path)
    errors = []
    try:
        placed = _register(path, cells)
        text = _ModuleText(str(path)) if path.suffix != ".py" else None
        for cell, filename, offset in placed:
            if not cell.runs:
                continue
            try:
                source = plain_python(cell.source)
                code = compile("\n" * offset + source, filename, "exec", dont_inherit=True)
                if text:
                    text.add(offset, source)
                exec(code, module.__dict__)
            except (Exception, SystemExit) as error:
                errors.append(CellError(path, cell.label, _line_of(error, filename, offset), error))
    finally:
        _loading.remove(path)
    return module, errors


def _register(path: Path, cells: list[Cell]) -> list[tuple[Cell, str, int]]:
    """Lay the cells under each other; every cell gets a pseudo-file of its own in which its lines keep that place.

    One name per cell, because a traceback shows the file's name and the learner looks for the cell; one place per line,
    because ``inspect.getsource`` finds a class by its module's file (:class:`_ModuleText`) and there by its line.
    """
    if path.suffix == ".py":
        linecache.checkcache(str(path))
        return [(cells[0], str(path), 0)]
    placed = []
    offset = 0
    for cell in cells:
        filename = f"{path} [{cell.label}]"
        lines = lines_of(cell.source)
        _remember(filename, ["\n"] * offset + [line + "\n" for line in lines])
        _places[filename] = (path, cell, offset)
        placed.append((cell, filename, offset))
        offset += len(lines) + 1
    return placed


class _ModuleText:
    """What has run so far, every line in its place, without the classes that a later cell defined again.

    ``inspect.getsource`` looks for a class in the text of its module. Up to Python 3.12 it parses that text and takes
    the first class of the name: neither a cell that is no Python nor an overwritten class may stand in it.
    """

    def __init__(self, filename: str):
        self.lines: list[str] = []
        self.classes: dict[str, tuple[int, int]] = {}
        _remember(filename, self.lines)

    def add(self, offset: int, source: str) -> None:
        self.lines += ["\n"] * (offset - len(self.lines)) + [line + "\n" for line in lines_of(source)]
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                start, end = self.classes.get(node.name, (0, 0))
                self.lines[start:end] = ["\n"] * (end - start)
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                self.classes[node.name] = (offset + first - 1, offset + (node.end_lineno or first))


def _remember(filename: str, lines: list[str]) -> None:
    # No modification time: linecache never looks for the file on disk.
    linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)


def _line_of(error: BaseException, filename: str, offset: int) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == filename and error.lineno:
        return error.lineno - offset
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    return lines[-1] - offset if lines and lines[-1] else None
