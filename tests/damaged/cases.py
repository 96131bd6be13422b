"""The table of damaged and odd submissions: what was done to an honest notebook, and what grading must make of it.

One line each: who hands it in (odd names among them), what happened to it, what it is worth, why, and what the learner is
told. ``book/instructors/damaged.md`` is made from this table (``python -m tests.damaged.page``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autograder.reasons import Reason as R
from tests.damaged import edits as e
from tests.damaged.edits import Edit, Submission

MAX = 20
FULL = {"softmax": 5, "scaled_dot_product_attention": 10, "SelfAttention": 5}


@dataclass(frozen=True)
class Case:
    """One submission and what it must come to.

    ``points`` is the score of 20. ``reasons`` are the codes of the remarks, in any order, and ``sentence`` is part of what
    is told; ``lost`` is the reason of the first failed check of each piece that loses points. ``report`` names a public
    report of the same damage in other graders, ``slow`` marks what takes seconds for its limits.
    """

    student: str
    what: str
    edits: tuple[Edit, ...]
    points: float = MAX
    reasons: tuple[R, ...] = ()
    sentence: str = ""
    lost: tuple[tuple[str, R], ...] = ()
    base: str = "right"
    status: str = "graded"
    report: str = ""
    assignment: str = e.ASSIGNMENT
    slow: bool = False

    def submission(self) -> Submission:
        made = e.begin(self.base, self.assignment)
        for edit in self.edits:
            edit(made)
        return made

    def write(self, submitted: Path) -> None:
        """Hand it in."""
        self.submission().write(submitted / self.student / e.ASSIGNMENT)


def _unreadable(student: str, what: str, edit: Edit | tuple[Edit, ...], reason: R, sentence: str, **more) -> Case:
    edits = edit if isinstance(edit, tuple) else (edit,)
    return Case(student, what, edits, 0, (reason,), sentence, status=more.pop("status", "unreadable"), **more)


def _own(student: str, what: str, source: str, *reasons: R, sentence: str = "", **more) -> Case:
    """A right notebook with one more cell, before the first answer."""
    return Case(student, what, (e.cell(source),), more.pop("points", MAX), reasons, sentence, **more)


def _swapped(piece: str, old: str, new: str) -> Edit:
    """The right answer with some text in place of other."""
    assert old in e.RIGHT[piece]
    return e.answer(piece, e.RIGHT[piece].replace(old, new))


#: Attention with PyTorch's softmax, for where the learner's own is broken.
OTHERS_SOFTMAX = _swapped("scaled_dot_product_attention", "softmax(", "torch.softmax(")

#: The stub of softmax, finished behind a condition.
INDENTED = "if True:\n" + "".join(
    f"    {line}"
    for line in e.begin("stub").cell("softmax")["source"].split("    # YOUR CODE")[0].splitlines(keepends=True)
)
INDENTED += "        return torch.softmax(scores, dim)\n"

HALVED = "def halve(x):\n    return x / 2"
SHIFTED = "def shifted(scores, dim):\n    return scores - scores.amax(dim, keepdim=True)"
BY_SHIFTED = "def softmax(scores, dim=-1):\n    e = shifted(scores, dim).exp()\n    return e / e.sum(dim, keepdim=True)"
NO_TENSOR = """\
class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()

    def forward(self, x, mask=None):
        return float('inf')
"""
NOISE = """\
    import os, sys, warnings
    warnings.warn('careful')
    print('noise', file=sys.stderr)
    os.write(2, b'noise')
    e = """
WIDGET = (
    "display({'application/vnd.jupyter.widget-view+json': {'model_id': 'a'}, 'text/plain': 'IntSlider()'}, raw=True)"
)
DRIVE = "from google.colab import drive\ndrive.mount('/content/drive')"
DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
NO_FOLDER = "import os, shutil\nos.chdir('/')\nshutil.rmtree('/tmp/work', ignore_errors=True)"

ELSEWHERE = "the answer stands in another cell"
LOST_METADATA = "had lost its nbgrader metadata"

FILES = (
    Case("right", "nothing: the right notebook as it should be", ()),
    Case(
        "half",
        "nothing: the half-right notebook",
        (),
        15,
        base="half",
        lost=(("scaled_dot_product_attention", R.WRONG),),
    ),
    Case(
        "stub",
        "handed in untouched",
        (),
        0,
        base="stub",
        lost=tuple((name, R.NOT_WRITTEN) for name in e.PIECES),
    ),
    _unreadable("empty-file", "a file of no bytes", e.content(b""), R.EMPTY_FILE, "is empty"),
    _unreadable("zeros", "a file of zeros, as a full disk leaves it", e.content(bytes(4096)), R.EMPTY_FILE, "is empty"),
    _unreadable("blank", "a file of blank lines", e.content(b"\n \n"), R.EMPTY_FILE, "is empty"),
    _unreadable("no-file", "an empty folder", e.nothing, R.NO_NOTEBOOK, "There is no", status="missing"),
    _unreadable(
        "Łukasz Żółć",
        "a PDF of the notebook only",
        (e.nothing, e.beside("homework.pdf", b"%PDF-1.7")),
        R.NO_NOTEBOOK,
        "homework.pdf",
        status="missing",
    ),
    _unreadable(
        "o'brien", "a zip archive under the notebook's name", e.content(b"PK\x03\x04\x14" + bytes(99)), R.ARCHIVE, "zip"
    ),
    _unreadable(
        "zip-only",
        "a zip archive beside nothing",
        (e.nothing, e.beside("homework.zip", b"PK\x03\x04")),
        R.ARCHIVE,
        "homework.zip, which is not unpacked",
    ),
    _unreadable(
        "rar",
        "a rar archive under the notebook's name",
        e.content(b"Rar!\x1a\x07" + bytes(99)),
        R.ARCHIVE,
        "a rar archive",
    ),
    _unreadable(
        "web-page",
        "the page of a hosting service saved as the notebook",
        e.content(b"<!DOCTYPE html><html>"),
        R.OTHER_FORMAT,
        "a web page",
    ),
    _unreadable(
        "lfs",
        "a pointer in the place of a large file",
        e.content(b"version https://git-lfs.github.com/spec/v1\n"),
        R.OTHER_FORMAT,
        "Git LFS",
    ),
    _unreadable(
        "plain-text",
        "the code pasted into the notebook's file",
        e.content(e.SOFTMAX.encode()),
        R.OTHER_FORMAT,
        "is a text, not JSON",
    ),
    _unreadable("json-list", "JSON that is no notebook", e.content(b"[1, 2]"), R.NOT_A_NOTEBOOK, "has no cells"),
    _unreadable(
        "deep-json",
        "JSON nested a hundred thousand deep",
        e.content(b"[" * 100_000),
        R.NOT_A_NOTEBOOK,
        "nested too deep",
    ),
    _unreadable(
        "link",
        "a link in the place of the notebook",
        e.link("../../right/03_attention/03_attention.ipynb"),
        R.NOT_A_FILE,
        "not a regular file",
    ),
    _unreadable(
        "pipe", "a named pipe in the place of the notebook", e.replaced_by(e.pipe), R.NOT_A_FILE, "not a regular file"
    ),
    _unreadable("huge", "a file of 60 MB", e.replaced_by(e.huge), R.TOO_LARGE, "Clear its outputs"),
    _unreadable("cut-short", "the first 60 bytes of the file", e.cut_at(60), R.CUT_OFF, "cannot be read as a notebook"),
    Case(
        "cut-in-answer",
        "the file ends within the third answer",
        (e.cut_before("self.w_k = "),),
        15,
        (R.CUT_OFF, R.ANSWER_MISSING, R.TESTS_RESTORED),
        "12 whole cells were taken",
        lost=(("SelfAttention", R.NOT_WRITTEN),),
    ),
    Case(
        "cut-at-end",
        "the last hundred bytes are missing",
        (e.cut_at(-100),),
        MAX,
        (R.CUT_OFF,),
        "is damaged or cut off",
    ),
    Case(
        "comma",
        "a comma between two cells is missing",
        (e.without('\n  },\n  {\n   "cell_type": "code"', '\n  }\n  {\n   "cell_type": "code"'),),
        MAX,
        (R.CUT_OFF,),
        "whole cells were taken",
    ),
    Case(
        "twice",
        "a second, shorter save left its end behind",
        (e.append(b"\n ]\n}\n"),),
        MAX,
        (R.CUT_OFF,),
        "Extra data",
    ),
    Case(
        "merge",
        "conflict markers in the metadata",
        (e.conflict('"name": "python3"', '   "name": "conda-root"'),),
        MAX,
        (R.CONFLICT,),
        "conflict markers",
    ),
    Case(
        "名前",
        "conflict markers in an answer, with the common ancestor",
        (e.conflict("return e / e.sum", '     "raise NotImplementedError",', base='     "pass",'),),
        MAX,
        (R.CONFLICT,),
        "the upper side of each was taken",
    ),
    Case("bom", "UTF-8 with a byte order mark", (e.remark_in("naïve"), e.encoded("utf-8-sig"))),
    Case("utf-16", "UTF-16", (e.remark_in("naïve"), e.encoded("utf-16")), MAX, (R.ENCODING,), "was read as UTF-16"),
    Case("utf-16-be", "UTF-16 without its mark", (e.encoded("utf-16-be"),), MAX, (R.ENCODING,), "UTF-16-BE"),
    Case(
        "José Núñez",
        "Latin-1, with accents",
        (e.remark_in("café"), e.encoded("latin-1")),
        MAX,
        (R.ENCODING,),
        "Windows-1252",
    ),
    Case("windows-lines", "the line ends of Windows, in the file and in the cells", (e.windows_lines,)),
    Case(
        "a b",
        "Untitled.ipynb",
        (e.named("Untitled.ipynb"),),
        MAX,
        (R.RENAMED,),
        "Untitled.ipynb was taken for",
        report="nbgrader#1941",
    ),
    Case(
        "copy-2",
        "named 03_attention (2).ipynb",
        (e.named("03_attention (2).ipynb"),),
        MAX,
        (R.RENAMED,),
        "03_attention (2).ipynb",
    ),
    Case(
        "as-txt",
        "saved as .ipynb.txt by a browser",
        (e.named("03_attention.ipynb.txt"),),
        MAX,
        (R.RENAMED,),
        ".ipynb.txt was taken",
    ),
    Case("🤖 <b>bold", "saved as .json", (e.named("homework.JSON"),), MAX, (R.RENAMED,), "homework.JSON was taken"),
    Case(
        "x" * 120,
        "in a folder of its own",
        (e.named("my work/week 3/attention.ipynb"),),
        MAX,
        (R.RENAMED,),
        "my work/week 3/attention.ipynb",
    ),
    Case(
        'say "hi"',
        "a folder with the notebook's name, the notebook in it",
        (e.named("03_attention.ipynb/03_attention.ipynb"),),
        MAX,
        (R.RENAMED,),
        "was taken for",
    ),
    Case(
        "stub-and-copy",
        "the stub under the right name, the work in a copy",
        (e.beside("03_attention.ipynb", e.begin("stub")), e.named("03_attention-Copy1.ipynb")),
        MAX,
        (R.SEVERAL,),
        "03_attention-Copy1.ipynb has most work in it",
    ),
    Case(
        "%41&amp;",
        "a half-done draft and the finished notebook, neither with the right name",
        (e.beside("draft.ipynb", e.begin("stub")), e.named("final.ipynb")),
        MAX,
        (R.RENAMED,),
        "final.ipynb was taken",
    ),
    Case(
        "script",
        "saved as a Python script",
        (e.script,),
        MAX,
        (R.RENAMED, R.SCRIPT, *[R.ANSWER_FOUND] * 3),
        "a Python script",
    ),
    Case(
        "ann;bob,=1+1",
        "hidden files of editors beside it",
        (
            e.beside(".ipynb_checkpoints/03_attention-checkpoint.ipynb", b"{"),
            e.beside("__MACOSX/._03_attention.ipynb", b"\0"),
        ),
    ),
    Case(
        "junk-time",
        "a time stamp that is no time",
        (e.beside("timestamp.txt", b"yesterday-ish\n"),),
        MAX,
        (R.BAD_TIME,),
        "holds no time",
        report="nbgrader, found by trying",
    ),
    Case(
        "shadow",
        "a file torch.py beside it",
        (e.beside("torch.py", b"raise ImportError"), e.beside("nbgrader_config.py", b"raise SystemExit")),
    ),
    Case(
        "other-chapter",
        "the notebook of another chapter under this one's name",
        (),
        0,
        (R.OTHER_ASSIGNMENT, R.TESTS_RESTORED),
        "that of another assignment",
        lost=tuple((name, R.NOT_WRITTEN) for name in e.PIECES),
        base="stub",
        assignment="02_positional_encoding",
    ),
)

FORMATS = (
    Case("format-3", "notebook format 3, with worksheets", (e.format_3,)),
    Case("format-4-0", "format 4.0, which knows no ids", (e.version(4, 0, ids=False),)),
    Case("format-4-4", "format 4.4 with ids that it does not know", (e.version(4, 4),)),
    Case("format-9", "a format of the future", (e.version(9, 9),)),
    Case("format-none", "no format given", (e.version(None),)),
    Case("عمر", "format 4.5 without ids", (e.without_ids,)),
    Case("doubled-ids", "all cells with one id", (e.doubled_ids,)),
    Case("a+b@c.example", "texts as lists of lines", (e.source_in_lines,)),
    Case(
        "junk-cells",
        "entries that are no cells",
        (e.junk_cells,),
        MAX,
        (R.CELLS_DAMAGED,),
        "5 entries that are no cells",
    ),
    Case("junk-metadata", "null, lists and texts for metadata", (e.junk_metadata,)),
    Case("kernel-r", "the kernel of another language", (e.metadata(kernelspec={"name": "ir", "language": "R"}),)),
    Case(
        "kernel-gone",
        "a kernel of the learner's machine",
        (e.metadata(kernelspec={"name": "conda-env-x-py", "display_name": "x"}),),
    ),
    Case("no-metadata", "neither kernel nor language", (e.metadata(),)),
    Case("big-outputs", "outputs of 5 MB in the file", (e.outputs(text="x" * 5_000_000),), report="mooc-grader#146"),
    Case(
        "widgets",
        "outputs of widgets and plots in the file",
        (e.outputs({"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "image/png": "iVBORw0KGgo="}),),
    ),
    Case("surrogate", "half of a character, as some editors leave it", (e.remark_in("\ud83d"),)),
)

CELLS = (
    Case(
        "hosted",
        "as a hosted service saves it: no nbgrader metadata, no ids",
        (e.hosted,),
        MAX,
        (R.ANSWER_FOUND,) * 3,
        LOST_METADATA,
        report="nbgrader#424",
    ),
    Case(
        "one-stripped",
        "an answer and a test retyped in new cells",
        (e.strip("softmax", "test_softmax"),),
        MAX,
        (R.ANSWER_FOUND,),
        LOST_METADATA,
        report="nbgrader#424",
    ),
    Case(
        "test-deleted",
        "a test deleted",
        (e.delete("test_softmax"),),
        MAX,
        (R.TESTS_RESTORED,),
        "test_softmax; this test ran as released",
        report="nbgrader#1682",
    ),
    Case(
        "graded-deleted",
        "all graded cells deleted",
        (e.delete(*(f"check_{name}" for name in e.PIECES)),),
        MAX,
        (R.TESTS_RESTORED,),
        "check_softmax",
        report="nbgrader#1682",
    ),
    Case("test-copied", "a test copied, metadata and all", (e.duplicate("test_softmax"),), report="nbgrader#1083"),
    Case(
        "graded-copied",
        "a graded cell copied, metadata and all",
        (e.duplicate("check_softmax"),),
        report="nbgrader#1083",
    ),
    Case(
        "test-moved",
        "a test moved above its answer",
        (e.move("test_softmax", "softmax"),),
        report="nbgrader, found by trying",
    ),
    Case(
        "test-edited",
        "a test made to pass",
        (e.answer("test_softmax", "pass"),),
        MAX,
        (R.TESTS_RESTORED,),
        "test_softmax",
    ),
    Case(
        "test-reused",
        "a helper written into a copy of a test",
        (e.duplicate("test_softmax", HALVED), _swapped("softmax", "e / e.sum", "2 * halve(e) / e.sum")),
    ),
    Case(
        "flags",
        "grade: false, other points and versions in the metadata",
        (
            e.flags("test_softmax", grade=False),
            e.flags("check_softmax", points=1000),
            e.flags("softmax", solution=False, schema_version=4),
        ),
        report="nbgrader#1423",
    ),
    Case(
        "skip-tags", "every cell tagged to be skipped", (e.tag("skip-execution"),), report="nbgrader, found by trying"
    ),
    Case(
        "answer-deleted",
        "the third answer deleted",
        (e.delete("SelfAttention"),),
        15,
        (R.ANSWER_MISSING,),
        "SelfAttention: the answer cell is missing",
        lost=(("SelfAttention", R.NOT_WRITTEN),),
    ),
    Case(
        "answer-above",
        "an answer in a new cell above the stub",
        (e.elsewhere("softmax", "softmax"),),
        MAX,
        (R.ANSWER_ELSEWHERE,),
        ELSEWHERE,
    ),
    Case(
        "answer-below",
        "an answer in a new cell right below the stub",
        (e.elsewhere("softmax", "test_softmax"),),
        MAX,
        (R.ANSWER_ELSEWHERE,),
        ELSEWHERE,
    ),
    Case(
        "answer-at-end",
        "an answer in a new cell at the end",
        (e.elsewhere("softmax"),),
        MAX,
        (R.ANSWER_ELSEWHERE,),
        "stands in a later cell",
    ),
    Case(
        "one-cell",
        "all answers in the first cell, the other cells deleted",
        (e.in_one_cell,),
        MAX,
        (R.ANSWER_ELSEWHERE,) * 2,
        ELSEWHERE,
    ),
    Case("backwards", "the answers in reverse order before the last test", (e.reversed_answers,)),
    Case(
        "as-markdown",
        "an answer turned into a text cell by a key stroke",
        (e.retype("softmax", "markdown"),),
        MAX,
        (R.ANSWER_AS_TEXT,),
        "had become a text cell",
    ),
    Case(
        "as-raw",
        "an answer turned into a raw cell",
        (e.retype("SelfAttention", "raw"),),
        MAX,
        (R.ANSWER_AS_TEXT,),
        "had become a text cell",
    ),
    Case(
        "answer-copied",
        "an answer copied, and the copy emptied",
        (e.duplicate("softmax", "# my notes"),),
        MAX,
        (R.ANSWER_DOUBLED,),
        "2 cells claim to be this answer",
    ),
    Case(
        "answer-indented",
        "an answer behind a condition, its metadata lost",
        (e.answer("softmax", INDENTED), e.strip("softmax"), e.without_ids),
        MAX,
        (R.ANSWER_FOUND,),
        "found by its",
    ),
    Case("imports-deleted", "the cell with the imports deleted", (e.delete("cell-02"),)),
    Case("split", "an answer split into two cells", (e.cell(SHIFTED), e.answer("softmax", BY_SHIFTED))),
    Case(
        "wrong-name",
        "a function of another name",
        (_swapped("softmax", "def softmax", "def soft_max"), OTHERS_SOFTMAX),
        15,
        (),
        lost=(("softmax", R.NOT_DEFINED),),
    ),
    Case(
        "syntax",
        "a syntax error in the third answer",
        (e.after("SelfAttention", "    def forward(self, x:"),),
        15,
        (),
        lost=(("SelfAttention", R.NOT_DEFINED),),
    ),
)

DIE = "import os\nos._exit(1)"
RUNS = (
    _own("input", "input() in a cell", "name = input('Who are you? ')"),
    _own(
        "pip",
        "%pip install in a cell, without a network",
        "%pip install torch-extras-of-mine",
        slow=True,
    ),
    _own("shell", "shell commands", "!ls /\n!nvidia-smi\nfiles = !pwd"),
    _own(
        "sys-exit",
        "sys.exit() in a cell",
        "import sys\nsys.exit()",
        R.PART_OF_CELL,
        sentence="stopped at an error (SystemExit)",
    ),
    _own("exit", "exit() in a cell", "exit()"),
    Case(
        "exit-in-answer",
        "sys.exit(0) at the top of an answer",
        (e.ahead("softmax", "import sys\nsys.exit(0)"),),
        MAX,
        (R.PART_OF_CELL,),
        "The cell softmax stopped at an error (SystemExit)",
    ),
    Case(
        "drive",
        "a hosted service's import above all others",
        (e.ahead("cell-02", DRIVE),),
        MAX,
        (R.PART_OF_CELL,),
        "ModuleNotFoundError",
    ),
    Case(
        "input-in-answer",
        "input() above the answer in its cell",
        (e.ahead("softmax", "axis = int(input('axis? '))"),),
        MAX,
        (R.PART_OF_CELL,),
        "StdinNotImplementedError",
    ),
    Case("time-magic", "%%time above an answer", (e.ahead("softmax", "%%time"),)),
    _own("plot", "a figure", "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()"),
    _own("widget", "a widget", WIDGET),
    _own("progress", "a progress bar on stderr", "from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass"),
    Case(
        "stderr",
        "warnings and a line on the real stderr in every call",
        (_swapped("softmax", "    e = ", NOISE),),
        report="nbgrader PR#1904",
    ),
    Case("prints", "prints in every call", (_swapped("softmax", "    e = ", "    print(scores.shape)\n    e = "),)),
    _own("warnings", "warnings made errors", "import warnings\nwarnings.simplefilter('error')"),
    _own("names", "builtins replaced by numbers", "max = min = sum = list = print = 3"),
    _own("float64", "another default type", "torch.set_default_dtype(torch.float64)"),
    _own("no-grad", "gradients turned off for all cells", "torch.set_grad_enabled(False)"),
    _own("chdir", "another folder, and none of its files", NO_FOLDER),
    _own("threads", "a thread that goes on", THREAD),
    _own("surrogate-out", "half of a character printed", "print('\\ud83d')\n'\\udc00'"),
    _own("nul", "a character that is none", "x = '\0'"),
    _own("killed", "the kernel ended in a cell", DIE, R.DIED, sentence="The kernel died in cell", report="cocalc#4588"),
    Case(
        "killed-in-answer",
        "the kernel ended below an answer in its cell",
        (e.after("softmax", DIE),),
        MAX,
        (R.DIED,),
        "The kernel died in the cell softmax",
        report="cocalc#4588",
    ),
    Case(
        "killed-in-call",
        "the kernel ended in every call of the third answer",
        (_swapped("SelfAttention", "super()", "import os; os._exit(1); super()"),),
        15,
        (R.DIED, R.KERNEL_LOST),
        "did not survive a call of SelfAttention",
        lost=(("SelfAttention", R.CALL_DIED),),
        report="otter-grader#723",
    ),
    _own(
        "segfault",
        "a crash of the interpreter",
        "import ctypes\nctypes.string_at(0)",
        R.DIED,
        sentence="The kernel died",
    ),
    _own(
        "loop",
        "a loop that does not end",
        "while True: pass",
        R.TIMEOUT,
        sentence="a loop that does not end?",
        report="otter-grader#813",
    ),
    Case(
        "loop-in-answer",
        "a loop that does not end below an answer",
        (e.after("softmax", "while True: pass"),),
        MAX,
        (R.TIMEOUT, R.PART_OF_CELL),
        "The cell softmax was stopped",
    ),
    Case(
        "loop-in-call",
        "a loop that does not end in the third answer",
        (_swapped("SelfAttention", "        super()", "        while True: pass\n        super()"),),
        15,
        (R.TIMEOUT,),
        lost=(("SelfAttention", R.CALL_TIMEOUT),),
        slow=True,
    ),
    _own(
        "deaf",
        "a loop that takes no interrupt",
        DEAF,
        R.HUNG,
        sentence="could not be interrupted",
        report="nbgrader#427",
        slow=True,
    ),
    _own(
        "memory",
        "more memory than there is",
        "import torch\nhuge = torch.zeros(10**13)",
        R.MEMORY,
        R.PART_OF_CELL,
        sentence="asked for more memory",
        report="nbclient#88",
    ),
    _own(
        "memory-python",
        "more memory than there is, in Python",
        "huge = bytearray(10**13)",
        R.MEMORY,
        sentence="asked for more memory",
        report="nbclient#88",
    ),
    _own(
        "flood",
        "output without end",
        "while True: print('x' * 1000)",
        R.OUTPUT,
        sentence="printed without end",
        report="mooc-grader#146",
        slow=True,
    ),
    _own("long-line", "a line of 15 MB", "print('x' * 15_000_000)", report="mooc-grader#146"),
    _own(
        "log",
        "2 MB of a training log",
        "for step in range(20_000): print('step', step, 'loss', 1 / (step + 1), 'x' * 80)",
    ),
    Case(
        "not-a-number",
        "NaN for every weight",
        (_swapped("softmax", "return e /", "return float('nan') * e /"), OTHERS_SOFTMAX),
        15,
        (),
        lost=(("softmax", R.WRONG),),
    ),
    Case(
        "infinite",
        "numbers that are none",
        (e.answer("SelfAttention", NO_TENSOR),),
        15,
        (),
        lost=(("SelfAttention", R.RAISED),),
    ),
)

CASES: tuple[Case, ...] = FILES + FORMATS + CELLS + RUNS
