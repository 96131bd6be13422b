"""Grade a folder of submissions: many at once, resumable at any moment, with one writer to nbgrader's gradebook.

Workers judge notebooks and hand back plain data. Only the calling process writes, in this order: the outcome to the journal,
scores and comments to the gradebook in one transaction, the judged notebook where nbgrader expects it (``autograded/``), and
last a record of the submission. Ended anywhere in between, the next run goes on from what is on the disk, and nothing that is
in the journal is judged again.

A submission whose record still fits (same answers, checks, limits, versions and round) is left alone. One that was graded
before and whose checks have changed since is judged again, and what that changes is said before it is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.utils import parse_utc

from autograder import digests, intake, judge, markup, pool, sandbox, seeds, settings
from autograder.award import line, notes, terms
from autograder.course import Course, CourseError, Submission, write_atomically
from autograder.gradebook import Writer
from autograder.journal import Journal
from autograder.reasons import Reason, Remark
from transformer_lab.cells import grade_id_of, nbgrader_flags, points_of

GRADED, UNREADABLE, MISSING, FAILED = "graded", "unreadable", "missing", "failed"


@dataclass(frozen=True)
class Task:
    """One submission to judge, as plain data for a worker.

    ``submission`` is the digest of what was handed in, ``digest`` that of everything that decides the outcome.
    """

    student: str
    assignment: str
    folder: Path
    base: str
    seed: bytes
    limits: sandbox.Limits
    sandboxed: bool
    builtin_costs: float
    submission: str
    digest: str


@dataclass(frozen=True)
class Change:
    """What judging again would change in one graded submission: points by piece, before and after, where they differ."""

    student: str
    before: dict[str, float]
    after: dict[str, float]

    @property
    def difference(self) -> float:
        """What the learner gains, or loses where it is negative."""
        return sum(self.after.values()) - sum(self.before.values())


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
    accept: Callable[[list[Change]], bool] = lambda changes: True,
    executor: pool.ExecutorFactory | None = None,
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
    accept
        Asked before points change that were given for the same answers, as after a change of the checks. False leaves the
        old ones; what was judged is kept and need not be judged again.
    executor
        Makes the executor that judges, for so many workers; by default a pool of processes (:mod:`autograder.pool`).
    accept_unenforced
        Go on where this host can't enforce a limit (:func:`autograder.sandbox.require`).
    progress
        Called with how many are done and how many there are.

    Raises
    ------
    CourseError
        The assignment is not released, a named student handed in nothing, or nobody did; another run grades it, or
        another program keeps the gradebook to itself.
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
    limits = limits or sandbox.Limits()
    costs = settings.builtin_costs(course.root) if builtin_costs is None else settings.share(builtin_costs)
    workers = workers or os.cpu_count() or 1
    executor = executor or pool.processes(limits.file_bytes if sandboxed else None)
    with Journal(course.journal(assignment)) as journal, Writer(course) as writer:
        _check_gradebook(course, assignment, base, writer)
        seed = seeds.round_seed(course.root, assignment)
        tasks = [_task(s, assignment, base, seed, limits, sandboxed, costs) for s in submissions]
        run = _Run(course, journal, writer, {task.student: _record(course, task) for task in tasks})
        known = writer.students(assignment)
        todo: list[Task] = []
        judged: list[Task] = []
        for task in tasks:
            if force or not run.finished(task, known):
                (judged if not force and run.is_judged(task) else todo).append(task)
        done = len(tasks) - len(todo)
        progress(done, len(tasks))
        for task in judged:
            run.take(task, journal.outcome(task.student, task.digest))
        for task, outcome in _judge_all(todo, min(workers, len(todo)), executor):
            journal.add(task.student, task.digest, outcome)
            run.take(task, outcome)
            done += 1
            progress(done, len(tasks))
        run.finish(accept)
    return [run.records[task.student] for task in tasks]


def load_records(course: Course, assignment: str) -> list[dict[str, Any]]:
    """The records of an assignment as they were saved, in the order of students."""
    paths = sorted((course.root / "results" / assignment).glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


# --------------------------------------------------------------------------------------------------------------- work


def _task(submission: Submission, assignment, base, seed, limits, sandboxed, builtin_costs) -> Task:
    own = digests.of_submission(submission.folder)
    digest = hashlib.sha256()
    code = digests.of_code(assignment)
    for part in (base, seed.hex(), repr(limits), str(sandboxed), repr(builtin_costs), code, own):
        digest.update(part.encode() + b"\0")
    rest = (base, seed, limits, sandboxed, builtin_costs, own, digest.hexdigest())
    return Task(submission.student, assignment, submission.folder, *rest)


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
        # By hand: nbformat's own writer indents, in Python, which takes ten times as long.
        "notebook": json.dumps(judgement.notebook, ensure_ascii=False, sort_keys=True),
    }


def _judge_all(
    tasks: list[Task], workers: int, executor: pool.ExecutorFactory
) -> Iterator[tuple[Task, dict[str, Any]]]:
    """``(task, outcome)`` as they are done."""
    if not tasks:
        return
    for task, outcome in pool.run(judge_task, tasks, workers, executor):
        if isinstance(outcome, Exception):  # ours to mend, never the learner's zero
            sentence = f"Not graded, an error of the grader: {type(outcome).__name__}: {outcome}"
            outcome = {"status": FAILED, "results": [], "seconds": 0.0, "notebook": None}
            outcome |= _told([Reason.GRADER(sentence)])
        yield task, outcome


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


class _Run:
    """One run's writing: what is new is written at once, what would change given points waits for :meth:`finish`."""

    def __init__(
        self, course: Course, journal: Journal, writer: Writer, records: dict[str, dict[str, Any] | None]
    ) -> None:
        self.course, self.journal, self.writer = course, journal, writer
        self.before = records
        self.records = {student: record for student, record in records.items() if record is not None}
        self.held: list[Task] = []
        self.changes: list[Change] = []

    def finished(self, task: Task, known: set[str]) -> bool:
        """Whether a submission's record fits it as it is now, and the gradebook has it too."""
        record = self.before[task.student]
        fits = record is not None and record.get("hash") == task.digest and record["status"] != FAILED
        return fits and task.student in known

    def is_judged(self, task: Task) -> bool:
        """Whether the journal has the outcome, and it is none that calls for another try."""
        key = task.student, task.digest
        return key in self.journal and self.journal.outcome(*key)["status"] != FAILED

    def take(self, task: Task, outcome: dict[str, Any]) -> None:
        """Write an outcome that is in the journal, or hold it back: points for these very answers are not changed unsaid."""
        record = self.before[task.student]
        failed = FAILED in (outcome["status"], record and record["status"])
        if record is None or failed or record.get("submission") != task.submission:
            self._write(task, outcome)
            return
        before, after = _earned(record["results"]), _earned(outcome["results"])
        differ = [piece for piece in {**before, **after} if before.get(piece, 0.0) != after.get(piece, 0.0)]
        if differ:
            self.held.append(task)
            values = ({piece: points.get(piece, 0.0) for piece in differ} for points in (before, after))
            self.changes.append(Change(task.student, *values))
        else:
            self._write(task, outcome)

    def finish(self, accept: Callable[[list[Change]], bool]) -> None:
        """Ask about what is held back, and write it where that is accepted."""
        if self.held and accept(sorted(self.changes, key=lambda change: (change.difference, change.student))):
            for task in self.held:
                self._write(task, self.journal.outcome(task.student, task.digest))

    def _write(self, task: Task, outcome: dict[str, Any]) -> None:
        self.records[task.student] = _save(self.course, self.writer, task, outcome)


def _earned(results: list[dict[str, Any]]) -> dict[str, float]:
    """What each piece earned."""
    earned: dict[str, float] = {}
    for result in results:
        earned[result["piece"]] = round(earned.get(result["piece"], 0.0) + result["earned"], 6)
    return earned


def _save(course: Course, writer: Writer, task: Task, outcome: dict[str, Any]) -> dict[str, Any]:
    """Write one outcome: the gradebook, the autograded notebook, and last the record that says that it is done."""
    remarks, reasons = list(outcome["remarks"]), list(outcome["reasons"])
    timestamp, remark = _timestamp(task.folder)
    if remark:
        remarks.append(remark)
        reasons.append(Reason.BAD_TIME.value)
    target = course.autograded(task.student, task.assignment)
    score = max_score = None
    if outcome["status"] != FAILED:
        # Without validating, which is the larger part of reading: it is one that the judge has made.
        notebook = nbformat.v4.reads(outcome["notebook"]) if outcome["notebook"] else None
        comments = outcome.get("comments", {})
        score, max_score = writer.write(task.student, task.assignment, notebook, comments, timestamp)
    # From here on until the new record is there, an old one would claim that all is as it says.
    course.record(task.student, task.assignment).unlink(missing_ok=True)
    shutil.rmtree(target.parent, ignore_errors=True)
    if outcome["status"] != FAILED:
        target.parent.mkdir(parents=True)
        if outcome["notebook"]:
            write_atomically(target, outcome["notebook"], durable=True)
        if timestamp is not None:
            (target.parent / "timestamp.txt").write_text(str(timestamp))
    record = {
        "student": task.student,
        "assignment": task.assignment,
        "notebook": task.assignment,
        "timestamp": timestamp.isoformat() if timestamp else None,
        "hash": task.digest,
        "submission": task.submission,
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
    # A line for each entry; json's own indenting is done in Python, which takes ten times as long.
    lines = (f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in record.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_atomically(course.record(task.student, task.assignment), text, durable=True)
    return record


def _check_gradebook(course: Course, assignment: str, base: str, writer: Writer) -> None:
    """The gradebook must know the graded cells and points that the source has now."""
    cells = nbformat.reads(base, as_version=4).cells
    source = {grade_id_of(c.metadata): points_of(c.metadata) for c in cells if nbgrader_flags(c.metadata).get("grade")}
    if writer.points(assignment) != source:
        raise CourseError(
            f"The gradebook does not know {assignment} as it is now: run `autograder course {course.root}`."
        )


def _record(course: Course, task: Task) -> dict[str, Any] | None:
    """The record of an earlier run, if it is whole."""
    try:
        record = json.loads(course.record(task.student, task.assignment).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"status", "results"} <= set(record) else None


def _timestamp(folder: Path):
    path = folder / "timestamp.txt"
    if not path.is_file() or path.is_symlink():
        return None, ""
    try:
        with path.open("rb") as file:  # a learner may have written it: a line, or a terabyte
            return parse_utc(file.read(100).decode().strip()), ""
    except Exception:
        return None, "timestamp.txt holds no time and was left out."
