"""How fast a class is graded: `nbgrader autograde` as it comes and `autograder grade`, side by side.

    python -m tests.proof.grading_speed

hands in the same submissions twice, to chapters 2 to 4: the samples, which are right, wrong, or loop without end, again
under other names until there are as many as wanted. Each grader gets a course of its own, the same limit of a cell, and the
machine to itself, and starts from a cold command line. Then our grader gets larger classes of submissions that don't loop,
whose time is all the grader's. Writes ``results/grading-speed.json``, one row for each run: seconds by the clock and of
processor time, the most memory of all its processes together, and, where the two can be compared, on how many submissions
that are neither hostile nor looping their scores are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from nbgrader.api import Gradebook

from autograder import release, samples, seeds
from autograder.course import Course
from transformer_lab import pieces, results

ASSIGNMENTS = ("02_positional_encoding", "03_attention", "04_multi_head")
#: The time limit of a cell, for both graders: nbgrader's own. Ours would be 60 seconds; loops would cost more.
CELL_SECONDS = 30
#: How often a grader's memory is looked at, in seconds: looking at all of its processes takes a twentieth of a second.
LOOK_SECONDS = 5.0
#: Kinds of samples that run into a limit, and kinds with which a learner tries to get points for nothing.
LOOPING, HOSTILE = ("endless-cell", "endless-loop"), ("patched-tests", "skipped-tests")
NBGRADER, OURS = "nbgrader autograde", "autograder grade"
MIXED, STEADY = "mixed", "without loops"


def class_of(number: int, looping: bool = True) -> list[tuple[str, samples.Sample]]:
    """``number`` submissions: a learner's name and the sample that is handed in, chapters in turn."""
    kinds = [s for s in samples.samples(ASSIGNMENTS) if looping or s.kind not in LOOPING]
    found = []
    for turn in itertools.count():
        for sample in kinds:
            if len(found) == number:
                return found
            found.append((f"{sample.student}_{turn}" if turn else sample.student, sample))
    raise AssertionError


def lay_out(root: Path, submissions: Sequence[tuple[str, samples.Sample]]) -> Course:
    """A course in which the submissions are handed in."""
    release.write_source_course(root, pieces.COURSE_ROOT / "solutions")
    for name in ASSIGNMENTS:
        release.generate_assignment(root, name)
    # Always the same inputs: what a wrong answer is worth in part may hang on them.
    (root / seeds.KEY_FILE).write_text("1" * 64)
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.ExecutePreprocessor.timeout = {CELL_SECONDS}\n")
    for student, sample in submissions:
        folder = root / "submitted" / student / sample.assignment
        folder.mkdir(parents=True)
        text = samples.notebook_text(sample, pieces.COURSE_ROOT / "notebooks")
        (folder / f"{sample.assignment}.ipynb").write_text(text, encoding="utf-8")
    return Course(root)


def commands(grader: str, course: Course, workers: int) -> list[list[str]]:
    """What one types to grade the course."""
    if grader == NBGRADER:
        return [[sys.executable, "-m", "nbgrader", "autograde", name, "--create"] for name in ASSIGNMENTS]
    words = [sys.executable, "-m", "autograder", "grade", "--course", str(course.root), "--workers", str(workers)]
    return [[*words, "--cell-seconds", str(CELL_SECONDS), "--accept-unenforced"]]


class Memory(threading.Thread):
    """The most memory that a process and all its descendants have had together, pages shared by several counted once."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.root, self.most, self.ended = process, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(LOOK_SECONDS):
            try:
                root = psutil.Process(self.root)
                self.most = max(self.most, sum(map(_proportional, [root, *root.children(recursive=True)])))
            except psutil.NoSuchProcess:
                return


def _proportional(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.NoSuchProcess:
        return 0


class Accounting:
    """A control group that counts the processor time of all processes started in it, wherever their parents are by then.

    What a parent is told of its children leaves out those of a sandbox, which end together with their first process.
    """

    def __init__(self) -> None:
        self.folder = Path(f"/sys/fs/cgroup/cpuacct/grading-speed-{os.getpid()}-{next(_numbers)}")
        try:
            self.folder.mkdir()
        except OSError as error:
            raise SystemExit(f"Processor time is counted by the control group cpuacct, as root: {error}.") from error

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text("0")

    def seconds(self) -> float:
        return int((self.folder / "cpuacct.usage").read_text()) / 1e9

    def close(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


_numbers = itertools.count()


def measure(grader: str, course: Course, workers: int) -> dict[str, float]:
    """Grade, and say what it took."""
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    environment["PYTHONPATH"] = str(pieces.COURSE_ROOT)
    accounting, began, most = Accounting(), time.perf_counter(), 0
    for command in commands(grader, course, workers):
        with open(course.root / "log.txt", "a") as log:
            process = subprocess.Popen(
                command, cwd=course.root, env=environment, stdout=log, stderr=log, preexec_fn=accounting.enter
            )
            memory = Memory(process.pid)
            memory.start()
            # nbgrader's exit status is 1 where a learner's notebook could not be graded, which is a verdict too
            if process.wait() not in (0, 1):
                raise RuntimeError(f"{' '.join(command)} failed: {(course.root / 'log.txt').read_text()[-2000:]}")
            memory.ended.set()
            memory.join()
        most = max(most, memory.most)
    seconds, processor = time.perf_counter() - began, accounting.seconds()
    accounting.close()
    return {"seconds": round(seconds, 1), "processor_seconds": round(processor, 1), "peak_mb": round(most / 1e6)}


def scores(course: Course) -> dict[str, float]:
    """The score of every submission, by student and assignment."""
    with Gradebook(course.db_url, course.course_id) as gradebook:
        return {
            f"{s.student.id}/{s.assignment.name}": s.score for name in ASSIGNMENTS for s in _submitted(gradebook, name)
        }


def _submitted(gradebook: Gradebook, name: str) -> list[Any]:
    return gradebook.assignment_submissions(name)


def row(grader: str, kind: str, number: int, workers: int, found: dict[str, float], same: int | None) -> dict[str, Any]:
    return {
        "grader": grader,
        "class": kind,
        "submissions": number,
        "workers": workers,
        **found,
        "per_minute": round(60 * number / found["seconds"], 1),
        "honest": same,
    }


def compare(kind: str, number: int, workers: int, folder: Path) -> list[dict[str, Any]]:
    """Both graders on the same class, and on how many honest submissions they agree (all, or this fails)."""
    submissions = class_of(number, looping=kind == MIXED)
    found, judged = {}, {}
    for grader, where in ((OURS, "ours"), (NBGRADER, "nbgrader")):
        course = lay_out(folder / f"{where} {kind}", submissions)
        found[grader] = measure(grader, course, 1 if grader == NBGRADER else workers)
        judged[grader] = scores(course)
        print(kind, grader, found[grader], flush=True)
    honest = [f"{name}/{s.assignment}" for name, s in submissions if s.kind not in (*LOOPING, *HOSTILE)]
    differ = [name for name in honest if judged[OURS].get(name) != judged[NBGRADER].get(name)]
    for name in differ:
        print(f"{name}: {judged[NBGRADER].get(name)} by nbgrader, {judged[OURS].get(name)} by ours", file=sys.stderr)
    same = len(honest) - len(differ)
    rows = [row(g, kind, number, 1 if g == NBGRADER else workers, found[g], same) for g in (NBGRADER, OURS)]
    if differ:
        raise RuntimeError(f"The graders disagree on {len(differ)} honest submissions.")
    return rows


def code() -> list[Path]:
    """The files that are there for the sake of speed."""
    root = pieces.COURSE_ROOT
    names = ("gradebook", "kernel_app", "kernel_main", "loaded", "parent", "pool", "quick_start", "recall")
    return [Path(__file__), *(root / "autograder" / f"{name}.py" for name in names)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--submissions", type=int, nargs="*", default=[200], help="sizes of larger classes")
    parser.add_argument("--compared", type=int, default=40, help="submissions that both graders get")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="notebooks at once, as ours does unasked"
    )
    parser.add_argument("--only-growth", action="store_true", help="keep what was compared before")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    machine = results.describe_machine()
    if options.only_growth:
        rows = [found for found in results.load("grading-speed").select() if found["honest"] is not None]

    def save() -> None:
        command = "make bench-grading"
        print(results.save("grading-speed", rows, command=command, code=code(), seed=1, machine=machine), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        if not options.only_growth:
            for kind in (STEADY, MIXED):
                rows += compare(kind, options.compared, options.workers, Path(folder))
                save()
        for number in options.submissions:
            course = lay_out(Path(folder) / str(number), class_of(number, looping=False))
            found = measure(OURS, course, options.workers)
            rows.append(row(OURS, STEADY, number, options.workers, found, None))
            print(rows[-1], flush=True)
            save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
