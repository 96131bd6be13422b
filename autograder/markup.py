"""Safe HTML from what learners and notebooks contain: Markdown, TeX, code, terminal text and the outputs of cells.

Nothing here trusts its input. What comes out holds no script, no event handler, no style beyond a table's alignment, no
form, and no address that a browser would open by itself; formulas are MathML, so that a page needs no script to show them.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
import secrets
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from typing import Any

import bleach
import jinja2
from bleach.css_sanitizer import CSSSanitizer
from latex2mathml.converter import convert as to_mathml
from markupsafe import Markup, escape
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from autograder.registry import title

#: A page holds no more of one text, one table or one picture than this many characters, and no more lines of a text.
MAX_TEXT, MAX_LINES, MAX_CODE, MAX_HTML, MAX_IMAGE = 8_000, 120, 60_000, 40_000, 2_000_000

#: A cell shows this many outputs, and this many bytes of pictures.
MAX_OUTPUTS, MAX_CELL_BYTES = 40, 4_000_000

#: HTML nested deeper than this is shown as text.
MAX_DEPTH = 100

#: A browser that opens one of our pages runs no script and asks no other host for anything, whatever the page holds.
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TAGS = _words(
    """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6
    hr i img kbd li mark ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul
    var
    """
)
#: Elements that end by themselves.
NO_END_TAG = _words("br col colgroup dd dt hr img input li link meta p source tbody td tfoot th thead tr wbr")
PLAIN_ATTRIBUTES = {
    ("ol", "start"),
    ("details", "open"),
    ("img", "alt"),
    *((cell, name) for cell in ("td", "th") for name in ("align", "colspan", "rowspan", "style")),
}
PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
LINK = re.compile(r"(?:https?://|mailto:|#)[^\x00-\x20\x7f]*", re.IGNORECASE)

#: What a formula may consist of; an attribute or element that is not here makes it stay TeX.
MATH_TAGS = _words(
    """
    math menclose mfrac mi mmultiscripts mn mo mover mpadded mphantom mroot mrow ms mspace msqrt mstyle msub msubsup
    msup mtable mtd mtext mtr munder munderover
    """
)
MATH_ATTRIBUTES = _words(
    """
    accent accentunder align columnalign columnlines columnspacing display displaystyle fence form largeop
    linethickness lspace mathcolor mathvariant maxsize minsize movablelimits notation rowlines rowspacing rspace
    scriptlevel separator stretchy width
    """
)
MATHML = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", MATHML)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HIDDEN_ELEMENTS = re.compile(r"<(script|style|template|noscript)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)


def environment() -> jinja2.Environment:
    """The templates of this package: everything is escaped unless it is :class:`markupsafe.Markup`."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("autograder"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"sentence": sentence, "number": number, "share": share, "count": count, "title_of": title}
    made.globals["content_policy"] = CONTENT_POLICY
    return made


# ---------------------------------------------------------------------------------------------------------------- words


def sentence(text: str) -> Markup:
    """A message of ours, in which `backquotes` mark code."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(terminal(str(text))))))


def number(value: float | None) -> str:
    """At most two decimal places, and a dash for what there is not."""
    return "–" if value is None else f"{round(float(value), 2):g}"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"


def count(amount: int, noun: str, plural: str = "") -> str:
    return f"{amount} {noun if amount == 1 else plural or noun + 's'}"


def terminal(text: str) -> str:
    """What a terminal would show of ``text``: no colours, no cursor movements, lines as they ended after each ``\\r``."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        text = "\n".join(lines)
    return _CONTROLS.sub("", text)


def shorten(text: str, characters: int = MAX_TEXT, lines: int = MAX_LINES) -> str:
    """The beginning and the end of a text that is too long, with a line between them that says how much is missing."""
    if len(text) <= characters and text.count("\n") <= lines:
        return text
    head = "\n".join(text[: characters * 2 // 3].split("\n")[: lines * 2 // 3])
    rest = text[len(head) :]
    tail = "\n".join(rest[-(characters // 3) :].split("\n")[-(lines // 3) :])
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n… {left_out:,} characters are left out here …\n{tail}" if left_out > 0 else text


# ------------------------------------------------------------------------------------------------------ Markdown and TeX


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, with formulas set aside so that the cleaning cannot touch them."""

    def __init__(self) -> None:
        super().__init__(escape=False, exclude_anchor_links=True)
        self.formulas: list[Markup] = []

    def block_math(self, body: str) -> str:
        return self._keep(formula(body, display=True))

    def inline_math(self, body: str) -> str:
        return self._keep(formula(body))

    def latex_environment(self, name: str, body: str) -> str:
        return self._keep(formula(f"\\begin{{{name}}}{body}\\end{{{name}}}", display=True))

    def block_mermaidjs(self, code: str) -> str:
        return f"<pre>{escape(code)}</pre>"

    def _embed_image_or_attachment(self, src: str) -> str:
        return "" if src.startswith("attachment:") else src

    def _keep(self, made: Markup) -> str:
        self.formulas.append(made)
        return f"{_MARK}{len(self.formulas) - 1}z"


#: Stands for a formula while the HTML around it is cleaned; nobody can write it on purpose.
_MARK = f"formula{secrets.token_hex(8)}n"


@functools.lru_cache(maxsize=512)
def markdown(text: str) -> Markup:
    """The HTML of a Markdown cell."""
    renderer = _Renderer()
    html = MarkdownWithMath(renderer=renderer).render(shorten(text, MAX_CODE, MAX_CODE))
    return Markup(
        re.sub(_MARK + r"(\d+)z", lambda found: str(renderer.formulas[int(found[1])]), clean(html, classes=True))
    )


@functools.lru_cache(maxsize=2048)
def formula(tex: str, display: bool = False) -> Markup:
    """A formula as MathML, or as TeX where it cannot be translated."""
    try:
        root = ElementTree.fromstring(to_mathml(tex.strip(), display="block" if display else "inline"))
        return Markup(_serialise(root, display))
    except Exception:  # the translator has an exception of its own for every kind of bad TeX
        sign = "$$" if display else "$"
        return Markup('<code class="tex">{}</code>').format(f"{sign}{tex.strip()}{sign}")


def _serialise(root: ElementTree.Element, display: bool) -> str:
    for element in root.iter():
        name = element.tag.removeprefix(f"{{{MATHML}}}")
        if name not in MATH_TAGS or not set(element.keys()) <= MATH_ATTRIBUTES:
            raise ValueError(f"<{name}> with {sorted(element.keys())} has no place in a formula.")
        if name == "mo" and len(element.text or "") > 1 and (element.text or "").isalpha():
            element.tag = f"{{{MATHML}}}mi"  # a function's name, without the space around an operator
        _join_letters(element)
    made = ElementTree.tostring(root, encoding="unicode")
    return f'<div class="formula" tabindex="0">{made}</div>' if display else made


def _join_letters(row: ElementTree.Element) -> None:
    """Upright letters in a row become one name: \\mathrm{PE} is a word, not P times E."""
    if row.tag != f"{{{MATHML}}}mrow":
        return
    letter = f"{{{MATHML}}}mi"
    if len(row) > 1 and all(child.tag == letter and child.get("mathvariant") == "normal" for child in row):
        word = "".join(child.text or "" for child in row)
        for child in list(row):
            row.remove(child)
        ElementTree.SubElement(row, letter).text = word


# ----------------------------------------------------------------------------------------------------------- HTML, code


def clean(html: str, classes: bool = False) -> str:
    """``html`` with nothing left in it that a browser would run, load or send. ``classes`` keeps those of code's colours.

    What is nested deeper than any page needs, which takes parsers long, becomes text.
    """
    html = _HIDDEN_ELEMENTS.sub("", _CONTROLS.sub("", html))
    return str(escape(html)) if _depth(html) > MAX_DEPTH else _cleaner(classes).clean(html)


def _depth(html: str) -> int:
    """How many elements are open at once at most, those that need no end tag left out."""
    open_now: Counter[str] = Counter()
    deepest = 0
    for end, name in re.findall(r"<(/?)([a-zA-Z][^\s/>]*)", html):
        name = name.lower()
        if end:
            open_now[name] = max(0, open_now[name] - 1)
        elif name not in NO_END_TAG:
            open_now[name] += 1
            deepest = max(deepest, open_now.total())
    return deepest


@functools.cache
def _cleaner(classes: bool) -> bleach.Cleaner:
    def allowed(tag: str, name: str, value: str) -> bool:
        if (tag, name) in PLAIN_ATTRIBUTES:
            return True
        if (tag, name) == ("a", "href"):
            return LINK.fullmatch(value) is not None
        if (tag, name) == ("img", "src"):
            return len(value) <= MAX_IMAGE and PICTURE.fullmatch(value) is not None
        return classes and name == "class" and tag in ("span", "pre", "div", "code")

    return bleach.Cleaner(
        tags=TAGS,
        attributes=allowed,
        protocols={"http", "https", "mailto", "data"},
        strip=True,
        css_sanitizer=CSSSanitizer(allowed_css_properties=["text-align"]),
    )


@functools.lru_cache(maxsize=256)
def code(text: str) -> Markup:
    """Python code, coloured."""
    text = shorten(_CONTROLS.sub("", text.replace("\r\n", "\n")), MAX_CODE, MAX_CODE)
    return Markup(highlight(text, PythonLexer(stripnl=True), HtmlFormatter(cssclass="code", nowrap=False)))


def text(value: str, kind: str = "") -> Markup:
    """Terminal text in a box of its own, shortened."""
    shown = shorten(terminal(value)).rstrip()
    return Markup('<pre class="text {}" tabindex="0">{}</pre>').format(kind, shown) if shown else Markup()


# --------------------------------------------------------------------------------------------------------------- outputs


def outputs(cell: NotebookNode) -> list[Markup]:
    """What a code cell printed and drew, one safe piece of HTML each."""
    made, room = [], MAX_CELL_BYTES
    for index, output in enumerate(cell.get("outputs", [])):
        if index == MAX_OUTPUTS:
            made.append(_note(f"{len(cell.outputs) - index} more outputs are left out."))
            break
        html = _output(output)
        room -= len(html)
        if room < 0:
            made.append(_note("The outputs that follow are left out: they are too large."))
            break
        if html:
            made.append(html)
    return made


def _output(output: NotebookNode) -> Markup:
    if output.output_type == "stream":
        return text(str(_joined(output.get("text", ""))), "stderr" if output.name == "stderr" else "")
    if output.output_type == "error":
        lines = output.get("traceback") or [f"{output.get('ename')}: {output.get('evalue')}"]
        last = shorten(terminal(str(lines[-1])), 600, 12)
        trace = text("\n".join(map(str, lines)), "error") if len(lines) > 1 else ""
        where = Markup("<details><summary>Where</summary>{}</details>").format(trace) if trace else ""
        return Markup('<p class="error-line">{}</p>{}').format(last, where)
    data = output.get("data") or {}
    too_large = False
    for kind, render in _KINDS:
        if kind in data and isinstance(value := _joined(data[kind]), str):
            made = render(value)
            if made is not None and str(made).strip():
                return made
            too_large = too_large or made is None
    return _note("An output that is too large or damaged is left out.") if too_large else Markup()


def _html(value: str) -> Markup | None:
    if len(value) > MAX_HTML:
        return None
    made = clean(value)
    seen = re.sub(r"<(?!img\b)[^>]*>|\s|&nbsp;", "", made)
    return Markup('<div class="html" tabindex="0">{}</div>').format(Markup(made)) if seen else Markup()


def _markdown(value: str) -> Markup | None:
    return Markup('<div class="html">{}</div>').format(markdown(value)) if len(value) <= MAX_HTML else None


def _latex(value: str) -> Markup | None:
    return formula(value.strip().strip("$"), display=True) if len(value) <= MAX_TEXT else None


def _picture(kind: str, value: str) -> Markup | None:
    try:
        raw = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return _image(kind, raw)


def _svg(value: str) -> Markup | None:
    return _image("image/svg+xml", value.encode(errors="replace"))


def _image(kind: str, raw: bytes) -> Markup | None:
    """An image that stands for itself: in an ``img`` element, even an SVG runs no script and loads nothing."""
    if not 0 < len(raw) <= MAX_IMAGE:
        return None
    address = f"data:{kind};base64,{base64.b64encode(raw).decode()}"
    return Markup('<img src="{}" alt="Picture that this cell drew">').format(address)


def _note(words: str) -> Markup:
    return Markup('<p class="note">{}</p>').format(words)


def _joined(value: Any) -> Any:
    return "".join(value) if isinstance(value, Iterable) and not isinstance(value, (str, dict)) else value


_KINDS = (
    ("text/html", _html),
    ("text/markdown", _markdown),
    ("text/latex", _latex),
    ("image/svg+xml", _svg),
    ("image/png", functools.partial(_picture, "image/png")),
    ("image/jpeg", functools.partial(_picture, "image/jpeg")),
    ("text/plain", text),
)


def disarm(notebook: NotebookNode) -> None:
    """Clean the outputs of ``notebook`` in place, for programs that show them as they are (formgrader, nbgrader's feedback).

    Scripts, widgets and metadata are removed; HTML and Markdown become clean HTML; text and pictures stay.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type not in ("display_data", "execute_result"):
                continue
            output.metadata, data = NotebookNode(), output.get("data") or {}
            kept = {kind: data[kind] for kind in ("text/plain", "image/png", "image/jpeg") if kind in data}
            for kind, render in (("text/html", _html), ("text/markdown", _markdown), ("image/svg+xml", _svg)):
                made = render(_joined(data[kind])) if isinstance(_joined(data.get(kind)), str) else None
                if made and "text/html" not in kept:
                    kept["text/html"] = str(made)
            output.data = NotebookNode(kept or {"text/plain": ""})
