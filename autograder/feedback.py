"""The page that a learner gets back: what was lost, why, the likely slip, and the notebook as it ran.

A page is one file of HTML that opens anywhere, offline and on a phone, and runs no script. It is made from three things:
the record of the submission in ``results/``, the judged notebook in ``autograded/``, and the scores and comments in
nbgrader's gradebook, which have the last word. Hidden tests are in none of them; their region is cut once more here.

nbgrader's own ``nbgrader generate_feedback`` makes the same pages with this line in ``nbgrader_config.py``::

    c.GenerateFeedback.exporter_class = "autograder.feedback.FeedbackExporter"
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbconvert.exporters.exporter import Exporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from traitlets import default

from autograder import markup, reasons
from autograder.course import Course, CourseError, write_atomically
from autograder.judge import checked_piece, strip_hidden
from transformer_lab.cells import grade_id_of, is_test, nbgrader_flags, points_of

#: The beginning of what :mod:`autograder.runner` says of a piece that nobody has begun.
NOT_WRITTEN = "is not written yet"

#: And what :mod:`autograder.student` says of a file that is not there.
NOT_HANDED_IN = "is not handed in"


def is_not_begun(message: str) -> bool:
    """Whether a check failed because there is nothing yet to be checked."""
    return NOT_WRITTEN in message or NOT_HANDED_IN in message


class FeedbackError(CourseError):
    """There is nothing to make a page of; the message says what to do."""


def write_feedback(course: str | Path, assignment: str, student: str) -> Path:
    """Write ``feedback/<student>/<assignment>/<assignment>.html`` in the course folder and return its path.

    Safe to call from several processes at once, for different submissions.

    Raises
    ------
    FeedbackError
        The submission has not been graded, or what is in ``autograded/`` or ``results/`` cannot be read.
    ValueError
        A name is not the name of a folder.
    """
    place = Course(Path(course).resolve())
    return write_page(place, assignment, student, gradebook_entry(place.root / "gradebook.db", assignment, student))


def write_page(place: Course, assignment: str, student: str, entry: Entry | None) -> Path:
    """As :func:`write_feedback`, with the gradebook's entry at hand."""
    for name in (assignment, student):
        if name in ("", ".", "..") or Path(name).name != name:
            raise ValueError(f"{name!r} is not the name of a student's or an assignment's folder.")
    notebook, record = _notebook(place, assignment, student), _record(place, assignment, student)
    if notebook is None and record is None:
        raise FeedbackError(
            f"{assignment} of {student} is not graded in {place.root}: run `autograder grade {assignment}`."
        )
    target = place.root / "feedback" / student / assignment / f"{assignment}.html"
    write_atomically(target, page(record, notebook, entry, assignment, student))
    return target


class FeedbackExporter(Exporter):
    """The same page for ``nbgrader generate_feedback``, which works in the course's folder."""

    output_mimetype = "text/html"

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    def from_notebook_node(self, nb, resources=None, **kw):
        nb, resources = super().from_notebook_node(nb, resources, **kw)
        about = resources["nbgrader"]
        assignment, student = about["assignment"], about["student"]
        place = Course(Path.cwd())
        record = _record(place, assignment, student)
        entry = gradebook_entry(place.root / "gradebook.db", assignment, student, about["notebook"])
        return page(record, nb, entry, assignment, student), resources


# ------------------------------------------------------------------------------------------------------------ gradebook


@dataclass
class Entry:
    """What nbgrader's gradebook holds about one submitted notebook: by grade id, scores and what a person wrote."""

    score: float
    max_score: float
    penalty: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    by_hand: set[str] = field(default_factory=set)
    comments: dict[str, str] = field(default_factory=dict)


def gradebook_entry(path: Path, assignment: str, student: str, notebook: str = "") -> Entry | None:
    """The entry of a submission in the gradebook at ``path``, or None where there is no such file or entry."""
    if not path.exists():
        return None
    with Gradebook(f"sqlite:///{path}") as gradebook:
        return _entry(gradebook, assignment, student, notebook or assignment)


def gradebook_entries(path: Path, assignment: str, students: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
    """``(student, entry)`` of several, from a gradebook that is opened once."""
    if not path.exists():
        yield from ((student, None) for student in students)
        return
    with Gradebook(f"sqlite:///{path}") as gradebook:
        for student in students:
            yield student, _entry(gradebook, assignment, student, assignment)
            gradebook.db.expunge_all()  # or memory would grow with the class


def _entry(gradebook: Gradebook, assignment: str, student: str, notebook: str) -> Entry | None:
    try:
        found = gradebook.find_submission_notebook(notebook, assignment, student)
    except MissingEntry:
        return None
    penalty = float(found.late_submission_penalty or 0.0)
    entry = Entry(max(0.0, found.score - penalty), found.max_score, penalty)
    for grade in found.grades:
        entry.scores[grade.name] = grade.score
        if grade.manual_score is not None or grade.extra_credit:
            entry.by_hand.add(grade.name)
    entry.comments = {c.name: c.manual_comment for c in found.comments if (c.manual_comment or "").strip()}
    return entry


# ----------------------------------------------------------------------------------------------------------------- page


@dataclass
class Piece:
    """One piece in the summary, and in place of its graded cell."""

    name: str
    earned: float
    points: float
    results: list[dict[str, Any]]
    comment: Markup | None = None
    note: str = ""
    placed: bool = False  # True where the page shows the graded cell, to which its verdict then belongs

    @property
    def anchor(self) -> str:
        return f"piece-{self.name}"

    @property
    def passed(self) -> list[dict[str, Any]]:
        return [result for result in self.results if not result["message"]]

    @property
    def failures(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """``(message, results)``: checks that failed for one and the same reason are told once."""
        told: dict[str, list[dict[str, Any]]] = {}
        for result in self.results:
            if result["message"]:
                told.setdefault(result["message"].removeprefix("Not run: "), []).append(result)
        return list(told.items())

    @property
    def codes(self) -> dict[str, tuple[str, str]]:
        """By message, the code and the meaning of a reason that is another one than a wrong result."""
        found = {r["message"].removeprefix("Not run: "): r.get("reason", "") for r in self.results if r["message"]}
        return {m: (code, reasons.meaning(code)) for m, code in found.items() if code not in ("", reasons.Reason.WRONG)}

    @property
    def slips(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """``(hint, results)``: each likely slip with the failed checks that it explains."""
        hints: dict[str, list[dict[str, Any]]] = {}
        for result in self.results:
            if result["message"] and result.get("diagnosis"):
                hints.setdefault(result["diagnosis"]["hint"], []).append(result)
        return list(hints.items())

    @property
    def notes(self) -> list[str]:
        """What was noted besides, such as the use of a built-in that the piece re-creates."""
        return [note for result in self.results for note in result.get("notes", [])]

    @property
    def terms(self) -> list[str]:
        """On what terms the piece was judged, where these were not the usual ones."""
        return [term for result in self.results for term in result.get("terms", [])]

    @property
    def summary(self) -> str:
        """What the verdict says, in one line; empty where everything holds."""
        failed = len(self.results) - len(self.passed)
        parts = []
        if self.failures and all(NOT_WRITTEN in message for message, _ in self.failures):
            parts.append("not written yet")
        elif self.failures and all(NOT_HANDED_IN in message for message, _ in self.failures):
            parts.append("not handed in")
        elif failed:
            verb = "fails" if failed == 1 else "fail"
            parts.append(f"{failed} of {markup.count(len(self.results), 'check')} {verb}")
        parts += ["the likely slip is named"] * bool(self.slips)
        parts += ["a built-in is noted"] * bool(self.notes)
        parts += ["your instructor's comment"] * bool(self.comment)
        return "; ".join(parts)

    @property
    def mark(self) -> str:
        """``full``, ``part`` or ``none``."""
        return "full" if self.earned >= self.points else "part" if self.earned > 0 else "none"


@dataclass
class Cell:
    """A cell of the notebook as the page shows it: ``prose``, ``code``, ``answer``, ``test`` or ``graded``."""

    kind: str
    source: Markup | str = ""
    outputs: list[Markup] = field(default_factory=list)
    name: str = ""
    piece: Piece | None = None


def page(
    record: dict[str, Any] | None, notebook: NotebookNode | None, entry: Entry | None, assignment: str, student: str
) -> str:
    """The HTML of a feedback page.

    Parameters
    ----------
    record
        Of the submission, as :mod:`autograder.grade` saves it; None shows what the graded cells printed instead.
    notebook
        The judged notebook; None where there was none to judge.
    entry
        What the gradebook holds; None takes the scores of the record.
    assignment, student
        Their names.
    """
    pieces = _pieces(record, notebook, entry)
    cells = _cells(notebook, pieces, record) if notebook else []
    scored = [p for p in pieces if p.results or entry]
    earned = entry.score if entry else (record or {}).get("score")
    points = entry.max_score if entry else (record or {}).get("max_score")
    return _template().render(
        assignment=assignment,
        student=student,
        title=_title(notebook, assignment),
        record=record,
        status=(record or {}).get("status", "graded"),
        remarks=reasons.explained((record or {}).get("remarks", []), (record or {}).get("reasons", [])),
        submitted=_when((record or {}).get("timestamp")),
        penalty=entry.penalty if entry else 0.0,
        earned=earned,
        points=points,
        pieces=scored,
        complete=sum(piece.mark == "full" for piece in scored),
        cells=cells,
    )


def _pieces(record, notebook, entry) -> list[Piece]:
    """One for every graded cell, in the order of the notebook, else of the record."""
    results: dict[str, list[dict[str, Any]]] = {}
    for result in (record or {}).get("results", []):
        results.setdefault(result["piece"], []).append(result)
    points = {name: sum(r["points"] for r in found) for name, found in results.items()}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == "code" and points_of(cell.metadata):
            points[_piece_name(cell)] = points_of(cell.metadata)
    pieces = []
    for name, most in points.items():
        found = results.get(name, [])
        automatic = sum(result["earned"] for result in found)
        piece = Piece(name, automatic, most, found)
        for grade_id in (f"check_{name}", name):
            if entry and grade_id in entry.scores:
                piece.earned = entry.scores[grade_id]
                if grade_id in entry.by_hand:
                    piece.note = f"Your instructor changed the score; the checks gave {markup.number(automatic)}."
                elif found and abs(piece.earned - automatic) > 1e-9:
                    piece.note = f"The gradebook has another score; the checks below gave {markup.number(automatic)}."
                break
        if entry and name in entry.comments:
            piece.comment = markup.markdown(entry.comments[name])
        pieces.append(piece)
    return pieces


def _cells(notebook: NotebookNode, pieces: list[Piece], record) -> list[Cell]:
    by_name = {piece.name: piece for piece in pieces}
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            shown.append(Cell("prose", markup.markdown(cell.source)))
            continue
        if cell.cell_type != "code":
            continue
        name = grade_id_of(cell.metadata)
        source = markup.code(strip_hidden(cell.source)) if cell.source.strip() else ""
        if points_of(cell.metadata):
            piece = by_name[_piece_name(cell)]
            piece.placed = True
            shown.append(Cell("graded", name=piece.name, piece=piece, outputs=[] if piece.results else _public(cell)))
        elif is_test(cell.metadata):
            shown.append(Cell("test", source, markup.outputs(cell), name.removeprefix("test_")))
        elif nbgrader_flags(cell.metadata).get("solution"):
            shown.append(Cell("answer", source, markup.outputs(cell), name))
        elif source:
            shown.append(Cell("code", source, markup.outputs(cell)))
    return shown


def _public(cell: NotebookNode) -> list[Markup]:
    """What a graded cell printed. Of an error only the last line: its traceback would quote the hidden lines."""
    kept = NotebookNode(outputs=[])
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            last = f"{output.get('ename')}: {output.get('evalue')}".split("\n")[0][:300]
            output = nbformat.v4.new_output("stream", name="stderr", text=last)
        kept.outputs.append(output)
    return markup.outputs(kept)


def _piece_name(cell: NotebookNode) -> str:
    return checked_piece(cell) or grade_id_of(cell.metadata).removeprefix("check_")


def _title(notebook: NotebookNode | None, assignment: str) -> str:
    for cell in notebook.cells if notebook else []:
        found = re.search(r"^# +(.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
        if found:
            return found[1].strip()
    return assignment


def _when(timestamp: str | None) -> str:
    if not timestamp:
        return ""
    moment = datetime.fromisoformat(timestamp)
    return f"{moment.day} {moment:%B %Y, %H:%M} {moment.tzname() or 'UTC'}"


@functools.cache
def _template():
    return markup.environment().get_template("feedback.html.j2")


# ---------------------------------------------------------------------------------------------------------------- files


def _notebook(place: Course, assignment: str, student: str) -> NotebookNode | None:
    path = place.autograded(student, assignment)
    if not path.exists():
        return None
    try:
        return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except Exception as error:  # nbformat and its validators have many ways to say no
        raise FeedbackError(f"{path} is not a notebook ({type(error).__name__}): grade {assignment} again.") from error


def _record(place: Course, assignment: str, student: str) -> dict[str, Any] | None:
    path = place.record(student, assignment)
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FeedbackError(f"{path} is damaged: delete it and run `autograder grade {assignment}`.") from error
