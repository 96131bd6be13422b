"""The figures of the translation chapter: what they count and compute, apart from how they look."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib.patches import Rectangle
from matplotlib.text import Text

matplotlib.use("Agg")

from transformer_lab import builtin, translation
from transformer_lab import translation_figures as drawn


def words_of(text: str) -> list[str]:
    return text.split()


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.findobj(Text)]


@pytest.mark.parametrize(
    ("wanted", "got", "kind"),
    [
        ("throw away my ball", "throw my ball away", "order"),
        ("an old man", "a old man", "one word"),
        ("at half past four three men", "at half past three men", "other"),
        ("we will thank him", "they will see him", "other"),
    ],
)
def test_errors_are_told_apart_by_their_words(wanted, got, kind):
    assert drawn.error_kind({"wanted": wanted.split(), "got": got.split()}) == kind
    assert kind in drawn.ERRORS


def test_what_is_wrong_is_bold_and_what_is_missing_is_marked():
    marked = drawn._marked(
        words_of("they throw my ball away , and a old man"), words_of("they throw away my ball , and an old man")
    )
    assert marked == "they throw **[…]** my ball **away**, and **a** old man"


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_the_drawn_loss_is_that_of_pytorch(smoothing):
    for p in (0.5, 0.9, 0.999):
        log_p = torch.full((1, 7), (1 - p) / 6, dtype=torch.float64).log()
        log_p[0, 3] = np.log(p)
        wanted = F.cross_entropy(log_p, torch.tensor([3]), label_smoothing=smoothing)
        assert float(drawn.smoothed_loss(np.array([p]), smoothing, 7)[0]) == pytest.approx(wanted.item(), rel=1e-4)


def test_the_counts_beside_the_tiles_are_those_of_bleu(ax):
    reference = words_of("at half past three she picks the small children up .")
    words = words_of("at half past four she picks the small the children up .")
    drawn.n_grams(ax, words, reference, "")
    shares = [text for text in texts(ax) if "/" in text]
    assert shares == ["10/12", "7/11", "4/10", "1/9"]
    product = np.prod([int(share.split("/")[0]) / int(share.split("/")[1]) for share in shares])
    assert builtin.corpus_bleu([words], [reference]) == pytest.approx(100 * product**0.25)
    filled = [tile for tile in ax.patches if isinstance(tile, Rectangle) and tile.get_hatch() is None]
    assert len(filled) == 10 + 7 + 4 + 1


def test_a_tree_shows_the_probability_of_all_up_to_a_word(ax):
    table = {(): {"a": 0.25, "b": 0.75}, ("a",): {"<eos>": 0.5, "b": 0.5}}
    drawn.tree(ax, table, [{("a",)}, {("a", "b")}], ("b",))
    assert {"a\n0.250", "b\n0.750", "<eos>\n0.125", "b\n0.125"} <= set(texts(ax))


def test_the_shift_moves_every_word_by_one_place(ax):
    drawn.shifted(ax, ["<bos>", "the", "bird", "<eos>"])
    places = {}
    for text in ax.texts:
        places.setdefault(text.get_text(), []).append(round(text.get_position()[0], 3))
    assert places["the"][0] == places["bird"][1], "bird is said where the has been read"
    assert len(places["<bos>"]) == len(places["<eos>"]) == 1


def test_the_cosine_is_the_translators(ax):
    config = translation.Config(steps=2500)
    drawn.schedules(ax, config, builtin.noam_lr, steps=2500)
    one = translation.Translator.__new__(translation.Translator)
    one.config, one.pieces = config, builtin
    paper, slow, cosine = (line.get_ydata() for line in ax.lines)
    assert np.allclose(cosine, [one.rate(step) for step in range(1, 2501)])
    assert paper.argmax() == config.warmup - 1
    assert slow.max() == pytest.approx(paper.max() / 2**0.5)


def test_the_map_of_the_whole_names_every_shape(ax):
    drawn.data_flow(ax)
    found = " ".join(texts(ax))
    assert all(
        shape in found
        for shape in ("(B, S)", "(B, T)", "(B, S, D)", "(B, T, D)", "(B, T, V)", "(B, 1, 1, S)", "(B, 1, T, T)")
    )
