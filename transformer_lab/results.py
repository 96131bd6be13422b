"""The results of long runs: small files in ``results/``, made by a named command, that say how they came about.

    from transformer_lab import results

    timing = results.load("recurrence-cpu")
    timing.machine, timing.select(layer="lstm", threads=1)

A run that takes longer than a page may wait for is made once and committed. The file holds the command, the seed, the
versions, the machine in words and a digest of the code that made it; ``python -m transformer_lab.results`` says which
files no longer match their code, and fails when there is one.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import platform
import sys
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from transformer_lab.cells import read_cells
from transformer_lab.pieces import COURSE_ROOT

FOLDER = COURSE_ROOT / "results"
FIELDS = ("command", "machine", "seed", "versions", "code", "columns", "rows")


@dataclass(frozen=True)
class Result:
    """One file of ``results/``: where it comes from, and a table of ``columns`` and ``rows``."""

    command: str
    machine: str
    seed: int
    versions: dict[str, str]
    code: dict[str, str]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def select(self, **values: Any) -> list[dict[str, Any]]:
        """The rows whose columns have these values, in order, as dictionaries. KeyError for a column that is not there."""
        unknown = set(values) - set(self.columns)
        if unknown:
            raise KeyError(f"no column {', '.join(sorted(unknown))} among {', '.join(self.columns)}")
        found = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return [row for row in found if all(row[name] == value for name, value in values.items())]


def load(name: str, folder: Path = FOLDER) -> Result:
    """The result called ``name``, the file ``results/<name>.json``.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The file is no result: it cannot be read, a field is missing, or a row has more or fewer numbers than columns.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"There is no result {path}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        values = {field: content[field] for field in FIELDS}
        columns = tuple(values.pop("columns"))
        rows = tuple(tuple(row) for row in values.pop("rows"))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no result ({type(error).__name__}: {error}).") from error
    if not rows or any(len(row) != len(columns) for row in rows):
        raise ValueError(f"{path} is no result: it needs rows, each as long as its {len(columns)} columns.")
    return Result(**values, columns=columns, rows=rows)


def save(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    command: str,
    code: Iterable[str | Path],
    seed: int,
    machine: str,
    folder: Path = FOLDER,
) -> Path:
    """Write ``rows``, dictionaries with the same keys, as the result ``name``; returns the file's path.

    Parameters
    ----------
    command
        What one types to make the file again.
    code
        The files that decide the numbers, in the course's folder. Their digests are written down.
    machine
        The machine in words, as from :func:`describe_machine`.
    """
    columns = list(rows[0])
    if any(list(row) != columns for row in rows):
        raise ValueError("The rows of a result have the same columns in the same order.")
    files = [Path(file).resolve() for file in code]
    head = {
        "command": command,
        "machine": machine,
        "seed": seed,
        "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
        "code": {file.relative_to(COURSE_ROOT.resolve()).as_posix(): digest(file) for file in files},
        "columns": columns,
    }
    # One row per line, so that a difference between two versions can be read.
    lines = ",\n".join("  " + json.dumps(list(row.values()), ensure_ascii=False) for row in rows)
    text = json.dumps(head, ensure_ascii=False, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text, encoding="utf-8")
    return path


def digest(path: Path) -> str:
    """16 hexadecimal digits of the contents of ``path``.

    Of a Python file only what runs counts, and of a notebook's source only the cells that run when it is loaded as pieces:
    a comment, a docstring, the text of an exercise or its visible tests can be mended without a new run.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = _code_alone(text)
    elif path.suffix == ".md" and (cells := read_cells(path)):
        text = "\0".join(cell.source for cell in cells if cell.runs)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stale(folder: Path = FOLDER, root: Path = COURSE_ROOT) -> list[str]:
    """One sentence for each result in ``folder`` that was made by other code than ``root`` holds now."""
    sentences = []
    now = cache(lambda name: _digest_or_nothing(root / name))  # most files made several results
    for path in sorted(folder.glob("*.json")):
        result = load(path.stem, folder)
        changed = [name for name, then in result.code.items() if now(name) != then]
        if changed:
            sentences.append(f"{path.name} was made before {', '.join(changed)} changed; again: {result.command}")
    return sentences


def describe_machine(device: str = "cpu") -> str:
    """The machine that computes on ``device``, in words, without its name."""
    if torch.device(device).type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        named = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = named[0] if named else model
    return f"{model} processor, {torch.multiprocessing.cpu_count()} cores, {platform.system()}"


def _digest_or_nothing(path: Path) -> str | None:
    return digest(path) if path.is_file() else None


def _code_alone(source: str) -> str:
    """``source`` without comments, docstrings, empty lines and blanks at line ends."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                for row in range(first.lineno, (first.end_lineno or first.lineno) + 1):
                    lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def main() -> int:
    sentences = stale()
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    if not sentences:
        print(f"{len(list(FOLDER.glob('*.json')))} results, all made by the code as it is.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
