"""The timing of recurrence and attention: what is counted, and that the committed times are of this code's kind."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from transformer_lab import results
from transformer_lab.measurements import recurrence

FILES = sorted(path.stem for path in results.FOLDER.glob("recurrence-*.json"))


@pytest.mark.parametrize("layer", recurrence.LAYERS)
def test_multiplications_are_those_of_the_matrix_products(layer):
    """Counted by PyTorch on tensors without data, for a length and a width that differ."""
    length, width = 7, 12
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        recurrence.make(layer, width)(torch.empty(1, length, width))
    assert counter.get_total_flops() == 2 * recurrence.multiplications(layer, length, width)


@pytest.mark.parametrize("layer", recurrence.LAYERS)
def test_a_training_pass_reaches_input_and_parameters(layer):
    module, x = recurrence.make(layer, 6), torch.randn(1, 5, 6, requires_grad=True)
    recurrence.run(module, x, "forward")
    assert x.grad is None
    recurrence.run(module, x, "training")
    assert x.grad is not None
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_there_are_times_of_a_cpu():
    assert "recurrence-cpu" in FILES


@pytest.mark.parametrize("name", FILES)
def test_the_rows_are_complete(name):
    result = results.load(name)
    threads = {row["threads"] for row in result.select()}
    assert len(result.rows) == len(recurrence.LAYERS) * len(recurrence.LENGTHS) * len(recurrence.PHASES) * len(threads)
    for row in result.select():
        assert row["multiplications"] == recurrence.multiplications(row["layer"], row["length"], row["width"])
        assert 0 < row["seconds"] <= row["median_seconds"]


def test_a_small_slice_measured_again_grows_alike():
    """From 64 to 512 steps a recurrence takes about eight times as long, here as in the file."""
    short, long = 64, 512
    rows = recurrence.measure(lengths=(short, long), repeats=3)
    committed = results.load("recurrence-cpu").select(threads=1)
    assert list(rows[0]) == list(committed[0])

    def growth(table, layer):
        seconds = {
            row["length"]: row["seconds"] for row in table if row["layer"] == layer and row["phase"] == "forward"
        }
        return seconds[long] / seconds[short]

    for layer in recurrence.LAYERS:
        ours, theirs = growth(rows, layer), growth(committed, layer)
        assert 1 / 3 < ours / theirs < 3, f"{layer}: {ours:.1f} times as long, {theirs:.1f} times in the file"
