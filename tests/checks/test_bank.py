"""The hidden checks and the diagnoses, held against every known wrong and right implementation."""

import functools

import pytest

import autograder
from autograder import registry
from tests.bank import entries, load

SEEDS = (0, 1)
#: Looking for the known mistake takes longer than the checks: done for this seed only, and for more in the long tests.
DIAGNOSED = 0
MANY_SEEDS = range(200)


@functools.cache
def judged(entry, seed):
    return autograder.run_checks(load(entry), piece=entry.piece, seed=seed, diagnosing=seed == DIAGNOSED)


@pytest.mark.parametrize("entry", entries(verdict="right"), ids=lambda entry: entry.id)
def test_a_right_implementation_keeps_every_point(entry):
    for seed in SEEDS:
        assert [(r.check, r.message) for r in judged(entry, seed) if r.message] == []


@pytest.mark.parametrize("entry", entries(verdict="wrong"), ids=lambda entry: entry.id)
def test_a_wrong_implementation_loses_points_and_is_named_rightly_or_not_at_all(entry):
    for seed in SEEDS:
        results = judged(entry, seed)
        assert sum(r.earned for r in results) < sum(r.points for r in results)
        named = {r.diagnosis.id for r in results if r.diagnosis}
        assert named <= {entry.misconception}, named


@pytest.mark.parametrize("piece", registry.pieces())
def test_most_known_mistakes_are_named(piece):
    known = [entry for entry in entries(piece, "wrong") if entry.misconception]
    named = [entry for entry in known if any(r.diagnosis for r in judged(entry, DIAGNOSED))]
    missed = [entry.id for entry in known if entry not in named]
    assert len(named) >= 0.85 * len(known), missed


@pytest.mark.long
@pytest.mark.parametrize("entry", entries(verdict="wrong"), ids=lambda entry: entry.id)
def test_a_mistake_is_never_named_wrongly(entry):
    for seed in range(1, 6):
        results = autograder.run_checks(load(entry), piece=entry.piece, seed=seed)
        assert {r.diagnosis.id for r in results if r.diagnosis} <= {entry.misconception}, seed


@pytest.mark.long
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_the_verdict_does_not_depend_on_the_seed(entry):
    for seed in MANY_SEEDS:
        results = autograder.run_checks(load(entry), piece=entry.piece, seed=seed, diagnosing=False)
        lost = [r for r in results if not r.passed]
        assert bool(lost) == (entry.verdict == "wrong"), seed
