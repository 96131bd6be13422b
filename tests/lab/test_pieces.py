"""transformer_lab.pieces: notebooks as one namespace of pieces, with true places in tracebacks and sources."""

from __future__ import annotations

import inspect
import json
import linecache
import textwrap
import traceback
from pathlib import Path

import pytest

from transformer_lab import pieces

from .write_notebooks import answer, checked, code, markdown, notebook, write

DOUBLE = "def double(x):\n    return helper(x)"


@pytest.fixture(autouse=True)
def _no_override(monkeypatch):
    monkeypatch.delenv(pieces.PIECES_VARIABLE, raising=False)


# ------------------------------------------------------------------------------------------------------------- load


def test_a_notebook(tmp_path):
    path = write(
        tmp_path / "03_a.ipynb",
        markdown("# Title"),
        code("import math"),
        code("def helper(x):\n    return 2 * x"),
        answer(DOUBLE, "double"),
        checked("raise AssertionError('a visible test ran')", "test_double"),
        checked("raise AssertionError('a hidden test ran')", "check_double", grade=True),
        code("raise AssertionError('training ran')", tags=["skip-execution"]),
        code("_private = 1\npublic = 2"),
    )
    loaded = pieces.load(path)
    assert loaded.double(4) == 8
    assert loaded.public == 2
    assert loaded.cell_errors == []
    assert not hasattr(loaded, "_private")
    assert pieces.load(str(path)).double(4) == 8


def test_a_python_file(tmp_path):
    path = tmp_path / "answers.py"
    path.write_text("def helper(x):\n    return 2 * x\n\n\n" + DOUBLE + "\n\nif __name__ == '__main__':\n    1 / 0\n")
    loaded = pieces.load(path)
    assert loaded.double(4) == 8
    assert inspect.getsource(loaded.double) == DOUBLE + "\n"


def test_a_myst_source(tmp_path):
    path = tmp_path / "a.md"
    path.write_text(
        textwrap.dedent(
            """\
            ---
            jupytext:
              text_representation:
                extension: .md
                format_name: myst
            kernelspec:
              display_name: Python 3
              name: python3
            ---

            ```{code-cell} ipython3
            class Piece:
                def three(self):
                    return 3
            ```
            """
        )
    )
    loaded = pieces.load(path)
    assert loaded.Piece().three() == 3
    assert inspect.getsource(loaded.Piece).startswith("class Piece:\n    def three")


def test_a_folder_of_folders_in_order(tmp_path):
    write(tmp_path / "02_b" / "02_b.ipynb", code("order = order_of_two = 2\nfrom math import sqrt as one"))
    write(tmp_path / "01_a" / "01_a.ipynb", code("order = 1\ndef one(): return 'mine'"))
    (tmp_path / "03_c.py").write_text("three = 3")
    write(tmp_path / "01_a" / ".ipynb_checkpoints" / "01_a-checkpoint.ipynb", code("stale = 1"))
    write(tmp_path / "_build" / "copy.ipynb", code("stale = 1"))
    write(tmp_path / ".hidden.ipynb", code("stale = 1"))
    loaded = pieces.load(tmp_path)
    assert (loaded.order, loaded.order_of_two, loaded.three) == (2, 2, 3)
    assert not hasattr(loaded, "stale")
    assert repr(loaded) == f"Pieces({tmp_path}: one, order, order_of_two, three)"


def test_an_import_does_not_replace_an_earlier_piece(tmp_path):
    write(tmp_path / "01.ipynb", code("class TokenEmbedding:\n    mine = True"))
    write(
        tmp_path / "02.ipynb",
        code("from transformer_lab import pieces\nTokenEmbedding = pieces.earlier('builtin').TokenEmbedding"),
        code("used = TokenEmbedding"),
    )
    loaded = pieces.load(tmp_path)
    assert loaded.TokenEmbedding.mine
    assert not hasattr(loaded.used, "mine"), "inside its own notebook the import counts"
    assert not hasattr(pieces.load(tmp_path / "02.ipynb").TokenEmbedding, "mine"), "alone it is all there is"


def test_builtin_and_the_courses_own_folder(monkeypatch, tmp_path):
    assert pieces.load("builtin").TokenEmbedding.__module__ == "transformer_lab.builtin"
    monkeypatch.chdir(tmp_path)
    assert callable(pieces.load("solutions").positional_encoding), "a relative path falls back to the course's folder"


def test_nothing_there_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Nothing to load at .*nowhere"):
        pieces.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="holds no notebook"):
        pieces.load(tmp_path)
    (tmp_path / "a.txt").write_text("x = 1")
    with pytest.raises(ValueError, match=r"a\.txt is none of"):
        pieces.load(tmp_path / "a.txt")
    (tmp_path / "a.ipynb").write_text("x = 1")
    with pytest.raises(ValueError, match="cannot be read as a notebook"):
        pieces.load(tmp_path)


# ------------------------------------------------------------------------------------------------- cells that fail


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("x = 1\n\ny = 1 / 0", 3, "ZeroDivisionError: division by zero"),
        ("x = 1\nfor x in\n", 2, "SyntaxError"),
        ("def f():\n  x = 1\n x", 3, "IndentationError"),
        ("import sys\nsys.exit(3)", 2, "SystemExit: 3"),
        ("exit()", None, "Error|Exit"),
        ("raise NotImplementedError()", 1, "NotImplementedError"),
        ("def f():\n    g()\n\n\ndef g():\n    raise KeyError('k')\n\n\nf()", 6, "KeyError"),
        ("import not_installed_anywhere", 1, "ModuleNotFoundError"),
        ("def f(): return f()\nf()", 1, "RecursionError"),
        ('"""\u2028\f"""\nraise ValueError("after odd line breaks")', 2, "ValueError: after odd"),
        ("%time\nraise ValueError(1)", 2, "ValueError: 1"),
    ],
)
def test_a_failing_cell_is_named_and_hides_nothing(tmp_path, source, line, said):
    path = write(tmp_path / "a.ipynb", code("before = 1"), markdown("text"), answer(source, "piece"), code("after = 2"))
    loaded = pieces.load(path)
    assert (loaded.before, loaded.after) == (1, 2)
    (error,) = loaded.cell_errors
    assert (error.notebook, error.cell) == (path.resolve(), "cell 3 (piece)")
    if line is not None:
        assert error.line == line
        assert f"a.ipynb, cell 3 (piece), line {line}: " in str(error)
    with pytest.raises(AttributeError, match=f"defines no piece; a cell failed: a.ipynb, cell 3 .piece..*({said})"):
        loaded.piece  # noqa: B018


def test_a_missing_piece_says_so(tmp_path):
    loaded = pieces.load(write(tmp_path / "a.ipynb", code("x = 1")))
    with pytest.raises(AttributeError, match=r"a\.ipynb defines no softmax$"):
        loaded.softmax  # noqa: B018


def test_errors_of_several_notebooks_are_all_listed(tmp_path):
    write(tmp_path / "01.ipynb", code("1 / 0"), code("["))
    write(tmp_path / "02.ipynb", code("fine = 1"), code("undefined"))
    loaded = pieces.load(tmp_path)
    assert [(e.notebook.name, e.cell) for e in loaded.cell_errors] == [
        ("01.ipynb", "cell 1"),
        ("01.ipynb", "cell 2"),
        ("02.ipynb", "cell 2"),
    ]
    assert loaded.fine == 1


def test_a_notebook_may_call_anything_cell_errors(tmp_path):
    loaded = pieces.load(write(tmp_path / "a.ipynb", code("cell_errors = 5\nx = 1"), code("1 / 0")))
    assert len(loaded.cell_errors) == 1
    assert loaded.x == 1


def test_traceback_shows_notebook_cell_and_line(tmp_path):
    path = write(
        tmp_path / "a.ipynb",
        code("import math\n\n\ndef inner(x):\n    # a comment\n    return math.sqrt(x)"),
        answer("def outer(x):\n    return inner(x)  # here", "outer"),
    )
    loaded = pieces.load(path)
    with pytest.raises(ValueError, match=r"domain|nonnegative") as error:
        loaded.outer(-1)
    frames = traceback.extract_tb(error.value.__traceback__)[1:]
    assert [frame.line for frame in frames] == ["return inner(x)  # here", "return math.sqrt(x)"]
    assert [frame.filename for frame in frames] == [f"{path} [cell 2 (outer)]", f"{path} [cell 1]"]
    assert [pieces.locate(frame.filename, frame.lineno) for frame in frames] == [
        "a.ipynb, cell 2 (outer), line 2",
        "a.ipynb, cell 1, line 6",
    ]
    assert pieces.locate(__file__, 1) is None


# ------------------------------------------------------------------------------------------------------- getsource

SOURCES = '''
@functools.lru_cache
@decorated(
    1
)
def cached(x):
    """Text.

    %no magic
    """
    def nested(y):
        return y
    return nested


class Outer(Base):
    field = [
        1,
    ]

    class Inner:
        def method(self):
            return (
                1
            )

    @staticmethod
    @decorated(2)
    def static():
        pass

    @property
    def value(self):
        return 1


@dataclasses.dataclass
class Point:
    x: int = 1


square = lambda x: x ** 2
'''.strip()


@pytest.fixture(params=["alone", "after other cells"])
def shown(request, tmp_path):
    head = code("import dataclasses, functools\n\n\ndef decorated(n):\n    return lambda f: f\n\n\nclass Base: pass")
    noise = [
        code("!pip install torch"),
        code("def broken(:\n    class Outer: pass"),
        checked("class Outer:\n    hidden = 1", "test_outer"),
        code("class Outer:\n    trained = 1", tags=["skip-execution"]),
        code("class Outer:\n    first = 1\n\n\nclass Point:\n    first = 1\n"),
        code("raise ValueError\nclass Outer: pass"),
    ]
    cells = [head, answer(SOURCES, "Outer")] if request.param == "alone" else [head, *noise, answer(SOURCES, "Outer")]
    return pieces.load(write(tmp_path / "a.ipynb", *cells, code("%time\nlast = 1"), code("def broken(:")))


def _part(start: str, end: str) -> str:
    """From the line that begins with ``start`` up to the one before that with ``end``."""
    text = SOURCES[SOURCES.index(start) :]
    return text[: text.index(end)].rstrip("\n") + "\n"


def test_source_of_functions(shown):
    assert inspect.getsource(shown.cached.__wrapped__) == _part("@functools", "\n\nclass Outer")
    assert inspect.getsource(shown.cached(1)) == "    def nested(y):\n        return y\n"
    assert inspect.getsource(shown.square) == "square = lambda x: x ** 2\n"


def test_source_of_classes(shown):
    assert inspect.getsource(shown.Outer) == _part("class Outer(Base)", "\n\n@dataclasses")
    assert inspect.getsource(shown.Point) == _part("@dataclasses", "\n\nsquare")
    assert inspect.getsource(shown.Outer.Inner) == _part("    class Inner", "\n    @staticmethod")


def test_source_of_methods(shown):
    assert inspect.getsource(shown.Outer.Inner.method) == _part("        def method", "\n    @staticmethod")
    assert inspect.getsource(shown.Outer.static) == _part("    @staticmethod", "\n    @property")
    assert inspect.getsource(shown.Outer.value.fget) == _part("    @property", "\n\n@dataclasses")


def test_source_of_a_class_defined_twice_in_one_cell(tmp_path):
    loaded = pieces.load(write(tmp_path / "a.ipynb", code("class A:\n    x = 1\n\n\nclass A:\n    x = 2")))
    assert loaded.A.x == 2
    assert inspect.getsource(loaded.A) == "class A:\n    x = 2\n"


def test_source_follows_an_edit(tmp_path):
    path = write(tmp_path / "a.ipynb", code("def f():\n    return 1\n\n\nclass C:\n    x = 1"))
    pieces.load(path)
    write(path, code("# a line more"), code("def f():\n    return 2\n\n\nclass C:\n    x = 2"))
    loaded = pieces.load(path)
    linecache.checkcache()
    assert loaded.f() == 2
    assert inspect.getsource(loaded.f) == "def f():\n    return 2\n"
    assert inspect.getsource(loaded.C) == "class C:\n    x = 2\n"


def test_source_of_an_edited_python_file(tmp_path):
    path = tmp_path / "a.py"
    for value in (1, 22):
        path.write_text(f"class C:\n    x = {value}\n")
        assert inspect.getsource(pieces.load(path).C) == f"class C:\n    x = {value}\n"


def test_windows_line_ends(tmp_path):
    path = write(tmp_path / "a.ipynb", code("x = 1\r\n\r\n\r\nclass C:\r\n    x = 1\r\n"), code("1\r\n1 / 0"))
    loaded = pieces.load(path)
    assert inspect.getsource(loaded.C) == "class C:\n    x = 1\n"
    assert loaded.cell_errors[0].line == 2


def test_pieces_need_no_torch(tmp_path):
    """The loader runs where only nbformat is installed, in a fresh interpreter."""
    import subprocess
    import sys

    path = write(tmp_path / "a.ipynb", code("class C:\n    pass"))
    program = (
        "import sys, inspect; from transformer_lab import pieces; "
        f"loaded = pieces.load({str(path)!r}); print(inspect.getsource(loaded.C)); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=pieces.COURSE_ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "class C:\n    pass\n\n"
    assert done.stderr == ""


# --------------------------------------------------------------------------------------------------------- earlier

ASK = "from transformer_lab import pieces\nmine = pieces.earlier('mine')\n"


def test_earlier_builtin_and_path(tmp_path):
    assert pieces.earlier("builtin").softmax.__name__ == "softmax"
    assert pieces.earlier().TokenEmbedding is pieces.load("builtin").TokenEmbedding
    assert pieces.earlier(str(write(tmp_path / "a.ipynb", code("x = 5")))).x == 5


def test_earlier_mine_means_the_chapters_before(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "notebooks"
    write(folder / "01_a" / "01_a.ipynb", code("def one(): return 1"))
    write(folder / "02_b" / "02_b.ipynb", code(ASK + "def two(): return mine.one() + 1"), code("1 / 0"))
    write(folder / "03_c" / "03_c.ipynb", code("def two(): return 'own'\ndef three(): return 3"))
    monkeypatch.chdir(folder / "03_c")
    mine = pieces.earlier("mine")
    assert mine.two() == 2
    assert not hasattr(mine, "three")
    assert (
        capsys.readouterr().out
        == "One of your own pieces fails first: 02_b.ipynb, cell 2, line 1: ZeroDivisionError: division by zero\n"
    )
    with pytest.raises(AttributeError, match=r"notebooks before this chapter defines no three; a cell failed: 02_b"):
        mine.three  # noqa: B018


def test_earlier_mine_reads_each_notebook_once(tmp_path, monkeypatch):
    """Twelve chapters, each of which asks for all before it: 12 cells run and not 2¹²."""
    count = tmp_path / "count"
    folder = tmp_path / "notebooks"
    for chapter in range(12):
        ran = f"open({str(count)!r}, 'a').write('x')\nclass C{chapter}: pass\n"
        uses = f"assert mine.C{chapter - 1}" if chapter else ""
        write(folder / f"{chapter:02}_a" / "a.ipynb", code(ran), code(ASK + uses))
    loaded = pieces.load(folder)
    assert loaded.cell_errors == []
    assert len(count.read_text()) == 12
    monkeypatch.chdir(tmp_path)
    assert loaded.C3 is not pieces.load(folder).C3, "a later load reads again"
    assert loaded.C3.__module__ == loaded.C3.__module__


def test_earlier_mine_shares_its_classes_with_the_whole(tmp_path):
    folder = tmp_path / "notebooks"
    write(folder / "01.ipynb", code("class A: pass"))
    write(folder / "02.ipynb", code(ASK + "class B:\n    part = mine.A"))
    loaded = pieces.load(folder)
    assert loaded.B.part is loaded.A


def test_earlier_mine_without_a_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if any((parent / "notebooks").is_dir() for parent in tmp_path.parents):
        pytest.skip("a folder called notebooks stands above the temporary folder")
    with pytest.raises(FileNotFoundError, match='"notebooks"'):
        pieces.earlier("mine")


def test_earlier_is_overridden_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(pieces.PIECES_VARIABLE, "builtin")
    assert pieces.earlier("mine").TokenEmbedding.__module__ == "transformer_lab.builtin"
    monkeypatch.setenv(pieces.PIECES_VARIABLE, str(write(tmp_path / "a.ipynb", code("x = 5"))))
    assert pieces.earlier("builtin").x == 5


def test_one_notebook_that_asks_for_itself(tmp_path, monkeypatch):
    """Notebooks side by side in one folder: nothing says which one a kernel runs."""
    folder = tmp_path / "notebooks"
    write(folder / "01.ipynb", code(ASK + "x = 1"))
    monkeypatch.chdir(folder)
    assert pieces.earlier("mine").x == 1


def test_a_notebook_of_a_hosted_service(tmp_path):
    """Its own metadata, no kernelspec version, ids and form fields on the cells."""
    colab = {"provenance": [], "gpuType": "T4", "toc_visible": True}
    cell = code(
        "#@title Answer\ndef f():\n    return 1",
        id="AbC_123",
        colab={"base_uri": "https://localhost/"},
        cellView="form",
    )
    path = tmp_path / "Copy of 03_attention (1).ipynb"
    path.write_text(notebook(cell, minor=0, colab=colab, accelerator="GPU", kernelspec={"name": "python3"}))
    assert json.loads(path.read_text())["metadata"]["accelerator"] == "GPU"
    loaded = pieces.load(path)
    assert loaded.f() == 1
    assert inspect.getsource(loaded.f).startswith("def f()")


def test_the_courses_own_sources_load_and_show_their_source():
    loaded = pieces.load("solutions")
    assert loaded.cell_errors == []
    for name in ("positional_encoding", "TransformerEmbedding", "softmax", "SelfAttention"):
        piece = getattr(loaded, name)
        assert f" {name}(" in inspect.getsource(piece).splitlines()[0]
        assert Path(inspect.getsourcefile(piece)).parent.name == "solutions" or "[cell" in inspect.getsourcefile(piece)
