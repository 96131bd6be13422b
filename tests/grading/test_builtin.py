"""Submissions that use the very built-in which a piece re-creates: noted once in every place, priced as the setting says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder import feedback, grade, release, report, sandbox
from autograder.course import Course
from transformer_lab.cells import read_notebook

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "03_attention"
LIMITS = sandbox.Limits(cell_seconds=30)
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

SHARES = (
    "import torch.nn.functional as functions\n\ndef shares(x, dim):\n    return functions.log_softmax(x, dim).exp()"
)
ANSWERS = {
    "open": {"softmax": f"{SHARES}\n\ndef softmax(scores, dim=-1):\n    return shares(scores, dim)"},
    "secret": {"softmax": 'def softmax(scores, dim=-1):\n    return getattr(torch, "soft" + "max")(scores, dim)'},
    "own": {
        "softmax": "def softmax(scores, dim=-1):\n    # torch.softmax does the same\n"
        "    softmax = (scores - scores.amax(dim, keepdim=True)).exp()\n    return softmax / softmax.sum(dim, keepdim=True)"
    },
}
NOTES = {
    "open": "`softmax` uses `F.log_softmax` (line 4 of your answer), which this piece re-creates: "
    "your numbers are right, but the exercise is to build it.",
    "secret": "`softmax` was seen to call `torch.softmax` (line 2 of softmax: "
    'return getattr(torch, "soft" + "max")(scores, dim)), which this piece re-creates: '
    "your numbers are right, but the exercise is to build it.",
}
PRICE = " In this course that costs 50 % of what was earned for it: 5 become 2.5."


def lay_out(root: Path) -> Course:
    """A course in which chapter 3 is released and everybody of ``ANSWERS`` has handed in."""
    os.environ["PATH"] = PATH
    release.write_source_course(root, [ROOT / f"solutions/{CHAPTER}.md"])
    release.generate_assignment(root, CHAPTER)
    for student, answers in ANSWERS.items():
        notebook = read_notebook(ROOT / f"notebooks/{CHAPTER}/{CHAPTER}.ipynb")
        for cell in notebook.cells:
            cell.source = answers.get((cell.metadata.get("nbgrader") or {}).get("grade_id"), cell.source)
        target = root / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"
        target.parent.mkdir(parents=True)
        nbformat.write(notebook, target)
    return Course(root)


def set_price(course: Course, price: float) -> None:
    config = course.root / "nbgrader_config.py"
    kept = [line for line in config.read_text().splitlines() if "builtin_costs" not in line]
    config.write_text("\n".join([*kept, f"c.Judge.builtin_costs = {price}", ""]))


def graded(course: Course, **how) -> dict[str, dict]:
    return {record["student"]: record for record in grade.grade(course, CHAPTER, limits=LIMITS, **how)}


def notes(record: dict) -> list[str]:
    return [note for result in record["results"] for note in result["notes"]]


def gradebook(course: Course) -> dict[str, tuple[float, str]]:
    with Gradebook(course.db_url, course.course_id) as book:
        return {
            student: (
                book.find_submission(CHAPTER, student).score,
                book.find_comment("softmax", CHAPTER, CHAPTER, student).auto_comment or "",
            )
            for student in ANSWERS
        }


@pytest.fixture(scope="module")
def course(tmp_path_factory, needs_sandbox) -> Course:
    return lay_out(tmp_path_factory.mktemp("builtin"))


def test_the_price_is_the_instructors_and_none_at_first(course):
    free = graded(course)
    assert {student: record["score"] for student, record in free.items()} == {"open": 5, "secret": 5, "own": 5}
    assert {student: notes(record) for student, record in free.items()} == {
        "open": [NOTES["open"]],
        "secret": [NOTES["secret"]],
        "own": [],
    }
    assert gradebook(course)["open"] == (5, f"Noted: {NOTES['open']}")
    assert gradebook(course)["own"] == (5, "")
    page = feedback.write_feedback(course.root, CHAPTER, "open").read_text()
    assert page.count("your numbers are right, but the exercise is to build it") == 1
    assert "In this course that costs" not in page

    set_price(course, 0.5)
    priced = graded(course)
    assert {student: record["score"] for student, record in priced.items()} == {"open": 2.5, "secret": 2.5, "own": 5}
    assert notes(priced["open"]) == [NOTES["open"] + PRICE]
    assert priced["open"]["max_score"] == free["open"]["max_score"] == 20
    assert gradebook(course)["open"] == (2.5, f"Noted: {NOTES['open']}{PRICE}")
    assert "In this course that costs 50 %" in feedback.write_feedback(course.root, CHAPTER, "open").read_text()
    judged = course.autograded("open", CHAPTER).read_text()
    assert "In this course that costs 50 %" in judged

    assert graded(course) == priced, "nothing is graded again while the setting stays"

    done = autograder_grade(course, "--builtin-costs", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("softmax: built-in used") == 2
    assert "2.5" not in done.stdout
    assert {student: score for student, (score, _) in gradebook(course).items()} == {"open": 5, "secret": 5, "own": 5}
    assert gradebook(course)["open"] == (5, f"Noted: {NOTES['open']}")


def autograder_grade(course: Course, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "autograder", "grade", CHAPTER, "-c", str(course.root), *options],
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_the_report_says_who(course):
    folder = report.write_report(course.root).parent
    page = (folder / f"{CHAPTER}.html").read_text()
    assert page.count("a built-in that this piece re-creates") == 1
    table = (folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [line.split(",")[0] for line in table if "softmax: built-in used" in line] == ["open", "secret"]


def test_a_setting_that_is_no_share_is_one_sentence(course):
    set_price(course, 2)
    done = autograder_grade(course)
    assert done.returncode == 2
    assert "nbgrader_config.py: builtin_costs is a number from 0" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("judge", [False, True], ids=["plain nbgrader", "our judge in nbgrader"])
def test_nbgraders_own_command_obeys_the_same_setting(tmp_path, needs_sandbox, judge):
    course = lay_out(tmp_path)
    set_price(course, 0.5)
    if judge:
        with (tmp_path / "nbgrader_config.py").open("a") as config:
            config.write("names = ['LimitOutput', 'SaveAutoGrades', 'AssignLatePenalties', 'CheckCellMetadata']\n")
            config.write("ours = ['autograder.judge.Judge', *(f'nbgrader.preprocessors.{name}' for name in names)]\n")
            config.write("c.Autograde.autograde_preprocessors = ours\n")
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", CHAPTER, "--create"],
        cwd=tmp_path,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with Gradebook(course.db_url, course.course_id) as book:
        scores = {student: book.find_submission(CHAPTER, student).score for student in ANSWERS}
    assert scores == {"open": 2.5, "secret": 2.5, "own": 5}
    assert "In this course that costs 50 %" in course.autograded("open", CHAPTER).read_text()
