"""A real browser for the pages that grading writes, and a small course that is really graded."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "02_positional_encoding"

#: A learner's own cell that tries to run script in whoever opens the page.
HOSTILE_CELL = """\
from IPython.display import HTML, Javascript, display
display(HTML("<script>document.title = 'taken'</script><img src=x onerror=\\"document.title = 'taken'\\">"))
display(Javascript("document.title = 'taken'"))
print("printed by the learner")
"""


@dataclass
class Visit:
    """What happened while a page was open."""

    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __bool__(self):
        return bool(self.requests or self.dialogs or self.errors)


class Browser:
    """Chromium that lets no request out and remembers which there were."""

    def __init__(self, chromium):
        self.chromium = chromium

    def open(self, file: Path, *, width: int = 1200, dark: bool = False):
        """The opened page and what happened meanwhile; only the file itself is loaded."""
        view = {"viewport": {"width": width, "height": 900}, "color_scheme": "dark" if dark else "light"}
        visit, page = Visit(), self.chromium.new_context(**view).new_page()

        def serve(route):
            if route.request.url.startswith("data:") or route.request.url == file.as_uri():
                return route.continue_()
            visit.requests.append(route.request.url)
            return route.abort()

        page.route("**/*", serve)
        page.on("dialog", lambda dialog: (visit.dialogs.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda message: message.type == "error" and visit.errors.append(message.text))
        page.on("pageerror", lambda error: visit.errors.append(str(error)))
        page.goto(file.as_uri(), wait_until="load")
        page.wait_for_timeout(150)
        return page, visit


@pytest.fixture(scope="session")
def browser(chromium):
    return Browser(chromium)


@pytest.fixture(scope="session")
def graded(tmp_path_factory) -> Path:
    """A course in which two submissions to chapter 2 are graded in the sandbox: one wrong, one right with hostile outputs."""
    from autograder import grade, release, samples, sandbox
    from autograder.course import Course

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    root = tmp_path_factory.mktemp("graded")
    release.write_source_course(root, [ROOT / "solutions" / f"{CHAPTER}.md"])
    release.generate_assignment(root, CHAPTER)
    for sample in samples.samples([CHAPTER]):
        if sample.student not in ("halves", "own_helper"):
            continue
        notebook = nbformat.reads(samples.notebook_text(sample, ROOT / "notebooks"), as_version=4)
        if sample.student == "own_helper":
            notebook.cells.insert(2, nbformat.v4.new_code_cell(HOSTILE_CELL))
        target = root / "submitted" / sample.student / CHAPTER / f"{CHAPTER}.ipynb"
        target.parent.mkdir(parents=True)
        nbformat.write(notebook, target)
    records = grade.grade(Course(root), CHAPTER, limits=sandbox.Limits(cell_seconds=120))
    assert [record["status"] for record in records] == ["graded", "graded"], records
    return root
