"""Take in a submission: find the notebook, read the texts of its cells, and rebuild it from the released one.

Nothing of what is handed in is copied, opened by a library or believed: a file is read once, through no link, as JSON, and
of its cells only the texts are used. Tests, points, tags and the order of cells come from the source alone, so that nothing
that a learner or an editor did to them matters. Answers are found by their grade id, by the cell's id, by the name that they
define, and last by their place and their text. What cannot be read ends as a sentence with a reason, never as an exception.
"""

from __future__ import annotations

import ast
import codecs
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.course import ARCHIVES
from autograder.reasons import Reason, Remark
from transformer_lab.cells import grade_id_of, is_test, lines_of, nbgrader_flags, plain_python
from transformer_lab.weights import WeightsError, read_bytes

#: A submitted file larger than this is not opened.
MAX_BYTES = 50_000_000

#: A submission's folder is looked through this deep, and this many entries of it.
MAX_DEPTH, MAX_ENTRIES = 4, 500

#: Of the files that may be the notebook under another name, this many are opened.
MAX_CANDIDATES = 20

#: Files that may hold a notebook, by the end of their names; the first are looked at first.
ENDINGS = (".ipynb", ".ipynb.txt", ".ipynb.json", ".json", ".txt", ".py")

#: Folders of editors and archivers, in which no work lies.
NOT_WORK = ("__MACOSX", "__pycache__")

#: Cells are held to be one cell, changed, when their texts are this similar: alone, and where the place says so too.
SIMILAR, SIMILAR_IN_PLACE = 0.6, 0.3

#: Texts longer than this, and notebooks of more cells, are not compared for similarity, which takes quadratic time.
MAX_COMPARED, MAX_CELLS_COMPARED = 20_000, 400


class IntakeError(ValueError):
    """A submission cannot be read; the one argument is a :class:`autograder.reasons.Remark` that says why."""

    @property
    def remark(self) -> Remark:
        return self.args[0]


@dataclass
class Received:
    """What was found in a submission's folder.

    ``notebook`` has the cells' types, ids, grade ids and texts and nothing else; it is None where nothing could be read,
    and then the last remark says why. ``path`` is the file that was taken, or the one that could not be read.
    """

    notebook: NotebookNode | None = None
    path: Path | None = None
    remarks: list[Remark] = field(default_factory=list)


@dataclass
class Intake:
    """A rebuilt notebook, ready to run, and one sentence for everything that was not as it should be."""

    notebook: NotebookNode
    remarks: list[Remark] = field(default_factory=list)


# ------------------------------------------------------------------------------------------------------------ the file


def receive(folder: Path, assignment: str, source: NotebookNode) -> Received:
    """Find the notebook of ``assignment`` in a submission's folder and read it.

    Parameters
    ----------
    folder
        The submission; no link in it is followed.
    assignment
        Its notebook is called ``<assignment>.ipynb``; others are taken where there is none, or where no work is in it.
    source
        The released notebook, by which the work in a file is recognised.
    """
    expected = folder / f"{assignment}.ipynb"
    first = _read(expected) if expected.is_symlink() or (expected.exists() and not expected.is_dir()) else None
    if first is not None and first.notebook is not None and _worked_on(first.notebook, source):
        return first
    others = [path for path in listing(folder) if path != expected and _may_be_notebook(path)]
    found = []
    for path in sorted(others, key=_likely)[:MAX_CANDIDATES]:
        received = _read(path)
        work = _worked_on(received.notebook, source) if received.notebook is not None else 0
        found.append((work, received))
    best = max((work for work, _ in found), default=0)
    taken = [received for work, received in found if work == best and received.notebook is not None]
    if best and taken:
        other = taken[-1]
        assert other.path is not None
        name = other.path.relative_to(folder).as_posix()
        if first is not None or len([work for work, _ in found if work]) > 1:
            why = f"of {1 + len(others) if first is not None else len(others)} files, {name} has most work in it"
            other.remarks.insert(0, Reason.SEVERAL(f"There is more than one notebook: {why}, and was taken."))
        else:
            other.remarks.insert(0, Reason.RENAMED(f"{name} was taken for {expected.name}."))
        return other
    if first is not None:
        return first
    readable = [received for _, received in found if received.notebook is not None and _is_notebook(received.path)]
    if len(readable) == 1:  # untouched, or another assignment's
        only = readable[0]
        assert only.path is not None
        name = only.path.relative_to(folder).as_posix()
        only.remarks.insert(0, Reason.RENAMED(f"{name} was taken for {expected.name}."))
        return only
    damaged = [received for _, received in found if received.notebook is None and _is_notebook(received.path)]
    if len(damaged) == 1 and not readable:
        return damaged[0]
    archives = [path.name for path in listing(folder) if path.suffix.lower() in ARCHIVES]
    if archives and not readable:
        sentence = f"There is no {expected.name} in the submission, but {_listed(archives)}, which is not unpacked."
        return Received(remarks=[Reason.ARCHIVE(sentence + " Hand in the notebook itself.")])
    there = _listed(path.relative_to(folder).as_posix() for path in listing(folder)) or "nothing"
    return Received(remarks=[Reason.NO_NOTEBOOK(f"There is no {expected.name} in the submission ({there}).")])


def listing(folder: Path) -> list[Path]:
    """The files of a submission, in the order of their names: all that grading may look at.

    Links are listed and not followed; hidden folders and those of editors are left out, and so is what lies deeper than
    ``MAX_DEPTH`` folders or comes after ``MAX_ENTRIES`` entries.
    """
    found: list[Path] = []
    left = MAX_ENTRIES

    def walk(place: Path, depth: int) -> None:
        nonlocal left
        try:
            with os.scandir(place) as entries:
                inside = []
                for entry in entries:
                    if left <= 0:
                        break
                    left -= 1
                    inside.append(entry)
        except OSError:
            return
        for entry in sorted(inside, key=lambda entry: os.fsencode(entry.name)):
            if entry.name.startswith(".") or entry.name in NOT_WORK:
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    walk(Path(entry.path), depth + 1)
            else:
                found.append(Path(entry.path))

    walk(folder, 1)
    return found


def read_submission(path: Path) -> NotebookNode:
    """The submitted notebook at ``path``: its cells' types, ids, grade ids and texts, and nothing else.

    Raises ``IntakeError`` with one sentence when it is no regular file, too large, or no notebook.
    """
    received = _read(path)
    if received.notebook is None:
        raise IntakeError(received.remarks[-1])
    return received.notebook


def _read(path: Path) -> Received:
    received = Received(path=path)
    try:
        try:
            data = read_bytes(path, MAX_BYTES)
        except FileNotFoundError:
            raise IntakeError(Reason.NO_NOTEBOOK(f"There is no {path.name}.")) from None
        except WeightsError as error:
            reason = Reason.TOO_LARGE if " MB" in str(error) else Reason.NOT_A_FILE
            hint = " Clear its outputs and hand it in again." if reason is Reason.TOO_LARGE else ""
            raise IntakeError(reason(f"{error}{hint}")) from None
        received.notebook = _parse(data, path, received.remarks)
    except IntakeError as error:
        received.remarks.append(error.remark)
    except (RecursionError, MemoryError) as error:
        sentence = f"{path.name} is nested too deep or too large to be read ({type(error).__name__})."
        received.remarks.append(Reason.NOT_A_NOTEBOOK(sentence))
    return received


#: How files begin that are no notebooks, what they are, and whether that is an archive.
_BEGINNINGS = (
    (b"PK\x03\x04", "a zip archive", True),
    (b"PK\x05\x06", "a zip archive", True),
    (b"Rar!", "a rar archive", True),
    (b"7z\xbc\xaf", "a 7z archive", True),
    (b"\x1f\x8b", "a gzip archive", True),
    (b"BZh", "a bzip2 archive", True),
    (b"\xfd7zXZ", "an xz archive", True),
    (b"%PDF", "a PDF document", False),
    (b"\x89PNG", "a picture", False),
    (b"\xff\xd8\xff", "a picture", False),
    (b"<!DOCTYPE", "a web page", False),
    (b"<!doctype", "a web page", False),
    (b"<html", "a web page", False),
    (b"version https://git-lfs", "a pointer of Git LFS", False),
)


def _parse(data: bytes, path: Path, remarks: list[Remark]) -> NotebookNode:
    """The notebook in the bytes of a file; ``IntakeError`` where there is none. Remarks are added."""
    name = path.name
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf"):
        raise IntakeError(Reason.EMPTY_FILE(f"{name} is empty: save the notebook and hand it in again."))
    for beginning, what, archive in _BEGINNINGS:
        if data.lstrip()[: len(beginning)] == beginning:
            reason = Reason.ARCHIVE if archive else Reason.OTHER_FORMAT
            raise IntakeError(reason(f"{name} is {what}, not a notebook: hand in the .ipynb file itself."))
    text = _decode(data, name, remarks)
    if path.suffix.lower() == ".py":
        remarks.append(Reason.SCRIPT(f"{name} is a Python script; its parts were taken for cells."))
        return _notebook(_script(text))
    content = _load(text, name, remarks)
    cells = _cells_of(content)
    if cells is None:
        raise IntakeError(Reason.NOT_A_NOTEBOOK(f"{name} has no cells: it is JSON, but cannot be read as a notebook."))
    kept = [made for made in map(_plain, cells) if made is not None]
    if len(kept) < len(cells):
        lost = len(cells) - len(kept)
        what = "entry that is no cell" if lost == 1 else "entries that are no cells"
        remarks.append(Reason.CELLS_DAMAGED(f"{name} has {lost} {what}, left out."))
    return _notebook(kept)


def _decode(data: bytes, name: str, remarks: list[Remark]) -> str:
    """The text of a file: UTF-8, or what its byte order mark or its zeros say, else Windows' Latin."""
    marks = (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    )
    encodings = [encoding for mark, encoding in marks if data.startswith(mark)]
    if not encodings and len(data) > 3 and 0 in data[:4]:  # JSON begins with two characters of ASCII
        encodings = ["utf-16-le" if data[1] == 0 else "utf-16-be"]
    for encoding in [*encodings, "utf-8-sig", "cp1252", "latin-1"]:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if encoding != "utf-8-sig":
            shown = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}.get(encoding, encoding.upper())
            remarks.append(Reason.ENCODING(f"{name} is no UTF-8 and was read as {shown}."))
        return text
    raise AssertionError("Latin-1 decodes everything")


def _load(text: str, name: str, remarks: list[Remark]) -> Any:
    """The JSON in ``text``; of a damaged file what can be told for certain: its whole cells."""
    text = text.strip("\0 \t\r\n\ufeff")
    try:
        return json.loads(text)
    except ValueError as error:
        problem = str(error)
    if re.search(r"^<{7}", text, re.MULTILINE) and re.search(r"^>{7}", text, re.MULTILINE):
        for side, which in ((r"\1", "upper"), (r"\2", "lower")):
            try:
                content = json.loads(_CONFLICT.sub(side, text))
            except ValueError:
                continue
            sentence = f"{name} holds conflict markers (<<<<<<<, >>>>>>>); the {which} side of each was taken."
            remarks.append(Reason.CONFLICT(sentence))
            return content
    cells = list(_whole_cells(text))
    if not cells:
        raise IntakeError(
            Reason.CUT_OFF(f"{name} cannot be read as a notebook ({problem}); open and save it once in Jupyter.")
            if text.startswith("{")
            else Reason.OTHER_FORMAT(f"{name} cannot be read as a notebook: it is a text, not JSON ({problem}).")
        )
    whole = "1 whole cell was" if len(cells) == 1 else f"{len(cells)} whole cells were"
    remarks.append(Reason.CUT_OFF(f"{name} is damaged or cut off ({problem}); its {whole} taken."))
    return {"cells": cells}


_CONFLICT = re.compile(
    r"^<{7}[^\n]*\n((?:(?!^[=|>]{7}).*\n)*?)(?:^\|{7}[^\n]*\n(?:(?!^={7}).*\n)*?)?^={7}[^\n]*\n((?:(?!^>{7}).*\n)*?)^>{7}[^\n]*\n?",
    re.MULTILINE,
)
_CELL_BEGINS = re.compile(r'\{\s*"(?:cell_type|attachments|execution_count|id|metadata|source|collapsed|input)"\s*:')


def _whole_cells(text: str) -> Iterator[dict]:
    """The cells of a damaged notebook that are whole, in order."""
    decoder, at = json.JSONDecoder(), 0
    start = re.search(r'"cells"\s*:\s*\[', text)
    while start and (begin := _CELL_BEGINS.search(text, max(at, start.end()))):
        try:
            value, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            at = begin.start() + 1
            continue
        if "cell_type" in value and ("source" in value or "input" in value):
            yield value


def _cells_of(content: Any) -> list | None:
    """The list of cells of a notebook of any version: format 4, or 3 and older with its worksheets."""
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("cells"), list):
        return content["cells"]
    sheets = content.get("worksheets")
    if not isinstance(sheets, list):
        return None
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
    return [cell for cells in lists if isinstance(cells, list) for cell in cells]


def _plain(cell: Any) -> NotebookNode | None:
    """A cell's type, id, grade id and text, whatever else is there and whatever it is called; None for what is no cell."""
    if not isinstance(cell, dict):
        return None
    kind = cell.get("cell_type")
    if not isinstance(kind, str):
        kind = "code" if {"outputs", "execution_count", "input"} & cell.keys() else "markdown"
    source = cell.get("source", cell.get("input"))
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    metadata = cell.get("metadata")
    name = grade_id_of(metadata) if isinstance(metadata, dict) else ""
    made = {"cell_type": kind, "source": _clean(source), "metadata": {"nbgrader": {"grade_id": name}} if name else {}}
    if isinstance(cell.get("id"), str):
        made["id"] = cell["id"]
    return nbformat.from_dict(made)


def _clean(text: str) -> str:
    """Text that every file can hold: Unix line ends, and no half of a surrogate pair."""
    return text.replace("\r\n", "\n").encode("utf-8", "replace").decode()


def _notebook(cells: list[NotebookNode]) -> NotebookNode:
    return nbformat.from_dict({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _script(text: str) -> list[NotebookNode]:
    """The cells of a script: what stands between the marks that exporting programs leave, else all of it."""
    parts = re.split(r"^# (?:%%|In\s?\[.*\]:).*$", text, flags=re.MULTILINE)
    made = (_plain({"cell_type": "code", "source": part.strip("\n") + "\n"}) for part in parts if part.strip())
    return [cell for cell in made if cell is not None]


def _may_be_notebook(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS) or not path.suffix


def _is_notebook(path: Path | None) -> bool:
    return path is not None and ".ipynb" in path.name.lower()


def _likely(path: Path) -> tuple:
    """The order in which files are tried: notebooks before texts, less deep ones first, then by name, numbers as such."""
    name = path.name.lower()
    ending = next((number for number, ending in enumerate(ENDINGS) if name.endswith(ending)), len(ENDINGS))
    natural = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d{1,18}|\D+", name)]
    return ending, len(path.parts), natural, str(path)


def _worked_on(notebook: NotebookNode, source: NotebookNode) -> int:
    """How many of the source's answers are in ``notebook`` and are not the stub's."""
    stubs = {grade_id_of(c.metadata): _normal(c.source) for c in source.cells if _is_answer(c)}
    found = set()
    for cell in notebook.cells:
        text = _normal(cell.source)
        for name, stub in stubs.items():
            if (grade_id_of(cell.metadata) == name or _defines(text, name)) and text not in ("", stub):
                found.add(name)
    return len(found)


def _listed(names: Iterable[str]) -> str:
    names = [name.encode("utf-8", "replace").decode() for name in names]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# ----------------------------------------------------------------------------------------------------------- the cells


def rebuild(source: NotebookNode, submitted: NotebookNode) -> Intake:
    """The notebook to run for grading.

    Parameters
    ----------
    source
        The released notebook with its graded cells.
    submitted
        What the learner handed in; only the texts of its cells are used.

    Returns
    -------
    Intake
        The cells of ``source`` in their order. An answer cell holds the learner's text; the stub's where there is none,
        and nothing where the answer stands in another cell. A plain code cell holds the learner's version of it. A cell
        that the learner added follows the cell that it followed in the submission. Copies of tests are dropped.
    """
    matching = _Matching(source, submitted)
    added: dict[int, list[NotebookNode]] = {}
    anchor = -1
    partner = {id(cell): index for index, cell in matching.match.items()}
    own = 0
    for cell in matching.theirs:
        if id(cell) in partner:
            anchor = max(anchor, partner[id(cell)])
        elif id(cell) in matching.dropped or matching.is_test_copy(cell):
            continue
        elif _text(cell).strip() and cell.cell_type == "code":
            own += 1
            added.setdefault(anchor, []).append(_own(cell, own))
    notebook = source.copy()
    notebook.cells = added.get(-1, [])
    for index, cell in enumerate(source.cells):
        kept = cell.copy()
        if index in matching.empty:
            kept.source = ""
        elif index in matching.match:
            kept.source = _text(matching.match[index])
        notebook.cells.append(kept)
        notebook.cells.extend(added.get(index, []))
    return Intake(notebook, matching.remarks)


def strip_hidden(source: str) -> str:
    """The text of a graded cell without its hidden region."""
    return re.sub(r"\n?### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", source, flags=re.DOTALL).rstrip()


class _Matching:
    """Which submitted cell stands for which cell of the source: answers and plain code cells only.

    ``match`` gives the cell by the index in the source, ``empty`` the indices of answers whose stub must not run because
    the answer stands elsewhere.
    """

    def __init__(self, source: NotebookNode, submitted: NotebookNode):
        self.source = source
        names = {grade_id_of(c.metadata) for c in source.cells if _is_answer(c)}
        ids = {c.get("id") for c in source.cells if _is_answer(c)}
        # Of cells that are no code, those that once were an answer.
        self.theirs = [
            c
            for c in submitted.cells
            if c.cell_type == "code"
            or (
                c.cell_type != "code"
                and (grade_id_of(c.metadata) in names or c.get("id") in ids)
                and _is_code(_text(c))
            )
        ]
        self.tests = {grade_id_of(c.metadata): strip_hidden(c.source) for c in source.cells if is_test(c.metadata)}
        self.test_texts = {_normal(text) for text in self.tests.values()}
        self.test_names = set().union(*map(_definitions, self.tests.values())) if self.tests else set()
        self.match: dict[int, NotebookNode] = {}
        self.empty: set[int] = set()
        self.remarks: list[Remark] = []
        self.taken: set[int] = set()
        self.dropped: set[int] = set()  # stubs that another cell has taken the place of
        self.released = {_normal(c.source): i for i, c in enumerate(source.cells) if c.cell_type == "code"}
        self.stubs = {i: c for i, c in enumerate(source.cells) if _is_answer(c)}
        plain = [i for i, c in enumerate(source.cells) if _is_plain(c)]
        for index in self.stubs:
            self._by_id_or_name(index)
        for index in plain:
            self._plain(index)
        for index in self.stubs:
            if index not in self.match:
                self._by_place_or_text(index)
        self._elsewhere()
        self._missing()
        self._tests_restored(submitted)

    def is_test_copy(self, cell: NotebookNode) -> bool:
        """True for a copy of a test, changed or not; a cell that defines something of its own is the learner's."""
        text = _text(cell)
        if _normal(text) in self.test_texts:
            return True
        if _definitions(text) - self.test_names:
            return False
        claims = grade_id_of(cell.metadata).startswith(("test_", "check_")) or is_test(cell.metadata)
        return claims or any(_alike(text, test) >= 0.8 for test in self._compared(self.tests.values()))

    def _free(self, cells: Iterable[NotebookNode]) -> list[NotebookNode]:
        return [cell for cell in cells if id(cell) not in self.taken]

    def _take(self, index: int, cell: NotebookNode) -> None:
        self.match[index] = cell
        self.taken.add(id(cell))

    def _by_id_or_name(self, index: int) -> None:
        source = self.source.cells[index]
        name = grade_id_of(source.metadata)
        nameless = [c for c in self._free(self.theirs) if not grade_id_of(c.metadata)]
        by_id = [c for c in self._free(self.theirs) if grade_id_of(c.metadata) == name]
        by_cell_id = [c for c in nameless if c.get("id") and c.get("id") == source.get("id")]
        by_name = [c for c in nameless if _defines(_text(c), name)]
        candidates = by_id or [c for c in by_cell_id if _defines(_text(c), name)] or by_name or by_cell_id
        if not candidates:
            return
        if (
            len(by_id) > 1
        ):  # a copied cell keeps its grade id: the one that defines the piece counts, the last of several
            written = [c for c in by_id if _defines(_text(c), name)]
            changed = [c for c in written if _normal(_text(c)) != _normal(source.source)]
            candidates = changed or written or by_id
            sentence = f"{name}: {len(by_id)} cells claim to be this answer; the last that defines it counts."
            self.remarks.append(Reason.ANSWER_DOUBLED(sentence))
        self._found(index, candidates[-1], "" if by_id else "the name it defines" if by_name else "its cell's id")

    def _found(self, index: int, cell: NotebookNode, how: str) -> None:
        name = grade_id_of(self.source.cells[index].metadata)
        self._take(index, cell)
        if how:
            sentence = f"{name}: the cell had lost its nbgrader metadata and was found by {how}."
            self.remarks.append(Reason.ANSWER_FOUND(sentence))
        if cell.cell_type != "code":
            sentence = f"{name}: the cell had become a text cell and was run as code."
            self.remarks.append(Reason.ANSWER_AS_TEXT(sentence))

    def _plain(self, index: int) -> None:
        source = self.source.cells[index]
        nameless = [c for c in self._free(self.theirs) if not grade_id_of(c.metadata) and c.cell_type == "code"]
        same_id = [c for c in nameless if c.get("id") and c.get("id") == source.get("id")]
        same_text = [c for c in nameless if _normal(_text(c)) == _normal(source.source)]
        if len(same_id) > 1:  # doubled ids say nothing: the most similar
            same_id = same_text or [max(same_id, key=lambda c: _alike(_text(c), source.source))]
        for candidate in (same_id or same_text)[:1]:
            self._take(index, candidate)

    def _by_place_or_text(self, index: int) -> None:
        """An answer without metadata that does not define its name: before its tests, or by its similarity to the stub."""
        name, stub = grade_id_of(self.source.cells[index].metadata), self.source.cells[index].source
        best, found, how = 0.0, None, ""
        for place, cell in enumerate(self.theirs):
            following = self.theirs[place + 1] if place + 1 < len(self.theirs) else None
            if id(cell) in self.taken or grade_id_of(cell.metadata) or not self._compared([cell]):
                continue
            if self.is_test_copy(cell) or any(_defines(_text(cell), other) for other in self._names() if other != name):
                continue
            in_place = following is not None and self._is_test_of(following, name)
            alike = _alike(_text(cell), stub)
            if alike >= (SIMILAR_IN_PLACE if in_place else SIMILAR) and alike + in_place > best:
                best, found, how = alike + in_place, cell, "its place" if in_place else "its text"
        if found is not None:
            self._found(index, found, how)

    def _elsewhere(self) -> None:
        """Answers that stand in another cell than their own: a stub that nobody touched must not replace them."""
        for index, cell in self.stubs.items():
            name = grade_id_of(cell.metadata)
            theirs = self.match.get(index)
            if theirs is not None and _normal(_text(theirs)) not in ("", _normal(cell.source)):
                continue
            others = [
                c
                for c in self.theirs
                if c is not theirs
                and c.cell_type == "code"
                and _defines(_text(c), name)
                and _normal(_text(c)) not in self.released
                and not self.is_test_copy(c)
            ]
            if not others:
                continue
            late = [c for c in self._free(others) if self._after_tests(c, name)]
            if late and len(late) == len(others):  # its checks would come before it
                self._drop(theirs)
                self._take(index, late[-1])
                sentence = f"{name}: the answer stands in a later cell and was taken from there."
            else:
                self.empty.add(index)
                sentence = f"{name}: the answer stands in another cell, so that the stub was left out."
            self.remarks.append(Reason.ANSWER_ELSEWHERE(sentence))

    def _drop(self, cell: NotebookNode | None) -> None:
        if cell is not None:
            self.dropped.add(id(cell))

    def _after_tests(self, cell: NotebookNode, name: str) -> bool:
        """Whether a cell comes after the tests of an answer, or after its graded cell."""
        places = [place for place, other in enumerate(self.theirs) if self._is_test_of(other, name)]
        return bool(places) and next(i for i, c in enumerate(self.theirs) if c is cell) > min(places)

    def _missing(self) -> None:
        missing = [
            grade_id_of(c.metadata) for i, c in self.stubs.items() if i not in self.match and i not in self.empty
        ]
        if missing and len(missing) == len(self.stubs):
            sentence = "The notebook holds none of this assignment's answers: is it that of another assignment?"
            self.remarks.append(Reason.OTHER_ASSIGNMENT(sentence))
            return
        for name in missing:
            self.remarks.append(Reason.ANSWER_MISSING(f"{name}: the answer cell is missing from the submission."))

    def _tests_restored(self, submitted: NotebookNode) -> None:
        texts = {_normal(_text(c)) for c in submitted.cells}
        visible = {name: text for name, text in self.tests.items() if text.strip()}
        restored = [name for name, text in visible.items() if _normal(text) not in texts]
        if restored and len(restored) < len(visible):
            what = "this test" if len(restored) == 1 else "these tests"
            sentence = f"Changed or missing in the submission: {_listed(restored)}; {what} ran as released."
            self.remarks.append(Reason.TESTS_RESTORED(sentence))
        elif restored:
            self.remarks.append(Reason.TESTS_RESTORED("No test is as it was released; all ran as released."))

    def _names(self) -> list[str]:
        return [grade_id_of(cell.metadata) for cell in self.stubs.values()]

    def _is_test_of(self, cell: NotebookNode, name: str) -> bool:
        test = self.tests.get(f"test_{name}", "")
        return grade_id_of(cell.metadata) == f"test_{name}" or (bool(test) and _normal(_text(cell)) == _normal(test))

    def _compared(self, what: Iterable) -> list:
        return list(what) if len(self.theirs) <= MAX_CELLS_COMPARED else []


def _is_answer(cell: NotebookNode) -> bool:
    flags = nbgrader_flags(cell.metadata)
    return cell.cell_type == "code" and bool(flags.get("solution") and grade_id_of(cell.metadata))


def _is_plain(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and not is_test(cell.metadata) and not _is_answer(cell)


def _defines(text: str, name: str) -> bool:
    return (
        re.search(
            rf"^(?:async\s+def|def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)", text, re.M
        )
        is not None
    )


def _definitions(text: str) -> set[str]:
    """The names of functions and classes that ``text`` defines."""
    return set(re.findall(r"^(?:async\s+def|def|class)\s+(\w+)", text, re.MULTILINE))


def _is_code(text: str) -> bool:
    try:
        return bool(ast.parse(plain_python(text)).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _alike(one: str, other: str) -> float:
    """How much of two texts is the same, line by line, indentation aside; 0 for very long ones."""
    if max(len(one), len(other)) > MAX_COMPARED:
        return 0.0
    ours, theirs = ([line.strip() for line in lines_of(text) if line.strip()] for text in (one, other))
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


def _text(cell: NotebookNode) -> str:
    return cell.source if isinstance(cell.source, str) else "".join(cell.source)


def _normal(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _own(cell: NotebookNode, number: int) -> NotebookNode:
    """A learner's own cell: the text alone, without tags, metadata or outputs."""
    return nbformat.v4.new_code_cell(_text(cell), id=f"own-{number:03}")
