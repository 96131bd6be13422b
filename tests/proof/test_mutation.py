"""The mutation tool: it makes mutants, sees which are killed, survives those that loop or eat memory, and holds its list."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import pytest

from autograder import registry, runner
from tests.proof import mutation
from tests.proof.mutation import Equivalent, Mutant, Verdict
from transformer_lab import results

PIECE = "causal_mask"
HEAD = "def causal_mask(size):\n"


@pytest.fixture(scope="module")
def found():
    return mutation.mutants(PIECE)


@pytest.fixture(scope="module")
def pool():
    with mutation.workers(1) as pool:
        yield pool


def verdict_here(mutant):
    by, seeds = mutation.hidden(mutant.piece, mutant.source)
    return Verdict(seeds == len(mutation.SEEDS), by, seeds)


# ------------------------------------------------------------------------------------------------------------- mutants


def test_mutants_are_of_the_answer_and_each_is_another(found):
    changes = {mutant.becomes for mutant in found}
    assert "return torch.ones(size, size, dtype=None).tril()" in changes
    assert "return torch.ones(size, dtype=torch.bool).tril()" in changes
    assert len({mutant.source for mutant in found}) == len(found)
    assert {mutant.line for mutant in found} == {"return torch.ones(size, size, dtype=torch.bool).tril()"}


def test_every_piece_has_an_answer_to_mutate_and_visible_tests():
    for piece in registry.pieces():
        assert "### BEGIN SOLUTION" in mutation.cell_of(piece, piece).source
        assert "assert" in mutation.cell_of(piece, f"test_{piece}").source


def test_what_stands_outside_the_solution_is_left_alone():
    source = "def f(a=1):\n    ### BEGIN SOLUTION\n    return a + 1\n    ### END SOLUTION\n"
    assert mutation._answer_lines(source) == {2, 3}
    assert {mutant.line for mutant in mutation.mutants("LayerNorm")}.isdisjoint({"super().__init__()"})


def test_a_line_is_named_without_its_comment_and_place():
    before, after = "x = 1\n    y = 2  # (L, 1)\nz", "x = 1\n    y = 3  # (L, 1)\nz"
    assert mutation._difference(before, after) == ("y = 2", "y = 3")


# ------------------------------------------------------------------------------------------------------------- verdicts


def test_the_mutants_are_killed_and_the_answer_is_not(pool, found):
    verdicts = [pool.submit(mutation.judge, PIECE, mutant.source).result() for mutant in found]
    assert all(verdict.killed and verdict.visible and not verdict.timeout for verdict in verdicts)
    assert {verdict.by for verdict in verdicts} <= {check.name for check in registry.checks(piece=PIECE)}
    assert pool.submit(mutation.judge, PIECE, mutation.cell_of(PIECE, PIECE).source).result() == Verdict(False)


def test_a_mutant_that_never_ends_is_killed(pool):
    source = f"{HEAD}    while True:\n        pass\n"
    verdict = pool.submit(mutation.judge, PIECE, source, seconds=1).result()
    assert (verdict.killed, verdict.timeout, verdict.visible) == (True, True, True)


def test_a_mutant_that_sleeps_is_ended_by_the_clock(pool):
    begin = time.monotonic()
    stopped = pool.submit(mutation.limited, time.sleep, 60, clock=0.5).exception()
    assert isinstance(stopped, mutation.Stopped)
    assert stopped.timeout
    assert time.monotonic() - begin < 30


def test_a_mutant_that_eats_memory_is_killed(pool):
    source = f"{HEAD}    return torch.ones(2**20 * size, 2**12).tril()\n"
    verdict = pool.submit(mutation.judge, PIECE, source).result()
    assert verdict.killed
    assert not verdict.timeout


def test_a_mutant_that_ends_its_process_is_killed(pool):
    verdict = pool.submit(mutation.judge, PIECE, f"{HEAD}    import os\n    os._exit(3)\n").result()
    assert verdict.killed
    assert "3" in verdict.by


def test_a_mutant_that_is_no_definition_is_killed():
    assert mutation.hidden(PIECE, "raise ValueError") == (registry.checks(piece=PIECE)[0].name, len(mutation.SEEDS))


def test_a_mutant_must_lose_points_with_every_seed(monkeypatch):
    real = runner.first_failure
    monkeypatch.setattr(runner, "first_failure", lambda names, piece, seed: real(names, piece, seed) if seed else "")
    mutant = mutation.mutants(PIECE)[0]
    verdict = verdict_here(mutant)
    assert (verdict.killed, verdict.seeds) == (False, len(mutation.SEEDS) - 1)
    (sentence,) = mutation.complaints({mutant: verdict}, [])
    assert "2 of 3 seeds" in sentence


def test_a_mutant_survives_without_the_checks_that_kill_it_and_is_reported(monkeypatch):
    mutant = next(m for m in mutation.mutants("TransformerEmbedding") if m.becomes.endswith("persistent=True)"))
    checks, dropped = registry.checks(), 0
    while (verdict := verdict_here(mutant)).killed:
        checks, dropped = [check for check in checks if check.name != verdict.by], dropped + 1
        monkeypatch.setattr(registry, "_checks", checks)
    assert 1 <= dropped < dropped + len(registry.checks(piece=mutant.piece))
    (sentence,) = mutation.complaints({mutant: verdict}, [])
    assert "survives unexplained" in sentence
    assert f"+ {mutant.becomes}" in sentence


# ------------------------------------------------------------------------------------------------------------- the list

MUTANT = Mutant(PIECE, "a", "b", "source")
LISTED = Equivalent(PIECE, "a", ("b",), "It is the same thing.")


def test_a_listed_survivor_is_no_complaint():
    assert mutation.complaints({MUTANT: Verdict(False)}, [LISTED]) == []


@pytest.mark.parametrize(
    ("verdict", "listed", "word"),
    [
        (Verdict(True, "some_check", 3), [LISTED], "is killed by some_check"),
        (Verdict(False), [LISTED, replace(LISTED, becomes=("c",))], "is no mutant any more"),
        (Verdict(False), [LISTED, LISTED], "more than once"),
    ],
)
def test_a_stale_entry_is_reported(verdict, listed, word):
    assert word in " ".join(mutation.complaints({MUTANT: verdict}, listed))


def test_entries_of_pieces_that_were_not_surveyed_are_left_alone():
    assert mutation.complaints({MUTANT: Verdict(True)}, [replace(LISTED, piece="softmax")]) == []


def test_an_entry_needs_a_reason(tmp_path):
    path = tmp_path / "list.toml"
    path.write_text('[[mutants]]\npiece = "a"\nline = "b"\nbecomes = ["c"]\nreason = "no"\n')
    with pytest.raises(ValueError, match="why"):
        mutation.equivalents(path)


def test_what_is_listed_is_there_and_survives():
    for entry in mutation.equivalents():
        named = [m for m in mutation.mutants(entry.piece) if m.line == entry.line and m.becomes in entry.becomes]
        assert {mutant.becomes for mutant in named} == set(entry.becomes)
        assert not any(verdict_here(mutant).seeds for mutant in named)


# ----------------------------------------------------------------------------------------------------------- the result


def test_verdicts_are_kept_until_something_changes(tmp_path, monkeypatch, found, pool):
    monkeypatch.setattr(mutation, "FOLDER", tmp_path)
    monkeypatch.setattr(mutation, "workers", lambda jobs: contextlib.nullcontext(pool))
    first = mutation.survey(found[:2], jobs=1)
    monkeypatch.setattr(mutation, "workers", lambda jobs: pytest.fail("judged again"))
    assert mutation.survey(found[:2], jobs=1) == first
    monkeypatch.setattr(mutation, "_state", lambda piece: "something else")
    with pytest.raises(pytest.fail.Exception, match="judged again"):
        mutation.survey(found[:2], jobs=1)


def test_rows_count_what_became_of_the_mutants():
    others = [replace(MUTANT, becomes=text) for text in "cdef"]
    verdicts = dict(
        zip(
            [MUTANT, *others],
            [
                Verdict(False),
                Verdict(True, "x", 3, False, True),
                Verdict(True, "late", 3, True),
                Verdict(False, "x", 1),
            ],
            strict=False,
        )
    )
    (row,) = mutation.rows(verdicts, [LISTED])
    assert row == {
        "chapter": 7,
        "piece": PIECE,
        "mutants": 4,
        "killed": 2,
        "timeouts": 1,
        "equivalent": 1,
        "survived": 1,
        "killed_by_visible_tests": 1,
    }
    assert mutation.score(row) == pytest.approx(2 / 3)


def test_the_committed_result_is_complete_and_nothing_survived():
    table = results.load("mutation").select()
    assert [row["piece"] for row in table] == registry.pieces()
    for row in table:
        assert row["mutants"] == len(mutation.mutants(row["piece"]))
        assert row["survived"] == 0
        assert row["killed"] + row["equivalent"] == row["mutants"]
