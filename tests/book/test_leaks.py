"""Readers and learners see no answer: not in a page, not in a folded cell, not in a page's source, not in a stub."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import leaks

ROOT = Path(__file__).resolve().parents[2]

ANSWER = '''
import torch
from torch import nn

def standardise(table, gain, floor=1e-3):
    """Made up for this test."""
    ### BEGIN SOLUTION
    centre: float = table.mean(dim=-1, keepdim=True)
    spread = (table - centre).abs().amax(-1, keepdim=True)
    if gain is None:
        gain = torch.ones(table.size(-1))
    return gain * (table - centre) / (spread + floor)
    ### END SOLUTION

def halve(x):
    ### BEGIN SOLUTION
    return x
    ### END SOLUTION

def squash(x, width):
    ### BEGIN SOLUTION
    return torch.tanh(x / width ** 0.5)
    ### END SOLUTION

class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        ### BEGIN SOLUTION
        self.size = size
        self.factor = nn.Parameter(torch.full((size,), 2.0))
        self.offset = nn.Parameter(torch.zeros(size))
        ### END SOLUTION
'''


@pytest.fixture(scope="module")
def answers():
    answers = leaks.Answers()
    answers.add(ANSWER, "made_up.md")
    return answers


RENAMED = """
mid = words.mean(dim=-1, keepdim=True)
reach = (words - mid).abs().amax(-1, keepdim=True)
if weight is None:
    weight = torch.ones(words.size(-1))
"""
LAST_THREE = """
def other(t, g, m, s):
    print("something before")
    if g is None:
        g = torch.ones(t.size(-1))
    return g * (t - m) / (s + eps)
"""
MODULE = """
class Copy(torch.nn.Module):
    def __init__(me, n):
        super().__init__()
        me.size = n
        me.factor = torch.nn.Parameter(torch.full((n,), 2.0))
        me.offset = torch.nn.Parameter(torch.zeros(n))
"""
ONE_LINE = "y = 3\nz = torch.tanh(q / d ** 0.5)\n"
ONE_LINE_RETURNED = "def mine(q, d):\n    return torch.tanh(q / d ** 0.5)\n"
BROKEN = "First, we write\n" + RENAMED + "and then … the rest\n"
PROMPTS = "".join(
    (">>> " if not line.startswith(" ") else "... ") + line + "\n" for line in RENAMED.strip().splitlines()
)


@pytest.mark.parametrize("code", [RENAMED, LAST_THREE, MODULE, ONE_LINE, ONE_LINE_RETURNED, BROKEN, PROMPTS])
def test_a_planted_leak_is_found(answers, code):
    assert answers.find(code, "page")


WORKED = """
total = 0.0
for score in (2.0, 1.0, 0.5):
    total += 2.718 ** score
print(total)
"""
OTHER_CONSTANTS = MODULE.replace("2.0", "1.0")
TWO_OF_THREE = (
    "mid = words.mean(dim=-1, keepdim=True)\nreach = (words - mid).abs().amax(-1, keepdim=True)\nprint(reach)\n"
)
TRIVIAL = "def anything(x):\n    return x\n"
STUB = """
class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        raise NotImplementedError()
"""


@pytest.mark.parametrize("code", [WORKED, OTHER_CONSTANTS, TWO_OF_THREE, TRIVIAL, STUB])
def test_what_is_no_leak_is_let_through(answers, code):
    assert not answers.find(code, "page")


def test_every_hiding_place_is_looked_into(answers, tmp_path):
    fence = f"# Page\n\nProse.\n\n```{{code-cell}} ipython3\n:tags: [hide-input]\n{RENAMED}```\n"
    nested = f"::::{{dropdown}} Hint\n```python\n{RENAMED}```\n::::\n"
    page = f"<details><summary>x</summary><div><pre><span>{RENAMED}</span></pre></div></details>"
    details = f"<details>\n<summary>Hint</summary>\n\n```python\n{RENAMED}```\n\n</details>"
    cells = [{"cell_type": "markdown", "source": [details], "metadata": {}}]
    code_cells = [{"cell_type": "code", "source": RENAMED.splitlines(True), "metadata": {}, "outputs": []}]
    texts = {
        "fence.md": fence,
        "nested.md": nested,
        "page.html": page,
        "hint.ipynb": json.dumps({"cells": cells}),
        "cell.ipynb": json.dumps({"cells": code_cells}),
        "indented.md": "As follows:\n\n" + "".join(f"    {line}\n" for line in RENAMED.strip().splitlines()),
        "script.py": RENAMED,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert leaks.search(answers, [tmp_path / name], tmp_path), f"the leak in {name} was not found"


@pytest.fixture(scope="module")
def course_answers():
    sources = sorted((ROOT / "solutions").glob("*.md"))
    assert sources, "solutions/ holds no chapter, so there would be nothing to protect"
    answers = leaks.answers_of(sources)
    assert len(answers.runs) + len(answers.bodies) >= 2 * len(sources), (
        "hardly a protected statement: are SOLUTION regions marked?"
    )
    return answers


def test_the_rule_bites_on_the_real_sources(course_answers):
    """Each chapter's own answer cells, handed in as a page, are recognised."""
    for path in sorted((ROOT / "solutions").glob("*.md")):
        cells = [c.source for c in leaks.read_notebook(path).cells if c.cell_type == "code" and leaks.BEGIN in c.source]
        assert any(course_answers.find(cell, path.name) for cell in cells), path.name


def test_the_chapters_show_no_answer(course_answers):
    found = leaks.search(course_answers, sorted((ROOT / "book").rglob("*.md")), ROOT)
    assert not found, "\n".join(map(str, found))


def test_the_built_site_shows_no_answer(course_answers, book):
    files = [file for file in sorted(book.html.rglob("*")) if "mathjax" not in file.parts]
    assert any("_sources" in file.parts for file in files)
    found = leaks.search(course_answers, files, book.html)
    assert not found, "\n".join(map(str, found))


def test_the_stubs_show_no_answer(course_answers):
    stubs = sorted((ROOT / "notebooks").rglob("*.ipynb"))
    assert stubs, "notebooks/ holds no stub: make notebooks"
    found = leaks.search(course_answers, stubs, ROOT)
    assert not found, "\n".join(map(str, found))
