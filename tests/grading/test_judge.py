"""Judging one notebook in the sandbox: partial results survive loops, crashes and every trick inside the kernel."""

import json
from pathlib import Path

import nbformat
import pytest

from autograder import judge, release, sandbox
from autograder.intake import rebuild
from autograder.reasons import Reason
from transformer_lab.cells import read_notebook

ROOT = Path(__file__).resolve().parents[2]
RIGHT_SOFTMAX = "def softmax(scores, dim=-1):\n    return torch.softmax(scores, dim)\n"
LIMITS = sandbox.Limits(cell_seconds=4)


def base(chapter="03_attention"):
    """The released notebook with its hidden lines, as `autograder.course.Course.graded_base` makes it."""
    source = release.convert_source(ROOT / f"solutions/{chapter}.md")
    stub = read_notebook(ROOT / f"notebooks/{chapter}/{chapter}.ipynb")
    for ours, theirs in zip(source.cells, stub.cells, strict=True):
        if judge.checked_piece(ours):
            theirs.source = ours.source
    return stub


def answered(answers: dict[str, str], first: str = ""):
    notebook = nbformat.from_dict(json.loads(json.dumps(base())))
    for cell in notebook.cells:
        grade_id = (cell.metadata.get("nbgrader") or {}).get("grade_id")
        cell.source = answers.get(grade_id, cell.source)
    if first:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    return rebuild(base(), notebook).notebook


def points(judgement) -> dict[str, float]:
    earned: dict[str, float] = {}
    for result in judgement.results:
        earned[result.piece] = earned.get(result.piece, 0) + result.earned
    return earned


def test_a_right_answer_earns_its_points_and_the_rest_is_not_written_yet(needs_sandbox):
    judgement = judge.judge(answered({"softmax": RIGHT_SOFTMAX}), 1, LIMITS)
    assert points(judgement) == {"softmax": 5, "scaled_dot_product_attention": 0, "SelfAttention": 0}
    graded = {c.metadata.nbgrader.grade_id: c for c in judgement.notebook.cells if c.source.startswith("# The hidden")}
    assert set(graded) == {"check_softmax", "check_scaled_dot_product_attention", "check_SelfAttention"}
    assert graded["check_softmax"].outputs[-1].data["text/plain"] == "5"
    assert "not written yet" in graded["check_SelfAttention"].outputs[0].text
    assert "award(" not in nbformat.writes(judgement.notebook)


TRICKS = {
    "patched comparisons": (
        "import torch, math, numpy as np\n"
        "for place, name in ((torch.testing, 'assert_close'), (torch, 'allclose'), (torch, 'equal'), (math, 'isclose')):\n"
        "    setattr(place, name, lambda *a, **k: True)\n"
        "torch.Tensor.__eq__ = lambda *a: True"
    ),
    "patched IPython": (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from ipykernel.ipkernel import IPythonKernel\n"
        "original = InteractiveShell.run_cell\n"
        "InteractiveShell.run_cell = lambda self, raw, *a, **k: original(self, '5', *a, **k)\n"
        "InteractiveShell.run_code = lambda *a, **k: False"
    ),
    "patched driver": (
        "import transformer_lab.driver as driver\n"
        "driver.run = lambda namespace, request: {want: 5.0 for want in request['want']}"
    ),
    "forged answer": (
        "import transformer_lab.driver as driver\ndriver.answer = lambda *a: driver.dumps({'wanted': {'output': 5.0}})"
    ),
    "search for the checks": (
        "import sys, gc, os\n"
        "found = [m for m in sys.modules if m.startswith('autograder')]\n"
        "assert not found\n"
        "try:\n    import autograder\nexcept ImportError:\n    pass\nelse:\n    os._exit(1)"
    ),
    "exit": "import os, atexit\natexit.register(lambda: print('5'))\nraise SystemExit(0)",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_inside_the_kernel_makes_a_wrong_answer_right(needs_sandbox, trick):
    wrong = {"softmax": "def softmax(scores, dim=-1):\n    return scores\n"}
    judgement = judge.judge(answered(wrong, first=TRICKS[trick]), 1, LIMITS)
    assert sum(points(judgement).values()) == 0
    assert len(points(judgement)) == 3


def test_a_killed_kernel_costs_only_its_own_piece(needs_sandbox):
    judgement = judge.judge(
        answered(
            {
                "softmax": "import os\nimport torch\ndef softmax(scores, dim=-1):\n    os._exit(1)\n",
                "scaled_dot_product_attention": (
                    "def scaled_dot_product_attention(q, k, v, mask=None):\n"
                    "    s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5\n"
                    "    s = s if mask is None else s.masked_fill(~mask, -torch.inf)\n"
                    "    w = torch.softmax(s, -1)\n    return w @ v, w\n"
                ),
            }
        ),
        1,
        LIMITS,
    )
    assert points(judgement)["softmax"] == 0
    assert points(judgement)["scaled_dot_product_attention"] == 10
    assert any("kernel" in remark for remark in judgement.remarks)


def test_a_cell_that_ignores_interrupts_is_left_out_and_the_rest_is_judged(needs_sandbox):
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    judgement = judge.judge(answered({"softmax": RIGHT_SOFTMAX}, first=stubborn), 1, sandbox.Limits(cell_seconds=1))
    assert points(judgement)["softmax"] == 5
    assert any("could not be interrupted" in remark for remark in judgement.remarks)


def test_points_of_a_cell_must_be_those_of_its_checks():
    notebook = answered({})
    next(c for c in notebook.cells if judge.checked_piece(c)).metadata.nbgrader.points = 99
    with pytest.raises(ValueError, match="make notebooks"):
        judge.judge(notebook, 1, LIMITS)


def test_what_is_left_of_a_cell_keeps_its_lines():
    source = """\
from __future__ import annotations
import gone; import math
x = 1 / 0
@wrapped
def f(a,
      b):
    return a
class C: pass
!ls
"""
    left = judge.definitions(source).split("\n")
    assert left[0] == "from __future__ import annotations"
    assert left[1].startswith("with ")
    assert "import gone; import math" in left[1]
    assert left[2] == ""
    assert left[3:8] == source.split("\n")[3:8]
    assert judge.definitions("def f(:") == judge.definitions("x = 1") == ""


@pytest.mark.parametrize(
    ("earned", "score"), [(3.2, 3.2), (-1, 0), (7, 5), (float("nan"), 0), (float("inf"), 0), (1 / 3, 0.333333)]
)
def test_a_score_is_clamped_and_finite(earned, score):
    assert judge._clamped(earned, 5) == score


def test_what_stands_below_an_error_is_defined_all_the_same(needs_sandbox):
    first = "from google.colab import drive\nname = input()"
    judgement = judge.judge(answered({"softmax": "stop = 1 / 0\n" + RIGHT_SOFTMAX}, first=first), 1, LIMITS)
    assert points(judgement)["softmax"] == 5
    assert [remark.reason for remark in judgement.remarks] == [Reason.PART_OF_CELL] * 2


@pytest.mark.long
def test_the_last_part_of_the_time_is_for_answers_and_checks(needs_sandbox):
    limits = sandbox.Limits(cell_seconds=60, notebook_seconds=40)
    judgement = judge.judge(answered({"softmax": RIGHT_SOFTMAX}, first="while True: pass"), 1, limits)
    assert points(judgement)["softmax"] == 5
    assert Reason.TIMEOUT in [remark.reason for remark in judgement.remarks]
    none = judge.judge(answered({"softmax": RIGHT_SOFTMAX}), 1, sandbox.Limits(notebook_seconds=0))
    assert {result.reason for result in none.results} == {Reason.NOT_RUN.value}
    assert {remark.reason for remark in none.remarks} == {Reason.NOT_RUN}


DRAWS = "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1).item())\nexit()"


def test_what_a_cell_draws_without_a_seed_is_the_same_in_every_kernel(needs_sandbox):
    """In a fork of a warm parent, which has loaded PyTorch, and in a fresh kernel, which loads it first."""
    drawn = set()
    for sandboxed in (True, True, False):
        judgement = judge.judge(answered({"softmax": RIGHT_SOFTMAX}, first=DRAWS), 1, LIMITS, sandboxed=sandboxed)
        cell = next(cell for cell in judgement.notebook.cells if cell.source == DRAWS)
        drawn.add(cell.outputs[0].text)
        assert points(judgement)["softmax"] == 5  # in a kernel that exit() has not ended
        assert judgement.remarks == []
    assert len(drawn) == 1
    assert len(drawn.pop().split()) == 3
