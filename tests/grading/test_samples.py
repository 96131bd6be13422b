"""The sample submissions: every kind is there, the notebooks are real ones, and they come to the points that they claim."""

import ast
import contextlib
import io
import json
import shutil
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader.utils import parse_utc

from autograder import intake, registry, release, run_checks, samples
from autograder.reasons import Reason
from autograder.student import LocalStudent, StudentError
from transformer_lab import pieces
from transformer_lab.cells import is_test, plain_python, read_notebook

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
CHAPTERS = tuple(sorted(path.stem for path in (ROOT / "solutions").glob("[0-9][0-9]_*.md")))
ALL = samples.samples()
SEEDS = (20260301, pytest.param(1, marks=pytest.mark.long))

#: What every chapter has an example of.
KINDS = {"right-loops", "right-compact", "untouched"}
#: What the two chapters that hold the grader to account have besides: learners who are stuck, careless or cheating.
HARD_KINDS = {"endless-loop", "endless-cell", "syntax-error", "hosted", "own-helper", "patched-tests", "skipped-tests"}
HARD_CHAPTERS = ("02_positional_encoding", "03_attention")
#: Each chapter's own: its best-known slips, and other ways to be right.
OWN_KINDS = {
    "01_embedding": {"hosted", "built-in", "missing-factor", "trained-padding", "half-done"},
    "02_positional_encoding": {
        "right-complex",
        "doubled-exponent",
        "half-layout",
        "batch-positions",
        "table-learnt",
    },
    "03_attention": {"right-numpy", "missing-scale", "softmax-axis", "mask-after-softmax"},
    "04_multi_head": {"own-helper", "built-in", "bare-reshape", "scaled-by-d-model", "no-output-projection"},
    "05_feed_forward": {"relu-last", "biases-forgotten"},
    "06_norm_and_residual": {"unbiased-variance", "pre-for-post", "shared-norm"},
    "07_masking_and_decoder": {"strict-triangle", "mask-inverted", "masks-exchanged"},
    "08_classifier": {"padding-averaged", "softmax-inside", "encoder-unmasked"},
    "09_translation": {"future-open", "one-hypothesis", "padding-in-the-mean"},
    "10_training_lab": {"mean-of-means", "edge-at-the-left"},
}
#: Kinds of submission in which every piece is right.
FULL = (
    "right-loops",
    "right-compact",
    "right-complex",
    "right-numpy",
    "hosted",
    "own-helper",
    "endless-cell",
    "built-in",
)
HOSTILE = ("patched-tests", "skipped-tests")
#: Kinds that are no known mistake, whatever they answer.
NO_SLIP = (*HOSTILE, "untouched", "syntax-error", "endless-loop")


def each(selected=ALL):
    return pytest.mark.parametrize("sample", selected, ids=lambda s: f"{s.assignment[:2]}-{s.student}")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    samples.write(folder, NOTEBOOKS)
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """The tensors are tiny: threads only get into each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(course: Path, sample: samples.Sample) -> Path:
    return course / "submitted" / sample.student / sample.assignment / f"{sample.assignment}.ipynb"


def stub(sample: samples.Sample):
    return read_notebook(NOTEBOOKS / sample.assignment / f"{sample.assignment}.ipynb")


def grade_id(cell) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


# ------------------------------------------------------------------------------------------------- what the samples are


@pytest.mark.parametrize("assignment", CHAPTERS)
def test_every_kind_has_a_sample(assignment):
    kinds = [sample.kind for sample in samples.samples([assignment])]
    hard = HARD_KINDS if assignment in HARD_CHAPTERS else set()
    assert KINDS | hard | OWN_KINDS[assignment] == set(kinds)
    assert len(kinds) == len(set(kinds)) >= 5


@each()
def test_expectations_cover_the_graded_cells(sample):
    points = release.graded_cells(ROOT / "solutions" / f"{sample.assignment}.md")
    most = {name.removeprefix("check_"): worth for name, worth in points.items()}
    assert list(sample.expect) == list(most)
    for piece, expected in sample.expect.items():
        assert 0 <= expected.points <= most[piece]
    files = registry.submitted(sample.assignment)  # pieces that are a file: with or without one, the code may be right
    assert all(sample.expect[piece].points == 0 for piece, file in files.items() if file not in sample.files)
    all_code = all(sample.expect[piece].points == worth for piece, worth in most.items() if piece not in files)
    assert all_code == (sample.kind in FULL)
    assert (sample.points == 0) == (sample.kind in (*HOSTILE, "untouched"))
    assert sample.what.endswith(".")


@pytest.mark.parametrize("assignment", CHAPTERS)
def test_right_answers_are_written_differently(assignment):
    def answers(sample):
        """Each answer as a syntax tree without docstrings and annotations, by piece."""
        texts = {edit.target: edit.text for edit in sample.edits if edit.action == "answer"}
        return {piece: _bare(text) for piece, text in texts.items()}

    reference = read_notebook(ROOT / "solutions" / f"{assignment}.md")
    seen = {grade_id(cell): {_bare(cell.source)} for cell in reference.cells if grade_id(cell)}
    for sample in samples.samples([assignment]):
        if sample.kind.startswith("right-"):
            for piece, answer in answers(sample).items():
                assert answer not in seen[piece], f"{sample.student}: {piece}"
                seen[piece].add(answer)


def _bare(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


# --------------------------------------------------------------------------------------------------- damaged files

GOOD = """---
student: someone
kind: right
what: Tries.
saved_by: jupyterlab
expect: {softmax: 5}
---

```python answer=softmax
def softmax(scores, dim=-1): ...
```
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("---\nstudent", "student", "between two lines of ---"),
        ("student: someone", "student: other", "the student is called other, the file someone"),
        ("saved_by: jupyterlab", "saved_by: notepad", "saved_by is one of"),
        ("kind: right\n", "kind: right\nmood: good\n", "mood"),
        ("kind: right\n", "", "kind"),
        ("{softmax: 5}", "{softmax: {diagnosis: x}}", "points"),
        ("{softmax: 5}", "{softmax: many}", "many"),
        ("expect: {softmax: 5}\n", "", "expect"),
        ("python answer=softmax", "python", "names none or several"),
        ("python answer=softmax", "python answer=softmax test=*", "names none or several"),
        ("python answer=softmax", "python anwser=softmax", "names none or several"),
        ("python answer=softmax", "text answer=softmax", "not understood"),
        ("python answer=softmax", "python answer=softmax tags=x", "not understood"),
    ],
)
def test_a_damaged_sample_is_refused(tmp_path, old, new, sentence):
    assert old in GOOD
    file = tmp_path / "03_attention" / "someone.md"
    file.parent.mkdir()
    file.write_text(GOOD)
    assert samples.read(file).expect == {"softmax": samples.Expected(5)}
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=str(file)) as caught:
        samples.read(file)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "action", ["answer=sofmax", "answer=test_softmax", "test=softmax", "add_after=x", "add_before=x", "add_at=end"]
)
def test_a_cell_that_the_stub_has_not_is_refused(tmp_path, action):
    file = tmp_path / "03_attention" / "someone.md"
    file.parent.mkdir()
    file.write_text(GOOD.replace("answer=softmax", action))
    with pytest.raises(ValueError, match="someone.md: " + action.split("=")[0]):
        samples.notebook_text(samples.read(file), NOTEBOOKS)


def test_a_missing_stub_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="make notebooks"):
        samples.write(tmp_path, tmp_path, ["03_attention"])


# --------------------------------------------------------------------------------------------------- the notebooks made


def test_writing_twice_changes_nothing_and_repairs_only_what_differs(tmp_path):
    first = samples.write(tmp_path, NOTEBOOKS)
    beside = [name for sample in ALL for name in sample.files]
    assert {path.name for path in first} == {"timestamp.txt", *beside, *(f"{chapter}.ipynb" for chapter in CHAPTERS)}
    assert len(first) == 2 * len(ALL) + len(beside)
    bytes_before = {path: path.read_bytes() for path in first}
    assert samples.write(tmp_path, NOTEBOOKS) == []
    first[0].write_text("spoilt")
    first[-1].unlink()
    assert samples.write(tmp_path, NOTEBOOKS) == [first[0], first[-1]]
    shutil.rmtree(tmp_path / "submitted")
    assert samples.write(tmp_path, NOTEBOOKS) == first
    assert {path: path.read_bytes() for path in first} == bytes_before


def test_only_the_named_assignments_are_written(tmp_path):
    changed = samples.write(tmp_path, NOTEBOOKS, ["03_attention"])
    assert {path.parent.name for path in changed} == {"03_attention"}


@each()
def test_the_notebook_is_valid_and_handed_in_at_some_time(course, sample):
    path = made(course, sample)
    raw = json.loads(path.read_text(encoding="utf-8"))
    # nbformat allows cell ids from 4.5 on and nothing that the format does not know
    nbformat.validate(raw, relax_add_props=False)
    assert parse_utc((path.parent / "timestamp.txt").read_text()).year == 2026
    ids = [cell.get("id") or cell["metadata"]["id"] for cell in raw["cells"]]
    assert len(ids) == len(set(ids))


@each()
def test_the_editor_can_be_told_from_the_file(course, sample):
    raw = json.loads(made(course, sample).read_text(encoding="utf-8"))
    kernel = raw["metadata"]["kernelspec"]
    assert kernel["name"] == "python3"
    if sample.saved_by == "colab":
        assert (raw["nbformat"], raw["nbformat_minor"]) == (4, 0)
        assert "provenance" in raw["metadata"]["colab"]
        assert not any("id" in cell for cell in raw["cells"])
        assert all("outputId" in cell["metadata"] for cell in raw["cells"] if cell.get("outputs"))
    else:
        assert raw["nbformat_minor"] == 5
        wanted = {"jupyterlab": "Python 3 (ipykernel)", "vscode": ".venv"}[sample.saved_by]
        assert kernel["display_name"] == wanted
        assert ("vscode" in raw["metadata"]) == (sample.saved_by == "vscode")


def test_all_editors_occur():
    assert {sample.saved_by for sample in ALL} == set(samples.EDITORS)
    assert all((sample.saved_by == "colab") == (sample.kind == "hosted") for sample in ALL)


@each()
def test_everything_that_the_sample_leaves_out_is_the_stub(course, sample):
    original, submitted = stub(sample).cells, read_notebook(made(course, sample)).cells
    added = [edit.text for edit in sample.edits if edit.action.startswith("add_")]
    replaced = {edit.target: edit.text for edit in sample.edits if edit.action == "answer"}
    tampered = any(edit.action == "test" for edit in sample.edits)
    assert sorted(cell.source for cell in submitted if not _stands_for(cell, original)) == sorted(added)
    kept = [cell for cell in submitted if _stands_for(cell, original)]
    assert len(kept) == len(original)
    for mine, theirs in zip(kept, original, strict=True):
        assert mine.metadata.get("nbgrader") == theirs.metadata.get("nbgrader")
        if tampered and is_test(theirs.metadata):
            assert (mine.source, mine.metadata["tags"]) == ("pass", ["skip-execution"])
        else:
            assert mine.source == replaced.get(grade_id(theirs) or None, theirs.source)


def _stands_for(cell, original) -> bool:
    return bool(grade_id(cell)) or cell.source in {theirs.source for theirs in original}


# ------------------------------------------------------------------------------------------------------- what they earn


@pytest.mark.parametrize("seed", SEEDS)
@each()
def test_it_comes_to_the_points_that_it_claims(course, sample, tmp_path, seed):
    path, seconds = made(course, sample), None
    if sample.kind == "endless-loop":
        seconds = 0.5
    if sample.kind == "endless-cell":  # judged here without the cell that does not end
        path = tmp_path / path.name
        (endless,) = _added(sample)
        notebook = read_notebook(made(course, sample))
        notebook.cells = [cell for cell in notebook.cells if cell.source != endless]
        nbformat.write(notebook, path)
    patched = (torch.allclose, torch.equal, torch.testing.assert_close)
    namespace = pieces.load(path)
    assert patched == (torch.allclose, torch.equal, torch.testing.assert_close), "a sample reaches beyond its kernel"
    student = LocalStudent(namespace, seconds, folder=made(course, sample).parent)
    results = run_checks(student, chapter=sample.assignment, seed=seed)
    for piece, expected in sample.expect.items():
        own = [result for result in results if result.piece == piece]
        failed = "; ".join(f"{result.check}: {result.message}" for result in own if result.message)
        assert sum(result.earned for result in own) == expected.points, failed
        named = {result.diagnosis.id for result in own if result.diagnosis}
        if expected.diagnosis:
            assert named == {expected.diagnosis}, failed
        elif not failed or sample.kind in NO_SLIP:
            assert not named


@each([sample for sample in ALL if sample.kind == "endless-cell"])
def test_the_endless_cell_does_not_end(course, sample, tmp_path):
    (endless,) = _added(sample)
    notebook = read_notebook(made(course, sample))
    notebook.cells = [cell for cell in notebook.cells if cell.source != endless]
    nbformat.write(notebook, tmp_path / "without.ipynb")
    names = {"math": __import__("math"), "torch": torch, **vars(pieces.load(tmp_path / "without.ipynb"))}
    with pytest.raises(StudentError, match="TimeoutError"):
        LocalStudent({"cell": lambda: exec(endless, names)}, seconds=3).run("cell")


def _added(sample) -> list[str]:
    return [edit.text for edit in sample.edits if edit.action.startswith("add_")]


@each([sample for sample in ALL if any(edit.action == "output_of" for edit in sample.edits)])
def test_the_outputs_are_those_of_the_cells(course, sample):
    names: dict = {}
    shown = 0
    for cell in read_notebook(made(course, sample)).cells:
        if cell.cell_type != "code" or "skip-execution" in cell.metadata.get("tags", []):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(ModuleNotFoundError):  # google.colab
            exec(plain_python(cell.source), names)
        if cell.outputs:
            shown += 1
            assert cell.outputs[0].text == printed.getvalue()
            assert cell.execution_count == shown
    assert shown == len(sample.expect)


@each()
def test_intake_finds_every_answer_and_restores_every_test(course, sample):
    source = release.convert_source(ROOT / "solutions" / f"{sample.assignment}.md")
    rebuilt = intake.rebuild(source, intake.read_submission(made(course, sample)))
    changed_tests = [Reason.TESTS_RESTORED] if sample.kind == "skipped-tests" else []
    assert [remark.reason for remark in rebuilt.remarks] == changed_tests
    cells = {grade_id(cell): cell for cell in rebuilt.notebook.cells if grade_id(cell)}
    for cell in source.cells:
        if is_test(cell.metadata):
            assert cells[grade_id(cell)].source == cell.source
            assert cells[grade_id(cell)].metadata.get("tags") == cell.metadata.get("tags")
    answers = {edit.target: edit.text for edit in sample.edits if edit.action == "answer"}
    stubs = {grade_id(cell): cell.source for cell in stub(sample).cells}
    for piece in sample.expect.keys() - registry.submitted(sample.assignment).keys():
        assert cells[piece].source == answers.get(piece, stubs[piece])
    texts = [cell.source for cell in rebuilt.notebook.cells]
    assert all(text in texts for text in _added(sample))
