"""Every picture says in words what it shows."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import PurePosixPath

import pytest

FEWEST_WORDS = 4


class _Pictures(HTMLParser):
    """The pictures of a page's article and what stands for them in words; icons that are hidden from readers don't count."""

    def __init__(self):
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.article = 0

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "article":
            self.article += 1
        if not self.article or attributes.get("aria-hidden") == "true":
            return
        if tag == "img":
            self.found.append((attributes.get("src", ""), attributes.get("alt") or ""))
        elif tag == "svg":
            self.found.append(("an svg element", attributes.get("aria-label") or ""))
        elif tag in ("object", "embed", "iframe", "canvas", "video"):
            self.found.append((f"a {tag} element", attributes.get("aria-label") or attributes.get("title") or ""))

    def handle_endtag(self, tag):
        self.article -= tag == "article"


def pictures(html: str) -> list[tuple[str, str]]:
    parser = _Pictures()
    parser.feed(html)
    return parser.found


def complaint(source: str, alt: str) -> str:
    """What is wrong with the text that stands for a picture; empty when nothing is."""
    name = PurePosixPath(source)
    if not alt.strip():
        return "none"
    if alt.strip() in (source, name.name, name.stem) or PurePosixPath(alt.strip()).suffix in (".svg", ".png", ".jpg"):
        return "the file's name"
    if len(alt.split()) < FEWEST_WORDS:
        return f"less than {FEWEST_WORDS} words"
    return ""


def test_every_picture_of_the_book_has_alt_text(book):
    number = 0
    for page in book.pages():
        for source, alt in pictures(page.read_text()):
            number += 1
            wrong = complaint(source, alt)
            assert not wrong, f"{page.relative_to(book.html)}: {source} has as alt text {wrong}: {alt!r}"
    assert number >= 5, "the book has hardly any picture, or they are not found"


@pytest.mark.parametrize(
    ("html", "wrong"),
    [
        ('<article><img src="a/b.svg" alt="Heat map of the weights, largest at cat"></article>', ""),
        ('<article><img src="a/b.svg"></article>', "none"),
        ('<article><img src="a/b.svg" alt=" "></article>', "none"),
        ('<article><img src="a/b.svg" alt="b.svg"></article>', "the file's name"),
        ('<article><img src="a/b.svg" alt="../_images/b.svg"></article>', "the file's name"),
        ('<article><img src="a/b.svg" alt="figure"></article>', "less than 4 words"),
        ('<article><svg><path d=""/></svg></article>', "none"),
    ],
)
def test_a_poor_alt_text_is_noticed(html, wrong):
    ((source, alt),) = pictures(html)
    assert complaint(source, alt) == wrong
