"""Named edits that make an honest submission odd: what editors, services, disks and people do to a notebook."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ASSIGNMENT = "03_attention"
PIECES = ("softmax", "scaled_dot_product_attention", "SelfAttention")

SOFTMAX = '''\
def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Turn scores into positive weights that sum to 1 along ``dim``."""
    e = torch.exp(scores - scores.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)
'''
ATTENTION = '''\
def scaled_dot_product_attention(q, k, v, mask=None):
    """Attend from every query to the values, by the similarity of the query to their keys."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, -1)
    return weights @ v, weights
'''
SELF = '''\
class SelfAttention(nn.Module):
    """Attention of a sequence to itself: queries, keys and values are three projections of the same tokens."""

    def __init__(self, d_model: int, d_k: int):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_k, bias=False)
        self.w_k = nn.Linear(d_model, d_k, bias=False)
        self.w_v = nn.Linear(d_model, d_k, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), mask)[0]
'''
RIGHT = dict(zip(PIECES, (SOFTMAX, ATTENTION, SELF), strict=True))
#: Forgets the scale, which costs half of its piece and, judged with a right helper, nothing of the next.
HALF = RIGHT | {"scaled_dot_product_attention": ATTENTION.replace(" / math.sqrt(q.size(-1))", "")}
ANSWERS: dict[str, dict[str, str]] = {"right": RIGHT, "half": HALF, "stub": {}}


@dataclass
class Submission:
    """A submission in the making: the notebook, then the bytes of its file, then what lies in the folder."""

    nb: dict
    name: str = f"{ASSIGNMENT}.ipynb"
    data: bytes | None = None
    beside: dict[str, bytes] = field(default_factory=dict)
    special: list[Callable[[Path], Any]] = field(default_factory=list)
    notebook: bool = True

    def bytes(self) -> bytes:
        return json.dumps(self.nb, indent=1).encode() if self.data is None else self.data

    def cell(self, name: str) -> dict:
        return self.nb["cells"][self.at(name)]

    def at(self, name: str) -> int:
        return next(i for i, c in enumerate(self.nb["cells"]) if c["id"] == name or _flags(c).get("grade_id") == name)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        files = ({self.name: self.bytes()} if self.notebook else {}) | self.beside
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for make in self.special:
            make(folder)


Edit = Callable[[Submission], None]


def begin(answers: str = "right", assignment: str = ASSIGNMENT) -> Submission:
    nb = json.loads((ROOT / f"notebooks/{assignment}/{assignment}.ipynb").read_text(encoding="utf-8"))
    for cell in nb["cells"]:
        cell["source"] = ANSWERS[answers].get(_flags(cell).get("grade_id", ""), "".join(cell["source"]))
    return Submission(nb)


def _flags(cell: dict) -> dict:
    flags = cell["metadata"].get("nbgrader")
    return flags if isinstance(flags, dict) else {}


def code(source: str, **more: Any) -> dict:
    made = {"cell_type": "code", "execution_count": None, "id": f"x{abs(hash(source)) % 10**6}", "metadata": {}}
    return {**made, "outputs": [], "source": source, **more}


# ----------------------------------------------------------------------------------------------------------- the cells


def cell(source: str, before: str = "softmax") -> Edit:
    """A cell of the learner's own before the named one."""
    return lambda s: s.nb["cells"].insert(s.at(before), code(source))


def cell_at_end(source: str) -> Edit:
    return lambda s: s.nb["cells"].append(code(source))


def answer(name: str, source: str) -> Edit:
    return lambda s: s.cell(name).update(source=source)


def after(name: str, source: str) -> Edit:
    """More lines at the end of the named cell."""
    return lambda s: s.cell(name).update(source=s.cell(name)["source"] + "\n" + source)


def ahead(name: str, source: str) -> Edit:
    """More lines at the top of the named cell."""
    return lambda s: s.cell(name).update(source=source + "\n" + s.cell(name)["source"])


def delete(*names: str) -> Edit:
    def edit(s: Submission) -> None:
        for name in names:
            del s.nb["cells"][s.at(name)]

    return edit


def duplicate(name: str, source: str | None = None) -> Edit:
    """A copy of the named cell after it, metadata, id and all."""

    def edit(s: Submission) -> None:
        copied = copy.deepcopy(s.cell(name))
        copied["source"] = copied["source"] if source is None else source
        s.nb["cells"].insert(s.at(name) + 1, copied)

    return edit


def move(name: str, before: str) -> Edit:
    def edit(s: Submission) -> None:
        moved = s.nb["cells"].pop(s.at(name))
        s.nb["cells"].insert(s.at(before), moved)

    return edit


def retype(name: str, kind: str) -> Edit:
    def edit(s: Submission) -> None:
        changed = s.cell(name)
        changed["cell_type"] = kind
        changed.pop("outputs", None), changed.pop("execution_count", None)

    return edit


def flags(name: str, **changed: Any) -> Edit:
    return lambda s: s.cell(name)["metadata"]["nbgrader"].update(changed)


def tag(*tags: str, cells: tuple[str, ...] = ()) -> Edit:
    def edit(s: Submission) -> None:
        for one in s.nb["cells"]:
            if not cells or one["id"] in cells:
                one["metadata"]["tags"] = list(tags)

    return edit


def strip(*names: str) -> Edit:
    """The metadata of some cells gone; of all where none is named."""

    def edit(s: Submission) -> None:
        for one in [s.cell(name) for name in names] or s.nb["cells"]:
            one["metadata"] = {}

    return edit


def without_ids(s: Submission) -> None:
    for one in s.nb["cells"]:
        del one["id"]


def doubled_ids(s: Submission) -> None:
    for one in s.nb["cells"]:
        one["id"] = "cell"


def hosted(s: Submission) -> None:
    """As a hosted service saves it: its own metadata, no ids, no kernel of ours."""
    strip()(s)
    without_ids(s)
    for number, one in enumerate(s.nb["cells"]):
        one["metadata"] = {"id": f"aB{number}", "colab": {"base_uri": "https://localhost/"}}
    s.nb["metadata"] = {"colab": {"provenance": []}, "accelerator": "GPU", "kernelspec": {"name": "python3"}}
    s.nb["nbformat_minor"] = 0


def elsewhere(name: str, before: str | None = None) -> Edit:
    """The answer written in a cell of the learner's own, the stub left as it was; at the very end by default."""

    def edit(s: Submission) -> None:
        text = s.cell(name)["source"]
        s.cell(name)["source"] = begin("stub").cell(name)["source"]
        s.nb["cells"].insert(len(s.nb["cells"]) if before is None else s.at(before), code(text))

    return edit


def in_one_cell(s: Submission) -> None:
    s.cell("softmax")["source"] = "\n\n".join(s.cell(name)["source"] for name in PIECES)
    delete(*PIECES[1:])(s)


def reversed_answers(s: Submission) -> None:
    texts = [s.nb["cells"].pop(s.at(name)) for name in PIECES]
    place = s.at("test_SelfAttention")
    s.nb["cells"][place:place] = texts[::-1]


def junk_metadata(s: Submission) -> None:
    for one, junk in zip(
        s.nb["cells"], [None, [], "x", {"nbgrader": []}, {"tags": "skip-execution"}] * 9, strict=False
    ):
        if not _flags(one):
            one["metadata"] = junk
    s.nb["metadata"] = None


def junk_cells(s: Submission) -> None:
    s.nb["cells"][3:3] = [None, 7, [], {}, {"cell_type": "code", "source": {"a": 1}}]


def outputs(data: dict | None = None, text: str = "") -> Edit:
    """What stands below the first answer in the file."""
    made = (
        {"output_type": "display_data", "data": data, "metadata": {}}
        if data
        else {"output_type": "stream", "name": "stdout", "text": text}
    )
    return lambda s: s.cell("softmax").update(outputs=[made])


def source_in_lines(s: Submission) -> None:
    for one in s.nb["cells"]:
        one["source"] = one["source"].splitlines(keepends=True)


def windows_lines(s: Submission) -> None:
    for one in s.nb["cells"]:
        one["source"] = one["source"].replace("\n", "\r\n")


def remark_in(text: str) -> Edit:
    """A comment at the top of the first answer."""
    return ahead("softmax", f"# {text}")


# ------------------------------------------------------------------------------------------------------------- formats


def metadata(**changed: Any) -> Edit:
    return lambda s: s.nb.update(metadata=changed)


def version(major: int | None, minor: int = 0, ids: bool = True) -> Edit:
    def edit(s: Submission) -> None:
        if not ids:
            without_ids(s)
        s.nb["nbformat"], s.nb["nbformat_minor"] = major, minor
        if major is None:
            del s.nb["nbformat"], s.nb["nbformat_minor"]

    return edit


def format_3(s: Submission) -> None:
    """The format of 2013: worksheets, and ``input`` for what is ``source`` now."""
    cells = []
    for one in s.nb["cells"]:
        old: dict[str, Any] = {"cell_type": one["cell_type"], "metadata": one["metadata"]}
        text = one["source"].splitlines(keepends=True)
        old |= (
            {"input": text, "language": "python", "collapsed": False, "outputs": [], "prompt_number": 3}
            if one["cell_type"] == "code"
            else {"source": text}
        )
        cells.append(old)
    s.nb = {
        "metadata": {"name": "attention"},
        "nbformat": 3,
        "nbformat_minor": 0,
        "worksheets": [{"cells": cells, "metadata": {}}],
    }


# ------------------------------------------------------------------------------------------------------------ the file


def named(name: str) -> Edit:
    return lambda s: setattr(s, "name", name)


def content(data: bytes) -> Edit:
    return lambda s: setattr(s, "data", data)


def encoded(encoding: str, mark: bytes = b"") -> Edit:
    return lambda s: setattr(
        s, "data", mark + json.dumps(s.nb, indent=1, ensure_ascii=False).encode(encoding, "backslashreplace")
    )


def cut_before(text: str) -> Edit:
    return lambda s: setattr(s, "data", s.bytes()[: s.bytes().index(text.encode())])


def cut_at(length: int) -> Edit:
    return lambda s: setattr(s, "data", s.bytes()[:length])


def append(data: bytes) -> Edit:
    return lambda s: setattr(s, "data", s.bytes() + data)


def without(text: str, instead: str = "") -> Edit:
    """The first ``text`` of the file gone."""

    def edit(s: Submission) -> None:
        assert text.encode() in s.bytes()
        s.data = s.bytes().replace(text.encode(), instead.encode(), 1)

    return edit


def conflict(line: str, other: str, base: str | None = None, theirs_above: bool = False) -> Edit:
    """A merge that nobody finished: the line of the file that holds ``line`` against another one."""

    def edit(s: Submission) -> None:
        lines = s.bytes().decode().split("\n")
        at = next(i for i, text in enumerate(lines) if line in text)
        sides = [[other], [lines[at]]] if theirs_above else [[lines[at]], [other]]
        middle = [] if base is None else ["||||||| merged common ancestors", base]
        lines[at : at + 1] = ["<<<<<<< HEAD", *sides[0], *middle, "=======", *sides[1], ">>>>>>> origin/main"]
        s.data = "\n".join(lines).encode()

    return edit


def beside(name: str, data: bytes | Submission = b"") -> Edit:
    return lambda s: s.beside.update({name: data if isinstance(data, bytes) else data.bytes()})


def nothing(s: Submission) -> None:
    s.notebook = False


def replaced_by(make: Callable[[Path], Any]) -> Edit:
    """Something special in the place of the notebook."""

    def edit(s: Submission) -> None:
        s.notebook = False
        s.special.append(make)

    return edit


def link(target: str) -> Edit:
    return replaced_by(lambda folder: (folder / f"{ASSIGNMENT}.ipynb").symlink_to(target))


def pipe(folder: Path) -> None:
    os.mkfifo(folder / f"{ASSIGNMENT}.ipynb")


def huge(folder: Path) -> None:
    """A file of 60 MB that takes no room on the disk."""
    with (folder / f"{ASSIGNMENT}.ipynb").open("wb") as file:
        file.write(b'{"cells": [')
        file.truncate(60_000_000)


def script(s: Submission) -> None:
    """As *File, Save as, Python* writes it."""
    texts = [one["source"] for one in s.nb["cells"] if one["cell_type"] == "code"]
    s.name = f"{ASSIGNMENT}.py"
    s.data = "\n\n".join(f"# In[{number}]:\n\n{text}" for number, text in enumerate(texts)).encode()
