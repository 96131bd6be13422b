"""The files of an nbgrader course folder, how they are written, and the notebook that a submission is rebuilt on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from transformer_lab.cells import nbgrader_flags, read_notebook

#: How the names of archives end, and what is to be done with one.
ARCHIVES = (".zip", ".rar", ".7z", ".gz", ".tgz", ".tar", ".bz2", ".xz")
UNPACK = "unpack it to submitted/<student>/<assignment>/"


class CourseError(RuntimeError):
    """The course folder is not as it must be; the message says what to do."""


@dataclass(frozen=True)
class Submission:
    """One learner's folder for one assignment."""

    student: str
    folder: Path


@dataclass(frozen=True)
class Course:
    """An nbgrader course folder with nbgrader's default layout."""

    root: Path

    @property
    def db_url(self) -> str:
        return f"sqlite:///{self.root / 'gradebook.db'}"

    @property
    def course_id(self) -> str:
        return "transformer-piece-by-piece"

    def source(self, assignment: str) -> Path:
        return self.root / "source" / assignment / f"{assignment}.ipynb"

    def released(self, assignment: str) -> Path:
        return self.root / "release" / assignment / f"{assignment}.ipynb"

    def autograded(self, student: str, assignment: str) -> Path:
        return self.root / "autograded" / student / assignment / f"{assignment}.ipynb"

    def record(self, student: str, assignment: str) -> Path:
        return self.root / "results" / assignment / f"{student}.json"

    def journal(self, assignment: str) -> Path:
        return self.root / "journal" / f"{assignment}.jsonl"

    def assignments(self) -> list[str]:
        """The assignments that have a source, in the order of their names."""
        folder = self.root / "source"
        return sorted(f.name for f in folder.iterdir() if self.source(f.name).exists()) if folder.is_dir() else []

    def submissions(self, assignment: str) -> list[Submission]:
        """Who handed in something for ``assignment``, in the order of names. Links are not followed."""
        folder = self.root / "submitted"
        found = []
        for student in sorted(folder.iterdir()) if folder.is_dir() else []:
            place = student / assignment
            if place.is_dir() and not place.is_symlink() and not student.is_symlink() and is_text(student.name):
                found.append(Submission(student.name, place))
        return found

    def passed_over(self) -> list[str]:
        """One sentence for everything in ``submitted/`` that was meant as a submission and can't be graded as it lies there."""
        folder = self.root / "submitted"
        found = []
        for student in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not is_text(student.name):
                name = os.fsencode(student.name).decode("utf-8", "backslashreplace")
                found.append(f"The name of submitted/{name} is no UTF-8, so it is passed over: give it another name.")
                continue
            inside = sorted(student.iterdir()) if student.is_dir() and not student.is_symlink() else [student]
            for path in inside:
                if path.suffix.lower() in ARCHIVES and path.is_file() and is_text(path.name):
                    place = path.relative_to(self.root).as_posix()
                    found.append(f"{place} is an archive and is passed over: {UNPACK}.")
        return found

    def graded_base(self, assignment: str) -> NotebookNode:
        """The released notebook with the hidden tests put back: what every submission is rebuilt on.

        Answers are the stub's, never the solution's, so that a missing answer stays a missing answer.

        Raises ``CourseError`` when the assignment has not been released or has changed since.
        """
        if not self.source(assignment).exists():
            known = ", ".join(self.assignments()) or "none"
            raise CourseError(f"{self.root} has no source for {assignment}; its assignments: {known}.")
        if not self.released(assignment).exists():
            raise CourseError(f"{assignment} is not released in {self.root}: run `autograder course {self.root}`.")
        source, base = read_notebook(self.source(assignment)), read_notebook(self.released(assignment))
        if _skeleton(source) != _skeleton(base):
            raise CourseError(f"{assignment} changed since its release: run `autograder course {self.root}`.")
        for theirs, ours in zip(base.cells, source.cells, strict=True):
            if nbgrader_flags(theirs.metadata).get("grade"):
                theirs.source = ours.source
        return nbformat.from_dict(base)


def is_text(name: str) -> bool:
    """Whether a file's name can be written down: the system allows any bytes, a gradebook only UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_atomically(path: Path, text: str, encoding: str = "utf-8", durable: bool = False) -> None:
    """Write a file that is there completely or not at all, whoever else writes or reads it.

    ``durable`` puts the contents on the disk before the name, so that this holds when the machine stops too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding=encoding, errors="replace", newline="") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(beside, path)


def _skeleton(notebook: NotebookNode) -> list[tuple]:
    keys = ("grade_id", "grade", "solution", "locked", "points")
    return [(cell.cell_type, *(nbgrader_flags(cell.metadata).get(k) for k in keys)) for cell in notebook.cells]
