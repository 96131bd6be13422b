"""The map of the architecture, and what the first page says of the chapters."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.patches import Circle

from transformer_lab import architecture, plots

ROOT = Path(__file__).resolve().parents[2]
BOXES = (
    *architecture.INPUT,
    *architecture.INPUT,
    *architecture.ENCODER_LAYER,
    *architecture.DECODER_LAYER,
    *architecture.OUTPUT,
)


@pytest.fixture
def ax():
    with matplotlib.rc_context():
        plots.style()
        yield plots.figure(7.0, 8.6)
    plt.close("all")


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("describe", [False, True])
def test_every_piece_is_on_the_map(ax, describe):
    architecture.draw(ax, describe=describe)
    assert [text for text in texts(ax) if text in {box.name for box in BOXES}] == [box.name for box in BOXES]
    assert sorted(text for text in texts(ax) if text.isdigit()) == sorted(str(n) for box in BOXES for n in box.chapters)
    assert describe == ({box.does for box in BOXES} <= set(texts(ax)))


def test_written_chapters_are_filled_and_the_others_are_not(ax):
    architecture.draw(ax, written={3})
    numbers = {text.get_position(): text.get_text() for text in ax.texts if text.get_text().isdigit()}
    circles = [patch for patch in ax.patches if isinstance(patch, Circle) and patch.center in numbers]
    assert len(circles) == len(numbers)
    for circle in circles:
        filled = to_hex(circle.get_facecolor()) == plots.RIGHT
        assert filled == (numbers[circle.center] == "3")
    assert {"written", "not yet written"} <= set(texts(ax))


def test_the_words_fit_their_boxes(ax):
    """No word reaches over the number of the chapter beside it, nor over the edge of its box."""
    architecture.draw(ax, describe=True)
    ax.figure.canvas.draw()
    width = ax.transData.transform((5.4, 0))[0] - ax.transData.transform((0, 0))[0]
    for text in ax.texts:
        extent = text.get_window_extent()
        if text.get_text() in {box.does for box in BOXES}:
            assert extent.width < width * 0.98, text.get_text()
        for box in BOXES:
            if text.get_text() == box.name:
                assert extent.width < width * (1 - 0.13 * len(box.chapters)), box.name


def test_the_first_page_names_the_chapters_that_exist():
    """What the list links and what the table of contents holds are the same chapters; the map fills those that build."""
    index = (ROOT / "book/index.md").read_text(encoding="utf-8")
    filled = set(map(int, re.search(r"^WRITTEN = \{(.*)\}$", index, re.M)[1].split(",")))
    linked = set(map(int, re.findall(r"^\| (\d+) \| \[.+\]\(\d\d_\w+\.md\) \|", index, re.M)))
    contents = set(
        map(int, re.findall(r"^ +- file: book/(\d\d)_", (ROOT / "_toc.yml").read_text(encoding="utf-8"), re.M))
    )
    assert linked == contents
    assert filled == contents - {0}
