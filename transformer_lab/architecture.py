"""The map of the whole Transformer, drawn in the one place from which every page takes it.

from transformer_lab import architecture, plots

plots.style()
architecture.draw(plots.figure(7.0, 8.6), describe=True)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from transformer_lab.plots import FAINT, INK, RIGHT


class Box(NamedTuple):
    """One piece on the map: its name, what it does in a few words, and the chapters that build it."""

    name: str
    does: str
    chapters: tuple[int, ...]


NORM = Box("add and norm", "adds the input again, evens it out", (6,))
FEED_FORWARD = Box("feed-forward", "works on each token by itself", (5,))

#: From below: what turns token ids into the vectors of the first layer, on either side.
INPUT = (
    Box("embedding", "turns each token into a vector", (1,)),
    Box("positional encoding", "adds to it where the token stands", (2,)),
)
ENCODER_LAYER = (Box("self-attention", "every token reads every token", (3, 4)), NORM, FEED_FORWARD, NORM)
DECODER_LAYER = (
    Box("masked self-attention", "reads what is written so far", (4, 7)),
    NORM,
    Box("cross-attention", "reads the encoder's memory", (4, 7)),
    NORM,
    FEED_FORWARD,
    NORM,
)
#: From the last decoder layer to a word.
OUTPUT = (
    Box("output weights", "give every word of the vocabulary a score", (9,)),
    Box("softmax", "turns scores into probabilities", (3,)),
)

_GAP = 0.46  # between two boxes, room for an arrow
_TINTS = {"input": "#fdf3e1", "layer": "#eef5fa", "output": "#e6f4ee"}


def draw(ax: Axes, *, written: Collection[int] | None = None, describe: bool = False) -> None:
    """Draw the map on ``ax``: the encoder on the left, the decoder on the right, both read from below.

    Parameters
    ----------
    written
        The chapters that exist; their numbers are filled, those of the others are outlined, and a legend says so.
        None fills all of them and draws no legend.
    describe
        Write what each piece does under its name. Such a map wants 7 by 8.6 inches, one without 6.2 by 6.8.
    """
    width, height = (5.4, 0.98) if describe else (4.2, 0.62)
    step = height + _GAP
    left, right = 1.0, 1.0 + width + 2.8

    def filled(chapter: int) -> bool:
        return written is None or chapter in written

    def circle(x: float, y: float, radius: float, full: bool) -> None:
        ax.add_patch(Circle((x, y), radius, facecolor=RIGHT if full else "white", edgecolor=RIGHT, linewidth=1.2))

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=INK, shrinkA=0, shrinkB=0))

    def upwards(x: float, start: float, end: float) -> None:
        arrow((x, start), (x, end))

    def frame(x: float, bottom: float, top: float) -> None:
        shape = FancyBboxPatch(
            (x - 0.35, bottom),
            width + 0.7,
            top - bottom,
            boxstyle="round,pad=0.1",
            facecolor="none",
            edgecolor=INK,
            linewidth=1.1,
        )
        ax.add_patch(shape)

    def stack(x: float, bottom: float, boxes: Sequence[Box], kind: str) -> list[float]:
        """Boxes from below, an arrow between each two; returns the heights of their middles and, last, of their top."""
        for place, box in enumerate(boxes):
            y = bottom + step * place
            shape = FancyBboxPatch(
                (x, y), width, height, boxstyle="round,pad=0.06", facecolor=_TINTS[kind], edgecolor=FAINT, linewidth=0.8
            )
            ax.add_patch(shape)
            middle = y + height / 2
            if describe:
                ax.text(x + 0.1, y + 0.7, box.name, va="center", size=8.5, weight="bold")
                ax.text(x + 0.1, y + 0.24, box.does, va="center", size=7.5)
            else:
                ax.text(x + 0.1, middle, box.name, va="center", size=8.5)
            level = y + 0.64 if describe else middle
            for number, chapter in enumerate(reversed(box.chapters)):
                centre = (x + width - 0.24 - 0.62 * number, level)
                circle(*centre, 0.27, filled(chapter))
                ink = "white" if filled(chapter) else RIGHT
                ax.text(*centre, str(chapter), ha="center", va="center_baseline", size=8, weight="bold", color=ink)
            if place:
                upwards(x + width / 2, y - 0.36, y - 0.08)
        return [bottom + step * place + height / 2 for place in range(len(boxes))] + [bottom + step * len(boxes) - _GAP]

    layers = 0.85 + 2 * step + 0.49  # where the first layer's lowest box stands
    for x, words in ((left, "the sentence to translate"), (right, "the translation so far")):
        ax.text(x + width / 2, 0.18, words, ha="center", va="center", size=9, style="italic")
        upwards(x + width / 2, 0.42, 0.76)
        *_, top = stack(x, 0.85, INPUT, "input")
        upwards(x + width / 2, top + 0.09, layers - 0.12)

    *_, encoder_top = stack(left, layers, ENCODER_LAYER, "layer")
    *middles, decoder_top = stack(right, layers, DECODER_LAYER, "layer")
    for x, name, top in ((left, "Encoder × N", encoder_top), (right, "Decoder × N", decoder_top)):
        frame(x, layers - 0.3, top + 0.39)
        ax.text(x - 0.4, top + 0.64, name, weight="bold", size=10)

    # The encoder's result goes over its frame and into the cross-attention.
    way = left + width + 1.5
    start, over, level = encoder_top + 0.08, encoder_top + 1.24, middles[2]
    ax.plot([left + width / 2] * 2 + [way] * 2, [start, over, over, level], color=INK, linewidth=1, linestyle="-")
    arrow((way, level), (right - 0.08, level))
    ax.text((left + width / 2 + way) / 2, over + 0.12, "memory", ha="center", va="bottom", size=9, style="italic")

    output = decoder_top + 1.69
    upwards(right + width / 2, decoder_top + 0.08, output - 0.1)
    *_, top = stack(right, output, OUTPUT, "output")
    upwards(right + width / 2, top + 0.09, top + 0.55)
    ax.text(right + width / 2, top + 0.8, "the next word", ha="center", va="center", size=9, style="italic")

    ax.text(0.6, top + 0.8, "number = chapter that builds the piece", size=9, va="center")
    if written is not None:
        for below, full, words in ((0.7, True, "written"), (1.4, False, "not yet written")):
            circle(0.9, top + 0.8 - below, 0.24, full)
            ax.text(1.4, top + 0.8 - below, words, size=9, va="center")

    ax.set(xlim=(0.4, right + width + 0.7), ylim=(0, top + 1.1), aspect="equal")
    ax.axis("off")
