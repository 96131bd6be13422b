"""The pages' outputs follow the code that they run, and nothing runs twice."""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path

import pytest
from book_building import PAGE, ROOT, SOLUTION, jupyter_book, write_small_book


@pytest.fixture
def small_book(tmp_path) -> Path:
    """A book of one page that draws what one piece computes."""
    return write_small_book(tmp_path / "course", PAGE)


def executed(build) -> int:
    return len(re.findall(r"Executed notebook in", build.log))


def test_an_edited_piece_redraws_its_figure_and_nothing_else_runs(small_book):
    def build():
        result = jupyter_book(small_book, small_book.parent / "out")
        assert result.status == 0, result.log[-3000:]
        page = (result.html / "book" / "page.html").read_text()
        pictures = {
            image: (result.html / "_images" / image).read_bytes() for image in re.findall(r"_images/(.+?)\"", page)
        }
        assert pictures
        return result, page, pictures

    first, page, pictures = build()
    assert executed(first) == 1
    assert "twice three is 6" in page

    solution = small_book / "solutions" / "01_double.md"
    solution.write_text(SOLUTION.replace("2 * n", "20 * n"))
    second, page_after, pictures_after = build()
    assert executed(second) == 1
    assert "twice three is 60" in page_after
    assert pictures_after != pictures

    third, page_again, pictures_again = build()
    assert executed(third) == 0
    assert (page_again, pictures_again) == (page_after, pictures_after)

    solution.write_text(SOLUTION)  # back again: the outputs of before are still there
    fourth, page_back, pictures_back = build()
    assert executed(fourth) == 0
    assert "twice three is 6\n" in page_back
    assert pictures_back == pictures


# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def code_digest():
    spec = importlib.util.spec_from_file_location("code_digest", ROOT / "book" / "_ext" / "code_digest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("change", ["edit", "add", "remove", "rename"])
def test_the_digest_follows_every_change(code_digest, tmp_path, change):
    folder = tmp_path / "solutions"
    folder.mkdir()
    (folder / "a.md").write_text("a")
    (folder / "b.py").write_text("b")
    before = code_digest.digest(tmp_path, ["solutions"], ["numpy"])
    if change == "edit":
        (folder / "a.md").write_text("A")
    elif change == "add":
        (folder / "c.md").write_text("")
    elif change == "remove":
        (folder / "b.py").unlink()
    else:
        (folder / "b.py").rename(folder / "d.py")
    assert code_digest.digest(tmp_path, ["solutions"], ["numpy"]) != before


def test_the_digest_heeds_neither_time_nor_what_python_leaves_behind(code_digest, tmp_path):
    folder = tmp_path / "solutions"
    folder.mkdir()
    (folder / "a.py").write_text("a")
    before = code_digest.digest(tmp_path, ["solutions", "results"], ["numpy"])
    os.utime(folder / "a.py", (1, 1))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.py").write_text("x")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "a.md").write_text("x")
    assert code_digest.digest(tmp_path, ["solutions", "results"], ["numpy"]) == before


def test_the_digest_follows_the_versions(code_digest, tmp_path, monkeypatch):
    before = code_digest.digest(tmp_path, [], ["numpy"])
    monkeypatch.setattr(code_digest, "version", lambda package: "0.0.0")
    assert code_digest.digest(tmp_path, [], ["numpy"]) != before


def test_old_outputs_are_removed(code_digest, tmp_path):
    from types import SimpleNamespace

    caches = tmp_path / "out" / ".jupyter_cache"
    for age, name in enumerate(["newest", "older", "oldest"]):
        (caches / name).mkdir(parents=True)
        stamp = time.time() - 1000 * (age + 1)
        os.utime(caches / name, (stamp, stamp))
    app = SimpleNamespace(outdir=str(tmp_path / "out" / "html"), srcdir=str(tmp_path))
    config = SimpleNamespace(code_digest_paths=[], code_digest_packages=["numpy"])
    code_digest.choose_cache(app, config)
    kept = sorted(folder.name for folder in caches.iterdir())
    assert kept == sorted(["newest", Path(config.nb_execution_cache_path).name])


def test_the_book_is_keyed_by_the_course(book):
    """The real configuration names the real folders: each edit there would redraw the figures."""
    import yaml

    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
    assert {"solutions", "transformer_lab", "results"} <= set(config["code_digest_paths"])
    assert {"torch", "numpy", "matplotlib"} <= set(config["code_digest_packages"])
    caches = list((book.html.parent / ".jupyter_cache").iterdir())
    assert len(caches) == 1
    assert (caches[0] / "global.db").exists()
