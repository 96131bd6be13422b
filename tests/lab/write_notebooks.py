"""Small notebooks for the tests, written as the text that stands in the file."""

from __future__ import annotations

import json
from pathlib import Path


def code(source: str, **metadata) -> dict:
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


def markdown(source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def answer(source: str, name: str) -> dict:
    return code(
        source, nbgrader={"grade_id": name, "solution": True, "grade": False, "locked": False, "schema_version": 3}
    )


def checked(source: str, name: str, grade: bool = False) -> dict:
    known = {"grade_id": name, "solution": False, "grade": grade, "locked": True, "schema_version": 3}
    return code(source, nbgrader=known | ({"points": 1} if grade else {}))


def notebook(*cells: dict, minor: int = 4, **metadata) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": list(cells)})


def write(path: Path, *cells: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(notebook(*cells), encoding="utf-8")
    return path
