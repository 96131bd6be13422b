"""The note on a built-in that a piece re-creates: said once, from the source or the trace, and free unless it has a price."""

import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autograder
from autograder import recreates, uses
from autograder.student import LocalStudent, Probe, Strided, StudentError
from tests.bank import entries, load
from tests.lab.write_notebooks import code, write
from transformer_lab import pieces
from transformer_lab.cells import Cell

REFERENCE = pieces.load("solutions")
OWN = """
import torch

def softmax(scores, dim=-1):
    shifted = scores - scores.amax(dim=dim, keepdim=True)
    powers = shifted.exp()
    return powers / powers.sum(dim=dim, keepdim=True)
"""
BUILTIN = "import torch\n\ndef softmax(scores, dim=-1):\n    return torch.softmax(scores, dim)\n"
WRONG = "import torch\n\ndef softmax(scores, dim=-1):\n    return torch.softmax(scores, 0)\n"
HIDDEN = 'import torch\n\ndef softmax(scores, dim=-1):\n    return getattr(torch, "soft" + "max")(scores, dim)\n'


def run(source, piece="softmax", **how):
    namespace: dict = {}
    exec(source, namespace)
    return autograder.run_checks(namespace, piece=piece, cells=[Cell(1, "", source, True)], **how)


def notes(results):
    return [note for result in results for note in result.notes]


# ------------------------------------------------------------------------------------------------------------ the table


def test_every_name_in_the_table_is_something_of_pytorch_or_sacrebleu():
    import sacrebleu  # noqa: F401  # what is not imported is not looked up

    for piece, names in recreates.RECREATES.items():
        assert names
        for name in names:
            if not name.startswith("nltk."):  # which the course does not install
                assert uses.look_up(name) is not None, f"{piece}: {name}"


def test_the_table_names_pieces_of_the_course():
    assert [piece for piece in recreates.RECREATES if not hasattr(REFERENCE, piece)] == []


def test_what_stands_behind_the_course_s_names_belongs_to_the_table():
    assert "transformer_lab.builtin.TokenEmbedding" in recreates.targets("TokenEmbedding")
    assert recreates.targets("shift_matrix") == ()


# ----------------------------------------------------------------------------------------------------------- the note


def test_the_note_names_the_built_in_and_the_line_and_grants_the_numbers():
    results = run(BUILTIN)
    assert notes(results) == [
        "`softmax` uses `torch.softmax` (line 4), which this piece re-creates: "
        "your numbers are right, but the exercise is to build it."
    ]
    assert results[0].notes, "it stands with the first check"
    assert sum(r.earned for r in results) == sum(r.points for r in results), "it costs nothing unless it has a price"


def test_a_wrong_piece_is_not_told_that_its_numbers_are_right():
    (note,) = notes(run(WRONG))
    assert note.endswith("(line 4), which this piece re-creates: the exercise is to build it.")


def test_an_own_piece_has_no_note():
    assert notes(run(OWN)) == []


def test_what_the_source_hides_the_trace_sees():
    (note,) = notes(run(HIDDEN))
    assert note.startswith(
        "`softmax` was seen to call `torch.softmax` (line 4 of softmax), which this piece re-creates:"
    )


@pytest.mark.filterwarnings("ignore:Implicit dimension")
def test_the_piece_may_be_the_built_in_itself():
    assert (
        "was seen to call `F.softmax`, which"
        in notes(autograder.run_checks({"softmax": F.softmax}, piece="softmax"))[0]
    )
    assert "was seen to call `nn.Softmax`" in notes(autograder.run_checks({"softmax": _Late()}, piece="softmax"))[0]


class _Late:
    def __call__(self, scores, dim=-1):
        return vars(nn)["Soft" + "max"](dim)(scores)


def test_a_built_in_that_only_some_inputs_reach_is_traced():
    def scaled_dot_product_attention(q, k, v, mask=None):
        if mask is not None:
            fused = vars(F)["scaled_dot_" + "product_attention"]
            return fused(q, k, v, mask), fused(
                q, k, torch.eye(k.size(-2), dtype=q.dtype).expand(*k.shape[:-2], -1, -1), mask
            )
        return REFERENCE.scaled_dot_product_attention(q, k, v)

    namespace = {"scaled_dot_product_attention": scaled_dot_product_attention}
    (note,) = notes(autograder.run_checks(namespace, piece="scaled_dot_product_attention"))
    assert "was seen to call `F.scaled_dot_product_attention`" in note


def test_a_request_of_each_kind_is_traced_once():
    """Requests that differ in numbers, sizes or seeds take the same way; what is left out or switched may take another."""
    asked = []

    class Counting(_Answers):
        def send(self, request):
            asked.append(request)
            return super().send(request)

    first = {"piece": "softmax", "inputs": [np.zeros((2, 3))], "kwargs": {"dim": 1}, "init": None, "seed": 1}
    alike = [{"inputs": [np.ones((4, 5))]}, {"kwargs": {"dim": 0}}, {"seed": 2}, {"want": ["output"]}]
    other = [
        {"inputs": [np.zeros(3)]},
        {"inputs": [np.zeros((2, 3), dtype=int)]},
        {"inputs": [np.zeros((2, 3)), None]},
        {"inputs": [Strided(np.zeros((2, 3)))]},
        {"inputs": [Probe("identity", "layer")]},
        {"inputs": [Probe("linear", "layer", np.eye(3), np.zeros(3))]},
        {"kwargs": {"dim": None}},
        {"kwargs": {}},
        {"init": [4]},
        {"init": [True]},
        {"init": [False]},
        {"mode": "train"},
        {"mode": "eval"},
    ]
    recreates.note(Counting([]), "softmax", [first | change for change in [{}, *alike, *other]], [])
    assert len(asked) == 1 + len(other)


def test_what_another_piece_calls_is_not_traced_to_this_one():
    student = _Answers([["torch.nn.MultiheadAttention", "line 1", ["SelfAttention.forward", "MultiHeadAttention"]]])
    assert recreates.note(student, "MultiHeadAttention", [{}], []) == ""
    student = _Answers([["torch.nn.MultiheadAttention", "line 1", ["Helper.forward", "MultiHeadAttention.forward"]]])
    assert "`nn.MultiheadAttention` (line 1)" in recreates.note(student, "MultiHeadAttention", [{}], [])


class _Answers(LocalStudent):
    """Stands for a kernel that answers what it likes."""

    def __init__(self, answer):
        super().__init__({})
        self.answer = answer

    def send(self, request):
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"torch_calls": self.answer}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        "torch.softmax",
        [None],
        [["torch.softmax"]],
        [["torch.softmax", "here", "there"]],
        [[3, None, [None]]],
        [["__import__('os')", "", []], ["torch." + "nn." * 10_000, "", []]],
        StudentError("KernelDied", "gone"),
        StudentError("Timeout", "late"),
    ],
)
def test_a_kernel_may_answer_anything(answer):
    assert recreates.note(_Answers(answer), "softmax", [{}], []) == ""


def test_what_a_kernel_says_of_the_place_stays_one_short_line():
    answer = [["torch.softmax", "x`\n<script>" * 100, []]]
    note = recreates.note(_Answers(answer), "softmax", [{}], [])
    assert "\n" not in note
    assert len(note) < 300
    assert note.count("`") == 4


# ------------------------------------------------------------------------------------------------- where the source is


def test_the_cells_of_a_notebook_are_found_by_themselves(tmp_path):
    helper = "def shares(x, dim):\n    return t.log_softmax(x, dim).exp()"
    answer = "def softmax(scores, dim=-1):\n    return shares(scores, dim)"
    write(tmp_path / "nb.ipynb", code("import torch as t"), code(helper), code(answer))
    (note,) = notes(autograder.run_checks(pieces.load(tmp_path / "nb.ipynb"), piece="softmax"))
    assert note.startswith("`softmax` uses `torch.log_softmax` (line 2 of the cell that defines `shares`), which")


def test_a_kernel_s_history_is_a_source():
    namespace: dict = {}
    history = ["", "import torch", BUILTIN, "1 + 1"]
    for source in history:
        exec(source, namespace)
    namespace["In"] = history
    (note,) = notes(autograder.run_checks(namespace, piece="softmax"))
    assert "uses `torch.softmax` (line 4 of your answer)" in note


def test_a_module_is_a_source(tmp_path, monkeypatch):
    (tmp_path / "my_answers.py").write_text(BUILTIN)
    monkeypatch.syspath_prepend(tmp_path)
    import my_answers

    for student in (my_answers, types.SimpleNamespace(softmax=my_answers.softmax)):
        (note,) = notes(autograder.run_checks(student, piece="softmax"))
        assert "uses `torch.softmax` (line 4)" in note


@pytest.mark.parametrize("entry", entries("softmax"), ids=lambda entry: entry.id)
def test_the_bank_s_implementations_are_noted_where_they_use_it(entry):
    uses_it = any(name in entry.source for name in ("torch.softmax(", "LogSoftmax(", "F.softmax(", ".log_softmax("))
    assert bool(notes(autograder.run_checks(load(entry), piece="softmax", diagnosing=False))) == uses_it


def test_the_reference_uses_none():
    assert notes(autograder.run_checks(REFERENCE, diagnosing=False)) == []


# ----------------------------------------------------------------------------------------------------------- the price


@pytest.mark.parametrize(("price", "left"), [(0.0, 5.0), (0.5, 2.5), (1.0, 0.0)])
def test_a_price_is_taken_off_what_was_earned_and_said(price, left):
    results = run(BUILTIN, builtin_costs=price)
    assert sum(r.earned for r in results) == left
    assert sum(r.points for r in results) == 5
    assert all(r.passed for r in results)
    (note,) = notes(results)
    assert ("In this course that costs" in note) == bool(price)
    if price:
        assert note.endswith(f"costs {100 * price:g} % of what was earned for it: 5 become {left:g}.")


def test_a_price_costs_nobody_else_anything():
    assert sum(r.earned for r in run(OWN, builtin_costs=1.0)) == 5
    results = run("def softmax(scores, dim=-1):\n    raise NotImplementedError", builtin_costs=1.0)
    assert notes(results) == []


@pytest.mark.parametrize("price", [-0.1, 1.1, float("nan"), "half", None, True])
def test_what_is_no_share_is_refused(price):
    with pytest.raises(ValueError, match="builtin_costs is a number from 0"):
        run(OWN, builtin_costs=price)
