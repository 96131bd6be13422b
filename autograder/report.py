"""What the class misunderstood: pages to read, and a table for the gradebook of a learning platform.

    report/index.html               every assignment at a glance
    report/<assignment>.html        scores, checks and slips, worst first, and one line per student
    report/grades.csv               one line per submission
    report/<assignment>-regraded.html   who gains and who loses where the same answers were judged again

Everything comes from the records in ``results/``; scores are those of nbgrader's gradebook where it has them, so that what
a person changed there counts. The pages load nothing and run no script.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import secrets
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape
from nbgrader.api import Grade, Gradebook, GradeCell, SubmittedAssignment, SubmittedNotebook

from autograder import markup, reasons, registry, weights
from autograder.course import Course, CourseError, write_atomically
from autograder.feedback import is_not_begun
from transformer_lab.cells import read_notebook

if TYPE_CHECKING:
    from autograder.grade import Change

#: How many bars the picture of the scores has.
BARS = 10


#: How the name of a page ends that says what judging again changes.
REGRADED = "-regraded.html"


class ReportError(CourseError):
    """There is nothing to report on; the message says what to do."""


def write_report(course: str | Path, assignments: list[str] | None = None, *, names: bool = True) -> Path:
    """Write the class report into ``report/`` of the course folder and return the path of its ``index.html``.

    Parameters
    ----------
    course
        An nbgrader course with graded submissions.
    assignments
        Report on these only; on all that are graded otherwise. Pages of others are removed.
    names
        False puts numbers for names, in pages and table. They are drawn afresh each time, so that neither their order
        nor an older report tells who is who.

    Raises
    ------
    ReportError
        Nothing is graded yet, or not in one of ``assignments``.
    """
    place = Course(Path(course).resolve())
    found = sorted(folder.name for folder in (place.root / "results").glob("*") if any(folder.glob("*.json")))
    for name in assignments or []:
        if name not in found:
            raise ReportError(f"Nothing of {name} is graded in {course}: run `autograder grade {name}`.")
    if not found:
        raise ReportError(f"Nothing is graded in {course} yet: run `autograder grade`.")
    wanted = list(dict.fromkeys(assignments)) if assignments else found
    loaded = {name: _load(place, name) for name in wanted}
    aliases = {} if names else _aliases(record["student"] for records in loaded.values() for record in records)
    summaries = [summarise(name, _title(place, name), _renamed(records, aliases)) for name, records in loaded.items()]

    folder, made = place.root / "report", datetime.now(UTC)
    about = {"made": f"{made.day} {made:%B %Y, %H:%M} UTC", "names": names}
    pages = {"index.html": _template("report.html.j2").render(summaries=summaries, **about)}
    for summary in summaries:
        links = _feedback_links(place, summary) if names else {}
        page = _template("report_assignment.html.j2").render(summary=summary, links=links, **about)
        pages[f"{summary.assignment}.html"] = page
    for name, html in pages.items():
        write_atomically(folder / name, html)
    # A spreadsheet takes a table for UTF-8 only if it begins with the byte order mark; learning platforms skip it.
    write_atomically(folder / "grades.csv", grades_csv(summaries), encoding="utf-8-sig")
    for path in folder.glob("*.html"):
        regraded = names and path.name.removesuffix(REGRADED) in wanted
        if path.name not in pages and not regraded:
            path.unlink()
    return folder / "index.html"


def write_changes(course: str | Path, assignment: str, changes: Sequence[Change], written: bool) -> Path:
    """Write the page of who gains and who loses by judging the same answers again; ``written``: the points are given.

    It stays until the next such page of the assignment, or until a report without names is made.
    """
    place, made = Course(Path(course).resolve()), datetime.now(UTC)
    html = _template("regraded.html.j2").render(
        assignment=assignment,
        title=_title(place, assignment),
        made=f"{made.day} {made:%B %Y, %H:%M} UTC",
        written=written,
        losses=[change for change in changes if change.difference < 0],
        gains=[change for change in changes if change.difference > 0],
        others=[change for change in changes if not change.difference],
    )
    target = place.root / "report" / f"{assignment}{REGRADED}"
    write_atomically(target, html)
    return target


# -------------------------------------------------------------------------------------------------------------- summary


@dataclass
class Check:
    """One hidden check over the class. A piece that is not written yet fails its checks too; ``unwritten`` counts those."""

    piece: str
    name: str
    points: float
    graded: int = 0
    unwritten: int = 0
    students: list[str] = field(default_factory=list)
    slips: Counter = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    description: str = ""

    @property
    def failed(self) -> int:
        return len(self.students)

    @property
    def share(self) -> float:
        return self.failed / self.graded if self.graded else 0.0

    @property
    def example(self) -> str:
        """The commonest message, numbers aside."""
        kinds: dict[str, list[str]] = {}
        for message in self.messages:
            if not is_not_begun(message):
                kinds.setdefault(re.sub(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", "#", message), []).append(message)
        return max(kinds.values(), key=len)[0] if kinds else ""

    @property
    def bar(self) -> Markup:
        return share_bar(self.failed - self.unwritten, self.unwritten, self.graded)


@dataclass
class Piece:
    """One piece over the class: who has all its points, and its checks, worst first."""

    name: str
    points: float
    scores: list[float]
    checks: list[Check]
    noted: list[str] = field(default_factory=list)  # who used a built-in that the piece re-creates

    @property
    def complete(self) -> int:
        return sum(score >= self.points for score in self.scores)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores) if self.scores else 0.0

    @property
    def bar(self) -> Markup:
        unwritten = min((check.unwritten for check in self.checks), default=0)
        return share_bar(len(self.scores) - self.complete - unwritten, unwritten, len(self.scores))


@dataclass
class Slip:
    """A known mistake, and who makes it."""

    id: str
    piece: str
    hint: str
    students: list[str] = field(default_factory=list)


@dataclass
class Line:
    """One submission."""

    student: str
    status: str
    score: float | None
    max_score: float | None
    pieces: dict[str, float]
    points: dict[str, float]
    submitted: str
    remarks: list[str]
    told: list[str]
    seconds: float
    changed: bool = False
    same: str = ""  # who else handed in the same weights, or nearly the same
    reasons: list[str] = field(default_factory=list)

    @property
    def reasoned(self) -> list[tuple[str, str, str]]:
        """Each remark with the code of its reason and what that means in general."""
        return reasons.explained(self.remarks, self.reasons)


@dataclass
class Summary:
    """An assignment over the class; students in the order of their names, all else worst first."""

    assignment: str
    title: str
    lines: list[Line]
    pieces: list[Piece]
    slips: list[Slip]
    columns: list[str]
    alike: list[weights.Alike] = field(default_factory=list)

    @property
    def graded(self) -> list[Line]:
        return [line for line in self.lines if line.status == "graded" and line.score is not None]

    @property
    def notable(self) -> list[Line]:
        """Those that a person should look at: with remarks, or not graded."""
        return [line for line in self.lines if line.remarks or line.status != "graded"]

    @property
    def scores(self) -> list[float]:
        return [line.score for line in self.graded if line.score is not None]

    @property
    def max_score(self) -> float:
        return max((line.max_score or 0.0 for line in self.lines), default=0.0)

    @property
    def median(self) -> float | None:
        return statistics.median(self.scores) if self.scores else None

    @property
    def full(self) -> int:
        return sum(score >= self.max_score for score in self.scores)

    @property
    def missed(self) -> list[Check]:
        """The check of each piece that most students fail, worst first."""
        worst = (piece.checks[0] for piece in self.pieces if piece.checks[0].failed)
        return sorted(worst, key=lambda check: -check.share)

    @property
    def slowest(self) -> list[Line]:
        return sorted(self.lines, key=lambda line: -line.seconds)[:3]

    @property
    def seconds(self) -> float:
        return statistics.median(line.seconds for line in self.lines)

    @property
    def picture(self) -> Markup:
        return histogram(self.scores, self.max_score, self.title)


def summarise(assignment: str, title: str, records: list[dict[str, Any]]) -> Summary:
    """Count what the records of one assignment say.

    Parameters
    ----------
    assignment, title
        Its name, and what to call it.
    records
        As :mod:`autograder.grade` saves them. ``final``, where it is there, is the gradebook's score, and ``finals``
        that of each piece; they count instead of the record's.
    """
    checks: dict[tuple[str, str], Check] = {}
    slips: dict[tuple[str, str], Slip] = {}
    noted: dict[str, list[str]] = {}
    lines = [_line(record) for record in sorted(records, key=lambda record: record["student"])]
    descriptions = _descriptions()
    for record in sorted(records, key=lambda record: record["student"]):
        if record["status"] != "graded":
            continue
        for result in record["results"]:
            piece, name = result["piece"], result["check"]
            check = checks.setdefault((piece, name), Check(piece, name, result["points"]))
            check.description = descriptions.get((piece, name), "")
            check.graded += 1
            if result.get("notes"):
                noted.setdefault(piece, []).append(record["student"])
            if not result["message"]:
                continue
            check.students.append(record["student"])
            check.messages.append(result["message"])
            check.unwritten += is_not_begun(result["message"])
            if found := result.get("diagnosis"):
                check.slips[found["id"]] += 1
                slip = slips.setdefault((piece, found["id"]), Slip(found["id"], piece, found["hint"]))
                if record["student"] not in slip.students:
                    slip.students.append(record["student"])
    pieces = []
    columns = list(dict.fromkeys(piece for piece, _ in checks))
    for name in columns:
        own = sorted((c for c in checks.values() if c.piece == name), key=lambda check: -check.share)
        scores = [line.pieces[name] for line in lines if line.status == "graded" and name in line.pieces]
        most = max(line.points.get(name, 0.0) for line in lines)
        pieces.append(Piece(name, most, scores, own, noted.get(name, [])))
    pieces.sort(key=lambda piece: (piece.complete / len(piece.scores), piece.mean / (piece.points or 1.0)))
    ordered = sorted(slips.values(), key=lambda slip: -len(slip.students))
    alike = weights.alike(records)
    for line in lines:
        line.same = "; ".join(filter(None, (_others(group, line.student) for group in alike)))
    return Summary(assignment, title, lines, pieces, ordered, columns, alike)


def _others(group: weights.Alike, student: str) -> str:
    if student not in group.students:
        return ""
    others = ", ".join(other for other in group.students if other != student)
    return f"{group.file}: {'nearly ' * group.near}the same as {others}"


def told(record: dict[str, Any]) -> list[str]:
    """What a table says of a submission beside its scores: known mistakes, built-ins that were used, remarks."""
    slips = [result["diagnosis"]["id"] for result in record["results"] if result["diagnosis"]]
    noted = [f"{result['piece']}: built-in used" for result in record["results"] if result.get("notes")]
    return [*dict.fromkeys(slips), *noted, *record["remarks"]]


def _line(record: dict[str, Any]) -> Line:
    earned: dict[str, float] = {}
    points: dict[str, float] = {}
    for result in record["results"]:
        earned[result["piece"]] = earned.get(result["piece"], 0.0) + result["earned"]
        points[result["piece"]] = points.get(result["piece"], 0.0) + result["points"]
    score, final = record["score"], record.get("final")
    finals = {name: value for name, value in (record.get("finals") or {}).items() if name in earned}
    return Line(
        student=record["student"],
        status=record["status"],
        score=score if final is None or record["status"] == "failed" else final,
        max_score=record["max_score"],
        pieces=earned | finals,
        points=points,
        submitted=record["timestamp"] or "",
        remarks=list(record["remarks"]),
        told=told(record),
        seconds=record["seconds"],
        changed=final is not None and score is not None and abs(final - score) > 1e-9,
        reasons=record.get("reasons", []),
    )


# ------------------------------------------------------------------------------------------------------------- pictures


def histogram(scores: list[float], most: float, title: str) -> Markup:
    """Inline SVG: how many submissions have how many points, with the numbers written and the median marked."""
    width, height, left, bottom, top = 480, 210, 6, 28, 40
    edges = [most * k / BARS for k in range(BARS + 1)]
    counts = [0] * BARS
    for score in scores:
        counts[min(BARS - 1, max(0, int(BARS * score / most))) if most else 0] += 1
    step, tallest = (width - 2 * left) / BARS, max([*counts, 1])
    base = height - bottom
    middle = statistics.median(scores) if scores else None
    parts, labels = [], []
    if middle is not None:
        x = left + (width - 2 * left) * min(max(middle / most, 0.0), 1.0) if most else left
        side, shift = ("end", -6) if x > width / 2 else ("start", 6)
        under = counts[min(BARS - 1, int((x - left) / step))]  # the line ends above the number of this bar
        foot = base - (base - top) * under / tallest - 22 if under else base
        parts.append(f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{foot:.1f}"/>')
        labels.append(_label(x + shift, 15, f"median {markup.number(middle)}", side))
    for k, amount in enumerate(counts):
        tall, x = (base - top) * amount / tallest, left + k * step
        if amount:
            area = f'x="{x + 2:.1f}" y="{base - tall:.1f}" width="{step - 4:.1f}" height="{tall:.1f}"'
            parts.append(f'<rect class="bar" {area}/>')
            labels.append(_label(x + step / 2, base - tall - 6, str(amount)))
    for k, edge in enumerate(edges):
        side = "start" if k == 0 else "end" if k == BARS else "middle"
        labels.append(_label(left + k * step, base + 18, markup.number(edge), side, "tick"))
    parts.append(f'<line class="axis" x1="{left}" x2="{width - left}" y1="{base}" y2="{base}"/>')
    said = ", ".join(
        f"{markup.number(low)} to {markup.number(high)}: {amount}"
        for low, high, amount in zip(edges, edges[1:], counts, strict=False)
        if amount
    )
    words = f"Scores in {title}. {markup.count(len(scores), 'submission')} by points: {said or 'none'}."
    if middle is not None:
        words += f" The median is {markup.number(middle)} of {markup.number(most)}."
    return Markup(
        f'<svg class="histogram" role="img" viewBox="0 0 {width} {height}" aria-label="{escape(words)}">'
        f"<title>{escape(words)}</title>{''.join(parts + labels)}</svg>"
    )


def _label(x: float, y: float, words: str, side: str = "middle", kind: str = "value") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{side}">{escape(words)}</text>'


def share_bar(wrong: int, unwritten: int, of: int) -> Markup:
    """Inline SVG: the share of the class that is wrong (solid) and that has written nothing (hatched)."""
    width, height = 120, 14
    one = width / of if of else 0.0
    words = f"{wrong + unwritten} of {of}" + (f", {unwritten} of them not written" if unwritten else "")
    return Markup(
        f'<svg class="share" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" aria-label="{words}">'
        f"<title>{words}</title>"
        f'<rect class="whole" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}"/>'
        f'<rect class="bar" width="{wrong * one:.1f}" height="{height}"/>'
        f'<rect class="hatched" x="{wrong * one:.1f}" width="{unwritten * one:.1f}" height="{height}"/></svg>'
    )


# ---------------------------------------------------------------------------------------------------------------- table


def grades_csv(summaries: Iterable[Summary]) -> str:
    """The table of grades: one line per submission, a column per piece; a score that is not known is left empty."""
    summaries = list(summaries)
    pieces = list(dict.fromkeys(name for s in summaries for line in s.lines for name in line.points))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    after = ["score", "max_score", "submitted", "status", "remark", "same_weights"]
    writer.writerow(["student", "assignment", *map(_cell, pieces), *after])
    for summary in summaries:
        for line in summary.lines:
            own = [_number(line.pieces.get(name)) for name in pieces]
            rest = [_number(line.score), _number(line.max_score), line.submitted, line.status, "; ".join(line.told)]
            texts = [*rest[2:], line.same]
            writer.writerow([_cell(line.student), summary.assignment, *own, *rest[:2], *map(_cell, texts)])
    return text.getvalue()


def _cell(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    text = " ".join(markup.terminal(text).split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) else text


def _number(value: float | None) -> str:
    return "" if value is None else f"{round(value, 4):.10g}"


# ---------------------------------------------------------------------------------------------------------------- input


def _load(place: Course, assignment: str) -> list[dict[str, Any]]:
    """The records, with the gradebook's scores as ``final`` and ``finals``. A damaged record is told, not dropped."""
    records = []
    totals, pieces = gradebook_scores(place.root / "gradebook.db", assignment)
    for path in sorted((place.root / "results" / assignment).glob("*.json")):
        record = _record(path, assignment)
        record["final"] = totals.get(record["student"])
        record["finals"] = pieces.get(record["student"], {})
        records.append(record)
    return records


def _record(path: Path, assignment: str) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "student": path.stem,
        "assignment": assignment,
        "timestamp": None,
        "score": None,
        "max_score": None,
    }
    empty |= {"results": [], "remarks": [], "status": "failed", "seconds": 0.0}
    try:
        record = empty | json.loads(path.read_text(encoding="utf-8"))
        return record | {"seconds": float(record["seconds"] or 0.0)}
    except (ValueError, TypeError) as error:
        remark = f"The record {path.name} cannot be read ({type(error).__name__}): delete it and grade again."
        return empty | {"remarks": [remark]}


def gradebook_scores(path: Path, assignment: str) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """By student, the score in nbgrader's gradebook as its export gives it, and the score of each piece."""
    if not path.exists():
        return {}, {}
    with Gradebook(f"sqlite:///{path}") as gradebook:
        if all(found.name != assignment for found in gradebook.assignments):
            return {}, {}
        totals = {
            submission.student_id: max(0.0, submission.score - (submission.late_submission_penalty or 0.0))
            for submission in gradebook.assignment_submissions(assignment)
        }
        rows = (
            gradebook.db.query(SubmittedAssignment.student_id, GradeCell.name, Grade.score)
            .select_from(Grade)
            .join(GradeCell, Grade.cell_id == GradeCell.id)
            .join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
            .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
            .filter(SubmittedAssignment.name == assignment, GradeCell.max_score > 0)
        )
        pieces: dict[str, dict[str, float]] = {}
        for student, cell, score in rows:
            pieces.setdefault(student, {})[cell.removeprefix("check_")] = float(score or 0.0)
    return totals, pieces


def _aliases(students: Iterable[str]) -> dict[str, str]:
    ordered = sorted(set(students))
    secrets.SystemRandom().shuffle(ordered)
    digits = len(str(len(ordered)))
    return {student: f"student {number:0{digits}d}" for number, student in enumerate(ordered, 1)}


def _renamed(records: list[dict[str, Any]], aliases: dict[str, str]) -> list[dict[str, Any]]:
    """The records with aliases for names, also where a remark or a message mentions one."""
    if not aliases:
        return records
    known = sorted(aliases, key=len, reverse=True)
    mentioned = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, known)) + r")(?!\w)")

    def hide(text: str) -> str:
        return mentioned.sub(lambda found: aliases[found.group()], text)

    return [
        record
        | {
            "student": aliases[record["student"]],
            "remarks": [hide(remark) for remark in record["remarks"]],
            "results": [result | {"message": hide(result["message"])} for result in record["results"]],
        }
        for record in records
    ]


def _title(place: Course, assignment: str) -> str:
    """The first heading of the released notebook, else the assignment's name."""
    path = place.released(assignment)
    for cell in read_notebook(path).cells if path.exists() else []:
        found = re.search(r"^# +(.+)$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
        if found:
            return found[1].strip()
    return assignment


def _feedback_links(place: Course, summary: Summary) -> dict[str, str]:
    links = {}
    for line in summary.lines:
        parts = ("feedback", line.student, summary.assignment, f"{summary.assignment}.html")
        if place.root.joinpath(*parts).exists():
            links[line.student] = "../" + "/".join(map(quote, parts))
    return links


@functools.cache
def _descriptions() -> dict[tuple[str, str], str]:
    return {(check.piece, check.name): check.description for check in registry.checks()}


@functools.cache
def _environment():
    return markup.environment()


def _template(name: str):
    return _environment().get_template(name)
