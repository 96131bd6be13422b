"""Each technique of the table, graded in one batch by the real grader: its score, and nothing else anywhere.

Beside the hostile notebooks honest ones are graded, so that a technique which spoils the work of others is noticed.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import socket
import threading
import uuid
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder import feedback, grade, report, sandbox
from autograder.course import Course
from tests.hostile import page
from tests.hostile.notebooks import BREACH, CHAPTER, Canaries, hand_in, write_course
from tests.hostile.techniques import FAMILIES, TECHNIQUES, Technique

LIMITS = sandbox.Limits(cell_seconds=10, notebook_seconds=240, memory_bytes=3 << 29, file_bytes=32 << 20, processes=64)
SHORT = [technique for technique in TECHNIQUES if not technique.long]
LONG = [technique for technique in TECHNIQUES if technique.long]


class Active(HTMLParser):
    """What in a page could act by itself; what is only shown as text is none of it."""

    TAGS = frozenset(
        {"script", "iframe", "frame", "object", "embed", "applet", "form", "base", "link", "template", "input"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        if tag in self.TAGS or (tag == "meta" and ("http-equiv", "refresh") in attrs):
            self.found.append(tag)
        for name, value in attrs:
            address = re.sub(r"[\x00-\x20]", "", value or "").lower()
            if (
                name.startswith("on")
                or address.startswith(("javascript:", "vbscript:", "data:text"))
                or name == "srcdoc"
            ):
                self.found.append(f"{tag} {name}={value}")
            if name in ("src", "srcset", "background") and not address.startswith("data:image/"):
                self.found.append(f"{tag} {name}={value}")

    @classmethod
    def of(cls, text: str) -> list[str]:
        parser = cls()
        parser.feed(text)
        return parser.found


class Batch:
    """A class that has been graded, and what was seen meanwhile."""

    def __init__(self, root: Path, techniques: list[Technique]):
        self.course, self.root = Course(root), root
        self.secret, self.marker = f"SECRET_{uuid.uuid4().hex}", f"marker-{uuid.uuid4().hex}"
        self.visits: list[str] = []
        write_course(root)
        secret_file = root.parent / f"{root.name}_secret"
        secret_file.write_text(self.secret)
        secret_file.chmod(0o644)
        os.environ["HOSTILE_TEST_SECRET"] = self.secret
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
            abstract.bind("\0" + self.secret)
            abstract.listen()
            for door in (listener, abstract):
                threading.Thread(target=self._watch, args=(door,), daemon=True).start()
            port = listener.getsockname()[1]
            self.canaries = Canaries(str(root), self.secret, str(secret_file), port, os.getpid(), self.marker)
            hand_in(root, techniques, self.canaries)
            before = self.state()
            try:
                found = grade.grade(self.course, CHAPTER, limits=LIMITS)
            finally:
                del os.environ["HOSTILE_TEST_SECRET"]
            after = self.state()
            self.changed = {path for path in before | after if before.get(path) != after.get(path)}
        self.records = {record["student"]: record for record in found}
        self.processes = [p for p in Path("/proc").glob("[0-9]*/cmdline") if self.marker in _text(p)]
        self.pages = {
            student: Path(feedback.write_feedback(root, CHAPTER, student)).read_text(encoding="utf-8")
            for student in self.records
        }
        self.report = Path(report.write_report(root)).read_text(encoding="utf-8")

    def _watch(self, door: socket.socket) -> None:
        while True:
            try:
                door.accept()
            except OSError:
                return
            self.visits.append(str(door))

    def state(self) -> dict[str, str]:
        """What may not change: all of the course but what grading writes. Named by path, told by type, owner and content."""
        found = {}
        own = {"autograded", "feedback", "journal", "report", "results"}
        for path in self.root.rglob("*"):
            inside = path.relative_to(self.root)
            if inside.parts[0] in own or inside.name.startswith(("gradebook.db", ".")):
                continue
            status = path.lstat()
            small = path.is_file() and not path.is_symlink() and status.st_size < 1 << 24
            content = hashlib.sha256(path.read_bytes()).hexdigest() if small else ""
            found[str(inside)] = f"{status.st_mode} {status.st_uid} {status.st_size} {content}"
        return found

    def outputs(self, student: str) -> str:
        """All that the cells of a student's notebook have shown, as JSON."""
        path = self.course.autograded(student, CHAPTER)
        if not path.exists():
            return ""
        cells = nbformat.read(path, as_version=4).cells
        return json.dumps([cell.get("outputs") for cell in cells], ensure_ascii=False)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _batch(root: Path, techniques: list[Technique]) -> Batch:
    root.chmod(0o755)  # to those without rights: what is not seen is not seen for another reason
    return Batch(root, techniques)


@pytest.fixture(scope="module")
def short(tmp_path_factory, needs_sandbox) -> Batch:
    return _batch(tmp_path_factory.mktemp("hostile"), SHORT)


@pytest.fixture(scope="module")
def long(tmp_path_factory, needs_sandbox) -> Batch:
    return _batch(tmp_path_factory.mktemp("hostile"), LONG)


@pytest.mark.parametrize("technique", SHORT, ids=lambda technique: technique.name)
def test_a_technique_gets_what_it_must(short, technique):
    _hold(short, technique)


@pytest.mark.long
@pytest.mark.parametrize("technique", LONG, ids=lambda technique: technique.name)
def test_a_slow_technique_gets_what_it_must(long, technique):
    _hold(long, technique)


@pytest.mark.long
def test_slow_techniques_touch_nothing(long):
    _untouched(long)


def test_nothing_else_is_touched(short):
    _untouched(short)


def _hold(batch: Batch, technique: Technique) -> None:
    record = batch.records[technique.name]
    assert record["status"] == technique.status, record["remarks"]
    assert (record["score"], record["max_score"]) == (technique.points, 20), record["remarks"]
    shown = batch.outputs(technique.name)
    for text in (shown, json.dumps(record, ensure_ascii=False), batch.pages[technique.name]):
        assert BREACH not in text.replace("BRE'", "").replace('BRE"', ""), technique.name
        assert batch.secret not in text
    if technique.first and technique.status == "graded":
        ran = (
            "TRIED" in shown
            or "bytes of output" in shown
            or any("kernel" in remark.lower() for remark in map(str, record["remarks"]))
        )
        assert ran or technique.name == "source_bomb", shown[:2000]
    for text in (shown, batch.pages[technique.name]):
        assert "award(" not in text
        assert "HIDDEN" not in text
    with Gradebook(batch.course.db_url, batch.course.course_id) as gradebook:
        submission = gradebook.find_submission(CHAPTER, technique.name)
        assert submission.score == technique.points
        assert not submission.needs_manual_grade
        assert all(not g.extra_credit and g.manual_score is None for n in submission.notebooks for g in n.grades)


def _active(text: str) -> list[str]:
    parser = Active()
    parser.feed(text)
    parser.close()
    return parser.found


def test_what_is_active_in_a_page_is_found():
    shown = "<p title='a onerror=b'>&lt;img onerror=x&gt; javascript: is a word</p>"
    assert _active(shown) == []
    for page_of in ("<script>1</script>", "<img src=x onerror=y>", "<a href='JavaScript:z'>", "<base href=/>"):
        assert _active(shown + page_of), page_of


def _untouched(batch: Batch) -> None:
    for honest in ("aa_honest", "zz_honest"):
        assert batch.records[honest]["score"] == 20, batch.records[honest]["remarks"]
        assert BREACH not in batch.outputs(honest)
    assert batch.changed == set()
    assert batch.visits == []
    assert batch.processes == []
    for text in [*batch.pages.values(), batch.report]:
        assert _active(text) == []
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
        assert "default-src 'none'" in html.unescape(text)
    for path in Path("/tmp").glob("*BREACH*"):
        pytest.fail(f"{path} was made")


def test_the_built_in_by_the_back_door_is_noted(short):
    results = short.records["built_in_by_the_back_door"]["results"]
    assert any(note for result in results for note in result["notes"])


def test_a_hostile_page_does_nothing_in_a_browser(short, chromium):
    for student in ("script_in_output", "terminal_codes"):
        requests: list[str] = []
        opened = chromium.new_page()
        opened.on("request", lambda request, seen=requests: seen.append(request.url))
        opened.on("dialog", lambda dialog: dialog.dismiss())
        path = short.root / "feedback" / student / CHAPTER / f"{CHAPTER}.html"
        opened.goto(path.as_uri())
        opened.wait_for_timeout(200)
        assert BREACH not in opened.title()
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        assert opened.locator("body").is_visible()
        opened.close()


def test_the_table_is_complete():
    assert len(TECHNIQUES) >= 30
    assert len({technique.name for technique in TECHNIQUES}) == len(TECHNIQUES)
    assert {technique.family for technique in TECHNIQUES} == set(FAMILIES)


def test_the_page_of_the_book_is_made_from_the_table():
    assert page.PATH.read_text(encoding="utf-8") == page.text(), "run: python -m tests.hostile.page"
