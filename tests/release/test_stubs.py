"""The way from the sources to the learner's stubs: faithful, reproducible, tight."""

import copy
import functools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import nbformat
import nbgrader.api
import pytest
from jupytext.cli import jupytext as command_line

from autograder import registry, release, samples
from transformer_lab.cells import SKIP_TAG, plain_python, read_notebook

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.md"))
CHAPTERS = [pytest.param(source, id=source.stem) for source in SOURCES]

REAL_ALEMBIC_VERSION = nbgrader.api.get_alembic_version

SMALL = '''\
---
jupytext:
  text_representation: {extension: .md, format_name: myst}
kernelspec: {display_name: Some other Python, language: python, name: other}
---

# Small

```{code-cell} ipython3
import math
```

Write `area`.

<details><summary>Hint 1</summary>

Square the radius.

</details>

```{code-cell} ipython3
---
nbgrader: {grade: false, grade_id: area, locked: false, schema_version: 3, solution: true, task: false}
---
def area(radius):
    """The area of a disc."""
    ### BEGIN SOLUTION
    squared = radius * radius  # of the secret radius
    scaled = math.pi * squared
    rounded = round(scaled, ndigits=12)
    return rounded
    ### END SOLUTION
```

```{code-cell} ipython3
---
nbgrader: {grade: false, grade_id: test_area, locked: true, schema_version: 3, solution: false, task: false}
---
assert abs(area(1) - 3.14159) < 1e-5, "A disc of radius 1 has the area π."
```

```{code-cell} ipython3
---
nbgrader: {grade: true, grade_id: check_area, locked: true, points: 3, schema_version: 3, solution: false, task: false}
---
# The hidden checks of `area` run here when this notebook is graded: 3 points.

### BEGIN HIDDEN TESTS
from autograder.award import award
award(globals(), "area")
### END HIDDEN TESTS
```

```{code-cell} ipython3
:tags: [skip-execution]

area(10.0)
```
'''

SOLUTION = SMALL[SMALL.index("    squared") : SMALL.index("    ### END SOLUTION")]


@pytest.fixture
def small(tmp_path):
    """A function that writes a source of its own, changed by replacements, and returns its path."""

    def write(*replacements, name="91_small.md"):
        text = SMALL
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "solutions" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The stubs of all chapters, made in a fresh course."""
    folder = tmp_path_factory.mktemp("built")
    changed = release.build_stubs(ROOT / "solutions", folder / "notebooks", folder / "course")
    assert changed == [folder / "notebooks" / s.stem / f"{s.stem}.ipynb" for s in SOURCES]
    return folder


@pytest.fixture(autouse=True)
def _ask_alembic_once(monkeypatch):
    """nbgrader starts a program for every new gradebook to learn one word; the same word will do."""
    monkeypatch.setattr(nbgrader.api, "get_alembic_version", alembic_version)


@functools.cache
def alembic_version() -> str:
    return REAL_ALEMBIC_VERSION()


def stub_of(source: Path, folder: Path) -> Path:
    return folder / "notebooks" / source.stem / f"{source.stem}.ipynb"


def graded(notebook):
    return [cell for cell in notebook.cells if "nbgrader" in cell.metadata]


# ---------------------------------------------------------------------------------------------- the committed stubs


def test_there_are_sources():
    assert SOURCES


@pytest.mark.parametrize("source", CHAPTERS)
def test_committed_stub_is_what_the_source_gives(source, built):
    committed = stub_of(source, ROOT)
    assert committed.exists(), f"notebooks/ has no stub of {source.name}: run make notebooks."
    assert committed.read_bytes() == stub_of(source, built).read_bytes(), (
        f"{committed.relative_to(ROOT)} is not what solutions/{source.name} gives: run make notebooks, and commit."
    )


def test_every_stub_has_a_source():
    stubs = {path.parent.name for path in (ROOT / "notebooks").glob("*/*.ipynb")}
    assert stubs <= {source.stem for source in SOURCES}, "notebooks/ has a stub without a source: remove it."


@pytest.mark.parametrize("some", [SOURCES[::4], pytest.param(SOURCES, marks=pytest.mark.long)], ids=["three", "all"])
def test_same_bytes_elsewhere(built, tmp_path, some):
    """Another folder, process, hash seed, home and time zone."""
    code = "import sys; from pathlib import Path; from autograder import release; "
    code += "notebooks, course, *sources = map(Path, sys.argv[1:]); release.build_stubs(sources, notebooks, course)"
    elsewhere = tmp_path / "a folder" / "notebooks"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "HOME": str(tmp_path), "LC_ALL": "C"}
    subprocess.run(
        [sys.executable, "-c", code, elsewhere, tmp_path / "course", *some],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    for source in some:
        assert stub_of(source, elsewhere.parent).read_bytes() == stub_of(source, built).read_bytes()


@pytest.mark.parametrize("source", CHAPTERS)
def test_stub_is_a_clean_notebook(source, built):
    text = stub_of(source, built).read_text()
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    assert "π" in text or "−" in text or "√" in text or "→" in text, "characters are written as they are"
    stub = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(stub)
    assert (stub.nbformat, stub.nbformat_minor) == (4, 5)
    assert set(stub.metadata) == {"kernelspec", "language_info", "transformer_lab"}
    assert stub.metadata.kernelspec.name == "python3"
    sources = [cell for cell in stub.cells if cell.id != "setup"]
    assert len(sources) == len(stub.cells) - 1
    for number, cell in enumerate(sources, start=1):
        assert cell.id == cell.metadata.get("nbgrader", {}).get("grade_id", f"cell-{number:02d}")
    for cell in stub.cells:
        assert cell.source == cell.source.strip(), f"{cell.id} begins or ends with blank lines"
        assert set(cell.metadata) <= {"nbgrader", "tags", "deletable", "editable"}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("source", CHAPTERS)
def test_stub_keeps_everything_else(source, built):
    """What is neither solution nor hidden is in the stub as the author wrote it, with tags and flags."""
    original, stub = release.convert_source(source), read_notebook(stub_of(source, built))
    assert [cell.id for cell in stub.cells] == [cell.id for cell in original.cells]
    for before, after in zip(original.cells, stub.cells, strict=True):
        assert after.cell_type == before.cell_type
        assert after.metadata.get("tags") == before.metadata.get("tags")
        flags = dict(after.metadata.get("nbgrader", {}))
        if flags:
            assert len(flags.pop("checksum")) == 32
            assert flags.pop("cell_type") == before.cell_type
        assert flags == before.metadata.get("nbgrader", {})
        if "### BEGIN" not in before.source:
            assert after.source == before.source
        elif flags["solution"]:
            assert after.source.count("# YOUR CODE HERE") == before.source.count("### BEGIN SOLUTION")
            assert after.source.startswith(before.source.split("    ### BEGIN")[0])
        else:
            assert after.source == before.source.split("\n### BEGIN")[0]


@pytest.mark.parametrize("source", CHAPTERS)
def test_cells_before_the_first_answer_run_on_their_own(source, built, monkeypatch, capsys):
    path = stub_of(source, built)
    monkeypatch.chdir(path.parent)
    names, ran = {"__name__": "__main__"}, 0
    for cell in read_notebook(path).cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            break
        if cell.cell_type == "code":
            exec(compile(plain_python(cell.source), f"{path.name} [{cell.id}]", "exec"), names)
            ran += 1
    assert ran, "a notebook begins with its imports"
    assert capsys.readouterr().err == ""


# -------------------------------------------------------------------------------------------------------------- leaks


def regions_of(text: str) -> tuple[list[str], str]:
    """Lines between the markers of a source, and the rest; deliberately not the guard's own reading."""
    parts = re.split(r"^[ ]*### (?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)\n", text, flags=re.MULTILINE)
    return [line.strip() for part in parts[1::2] for line in part.splitlines()], "\n".join(parts[0::2])


@pytest.mark.parametrize("source", CHAPTERS)
def test_nothing_of_a_hidden_region_is_in_notebooks(source):
    hidden, visible = regions_of(source.read_text())
    assert len(hidden) >= 2 * source.read_text().count("grade: true"), "too few lines: does the search still work?"
    lines = [line for line in hidden if len(line) > 12 and line not in visible]
    assert lines
    for path in sorted((ROOT / "notebooks").rglob("*")):
        if not path.is_file():
            continue
        text = path.read_text()
        if path.suffix == ".ipynb":
            text += "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        for line in [*lines, "BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "award(", "autograder.award"]:
            assert line not in text, f"{path.relative_to(ROOT)} shows {line!r} of {source.name}"


PLANTED = {
    "copied into the test cell": (
        ("assert abs", "def again(radius):\n" + SOLUTION + "assert abs"),
        "test_area.*repeats a solution",
    ),
    "copied with other names": (
        ("assert abs", "r = 1\ns = r * r\nt = math.pi * s\nu = round(t, ndigits=12)\nassert abs"),
        "test_area.*repeats a solution",
    ),
    "copied into a hint": (("Square the radius.", f"```python\n{SOLUTION}```"), "cell-03.*repeats a solution"),
    "copied into a hint in tildes": (("Square the radius.", f"~~~\n{SOLUTION}~~~"), "cell-03.*repeats a solution"),
    "award in the visible part": (("\n### BEGIN HIDDEN", "\naward (globals())\n### BEGIN HIDDEN"), "check_area.*award"),
    "award in the text": (("Square the radius.", 'Run `award(globals(), "area")`.'), "cell-03.*award"),
    "marker in the text": (("Square the radius.", "### BEGIN SOLUTION"), r"cell-03: BEGIN SOLUTION in a cell without"),
    "hidden marker misspelt": (("BEGIN HIDDEN TESTS", "BEGIN HIDDEN TEST"), "check_area.*none of nbgrader's markers"),
    "hidden marker badly misspelt": (("BEGIN HIDDEN", "BEGIN HIDN"), "check_area.*none of nbgrader's markers"),
    "solution marker misspelt": (("BEGIN SOLUTION", "BEGIN SOLUTON"), "area.*none of nbgrader's markers"),
    "marker in small letters": (("BEGIN SOLUTION", "begin solution"), "area.*none of nbgrader's markers"),
    "end marker misspelt": (("END SOLUTION", "END SOLUTOIN"), "area.*none of nbgrader's markers"),
    "end marker missing": (("    ### END SOLUTION\n", ""), "area: nothing closes BEGIN SOLUTION"),
    "begin marker missing": (("    ### BEGIN SOLUTION\n", ""), "area: END SOLUTION closes nothing"),
    "begin marker twice": (("    squared", "    ### BEGIN SOLUTION\n    squared"), "area: BEGIN SOLUTION inside"),
    "closed by the other": (("END SOLUTION", "END HIDDEN TESTS"), "area: END HIDDEN TESTS closes nothing"),
    "solution in a locked cell": (("solution: true", "solution: false"), "area: BEGIN SOLUTION in a cell without"),
    "hidden in an ungraded cell": (("grade: true", "grade: false"), "check_area: BEGIN HIDDEN TESTS in a cell without"),
}


@pytest.mark.parametrize(("replacement", "message"), PLANTED.values(), ids=PLANTED)
def test_planted_leak_is_refused(replacement, message, small, tmp_path):
    source = small(replacement)
    with pytest.raises(ValueError, match=rf"91_small\.md.*{message}"):
        release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course")
    assert not list(tmp_path.glob("notebooks/**/*.ipynb"))
    assert not list(tmp_path.glob("course/release/**/*.ipynb")), "no release is left for somebody to hand out"


@pytest.mark.parametrize(
    ("cell", "line", "message"),
    [
        ("area", "    scaled = math.pi * squared", "cell 5 .area. of the stub shows the line"),
        ("test_area", '# award(globals(), "area")', "cell 6 .test_area. of the stub calls award"),
        ("cell-07", "### END HIDDEN TESTS", "cell 8 .cell-07. of the stub has the marker"),
        ("cell-07", "### END  HIDEN TESTS", "cell 8 .cell-07. of the stub has the marker"),
        ("cell-03", "The secret: `scaled = math.pi * squared`.", "cell 4 .cell-03. of the stub shows the line"),
    ],
)
def test_guard_distrusts_the_generator(cell, line, message, small, tmp_path):
    """The guard reads the stub itself: had nbgrader left something in, it would say so."""
    source = small()
    release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course")
    stub = read_notebook(stub_of(source, tmp_path))
    release.check_stub(stub, release.convert_source(source))
    target = next(c for c in stub.cells if c.id == cell)
    target.source += "\n" + line
    with pytest.raises(release.LeakError, match=message):
        release.check_stub(stub, release.convert_source(source))


def test_guard_refuses_outputs(small, tmp_path):
    source = small()
    release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course")
    stub = read_notebook(stub_of(source, tmp_path))
    stub.cells[-1].outputs = [nbformat.v4.new_output("stream", text="314.15")]
    with pytest.raises(release.LeakError, match="has outputs"):
        release.check_stub(stub, release.convert_source(source))


@pytest.mark.parametrize("source", CHAPTERS)
def test_guard_knows_every_solution_of_the_course(source, built):
    """Each solution region, pasted into a visible cell of source and stub alike, is refused."""
    original, stub = release.convert_source(source), read_notebook(stub_of(source, built))
    for solution in release.regions(original).solutions:
        pasted = [copy.deepcopy(notebook) for notebook in (stub, original)]
        for notebook in pasted:
            notebook.cells.append(nbformat.v4.new_code_cell(solution, id="pasted"))
        with pytest.raises(release.LeakError, match="pasted"):
            release.check_stub(*pasted)


def test_common_lines_are_no_leak(small, tmp_path):
    """A solution may have lines that its tests and hints have too."""
    source = small(
        ("assert abs", "radius = 2.0\nsquared = radius * radius\nassert abs"),
        ("Square the radius.", "`scaled = math.pi * squared` is one step, `return rounded` another."),
    )
    assert release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course")


def test_statements_read_what_does_not_parse():
    text = 'for x in …:  # a comment\n    """text\n    more"""\n    y = f(\n        x, a="#",\n    )\n    return y + f(x) if\n'
    assert release.statements(text) == [
        ["for", "x", "in", "…", ":"],
        ["f", "(", "x", ",", "a", "=", '"#"', ",", ")"],
        ["y", "+", "f", "(", "x", ")", "if"],
    ]


# ------------------------------------------------------------------------------------------------------ the sources


@pytest.mark.parametrize("source", CHAPTERS)
def test_source_validates_with_nbgrader(source):
    from nbgrader.preprocessors import CheckCellMetadata

    notebook = release.convert_source(source)
    nbformat.validate(notebook)
    CheckCellMetadata().preprocess(notebook, {})
    allowed = {"schema_version", "grade", "grade_id", "locked", "solution", "task", "points"}
    assert all(set(cell.metadata.nbgrader) <= allowed for cell in graded(notebook))
    assert notebook.metadata.kernelspec == release.KERNELSPEC


@pytest.mark.parametrize("source", CHAPTERS)
def test_every_piece_has_its_three_cells(source):
    """Specification with three hints, answer, visible tests, hidden checks: in this order, with the right flags."""
    cells = release.convert_source(source).cells
    ids = [cell.metadata.nbgrader.grade_id for cell in cells if "nbgrader" in cell.metadata]
    pieces = [cell.metadata.nbgrader.grade_id for cell in cells if cell.metadata.get("nbgrader", {}).get("solution")]
    files = registry.submitted(source.stem)
    expected = [name for piece in pieces for name in (piece, f"test_{piece}", f"check_{piece}")]
    assert ids == expected + [name for piece in files for name in (f"test_{piece}", f"check_{piece}")]
    assert len(ids) == len(set(ids))
    places = {cell.id: place for place, cell in enumerate(cells)}
    for piece in pieces:
        place = places[piece]
        answer, test, check = cells[place : place + 3]
        assert [test.id, check.id] == [f"test_{piece}", f"check_{piece}"]
        for cell, solution, locked, grade in ((answer, 1, 0, 0), (test, 0, 1, 1), (check, 0, 1, 1)):
            flags = cell.metadata.nbgrader
            assert cell.cell_type == "code"
            assert (flags.solution, flags.locked, flags.grade) == (bool(solution), bool(locked), bool(grade)), cell.id
            assert ("points" in flags) is bool(grade)
            assert not cell.metadata.get("tags"), f"{cell.id} must run when it is graded"
        assert re.search(rf"\b(def|class) {piece}\b", answer.source)
        assert "### BEGIN SOLUTION" in answer.source
        assert "print(" in test.source.splitlines()[-1]
        assert test.metadata.nbgrader.points == 0
        points = check.metadata.nbgrader.points
        assert check.source.splitlines() == [
            f"# The hidden checks of `{piece}` run here when this notebook is graded: {points} point{'s' * (points != 1)}.",
            "### BEGIN HIDDEN TESTS",
            "from autograder.award import award",
            f'award(globals(), "{piece}")',
            "### END HIDDEN TESTS",
        ]
        specification = cells[place - 1]
        assert specification.cell_type == "markdown"
        hints = re.findall(r"<summary>\s*Hint (\d)", specification.source)
        assert hints == ["1", "2", "3"], f"{piece}: the cell before the answer has the hints {hints}"
        assert specification.source.count("<details>") == specification.source.count("</details>")


WITH_FILES = [source for source in SOURCES if registry.submitted(source.stem)]


@pytest.mark.parametrize("source", WITH_FILES)
def test_a_piece_that_is_a_file_has_a_way_to_make_it_and_two_cells(source):
    """Specification, a cell that makes the file, a test that reads it (both not run in grading), and hidden checks."""
    cells = release.convert_source(source).cells
    places = {cell.id: place for place, cell in enumerate(cells)}
    for piece, file in registry.submitted(source.stem).items():
        specification, *making, test, check = cells[places[f"test_{piece}"] - 2 : places[f"check_{piece}"] + 1]
        assert piece in specification.source
        assert file in specification.source
        assert [cell.metadata.get("tags") for cell in (*making, test)] == [["skip-execution"], ["skip-execution"]]
        assert "weights.save(" in making[-1].source
        assert file in test.source
        assert "print(" in test.source.splitlines()[-1]
        assert test.metadata.nbgrader.points == 0
        assert not check.metadata.get("tags"), "it must run when it is graded"
        for cell in (test, check):
            flags = cell.metadata.nbgrader
            assert (flags.solution, flags.locked, flags.grade) == (False, True, True)
        assert check.source.splitlines() == [
            f"# The hidden checks of `{piece}` run here when this notebook is graded: {check.metadata.nbgrader.points} points.",
            "### BEGIN HIDDEN TESTS",
            "from autograder.award import award",
            f'award(globals(), "{piece}")',
            "### END HIDDEN TESTS",
        ]


@pytest.mark.parametrize("source", CHAPTERS)
def test_points_are_those_of_the_checks(source):
    points = release.graded_cells(source)
    assert set(points) == {
        f"check_{piece}" for piece in [*registry.pieces(source.stem), *registry.submitted(source.stem)]
    }
    for name, value in points.items():
        assert value == sum(check.points for check in registry.checks(piece=name.removeprefix("check_"))), name


@pytest.mark.parametrize("source", CHAPTERS)
def test_round_trip_through_jupytext(source, tmp_path):
    """What JupyterLab does with a source, open and save, keeps every cell, flag and tag."""
    there, back = tmp_path / "there.ipynb", tmp_path / source.name
    command_line(["--quiet", "--to", "ipynb", "--output", str(there), str(source)])
    command_line(["--quiet", "--to", "md:myst", "--output", str(back), str(there)])
    assert release.convert_source(back) == release.convert_source(source)
    ours = [cell for cell in release.convert_source(source).cells if cell.id != "setup"]
    before = [(cell.source, dict(cell.metadata)) for cell in ours]
    assert [(cell.source, dict(cell.metadata)) for cell in read_notebook(there).cells] == before


def test_graded_cells(small):
    assert release.graded_cells(small()) == {"check_area": 3}


def test_conversion_is_tidy_and_plain(small):
    notebook = release.convert_source(small())
    assert [cell.id for cell in notebook.cells] == [
        "cell-01",
        "setup",
        "cell-02",
        "cell-03",
        "area",
        "test_area",
        "check_area",
        "cell-07",
    ]
    assert notebook.metadata == {"kernelspec": release.KERNELSPEC, "language_info": {"name": "python"}}
    assert notebook.cells[6].source.splitlines()[1] == "### BEGIN HIDDEN TESTS", "no blank line will be left over"
    assert notebook.cells[7].metadata == {"tags": ["skip-execution"]}


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("schema_version: 3, solution: true", "schema_version: 2, solution: true"), "schema"),
        (("points: 3", "points: 3, minutes: 5"), "minutes"),
        (("points: 3, ", ""), "points"),
        (("grade_id: test_area", "grade_id: area"), "two cells have the id area"),
        (("grade_id: test_area", "grade_id: 'test area'"), "test area"),
        (("grade_id: test_area", "grade_id: ''"), "grade_id is empty"),
        (("nbgrader: {grade: true", "nbgrader: {grade: [true"), "cannot be read"),
    ],
)
def test_source_that_nbgrader_would_refuse(replacement, message, small, tmp_path):
    source = small(replacement)
    with pytest.raises(ValueError, match=rf"91_small\.md.*{message}") as caught:
        release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course")
    assert len(str(caught.value).splitlines()) == 1


def test_names_of_sources(small, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no chapter"):
        release.source_files(tmp_path)
    with pytest.raises(ValueError, match="NN_name"):
        release.source_files(small(name="Small.md"))
    with pytest.raises(FileNotFoundError, match="no source"):
        release.source_files(tmp_path / "12_nothing.md")
    one, two = small(name="91_small.md"), small(name="12_other.md")
    assert release.source_files(tmp_path / "solutions") == release.source_files([one, two]) == [two, one]


# ----------------------------------------------------------------------------------------- nbgrader takes it as it is

#: One chapter of functions, and one with a file handed in beside its notebook; the others in the long run.
SHORT = ("04_multi_head", "08_classifier")
IN_KERNELS = pytest.mark.parametrize(
    "source", [pytest.param(s, id=s.stem, marks=[] if s.stem in SHORT else pytest.mark.long) for s in SOURCES]
)


def is_visible_test(cell) -> bool:
    return cell.id.startswith("test_") and SKIP_TAG not in cell.metadata.get("tags", [])


def validate(path: Path, **settings) -> dict:
    from nbgrader.validator import Validator

    return Validator(**settings).validate(str(path))


@IN_KERNELS
def test_nbgrader_validates_the_source(source, built):
    """Every cell of the instructor's notebook runs in a kernel, and each graded cell gives all its points."""
    path = built / "course" / "source" / source.stem / f"{source.stem}.ipynb"
    for file in registry.submitted(source.stem).values():  # handed in beside the notebook
        shutil.copy(samples.FOLDER / source.stem / "trained.safetensors", path.with_name(file))
    assert validate(path, validate_all=True) == {}


@IN_KERNELS
def test_nbgrader_fails_the_stub(source, built):
    """An untouched stub fails in each visible test cell, because nothing is implemented, and nowhere before."""
    path = stub_of(source, built)
    failed = validate(path, validate_all=True)["failed"]
    tests = [cell.source.strip() for cell in graded(read_notebook(path)) if is_visible_test(cell)]
    assert [entry["source"] for entry in failed if entry["source"] in tests] == tests
    for entry in failed:
        assert "NotImplementedError" in entry["raw_error"], entry["raw_error"]


def errors_of_cells(path: Path) -> dict[str, Exception]:
    """What the cells of a notebook raise here, without a kernel and without the hidden checks: by the cell's id."""
    names, raised = {"__name__": "__main__"}, {}
    for cell in read_notebook(path).cells:
        if cell.cell_type != "code" or cell.id.startswith("check_") or SKIP_TAG in cell.metadata.get("tags", []):
            continue
        try:
            exec(compile(plain_python(cell.source), f"{path.name} [{cell.id}]", "exec"), names)
        except Exception as error:
            raised[cell.id] = error
    return raised


@pytest.mark.parametrize("source", CHAPTERS)
def test_every_visible_cell_of_the_source_runs(source, built, monkeypatch):
    path = built / "course" / "source" / source.stem / f"{source.stem}.ipynb"
    monkeypatch.chdir(path.parent)
    assert errors_of_cells(path) == {}


@pytest.mark.parametrize("source", CHAPTERS)
def test_the_stub_fails_in_its_tests_because_nothing_is_implemented(source, built, monkeypatch):
    path = stub_of(source, built)
    monkeypatch.chdir(path.parent)
    raised = errors_of_cells(path)
    tests = [cell.id for cell in graded(read_notebook(path)) if is_visible_test(cell)]
    assert [name for name in raised if name.startswith("test_")] == tests
    assert {type(error) for error in raised.values()} == {NotImplementedError}, raised


def test_gradebook_knows_the_points(built):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{built / 'course' / 'gradebook.db'}") as gradebook:
        assert sorted(assignment.name for assignment in gradebook.assignments) == [source.stem for source in SOURCES]
        for source in SOURCES:
            notebook = gradebook.find_notebook(source.stem, source.stem)
            worth = {cell.name: cell.max_score for cell in notebook.grade_cells if cell.max_score}
            assert worth == release.graded_cells(source)
            hidden = gradebook.find_source_cell(next(iter(release.graded_cells(source))), source.stem, source.stem)
            assert "award(globals()" in hidden.source, "plain nbgrader puts the hidden lines back from here"


def test_stock_command_line_gives_the_same_release(small, tmp_path):
    """``nbgrader generate_assignment`` in the course that we lay out, with a PATH of its own."""
    source, course = small(), tmp_path / "course"
    release.build_stubs(source, tmp_path / "notebooks", course)
    released = course / "release" / "91_small" / "91_small.ipynb"
    ours = released.read_bytes()
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "91_small", "--force"]
    subprocess.run(command, cwd=course, check=True, capture_output=True)
    assert released.read_bytes() == ours


def test_second_build_writes_nothing(small, tmp_path, monkeypatch):
    monkeypatch.setattr(nbgrader.api, "get_alembic_version", REAL_ALEMBIC_VERSION)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # nbgrader's alembic is found all the same
    monkeypatch.chdir(tmp_path)
    source, notebooks, course = small(), tmp_path / "notebooks", tmp_path / "course"
    target = stub_of(source, tmp_path)
    assert release.build_stubs(source, notebooks, course) == [target]
    watched = [target, course / "source" / "91_small" / "91_small.ipynb", course / "nbgrader_config.py"]
    before = [path.stat() for path in watched]
    assert release.build_stubs(source, notebooks, course) == []
    for path, old in zip(watched, before, strict=True):
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (old.st_mtime_ns, old.st_ino), path
    assert Path.cwd() == tmp_path
    assert os.environ["PATH"] == "/usr/bin:/bin"
    assert not [path for path in tmp_path.rglob("*") if stat.S_ISREG(path.stat().st_mode) and path.name.startswith(".")]
    small(("of radius 1 has", "of radius 1 must have"))
    assert release.build_stubs(source, notebooks, course) == [target]
    assert "of radius 1 must have" in target.read_text()


def test_instructors_settings_stay_and_count(small, tmp_path):
    source, course = small(), tmp_path / "course"
    course.mkdir()
    config = course / "nbgrader_config.py"
    config.write_text('c = get_config()\nc.CourseDirectory.release_directory = "handout"\n')
    release.write_source_course(course, source)
    assert release.generate_assignment(course, "91_small") == course / "handout" / "91_small" / "91_small.ipynb"
    assert config.read_text().endswith('"handout"\n')
    config.write_text("c = get_config(\n")
    with pytest.raises(release.ReleaseError, match=r"nbgrader_config\.py cannot be read"):
        release.generate_assignment(course, "91_small")


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_nbgraders_reason_is_passed_on(small, tmp_path):
    """Once there are submissions, nbgrader refuses other cells; the first line says so, its log follows."""
    from nbgrader.api import Gradebook

    course = tmp_path / "course"
    with pytest.raises(release.ReleaseError, match=r"could not generate 91_small: .*No notebooks were matched"):
        release.generate_assignment(course, "91_small")
    release.build_stubs(small(), tmp_path / "notebooks", course)
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        gradebook.add_student("ada")
        gradebook.add_submission("91_small", "ada")
    renamed = small(("test_area", "try_area"))
    with pytest.raises(release.ReleaseError, match="91_small: RuntimeError: Cannot add or remove cells") as caught:
        release.build_stubs(renamed, tmp_path / "notebooks", course)
    assert "[ERROR]" in str(caught.value)


# --------------------------------------------------------------------------------------------------- a learner's work


def test_own_work_is_kept(small, tmp_path):
    source, notebooks, course = small(), tmp_path / "notebooks", tmp_path / "course"
    target = stub_of(source, tmp_path)
    release.build_stubs(source, notebooks, course)
    assert not release.has_own_work(target)
    work = read_notebook(target)
    answer = next(cell for cell in work.cells if cell.id == "area")
    answer.source = answer.source.replace("raise NotImplementedError()", "return 3.14159 * radius**2")
    nbformat.write(work, target)
    kept = target.read_bytes()
    assert release.has_own_work(target)
    with pytest.warns(release.OwnWorkKept, match=r"91_small\.ipynb .*move your work"):
        assert release.build_stubs(source, notebooks, course) == []
    assert target.read_bytes() == kept
    assert release.build_stubs(source, notebooks, course, overwrite=True) == [target]
    assert "3.14159 * radius" not in target.read_text()


def test_running_a_stub_is_no_work(small, tmp_path):
    source, notebooks, course = small(), tmp_path / "notebooks", tmp_path / "course"
    target = stub_of(source, tmp_path)
    release.build_stubs(source, notebooks, course)
    fresh = target.read_bytes()
    ran = read_notebook(target)
    ran.cells[1].execution_count = 1
    ran.cells[-1].outputs = [nbformat.v4.new_output("stream", text="314.15")]
    ran.metadata.language_info.version = "3.11.2"
    nbformat.write(ran, target)
    assert release.build_stubs(source, notebooks, course) == [target]
    assert target.read_bytes() == fresh


@pytest.mark.parametrize(
    "text", ["", "no notebook", "{}", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}']
)
def test_what_is_no_stub_is_kept(text, small, tmp_path):
    source = small()
    target = stub_of(source, tmp_path)
    target.parent.mkdir(parents=True)
    target.write_text(text)
    with pytest.warns(release.OwnWorkKept):
        assert release.build_stubs(source, tmp_path / "notebooks", tmp_path / "course") == []
    assert target.read_text() == text
