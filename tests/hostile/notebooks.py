"""The notebooks of :mod:`tests.hostile.techniques`, and a course in which they are handed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat

from autograder import release, seeds
from tests.hostile.techniques import RIGHT, Technique
from transformer_lab.cells import grade_id_of, read_notebook

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "03_attention"

#: Written by a technique that has reached something. In the text of a notebook it is always taken apart.
BREACH = "BREACH"

#: What a technique's own cell begins with; it says at the end that it has been run to there.
PREAMBLE = """\
def got(*what):
    print("BRE" "ACH", *what)
def attempt(action, *arguments):
    try:
        result = action(*arguments)
    except BaseException as error:
        print("stopped:", type(error).__name__)
    else:
        got(action, arguments, result)
print("TRI" "ED")
"""

#: The right answers to all three pieces, to see that honest work in the same batch is not touched.
HONEST = {
    "softmax": RIGHT,
    "scaled_dot_product_attention": (
        "def scaled_dot_product_attention(q, k, v, mask=None):\n"
        "    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5\n"
        "    if mask is not None:\n"
        "        scores = scores.masked_fill(~mask, -torch.inf)\n"
        "    weights = torch.softmax(scores, -1)\n"
        "    return weights @ v, weights\n"
    ),
    "SelfAttention": (
        "class SelfAttention(nn.Module):\n"
        "    def __init__(self, d_model, d_k):\n"
        "        super().__init__()\n"
        "        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k, bias=False) for _ in range(3))\n"
        "    def forward(self, x, mask=None):\n"
        "        return scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), mask)[0]\n"
    ),
}


@dataclass(frozen=True)
class Canaries:
    """What techniques look for: given to them as names, so that they need not search."""

    COURSE: str
    SECRET: str
    SECRET_FILE: str
    PORT: int
    GRADER: int
    MARKER: str

    def lines(self) -> str:
        # The secret is taken apart, so that the text of the cell does not hold what is searched for.
        values = vars(self) | {"SECRET": None}
        half = len(self.SECRET) // 2
        secret = f"SECRET = ''.join(({self.SECRET[:half]!r}, {self.SECRET[half:]!r}))"
        return (
            "\n".join([*(f"{name} = {value!r}" for name, value in values.items() if value is not None), secret]) + "\n"
        )


def notebook(technique: Technique | None, canaries: Canaries) -> nbformat.NotebookNode:
    """The notebook of a technique; of an honest learner without one."""
    made = read_notebook(ROOT / f"notebooks/{CHAPTER}/{CHAPTER}.ipynb")
    answers = HONEST if technique is None else {"softmax": technique.softmax}
    for cell in made.cells:
        cell.source = answers.get(grade_id_of(cell.metadata), cell.source)
    if technique is not None and technique.first:
        place = next(i for i, cell in enumerate(made.cells) if grade_id_of(cell.metadata))
        text = canaries.lines() + PREAMBLE + technique.first
        made.cells.insert(place, nbformat.v4.new_code_cell(text))
    if technique is not None and technique.edit is not None:
        technique.edit(made)
    return made


def write_course(root: Path) -> None:
    """A course in which chapter 3 is released, and nothing is handed in."""
    release.write_source_course(root, [ROOT / f"solutions/{CHAPTER}.md"])
    release.generate_assignment(root, CHAPTER)
    (root / seeds.KEY_FILE).write_text("1" * 64)


def hand_in(root: Path, techniques: Iterable[Technique], canaries: Canaries) -> None:
    """Write the submissions of all techniques, and of two honest learners, the first and the last in the alphabet."""
    for student, technique in [("aa_honest", None), ("zz_honest", None), *((t.name, t) for t in techniques)]:
        folder = root / "submitted" / student / CHAPTER
        folder.mkdir(parents=True)
        files = {} if technique is None else technique.files
        if f"{CHAPTER}.ipynb" not in files:
            text = nbformat.writes(notebook(technique, canaries))
            (folder / f"{CHAPTER}.ipynb").write_text(text, encoding="utf-8")
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path, root)
            else:
                path.write_text(content, encoding="utf-8")
