"""The attention maps of a sentence: the right weights in the right places, on the page as a reader meets it, and drawn."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch

from transformer_lab import attention_maps, attention_page, builtin, fused, pieces, plots, translation
from transformer_lab.data import SubwordVocabulary, default_corpus
from transformer_lab.recurrent import RecurrentTranslator

SMALL = translation.Config(d_model=16, num_heads=4, d_ff=32, num_layers=2)
WORDS = ("die", "Frau", "sieht", "den", "Hund", ".")
TARGET = ("the", "woman", "sees", "the", "dog", ".")
#: What could end a script element, a string or an attribute, or be taken for a tag.
EVIL = (
    "</script><script>window.broken=1</script>",
    "<!--",
    '"',
    "&lt;",
    "<img src=x onerror=window.broken=1>",
    "\u2028",
)


@pytest.fixture(scope="module")
def task():
    return translation.Task.of(default_corpus(2000, 5, 5))


@pytest.fixture(scope="module")
def translator(task):
    return translation.Translator(task, SMALL)


@pytest.fixture(scope="module")
def maps(translator):
    return attention_page.look(translator, WORDS, TARGET)


def test_rows_and_columns_are_named_by_the_tokens(maps):
    assert maps.source == ("<bos>", *WORDS, "<eos>")
    assert maps.target == ("<bos>", *TARGET, "<eos>")
    assert (maps.sentence, maps.translation) == ("die Frau sieht den Hund.", "the woman sees the dog.")
    for kind, weights in maps.weights.items():
        assert weights.shape == (2, 4, len(maps.rows(kind)), len(maps.columns(kind)))
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6)
    assert maps.rows("cross") == maps.rows("decoder") == (*TARGET, "<eos>"), "a row is what is to be said"
    assert maps.columns("decoder") == ("<bos>", *TARGET), "a column is what has been read"
    closed = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert (maps.weights["decoder"][..., closed] == 0).all()
    assert (maps.weights["encoder"] > 0).all()


def test_the_weights_are_those_of_the_layers(translator, maps):
    source = torch.tensor([translator.task.source.encode(WORDS)])
    given = torch.tensor([translator.task.target.encode(TARGET)[:-1]])
    with torch.no_grad(), attention_maps.recording(translator.model, 4) as found:
        translator.model(source, given)
    for layer in (0, 1):
        for kind, name in (
            ("encoder", f"encoder.layers.{layer}.self_attention"),
            ("decoder", f"decoder.layers.{layer}.self_attention"),
            ("cross", f"decoder.layers.{layer}.cross_attention"),
        ):
            assert torch.allclose(maps.weights[kind][layer], found[name][0][0], atol=1e-6), name


@pytest.mark.parametrize("whose", [pieces.load("solutions"), fused.over(builtin)], ids=["solutions", "fused"])
def test_the_pieces_may_be_anybodys(task, translator, maps, whose):
    other = translation.Translator(task, SMALL, whose)
    other.model.load_state_dict(translator.model.state_dict(), strict=False)
    found = attention_page.look(other, WORDS, TARGET)
    for kind, weights in maps.weights.items():
        assert torch.allclose(found.weights[kind], weights, atol=1e-5), kind


def test_without_a_target_the_model_reads_out_its_own_translation(translator):
    found = attention_page.look(translator, WORDS)
    assert found.target[1:-1] == translator.translate(WORDS)[0]


def test_unknown_words_and_pieces_of_words_are_shown_as_they_are(translator):
    found = attention_page.look(translator, ("der", "Quark"), TARGET)
    assert found.source == ("<bos>", "der", "Quark <unk>", "<eos>")
    corpus = default_corpus(2000, 5, 5)
    one = translation.Translator(translation.Task.of(corpus, subwords=120), SMALL)
    assert isinstance(one.task.source, SubwordVocabulary)
    found = attention_page.look(one, ("die", "Frau"), TARGET)
    assert "".join(found.source[1:-1]).replace("▁", " ").split() == ["die", "Frau"]


def test_what_cannot_be_shown_is_said_in_a_sentence(task, translator):
    with pytest.raises(ValueError, match="at least one word"):
        attention_page.look(translator, ())
    with pytest.raises(ValueError, match="more tokens than the model has positions, 128"):
        attention_page.look(translator, WORDS, ["dog"] * 200)
    recurrent = RecurrentTranslator(len(task.source), len(task.target), 16, attention=True, pad_id=0)
    with pytest.raises(ValueError, match="shows no encoder self-attention"):
        attention_page.look(translation.Translator(task, SMALL, model=recurrent), WORDS, TARGET)
    spoilt = translation.Translator(task, SMALL)
    with torch.no_grad():
        spoilt.model.decoder.layers[1].cross_attention.w_q.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="weights of the cross-attention are no finite numbers"):
        attention_page.look(spoilt, WORDS, TARGET)


# ---------------------------------------------------------------------------------------------------------- the page


def content(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_holds_everything_and_nothing_of_others(maps):
    text = attention_page.page(maps)
    assert "⟦" not in text
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", text)
    assert "https:" not in text
    assert re.findall(r"http:\S+", text) == ['http://www.w3.org/2000/svg",'], "a name, not an address"
    found = content(text)
    assert [kind["id"] for kind in found["kinds"]] == ["encoder", "decoder", "cross"]
    for kind in found["kinds"]:
        sums = [sum(max(w, 0) for w in row) for layer in kind["weights"] for head in layer for row in head]
        assert all(abs(total - 10_000) <= len(kind["columns"]) for total in sums)
    row = found["kinds"][1]["weights"][0][0][2]
    assert row[3:] == [-1] * 4, "closed by the mask"
    assert row[1] == round(10_000 * float(maps.weights["decoder"][0, 0, 2, 1]))


def test_any_sentence_can_stand_in_the_page(translator):
    text = attention_page.page(attention_page.look(translator, EVIL, EVIL))
    assert content(text)["kinds"][0]["rows"][1] == f"{EVIL[0]} <unk>"
    assert text.count("<script") == 2
    assert "<img" not in text


def test_the_page_in_a_browser(translator, maps, chromium, tmp_path):
    """Chosen by mouse, keyboard and touch; as wide as a phone; nothing asked of anybody; the numbers are the weights."""
    address = attention_page.write(maps, tmp_path / "page.html").as_uri()
    evil = attention_page.write(attention_page.look(translator, EVIL, EVIL), tmp_path / "evil.html").as_uri()
    asked, errors = [], []
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    page = context.new_page()
    page.set_default_timeout(5000)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(evil)
    assert page.evaluate("() => window.broken") is None
    assert page.locator("#from .name").all_inner_texts() == [*(f"{word} <unk>" for word in EVIL), "<eos>"]
    page.goto(address)

    def numbers(column):
        return page.locator(f"#{column} .number").all_inner_texts()

    def shown(kind, layer, head, row):
        return [f"{w:.2f}" if w else "–" for w in maps.weights[kind][layer, head, row].tolist()]

    last = maps.weights["cross"][-1].mean(0)
    assert numbers("to") == [f"{w:.2f}" for w in last[0].tolist()], "the mean of the last layer's heads, at first"
    page.get_by_role("radio", name="Decoder self-attention").check(force=True)
    page.get_by_role("radio", name="layer 1, head 3").check(force=True)
    assert page.locator("#heading").inner_text() == "Decoder self-attention, layer 1, head 3"
    page.locator("#from input").nth(2).hover()
    assert numbers("to") == shown("decoder", 0, 2, 2)
    assert page.locator("#from .shown .name").inner_text() == "sees"
    page.mouse.move(1, 1)
    assert numbers("to") == shown("decoder", 0, 2, 0), "the chosen token again"
    page.locator("#from input").first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert numbers("to") == shown("decoder", 0, 2, 3)
    told = page.get_by_role("status").inner_text()
    assert told.startswith("the, after sees, reads most: ")
    strongest = int(maps.weights["decoder"][0, 2, 3].argmax())
    assert told.split(": ")[1].startswith(maps.columns("decoder")[strongest])
    page.locator("#to input").nth(1).tap()
    assert numbers("from") == [f"{w:.2f}" if w else "–" for w in maps.weights["decoder"][0, 2, :, 1].tolist()]
    page.locator("summary").tap()
    table = page.get_by_role("table").locator("tbody tr").nth(3)
    assert table.locator("td").all_inner_texts() == shown("decoder", 0, 2, 3)
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    lines = page.locator("#lines line").count()
    assert lines == int((maps.weights["decoder"][0, 2, :, 1] * 10_000 >= 100).sum())

    names = page.evaluate("() => [...document.querySelectorAll('input')].map(i => i.getAttribute('aria-label'))")
    assert all(names)
    assert _contrast(page) >= 4.5
    page.emulate_media(color_scheme="light")
    assert _contrast(page) >= 4.5

    page.goto("about:blank")
    frame = attention_page.Embedded(maps)._repr_html_()
    page.set_content(f'<!doctype html><html lang="en" data-theme="dark"><title>x</title>{frame}</html>')
    inner = page.frame_locator("iframe")
    assert inner.locator("#heading").inner_text().startswith("Cross-attention")
    page.wait_for_function(
        "() => { const f = document.querySelector('iframe'), b = f.contentDocument.body;"
        " return Math.abs(f.clientHeight - b.getBoundingClientRect().height) < 4; }"
    )
    background = inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    page.evaluate("() => { document.documentElement.dataset.theme = 'light'; }")
    page.wait_for_function(
        "() => document.querySelector('iframe').contentDocument.documentElement.dataset.theme === 'light'"
    )
    assert inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") != background
    assert all(url.startswith(("file:", "data:", "about:")) for url in asked), asked
    assert not errors
    context.close()


def _contrast(page) -> float:
    """The least contrast of the page's letters with what is behind them, by the formula of WCAG 2."""
    return page.evaluate("""() => {
        const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        const light = (css) => {
            const [r, g, b] = css.match(/[\\d.]+/g).map((c) => linear(c / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = (node) => {
            const css = node ? getComputedStyle(node).backgroundColor : "rgb(255, 255, 255)";
            return /, 0\\)$/.test(css) ? behind(node.parentElement) : css;
        };
        const written = [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() &&
            [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
        return Math.min(...written.map((node) => {
            const [a, b] = [getComputedStyle(node).color, behind(node)].map(light);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }));
    }""")


# -------------------------------------------------------------------------------------------------------- the images


def test_a_map_for_every_head_is_drawn_and_described(maps):
    plots.style()
    figure = attention_page.draw(maps, "cross")
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3, 4)
    ]
    shown = torch.tensor(figure.axes[6].images[0].get_array())
    assert torch.allclose(shown.float(), maps.weights["cross"][1, 2])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [*TARGET, "<eos>"]
    assert len(attention_page.draw(maps, "encoder", layers=[1]).axes) == 4
    text = attention_page.describe(maps, "decoder")
    assert text.startswith("8 heat maps of decoder self-attention, 2 layers of 4 heads, 7 rows and 7 columns each")
    assert "the <bos> 1.00" in text
    plt.close("all")


def test_a_model_of_other_layers_is_not_taken_for_one_of_ours(task):
    other = SimpleNamespace(**vars(builtin) | {"MultiHeadAttention": _Hidden})
    with pytest.raises(ValueError, match="needs layers whose attention has w_q and w_k"):
        attention_page.look(translation.Translator(task, SMALL, other), WORDS, TARGET)


class _Hidden(torch.nn.Module):
    """An attention that keeps what it does to itself."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        return self.inner(query, key, value, need_weights=False)[0]
