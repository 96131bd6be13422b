"""Notebooks as a learner hands them in: the stubs, with answers of the bank in their cells.

folder = filled.write(tmp_path, {"softmax": source, …})        # every stub, as tmp_path/NN_name/NN_name.ipynb
mine = pieces.load(folder)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat

from autograder import registry
from tests.bank import Entry
from transformer_lab.cells import grade_id_of, read_notebook

ROOT = Path(__file__).resolve().parents[2]
STUBS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*/*.ipynb"))


def chapters() -> dict[str, list[str]]:
    """The pieces of every chapter that has a notebook, by the notebook's name."""
    return {stub.stem: registry.pieces(stub.stem) for stub in STUBS}


def answer(entry: Entry) -> str:
    """The source of an entry as one cell of a notebook: without the other pieces, which the notebook has of its own."""
    others = set(registry.pieces()) - {entry.piece}
    lines = entry.source.splitlines(keepends=True)
    for node in reversed(ast.parse(entry.source).body):
        names = {node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()
        if isinstance(node, ast.Assign):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if names & others:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            del lines[first - 1 : node.end_lineno]
    return "".join(lines)


def notebook(stub: Path, answers: Mapping[str, str], own: Mapping[str, str] | None = None):
    """The stub with ``answers`` in its cells, and ``own`` cells of the learner before the answers whose names they have."""
    filled = read_notebook(stub)
    cells = []
    for cell in filled.cells:
        name = grade_id_of(cell.metadata)
        if own and name in own:
            cells.append(nbformat.v4.new_code_cell(own[name], id=f"own-{name}".replace("_", "-")))
        if name in answers:
            cell.source = answers[name]
        cell.source = re.sub(r'^PIECES = "builtin"', 'PIECES = "mine"', cell.source, flags=re.MULTILINE)
        cells.append(cell)
    filled.cells = cells
    return filled


def write(folder: Path, answers: Mapping[str, str], own: Mapping[str, str] | None = None, stubs=None) -> Path:
    """Write the stubs (all by default), filled, into a learner's folder; see :func:`notebook`."""
    for stub in STUBS if stubs is None else stubs:
        path = folder / stub.stem / stub.name
        path.parent.mkdir(parents=True)
        nbformat.write(notebook(stub, answers, own), path)
    return folder
