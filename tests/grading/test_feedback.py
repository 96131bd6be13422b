"""Feedback pages: what a learner must learn from them, what must not be in them, and what they must not do."""

from __future__ import annotations

import base64
import concurrent.futures
import html
import json
import multiprocessing
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook

from autograder import feedback, markup, runner
from autograder.student import StudentError

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "02_positional_encoding"
PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()


def result(piece, check, points=2, message="", slip=None):
    diagnosis = {"id": slip, "hint": f"Hint for {slip}: look at `{piece}`."} if slip else None
    earned = 0 if message else points
    facts = {"check": check, "piece": piece, "chapter": 3, "points": points, "earned": earned}
    return facts | {"message": message, "diagnosis": diagnosis, "notes": [], "seconds": 0.1}


def record(results=(), **changes):
    results = list(results)
    made = {
        "student": "ada",
        "assignment": "03_attention",
        "notebook": "03_attention",
        "timestamp": "2026-03-02T10:05:00",
        "hash": "0123456789abcdef",
        "round": "1",
        "sandbox": "bubblewrap",
        "score": float(sum(r["earned"] for r in results)),
        "max_score": float(sum(r["points"] for r in results)),
        "results": results,
        "remarks": [],
        "status": "graded",
        "seconds": 1.5,
    }
    return made | changes


def cell(source, outputs=(), **nbgrader):
    made = new_code_cell(source, outputs=list(outputs))
    if nbgrader:
        made.metadata.nbgrader = {"schema_version": 3, "solution": False, "grade": False, "locked": True} | nbgrader
    return made


def graded_cell(piece, points):
    source = (
        f'# The hidden checks of `{piece}`.\n### BEGIN HIDDEN TESTS\naward(globals(), "{piece}")\n### END HIDDEN TESTS'
    )
    return cell(source, grade_id=f"check_{piece}", grade=True, points=points)


def write(course, rec, cells, student="ada"):
    """Put a record and a judged notebook where grading puts them, and return the page made of them."""
    results = course / "results" / "03_attention" / f"{student}.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(rec))
    judged = course / "autograded" / student / "03_attention" / "03_attention.ipynb"
    judged.parent.mkdir(parents=True, exist_ok=True)
    judged.write_text(nbformat.writes(new_notebook(cells=list(cells))))
    return feedback.write_feedback(course, "03_attention", student)


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self.skip = [], False

    def handle_starttag(self, tag, attrs):
        self.skip = tag == "style"
        if tag in ("p", "div", "li", "h1", "h2", "h3", "td", "br", "pre", "section"):
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.skip = False

    def handle_data(self, data):
        if not self.skip:
            self.parts.append(data)


def text_of(page: Path | str) -> str:
    parser = _Text()
    parser.feed(page if isinstance(page, str) else page.read_text())
    return "".join(parser.parts)


# ---------------------------------------------------------------------------------------------------------- the summary


def test_the_summary_says_what_was_lost_why_and_the_likely_slip(tmp_path):
    failing = [
        result("softmax", "sums_to_one"),
        result("softmax", "large_scores", 3, "first difference at index (0, 1)", "no_shift"),
        result("softmax", "minus_infinity", 1, "NaN in `softmax`", "no_shift"),
    ]
    page = write(tmp_path, record(failing), [new_markdown_cell("# Chapter 3: attention")])
    text = text_of(page)
    assert page == tmp_path / "feedback" / "ada" / "03_attention" / "03_attention.html"
    for words in ("Chapter 3: attention", "ada", "2 March 2026, 10:05 UTC", "2 of 6 points", "sums to one"):
        assert words in re.sub(r"\s+", " ", text), words
    assert "−3" in text
    assert "first difference at index (0, 1)" in text
    assert text.count("Hint for no_shift") == 1, "one slip is told once, however many checks it explains"
    assert "It explains 2 of 2 failed checks" in text
    assert "<code>softmax</code>" in page.read_text()


def test_what_failed_is_told_once_at_its_piece_and_the_summary_points_there(tmp_path):
    results = [
        result("softmax", "sums_to_one", 2, "got 0.9", "no_shift"),
        result("softmax", "large_scores", 3),
        result("attention", "scales", 1)
        | {"notes": ["`attention` uses `F.x`, which this piece re-creates: build it."]},
        result("mask", "blocks", 1),
        result("lost", "is_there", 1, "its cell is gone"),
    ]
    cells = [graded_cell("softmax", 5), graded_cell("attention", 1), graded_cell("mask", 1)]
    page = write(tmp_path, record(results), cells).read_text()
    summary, rest = page.split("<main>")
    for words in ("got 0.9", "Hint for no_shift", "build it"):
        assert words not in summary, words
        assert rest.count(words) == 1, words
    assert summary.count("its cell is gone") == 1, "what has no place in the notebook is told in the summary"
    assert '<a href="#piece-softmax">1 of 2 checks fails; the likely slip is named</a>' in summary
    assert '<a href="#piece-attention">A built-in is noted</a>' in summary
    assert summary.count("#piece-mask") == 1, "of a piece that holds, the name alone"
    assert "#piece-lost" not in summary


def test_a_piece_that_nobody_began_is_told_in_one_line(tmp_path):
    message = runner._error_message("softmax", StudentError("NotImplementedError", ""))
    assert feedback.NOT_WRITTEN in message
    checks = [result("softmax", f"check_{k}", 1, message) for k in range(5)]
    assert text_of(write(tmp_path, record(checks), [])).count(feedback.NOT_WRITTEN) == 1


def test_remarks_and_submissions_that_could_not_be_graded(tmp_path):
    remark = "The cell softmax was stopped after 60 seconds: a loop that does not end?"
    assert remark in text_of(write(tmp_path, record([result("softmax", "a")], remarks=[remark]), []))
    for status, words in (
        ("missing", "no notebook to grade"),
        ("unreadable", "could not be read"),
        ("failed", "no fault of yours"),
    ):
        rec = record(student="bob", status=status, score=None, max_score=None, remarks=["A reason."])
        (tmp_path / "results" / "03_attention" / "bob.json").write_text(json.dumps(rec))
        text = text_of(feedback.write_feedback(tmp_path, "03_attention", "bob"))
        assert words in text
        assert "A reason." in text


def test_the_gradebook_has_the_last_word(graded):
    with Gradebook(f"sqlite:///{graded / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade("check_shift_matrix", CHAPTER, CHAPTER, "halves")
        before = grade.score
        grade.manual_score = 5.0
        comment = gradebook.find_comment("shift_matrix", CHAPTER, CHAPTER, "halves")
        comment.manual_comment = "Nearly. See $M_k$ <script>document.title = 'taken'</script>"
        gradebook.db.commit()
    try:
        page = feedback.write_feedback(graded, CHAPTER, "halves")
        text = text_of(page)
        assert f"changed the score; the checks gave {before:g}" in text
        assert "5 / 6" in re.sub(r"\s+", " ", text)
        assert "Nearly." in text
        assert "document.title" not in page.read_text()
    finally:
        with Gradebook(f"sqlite:///{graded / 'gradebook.db'}") as gradebook:
            gradebook.find_grade("check_shift_matrix", CHAPTER, CHAPTER, "halves").manual_score = None
            gradebook.find_comment("shift_matrix", CHAPTER, CHAPTER, "halves").manual_comment = None
            gradebook.db.commit()


def test_errors_are_one_sentence(tmp_path):
    with pytest.raises(feedback.FeedbackError, match="run `autograder grade 03_attention`"):
        feedback.write_feedback(tmp_path, "03_attention", "ada")
    for name in ("..", "a/b", ""):
        with pytest.raises(ValueError, match="not the name"):
            feedback.write_feedback(tmp_path, "03_attention", name)
    page = write(tmp_path, record([result("softmax", "a")]), [])
    (tmp_path / "results" / "03_attention" / "ada.json").write_text("{")
    with pytest.raises(feedback.FeedbackError, match="damaged"):
        feedback.write_feedback(tmp_path, "03_attention", "ada")
    assert page.exists(), "the page of before stays"


# ----------------------------------------------------------------------------------------------------------- no leaks


def hidden_lines(released: str) -> set[str]:
    """Every line of the checks' and known mistakes' code and of the hidden regions that learners were not given."""
    lines = set()
    for folder in ("checks", "misconceptions"):
        for path in (ROOT / "autograder" / folder).glob("ch*.py"):
            lines |= {line.strip() for line in path.read_text().splitlines()}
    for path in (ROOT / "solutions").glob("*.md"):
        for region in re.findall(r"### BEGIN (?:HIDDEN TESTS|SOLUTION)(.*?)### END", path.read_text(), re.DOTALL):
            lines |= {line.strip() for line in region.splitlines()}
    return {line for line in lines if len(re.sub(r"\W", "", line)) >= 8 and line not in released}


def test_no_line_of_hidden_source_is_in_a_page(graded):
    stub = nbformat.read(graded / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    released = "\n".join(cell.source for cell in stub.cells)
    hidden = hidden_lines(released)
    assert len(hidden) > 200
    page = feedback.write_feedback(graded, CHAPTER, "halves")
    text = text_of(page)
    found = {line for line in hidden if line in text}
    learner = nbformat.read(graded / "submitted" / "halves" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    theirs = "\n".join(cell.source for cell in learner.cells)
    assert {line for line in found if line not in theirs} == set()
    assert "HIDDEN TESTS" not in page.read_text()
    assert "award" not in text


def test_hidden_regions_and_their_tracebacks_are_cut_even_without_a_record(tmp_path):
    trace = ["AssertionError\n  1 from autograder.award import award\n----> 2 secret_line()", "AssertionError: no"]
    check = graded_cell("softmax", 5)
    check.outputs = [new_output("error", ename="AssertionError", evalue="no\nsecret_line()", traceback=trace)]
    judged = tmp_path / "autograded" / "ada" / "03_attention" / "03_attention.ipynb"
    judged.parent.mkdir(parents=True)
    judged.write_text(nbformat.writes(new_notebook(cells=[check])))
    text = text_of(feedback.write_feedback(tmp_path, "03_attention", "ada"))
    assert "AssertionError: no" in text
    assert "award" not in text
    assert "secret_line" not in text


# ------------------------------------------------------------------------------------------------------- hostile outputs

TAKE = "document.title='taken'"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{TAKE}" width="9" height="9"><script>{TAKE}</script></svg>'
HTML_PAYLOADS = [
    f"<script>{TAKE}</script>",
    f"<scr<script>ipt>{TAKE}</scr</script>ipt>",
    f'<img src=x onerror="{TAKE}">',
    '<img src="http://far.example/pixel.png">',
    '<img srcset="http://far.example/pixel.png 1x" src="//far.example/p.png">',
    f'<a id=bait href="javascript:{TAKE}">click</a>',
    f'<a class=bait href=" &#1;java&#x0A;script:{TAKE}">click</a>',
    f'<a class=bait href="data:text/html,<script>{TAKE}</script>">click</a>',
    f'<iframe srcdoc="<script>parent.{TAKE}</script>"></iframe><iframe src=http://far.example></iframe>',
    "<style>@import url(http://far.example/a.css); body { background: url(http://far.example/b.png) }</style>",
    '<div style="background: url(http://far.example/c.png); position: fixed; inset: 0">over everything</div>',
    '<table><tr><td style="text-align: right; background: url(http://far.example/t.png)">1</td></tr></table>',
    f"<object data='data:text/html,<script>{TAKE}</script>'></object><embed src=http://far.example/e.swf>",
    '<meta http-equiv="refresh" content="0;url=http://far.example"><base href="http://far.example/">',
    '<link rel=stylesheet href="http://far.example/l.css"><link rel=prefetch href="http://far.example/p">',
    f'<form action="javascript:{TAKE}"><button>send</button></form><video src=http://far.example/v autoplay></video>',
    f'<details open ontoggle="{TAKE}"><summary>s</summary></details><math><mi xlink:href="javascript:{TAKE}">x</mi></math>',
    f"<svg><animate onbegin={TAKE} attributeName=x dur=1s></svg>" + SVG,
    f'<noscript><p title="</noscript><img src=x onerror={TAKE}>">',
    f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror={TAKE}&gt;">',
    "</div></main></body><plaintext>",
]


def hostile_outputs():
    outputs = [new_output("display_data", data={"text/html": payload}) for payload in HTML_PAYLOADS]
    outputs += [new_output("display_data", data={"text/markdown": payload}) for payload in HTML_PAYLOADS[:8]]
    outputs += [
        new_output("display_data", data={"text/markdown": f"![x](http://far.example/m.png) [c](javascript:{TAKE})"}),
        new_output("display_data", data={"image/svg+xml": SVG}, metadata={"image/svg+xml": {"isolated": True}}),
        new_output("display_data", data={"application/javascript": TAKE, "text/plain": "<Javascript object>"}),
        new_output(
            "display_data",
            data={"text/latex": rf"$\text{{<img src=x onerror={TAKE}>}}\href{{javascript:{TAKE}}}{{y}}$"},
        ),
        new_output("display_data", data={"image/png": f'"><script>{TAKE}</script>'}),
        new_output("display_data", data={"image/png": PIXEL}, metadata={"image/png": {"width": f'1" onload="{TAKE}'}}),
        new_output("stream", name="stdout", text=f"</pre><script>{TAKE}</script>\x1b[31mred\x1b[0m"),
        new_output(
            "stream",
            name="stderr",
            text=f"\x1b]8;;javascript:{TAKE}\x1b\\link\x1b]8;;\x1b\\ \x1b[38;2;1;2;3;url(http://far.example)m",
        ),
        new_output(
            "error", ename=f"<script>{TAKE}</script>", evalue="x", traceback=[f"<script>{TAKE}</script>\x1b[0;31m", SVG]
        ),
    ]
    return outputs


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page whose record, name, cells and outputs all try to run script or to load something."""
    course = tmp_path_factory.mktemp("hostile")
    script = f"<script>{TAKE}</script>"
    name = f"<img src=x onerror={TAKE}>"
    checks = [result("softmax", f"a{script}", 1, f"got {script}{SVG}", f"slip{script}")]
    rec = record(checks, student=name, remarks=[f"remark {script}"], hash=script * 3)
    cells = [new_markdown_cell(f"# {script}\n\n$$\\text{{{SVG}}}$$\n\n" + "\n\n".join(HTML_PAYLOADS))]
    outputs = hostile_outputs()
    for begin in range(0, len(outputs), 10):  # a cell shows so many only
        cells.append(cell(f"'''{script}'''", outputs[begin : begin + 10], grade_id="softmax", solution=True))
    cells += [graded_cell("softmax", 1), new_markdown_cell("The end of the page.")]
    return write(course, rec, cells, student=name)


@pytest.mark.parametrize("policy", [True, False], ids=["as written", "without its content policy"])
def test_nothing_that_learners_make_runs_or_loads(browser, hostile, tmp_path, policy):
    page_file = hostile
    if not policy:  # the cleaning must hold by itself, in browsers and mail readers that know no policy
        page_file = tmp_path / "page.html"
        text, removed = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", hostile.read_text())
        assert removed == 1
        page_file.write_text(text)
    page, visit = browser.open(page_file)
    title = page.title()
    assert "feedback for" in title
    for link in page.query_selector_all("main a"):
        href = link.get_attribute("href") or ""
        assert re.match(r"https?://|mailto:|#", href) or href == "", href
    for element in page.query_selector_all(".html a, .prose a"):
        element.evaluate("a => { if (!a.protocol.startsWith('http')) a.click() }")
    page.wait_for_timeout(300)
    assert page.title() == title
    assert not visit, visit
    assert page.url == page_file.as_uri()
    assert page.query_selector_all("script, iframe, object, embed, form, link, base, video, main svg, main style") == []
    handlers = (
        "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).filter(a => /^on/i.test(a.name)).length"
    )
    assert page.evaluate(handlers) == 0
    assert "The end of the page." in page.inner_text("main")


def test_the_browser_would_notice(browser, tmp_path):
    """The test above could fail: the same payloads, as they are, take the page over."""
    raw = tmp_path / "raw.html"
    raw.write_text(f"<title>t</title>{HTML_PAYLOADS[2]}{HTML_PAYLOADS[3]}")
    page, visit = browser.open(raw)
    assert page.title() == "taken"
    assert any("far.example" in url for url in visit.requests)


def test_disarmed_notebooks_are_safe_in_nbgraders_own_template():
    notebook = new_notebook(cells=[new_code_cell("1", outputs=hostile_outputs())])
    markup.disarm(notebook)
    nbformat.validate(notebook)
    kinds = {kind for output in notebook.cells[0].outputs for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "image/png", "image/jpeg"}
    for output in notebook.cells[0].outputs:
        made = output.get("data", {}).get("text/html", "")
        assert not re.search(
            r"<(?:script|iframe|object|svg|style|meta|form)\b|<[^>]*\s(?:on\w+|srcset)=|javascript:", made
        ), made


# ------------------------------------------------------------------------------------------------------ what is shown


def test_good_outputs_survive():
    table = '<div><style scoped>.x {}</style><table border="1" class="dataframe"><tr><th>a</th><td>1</td></tr></table></div>'
    shown = markup.outputs(
        cell(
            "x",
            [
                new_output("display_data", data={"text/html": table, "text/plain": "frame"}),
                new_output("display_data", data={"image/png": PIXEL, "text/plain": "<Figure>"}),
                new_output("display_data", data={"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'/>"}),
                new_output("execute_result", data={"text/plain": "tensor([1 < 2])"}),
                new_output("stream", name="stdout", text="10%\r50%\r100%\ndone\n"),
            ],
        )
    )
    joined = "".join(shown)
    assert "<th>a</th><td>1</td>" in joined
    assert "scoped" not in joined
    assert f"data:image/png;base64,{PIXEL}" in joined
    assert "data:image/svg+xml;base64," in joined
    assert "tensor([1 &lt; 2])" in joined
    assert "100%\ndone" in joined
    assert "50%" not in joined


def test_formulas_are_mathml_and_never_markup_of_the_tex():
    made = markup.markdown(
        r"Weights $\frac{QK^\top}{\sqrt{d_k}}$ and" + "\n\n" + r"$$\mathrm{PE}[p] \in \mathbb{R}^D$$"
    )
    assert made.count("<math") == 2
    assert "<mfrac>" in made
    assert "<mi>PE</mi>" in made
    assert "$" not in made
    for tex in (r"\text{<script>x</script>}", r"\href{javascript:x}{y}", r"\frac{", r"\unknown{x}\left("):
        made = markup.formula(tex)
        assert "<script" not in made
        assert "href=" not in made
    assert markup.formula(r"\text{<b>}") == '<code class="tex">$\\text{&lt;b&gt;}$</code>'


def test_every_formula_of_the_course_becomes_mathml():
    formulas = []
    for path in sorted((ROOT / "notebooks").glob("*/*.ipynb")):
        for each in nbformat.read(path, as_version=4).cells:
            if each.cell_type == "markdown":
                made = markup.markdown(each.source)
                formulas += re.findall(r"<math", made)
                assert 'class="tex"' not in made, f"{path.name}: {html.unescape(made)}"
    assert len(formulas) > 20


def test_floods_are_cut_with_a_sentence(tmp_path):
    line = "x" * 99
    outputs = [
        new_output("stream", name="stdout", text=f"first\n{(line + chr(10)) * 10_000}last"),
        new_output("stream", name="stdout", text="y" * 2_000_000),
        new_output("display_data", data={"text/html": "<b>z</b>" * 100_000, "text/plain": "the plain text"}),
        new_output("display_data", data={"image/png": base64.b64encode(b"p" * 3_000_000).decode()}),
        *[new_output("stream", name="stderr", text=f"line {k}") for k in range(200)],
    ]
    page = write(tmp_path, record([result("softmax", "a")]), [cell("answer = '" + "a" * 500_000 + "'", outputs)])
    text = text_of(page)
    assert page.stat().st_size < 300_000
    for words in (
        "first",
        "last",
        "characters are left out here",
        "the plain text",
        "too large or damaged",
        "more outputs are left out",
    ):
        assert words in text, words


def test_deeply_nested_html_is_cut_and_not_slow():
    for payload in (
        "<div>" * 7_000,
        "<b><i>" * 5_000,
        "<table>" * 4_000,
        "<a href=#>" * 3_000,
        "&lt;" * 9_000,
        "<" * 39_000,
    ):
        began = time.perf_counter()
        markup.outputs(cell("x", [new_output("display_data", data={"text/html": payload, "text/plain": "plain"})]))
        assert time.perf_counter() - began < 5, payload[:10]


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (390, True)])
def test_a_real_page_in_a_browser(browser, graded, width, dark):
    page_file = feedback.write_feedback(graded, CHAPTER, "halves")
    page, visit = browser.open(page_file, width=width, dark=dark)
    assert not visit, visit
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
    formula = page.query_selector("math[display=block]").bounding_box()
    assert formula["height"] > 30, "a fraction is laid out above and below its line"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background != "rgb(255, 255, 255)") == dark
    anchors = page.eval_on_selector_all("a[href^='#']", "a => a.map(e => !!document.getElementById(e.hash.slice(1)))")
    assert anchors
    assert all(anchors)
    assert "checks fail" in page.inner_text("section[aria-label=Summary]")
    assert "expected" not in page.inner_text("section[aria-label=Summary]")
    assert "expected" in page.inner_text("#piece-shift_matrix")


# -------------------------------------------------------------------------------------------------------- how it is made


def test_pages_are_made_quickly_and_in_a_pool(graded):
    feedback.write_feedback(graded, CHAPTER, "halves")
    began = time.perf_counter()
    for _ in range(5):
        feedback.write_feedback(graded, CHAPTER, "halves")
    assert (time.perf_counter() - began) / 5 < 0.5
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pages = list(pool.map(feedback.write_feedback, [graded] * 2, [CHAPTER] * 2, ["halves", "own_helper"]))
    assert all(page.exists() for page in pages)


@pytest.mark.parametrize(
    "ours", [pytest.param(False, marks=pytest.mark.long), True], ids=["stock template", "our exporter"]
)
def test_nbgraders_own_command_works_and_does_not_leak(graded, ours):
    command = [sys.executable, "-m", "nbgrader", "generate_feedback", CHAPTER, "--force"]
    if ours:
        command.append("--GenerateFeedback.exporter_class=autograder.feedback.FeedbackExporter")
    run = subprocess.run(command, cwd=graded, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    stub = nbformat.read(graded / "release" / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
    hidden = hidden_lines("\n".join(each.source for each in stub.cells))
    for student in ("halves", "own_helper"):
        page = graded / "feedback" / student / CHAPTER / f"{CHAPTER}.html"
        judged = nbformat.read(graded / "autograded" / student / CHAPTER / f"{CHAPTER}.ipynb", as_version=4)
        answers = "\n".join(each.source for each in judged.cells)
        text = text_of(page)
        assert [line for line in hidden if line in text and line not in answers] == []
        assert "HIDDEN TESTS" not in text
    if ours:
        assert (
            feedback.write_feedback(graded, CHAPTER, "halves").read_text()
            == (graded / "feedback" / "halves" / CHAPTER / f"{CHAPTER}.html").read_text()
        )
