"""``run_checks`` on any kind of student: it never raises for what a learner wrote, and says what is wrong."""

import math
import types

import numpy as np
import pytest
import torch

import autograder
from autograder import registry, runner
from autograder.student import LocalStudent
from transformer_lab import pieces

REFERENCE = pieces.load("solutions")
CHAPTERS = sorted({check.chapter for check in registry.checks()})


def test_the_reference_earns_every_point_in_every_kind_of_namespace():
    assert not REFERENCE.cell_errors
    as_dict = {name: getattr(REFERENCE, name) for name in registry.pieces()}
    module = types.ModuleType("answers")
    vars(module).update(as_dict)
    for student in (REFERENCE, as_dict, module, types.SimpleNamespace(**as_dict), LocalStudent(as_dict)):
        results = autograder.run_checks(student)
        assert sum(r.points for r in results) == 20 * len(CHAPTERS)
        code = [r for r in results if r.piece not in registry.submitted()]  # what is a file, no namespace has
        assert [r.message for r in code if r.message] == []
        assert all(r.earned == r.points for r in code)


def test_one_callable_is_enough():
    results = autograder.run_checks(
        types.SimpleNamespace(positional_encoding=REFERENCE.positional_encoding), piece="positional_encoding"
    )
    assert all(r.passed for r in results)
    assert {r.piece for r in results} == {"positional_encoding"}
    assert {r.chapter for r in results} == {2}


@pytest.mark.parametrize("chapter", [3, "3", "03", "03_attention"])
def test_a_chapter_is_a_number_or_a_name(chapter):
    assert {r.piece for r in autograder.run_checks({}, chapter=chapter)} == {
        "softmax",
        "scaled_dot_product_attention",
        "SelfAttention",
    }


def test_unknown_checks_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="positional_encoding"):
        autograder.run_checks({}, piece="positional_encodings")


def test_the_doubled_exponent_is_named():
    def positional_encoding(seq_len, d_model):
        table = torch.zeros(seq_len, d_model)
        for position in range(seq_len):
            for i in range(0, d_model, 2):
                angle = position / 10000 ** (2 * i / d_model)
                table[position, i], table[position, i + 1] = math.sin(angle), math.cos(angle)
        return table

    results = autograder.run_checks({"positional_encoding": positional_encoding}, piece="positional_encoding")
    failed = [r for r in results if not r.passed]
    assert failed
    assert {r.diagnosis.id for r in failed} == {"doubled-exponent"}
    assert "loop variable already steps by two" in failed[0].diagnosis.hint


@pytest.mark.parametrize("known", registry.misconceptions("LayerNorm"), ids=lambda known: known.id)
def test_the_first_failure_is_the_first_check_that_costs_points(known):
    student = {known.piece: known.implementation}
    results = autograder.run_checks(student, piece=known.piece, seed=3, diagnosing=False)
    assert any(r.earned < r.points for r in results)
    first = runner.first_failure(student, known.piece, seed=3)
    assert first if results[0].terms else first == next(r.check for r in results if r.message)


def test_the_reference_has_no_first_failure():
    assert runner.first_failure(REFERENCE, "LayerNorm") == ""


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others():
    def seen(seed):
        inputs = []

        def softmax(scores, dim=-1):
            inputs.append(scores.numpy().copy())
            return torch.softmax(scores, dim)

        autograder.run_checks({"softmax": softmax}, piece="softmax", seed=seed)
        return inputs

    first, again, other = seen(1), seen(1), seen(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(first, other, strict=True))


class Strange:
    def __call__(self, *args, **kwargs):
        return self

    def __eq__(self, other):
        return True

    __hash__ = None

    def __getattr__(self, name):
        return self


class AlwaysEqual(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def returns(value):
    return lambda *args, **kwargs: value


def raises(error):
    def piece(*args, **kwargs):
        raise error

    return piece


ODD = {
    "missing": None,
    "a number": 3,
    "a string": "softmax",
    "a class": type("Empty", (), {}),
    "a class that makes numbers": type("Number", (int,), {}),
    "something equal to everything": Strange(),
    "returns None": returns(None),
    "returns a string": returns("nan"),
    "returns NaN": returns(float("nan")),
    "returns a list": returns([1, [2, {"a": 3}]]),
    "returns a dict": returns({"output": 1}),
    "returns something equal to everything": returns(Strange()),
    "returns a tensor equal to everything": returns(torch.zeros(3).as_subclass(AlwaysEqual)),
    "returns an integer tensor": returns(torch.arange(3)),
    "returns complex": returns(torch.zeros(3, dtype=torch.complex64)),
    "returns an object array": returns(np.array([None])),
    "returns a sparse tensor": returns(torch.eye(3).to_sparse()),
    "returns too many": returns(torch.zeros(0, 5)),
    "raises": raises(RuntimeError("no")),
    "raises an odd error": raises(type("Ω", (Exception,), {"__str__": lambda self: 1 / 0})()),
    "exits": raises(SystemExit(0)),
    "not implemented": raises(NotImplementedError()),
    "endless recursion": (lambda f: f(f))(lambda f: lambda *a, **k: f(f)(*a, **k)),
}


def thirds(pieces):
    """Each oddity with every third piece, a different third from one to the next; with all of them in the long run."""
    for number, name in enumerate(ODD):
        yield pytest.param(name, pieces[number % 3 :: 3], id=name)
        yield pytest.param(name, pieces, id=f"{name}, every piece", marks=pytest.mark.long)


@pytest.mark.parametrize(("name", "chosen"), thirds(registry.pieces()))
def test_nothing_that_stands_for_a_piece_raises_or_scores(name, chosen):
    for piece in chosen:
        namespace = {} if ODD[name] is None else {piece: ODD[name]}
        results = autograder.run_checks(namespace, piece=piece)
        assert sum(r.earned for r in results) == 0, [r for r in results if r.passed]
        for result in results:
            assert result.message
            assert "\n" not in result.message
            assert isinstance(result.seconds, float)
            assert result.as_dict()["earned"] == 0


def test_a_call_that_takes_too_long_ends_the_piece():
    def softmax(scores, dim=-1):
        while True:
            pass

    results = autograder.run_checks(LocalStudent({"softmax": softmax}, seconds=0.2), piece="softmax")
    assert "no result after 0.2 seconds" in results[0].message
    assert all(r.message.startswith("Not run") for r in results[1:])


def test_a_failed_cell_is_named_where_its_piece_is_missing(tmp_path):
    (tmp_path / "answers.py").write_text("import nowhere\n\ndef softmax(scores, dim=-1):\n    return scores\n")
    results = autograder.run_checks(pieces.load(tmp_path / "answers.py"), piece="softmax")
    assert "nowhere" in results[0].message


def test_what_a_learner_patches_makes_no_wrong_answer_right(monkeypatch):
    always = lambda *args, **kwargs: True  # noqa: E731
    for place, name in (
        (torch, "allclose"),
        (torch, "equal"),
        (torch.testing, "assert_close"),
        (np.testing, "assert_allclose"),
        (math, "isclose"),
    ):
        monkeypatch.setattr(place, name, always)
    wrong = {"softmax": lambda scores, dim=-1: torch.zeros_like(scores)}
    assert sum(r.earned for r in autograder.run_checks(wrong, piece="softmax")) == 0


def test_checks_of_a_chapter_are_fast_on_the_reference():
    for chapter in CHAPTERS:
        results = autograder.run_checks(REFERENCE, chapter=chapter)
        assert all(r.passed for r in results if r.piece not in registry.submitted())
