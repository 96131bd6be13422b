"""The one style of the course's figures.

    from transformer_lab import plots

    plots.style()                                           # once, in a page's first cell
    axes = plots.figure(width=4.5, height=3.6)
    plots.heatmap(axes, weights, SENTENCE, SENTENCE)

Figures are vector graphics on white; the book turns them dark with the page. They read without colour too: lines differ
in dashes as well as in hue, small heat maps print their numbers, and large ones run from dark to light.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import Rectangle

#: Hues that people with any colour vision tell apart (Okabe & Ito 2008), ordered so that neighbours differ in lightness.
COLOURS = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "sky": "#56b4e9",
    "purple": "#cc79a7",
}
RIGHT, WRONG = COLOURS["blue"], COLOURS["vermilion"]
INK, FAINT = "#1f2328", "#8b949e"

_DASHES = ["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (3, 3))]

#: From nothing (white) to all (dark blue): weights, counts, sizes.
AMOUNT = LinearSegmentedColormap.from_list("amount", ["#ffffff", "#c9dff0", "#6aa9d6", "#1f6db0", "#08306b"])
#: Negative orange, zero white, positive blue: signed numbers that are printed in their cells.
SIGNED = LinearSegmentedColormap.from_list("signed", ["#a04b00", "#e8a04a", "#ffffff", "#6aa9d6", "#0a4a86"])
#: Signed numbers that are not printed: darkness alone must tell −1 from +1.
SIGNED_DENSE = mpl.colormaps["cividis"]

#: A heat map with more cells than this prints no numbers unless told to.
MOST_PRINTED = 64


def style() -> None:
    """Set the course's look for every figure that follows, as SVG where the figures are shown in a notebook."""
    mpl.rcParams.update(
        {
            "figure.facecolor": "white",
            "figure.dpi": 96,
            "figure.figsize": (6.4, 3.2),
            "figure.constrained_layout.use": True,
            "font.family": "DejaVu Sans",
            "font.size": 10,
            "mathtext.fontset": "dejavusans",
            "text.color": INK,
            "axes.titlesize": 10.5,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.titlepad": 8,
            "axes.labelsize": 10,
            "axes.labelcolor": INK,
            "axes.edgecolor": FAINT,
            "axes.linewidth": 0.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "axes.prop_cycle": cycler(color=list(COLOURS.values())) + cycler(linestyle=_DASHES),
            "axes.unicode_minus": True,
            "grid.color": "#d8dee4",
            "grid.linewidth": 0.6,
            "xtick.color": INK,
            "ytick.color": INK,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "xtick.major.size": 3,
            "ytick.major.size": 3,
            "lines.linewidth": 1.8,
            "lines.markersize": 5,
            "legend.frameon": False,
            "legend.fontsize": 9,
            "hatch.linewidth": 0.6,
            "svg.fonttype": "path",  # the same letters on every machine
            "svg.hashsalt": "transformer, piece by piece",  # the same bytes on every build
        }
    )
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})


def figure(width: float = 6.4, height: float = 3.2, **subplots: Any) -> Any:
    """The axes of a new figure of ``width`` × ``height`` inches; ``rows`` and ``columns`` of them as from ``plt.subplots``.

    A page's column holds 7 inches; 4.5 and less stay legible on a phone.
    """
    rows, columns = subplots.pop("rows", 1), subplots.pop("columns", 1)
    _, axes = plt.subplots(rows, columns, figsize=(width, height), **subplots)
    return axes


def side_by_side(right: str, wrong: str, width: float = 6.8, height: float = 3.2, **subplots: Any) -> tuple[Axes, Axes]:
    """Two panels for one thing done right and done wrong, titled so that nobody copies the wrong one.

    Parameters
    ----------
    right, wrong
        What each panel shows, in a few words.
    subplots
        Handed on to ``plt.subplots``; ``sharex=True, sharey=True`` unless told otherwise.

    Returns
    -------
    The axes of the right panel (on the left) and of the wrong one.
    """
    options = {"sharex": True, "sharey": True, **subplots}
    right_axes, wrong_axes = figure(width, height, columns=2, **options)
    right_axes.set_title(f"✓ {right}", color=RIGHT)
    wrong_axes.set_title(f"✗ {wrong}", color=WRONG)
    return right_axes, wrong_axes


def heatmap(
    ax: Axes,
    matrix: Any,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    values: bool | None = None,
    *,
    signed: bool | None = None,
    limits: tuple[float, float] | None = None,
    digits: int = 2,
    rows: str = "",
    columns: str = "",
) -> None:
    """Draw ``matrix`` (R, C), any array or tensor, one square per number, row 0 at the top.

    Parameters
    ----------
    row_labels, column_labels
        R and C short texts, or None for none.
    values
        Print the numbers in the cells; None prints them when there are at most 64.
    signed
        Colour by sign around zero; None does so when a number is negative.
    limits
        The numbers that get the ends of the colour scale; None takes them from the matrix. Give the same to two maps
        that are to be compared.
    digits
        Decimal places of the printed numbers.
    rows, columns
        What a row and a column stand for: the axes' labels.

    A cell of −∞ is hatched and says so, and so is one that is not a number.

    Raises
    ------
    ValueError
        ``matrix`` is not two-dimensional, or a list of labels has another length than its axis.
    """
    array = _array(matrix)
    if array.ndim != 2:
        raise ValueError(f"A heat map shows a matrix, not an array of shape {array.shape}.")
    for labels, size, name in ((row_labels, array.shape[0], "row"), (column_labels, array.shape[1], "column")):
        if labels is not None and len(labels) != size:
            raise ValueError(f"{len(labels)} {name} labels for {size} {name}s.")

    finite = array[np.isfinite(array)]
    printed = array.size <= MOST_PRINTED if values is None else values
    signed = bool((finite < 0).any()) if signed is None else signed
    low, high = limits or _limits(finite, signed)
    colours = (SIGNED if printed else SIGNED_DENSE) if signed else AMOUNT
    norm = Normalize(low, high, clip=True)
    ax.imshow(np.ma.masked_invalid(array), cmap=colours, norm=norm, interpolation="nearest", aspect="auto")

    for row, column in np.argwhere(~np.isfinite(array)):
        corner = (column - 0.5, row - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, facecolor="#eceff2", edgecolor=FAINT, hatch="////", linewidth=0))
    if printed:
        size = _text_size(ax, array.shape)
        for (row, column), value in np.ndenumerate(array):
            dark = np.isfinite(value) and _is_dark(colours(norm(value)))
            box = None if np.isfinite(value) else {"facecolor": "#eceff2", "edgecolor": "none", "pad": 1.2}
            text = number(value, digits)
            ax.text(
                column, row, text, ha="center", va="center", size=size, color="white" if dark else "black", bbox=box
            )

    for spine in ax.spines.values():
        spine.set_visible(True)
    ax.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    ax.xaxis.set_label_position("top")
    _name_ticks(ax.xaxis, column_labels, array.shape[1])
    _name_ticks(ax.yaxis, row_labels, array.shape[0])
    if array.size <= 4 * MOST_PRINTED:  # white seams, as between tiles
        ax.set_xticks(np.arange(0.5, array.shape[1] - 1), minor=True)
        ax.set_yticks(np.arange(0.5, array.shape[0] - 1), minor=True)
        ax.grid(True, which="minor", color="white", linewidth=1.2)
        ax.tick_params(which="minor", length=0)
    if rows:
        ax.set_ylabel(rows)
    if columns:
        ax.set_xlabel(columns)


def lines(ax: Axes, x: Any, series: Mapping[str, Any], *, markers: bool = False) -> None:
    """Draw every y of ``series`` (its name → numbers, as many as ``x``) and write its name at the line's end."""
    x = _array(x)
    ends = []
    for (name, y), marker in zip(series.items(), "osD^vP" * len(series), strict=False):
        y = _array(y)
        ax.plot(x, y, marker=marker if markers else "")
        ends.append((float(y[-1]), name))
    bottom, top = ax.get_ylim()
    gap = 0.075 * (top - bottom)
    level = -math.inf
    for y_end, name in sorted(ends):  # from below, each at least a line's height above the last
        level = max(y_end, level + gap)
        ax.annotate(
            name, (x[-1], y_end), (6, 0), xycoords="data", textcoords="offset points", va="center", size=9
        ).set_y((level - y_end) / (top - bottom) * ax.get_window_extent().height * 72 / ax.figure.dpi)


def names_at_ends(ax: Axes, ends: Mapping[str, tuple[float, float, Any]], apart: float) -> None:
    """Write each name at its line's end, given as x, y and colour; each at least ``apart``, in units of y, below the last."""
    level = math.inf
    for name, (x, y, colour) in sorted(ends.items(), key=lambda item: -item[1][1]):
        level = min(y, level - apart)
        ax.annotate(
            name,
            (x, level),
            (6, 0),
            textcoords="offset points",
            va="center",
            size=9,
            color=colour,
            annotation_clip=False,
        )


def colourbar(ax: Axes, label: str = "") -> None:
    """A colour scale beside a heat map whose numbers are not printed."""
    bar = ax.figure.colorbar(ax.images[-1], ax=ax, shrink=0.85, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    if label:
        bar.set_label(label)


def number(value: float, digits: int = 2) -> str:
    """``value`` as the figures print it: −∞, NaN, a true minus sign, and no sign before a zero."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


# --------------------------------------------------------------------------------------------------------------------


def _array(values: Any) -> np.ndarray:
    detach = getattr(values, "detach", None)
    return np.asarray(detach().cpu().double() if detach else values, dtype=float)


def _limits(finite: np.ndarray, signed: bool) -> tuple[float, float]:
    if finite.size == 0:
        return 0.0, 1.0
    if signed:
        reach = float(np.abs(finite).max()) or 1.0
        return -reach, reach
    return 0.0, float(finite.max()) or 1.0


def _lightness(colour: tuple[float, ...]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) ** 0.4


def _is_dark(colour: tuple[float, ...]) -> bool:
    """White letters have more contrast with ``colour`` than black ones."""
    return _lightness(colour) < 0.502


def _text_size(ax: Axes, shape: tuple[int, ...]) -> float:
    """A size at which five characters fit a cell, between 6 and 10 points."""
    box = ax.get_window_extent()
    cell = min(box.width / shape[1] / 3.4, box.height / shape[0] / 1.3) * 72 / ax.figure.dpi
    return float(np.clip(cell, 6.0, 10.0))


def _name_ticks(axis: Any, labels: Sequence[str] | None, size: int) -> None:
    if labels is None and size > MOST_PRINTED // 4:
        return  # matplotlib's own numbers
    axis.set_ticks(range(size), labels if labels is not None else [str(index) for index in range(size)])
