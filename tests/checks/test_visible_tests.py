"""The visible tests of a stub, on the bank's implementations: right ones pass, and a common slip is told by its own name."""

from __future__ import annotations

import math

import jupytext
import pytest
import torch
from torch import Tensor, nn

from tests.bank import entries, load
from transformer_lab.pieces import COURSE_ROOT

SLIPS = {
    "batches-strict": "Two rows of 5 are 10 tokens",
    "batches-real-tokens": "padding counts",
    "batches-as-they-come": "taken as they come",
    "batches-as-they-come-by-the-last": "taken as they come",
    "batches-lengths": "the indices",
    "accumulate-mean-of-means": "counts by its tokens",
    "accumulate-sum-of-means": "sum of the two parts' means",
    "accumulate-sum": "gradient of the sum",
    "accumulate-over-parts": "divided by the number of parts",
    "accumulate-not-emptied": "Empty them first",
    "accumulate-emptied-each-time": "Only the last part counts",
    "accumulate-no-part-divides": "but a ZeroDivisionError came",
    "accumulate-unused-not-expected": "Divide those that there are",
    "cache-no-scale": "not divided at all",
    "cache-over-width": "divided by K:",
    "cache-all-open": "its future",
    "cache-edge-left": "too far left",
    "cache-after-softmax": "add up to 1",
    "cache-even": "the mean of what is closed",
    "cache-mask-bare": "its row of the mask",
    "cache-masked-values-kept-out-of-the-cache": "real or not",
}


def tried(entry) -> str:
    """What the visible test of an implementation's piece says; empty where it passes."""
    notebook = jupytext.read(next((COURSE_ROOT / "solutions").glob("10_*.md")))
    source = next(
        cell.source
        for cell in notebook.cells
        if cell.metadata.get("nbgrader", {}).get("grade_id") == f"test_{entry.piece}"
    )
    given = getattr(load(entry), entry.piece)
    try:
        exec(source, {"math": math, "torch": torch, "Tensor": Tensor, "nn": nn, entry.piece: given})
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("piece", ["batches_by_tokens", "accumulate", "attend_with_cache"])
def test_right_ones_pass(piece):
    said = {entry.id: tried(entry) for entry in entries(piece, "right")}
    assert said
    assert not any(said.values()), said


@pytest.mark.parametrize(("name", "words"), SLIPS.items())
def test_a_slip_is_told_by_its_name(name, words):
    entry = next(entry for entry in entries(verdict="wrong") if entry.id == name)
    assert words in tried(entry)
