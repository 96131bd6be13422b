"""Build the book once, cold, and open it in a real browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from pathlib import Path

import pytest
from book_building import ROOT, Build, jupyter_book

OUTPUT = ROOT / "build" / "test-book"


def pytest_collection_modifyitems(items):
    """The first test that asks for the book waits for all pages to be executed, which on a busy machine takes a while."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def book() -> Build:
    """The book, built from nothing: no earlier pages, no execution cache."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    build = jupyter_book(ROOT, OUTPUT)
    assert build.status == 0, f"the strict build failed:\n{build.log[-6000:]}"
    return build


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def site(book) -> str:
    """The built book served on this machine: its address without a closing slash."""
    handler = functools.partial(_Quiet, directory=str(book.html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
