"""From the instructor's sources to the learner's stubs, through nbgrader's own generate-assignment.

    solutions/NN_name.md → course/source/NN_name/NN_name.ipynb → course/release/… → notebooks/NN_name/NN_name.ipynb

nbgrader removes the solutions and the hidden tests and enters the graded cells in the course's gradebook. What comes out
is checked once more before it is written where learners find it (:func:`check_stub`), and has the same bytes wherever
and whenever it is made.

nbgrader changes the working directory and the environment while it works: call these functions from one thread only.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import hashlib
import json
import keyword
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from autograder import settings
from transformer_lab.cells import SKIP_TAG, grade_id_of, nbgrader_flags, points_of, read_notebook

if TYPE_CHECKING:
    from nbformat import NotebookNode

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}

#: The id of the cell that :func:`first_cell` makes.
FIRST_CELL = "setup"

#: Written once into a new course and the instructor's to change from then on.
COURSE_CONFIG = """\
# Settings of this nbgrader course. Written once by `autograder release`; yours to change.
c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "transformer-piece-by-piece"

# Importing torch on a busy machine takes longer than nbgrader's 30 s allow.
c.ExecutePreprocessor.timeout = 120
c.ExecutePreprocessor.startup_timeout = 120
c.ExecutePreprocessor.iopub_timeout = 30

# `nbgrader generate_feedback` and formgrader write the same pages as `autograder grade`.
c.GenerateFeedback.exporter_class = "autograder.feedback.FeedbackExporter"

# `nbgrader zip_collect` takes the files of trained weights along with the notebooks.
c.FileNameCollectorPlugin.valid_ext = [".ipynb", ".safetensors"]

# Who uses the very built-in that a piece re-creates, such as torch.softmax in softmax, reads a note.
# It costs this share of the points earned for the piece: 0.0 costs nothing, 1.0 costs all.
c.Judge.builtin_costs = 0.0
"""


class ReleaseError(RuntimeError):
    """nbgrader could not make a stub; the message has its reason and the end of its log."""


class LeakError(ValueError):
    """A stub would show what it must not."""


class OwnWorkKept(UserWarning):
    """A stub was left alone because someone has worked in it."""


# ------------------------------------------------------------------------------------------------------------- sources


def source_files(solutions: str | Path | Iterable[Path]) -> list[Path]:
    """The chapters' sources ``NN_name.md`` in ``solutions`` (a folder, one file, or several files), in order.

    Raises ``FileNotFoundError`` when there is none, ``ValueError`` for a file that is not called ``NN_name.md``.
    """
    if isinstance(solutions, (str, Path)):
        solutions = Path(solutions)
        files = sorted(solutions.glob("[0-9][0-9]_*.md")) if solutions.is_dir() else [solutions]
    else:
        files = sorted(solutions, key=lambda file: file.name)
    if not files:
        raise FileNotFoundError(f"{solutions} holds no chapter's source NN_name.md.")
    for file in files:
        if not re.fullmatch(r"\d\d_[a-z0-9_]+\.md", file.name):
            raise ValueError(f"{file}: a chapter's source is called NN_name.md, with small letters, digits and _ only.")
        if not file.is_file():
            raise FileNotFoundError(f"There is no source {file}.")
    return files


def convert_source(path: Path) -> NotebookNode:
    """The instructor's notebook that the MyST source ``path`` describes, as nbgrader wants it in ``source/``.

    Cell metadata is kept as written. Cell ids are the grade ids, else the cell's place in the source; the kernelspec
    is plain ``python3``; there are no outputs: the same source gives the same notebook everywhere. Before the first code
    cell stands :func:`first_cell`.

    Raises ``ValueError`` with one sentence when the file is no notebook, its nbgrader metadata do not validate, a
    solution or hidden region is not marked as nbgrader needs it, or the repository's address is none.
    """
    import nbformat
    from nbgrader.nbgraderformat import MetadataValidator

    notebook = read_notebook(path)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen = {FIRST_CELL}
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = grade_id_of(cell.metadata) or f"cell-{number:02d}"
        if cell.id in seen:
            raise ValueError(f"{path}: two cells have the id {cell.id}.")
        seen.add(cell.id)
        cell.source = _tidy(cell.source)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        _check_markers(cell, path)
    code = [place for place, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    if code:
        uses_lab = any("transformer_lab" in notebook.cells[place].source for place in code)
        notebook.cells.insert(code[0], first_cell(uses_lab, repository_of(path)))
    try:
        MetadataValidator().validate_nb(notebook)
        nbformat.validate(notebook)
    except Exception as error:  # jsonschema, nbgrader and nbformat each have their own classes
        raise ValueError(f"{path}: {_first_line(error)}") from error
    return notebook


def first_cell(uses_lab: bool, repository: str = "") -> NotebookNode:
    """The code cell with which every notebook begins; nobody but a learner runs it.

    Parameters
    ----------
    uses_lab
        Whether the notebook's code mentions ``transformer_lab``, so that the cell has to find it.
    repository
        Where pip may fetch it from with git; nothing where it may not.

    Raises
    ------
    ValueError
        ``repository`` is no address.
    """
    import nbformat

    if repository and not re.fullmatch(r"[a-z]+://[\w.~:/@%+-]+", repository):
        raise ValueError(f"{repository!r} is no address that git can fetch from, such as https://host/owner/name.")
    kinds = {"always", "transformer_lab" if uses_lab else "torch"}
    if uses_lab and repository:
        kinds.add("repository")
    template = (Path(__file__).parent / "templates" / "first_cell.py").read_text(encoding="utf-8")
    # A line "# %% kind" begins a part that is only for notebooks of that kind; the blank line before it goes with it.
    start, *rest = re.split(r"\n(?:[ ]*\n)?[ ]*# %% (\w+)(?=\n)", template.rstrip("\n"))
    text = start + "".join(part for kind, part in zip(rest[::2], rest[1::2], strict=True) if kind in kinds)
    text = text.replace("REPOSITORY", repository)
    return nbformat.v4.new_code_cell(text, id=FIRST_CELL, metadata={"tags": [SKIP_TAG]})


def repository_of(source: Path) -> str:
    """The public address that ``_config.yml`` beside the folder of ``source`` gives, or nothing."""
    import yaml

    config = source.resolve().parents[1] / "_config.yml"
    if not config.is_file():
        return ""
    return str(((yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("repository") or {}).get("url") or "")


def graded_cells(path: Path) -> dict[str, float]:
    """The points of every cell of a source or notebook that is worth some, by grade id, in the notebook's order."""
    return {
        grade_id_of(cell.metadata): points_of(cell.metadata)
        for cell in read_notebook(Path(path)).cells
        if points_of(cell.metadata)
    }


def write_source_course(course: str | Path, solutions: str | Path | Iterable[Path]) -> list[str]:
    """Lay ``solutions`` out as the nbgrader course ``course`` and return the names of its assignments.

    Writes ``source/NN_name/NN_name.ipynb`` where that changes, and ``nbgrader_config.py`` where there is none.
    """
    course, names = Path(course), []
    for file in source_files(solutions):
        _write_if_changed(course / "source" / file.stem / f"{file.stem}.ipynb", _dump(convert_source(file)))
        names.append(file.stem)
    config = course / "nbgrader_config.py"
    if not config.exists():
        _write_if_changed(config, COURSE_CONFIG)
    return names


# ------------------------------------------------------------------------------------------------------------ nbgrader


def generate_assignment(course: str | Path, assignment: str, force: bool = True) -> Path:
    """Run nbgrader's generate-assignment on ``course/source/<assignment>`` and return the released notebook.

    Enters the assignment and its cells in the gradebook that the course's ``nbgrader_config.py`` names
    (``gradebook.db`` by default). Without ``force`` an assignment that is already released stays as it is.

    Raises ``ReleaseError`` with nbgrader's reason and the end of its log.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import capture_log

    course = Path(course).resolve()
    config = _course_config(course)
    config.CourseDirectory.root = str(course)
    config.CourseDirectory.assignment_id = assignment
    coursedir = CourseDirectory(config=config)
    with _own_programs_first():
        try:
            generator = GenerateAssignment(coursedir=coursedir, config=config, force=force)
            result = capture_log(generator)
        except Exception as error:  # a setting that nbgrader refuses
            raise ReleaseError(f"nbgrader could not generate {assignment}: {_first_line(error)}") from error
    if not result["success"]:
        raise ReleaseError(_failure(assignment, result.get("log", ""), result["error"]))
    released = Path(coursedir.format_path(coursedir.release_directory, ".", assignment)) / f"{assignment}.ipynb"
    if not released.is_file():
        raise ReleaseError(_failure(assignment, result.get("log", ""), f"it wrote no {released}"))
    return released


def build_stubs(
    solutions: str | Path | Iterable[Path], notebooks: str | Path, course: str | Path, *, overwrite: bool = False
) -> list[Path]:
    """Make the learner's stub of every source and return the files that changed.

    Parameters
    ----------
    solutions
        The sources: a folder, one file, or several files.
    notebooks
        Where the stubs go, as ``NN_name/NN_name.ipynb``.
    course
        The nbgrader course to release in; made when it is not there.
    overwrite
        Replace notebooks in which someone has worked. By default they are kept, with the warning ``OwnWorkKept``.

    Raises
    ------
    LeakError
        A stub would show a solution or a hidden test. It is not written, and the course's release of it is removed.
    ReleaseError
        nbgrader failed.
    ValueError, FileNotFoundError
        A source cannot be used, see :func:`convert_source` and :func:`source_files`.
    """
    files = source_files(solutions)
    write_source_course(course, files)
    changed = []
    for file in files:
        name = file.stem
        released = generate_assignment(course, name)
        stub = read_notebook(released)
        try:
            check_stub(stub, convert_source(file))
        except LeakError as error:
            released.unlink()
            raise LeakError(f"{file}: {error}") from None
        target = Path(notebooks) / name / f"{name}.ipynb"
        text = stub_text(stub)
        if target.exists() and target.read_text(encoding="utf-8") != text and not overwrite and has_own_work(target):
            message = (
                f"{target} differs from the stub it was, so it was kept: move your work elsewhere to get a new stub."
            )
            warnings.warn(message, OwnWorkKept, stacklevel=2)
        elif _write_if_changed(target, text):
            changed.append(target)
    return changed


def stub_text(stub: NotebookNode) -> str:
    """The text of a stub's file: only what the source and nbgrader determine, in nbformat's own layout.

    The notebook's metadata hold a digest of its cells, by which :func:`has_own_work` knows an untouched stub.
    """
    import nbformat

    stub = nbformat.from_dict(stub)
    metadata = {
        "kernelspec": KERNELSPEC,
        "language_info": {"name": "python"},
        "transformer_lab": {"stub": _digest(stub)},
    }
    stub.metadata = nbformat.from_dict(metadata)
    nbformat.validate(stub)
    return _dump(stub)


def has_own_work(path: Path) -> bool:
    """False for a stub as :func:`build_stubs` wrote it, with or without outputs; True for anything else."""
    try:
        notebook = read_notebook(path)
        return notebook.metadata["transformer_lab"]["stub"] != _digest(notebook)
    except (ValueError, KeyError, TypeError):
        return True


# ---------------------------------------------------------------------------------------------------------- leak guard

_MARKERS = tuple(f"{edge} {what}" for what in ("SOLUTION", "HIDDEN TESTS", "MARK SCHEME") for edge in ("BEGIN", "END"))
_AWARD = re.compile(r"\baward\s*\(|\bautograder\.award\b")
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)

#: Lines up to this length, such as ``return output``, give nothing away.
_SHORT = 12
#: As many consecutive statements of a solution are a solution.
_RUN = 3


@dataclass
class Regions:
    """What of a source learners see, and what not."""

    visible: list[str] = field(default_factory=list)  # one text per cell
    solutions: list[str] = field(default_factory=list)  # one text per region
    hidden: list[str] = field(default_factory=list)  # one text per region


def regions(source: NotebookNode) -> Regions:
    """Divide the cells of a converted source into visible parts, solution regions and hidden regions."""
    found = Regions()
    for cell in source.cells:
        if nbgrader_flags(cell.metadata).get("solution") and "BEGIN SOLUTION" not in cell.source:
            found.solutions.append(cell.source)  # nbgrader replaces the whole cell
            continue
        visible: list[str] = []
        lines, opened = visible, ""
        for line in cell.source.split("\n"):
            marker = _marker(line)
            if marker is None:
                lines.append(line)
                continue
            if lines is not visible:
                (found.solutions if opened == "BEGIN SOLUTION" else found.hidden).append("\n".join(lines))
            opened, lines = marker, [] if marker.startswith("BEGIN") else visible
        found.visible.append("\n".join(visible))
    return found


def check_stub(stub: NotebookNode, source: NotebookNode) -> None:
    """Raise ``LeakError``, naming the cell, unless ``stub`` keeps to itself what ``source`` hides.

    Refused are: what looks like one of nbgrader's markers, whole or misspelt; a call of ``award``; a line of a hidden
    or solution region that the visible part of the source does not have; three consecutive statements of a solution
    (all of a shorter one), in code cells and in the code blocks of Markdown cells, whatever the names; outputs.
    """
    parts = regions(source)
    shown = "\n".join(parts.visible)
    secrets = [
        line.strip()
        for text in parts.solutions + parts.hidden
        for line in text.split("\n")
        if len(line.strip()) > _SHORT and line.strip() not in shown
    ]
    for number, cell in enumerate(stub.cells, start=1):
        where = f"cell {number} ({cell.id}) of the stub"
        for line in cell.source.split("\n"):
            if _marker(line) or (cell.cell_type == "code" and _like_marker(line)):
                raise LeakError(f"{where} has the marker {line.strip()!r}.")
        if _AWARD.search(cell.source):
            raise LeakError(f"{where} calls award, which belongs into a hidden region.")
        for secret in secrets:
            if secret in cell.source:
                raise LeakError(f"{where} shows the line {secret!r} of a solution or hidden region.")
        code = [cell.source] if cell.cell_type == "code" else [block for _, block in _FENCE.findall(cell.source)]
        for run in filter(None, (repeats(parts.solutions, text) for text in code)):
            raise LeakError(f"{where} repeats a solution: {run!r}.")
        if cell.get("outputs") or cell.get("execution_count"):
            raise LeakError(f"{where} has outputs.")


_TOKEN = re.compile(
    r"""(?P<string>[rbfuRBFU]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))"""
    r"""|(?P<comment>\#[^\n]*)|(?P<newline>\n)|(?P<word>\w+)|(?P<other>\S)""",
    re.DOTALL,
)
_PUBLIC = ("def", "class", "import", "from", "@", "global", "nonlocal")
_FIXED = frozenset(keyword.kwlist) | frozenset(dir(builtins))


def statements(code: str) -> list[list[str]]:
    """The statements of ``code`` as lists of tokens, without comments, docstrings, signatures, imports and small change.

    A statement is a line, or the lines that a bracket holds together. It works on code that does not parse, such as the
    blocks of a text. ``return x`` and ``y = x`` count as ``x``.
    """
    found: list[list[str]] = []
    tokens: list[str] = []
    depth = 0
    for match in _TOKEN.finditer(code + "\n"):
        token = match.group()
        if match.lastgroup == "comment":
            continue
        if match.lastgroup == "newline":
            if depth <= 0:
                found.append(tokens)
                tokens, depth = [], 0
            continue
        depth += (token in "([{") - (token in ")]}")
        tokens.append(token)
    kept = []
    for statement in found:
        if not statement or statement[0] in _PUBLIC or statement[:3] == ["super", "(", ")"]:
            continue
        if statement[0] == "return":
            statement = statement[1:]
        elif len(statement) > 2 and statement[1] == "=" and statement[2] != "=":
            statement = statement[2:]
        if len(statement) > 3:
            kept.append(statement)
    return kept


def repeats(solutions: list[str], text: str) -> str:
    """The first three consecutive statements of one of ``solutions`` (all of a shorter one) in ``text``, or nothing."""
    given = statements(text)
    shown: dict[int, dict[tuple, list[list[str]]]] = {}  # the runs of the text, by their length
    for solution in solutions:
        length, wanted = _telling_runs(solution)
        if not wanted:
            continue
        if length not in shown:
            shown[length] = {}
            for run in _runs(given, length):
                shown[length].setdefault(_nameless(run), run)
        found = next((run for name, run in shown[length].items() if name in wanted), None)
        if found:
            return "; ".join(" ".join(statement) for statement in found)
    return ""


@cache
def _telling_runs(solution: str) -> tuple[int, frozenset[tuple]]:
    """How many statements of ``solution`` give it away, and every run of so many that is long enough to say something."""
    given = statements(solution)
    length = min(_RUN, len(given))
    return length, frozenset(_nameless(run) for run in _runs(given, length) if sum(map(len, run)) > _SHORT)


def _runs(given: list[list[str]], length: int) -> Iterator[list[list[str]]]:
    return (given[start : start + length] for start in range(len(given) - length + 1))


def _nameless(run: list[list[str]]) -> tuple:
    """``run`` with every variable called by its number; attributes, builtins and keyword arguments keep their names."""
    numbers: dict[str, str] = {}
    renamed = []
    for statement in run:
        depth = 0
        for before, token, after in zip(["", *statement], statement, [*statement[1:], ""], strict=False):
            depth += (token in "([{") - (token in ")]}")
            fixed = before == "." or token in _FIXED or (after == "=" and depth > 0)
            if token.isidentifier() and not fixed:
                token = numbers.setdefault(token, f"v{len(numbers)}")
            renamed.append(token)
        renamed.append("\n")
    return tuple(renamed)


def _marker(line: str) -> str | None:
    """The marker that nbgrader sees in ``line``."""
    return next((marker for marker in _MARKERS if marker in line), None)


def _like_marker(line: str) -> bool:
    """True for a comment that was meant as a marker."""
    text = line.strip()
    if not text.startswith("#"):
        return False
    text = text.lstrip("#").strip()
    return bool(re.match(r"(BEGIN|END)\b", text) or difflib.get_close_matches(text.upper(), _MARKERS, 1, 0.82))


def _check_markers(cell: NotebookNode, path: Path) -> None:
    """Refuse regions that nbgrader would not find, not close, or cut out of the wrong cell."""
    where = f"{path}, cell {cell.id}"
    opened = None
    for line in cell.source.split("\n"):
        marker = _marker(line)
        if marker is None:
            if cell.cell_type == "code" and _like_marker(line):
                raise ValueError(f"{where}: {line.strip()!r} is none of nbgrader's markers ({', '.join(_MARKERS)}).")
        elif marker.startswith("BEGIN"):
            flag = "solution" if marker == "BEGIN SOLUTION" else "grade"
            if opened:
                raise ValueError(f"{where}: {marker} inside a region that {opened} opened.")
            if not nbgrader_flags(cell.metadata).get(flag):
                raise ValueError(f"{where}: {marker} in a cell without {flag}: true.")
            opened = marker
        elif opened != marker.replace("END", "BEGIN", 1):
            raise ValueError(f"{where}: {marker} closes nothing.")
        else:
            opened = None
    if opened:
        raise ValueError(f"{where}: nothing closes {opened}.")


# -------------------------------------------------------------------------------------------------------------- details


def _tidy(source: str) -> str:
    """Without the blank lines that would be left at the end of a cell once its last hidden region is cut out."""
    return re.sub(
        r"\n(?:[ \t]*\n)+([^\n]*BEGIN HIDDEN TESTS(?:(?!BEGIN HIDDEN).)*END HIDDEN TESTS[^\n]*)\s*$",
        r"\n\1",
        source,
        flags=re.S,
    )


def _dump(notebook: NotebookNode) -> str:
    import nbformat

    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def _digest(notebook: NotebookNode) -> str:
    cells = json.dumps([[cell.cell_type, cell.source] for cell in notebook.cells])
    return hashlib.sha256(cells.encode()).hexdigest()[:16]


def _write_if_changed(path: Path, text: str) -> bool:
    """Write ``text`` unless ``path`` holds it already; a reader never sees half a file."""
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(text.encode())
    partial.replace(path)
    return True


def _course_config(course: Path):
    try:
        return settings.read_config(course)
    except ValueError as error:
        raise ReleaseError(str(error)) from error


@contextlib.contextmanager
def _own_programs_first() -> Iterator[None]:
    """nbgrader starts ``alembic`` by name: let it find the one beside this Python."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before


def _first_line(error: BaseException) -> str:
    message = str(error).strip()
    return message.splitlines()[0] if message else type(error).__name__


def _failure(assignment: str, log: str, error: str) -> str:
    """One sentence with the cause, then the end of nbgrader's log."""
    lines = (log or error).strip().splitlines()
    raised = [line.strip() for line in lines if re.match(r"\s*[\w.]*(Error|Exception|Entry)\b.*: ", line)]
    cause = raised[-1] if raised else lines[0].removeprefix("[ERROR] ")
    return "\n".join([f"nbgrader could not generate {assignment}: {cause}", *lines[-12:]])
