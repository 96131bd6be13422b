"""A whole class, end to end: the sample submissions in the real sandbox, written to a real gradebook."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder import grade, release, samples, sandbox, seeds
from autograder.course import Course, CourseError

ROOT = Path(__file__).resolve().parents[2]
#: The chapters whose samples are stuck, careless or cheating; what the others earn is tested without a sandbox.
ASSIGNMENTS = ("02_positional_encoding", "03_attention")
LIMITS = sandbox.Limits(cell_seconds=8)
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def course(tmp_path_factory, needs_sandbox) -> Course:
    """A course in which all sample submissions are handed in and graded."""
    os.environ["PATH"] = PATH
    root = tmp_path_factory.mktemp("course")
    release.write_source_course(root, ROOT / "solutions")
    for name in ASSIGNMENTS:
        release.generate_assignment(root, name)
    samples.write(root, ROOT / "notebooks", ASSIGNMENTS)
    # Always the same inputs: what a wrong answer is worth in part may hang on them, as where a mask closes a whole column.
    (root / seeds.KEY_FILE).write_text("1" * 64)
    place = Course(root)
    for name in ASSIGNMENTS:
        grade.grade(place, name, limits=LIMITS)
    return place


def records(course):
    return {(r["student"], r["assignment"]): r for name in ASSIGNMENTS for r in grade.load_records(course, name)}


@pytest.mark.parametrize("sample", samples.samples(ASSIGNMENTS), ids=lambda s: f"{s.assignment[:2]}-{s.student}")
def test_a_sample_gets_what_it_must(course, sample):
    record = records(course)[sample.student, sample.assignment]
    assert record["status"] == "graded"
    earned: dict[str, float] = {}
    for result in record["results"]:
        earned[result["piece"]] = earned.get(result["piece"], 0) + result["earned"]
    assert earned == {piece: expected.points for piece, expected in sample.expect.items()}
    assert record["score"] == sum(earned.values())
    assert record["max_score"] == 20
    for piece, expected in sample.expect.items():
        if expected.diagnosis:
            named = {r["diagnosis"]["id"] for r in record["results"] if r["piece"] == piece and r["diagnosis"]}
            assert named == {expected.diagnosis}


def test_the_gradebook_has_scores_comments_and_times(course):
    with Gradebook(course.db_url, course.course_id) as gradebook:
        for (student, assignment), record in records(course).items():
            submission = gradebook.find_submission(assignment, student)
            assert submission.score == record["score"]
            assert submission.timestamp.isoformat() == record["timestamp"]
            assert not submission.needs_manual_grade
        comment = gradebook.find_comment(
            "scaled_dot_product_attention", "03_attention", "03_attention", "missing_scale"
        ).auto_comment
        assert "√d_k" in comment
        stub = gradebook.find_comment("softmax", "03_attention", "03_attention", "untouched").auto_comment
        assert stub == "No response."


def test_nbgrader_exports_what_was_graded(course):
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "export", "--to", "grades.csv"],
        cwd=course.root,
        env={**os.environ, "PATH": PATH},
        check=True,
        capture_output=True,
        timeout=120,
    )
    rows = list(csv.DictReader((course.root / "grades.csv").open()))
    exported = {(row["student_id"], row["assignment"]): float(row["score"]) for row in rows if row["score"]}
    for key, record in records(course).items():
        assert exported[key] == record["score"]


def test_what_formgrader_shows_holds_no_hidden_line(course):
    for student, assignment in records(course):
        text = course.autograded(student, assignment).read_text()
        assert "award(" not in text
        assert "HIDDEN" not in text
        nbformat.validate(nbformat.reads(text, as_version=4))


def test_a_second_run_grades_nothing_again(course, monkeypatch):
    monkeypatch.setattr(grade, "_judge_all", lambda tasks, *rest: iter([] if not tasks else [1 / 0]))
    before = records(course)
    for name in ASSIGNMENTS:
        grade.grade(course, name, limits=LIMITS)
    assert records(course) == before


def test_only_a_changed_submission_is_graded_again(course, monkeypatch):
    path = course.root / "submitted/untouched/03_attention/03_attention.ipynb"
    saved = path.read_text()
    path.write_text(saved + "\n")
    asked: list[str] = []
    monkeypatch.setattr(grade, "_judge_all", lambda tasks, *rest: iter(asked.extend(t.student for t in tasks) or []))
    grade.grade(course, "03_attention", limits=LIMITS)
    path.write_text(saved)
    assert asked == ["untouched"]


def test_odd_submissions_get_a_score_and_a_sentence(course):
    place = course.root / "submitted"
    made = {}
    for student in ("no_notebook", "broken_json", "other_name", "junk_time"):
        made[student] = place / student / "03_attention"
        made[student].mkdir(parents=True, exist_ok=True)
    stub = (ROOT / "notebooks/03_attention/03_attention.ipynb").read_text()
    (made["broken_json"] / "03_attention.ipynb").write_text(stub[:-100])
    (made["other_name"] / "attention (1).ipynb").write_text(stub)
    (made["junk_time"] / "03_attention.ipynb").write_text(stub)
    (made["junk_time"] / "timestamp.txt").write_text("yesterday-ish\n")
    found = {r["student"]: r for r in grade.grade(course, "03_attention", students=list(made), limits=LIMITS)}
    assert {s: r["status"] for s, r in found.items()} == {
        "no_notebook": "missing",
        "broken_json": "graded",  # its last cells are cut off, the others are whole
        "other_name": "graded",
        "junk_time": "graded",
    }
    assert all(r["score"] == 0 and r["max_score"] == 20 for r in found.values())
    assert all(r["remarks"] for r in found.values())
    for student in made:
        assert json.loads(course.record(student, "03_attention").read_text())["score"] == 0


def test_mistakes_of_the_instructor_are_one_sentence(course, tmp_path):
    with pytest.raises(CourseError, match="no source for 04_heads"):
        grade.grade(course, "04_heads")
    with pytest.raises(CourseError, match="by nobody"):
        grade.grade(course, "03_attention", students=["nobody"])
    empty = Course(tmp_path)
    with pytest.raises(CourseError):
        grade.grade(empty, "03_attention")


def test_no_sandbox_no_grading(course, monkeypatch):
    monkeypatch.setattr(sandbox, "why_unavailable", lambda: "bubblewrap is not installed: install it.")
    with pytest.raises(sandbox.SandboxError, match="bubblewrap is not installed"):
        grade.grade(course, "03_attention")


def test_the_command_grades_and_says_where_things_are(course):
    command = [
        sys.executable,
        "-m",
        "autograder",
        "grade",
        "03_attention",
        "-c",
        course.root,
        "--student",
        "missing_scale",
    ]
    done = subprocess.run(
        [*map(str, command), "--force", "--workers", "1"],
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "15/20" in done.stdout
    assert "missing-scale" in done.stdout
    assert "√d_k" in (course.root / "feedback/missing_scale/03_attention/03_attention.html").read_text()
    assert (course.root / "report/index.html").exists()


def test_the_judge_can_take_the_place_of_nbgraders_execute(course, tmp_path):
    release.write_source_course(tmp_path, [ROOT / "solutions/03_attention.md"])
    with (tmp_path / "nbgrader_config.py").open("a") as config:
        config.write("names = ['LimitOutput', 'SaveAutoGrades', 'AssignLatePenalties', 'CheckCellMetadata']\n")
        config.write("ours = ['autograder.judge.Judge', *(f'nbgrader.preprocessors.{name}' for name in names)]\n")
        config.write("c.Autograde.autograde_preprocessors = ours\n")
    release.generate_assignment(tmp_path, "03_attention")
    samples.write(tmp_path, ROOT / "notebooks", ["03_attention"])
    chosen = ("loops", "skipped_tests", "patched_tests")
    nbgrader_autograde(tmp_path, chosen)
    ours = records(course)
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}", "transformer-piece-by-piece") as gradebook:
        for student in chosen:
            theirs = gradebook.find_submission("03_attention", student).score
            assert theirs == ours[student, "03_attention"]["score"], student


def nbgrader_autograde(root: Path, students: tuple[str, ...]) -> None:
    """nbgrader's own command on these students' submissions to chapter 3."""
    for folder in (root / "submitted").iterdir():
        if folder.name not in students:
            shutil.rmtree(folder)
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", "03_attention", "--create"],
        cwd=root,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "honest",
    [
        ("mask_after_softmax", "own_helper"),
        pytest.param(("loops", "syntax_error"), marks=pytest.mark.long),
    ],
    ids=" and ".join,
)
def test_plain_nbgrader_autograde_gives_honest_submissions_the_same_scores(course, tmp_path, honest):
    release.write_source_course(tmp_path, [ROOT / "solutions/03_attention.md"])
    release.generate_assignment(tmp_path, "03_attention")
    samples.write(tmp_path, ROOT / "notebooks", ["03_attention"])
    nbgrader_autograde(tmp_path, honest)
    ours = records(course)
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}", "transformer-piece-by-piece") as gradebook:
        for student in honest:
            theirs = gradebook.find_submission("03_attention", student).score
            assert theirs == ours[student, "03_attention"]["score"], student
