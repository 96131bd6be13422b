"""The figures of the training lab: what they count and compute, apart from how they look."""

from __future__ import annotations

import matplotlib
import pytest
import torch
from matplotlib.text import Text

matplotlib.use("Agg")

from transformer_lab import costs, translation
from transformer_lab import lab_figures as drawn
from transformer_lab.measurements.bench import model_flops


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.findobj(Text)]


def bench_row(part: str, name: str, speed: float, **further) -> dict:
    row = {
        "part": part, "name": name, "tokens_per_second": speed, "slowest": speed / 2, "fastest": 2 * speed,
        "memory_mb": 10.0, "padding": 0.25, "utilisation": 0.5, "loss_difference": 0.0, "gradient_difference": 0.0,
        "other_sentences": None,
    }  # fmt: skip
    return row | further


ROWS = [
    bench_row("training", "plain", 100.0),
    bench_row("training", "better", 250.0, memory_mb=None, gradient_difference=2e-6),
    bench_row("reference", "theirs", 50.0),
    bench_row("decoding", "greedy, without a cache", 10.0, other_sentences=0.0),
    bench_row("decoding", "greedy, with a cache", 60.0, other_sentences=0.0),
    bench_row("decoding", "beam of 4, without a cache", 10.0, other_sentences=0.01),
    bench_row("decoding", "beam of 4, with a cache", 40.0, other_sentences=0.01),
]


@pytest.mark.parametrize(("length", "vocabulary"), [(15, 446), (300, 1000)])
def test_the_parts_of_the_work_are_the_whole(length, vocabulary):
    config = translation.Config(d_model=24, num_heads=2, d_ff=56, num_layers=3)
    parts = drawn.work(config, vocabulary, length)
    assert 6 * sum(parts.values()) == model_flops(config, vocabulary, [length], [length])


def test_every_case_of_the_work_has_its_bar(ax):
    config = translation.Config()
    drawn.work_shares(ax, {"short": drawn.work(config, 400, 10), "long": drawn.work(config, 400, 4000)})
    assert {"short", "long"} <= set(texts(ax))
    assert len(ax.patches) == 8
    assert sum(patch.get_width() for patch in ax.patches) == pytest.approx(200)


def test_the_parts_of_a_step_are_all_there(ax):
    drawn.step(ax)
    assert set(drawn.STEP) | set(drawn.STEP.values()) <= set(texts(ax))


def test_the_share_of_padding():
    assert drawn.padding_share([5, 5]) == 0
    assert drawn.padding_share([2, 4]) == pytest.approx(0.25)


def test_padding_fills_what_a_batch_leaves_free(ax):
    drawn.padded(ax, [3, 5, 5], longest=8, rows=3)
    assert sorted(patch.get_width() for patch in ax.patches) == [2, 3, 5, 5]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_formats_are_those_of_pytorch(name):
    info = torch.finfo(getattr(torch, name))
    assert drawn.spacing(name) == info.eps
    assert drawn.largest(name) == info.max
    smallest = torch.tensor(drawn.smallest(name), dtype=torch.float64)
    assert smallest.to(getattr(torch, name)) > 0
    assert (smallest / 4).to(getattr(torch, name)) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(65504.0, "65,504"), (6e-8, "6.0 · 10⁻⁸"), (3.4e38, "3.4 · 10³⁸"), (0.5, "0.5"), (0.0078125, "7.8 · 10⁻³")],
)
def test_powers_are_written_out(value, text):
    assert drawn._power(value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_gradients_keep_their_shape_when_scaled(ax):
    torch.manual_seed(0)
    drawn.gradient_sizes(ax, torch.randn(5000) * 1e-4, 1024)
    as_they_come, scaled = ([float(y) for y in line.get_ydata()] for line in ax.lines[:2])
    assert sum(as_they_come) == pytest.approx(100)
    assert sum(scaled) == pytest.approx(100)
    assert (
        max(range(len(scaled)), key=scaled.__getitem__) - max(range(len(as_they_come)), key=as_they_come.__getitem__)
        == 10
    )


def test_scores_outgrow_the_vectors_at_four_widths_of_a_head():
    assert drawn.score_bytes(1000, 4 * 64, 8) == drawn.vector_bytes(1000, 512)


@pytest.mark.parametrize("tokens", [1, 6, 20])
def test_a_cache_leaves_the_last_row(tokens):
    """Without a cache the work is that of all beginnings, with one that of the last row of each."""
    width = 8
    whole = [{"projections": t * 4 * width**2, "scores and sums": 2 * t * t * width} for t in range(1, tokens + 1)]
    plain, cached = (drawn.writing(tokens, width, cached) for cached in (False, True))
    assert sum(plain.values()) == sum(sum(each.values()) for each in whole)
    assert sum(cached.values()) == sum(sum(each.values()) // t for t, each in enumerate(whole, start=1))


def test_the_tables_of_the_bench():
    table = drawn.bench_table(ROWS)
    assert [row[0] for row in table[1:]] == ["plain", "better", "theirs"]
    assert table[2] == ["better", "250", "2.50", "–", "25.0", "50", "2e\N{NON-BREAKING HYPHEN}06"]
    assert {len(row) for row in table} == {len(table[0])}
    assert drawn.decoding_table(ROWS)[1:] == [
        ["greedy", "10", "60", "6.0", "none"],
        ["beam of 4", "10", "40", "4.0", "1.0 %"],
    ]


def test_the_staircase_has_a_bar_for_each_way_to_train(ax):
    drawn.staircase(ax, ROWS)
    assert [patch.get_width() for patch in ax.patches] == [100.0, 250.0, 50.0]
    assert {"1.00 ×", "2.50 ×", "0.50 ×", "theirs"} <= set(texts(ax))


def test_the_table_of_multi30k_names_seeds_where_there_are_several():
    row = {
        "model": "transformer", "seed": 0, "parameters": 1_730_000, "steps": 2000, "bleu_greedy": 35.04,
        "bleu_beam": 36.0, "bleu_lowercased": 35.2, "bleu_tokenised": 36.4, "chrf_greedy": 55.0,
    }  # fmt: skip
    (_, one) = drawn.multi30k_table([row])
    assert one == ["Transformer", "1.73 M", "2,000", "35.0", "36.0", "35.2", "36.4", "55.0"]
    names = [line[0] for line in drawn.multi30k_table([row, row | {"seed": 1}])[1:]]
    assert names == ["Transformer, seed 0", "Transformer, seed 1"]


def test_lines_of_communication_cross_computing_where_they_should(ax):
    gpu = costs.Gpu()
    drawn.communication(ax, 63e6, gpu)
    dots = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert len(dots) == len(drawn.LINKS)
    for dot in dots:
        (tokens,), (seconds,) = dot.get_xdata(), dot.get_ydata()
        assert costs.compute_seconds(63e6, tokens, gpu) == pytest.approx(seconds)


def test_the_costs_follow_the_assumed_gpu():
    cheap, dear = (drawn.costs_table(costs.Gpu(price=price)) for price in (1.0, 10.0))
    assert cheap[-1][0].startswith("price")
    assert float(dear[-1][2]) == pytest.approx(10 * float(cheap[-1][2]), rel=0.1)
    assert cheap[:-1] == dear[:-1]


def test_a_healthy_curve_has_its_two_levels(ax):
    drawn.healthy(ax, [{"step": n, "loss": 6 / n} for n in range(1, 20)], 5.0, 4.0)
    assert sorted(line.get_ydata()[0] for line in ax.lines[1:]) == [4.0, 5.0]
