"""Damaged and odd submissions, graded in one batch: right code earns its points, all else a reason and a sentence."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder import grade, intake, release, sandbox, seeds
from autograder.course import Course
from autograder.reasons import Reason
from tests.damaged import page
from tests.damaged.cases import CASES, FORMATS, MAX, Case
from tests.damaged.edits import ASSIGNMENT, RIGHT, ROOT
from transformer_lab.cells import grade_id_of, read_notebook

#: What only intake sees: once rebuilt, these are the right notebook again. In the quick run intake alone is asked.
INTAKE = {case.student for case in FORMATS} - {"format-3", "big-outputs", "surrogate"}
INTAKE |= {
    "utf-16-be",
    "windows-lines",
    "copy-2",
    "as-txt",
    "comma",
    "twice",
    "merge",
    "bom",
    "graded-copied",
    "as-raw",
}
SLOW = [case for case in CASES if case.slow or case.student in INTAKE]
QUICK = [case for case in CASES if case not in SLOW]


def _graded(root: Path, cases: list[Case], limits: sandbox.Limits) -> tuple[Course, dict[str, dict]]:
    """A course in which the cases are handed in and graded, and the records by student."""
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    release.write_source_course(root, [ROOT / f"solutions/{ASSIGNMENT}.md"])
    release.generate_assignment(root, ASSIGNMENT)
    (root / seeds.KEY_FILE).write_text("1" * 64)
    for case in cases:
        case.write(root / "submitted")
    place = Course(root)
    records = grade.grade(place, ASSIGNMENT, limits=limits, accept_unenforced=True)
    return place, {record["student"]: record for record in records}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, needs_sandbox):
    return _graded(tmp_path_factory.mktemp("damaged"), QUICK, sandbox.Limits(cell_seconds=3))


@pytest.fixture(scope="module")
def slowly_graded(tmp_path_factory, needs_sandbox):
    return _graded(tmp_path_factory.mktemp("damaged"), SLOW, sandbox.Limits(cell_seconds=15))


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.what)
def test_it_comes_to_what_it_must(graded, case):
    holds(graded[1][case.student], case)


@pytest.mark.long
@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.what)
def test_it_comes_to_what_it_must_in_the_end(slowly_graded, case):
    holds(slowly_graded[1][case.student], case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_intake_gives_its_reasons_and_the_whole_notebook(tmp_path, case):
    stub = read_notebook(ROOT / f"notebooks/{ASSIGNMENT}/{ASSIGNMENT}.ipynb")
    case.write(tmp_path)
    received = intake.receive(tmp_path / case.student / ASSIGNMENT, ASSIGNMENT, stub)
    remarks = list(received.remarks)
    if received.notebook is not None:
        rebuilt = intake.rebuild(stub, received.notebook)
        remarks += rebuilt.remarks
        if case.student in INTAKE:
            texts = {grade_id_of(cell.metadata): cell.source for cell in rebuilt.notebook.cells}
            assert all(texts[name].strip().endswith(text.strip()) for name, text in RIGHT.items())
    expected = [
        reason for reason in case.reasons if reason.scope in ("file", "cells") and reason is not Reason.BAD_TIME
    ]
    assert Counter(remark.reason for remark in remarks) == Counter(expected)


def holds(record: dict, case: Case) -> None:
    told = "; ".join(record["remarks"] + [f"{r['check']}: {r['message']}" for r in record["results"] if r["message"]])
    assert record["status"] == case.status, told
    assert record["score"] == case.points, told
    assert record["max_score"] == MAX
    assert Counter(record["reasons"]) == Counter(reason.value for reason in case.reasons), told
    assert case.sentence in " ".join(record["remarks"])
    assert len(record["remarks"]) == len(record["reasons"])
    assert all(remark.endswith((".", "?")) for remark in record["remarks"])
    lost: dict[str, str] = {}
    for result in record["results"]:
        assert bool(result["reason"]) == bool(result["message"])
        if result["message"]:
            lost.setdefault(result["piece"], result["reason"])
    assert lost == {piece: reason.value for piece, reason in case.lost}


def test_the_gradebook_has_them_all(graded):
    place, records = graded
    with Gradebook(place.db_url, place.course_id) as gradebook:
        for case in QUICK:
            submission = gradebook.find_submission(ASSIGNMENT, case.student)
            assert submission.score == records[case.student]["score"]
            assert submission.max_score == MAX
            assert not submission.needs_manual_grade


def test_every_student_hands_in_once():
    assert len({case.student for case in CASES}) == len(CASES) >= 100
    assert len({case.what for case in CASES}) == len(CASES)


def test_the_page_for_instructors_is_made_from_the_tables():
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run `python -m tests.damaged.page`"
    shown = {reason for case in CASES for reason in (*case.reasons, *dict(case.lost).values())}
    untested = set(Reason) - shown
    # What no submission can bring about, what the files beside a notebook have, and what takes a notebook's whole time.
    assert untested == {
        Reason.GRADER,
        Reason.BAD_ANSWER,
        Reason.NOT_HANDED_IN,
        Reason.BAD_FILE,
        Reason.NOT_RUN,
    }
