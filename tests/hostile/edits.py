"""What techniques do to a notebook beyond its answers, and to the files beside it."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat


def _graded(notebook):
    return [cell for cell in notebook.cells if (cell.metadata.get("nbgrader") or {}).get("grade")]


def end_tests_with_number(notebook) -> None:
    for cell in _graded(notebook):
        cell.source = "20"
        cell.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": "20"})]


def skip_tests(notebook) -> None:
    for cell in _graded(notebook):
        cell.metadata["tags"] = ["skip-execution"]


def rewrite_tests(notebook) -> None:
    for cell in list(_graded(notebook)):
        cell.source = 'print("all is well")'
        cell.metadata["nbgrader"]["points"] = 1000
        notebook.cells.append(nbformat.from_dict(cell))


def forge_flags(notebook) -> None:
    for cell in notebook.cells:
        flags = cell.metadata.get("nbgrader")
        if flags:
            flags |= {
                "grade": not flags.get("grade"),
                "solution": not flags.get("solution"),
                "locked": False,
                "points": 20,
            }


def take_grade_ids(notebook) -> None:
    for name in ("check_softmax", "check_SelfAttention", "../../../gradebook", "x" * 100_000):
        cell = nbformat.v4.new_code_cell("20")
        cell.metadata["nbgrader"] = {"grade_id": name, "grade": True, "points": 20, "solution": False, "locked": False}
        notebook.cells.insert(0, cell)


def link_to_source(path: Path, course: Path) -> None:
    path.symlink_to(course / "source/03_attention/03_attention.ipynb")


def named_pipe(path: Path, course: Path) -> None:
    os.mkfifo(path)


def huge_file(path: Path, course: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)
