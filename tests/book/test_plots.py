"""The figure style: what it prints, what it refuses, and that it reads without colour."""

from __future__ import annotations

import math

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from transformer_lab import plots


@pytest.fixture(autouse=True)
def _fresh_style():
    with matplotlib.rc_context():
        plots.style()
        yield
    plt.close("all")


def printed(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.126, 2, "0.13"),
        (-0.5, 1, "−0.5"),
        (-0.001, 2, "0.00"),
        (math.inf, 2, "∞"),
        (-math.inf, 2, "−∞"),
        (math.nan, 2, "NaN"),
        (3, 0, "3"),
    ],
)
def test_numbers_are_printed_as_a_reader_expects(value, digits, text):
    assert plots.number(value, digits) == text


def test_a_small_heat_map_prints_its_numbers_and_a_large_one_does_not():
    small, large = plots.figure(columns=2)
    plots.heatmap(small, torch.tensor([[1.0, -2.0], [0.25, 0.0]]), ["a", "b"], ["c", "d"])
    plots.heatmap(large, np.ones((20, 30)))
    assert printed(small) == ["1.00", "−2.00", "0.25", "0.00"]
    assert [label.get_text() for label in small.get_xticklabels()] == ["c", "d"]
    assert [label.get_text() for label in small.get_yticklabels()] == ["a", "b"]
    assert printed(large) == []


def test_infinite_scores_are_hatched_and_named():
    ax = plots.figure()
    plots.heatmap(ax, [[0.5, -math.inf], [math.nan, 1.0]])
    assert printed(ax) == ["0.50", "−∞", "NaN", "1.00"]
    assert sum(bool(patch.get_hatch()) for patch in ax.patches) == 2


def test_a_matrix_of_nothing_but_infinity_can_be_drawn():
    ax = plots.figure()
    plots.heatmap(ax, np.full((2, 2), -np.inf))
    ax.figure.canvas.draw()
    assert printed(ax) == ["−∞"] * 4


@pytest.mark.parametrize(
    ("shape", "rows", "columns"), [((2, 3), ["a"], None), ((2, 3), None, ["a", "b"]), ((3,), None, None)]
)
def test_what_does_not_fit_is_refused(shape, rows, columns):
    with pytest.raises(ValueError, match=r"labels|matrix"):
        plots.heatmap(plots.figure(), np.zeros(shape), rows, columns)


def test_zero_has_the_middle_colour_of_a_signed_map():
    ax = plots.figure()
    plots.heatmap(ax, [[-1.0, 4.0]])
    assert ax.images[0].get_clim() == (-4.0, 4.0)
    assert plots.SIGNED(0.5)[:3] == pytest.approx((1, 1, 1), abs=0.02)


def lightness(colour) -> float:
    return plots._lightness(to_rgb(colour))


@pytest.mark.parametrize("colours", [plots.AMOUNT, plots.SIGNED_DENSE])
def test_dense_maps_read_in_black_and_white(colours):
    """From one end to the other the map grows only lighter, or only darker."""
    steps = np.diff([plots._lightness(colours(x)) for x in np.linspace(0, 1, 50)])
    assert (steps > 0).all() or (steps < 0).all()


@pytest.mark.parametrize("colours", [plots.AMOUNT, plots.SIGNED])
def test_printed_numbers_can_be_read_on_every_cell(colours):
    """Contrast of at least 4.5 to 1 between a number and its cell, as WCAG 2 computes it."""

    def luminance(colour):
        return plots._lightness(colour) ** 2.5

    for x in np.linspace(0, 1, 101):
        cell = colours(x)
        ink = to_rgb("white" if plots._is_dark(cell) else "black")
        light, dark = sorted((luminance(cell), luminance(ink)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{colours.name} at {x:.2f}"


def test_right_and_wrong_differ_by_more_than_colour():
    right, wrong = plots.side_by_side("so", "not so")
    assert right.get_title(loc="left").startswith("✓")
    assert wrong.get_title(loc="left").startswith("✗")


def test_lines_differ_by_more_than_colour():
    ax = plots.figure()
    plots.lines(ax, [0, 1, 2], {"one": [0, 1, 2], "two": [0, 2, 4], "three": [0, 2, 4.01]})
    assert (
        len({line.get_linestyle() for line in ax.lines}) == 3
        or len({str(line._dash_pattern) for line in ax.lines}) == 3
    )
    assert sorted(printed(ax)) == ["one", "three", "two"]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        ax = plots.figure()
        plots.heatmap(ax, [[1.0, -math.inf]])
        ax.figure.savefig(tmp_path / f"{name}.svg", metadata={"Date": None})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
