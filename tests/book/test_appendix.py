"""The appendix says what is so: symbols are those of the chapters, slips are noticed by the checks that the page names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from book_building import ROOT

from autograder import registry, run_checks
from transformer_lab import results

BOOK = ROOT / "book"
CHAPTERS = sorted(BOOK.glob("[0-9][0-9]_*.md"))


def text_of(page: str) -> str:
    return (BOOK / page).read_text(encoding="utf-8")


def tables(text: str, first: str) -> list[list[list[str]]]:
    """The tables of a page whose first heading is ``first``: rows of cells, without head and rule."""
    found = []
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        if rows[0][0] == first:
            found.append(rows[2:])
    return found


# ------------------------------------------------------------------------------------------------------------ look up


def test_every_page_leads_to_the_notation(book):
    """By the line at its foot, from whatever folder: the side bar is folded away on a phone."""
    wanted = book.html / "book" / "appendix" / "notation.html"
    for page in book.pages():
        foot = re.search(r'<p class="lookup">(.*?)</p>', page.read_text(), re.S)
        assert foot, f"{page.relative_to(book.html)} has no line that leads to the notation"
        (target,) = re.findall(r'<a href="([^"]*)">notation and shapes</a>', foot[1])
        leads_to = (page.parent / urlsplit(target).path).resolve() if urlsplit(target).path else page.resolve()
        assert leads_to == wanted.resolve(), f"{page.relative_to(book.html)} leads to {target}"


# ----------------------------------------------------------------------------------------------------------- notation


def symbols(cell: str) -> list[str]:
    """The symbols of a table's first cell, without what they are equal to; words such as "memory" count as they are."""
    return [part.split("=")[0].strip() for part in re.findall(r"\$([^$]+)\$", cell)] or [cell]


@pytest.fixture(scope="module")
def notation() -> dict[str, list[int]]:
    """Each symbol of the notation's table and the chapters that its rows lead to."""
    found: dict[str, list[int]] = {}
    (rows,) = tables(text_of("appendix/notation.md"), "symbol")
    for row in rows:
        if chapter := re.fullmatch(r"\{ref\}`(\d+) <[\w-]+>`|\[(\d+)\]\(\.\./\d\d_\w+\.md\)", row[-1]):
            for symbol in symbols(row[0]):
                found.setdefault(symbol, []).append(int(chapter[1] or chapter[2]))
    return found


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_notation_has_the_symbols_of_every_chapter(notation, path):
    used = {
        symbol
        for table in tables(path.read_text(encoding="utf-8"), "symbol")
        for row in table
        for symbol in symbols(row[0])
    }
    missing = used - set(notation) - {"result"}
    assert not missing, f"{path.name} explains symbols that book/appendix/notation.md lacks: {sorted(missing)}"


def test_the_notation_leads_to_where_a_symbol_first_occurs(notation):
    first: dict[str, int] = {}
    for path in CHAPTERS:
        for table in tables(path.read_text(encoding="utf-8"), "symbol"):
            for row in table:
                for symbol in symbols(row[0]):
                    first.setdefault(symbol, int(path.name[:2]))
    wrong = {symbol: (first[symbol], there) for symbol, there in notation.items() if symbol in first}
    assert len(wrong) > 40, "hardly a symbol of the chapters was found"
    assert not {symbol: pair for symbol, pair in wrong.items() if pair[0] not in pair[1]}


def test_every_label_of_the_notation_is_in_the_chapter_that_it_names():
    labels = re.findall(r"\{ref\}`(\d+) <([\w-]+)>`", text_of("appendix/notation.md"))
    assert len(labels) > 30
    for number, label in labels:
        (chapter,) = BOOK.glob(f"{int(number):02}_*.md")
        assert f"\n({label})=\n" in chapter.read_text(encoding="utf-8"), f"{label} is not in chapter {number}"


def test_the_sizes_are_those_of_the_conventions():
    """CONTRIBUTING names the sizes; the table has each of them, in code or as a symbol, in a row about a size."""
    sentence = re.search(r"^- .* Sizes: (.*)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)[1]
    (rows,) = tables(text_of("appendix/notation.md"), "symbol")
    names = [row[0] for row in rows]
    sizes = rows[names.index("**Sizes**") + 1 : names.index("**Recurrence**")]
    for letter in re.findall(r"`(\w)`", sentence):
        row = next(row for row in sizes if f"`{letter}`" in row[3])
        assert row[2].startswith("number")


# ------------------------------------------------------------------------------------------------------------- errata

#: Each slip's label on the errata page and the known mistakes that make it.
SLIPS = {
    "exponent": [("positional_encoding", "doubled-exponent")],
    "root": [("TokenEmbedding", "no-scale"), ("TransformerEmbedding", "tokens-not-scaled")],
    "equivariance": [],
    "scale": [
        ("scaled_dot_product_attention", "missing-scale"),
        ("scaled_dot_product_attention", "scaled-by-d-k"),
        ("SelfAttention", "scaled-by-d-model"),
        ("MultiHeadAttention", "scaled-by-d-model"),
    ],
    "minus-infinity": [
        ("scaled_dot_product_attention", "weights-set-to-minus-infinity"),
        ("scaled_dot_product_attention", "mask-after-softmax"),
    ],
    "fill": [
        ("scaled_dot_product_attention", "fill-too-small"),
        ("scaled_dot_product_attention", "infinity-times-zero"),
    ],
    "reshape": [
        ("split_heads", "split-by-reshape"),
        ("merge_heads", "merged-by-reshape"),
        ("MultiHeadAttention", "split-and-merged-by-reshape"),
    ],
    "twice": [("MultiHeadAttention", "projected-twice")],
    "plus": [("PositionwiseFeedForward", "layers-added")],
    "variance": [
        ("LayerNorm", "unbiased-variance"),
        ("LayerNorm", "epsilon-outside-the-root"),
        ("LayerNorm", "statistics-over-tokens"),
    ],
    "order": [
        ("Residual", "always-pre-norm"),
        ("EncoderLayer", "always-pre-norm"),
        ("DecoderLayer", "always-pre-norm"),
    ],
    "cost": [],
}
#: In twelve sections, a label and the text up to the next.
SECTIONS = dict(
    re.findall(r"^\(errata-([\w-]+)\)=\n(.*?)(?=^\(errata-|\Z)", text_of("appendix/errata.md"), re.M | re.S)
)
HEAD = text_of("appendix/errata.md").split("\n(errata-")[0]


def named_checks(text: str) -> set[tuple[str, str]]:
    """Piece and title of the checks that a text names: *obeys a mask* of `scaled_dot_product_attention`."""
    return {(piece, title) for title, piece in re.findall(r"\*([^*\n]+)\* of `(\w+)`", text)}


def test_all_twelve_slips_are_there():
    assert list(SECTIONS) == list(SLIPS)
    assert len(SLIPS) == 12
    rows = tables(HEAD, "the slip")[0]
    assert [re.search(r"<errata-([\w-]+)>", row[0])[1] for row in rows] == list(SLIPS)


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_has_the_wrong_picture_beside_the_right_one(slip):
    section = SECTIONS[slip]
    assert re.findall(r"^\*\*(The slip|What is right)\.\*\*$", section, re.M) == ["The slip", "What is right"]
    assert "plots.side_by_side(" in section
    assert "**Noticed by**" in section


@pytest.mark.parametrize("slip", [slip for slip, mistakes in SLIPS.items() if not mistakes])
def test_where_there_is_nothing_to_code_the_page_says_so(slip):
    assert "**Noticed by** no check" in SECTIONS[slip]
    assert not named_checks(SECTIONS[slip])


@pytest.mark.parametrize("slip", [slip for slip, mistakes in SLIPS.items() if mistakes])
def test_the_checks_that_the_page_names_notice_the_slip(slip):
    row = next(row for row in tables(HEAD, "the slip")[0] if f"<errata-{slip}>" in row[0])
    named, in_table = named_checks(SECTIONS[slip].split("**Noticed by**")[1]), named_checks(row[2])
    assert in_table
    assert in_table <= named
    failed = set()
    for piece, mistake in SLIPS[slip]:
        known = next(m for m in registry.misconceptions(piece) if m.id == mistake)
        judged = run_checks({piece: known.implementation}, piece=piece, diagnosing=False)
        failed |= {(piece, registry.title(piece, result.check)) for result in judged if not result.passed}
    assert named <= failed, f"named, and pass: {sorted(named - failed)}"


@pytest.mark.parametrize("slip", [slip for slip, mistakes in SLIPS.items() if mistakes])
def test_the_hints_are_quoted_as_learners_get_them(slip):
    quoted = re.findall(r'"([^"]+)"', SECTIONS[slip].split("**The hint")[1])
    given = {m.hint for piece, mistake in SLIPS[slip] for m in registry.misconceptions(piece) if m.id == mistake}
    assert quoted
    assert set(quoted) <= given


# ----------------------------------------------------------------------------------------------------------- glossary


def test_the_glossary_is_in_order_and_leads_to_the_chapters():
    body = re.search(r"^```\{glossary\}\n(.*?)^```$", text_of("appendix/glossary.md"), re.M | re.S)[1]
    entries = re.findall(r"^(\S.*)\n((?:  .*\n)+)", body, re.M)
    terms = [term for term, _ in entries]
    assert terms == sorted(terms, key=str.lower)
    assert len(set(terms)) == len(terms) >= 40
    linked = [term for term, definition in entries if re.search(r"\{ref\}`|\]\(", definition)]
    planned = [term for term, definition in entries if "Planned for" in definition]
    assert set(terms) - set(linked) - set(planned) <= {"feature", "piece", "token"}


def test_every_page_of_the_appendix_is_in_the_contents():
    contents = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    for folder in ("appendix", "instructors"):
        for page in sorted((BOOK / folder).glob("*.md")):
            assert f"file: {Path('book', folder, page.stem)}\n" in contents


# -------------------------------------------------------------------------------------------------------- instructors


def test_the_page_on_the_checks_gives_the_figures_of_the_results(book):
    """Of every result that the page reads, the first figure of its text is the file's."""
    page = (book.html / "book" / "instructors" / "what_the_checks_prove.html").read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    said = {
        "mutation": lambda rows: (
            f"Of {sum(r['mutants'] for r in rows)} mutants {sum(r['equivalent'] for r in rows)} do"
        ),
        "confusion": lambda rows: f"There are {len(rows)} wrong ones",
        "stability": lambda rows: (
            f"with the inputs of {max(r['seeds'] for r in rows if r['setting'] == '1 thread')} seeds"
        ),
    }
    read = re.findall(r'results\.load\("(\w+)"\)', text_of("instructors/what_the_checks_prove.md"))
    assert "mutation" in read
    for name in read:
        assert said[name](results.load(name).select()) in text
