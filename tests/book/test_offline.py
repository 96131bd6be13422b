"""The book reads without a network: opened in a real browser, no page asks another host for anything."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

VIEWS = {
    "desktop, light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "desktop, dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone, light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True},
    "phone, dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True},
}

#: In which view the book is opened, from where, and which of its pages: by double-clicking a file everything works too,
#: without any server. Two ways that differ in everything come first and take turns; the long run opens each page in each way.
EVERY = slice(None)
FIRST = [("desktop, light", "disk", slice(0, None, 2)), ("phone, dark", "server", slice(1, None, 2))]
LONG = [("desktop, light", "disk", EVERY), *((view, "server", EVERY) for view in VIEWS)]
WAYS = [*FIRST, *(pytest.param(*way, marks=pytest.mark.long) for way in LONG)]


@dataclass
class Trouble:
    """What went wrong while pages were open."""

    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __bool__(self):
        return bool(self.foreign or self.errors)


@contextmanager
def open_pages(browser, view: dict):
    """A browser page in ``view`` that may load from this machine only, and the record of what it tried beyond."""
    context = browser.new_context(**view)
    trouble = Trouble()

    def serve(route):
        address = urlsplit(route.request.url)
        if address.scheme in ("data", "blob", "file") or address.hostname == "127.0.0.1":
            return route.continue_()
        trouble.foreign.append(route.request.url)
        return route.abort()

    context.route("**/*", serve)
    page = context.new_page()
    page.on("console", lambda message: message.type == "error" and trouble.errors.append(message.text))
    page.on("pageerror", lambda error: trouble.errors.append(str(error)))
    page.on("requestfailed", lambda request: trouble.errors.append(f"failed: {request.url}"))
    page.on("response", lambda reply: reply.status >= 400 and trouble.errors.append(f"{reply.status}: {reply.url}"))
    yield page, trouble
    context.close()


def ready(page, address: str) -> None:
    """Open ``address`` and wait until its formulas are set and its pictures are there."""
    page.goto(address, wait_until="load")
    page.wait_for_function("() => !window.MathJax || (MathJax.startup && MathJax.startup.promise)")
    page.evaluate("() => window.MathJax && MathJax.startup.promise")
    page.evaluate("() => document.fonts.ready.then(() => true)")


@pytest.mark.parametrize(("view", "where", "which"), WAYS)
def test_a_page_asks_no_other_host_and_is_no_wider_than_the_screen(book, site, chromium, view, where, which):
    with open_pages(chromium, VIEWS[view]) as (page, trouble):
        for file in book.pages()[which]:
            name = file.relative_to(book.html).as_posix()
            ready(page, f"{site}/{name}" if where == "server" else file.as_uri())
            formulas = page.evaluate("() => document.querySelectorAll('span.math, div.math').length")
            drawn = page.evaluate("() => document.querySelectorAll('mjx-container').length")
            assert drawn >= formulas, f"{name}: {formulas} formulas, {drawn} of them set"
            wrong = page.evaluate("() => document.querySelectorAll('mjx-merror, [data-mjx-error]').length")
            assert wrong == 0, f"{name}: {wrong} formulas that MathJax cannot read"
            broken = page.evaluate(
                "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
            )
            assert not broken, f"{name}: pictures that do not load: {broken}"
            width = page.evaluate("() => document.documentElement.scrollWidth")
            assert width <= VIEWS[view]["viewport"]["width"] + 1, f"{name} is {width} pixels wide"
            assert not (trouble if where == "server" else trouble.foreign), f"{name}: {trouble}"


def test_search_finds_softmax(site, chromium):
    with open_pages(chromium, VIEWS["desktop, light"]) as (page, trouble):
        page.goto(f"{site}/search.html?q=softmax")
        page.wait_for_selector("#search-results li a", timeout=15_000)
        hits = page.eval_on_selector_all("#search-results li a", "links => links.map(link => link.href)")
        assert any("/book/" in hit for hit in hits)
        page.wait_for_load_state("networkidle")  # the search reads what it found, and leaving would break that off
        page.goto(hits[0])
        assert "softmax" in page.inner_text("main").lower()
        assert not trouble


def test_the_search_works_from_the_disk(book, chromium):
    with open_pages(chromium, VIEWS["desktop, light"]) as (page, trouble):
        page.goto((book.html / "search.html").as_uri() + "?q=softmax")
        page.wait_for_selector("#search-results li a", timeout=15_000)
        assert not trouble.foreign


def test_the_blockade_works(site, chromium):
    """A page that does ask another host is caught."""
    with open_pages(chromium, VIEWS["desktop, light"]) as (page, trouble):
        page.goto(f"{site}/search.html")
        page.evaluate(
            "() => { const i = new Image(); i.src = 'http://192.0.2.1/picture.png'; document.body.append(i); }"
        )
        page.wait_for_timeout(300)
        assert trouble.foreign == ["http://192.0.2.1/picture.png"]
