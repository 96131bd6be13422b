"""A grading that is killed at any moment goes on where it was, to the same gradebook; and the same with any workers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from pathlib import Path

import nbformat
import pytest

from autograder import grade, pool, release, samples, sandbox, seeds
from autograder.course import Course, CourseError
from autograder.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "03_attention"
LIMITS = sandbox.Limits(cell_seconds=60)
#: Learners who wait for nothing.
QUICK = ("einsum", "loops", "missing_scale", "mask_after_softmax", "own_helper", "untouched", "wrong_axis", "hosted")


class Here(concurrent.futures.Executor):
    """Judges in this process: what any executor must be able to do, and no more."""

    def submit(self, function, /, *arguments, **named):
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_result(function(*arguments, **named))
        return future

    def shutdown(self, wait=True):
        """Without ``cancel_futures``, as Dask's has it."""


def made_up(task: grade.Task) -> dict:
    """An outcome that depends on the learner's name alone, as judging would give it."""
    notebook = nbformat.reads(task.base, as_version=4)
    points = [float(byte % 4) for byte in task.student.encode()]
    results = []
    for cell in notebook.cells:
        flags = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and flags.get("grade"):
            value = points[len(results) % len(points)] if flags["points"] else 0.0
            cell.source = "pass"
            cell.outputs = [nbformat.v4.new_output("execute_result", data={"text/plain": f"{value:g}"})]
            piece = flags["grade_id"].removeprefix("check_")
            results.append({"piece": piece, "check": piece, "earned": value, "points": flags["points"]})
    return {
        "status": "graded",
        "results": results,
        "comments": {"softmax": f"To {task.student}."},
        "files": {},
        "remarks": [],
        "reasons": [],
        "seconds": 0.0,
        "notebook": nbformat.writes(notebook),
    }


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    """A course in which the samples of a chapter are handed in, and nothing is graded."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    root = tmp_path_factory.mktemp("released")
    release.write_source_course(root, [ROOT / "solutions" / f"{CHAPTER}.md"])
    release.generate_assignment(root, CHAPTER)
    samples.write(root, ROOT / "notebooks", [CHAPTER])
    (root / seeds.KEY_FILE).write_text("1" * 64)
    grade.digests.of_code(CHAPTER)  # once, for all forks of this process
    return root


@pytest.fixture
def course(released, tmp_path) -> Course:
    root = tmp_path / "course"
    shutil.copytree(released, root)
    return Course(root)


def gradebook(course: Course) -> dict[str, list]:
    """What nbgrader's gradebook says of the submissions, without the numbers that it draws for its rows."""
    queries = {
        "submissions": "SELECT student_id, timestamp FROM submitted_assignment",
        "grades": """
            SELECT s.student_id, c.name, g.auto_score, g.manual_score, g.extra_credit, g.needs_manual_grade
            FROM grade g JOIN submitted_notebook n ON g.notebook_id = n.id
            JOIN submitted_assignment s ON n.assignment_id = s.id JOIN base_cell c ON g.cell_id = c.id""",
        "comments": """
            SELECT s.student_id, c.name, m.auto_comment, m.manual_comment
            FROM comment m JOIN submitted_notebook n ON m.notebook_id = n.id
            JOIN submitted_assignment s ON n.assignment_id = s.id JOIN base_cell c ON m.cell_id = c.id""",
        "penalties": """
            SELECT s.student_id, n.late_submission_penalty
            FROM submitted_notebook n JOIN submitted_assignment s ON n.assignment_id = s.id""",
    }
    with contextlib.closing(sqlite3.connect(course.root / "gradebook.db")) as database:
        return {name: sorted(map(repr, database.execute(query))) for name, query in queries.items()}


def told(course: Course) -> list[dict]:
    """The records, without how long it took."""
    return [
        {key: value for key, value in record.items() if key != "seconds"}
        | {"results": [{k: v for k, v in r.items() if k != "seconds"} for r in record["results"]]}
        for record in grade.load_records(course, CHAPTER)
    ]


def notebooks(course: Course) -> dict[str, str]:
    return {path.parent.parent.name: path.read_text() for path in (course.root / "autograded").glob("*/*/*.ipynb")}


def journal_lines(course: Course) -> list[dict]:
    found = []
    for line in course.journal(CHAPTER).read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


# ------------------------------------------------------------------------------------------------------------- killed

#: What a run does to the disk: before the n-th of these, or of the commits, it is killed.
TOUCHES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


def graded_in_a_child(course: Course, kill_at: int | None = None) -> bool:
    """Grade with made-up outcomes in a fork of this process, which kills itself before it touches the disk so often.

    True when it came to its end.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            touched = 0

            def touch(event, arguments):
                reads = event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
                if event in TOUCHES and not reads and str(course.root) in str(arguments[0]):
                    count()

            def count():
                nonlocal touched
                touched += 1
                if touched == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(touch)
            write, synchronise = os.write, os.fsync

            def half_written(descriptor, content):
                if touched + 1 == kill_at:
                    write(descriptor, bytes(content)[: len(content) // 2])
                count()
                return write(descriptor, content)

            def synchronised(descriptor):
                count()
                synchronise(descriptor)

            os.write, os.fsync = half_written, synchronised
            from autograder import gradebook as writing

            finish = writing._Session.finish

            def finished(session):
                count()
                finish(session)

            writing._Session.finish = finished
            grade.judge_task = made_up
            grade.grade(course, CHAPTER, limits=LIMITS, workers=1, sandboxed=False, executor=lambda workers: Here())
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


@pytest.fixture(scope="module")
def undisturbed(released, tmp_path_factory) -> Course:
    root = tmp_path_factory.mktemp("undisturbed") / "course"
    shutil.copytree(released, root)
    assert graded_in_a_child(Course(root))
    return Course(root)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))])
def test_a_run_that_is_killed_wherever_it_writes_goes_on_to_the_same_gradebook(course, undisturbed, seed):
    random_ = random.Random(seed)
    kills = 0
    while not graded_in_a_child(course, random_.randint(1, 40) if kills < 12 else None):
        kills += 1
    assert kills >= 2
    assert gradebook(course) == gradebook(undisturbed)
    assert told(course) == told(undisturbed)
    assert notebooks(course) == notebooks(undisturbed)
    lines = [(line["student"], line["hash"]) for line in journal_lines(course)]
    assert len(lines) == len(set(lines)) == len(told(undisturbed))  # nothing that is on the disk was judged again


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_the_real_thing_killed_at_random_moments(course, needs_sandbox, tmp_path, kills):
    """SIGKILL to the grading process, with its workers and sandboxes, until so many runs were killed."""
    for folder in (course.root / "submitted").iterdir():
        if folder.name not in QUICK[: 3 if kills < 10 else None]:
            shutil.rmtree(folder)
    whole = Course(tmp_path / "whole")
    shutil.copytree(course.root, whole.root)
    killed, random_ = 0, random.Random(kills)
    while killed < kills:
        attempt = Course(tmp_path / "attempt")
        shutil.rmtree(attempt.root, ignore_errors=True)
        shutil.copytree(course.root, attempt.root)
        ended = False
        while not ended:
            child = _grading(attempt)
            deadline = time.monotonic() + (random_.uniform(1, 15) if killed < kills else 600)
            while (ended := os.waitpid(child, os.WNOHANG)[0] != 0) is False and time.monotonic() < deadline:
                time.sleep(0.02)
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                killed += 1
        if not (whole.root / "results").exists():
            os.waitpid(_grading(whole), 0)
        assert gradebook(attempt) == gradebook(whole)
        assert told(attempt) == told(whole)
        lines = [(line["student"], line["hash"]) for line in journal_lines(attempt)]
        assert len(lines) == len(set(lines)) == len(told(whole))


def _grading(course: Course) -> int:
    """Start the command that grades, and return its process."""
    command = [sys.executable, "-m", "autograder", "grade", CHAPTER, "--course", str(course.root), "--workers", "2"]
    with open(os.devnull, "w") as nowhere:
        streams = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), stream) for stream in (1, 2)]
        return os.posix_spawn(sys.executable, command, os.environ | {"PYTHONPATH": str(ROOT)}, file_actions=streams)


# ------------------------------------------------------------------------------------------------------------ the same


def test_one_worker_many_workers_and_another_executor_give_the_same_gradebook(course, needs_sandbox, tmp_path):
    for folder in (course.root / "submitted").iterdir():
        if folder.name not in QUICK[:5]:
            shutil.rmtree(folder)
    ways = {"one": (1, None), "three": (3, None), "here": (1, lambda workers: Here())}
    found = {}
    for name, (workers, executor) in ways.items():
        copy = Course(tmp_path / name)
        shutil.copytree(course.root, copy.root)
        grade.grade(copy, CHAPTER, limits=LIMITS, workers=workers, executor=executor)
        found[name] = gradebook(copy), told(copy)
    assert len(found["one"][1]) == 5
    assert found["one"] == found["three"] == found["here"]


# ------------------------------------------------------------------------------------------------- only what has changed


@pytest.fixture
def quick(course, monkeypatch):
    """Grade with made-up outcomes; gives the names that were judged."""
    asked: list[str] = []

    def judged(task):
        asked.append(task.student)
        return made_up(task)

    def run(**options):
        asked.clear()
        records = grade.grade(
            course, CHAPTER, limits=LIMITS, workers=1, sandboxed=False, executor=lambda workers: Here(), **options
        )
        return records, list(asked)

    monkeypatch.setattr(grade, "judge_task", judged)
    return run


def test_a_changed_check_changes_points_only_when_that_is_accepted(course, quick, monkeypatch):
    before, _ = quick()
    old = gradebook(course)
    monkeypatch.setattr(grade.digests, "of_code", lambda assignment: "other checks")
    monkeypatch.setattr(grade, "judge_task", lambda task: _one_point_more(made_up(task), task, ("loops", "einsum")))
    seen: list[grade.Change] = []
    records, _ = quick(accept=lambda changes: bool(seen.extend(changes)))
    assert [(change.student, change.difference) for change in seen] == [("einsum", 1.0), ("loops", 1.0)]
    assert [r["score"] for r in records] == [r["score"] for r in before]
    assert gradebook(course) == old

    monkeypatch.setattr(grade, "judge_task", lambda task: 1 / 0)  # all is judged already
    records, _ = quick(accept=lambda changes: len(changes) == 2)
    gained = {new["student"] for new, then in zip(records, before, strict=True) if new["score"] != then["score"]}
    assert gained == {"einsum", "loops"}
    assert {r["hash"] for r in records}.isdisjoint(r["hash"] for r in before)
    assert quick(accept=lambda changes: pytest.fail("nothing changes"))[0] == records


def _one_point_more(outcome: dict, task: grade.Task, students) -> dict:
    if task.student in students:
        outcome["results"][1]["earned"] += 1
        notebook = nbformat.reads(outcome["notebook"], as_version=4)
        cell = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")][1]
        cell.outputs[0].data["text/plain"] = str(outcome["results"][1]["earned"])
        outcome["notebook"] = nbformat.writes(notebook)
    return outcome


def test_what_the_gradebook_has_lost_is_written_again_without_judging(course, quick):
    quick()
    old = gradebook(course)
    with contextlib.closing(sqlite3.connect(course.root / "gradebook.db")) as database:
        for table in ("grade", "comment", "submitted_notebook", "submitted_assignment"):
            database.execute(f"DELETE FROM {table}")
        database.commit()
    _, asked = quick()
    assert asked == []
    assert gradebook(course) == old


def test_an_assignment_is_judged_again_only_where_its_own_code_has_changed():
    names = {path.name for path in grade.digests.files(CHAPTER)}
    assert {
        "ch03_attention.py",
        "judge.py",
        "kernel_main.py",
        "kernel_app.py",
        "driver.py",
        "compare.py",
        "runner.py",
    } <= names
    assert not {"ch04_multi_head.py", "report.py", "feedback.py", "cli.py", "gradebook.py"} & names
    assert grade.digests.of_code(CHAPTER) != grade.digests.of_code("04_multi_head")


@pytest.mark.parametrize("chapter", sorted(path.stem for path in (ROOT / "solutions").glob("[0-9][0-9]_*.md")))
def test_the_digest_covers_every_module_that_judges_the_pieces_of_an_assignment(chapter):
    from autograder import registry

    covered = {path.resolve() for path in grade.digests.files(chapter)}
    for name in release.graded_cells(ROOT / "solutions" / f"{chapter}.md"):
        piece = name.removeprefix("check_")
        found = [c.function for c in registry.checks(piece=piece)]
        found += [m.implementation for m in registry.misconceptions(piece)]
        assert {Path(sys.modules[thing.__module__].__file__).resolve() for thing in found} <= covered


def test_two_runs_at_once_are_refused(course, quick):
    with Journal(course.journal(CHAPTER)), pytest.raises(CourseError, match="Another run is grading 03_attention"):
        quick()


# ---------------------------------------------------------------------------------------------------------- the parts


def test_half_a_line_of_the_journal_is_passed_over(tmp_path):
    path = tmp_path / "journal" / "a.jsonl"
    with Journal(path) as journal:
        journal.add("ann", "1", {"status": "graded", "text": "ä\n"})
    whole = path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole + whole[:cut])
        with Journal(path) as journal:
            journal.add("bob", "2", {"status": "missing"})
        with Journal(path) as journal:
            assert journal.outcome("ann", "1") == {"status": "graded", "text": "ä\n"}
            assert journal.outcome("bob", "2") == {"status": "missing"}
            assert ("bob", "1") not in journal


def _fatal(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        raise ValueError("five")
    return 10 * number


def test_a_worker_that_dies_costs_only_the_task_at_fault():
    made = []

    def executor(workers):
        made.append(concurrent.futures.ProcessPoolExecutor(workers))
        return made[-1]

    found = dict(pool.run(_fatal, range(8), 2, executor))
    assert isinstance(found.pop(3), concurrent.futures.BrokenExecutor)
    assert isinstance(found.pop(5), ValueError)
    assert found == {number: 10 * number for number in (0, 1, 2, 4, 6, 7)}
    assert len(made) == 3  # anew after it broke, and after the culprit broke it again


def test_few_tasks_are_held_at_a_time():
    started: list[int] = []
    for done, _ in enumerate(pool.run(started.append, range(100), 2, lambda workers: Here())):
        assert len(started) <= done + pool.AHEAD * 2


class Later(Here):
    """Does the first task and leaves the others waiting."""

    def __init__(self):
        self.given: list[concurrent.futures.Future] = []

    def submit(self, function, /, *arguments, **named):
        self.given.append(concurrent.futures.Future() if self.given else super().submit(function, *arguments, **named))
        return self.given[-1]


def test_what_waits_is_given_up_when_the_run_ends_early():
    later = Later()
    run = pool.run(abs, range(9), 2, lambda workers: later)
    assert next(run) == (0, 0)
    run.close()
    assert len(later.given) > 1
    assert all(future.cancelled() for future in later.given[1:])


@pytest.mark.parametrize("kind", [Here, concurrent.futures.ThreadPoolExecutor])
def test_workers_of_any_kind_are_kept_for_several_runs(kind):
    made = []
    with pool.kept(lambda workers: made.append(kind()) or made[-1], 2) as kept:
        for _ in range(2):
            assert dict(pool.run(abs, [-1, -2], 2, kept)) == {-1: 1, -2: 2}
    assert len(made) == 1


def test_the_same_workers_serve_several_runs_until_they_break():
    made = []

    def executor(workers):
        made.append(concurrent.futures.ProcessPoolExecutor(workers))
        return made[-1]

    with pool.kept(executor, 2) as kept:
        for _ in range(2):
            assert dict(pool.run(abs, range(-4, 0), 1, kept)) == {-n: n for n in range(1, 5)}
        assert len(made) == 1
        found = dict(pool.run(_fatal, range(3, 5), 2, kept))
        assert isinstance(found[3], concurrent.futures.BrokenExecutor)
        assert found[4] == 40
        assert len(made) == 3
        assert dict(pool.run(abs, [-1], 2, kept)) == {-1: 1}
        assert len(made) == 3
    with pytest.raises(RuntimeError, match="shutdown"):
        made[-1].submit(abs, 1)


def test_what_cannot_be_graded_as_it_lies_there_is_said(tmp_path):
    course = Course(tmp_path)
    (tmp_path / "submitted" / "ann" / CHAPTER).mkdir(parents=True)
    (tmp_path / "submitted" / "ann" / f"{CHAPTER}.zip").write_bytes(b"PK")
    (tmp_path / "submitted" / "class.tar.gz").write_bytes(b"")
    os.makedirs(os.fsencode(tmp_path / "submitted") + b"/bo\xe9/" + CHAPTER.encode())
    assert [submission.student for submission in course.submissions(CHAPTER)] == ["ann"]
    told = course.passed_over()
    assert len(told) == 3
    for beginning in (f"submitted/ann/{CHAPTER}.zip is an archive", "submitted/class.tar.gz is an archive"):
        assert any(sentence.startswith(beginning) and "unpack it" in sentence for sentence in told)
    assert any("submitted/bo\\xe9 is no UTF-8" in sentence for sentence in told)
