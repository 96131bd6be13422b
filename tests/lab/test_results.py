"""Results of long runs say how they came about, and no longer count when their code has changed."""

from __future__ import annotations

import json

import pytest

from transformer_lab import results

CODE = '''"""What it measures."""

import math


def measure():
    """A docstring."""
    return math.pi  # a comment
'''


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A folder with a module and a result that it made."""
    monkeypatch.setattr(results, "COURSE_ROOT", tmp_path)
    (tmp_path / "measure.py").write_text(CODE)
    rows = [{"length": 1, "seconds": 0.5}, {"length": 2, "seconds": 0.75}]
    results.save(
        "timing",
        rows,
        command="python measure.py",
        code=[tmp_path / "measure.py"],
        seed=7,
        machine="a machine",
        folder=tmp_path / "results",
    )
    return tmp_path


def stale(course):
    return results.stale(course / "results", course)


def test_what_is_saved_comes_back(course):
    result = results.load("timing", course / "results")
    assert (result.command, result.seed, result.machine) == ("python measure.py", 7, "a machine")
    assert result.columns == ("length", "seconds")
    assert result.select(length=2) == [{"length": 2, "seconds": 0.75}]
    assert result.select() == [{"length": 1, "seconds": 0.5}, {"length": 2, "seconds": 0.75}]
    assert set(result.versions) == {"python", "torch", "numpy"}


def test_each_row_has_a_line_of_its_own(course):
    lines = (course / "results/timing.json").read_text().splitlines()
    assert "  [1, 0.5]," in lines
    assert "  [2, 0.75]" in lines


def test_a_column_that_is_not_there_is_named(course):
    with pytest.raises(KeyError, match="width"):
        results.load("timing", course / "results").select(width=3)


def test_rows_that_differ_in_their_columns_are_refused(course):
    with pytest.raises(ValueError, match="same columns"):
        results.save("other", [{"a": 1}, {"b": 1}], command="", code=[], seed=0, machine="", folder=course)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [[1]]}'])
def test_a_file_that_is_no_result_is_refused(course, text):
    (course / "results/timing.json").write_text(text)
    with pytest.raises(ValueError, match="no result"):
        results.load("timing", course / "results")


@pytest.mark.parametrize("rows", [[], [[1, 2], [1]]])
def test_rows_that_do_not_fit_are_refused(course, rows):
    path = course / "results/timing.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": rows}))
    with pytest.raises(ValueError, match="as long as"):
        results.load("timing", course / "results")


def test_a_missing_result_says_so(course):
    with pytest.raises(FileNotFoundError, match="nothing"):
        results.load("nothing", course / "results")


def test_the_code_that_made_it_is_known_again(course):
    assert stale(course) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A docstring.", "Another\n    one."),
        ("a comment", "more"),
        ("  # a comment", ""),
        ("import math\n", "import math\n\n"),
    ],
)
def test_comments_and_docstrings_may_be_mended(course, old, new):
    assert old in CODE
    (course / "measure.py").write_text(CODE.replace(old, new, 1))
    assert stale(course) == []


@pytest.mark.parametrize(("old", "new"), [("math.pi", "math.e"), ("    return", "    1\n    return")])
def test_other_code_makes_a_result_stale(course, old, new):
    (course / "measure.py").write_text(CODE.replace(old, new))
    (sentence,) = stale(course)
    assert "timing.json" in sentence
    assert "measure.py" in sentence
    assert "python measure.py" in sentence


def test_code_that_is_gone_makes_a_result_stale(course):
    (course / "measure.py").unlink()
    assert len(stale(course)) == 1


def test_a_text_counts_to_the_letter(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# one")
    before = results.digest(page)
    page.write_text("# two")
    assert results.digest(page) != before


def test_of_a_notebook_only_the_code_counts(tmp_path):
    page = tmp_path / "page.md"
    digests = []
    for words, code in (("one", "1 + 1"), ("two", "1 + 1"), ("two", "1 + 2")):
        page.write_text(f"# {words}\n\n```{{code-cell}} ipython3\n{code}\n```\n")
        digests.append(results.digest(page))
    assert digests[0] == digests[1] != digests[2]


def test_a_cell_that_loading_leaves_out_does_not_count(tmp_path):
    page = tmp_path / "page.md"
    digests = []
    for tags, code in (("skip-execution", "1"), ("skip-execution", "2"), ("hide-input", "1"), ("hide-input", "2")):
        page.write_text(
            f"```{{code-cell}} ipython3\n:tags: [{tags}]\n{code}\n```\n\n```{{code-cell}} ipython3\n3\n```\n"
        )
        digests.append(results.digest(page))
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_the_machine_is_described_without_its_name():
    import socket

    text = results.describe_machine()
    assert "cores" in text
    assert socket.gethostname() not in text


def test_the_results_of_the_course_were_made_by_the_code_as_it_is():
    assert list(results.FOLDER.glob("*.json")), "results/ is empty"
    assert results.stale() == []
