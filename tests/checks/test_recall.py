"""autograder.recall: a check that is not run again says what it would have said."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autograder import recall, registry, runner
from autograder.compare import CheckFailed, equal
from autograder.recall import Said
from autograder.student import LocalStudent, RemoteStudent, StudentError
from tests import bank
from transformer_lab import driver

TWICE = 2


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(recall, "_steps", {})
    monkeypatch.setattr(recall, "_questions", {})


class Elsewhere(RemoteStudent):
    """Pieces that are asked as those of a kernel are, without one. ``asked`` counts."""

    def __init__(self, namespace):
        super().__init__(kernel=None)
        self.namespace, self.asked = namespace, 0

    def exchange(self, request):
        self.asked += 1
        return driver.answer(self.namespace, request)


def judged(student, piece, seed=0):
    return [replace(result, seconds=0.0) for result in runner.run_checks(student, piece=piece, seed=seed, cells=[])]


PIECES = ("softmax", "TransformerEmbedding", "SelfAttention", "Residual", "greedy_decode")


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_the_bank_gets_the_verdicts_that_it_would_get_without(piece, every):
    for entry in bank.entries(piece)[::every]:
        namespace = bank.load(entry)
        expected = judged(LocalStudent(namespace), piece)
        for _ in range(TWICE):
            assert judged(Elsewhere(namespace), piece) == expected, entry.id


@pytest.mark.parametrize("piece", PIECES)
def test_nothing_is_run_again_and_everything_is_asked_again(piece, monkeypatch):
    runs = []
    original = runner._said
    monkeypatch.setattr(runner, "_said", lambda check, *rest: runs.append(check.name) or original(check, *rest))
    for entry in bank.entries(piece, "right")[::3]:
        students = [Elsewhere(bank.load(entry)) for _ in range(TWICE)]
        judged(students[0], piece)
        del runs[:]
        judged(students[1], piece)
        assert runs == [], entry.id
        assert students[0].asked == students[1].asked


def test_half_of_the_checks_find_an_equal_answer_of_another_implementation(monkeypatch):
    """A page of the instructors' part says so of these chapters; the bank's right entries are written to differ."""
    runs, checks = [], 0
    original = runner._said
    monkeypatch.setattr(runner, "_said", lambda check, *rest: runs.append(check.name) or original(check, *rest))
    for piece in dict.fromkeys(check.piece for chapter in (2, 3, 4) for check in registry.checks(chapter=chapter)):
        for entry in bank.entries(piece, "right"):
            checks += len(judged(Elsewhere(bank.load(entry)), piece))
    assert len(runs) < 0.5 * checks


def test_other_seeds_are_other_questions():
    entry = bank.entries("softmax", "right")[0]
    student = Elsewhere(bank.load(entry))
    for seed in (1, b"1", 2):
        before = len(recall._steps)
        assert all(result.passed for result in judged(student, "softmax", seed))
        assert len(recall._steps) > before


def test_a_check_of_a_file_is_not_remembered():
    piece = next(iter(registry.submitted()))
    runner.run_checks(Elsewhere({}), piece=piece)
    assert recall._steps == {}


# ---------------------------------------------------------------------------------------------------- any check at all


def sums(student):
    """A check whose next question depends on the answers so far; 9 fails it, and 8 is an error of the piece's."""
    total = 0
    for turn in range(4):
        try:
            total += student.run("f", total + turn)
        except StudentError as error:
            if error.type_name != "ValueError":
                raise
            total += 1
        if total >= 9:
            raise CheckFailed(f"{total} after turn {turn}")


def told(student):
    try:
        sums(student)
    except CheckFailed as failure:
        return Said(str(failure), "wrong")
    except StudentError as error:
        return Said(str(error), "lost", True)
    return Said()


def scripted(answers):
    """A piece that answers one after the other, and raises where 8 is next."""
    left = iter(answers)

    def f(x):
        answer = next(left)
        if answer == 8:
            raise ValueError("eight")
        return answer

    return {"f": f}


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 8, 9]), min_size=4, max_size=4), min_size=1, max_size=12))
def test_whatever_is_answered_the_check_says_the_same_and_the_transcript_is_the_same(scripts):
    recall._steps.clear()
    for script in scripts + scripts:
        direct, recalled = LocalStudent(scripted(script)), Elsewhere(scripted(script))
        assert recall.said(recalled, "sums", 0, told) == told(direct)
        assert len(direct.transcript) == len(recalled.transcript) == recalled.asked
        for ours, theirs in zip(direct.transcript, recalled.transcript, strict=True):
            assert ours.request == theirs.request
            assert str(ours.error) == str(theirs.error)
            assert equal(ours.wanted, theirs.wanted, 0.0)


def test_two_answers_that_differ_in_the_last_bit_are_two():
    runs = []

    def check(student):
        value = float(student.run("f", 1.0))
        runs.append(value)
        return Said(value.hex())

    for value in (1.0, 1.0 + 2**-23, 1.0):
        student = Elsewhere({"f": lambda x, value=value: torch.tensor(value)})
        assert recall.said(student, "bits", 0, check).message == value.hex()
    assert len(runs) == 2


class Fragile(Elsewhere):
    """Gives no answer to its question number ``at``."""

    def __init__(self, namespace, at):
        super().__init__(namespace)
        self.at = at

    def exchange(self, request):
        if self.asked == self.at:
            self.asked += 1
            raise StudentError("Timeout", "no result after 1 seconds")
        return super().exchange(request)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("known", [False, True])
def test_no_answer_reaches_the_check_where_it_belongs_and_is_forgotten(at, known):
    script = [1, 1, 1, 1]
    if known:
        recall.said(Elsewhere(scripted(script)), "sums", 0, told)
    before = dict(recall._steps)
    student = Fragile(scripted(script), at)
    assert recall.said(student, "sums", 0, told) == Said("Timeout: no result after 1 seconds", "lost", True)
    assert student.asked == len(student.transcript) == at + 1
    assert student.transcript[-1].error.type_name == "Timeout"
    assert recall._steps == before
    assert recall.said(Elsewhere(scripted(script)), "sums", 0, told) == Said()


def test_a_check_may_go_on_after_no_answer():
    def check(student):
        said = []
        for _ in range(3):
            try:
                said.append(str(student.run("f", 0)))
            except StudentError as error:
                said.append(error.type_name)
        return Said(" ".join(said))

    for _ in range(TWICE):
        assert recall.said(Fragile(scripted([1, 2, 3]), 1), "three", 0, check).message == "1 Timeout 2"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(recall, "MOST", 20)
    for number in range(100):
        student = Elsewhere({"f": lambda x, number=number: number / 1000})
        assert recall.said(student, "sums", 0, told) == told(LocalStudent(student.namespace))
        assert len(recall._steps) <= 20 + 5
        assert len(recall._questions) <= len(recall._steps)
