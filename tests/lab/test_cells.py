"""transformer_lab.cells: every stored form of a notebook gives the same cells, and magics are no Python."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_lab.cells import grade_id_of, is_test, lines_of, plain_python, points_of, read_cells

from .write_notebooks import answer, checked, code, markdown, notebook

# ------------------------------------------------------------------------------------------------------- read_cells


@pytest.mark.parametrize("suffix", [".ipynb", ".md"])
def test_reading_a_notebook_builds_no_grammars_and_keeps_nobody_from_them(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_text(notebook(code("x = 1")) if suffix == ".ipynb" else "```{code-cell} ipython3\nx = 1\n```\n")
    program = """
import sys
from pathlib import Path
from transformer_lab.cells import read_cells
print([cell.source for cell in read_cells(Path(sys.argv[1]))], "jsonschema" in sys.modules, "lark" in sys.modules)
import rfc3987_syntax
print("lark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["['x = 1'] True False", "True"], done.stderr


def test_numbers_count_all_cells_and_names_come_from_nbgrader(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(markdown("# Title"), code("x = 1"), markdown("text"), answer("y = 2", "piece")))
    first, second = read_cells(path)
    assert (first.number, first.name, first.label, first.source) == (2, "", "cell 2", "x = 1")
    assert (second.number, second.name, second.label) == (4, "piece", "cell 4 (piece)")


@pytest.mark.parametrize(
    ("cell", "runs"),
    [
        (code("1"), True),
        (answer("1", "a"), True),
        (checked("1", "a"), False),
        (checked("1", "a", grade=True), False),
        (code("1", nbgrader={"grade_id": "a", "solution": True, "grade": True, "locked": False}), True),
        (code("1", nbgrader={"grade_id": "a", "solution": False, "grade": False, "locked": True}), False),
        (code("1", nbgrader={}), True),
        (code("1", nbgrader=None), True),
        (code("1", nbgrader="graded"), True),
        (code("1", tags=["skip-execution"]), False),
        (code("1", tags=["hide-input", "skip-execution"]), False),
        (code("1", tags=["hide-input"]), True),
        (code("1", tags=None), True),
    ],
)
def test_which_cells_run(tmp_path, cell, runs):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook(cell))
    assert [c.runs for c in read_cells(path)] == [runs]


@pytest.mark.parametrize(
    ("flags", "points"),
    [
        ({"grade_id": "check_a", "grade": True, "locked": True, "points": 4, "solution": False}, 4),
        ({"grade_id": "test_a", "grade": True, "locked": True, "points": 0, "solution": False}, 0),
        ({"grade_id": "a", "grade": False, "locked": False, "points": 4, "solution": True}, 0),
    ],
)
def test_points_are_those_of_graded_cells(flags, points):
    assert points_of({"nbgrader": flags}) == points
    assert grade_id_of({"nbgrader": flags}) == flags["grade_id"]


@pytest.mark.parametrize("metadata", [{}, {"nbgrader": None}, {"nbgrader": {}}, {"nbgrader": "graded"}])
def test_cells_that_nbgrader_does_not_know(metadata):
    assert (grade_id_of(metadata), points_of(metadata), is_test(metadata)) == ("", 0, False)


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_myst_and_notebook_agree(tmp_path, ending, mark):
    myst = textwrap.dedent(
        """\
        ---
        jupytext:
          text_representation:
            extension: .md
            format_name: myst
        kernelspec:
          display_name: Python 3
          language: python
          name: python3
        ---

        # Title

        ```{code-cell} ipython3
        ---
        nbgrader:
          grade: false
          grade_id: piece
          locked: false
          schema_version: 3
          solution: true
        ---
        def piece():
            return "ü"
        ```

        ```{code-cell} ipython3
        :tags: [skip-execution]

        train()
        ```
        """
    )
    (tmp_path / "a.md").write_bytes(mark + myst.replace("\n", ending).encode())
    skipped = code("train()", tags=["skip-execution"])
    text = notebook(markdown("# Title"), answer('def piece():\n    return "ü"', "piece"), skipped)
    (tmp_path / "a.ipynb").write_bytes(mark + text.replace("\n", ending).encode())
    assert read_cells(tmp_path / "a.md") == read_cells(tmp_path / "a.ipynb")
    assert [cell.runs for cell in read_cells(tmp_path / "a.md")] == [True, False]


def test_python_file_is_one_cell(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
    (cell,) = read_cells(path)
    assert cell.runs
    assert cell.source.split() == ["x", "=", "1", "y", "=", "2"]
    assert not cell.source.startswith("\ufeff")


@pytest.mark.filterwarnings("error")
def test_old_formats(tmp_path):
    v3 = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [
            {
                "metadata": {},
                "cells": [
                    {"cell_type": "heading", "level": 1, "metadata": {}, "source": ["Title"]},
                    {
                        "cell_type": "code",
                        "collapsed": False,
                        "input": ["x = 1\n", "y = 2"],
                        "language": "python",
                        "metadata": {},
                        "outputs": [],
                        "prompt_number": 1,
                    },
                ],
            }
        ],
    }
    (tmp_path / "v3.ipynb").write_text(json.dumps(v3))
    (tmp_path / "v40.ipynb").write_text(notebook(markdown("# Title"), code("x = 1\ny = 2"), minor=0))
    listed = code("")
    listed["source"] = ["x = 1\n", "y = 2"]
    (tmp_path / "v45.ipynb").write_text(notebook(markdown("# Title"), listed, minor=5))
    cells = [read_cells(tmp_path / name) for name in ("v3.ipynb", "v40.ipynb", "v45.ipynb")]
    assert [c.source for c in cells[0]] == ["x = 1\ny = 2"]
    assert cells[0] == cells[1] == cells[2]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b"42",
        b"null",
        b'{"a": 1}',
        b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}}',
        b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": 5}',
        b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [5]}',
        b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "code"}]}',
        b'{"nbformat": 4, "nbformat_minor": 4, "cells": [{"cell_type": "code", "source": "x"}]}',
        b'{"nbformat": "4", "cells": []}',
        b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [',
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_no_notebook_gives_one_sentence(tmp_path, content):
    path = tmp_path / "broken.ipynb"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.ipynb cannot be read as a notebook \(.*\); open and save") as error:
        read_cells(path)
    assert "\n" not in str(error.value)


def test_python_file_in_another_encoding_gives_one_sentence(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes("x = 'ü'".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.py is no text in UTF-8"):
        read_cells(path)


# ----------------------------------------------------------------------------------------------------- plain_python


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install torch\nx = 1", "pass\nx = 1"),
        ("!echo it's\nx = 1", "pass\nx = 1"),
        ("import os\n!ls (\n%time\nx = 1", "import os\npass\npass\nx = 1"),
        ("softmax?\nx = 1", "pass\nx = 1"),
        ("torch.nn.Linear??", "pass"),
        ("?print", "pass"),
        ("if True:\n    %load_ext a\nx = 1", "if True:\n    pass\nx = 1"),
        ("!pip install \\\n    torch \\\n    numpy\nx = 1", "\n\npass\nx = 1"),
        ("%%time\nx = 1", "\nx = 1"),
        ("\n%%capture out\n%time\nx = 1", "\n\npass\nx = 1"),
        ("%%bash\nrm -r x", ""),
        ("%%html", ""),
    ],
)
def test_magics_shell_and_help_are_taken_out(source, plain):
    assert plain_python(source) == plain


@pytest.mark.parametrize(
    "source",
    [
        "x = (a\n     % b)",
        'text = """\n%matplotlib inline\n!ls\n"""',
        "x = 1\n# %time\n",
        "",
        "\n\n",
        "def f():\n    return '%s' % 1",
    ],
)
def test_python_stays_as_it_is(source):
    assert plain_python(source) == source


def test_python_beside_a_magic_stays_as_it_is():
    source = '%time\nx = (7\n     % 4)\ntext = """\n%kept\n!kept\n"""'
    assert plain_python(source) == source.replace("%time", "pass", 1)
    space: dict = {}
    exec(plain_python(source), space)
    assert space["x"] == 3
    assert space["text"] == "\n%kept\n!kept\n"


@pytest.mark.parametrize("source", ["def f(:\n    pass", "x = (", "return return", "x =\n%time", "\x00"])
def test_what_is_no_python_comes_back_for_the_compiler_to_name(source):
    with pytest.raises((SyntaxError, ValueError)):  # the latter for a null character before Python 3.11.4
        ast.parse(plain_python(source))


@given(
    st.lists(
        st.sampled_from(["x = 1", "%time", "!ls", "a?", "", "if x:", "    y = 2", "    %m", "z = '''", "'''", "a \\"])
    )
)
def test_every_line_keeps_its_place(lines):
    source = "\n".join(lines)
    plain = plain_python(source)
    assert len(lines_of(plain)) in (len(lines_of(source)), 1)
    for before, after in zip(lines_of(source), lines_of(plain), strict=False):
        assert after in (before, "pass", "    pass", "")


@given(st.text(alphabet=st.sampled_from("ab\n\r\f\v\x1c\x85\u2028")))
def test_lines_are_counted_as_python_counts_them(text):
    assert "\n".join(lines_of(text)) == text.replace("\r\n", "\n").replace("\r", "\n")
