"""Rebuild a submission from the released notebook: the learner's answers and own cells, everything else from the source.

Tests, points, tags and the order of cells come from the source alone, so that nothing that a learner or an editor did to
them matters. Answers are found by their grade id, else by the name that they define.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode

from transformer_lab.cells import grade_id_of, is_test, read_notebook

#: A submitted file larger than this is not opened.
MAX_BYTES = 50_000_000


@dataclass
class Intake:
    """A rebuilt notebook, ready to run, and one sentence for everything that was not as it should be."""

    notebook: NotebookNode
    remarks: list[str] = field(default_factory=list)


def read_submission(path: Path) -> NotebookNode:
    """The submitted notebook at ``path``.

    Raises ``ValueError`` with one sentence when it is no regular file, too large, or no notebook.
    """
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path.name} is not a regular file.")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(
            f"{path.name} has {path.stat().st_size / 1e6:.0f} MB; notebooks up to {MAX_BYTES / 1e6:.0f} MB are read."
        )
    return read_notebook(path)


def rebuild(source: NotebookNode, submitted: NotebookNode) -> Intake:
    """The notebook to run for grading.

    Parameters
    ----------
    source
        The released notebook with its graded cells.
    submitted
        What the learner handed in; only the sources of its code cells are used.

    Returns
    -------
    Intake
        The cells of ``source`` in their order. An answer cell holds the learner's text (the stub's where there is none);
        a plain code cell holds the learner's version of it; a cell that the learner added follows the cell that it
        followed in the submission. Copies of tests are dropped.
    """
    theirs = [cell for cell in submitted.cells if cell.cell_type == "code"]
    match, remarks = _match(source, theirs)
    added: dict[int, list[NotebookNode]] = {}
    anchor = -1
    partner = {id(cell): index for index, cell in match.items()}
    tests = {_normal(cell.source) for cell in source.cells if is_test(cell.metadata)}
    for cell in theirs:
        if id(cell) in partner:
            anchor = max(anchor, partner[id(cell)])
        elif _is_test_like(cell, tests):
            continue
        elif _text(cell).strip():
            added.setdefault(anchor, []).append(cell)
    notebook = source.copy()
    notebook.cells = list(map(_own, added.get(-1, [])))
    for index, cell in enumerate(source.cells):
        kept = cell.copy()
        if index in match:
            kept.source = _text(match[index])
        notebook.cells.append(kept)
        notebook.cells.extend(map(_own, added.get(index, [])))
    return Intake(notebook, remarks)


def _match(source: NotebookNode, theirs: list[NotebookNode]) -> tuple[dict[int, NotebookNode], list[str]]:
    """Which submitted cell stands for which source cell: answers and plain code cells only."""
    match: dict[int, NotebookNode] = {}
    remarks: list[str] = []
    taken: set[int] = set()
    free = [(i, c) for i, c in enumerate(source.cells) if c.cell_type == "code" and not is_test(c.metadata)]

    def take(index: int, cell: NotebookNode) -> None:
        match[index] = cell
        taken.add(id(cell))

    for index, cell in free:
        name = grade_id_of(cell.metadata)
        if not name:
            continue
        by_id = [c for c in theirs if grade_id_of(c.metadata) == name and id(c) not in taken]
        by_name = [c for c in theirs if not grade_id_of(c.metadata) and id(c) not in taken and _defines(_text(c), name)]
        candidates = by_id or by_name
        if (
            len(by_id) > 1
        ):  # a copied cell keeps its grade id: the one that defines the piece counts, the last of several
            candidates = [c for c in by_id if _defines(_text(c), name)] or by_id
            remarks.append(f"{name}: {len(by_id)} cells claim to be this answer; the last that defines it counts.")
        if candidates:
            take(index, candidates[-1])
            if not by_id:
                remarks.append(f"{name}: the cell had lost its nbgrader metadata and was found by the name it defines.")
        else:
            remarks.append(f"{name}: the answer cell is missing from the submission.")
    for index, cell in free:
        if grade_id_of(cell.metadata):
            continue
        same_id = [c for c in theirs if c.get("id") and c.get("id") == cell.get("id") and id(c) not in taken]
        same_text = [c for c in theirs if _normal(_text(c)) == _normal(cell.source) and id(c) not in taken]
        for candidate in (same_id or same_text)[:1]:
            take(index, candidate)
    return match, remarks


def _defines(text: str, name: str) -> bool:
    return (
        re.search(rf"^(?:async\s+def|def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", text, re.MULTILINE)
        is not None
    )


def _is_test_like(cell: NotebookNode, tests: set[str]) -> bool:
    return (
        grade_id_of(cell.metadata).startswith(("test_", "check_"))
        or is_test(cell.metadata)
        or _normal(_text(cell)) in tests
    )


def _text(cell: NotebookNode) -> str:
    return cell.source if isinstance(cell.source, str) else "".join(cell.source)


def _normal(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _own(cell: NotebookNode) -> NotebookNode:
    """A learner's own cell: the text alone, without tags, metadata or outputs."""
    import nbformat

    return nbformat.v4.new_code_cell(_text(cell))
