"""What all tests share: one torch thread, and failing instead of skipping where a needed part of the system is missing."""

import gc
import os
import shutil
import signal

import hypothesis
import pytest
import torch


def pytest_configure(config):
    # Many small tensors on few processors: threads would only wait for each other, here and in the programs started.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Tests grade their own submissions, on whatever host; tests/sandbox looks at what is enforced and what is not.
    os.environ.setdefault("AUTOGRADER_ACCEPT_UNENFORCED", "1")
    # Started in the background by a shell, this process ignores Ctrl-C, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How quickly a busy machine makes examples says nothing of them.
    hypothesis.settings.register_profile(
        "course", suppress_health_check=[hypothesis.HealthCheck.too_slow], deadline=None
    )
    hypothesis.settings.load_profile("course")


#: Folders and files whose tests share an expensive fixture with other files'.
SHARED = {"book": "book", "test_feedback.py": "pages", "test_report.py": "pages"}


#: Where a test comes: those of the book before all others, those of a piece's bank behind.
PLACE = pytest.StashKey[tuple[bool, bool]]()


def pytest_itemcollected(item):
    """With several workers, what shares something expensive runs in one: the book, a piece's bank, else file by file.

    Marked as soon as it is collected: by ``pytest_collection_modifyitems`` xdist has looked for groups already.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    pieces = [getattr(parameters.get(name), "piece", None) for name in ("entry", "mistake")] + [parameters.get("piece")]
    piece = next((piece for piece in pieces if isinstance(piece, str)), None)
    group = SHARED.get(item.path.parent.name) or SHARED.get(item.path.name) or piece or str(item.path)
    item.add_marker(pytest.mark.xdist_group(group))
    item.stash[PLACE] = (group != "book", group == piece)


def pytest_collection_modifyitems(items):
    """What takes longest first, the banks of the pieces last: small pieces of work, so that all workers end at one time."""
    items.sort(key=lambda item: item.stash[PLACE])


def pytest_collection_finish(session):
    """What is there by now stays to the end, so that no search for garbage need look through it: thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def needs_sandbox():
    """Fails where learners' code can't be sandboxed: a skipped test would be seen by nobody."""
    from autograder.sandbox import why_unavailable

    reason = why_unavailable()
    if reason:
        pytest.fail(reason)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium that fetches nothing of its own accord; one for all tests, as Playwright allows no second."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("These tests open pages in Chromium, which is not installed: apt-get install chromium.")
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", *quiet], headless=True
        )
        yield browser
        browser.close()
