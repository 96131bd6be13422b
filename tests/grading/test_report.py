"""The class report: counts that are right, worst first; a table that spreadsheets read and do not run; no names on demand."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder import feedback, report, runner
from autograder.grade import Change
from autograder.student import StudentError

CHAPTER = "02_positional_encoding"
UNWRITTEN = runner._error_message("softmax", StudentError("NotImplementedError", ""))


def result(piece, check, points=2, message="", slip=None):
    diagnosis = {"id": slip, "hint": f"Hint for {slip}: look at `{piece}`."} if slip else None
    earned = 0 if message else points
    facts = {"check": check, "piece": piece, "chapter": 3, "points": points, "earned": earned}
    return facts | {"message": message, "diagnosis": diagnosis, "notes": [], "seconds": 0.1}


def record(student, results=(), **changes):
    results = list(results)
    made = {
        "student": student,
        "assignment": "03_attention",
        "notebook": "03_attention",
        "timestamp": "2026-03-02T10:05:00",
        "hash": "0123456789abcdef",
        "round": "1",
        "sandbox": "bubblewrap",
        "score": float(sum(r["earned"] for r in results)),
        "max_score": 6.0,
        "results": results,
        "remarks": [],
        "status": "graded",
        "seconds": 1.5,
    }
    return made | changes


def answers(first="", second="", third="", slip=None):
    """Results of three checks on two pieces: an empty message holds."""
    return [
        result("softmax", "sums_to_one", 2, first, slip if first else None),
        result("softmax", "large_scores", 1, second, slip if second else None),
        result("attention", "scales", 3, third),
    ]


CLASS = [
    record("dora", answers()),
    record("ada", answers("got 0.5, expected 1", "got nan", "first at (0, 1)", slip="no_shift")),
    record("cem", answers("", "got inf", "first at (2, 3)", slip="no_shift"), seconds=40.0),
    record("bo", answers(UNWRITTEN, UNWRITTEN, "")),
    record("eve", answers("", "", "a wrong dtype"), remarks=["softmax: 2 cells claim to be this answer."]),
    record("fay", (), status="missing", score=0.0, remarks=["There is no 03_attention.ipynb."]),
    record("gil", (), status="failed", score=None, max_score=None, remarks=["Not graded, an error of the grader."]),
]


def write(course, records=CLASS, assignment="03_attention"):
    for number, each in enumerate(records):
        path = course / "results" / assignment / f"{number:02d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(each))
    return course


def table(course):
    text = (course / "report" / "grades.csv").read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def test_what_is_counted():
    summary = report.summarise("03_attention", "Chapter 3", CLASS)
    assert [line.student for line in summary.lines] == ["ada", "bo", "cem", "dora", "eve", "fay", "gil"]
    assert sorted(summary.scores) == [0, 2, 3, 3, 6]
    assert summary.median == 3
    assert summary.full == 1
    assert summary.max_score == 6
    assert [line.student for line in summary.notable] == ["eve", "fay", "gil"]
    assert summary.slowest[0].student == "cem"
    assert summary.columns == ["softmax", "attention"]

    attention, softmax = summary.pieces
    assert (attention.name, attention.complete, len(attention.scores)) == ("attention", 2, 5), "the worst piece first"
    assert softmax.complete == 2
    assert softmax.mean == pytest.approx((0 + 0 + 2 + 3 + 3) / 5)
    large, sums = softmax.checks
    assert (large.name, large.failed, large.graded, large.unwritten) == ("large_scores", 3, 5, 1), (
        "the worst check first"
    )
    assert (sums.failed, sums.students) == (2, ["ada", "bo"])
    assert sums.example == "got 0.5, expected 1", "what is not written yet is no example of a mistake"

    (slip,) = summary.slips
    assert (slip.id, slip.piece, slip.students) == ("no_shift", "softmax", ["ada", "cem"])


def test_who_used_a_built_in_is_said_once_for_the_piece(tmp_path):
    noted = answers()
    noted[0] = noted[0] | {"notes": ["`softmax` uses `torch.softmax`."]}
    records = [record("ada", noted), record("bo", answers()), record("cem", noted, remarks=["Late."])]
    page = report.write_report(write(tmp_path, records)).with_name("03_attention.html").read_text()
    assert page.count("2 students used a built-in that this piece re-creates") == 1
    remarks = {row["student"]: row["remark"] for row in table(tmp_path)}
    assert remarks == {"ada": "softmax: built-in used", "bo": "", "cem": "softmax: built-in used; Late."}


def test_the_commonest_message_counts_numbers_as_alike():
    check = report.Check("p", "c", 1.0, messages=["odd one", "got 1.5 at (0, 1)", "got -2e-05 at (3, 1)"])
    assert check.example == "got 1.5 at (0, 1)"


@pytest.mark.parametrize(
    ("scores", "most", "bars"),
    [
        ([0, 1.9, 2, 20, 20], 20, [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]),
        ([25, -1], 20, [1] + [0] * 8 + [1]),
        ([], 20, [0] * 10),
    ],
)
def test_the_picture_of_the_scores(scores, most, bars):
    picture = str(report.histogram(scores, most, "Chapter <3>"))
    assert 'role="img"' in picture
    assert "<title>Scores in Chapter &lt;3&gt;." in picture
    assert re.findall(r'class="value"[^>]*>(\d+)<', picture) == [str(n) for n in bars if n]
    heights = [float(h) for h in re.findall(r'class="bar"[^>]* height="([\d.]+)"', picture)]
    expected = [n for n in bars if n]
    assert heights == pytest.approx([max(heights) * n / max(expected) for n in expected] if expected else [], abs=0.1)


@pytest.mark.parametrize("scores", [[5, 5, 5], [1, 9, 9, 10, 20], [0, 0, 20, 20], [7.9, 8, 8.1], [20] * 9, [3]])
def test_the_line_of_the_median_crosses_no_number(scores):
    picture = str(report.histogram(scores, 20, "t"))
    x, bottom = map(float, re.findall(r'class="median" x1="([\d.]+)" [^>]* y2="([\d.]+)"', picture)[0])
    numbers = re.findall(r'class="value" x="([\d.]+)" y="([\d.]+)" text-anchor="middle">(\d+)<', picture)
    assert sum(int(amount) for _, _, amount in numbers) == len(scores)
    for left, baseline, amount in numbers:
        if abs(float(left) - x) < 5 * len(amount) + 4:
            assert bottom <= float(baseline) - 12, "a digit is less than 12 high"
    assert bottom > 4


def test_an_assignment_without_points_has_a_picture():
    assert "<svg" in report.histogram([0.0], 0.0, "t")


def test_shares_are_drawn_to_scale_and_said_in_words():
    bar = str(report.share_bar(3, 1, 8))
    assert "<title>4 of 8, 1 of them not written</title>" in bar
    widths = dict(re.findall(r'class="(bar|hatched)"[^>]* width="([\d.]+)"', bar))
    assert float(widths["bar"]) == pytest.approx(3 * float(widths["hatched"]))


def test_pages_and_table_are_written(tmp_path):
    index = report.write_report(write(tmp_path))
    assert index == tmp_path / "report" / "index.html"
    page = (tmp_path / "report" / "03_attention.html").read_text()
    for words in ("Hint for no_shift", "large scores", "There is no 03_attention.ipynb.", "ada", "2 cells claim"):
        assert words in page, words
    assert 'href="03_attention.html"' in index.read_text()
    assert "<code>softmax</code>: Hint for no_shift" in index.read_text()
    rows = {row["student"]: row for row in table(tmp_path)}
    assert list(rows) == ["ada", "bo", "cem", "dora", "eve", "fay", "gil"]
    assert rows["cem"] == {
        "student": "cem",
        "assignment": "03_attention",
        "softmax": "2",
        "attention": "0",
        "score": "2",
        "max_score": "6",
        "submitted": "2026-03-02T10:05:00",
        "status": "graded",
        "remark": "no_shift",
        "same_weights": "",
    }
    assert rows["ada"]["remark"] == "no_shift"
    assert rows["eve"]["remark"] == "softmax: 2 cells claim to be this answer."
    assert rows["gil"]["score"] == "", "an error of the grader is nobody's zero"
    assert rows["fay"]["score"] == "0"
    assert rows["fay"]["softmax"] == ""


def test_the_table_is_for_spreadsheets(tmp_path):
    names = ["=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "\t=1", "Zoë, “the” Ångström", 'quote"d', "＝1", "new\nline"]
    write(tmp_path, [record(name, answers(), remarks=["=HYPERLINK(1)\r\nx"]) for name in names])
    report.write_report(tmp_path)
    raw = (tmp_path / "report" / "grades.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    rows = table(tmp_path)
    assert len(rows) == len(names)
    for row in rows:
        for value in row.values():
            assert not value.startswith(("=", "+", "-", "@", "\t", "\r", "＝")), value
            assert "\n" not in value
    assert {row["student"] for row in rows} >= {"Zoë, “the” Ångström", 'quote"d', "'=1", "'-2", "new line"}


def test_names_can_be_left_out(tmp_path):
    records = [r | {"remarks": [*r["remarks"], f"Taken from submitted/{r['student']}/x.ipynb."]} for r in CLASS]
    records[1]["results"][0]["message"] = "ada's own words"
    write(tmp_path, records)
    report.write_report(tmp_path)
    report.write_report(tmp_path, names=False)
    everything = "".join(path.read_text() for path in (tmp_path / "report").iterdir())
    for each in CLASS:
        assert not re.search(rf"\b{each['student']}\b", everything), each["student"]
    students = [row["student"] for row in table(tmp_path)]
    assert students == [f"student {number}" for number in range(1, 8)]
    orders = set()
    for _ in range(20):  # 7! orders: the same one twenty times would be no chance
        report.write_report(tmp_path, names=False)
        orders.add(tuple(row["score"] for row in table(tmp_path)))
    assert len(orders) > 1, "the numbers do not follow the alphabet"


def test_only_what_is_asked_for(tmp_path):
    write(write(tmp_path), [record("ada", answers(), assignment="04_x")], "04_x")
    report.write_report(tmp_path)
    assert (tmp_path / "report" / "04_x.html").exists()
    report.write_report(tmp_path, ["03_attention"])
    assert not (tmp_path / "report" / "04_x.html").exists()
    assert {row["assignment"] for row in table(tmp_path)} == {"03_attention"}


def test_errors_are_one_sentence(tmp_path):
    with pytest.raises(report.ReportError, match="run `autograder grade`"):
        report.write_report(tmp_path)
    with pytest.raises(report.ReportError, match="run `autograder grade 05_x`"):
        report.write_report(write(tmp_path), ["05_x"])


def test_a_damaged_record_is_told_and_the_rest_reported(tmp_path):
    write(tmp_path)
    (tmp_path / "results" / "03_attention" / "zoe.json").write_text('{"student": "zoe", "sco')
    page = report.write_report(tmp_path).with_name("03_attention.html").read_text()
    assert "zoe.json cannot be read" in page
    assert {row["student"]: row["score"] for row in table(tmp_path)}["zoe"] == ""


def test_the_gradebook_has_the_last_word(graded):
    report.write_report(graded)
    before = {row["student"]: row for row in table(graded)}
    feedback.write_feedback(graded, CHAPTER, "halves")
    with Gradebook(f"sqlite:///{graded / 'gradebook.db'}") as gradebook:
        gradebook.find_grade("check_shift_matrix", CHAPTER, CHAPTER, "halves").manual_score = 5.5
        gradebook.find_submission_notebook(CHAPTER, CHAPTER, "halves").late_submission_penalty = 2.0
        gradebook.db.commit()
    try:
        report.write_report(graded)
        after = {row["student"]: row for row in table(graded)}
    finally:
        with Gradebook(f"sqlite:///{graded / 'gradebook.db'}") as gradebook:
            gradebook.find_grade("check_shift_matrix", CHAPTER, CHAPTER, "halves").manual_score = None
            gradebook.find_submission_notebook(CHAPTER, CHAPTER, "halves").late_submission_penalty = None
            gradebook.db.commit()
    gained = 5.5 - float(before["halves"]["shift_matrix"])
    assert after["halves"]["shift_matrix"] == "5.5"
    assert float(after["halves"]["score"]) == pytest.approx(float(before["halves"]["score"]) + gained - 2)
    assert after["own_helper"] == before["own_helper"]
    page = (graded / "report" / f"{CHAPTER}.html").read_text()
    assert "changed in the gradebook" in page
    assert f"../feedback/halves/{CHAPTER}/{CHAPTER}.html" in page


TAKE = "document.title='taken'"
HOSTILE = f'</title></script><script>{TAKE}</script><img src=http://far.example/x onerror="{TAKE}">'


def test_hostile_names_and_messages_stay_text(browser, tmp_path):
    bad = [result(HOSTILE, HOSTILE, 2, HOSTILE, HOSTILE)]
    records = [record(HOSTILE, bad, remarks=[HOSTILE], timestamp=HOSTILE), record("ada", [result(HOSTILE, HOSTILE)])]
    index = report.write_report(write(tmp_path, records))
    for path in (index, index.with_name("03_attention.html")):
        without = tmp_path / "page.html"  # escaping must do by itself
        without.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text()))
        page, visit = browser.open(without)
        assert page.title() != "taken"
        assert not visit, visit
        assert page.query_selector_all("script, img") == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (390, True)])
def test_pages_in_a_browser(browser, tmp_path, width, dark):
    index = report.write_report(write(tmp_path))
    for path in (index, index.with_name("03_attention.html")):
        page, visit = browser.open(path, width=width, dark=dark)
        assert not visit, visit
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
        pictures = page.query_selector_all("svg:not([aria-hidden])")
        assert pictures
        for picture in pictures:
            assert picture.get_attribute("role") == "img"
            assert picture.query_selector("title").text_content().strip()
    hatched = page.query_selector("td svg .hatched[width]:not([width='0.0'])")
    assert "hatch" in hatched.evaluate("e => getComputedStyle(e).fill"), "wrong and not written differ without colour"


def test_a_class_of_four_hundred_is_reported_in_seconds(tmp_path):
    records = [CLASS[k % 5] | {"student": f"s{k:03d}"} for k in range(400)]
    for each in records:
        path = Path(tmp_path / "results" / "03_attention" / f"{each['student']}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(each))
    began = time.perf_counter()
    index = report.write_report(tmp_path)
    assert time.perf_counter() - began < 10
    assert index.with_name("03_attention.html").stat().st_size < 2_000_000
    assert len(table(tmp_path)) == 400


def test_who_gains_and_who_loses_is_a_page(tmp_path):
    report.write_report(write(tmp_path, [record("ann"), record("<b>")]))
    changes = [
        Change("ann", {"softmax": 5.0}, {"softmax": 2.0}),
        Change("<b>", {"softmax": 0.0, "attention": 1.0}, {"softmax": 5.0, "attention": 1.5}),
    ]
    path = report.write_changes(tmp_path, "03_attention", changes, written=False)
    page = path.read_text()
    assert page.index("ann") < page.index("&lt;b&gt;")
    assert "<code>softmax</code> 5 → 2" in page
    assert ">-3<" in page
    assert ">+5.5<" in page
    assert "Nothing is written yet" in page
    assert "Nothing is written yet" not in report.write_changes(tmp_path, "03_attention", changes, True).read_text()
    report.write_report(tmp_path)
    assert path.exists()
    report.write_report(tmp_path, names=False)
    assert not path.exists()  # it has names
