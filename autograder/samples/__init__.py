"""Sample submissions, one Markdown file per learner and chapter, from which real notebooks are made.

    from autograder import samples

    samples.write(course, notebooks)       # course/submitted/<student>/<assignment>/<assignment>.ipynb and timestamp.txt

A sample ``samples/<assignment>/<student>.md`` begins with YAML between two lines ``---``:

``student``, ``kind``
    The learner (the file's name) and what the submission is an example of.
``what``
    One sentence on what the learner did.
``saved_by``
    ``jupyterlab``, ``vscode`` or ``colab``: whose metadata the notebook has.
``files``
    What is handed in beside the notebook, if anything: the name there, and the file of the samples' folder that it is.
``expect``
    For every piece the points that it must earn, or a mapping with ``points``, ``diagnosis`` (the id of the known
    mistake that its failed checks must name, and no other; left out, nothing is claimed) and ``reason`` (why so many
    points, where that takes thinking).

Then come the cells in which the submission differs from the stub, as fenced code with an info string:

- ``python answer=softmax`` replaces an answer cell; an answer that is not given stays as in the stub;
- ``python add_before=softmax``, ``python add_after=softmax`` and ``python add_at=start`` are cells that the learner added;
- ``python test=test_softmax tags=skip-execution`` replaces a test cell and tags it; ``test=*`` means all of them;
- ``text output_of=test_softmax`` is what a cell printed when the learner ran it.

Cells are named by their grade id. Everything else comes from the stub, so that samples don't go stale.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from transformer_lab.cells import grade_id_of, is_test, read_notebook

FOLDER = Path(__file__).parent
EDITORS = ("jupyterlab", "vscode", "colab")
ACTIONS = ("answer", "add_before", "add_after", "add_at", "test", "output_of")


@dataclass(frozen=True)
class Expected:
    """What one piece of a sample must come to: its points, and the known mistake that its failed checks name, if claimed."""

    points: float
    diagnosis: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Edit:
    """One cell in which a sample differs from the stub: what is done (one of ``ACTIONS``), where, and the text."""

    action: str
    target: str
    text: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """One learner's submission for one chapter. ``expect`` has an entry for every piece, by name."""

    student: str
    assignment: str
    kind: str
    what: str
    saved_by: str
    expect: dict[str, Expected]
    edits: tuple[Edit, ...]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return sum(expected.points for expected in self.expect.values())


def samples(assignments: Iterable[str] | None = None) -> list[Sample]:
    """All samples, or those of the named assignments, in the order of chapter and student.

    Raises ``ValueError`` with one sentence for a file that is no sample.
    """
    wanted = None if assignments is None else set(assignments)
    files = sorted(FOLDER.glob("[0-9][0-9]_*/*.md"))
    return [read(file) for file in files if wanted is None or file.parent.name in wanted]


def read(path: Path) -> Sample:
    """The sample that the file ``samples/<assignment>/<student>.md`` describes; ``ValueError`` where it is none."""
    import yaml
    from markdown_it import MarkdownIt

    head, opened, rest = path.read_text(encoding="utf-8").partition("---\n")
    front, closed, body = rest.partition("\n---\n")
    if head or not opened or not closed:
        raise ValueError(f"{path}: a sample begins with its facts between two lines of ---.")
    try:
        facts = yaml.safe_load(front)
        expect = {piece: _expected(value) for piece, value in facts.pop("expect").items()}
        edits = tuple(_edit(t.info, t.content) for t in MarkdownIt().parse(body) if t.type == "fence")
        sample = Sample(assignment=path.parent.name, expect=expect, edits=edits, **facts)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    if sample.student != path.stem:
        raise ValueError(f"{path}: the student is called {sample.student}, the file {path.stem}.")
    if sample.saved_by not in EDITORS:
        raise ValueError(f"{path}: saved_by is one of {', '.join(EDITORS)}, not {sample.saved_by}.")
    return sample


def write(course: Path, notebooks: Path, assignments: Iterable[str] | None = None) -> list[Path]:
    """Hand in the samples: write them as submissions of an nbgrader course.

    Parameters
    ----------
    course
        The course's folder; ``submitted/<student>/<assignment>/`` gets the notebook, files beside it, ``timestamp.txt``.
    notebooks
        Where the released stubs are, as ``<assignment>/<assignment>.ipynb``.
    assignments
        Only these; all by default.

    Returns
    -------
    list[Path]
        The files that changed; the others keep their bytes and their time.

    Raises
    ------
    FileNotFoundError
        There is no stub of a chapter.
    ValueError
        A sample is damaged or names a cell that its stub has not.
    """
    changed = []
    for sample in samples(assignments):
        folder = Path(course) / "submitted" / sample.student / sample.assignment
        beside = {name: (FOLDER / sample.assignment / own).read_bytes() for name, own in sample.files.items()}
        for name, content in {
            f"{sample.assignment}.ipynb": notebook_text(sample, Path(notebooks)).encode(),
            **beside,
            # as `nbgrader submit` writes it
            "timestamp.txt": f"{_handed_in(sample):%Y-%m-%d %H:%M:%S.%f} UTC".encode(),
        }.items():
            path = folder / name
            if not path.is_file() or path.read_bytes() != content:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                changed.append(path)
    return changed


def notebook_text(sample: Sample, notebooks: Path) -> str:
    """The ``.ipynb`` file that the learner's editor saved; see :func:`write` for ``notebooks`` and what is raised."""
    stub = notebooks / sample.assignment / f"{sample.assignment}.ipynb"
    if not stub.is_file():
        raise FileNotFoundError(f"There is no stub {stub}: run `make notebooks`.")
    cells = _fill([_plain(cell) for cell in read_notebook(stub).cells], sample)
    save = {"jupyterlab": _saved_by_jupyterlab, "vscode": _saved_by_vscode, "colab": _saved_by_colab}
    return save[sample.saved_by](cells, sample)


# ---------------------------------------------------------------------------------------------------- reading a sample


def _expected(value: Any) -> Expected:
    return Expected(**value) if isinstance(value, dict) else Expected(float(value))


def _edit(info: str, text: str) -> Edit:
    language, *words = info.split()
    options = dict(word.split("=", 1) for word in words)
    tags = tuple(filter(None, options.pop("tags", "").split(",")))
    if len(options) != 1 or (action := next(iter(options))) not in ACTIONS:
        raise ValueError(f"the fence “{info}” names none or several of {', '.join(ACTIONS)}")
    if language != ("text" if action == "output_of" else "python") or (tags and action != "test"):
        raise ValueError(f"the fence “{info}” is not understood")
    return Edit(action, options[action], text.rstrip("\n"), tags)


# ------------------------------------------------------------------------------------------------------ filling a stub


def _plain(cell: Any) -> dict:
    """A cell of the stub as the dictionary that it is in the file, its source still one text."""
    return json.loads(json.dumps(cell))


def _fill(cells: list[dict], sample: Sample) -> list[dict]:
    before: dict[int, list[dict]] = {}
    after: dict[int, list[dict]] = {}
    count = 0
    for number, edit in enumerate(sample.edits):
        if edit.action == "add_at":
            if edit.target != "start":
                raise ValueError(f"{_name(sample)}: add_at={edit.target}: cells are added at the start only.")
            before.setdefault(id(cells[0]), []).append(_new_cell(edit, sample, number))
            continue
        found = [cell for cell in cells if grade_id_of(cell["metadata"]) and _matches(cell, edit)]
        if not found:
            raise ValueError(f"{_name(sample)}: {edit.action}={edit.target}: the stub has no such cell.")
        for cell in found:
            if edit.action == "add_before":
                before.setdefault(id(cell), []).append(_new_cell(edit, sample, number))
            elif edit.action == "add_after":
                after.setdefault(id(cell), []).append(_new_cell(edit, sample, number))
            elif edit.action == "output_of":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": edit.text + "\n"}]
            else:
                cell["source"] = edit.text
                if edit.tags:
                    cell["metadata"]["tags"] = list(edit.tags)
    return [c for cell in cells for c in (*before.get(id(cell), []), cell, *after.get(id(cell), []))]


def _matches(cell: dict, edit: Edit) -> bool:
    if edit.action == "test":
        return is_test(cell["metadata"]) and fnmatch(grade_id_of(cell["metadata"]), edit.target)
    if edit.action == "answer":
        return bool(cell["metadata"]["nbgrader"]["solution"]) and grade_id_of(cell["metadata"]) == edit.target
    return grade_id_of(cell["metadata"]) == edit.target


def _new_cell(edit: Edit, sample: Sample, number: int) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": str(_uuid(sample, f"cell {number}")),
        "metadata": {},
        "outputs": [],
        "source": edit.text,
    }


def _name(sample: Sample) -> str:
    return f"samples/{sample.assignment}/{sample.student}.md"


# ---------------------------------------------------------------------------------------- saving as the editors save it

#: What ipykernel reports and editors write down.
_LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": "3.12.3",
}


def _saved_by_jupyterlab(cells: list[dict], sample: Sample) -> str:
    """Cell ids, the kernel's display name and its language; JSON indented by one, keys in the order of the alphabet."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": _LANGUAGE}
    return _dump(
        {"cells": _in_lines(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1, sort_keys=True
    )


def _saved_by_vscode(cells: list[dict], sample: Sample) -> str:
    """The environment's name for the kernel, short cell ids, and a fingerprint of the interpreter."""
    for cell in cells:
        if len(cell["id"]) == 36:  # one that the learner added
            cell["id"] = cell["id"][:8]
    metadata = {
        "kernelspec": {"display_name": ".venv", "language": "python", "name": "python3"},
        "language_info": _LANGUAGE,
        "vscode": {"interpreter": {"hash": hashlib.sha256(sample.student.encode()).hexdigest()}},
    }
    return _dump({"cells": _in_lines(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _saved_by_colab(cells: list[dict], sample: Sample) -> str:
    """Format 4.0, where cells have no ids; Colab keeps its own in the cells' metadata and rewrites the notebook's."""
    for number, cell in enumerate(cells):
        del cell["id"]
        cell["metadata"]["id"] = _uuid(sample, f"place {number}").hex[:12]
        if cell.get("outputs"):
            cell["metadata"]["colab"] = {"base_uri": "https://localhost:8080/"}
            cell["metadata"]["outputId"] = str(_uuid(sample, f"output {number}"))
    metadata = {
        "colab": {"provenance": [], "gpuType": "T4"},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "accelerator": "GPU",
    }
    return _dump({"nbformat": 4, "nbformat_minor": 0, "metadata": metadata, "cells": _in_lines(cells)}, indent=2)


def _in_lines(cells: list[dict]) -> list[dict]:
    """Texts as the lists of lines that editors write."""
    for cell in cells:
        cell["source"] = cell["source"].splitlines(keepends=True)
        for output in cell.get("outputs", []):
            output["text"] = output["text"].splitlines(keepends=True)
    return cells


def _dump(notebook: dict, **options: Any) -> str:
    return json.dumps(notebook, ensure_ascii=False, **options) + "\n"


def _uuid(sample: Sample, what: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{_name(sample)}#{what}")


def _handed_in(sample: Sample) -> datetime:
    """A moment in the last day and a half before the chapter's deadline, the same every time."""
    deadline = datetime(2026, 3, 2, 18) + timedelta(weeks=int(sample.assignment[:2]))
    return deadline - timedelta(microseconds=_uuid(sample, "handed in").int % (36 * 3600 * 10**6))
