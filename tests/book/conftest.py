"""Build the book once, cold, and open it in a real browser."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "test-book"


def pytest_collection_modifyitems(items):
    """The first test that asks for the book waits for all pages to be executed, which on a busy machine takes a while."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))


@dataclass(frozen=True)
class Build:
    """One run of jupyter-book: the site's folder, the exit status, all that was printed, and how long it took."""

    html: Path
    status: int
    log: str
    seconds: float

    def pages(self) -> list[Path]:
        """The pages that readers open, without the redirect at the root and the theme's own templates."""
        found = (page.relative_to(self.html) for page in self.html.rglob("*.html"))
        return sorted(self.html / page for page in found if page.parts[0] not in ("index.html", "_static"))


def jupyter_book(source: Path, output: Path, *options: str) -> Build:
    """Build strictly, as the Makefile does."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("TRANSFORMER_LAB_PIECES", None)
    program = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", program, "build", str(source), "-n", "-W", "--keep-going"]
    started = time.monotonic()
    run = subprocess.run(
        [*command, "--path-output", str(output), *options],
        capture_output=True,
        text=True,
        cwd=source,
        env={**environment, "NO_COLOR": "1"},
        check=False,
    )
    seconds = time.monotonic() - started
    return Build(output / "_build" / "html", run.returncode, run.stdout + run.stderr, seconds)


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


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium that fetches nothing of its own accord."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("These tests open the book in Chromium, which is not installed: apt-get install chromium.")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", *quiet], headless=True
        )
        yield chromium
        chromium.close()
