"""Grade a folder of submissions: many at once, resumable, one writer to nbgrader's gradebook.

Workers judge notebooks and hand back plain data. Only the calling process writes: the judged notebook where nbgrader
expects it (``autograded/``), scores and comments through nbgrader's own preprocessors, and last a record of each
submission. A submission whose record still fits (same answers, same checks, same limits) is not graded again.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import logging
import multiprocessing
import os
import platform
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import AssignLatePenalties, SaveAutoGrades
from nbgrader.utils import parse_utc
from sqlalchemy.exc import SAWarning

from autograder import intake, judge, markup, sandbox, seeds, settings
from autograder.award import line, notes, terms
from autograder.course import Course, CourseError, Submission, write_atomically
from autograder.reasons import Reason, Remark
from transformer_lab.cells import grade_id_of, nbgrader_flags, points_of
from transformer_lab.weights import WeightsError, read_bytes

GRADED, UNREADABLE, MISSING, FAILED = "graded", "unreadable", "missing", "failed"


@dataclass(frozen=True)
class Task:
    """One submission to judge, as plain data for a worker."""

    student: str
    assignment: str
    folder: Path
    base: str
    seed: bytes
    limits: sandbox.Limits
    sandboxed: bool
    builtin_costs: float
    digest: str


def grade(
    course: Course,
    assignment: str,
    *,
    students: list[str] | None = None,
    workers: int | None = None,
    sandboxed: bool = True,
    limits: sandbox.Limits | None = None,
    builtin_costs: float | None = None,
    force: bool = False,
    accept_unenforced: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Grade the submissions of one assignment and return their records, in the order of students.

    Parameters
    ----------
    course
        An nbgrader course in which the assignment is released.
    students
        Grade these only.
    workers
        How many notebooks run at once; by default one per processor.
    sandboxed
        False runs learners' code without the sandbox: for your own notebooks only.
    limits
        Of every notebook's kernel.
    builtin_costs
        The share of a piece's points that using the built-in which it re-creates costs; None takes the course's setting
        (:func:`autograder.settings.builtin_costs`).
    force
        Grade again what has not changed.
    accept_unenforced
        Go on where this host can't enforce a limit (:func:`autograder.sandbox.require`).
    progress
        Called with how many are done and how many there are.

    Raises
    ------
    CourseError
        The assignment is not released, a named student handed in nothing, or nobody did.
    SandboxError
        A sandbox was asked for and there is none here, or a limit does not hold here and that is not accepted.
    ValueError
        The course's settings cannot be read, or what a built-in costs is no share.
    """
    if sandboxed:
        sandbox.require(accept_unenforced)
    base = nbformat.writes(course.graded_base(assignment))
    submissions = course.submissions(assignment)
    unknown = set(students or ()) - {s.student for s in submissions}
    if unknown:
        raise CourseError(f"Nothing is submitted for {assignment} by {', '.join(sorted(unknown))}.")
    if students:
        submissions = [s for s in submissions if s.student in students]
    if not submissions:
        raise CourseError(
            f"Nothing is submitted for {assignment}: submissions go to submitted/<student>/{assignment}/."
        )
    _check_gradebook(course, assignment, base)

    seed = seeds.round_seed(course.root, assignment)
    costs = settings.builtin_costs(course.root) if builtin_costs is None else settings.share(builtin_costs)
    limits = limits or sandbox.Limits()
    tasks = [_task(course, s, assignment, base, seed, limits, sandboxed, costs) for s in submissions]
    finished = {} if force else {task.student: _finished(course, task) for task in tasks}
    records = {student: record for student, record in finished.items() if record is not None}
    open_tasks = [task for task in tasks if task.student not in records]
    done = len(tasks) - len(open_tasks)
    progress(done, len(tasks))
    for task, outcome in _judge_all(open_tasks, workers or os.cpu_count() or 1):
        records[task.student] = _save(course, task, outcome)
        done += 1
        progress(done, len(tasks))
    return [records[task.student] for task in tasks]


def load_records(course: Course, assignment: str) -> list[dict[str, Any]]:
    """The records of an assignment as they were saved, in the order of students."""
    paths = sorted((course.root / "results" / assignment).glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


# --------------------------------------------------------------------------------------------------------------- work


def _task(course, submission: Submission, assignment, base, seed, limits, sandboxed, builtin_costs) -> Task:
    digest = hashlib.sha256()
    for part in (base, seed.hex(), repr(limits), str(sandboxed), repr(builtin_costs), _code_digest()):
        digest.update(part.encode() + b"\0")
    for path in intake.listing(submission.folder):
        name = os.fsencode(path.relative_to(submission.folder))
        digest.update(name + b"\0" + _content(path) + b"\0")
    rest = (base, seed, limits, sandboxed, builtin_costs, digest.hexdigest())
    return Task(submission.student, assignment, submission.folder, *rest)


def _content(path: Path) -> bytes:
    """What a file holds, or why it is not read."""
    try:
        return read_bytes(path, intake.MAX_BYTES)
    except (OSError, WeightsError) as error:
        return str(error).encode(errors="surrogateescape")


def judge_task(task: Task) -> dict[str, Any]:
    """Judge one submission; plain data, and never an exception for anything that a submission can do."""
    outcome: dict[str, Any] = {"status": GRADED, "results": [], "seconds": 0.0, "notebook": None}
    source = nbformat.reads(task.base, as_version=4)
    received = intake.receive(task.folder, task.assignment, source)
    if received.notebook is None:
        lost = received.remarks[-1].reason is Reason.NO_NOTEBOOK
        return outcome | _told(received.remarks) | {"status": MISSING if lost else UNREADABLE}
    rebuilt = intake.rebuild(source, received.notebook)
    judgement = judge.judge(rebuilt.notebook, task.seed, task.limits, task.sandboxed, task.builtin_costs, task.folder)
    markup.disarm(judgement.notebook)  # what a learner's code displays must not run in the instructor's browser
    return outcome | {
        "results": [result.as_dict() for result in judgement.results],
        "comments": _comments(judgement.results),
        "files": judgement.files,
        **_told(received.remarks + rebuilt.remarks + judgement.remarks),
        "seconds": judgement.seconds,
        "notebook": nbformat.writes(judgement.notebook),
    }


def _judge_all(tasks: list[Task], workers: int):
    """``(task, outcome)`` as they are done, each task judged in a process of its own pool."""
    if not tasks:
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context) as pool:
        futures = {pool.submit(judge_task, task): task for task in tasks}
        for future in concurrent.futures.as_completed(futures):
            try:
                outcome = future.result()
            except Exception as error:  # ours to mend, never the learner's zero
                sentence = f"Not graded, an error of the grader: {type(error).__name__}: {error}"
                told = _told([Reason.GRADER(sentence)])
                outcome = {"status": FAILED, "results": [], "seconds": 0.0, "notebook": None, **told}
            yield futures[future], outcome


def _told(remarks: list[Remark]) -> dict[str, list[str]]:
    """Remarks as plain data: the sentences, and the code of each."""
    return {"remarks": [str(remark) for remark in remarks], "reasons": [remark.reason.value for remark in remarks]}


def _comments(results) -> dict[str, str]:
    """What to say beside each answer: how it was judged, its failed checks, the likely slip, and what was noted."""
    comments: dict[str, list[str]] = {}
    for result in results:
        comments.setdefault(result.piece, []).extend([] if result.passed else [line(result)])
    for piece, told in comments.items():
        own = [result for result in results if result.piece == piece]
        told[:] = [*terms(own), *told, *notes(own)]
    return {piece: "\n".join(told) for piece, told in comments.items()}


# -------------------------------------------------------------------------------------------------------------- write


class SaveScores(SaveAutoGrades):
    """nbgrader's own SaveAutoGrades, with the failed checks as the comment of each answer."""

    def __init__(self, comments: dict[str, str], **kwargs: Any):
        super().__init__(**kwargs)
        self.comments = comments

    def _add_comment(self, cell, resources):
        super()._add_comment(cell, resources)
        text = self.comments.get(grade_id_of(cell.metadata))
        comment = self.gradebook.find_comment(
            grade_id_of(cell.metadata), self.notebook_id, self.assignment_id, self.student_id
        )
        if text and not comment.auto_comment:
            comment.auto_comment = text
            self.gradebook.db.commit()


def _save(course: Course, task: Task, outcome: dict[str, Any]) -> dict[str, Any]:
    """Write one outcome: autograded notebook, gradebook, and last the record that says it is done."""
    remarks, reasons = list(outcome["remarks"]), list(outcome["reasons"])
    timestamp, remark = _timestamp(task.folder)
    if remark:
        remarks.append(remark)
        reasons.append(Reason.BAD_TIME.value)
    target = course.autograded(task.student, task.assignment)
    shutil.rmtree(target.parent, ignore_errors=True)
    score = max_score = None
    if outcome["status"] != FAILED:
        target.parent.mkdir(parents=True)
        notebook = None
        if outcome["notebook"]:
            target.write_text(outcome["notebook"], encoding="utf-8")
            notebook = nbformat.reads(outcome["notebook"], as_version=4)
        if timestamp is not None:
            (target.parent / "timestamp.txt").write_text(str(timestamp))
        score, max_score = _write_gradebook(course, task, notebook, outcome.get("comments", {}), timestamp)
    record = {
        "student": task.student,
        "assignment": task.assignment,
        "notebook": task.assignment,
        "timestamp": timestamp.isoformat() if timestamp else None,
        "hash": task.digest,
        "round": seeds.current_round(course.root),
        "sandbox": "bubblewrap" if task.sandboxed else "none",
        "builtin_costs": task.builtin_costs,
        "status": outcome["status"],
        "score": score,
        "max_score": max_score,
        "results": outcome["results"],
        "files": outcome.get("files", {}),
        "remarks": remarks,
        "reasons": reasons,
        "seconds": round(outcome["seconds"], 3),
    }
    write_atomically(course.record(task.student, task.assignment), json.dumps(record, indent=1, ensure_ascii=False))
    return record


def _write_gradebook(course, task, notebook, comments, timestamp) -> tuple[float, float]:
    # nbgrader lets SQLAlchemy flush half-made rows, which SQLAlchemy warns of and then does right.
    warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")
    with Gradebook(course.db_url, course.course_id) as gradebook:
        gradebook.update_or_create_student(task.student)
        when = {"timestamp": timestamp} if timestamp is not None else {}
        gradebook.update_or_create_submission(task.assignment, task.student, **when)
    resources = {
        "nbgrader": {
            "notebook": task.assignment,
            "assignment": task.assignment,
            "student": task.student,
            "db_url": course.db_url,
        }
    }
    if notebook is not None:
        quiet = logging.getLogger("autograder.nbgrader")
        SaveScores(comments, log=quiet).preprocess(notebook, resources)
        AssignLatePenalties(log=quiet).preprocess(notebook, resources)
    with Gradebook(course.db_url, course.course_id) as gradebook:
        submitted = gradebook.find_submission_notebook(task.assignment, task.assignment, task.student)
        if notebook is None:
            for one in submitted.grades:
                one.auto_score, one.needs_manual_grade = 0, False
            gradebook.db.commit()
        return float(submitted.score), float(submitted.max_score)


def _check_gradebook(course: Course, assignment: str, base: str) -> None:
    """The gradebook must know the graded cells and points that the source has now."""
    cells = nbformat.reads(base, as_version=4).cells
    source = {grade_id_of(c.metadata): points_of(c.metadata) for c in cells if nbgrader_flags(c.metadata).get("grade")}
    try:
        with Gradebook(course.db_url, course.course_id) as gradebook:
            notebook = gradebook.find_notebook(assignment, assignment)
            known = {cell.name: cell.max_score for cell in notebook.grade_cells}
    except MissingEntry:
        known = {}
    if known != source:
        raise CourseError(
            f"The gradebook does not know {assignment} as it is now: run `autograder course {course.root}`."
        )


def _finished(course: Course, task: Task) -> dict[str, Any] | None:
    path = course.record(task.student, task.assignment)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    unchanged = record.get("hash") == task.digest and record.get("status") != FAILED
    return record if unchanged else None


def _timestamp(folder: Path):
    path = folder / "timestamp.txt"
    if not path.is_file() or path.is_symlink():
        return None, ""
    try:
        return parse_utc(path.read_text().strip()), ""
    except Exception:
        return None, "timestamp.txt holds no time and was left out."


@cache
def _code_digest() -> str:
    """Everything besides a submission that decides its score: the grader's code, the driver's, and the versions."""
    digest = hashlib.sha256(f"{platform.python_version()} {torch.__version__}".encode())
    package = Path(__file__).parent
    for path in sorted([*package.rglob("*.py"), *(package.parent / "transformer_lab").glob("*.py")]):
        if "samples" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()
