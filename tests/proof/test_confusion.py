"""The table of known mistakes and diagnoses: what it counts, and that a wrong name is a fault."""

from __future__ import annotations

import functools

import pytest

from autograder import diagnose, registry
from tests.bank import entries, load
from tests.proof import confusion
from tests.proof.confusion import NAMED, UNKNOWN, UNNAMED, WRONGLY
from transformer_lab import results


def entry(piece: str, name: str):
    return next(entry for entry in entries(piece, "wrong") if entry.id == name)


def test_a_row_says_what_is_lost_and_what_it_is_called():
    inverted = entry("padding_mask", "padding-inverted")
    row = confusion.row(inverted)
    assert (row["expected"], row["given"], row["diagnosis"]) == ("mask-inverted", ["mask-inverted"], NAMED)
    assert 0 < row["lost"] <= row["points"]
    assert 0 < row["explained"] <= row["failed"] <= row["checks"]
    assert row["chapter"] == 7


def test_another_mistakes_name_is_a_fault(capsys):
    """The code of one entry under the label of another, as a wrong diagnosis would be."""
    row = confusion.row(
        entry("padding_mask", "padding-inverted"), namespace=load(entry("padding_mask", "padding-numbers"))
    )
    assert row["diagnosis"] == WRONGLY
    confusion.show([row])
    shown = capsys.readouterr().out
    assert "wrongly named: padding-inverted, mask-inverted, given numbers-for-booleans" in shown


def test_no_name_is_no_fault_and_a_name_where_none_fits_is():
    assert confusion._verdict("a", []) == UNNAMED
    assert confusion._verdict("a", ["a"]) == NAMED
    assert confusion._verdict("a", ["a", "b"]) == WRONGLY
    assert confusion._verdict(None, []) == UNKNOWN
    assert confusion._verdict(None, ["b"]) == WRONGLY


def test_workers_find_what_one_process_finds():
    chosen = entries("causal_mask", "wrong")[:4]
    alone = confusion.rows(chosen)
    assert confusion.rows(chosen, jobs=2) == alone
    assert [row["entry"] for row in alone] == [entry.id for entry in chosen]


def test_shares_are_of_the_mistakes_that_have_a_name():
    rows = [{"piece": "a", "diagnosis": kind} for kind in (NAMED, NAMED, UNNAMED, UNKNOWN, WRONGLY)]
    counts = confusion.shares(rows, "piece")["a"]
    assert counts == {NAMED: 2, WRONGLY: 1, UNNAMED: 1, UNKNOWN: 1}
    assert confusion.share(counts) == 0.5


def test_every_label_of_the_bank_is_the_name_of_a_known_mistake():
    for piece in registry.pieces():
        known = {mistake.id for mistake in registry.misconceptions(piece)}
        assert {e.misconception for e in entries(piece, "wrong")} - {None} <= known, piece


def test_the_committed_table_names_none_wrongly():
    table = results.load("confusion").select()
    assert {row["diagnosis"] for row in table} <= {NAMED, UNNAMED, UNKNOWN}
    assert all(row["lost"] > 0 for row in table)
    for chapter, counts in confusion.shares(table, "chapter").items():
        assert confusion.share(counts) >= 0.85, chapter
    assert {row["entry"] for row in table} <= {e.id for e in entries(verdict="wrong")} or pytest.fail(
        "results/confusion.json tells of entries that the bank has no more: make confusion"
    )


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """Mistakes' failures are read from files that the processes of a grader share, as it is when a class is graded."""
    monkeypatch.setattr(diagnose, "_shared", None)
    diagnose._failure.cache_clear()
    yield lambda: diagnose.share(tmp_path)
    diagnose._failure.cache_clear()


def test_each_known_mistake_has_a_file_of_its_own(shared):
    shared()
    rerun = functools.partial(print, registry.checks()[0], 0)
    known = registry.misconceptions()
    assert len({diagnose._place(one, rerun, False) for one in known}) == len(known) > 300


@pytest.mark.parametrize("piece", ["diagnosis", "batches_by_tokens", "causal_mask"])
def test_what_processes_share_changes_no_diagnosis(piece, shared):
    chosen = entries(piece, "wrong")
    alone = confusion.rows(chosen)
    shared()
    for _ in range(2):  # the one who writes, and then the one who reads
        diagnose._failure.cache_clear()
        assert confusion.rows(chosen) == alone
