"""The book builds strictly from nothing, and the strictness bites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from book_building import PAGE, ROOT, jupyter_book, write_small_book

#: What takes longer than 20 s on an idle machine is made by a command into results/; this leaves room for a busy one.
LONGEST_PAGE = 240.0


def toc_pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]


def test_exactly_the_pages_of_the_toc_are_built(book):
    built = {page.relative_to(book.html).with_suffix("").as_posix() for page in book.pages()}
    assert built - {"genindex", "search"} == set(toc_pages())
    assert (book.html / "index.html").exists(), "the site has no front door"


def test_nothing_but_the_book_is_copied(book):
    sources = {file.relative_to(book.html / "_sources").as_posix() for file in (book.html / "_sources").rglob("*.*")}
    assert sources == {f"{page}.md" for page in toc_pages()}
    strangers = {"solutions", "notebooks", "autograder", "tests", "transformer_lab", "site-packages", ".venv"}
    for file in book.html.rglob("*"):
        assert not strangers & set(file.relative_to(book.html).parts), file


def test_the_site_is_small(book):
    size = sum(file.stat().st_size for file in book.html.rglob("*") if file.is_file())
    assert size < 25e6, f"{size / 1e6:.0f} MB"
    assert len(list((book.html / "_static" / "mathjax").rglob("*.js"))) == 1


def test_every_page_with_code_was_executed_and_in_little_time(book):
    with_code = [page for page in toc_pages() if "{code-cell}" in (ROOT / f"{page}.md").read_text()]
    seconds = dict(re.findall(r"(\S+)\.md: Executed notebook in ([\d.]+) seconds", book.log))
    times = {Path(page).name: float(value) for page, value in seconds.items()}
    assert set(times) == {Path(page).name for page in with_code}, book.log
    slow = {page: value for page, value in times.items() if value > LONGEST_PAGE}
    assert not slow, f"pages that take longer than {LONGEST_PAGE} s: {slow}"


def test_a_second_build_executes_nothing(book):
    again = jupyter_book(ROOT, book.html.parent.parent)
    assert again.status == 0, again.log[-3000:]
    assert "Executed notebook" not in again.log
    assert again.seconds < min(60, book.seconds)


@pytest.fixture
def build_page(tmp_path):
    """Build a book of one page with the text given."""
    return lambda text: jupyter_book(write_small_book(tmp_path / "course", text), tmp_path / "out")


def test_an_exception_in_a_cell_fails_the_build(build_page):
    build = build_page(PAGE.replace('print("twice', 'raise ValueError("on purpose")\nprint("twice'))
    assert build.status != 0
    assert "on purpose" in build.log


def test_sloppy_pages_fail_the_build(build_page):
    """A reference to nothing and a picture without alt text, each of them named."""
    page = PAGE.replace("mystnb: {image: {alt: A rising line.}}", "tags: [hide-input]")
    build = build_page(page + "\nSee {numref}`fig-nowhere` and {doc}`nowhere`.\n")
    assert build.status != 0
    assert "fig-nowhere" in build.log
    assert "picture without alt text" in build.log
