"""The tasks: that the class is what it is said to be, that order alone decides where it should, and the best rule."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lab import sequences
from transformer_lab.measurements.classifier import statistics
from transformer_lab.sequences import PAD_ID, TASKS, Sequences

ORDERED = [task for task in TASKS.values() if task.ordered]
UNORDERED = [task for task in TASKS.values() if not task.ordered]
SEPARABLE = {"share", "first-motif"}
seeds = st.integers(0, 2**32 - 1)


def named(task) -> str:
    return task.name


def rows_of(drawn: Sequences) -> list[list[float]]:
    return [row[mask].tolist() for row, mask in zip(drawn.inputs, drawn.mask, strict=True)]


def test_every_task_is_there_once():
    assert list(TASKS) == ["share", "first-motif", "mean", "variance", "trend", "period", "lag"]
    assert {task.name for task in ORDERED} == {"first-motif", "trend", "period", "lag"}


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
@settings(max_examples=20)
@given(seed=seeds, count=st.integers(1, 40))
def test_a_sample_is_padded_behind_and_balanced(task, seed, count):
    drawn = task.sample(count, np.random.default_rng(seed))
    assert drawn.inputs.shape == drawn.mask.shape == (count, drawn.lengths.max())
    assert drawn.labels.shape == (count,)
    assert len(drawn) == count
    assert drawn.mask.dtype == torch.bool
    assert drawn.labels.dtype == torch.int64
    assert drawn.inputs.dtype == (torch.int64 if task.kind == "tokens" else torch.float32)
    assert set(drawn.lengths.tolist()) <= set(task.lengths)
    assert torch.equal(drawn.mask, torch.arange(drawn.mask.size(1)) < drawn.lengths[:, None]), "padding stands behind"
    assert not drawn.inputs[~drawn.mask].any(), "padding is 0"
    counts = drawn.labels.bincount(minlength=task.num_classes)
    assert counts.max() - counts.min() <= 1
    if task.vocab_size is not None:
        real = drawn.inputs[drawn.mask]
        assert (real != PAD_ID).all()
        assert (real > 0).all()
        assert (real < task.vocab_size).all()


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
def test_every_length_and_label_comes_and_they_have_nothing_to_do_with_each_other(task):
    drawn = task.sample(6000, np.random.default_rng(0))
    expected = 6000 / len(task.lengths) / task.num_classes
    for length, label in itertools.product(task.lengths, range(task.num_classes)):
        found = int(((drawn.lengths == length) & (drawn.labels == label)).sum())
        assert abs(found - expected) < 5 * math.sqrt(expected), (length, label, found, expected)


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
def test_lengths_can_be_asked_for(task):
    rng = np.random.default_rng(0)
    some = {"period": [29, 53]}.get(task.name, [8, 50])
    assert set(task.sample(50, rng, some).lengths.tolist()) == set(some)
    assert set(task.sample(5, rng, some[1]).lengths.tolist()) == {some[1]}
    with pytest.raises(ValueError, match=f"The task {task.name} has no sequences of length 1"):
        task.sample(5, rng, 1)


def test_some_tasks_want_lengths_of_a_kind():
    for name, length in (("period", 30), ("period", 13), ("lag", 9), ("first-motif", 3)):
        with pytest.raises(ValueError, match=f"no sequences of length {length}"):
            TASKS[name].bayes_accuracy(length)


@settings(max_examples=30)
@given(seed=seeds)
def test_share_is_which_of_two_tokens_is_more_frequent(seed):
    for row, label in zip(*labelled("share", seed), strict=True):
        counts = Counter(row)
        assert counts[1] != counts[2]
        assert label == (counts[2] > counts[1])


def labelled(name: str, seed: int, count: int = 20) -> tuple[list[list[float]], list[int]]:
    drawn = TASKS[name].sample(count, np.random.default_rng(seed))
    return rows_of(drawn), drawn.labels.tolist()


def places(row: list[float], motif: np.ndarray) -> list[int]:
    return [start for start in range(len(row)) if row[start : start + len(motif)] == motif.tolist()]


@settings(max_examples=30)
@given(seed=seeds)
def test_first_motif_is_which_motif_comes_first_and_exchanging_them_changes_the_class_alone(seed):
    first, second = TASKS["first-motif"].motifs
    for row, label in zip(*labelled("first-motif", seed), strict=True):
        ((here,), (there,)) = places(row, first), places(row, second)
        assert abs(here - there) >= len(first), "the motifs do not overlap"
        assert label == (there < here)
        exchanged = list(row)
        exchanged[here : here + len(first)], exchanged[there : there + len(first)] = second.tolist(), first.tolist()
        assert places(exchanged, first) == [there], "also a sequence of the task"
        assert places(exchanged, second) == [here], "also a sequence of the task"
        assert Counter(exchanged) == Counter(row)


def test_the_motifs_stand_wherever_there_is_room():
    drawn = TASKS["first-motif"].sample(3000, np.random.default_rng(5), 7)
    first, second = TASKS["first-motif"].motifs
    pairs = Counter((places(row, first)[0], places(row, second)[0]) for row in rows_of(drawn))
    possible = [(a, b) for a in range(6) for b in range(6) if abs(a - b) >= 2]
    # The noise is drawn again where it makes one motif more, which leaves some pairs of places less room than others.
    assert set(pairs) == set(possible)
    assert min(pairs.values()) > 3000 / len(possible) / 2


def test_trend_has_the_line_in_its_mean():
    drawn = TASKS["trend"].sample(20_000, np.random.default_rng(1), 16)
    rise = TASKS["trend"].rise
    for label, sign in ((0, -1), (1, 1)):
        mean = drawn.inputs[drawn.labels == label].mean(0)
        assert torch.allclose(mean, sign * rise * torch.linspace(-0.5, 0.5, 16), atol=5 / 100)


def test_mean_and_variance_are_those_of_their_docstrings():
    for name, statistic in (("mean", lambda x: x.mean()), ("variance", lambda x: x.std())):
        drawn = TASKS[name].sample(10_000, np.random.default_rng(2))
        found = [float(statistic(drawn[drawn.labels == c].inputs[drawn[drawn.labels == c].mask])) for c in (0, 1)]
        wanted = (-0.3, 0.3) if name == "mean" else (1.0, 1.5)
        assert found == pytest.approx(wanted, abs=0.02)


@settings(max_examples=30)
@given(seed=seeds)
def test_lag_has_as_many_positive_as_negative_numbers(seed):
    for row, _ in zip(*labelled("lag", seed), strict=True):
        assert sum(x > 0 for x in row) == sum(x < 0 for x in row) == len(row) // 2


def test_lag_is_the_sign_of_the_correlation_of_neighbours():
    drawn = TASKS["lag"].sample(10_000, np.random.default_rng(3), 20)
    products = (drawn.inputs[:, 1:] * drawn.inputs[:, :-1]).mean(1)
    means = [float(products[drawn.labels == label].mean()) for label in (0, 1)]
    assert means[0] < -0.1
    assert means[1] > 0.1


def test_every_arrangement_with_as_many_runs_is_equally_frequent():
    drawn = TASKS["lag"].sample(40_000, np.random.default_rng(4), 6)
    signs = Counter(tuple(row) for row in drawn.inputs.sign().int().tolist())
    assert len(signs) == math.comb(6, 3)
    by_runs: dict[int, list[int]] = {}
    for row, number in signs.items():
        by_runs.setdefault(sum(a != b for a, b in itertools.pairwise(row)), []).append(number)
    for numbers in by_runs.values():
        expected = sum(numbers) / len(numbers)
        assert all(abs(number - expected) < 5 * math.sqrt(expected) for number in numbers), by_runs


def test_period_makes_whole_turns_of_about_its_length():
    task = TASKS["period"]
    for length in task.lengths:
        turns = [round(length / period) for period in task.periods]
        assert len(set(turns)) == task.num_classes, "the classes differ in every length"
        assert np.allclose(length / np.array(turns), task.periods, rtol=0.18)
        spectra = np.abs(np.fft.rfft(task._waves(np.array([length]), length)[0]))
        assert spectra.argmax(1).tolist() == turns


def test_all_classes_of_period_have_the_same_numbers_before_the_noise():
    task = TASKS["period"]
    for length in task.lengths:
        waves = np.sort(task._waves(np.array([length]), length)[0], axis=1)
        assert np.allclose(waves, waves[:1])


# --- order alone decides ------------------------------------------------------------------------------------------------


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The two-sample statistic of Kolmogorov and Smirnov, times √(nm / (n + m)); over 2.2 once in 10 000 times."""
    both = torch.cat([a, b]).sort().values
    shares = [torch.searchsorted(x.sort().values, both, right=True) / len(x) for x in (a, b)]
    return float((shares[0] - shares[1]).abs().max() * math.sqrt(len(a) * len(b) / (len(a) + len(b))))


def largest_distance(task) -> float:
    drawn = task.sample(4000, np.random.default_rng(6))
    found = statistics(task, drawn)
    pairs = itertools.combinations(range(task.num_classes), 2)
    return max(
        distance(column[drawn.labels == one], column[drawn.labels == other])
        for one, other in pairs
        for column in found.T
    )


@pytest.mark.parametrize("task", ORDERED, ids=named)
def test_what_does_not_depend_on_the_order_is_the_same_in_all_classes(task):
    assert largest_distance(task) < 2.2


@pytest.mark.parametrize("task", UNORDERED, ids=named)
def test_where_the_order_does_not_matter_the_same_statistics_tell_the_classes_apart(task):
    assert largest_distance(task) > 10


# --- the best rule ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
def test_the_bayes_rule_is_right_as_often_as_is_said(task):
    """On 20 000 sequences, within four standard errors."""
    drawn = task.sample(20_000, np.random.default_rng(7))
    found = float((task.bayes(drawn) == drawn.labels).double().mean())
    said = task.bayes_accuracy()
    assert abs(found - said) <= 4 * math.sqrt(said * (1 - said) / 20_000)
    assert (said == 1.0) == (task.name in SEPARABLE)


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
def test_longer_sequences_are_easier(task):
    short, long = {"period": (29, 37)}.get(task.name, (12, 32))
    assert task.bayes_accuracy(short) < task.bayes_accuracy(long) or task.name in SEPARABLE
    assert task.bayes_accuracy([short, long]) == pytest.approx(
        (task.bayes_accuracy(short) + task.bayes_accuracy(long)) / 2
    )


def log_likelihoods(name: str, x: torch.Tensor) -> torch.Tensor:
    """Of one sequence (L,) under each class, from the definition of the task and nothing else."""
    length = len(x)
    normal = torch.distributions.Normal
    if name == "mean":
        return torch.stack([normal(mean, 1.0).log_prob(x).sum() for mean in (-0.3, 0.3)])
    if name == "variance":
        return torch.stack([normal(0.0, scale).log_prob(x).sum() for scale in (1.0, 1.5)])
    if name == "trend":
        line = 1.2 * torch.linspace(-0.5, 0.5, length)
        return torch.stack([normal(mean, 1.0).log_prob(x).sum() for mean in (-line, line)])
    if name == "period":
        turns = torch.tensor([round(length / period) / length for period in (4, 6, 9, 14)])
        waves = torch.cos(2 * math.pi * turns[:, None] * torch.arange(length))
        return normal(waves, 1.0).log_prob(x).sum(1)
    assert name == "lag"
    signs = (x > 0).tolist()
    weights = {
        arrangement: 1 + sum(a != b for a, b in itertools.pairwise(arrangement))
        for arrangement in itertools.product((True, False), repeat=length)
        if sum(arrangement) == length // 2
    }
    found = []
    for tilt in (1.5, -1.5):
        total = sum(math.exp(tilt * runs) for runs in weights.values())
        found.append(math.exp(tilt * weights[tuple(signs)]) / total)
    return torch.tensor(found).log()


@pytest.mark.parametrize("name", [name for name in TASKS if name not in SEPARABLE])
def test_the_bayes_rule_is_the_class_with_the_largest_likelihood(name):
    drawn = TASKS[name].sample(60, np.random.default_rng(8), {"period": [29, 37], "lag": [6, 8]}.get(name))
    for row, guess in zip(rows_of(drawn), TASKS[name].bayes(drawn).tolist(), strict=True):
        chances = log_likelihoods(name, torch.tensor(row))
        assert chances[guess] >= chances.max() - 1e-4, (row, chances)


def test_lag_knows_how_many_arrangements_have_how_many_runs():
    task = TASKS["lag"]
    flat = type("Flat", (type(task),), {"tilt": 0.0})()
    arrangements = [a for a in itertools.product((0, 1), repeat=8) if sum(a) == 4]
    runs = Counter(1 + sum(a != b for a, b in itertools.pairwise(arrangement)) for arrangement in arrangements)
    assert flat._runs(8)[0] == pytest.approx([runs[r] / len(arrangements) for r in range(9)])
    assert flat.bayes_accuracy(8) == pytest.approx(0.5)


# --- splits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS.values(), ids=named)
def test_no_sequence_is_in_two_splits_nor_twice_in_one(task):
    parts = sequences.splits(task, 0, train=600, validation=101, test=200)
    assert {name: len(part) for name, part in parts.items()} == {"train": 600, "validation": 101, "test": 200}
    rows = [tuple(row) for part in parts.values() for row in rows_of(part)]
    assert len(rows) == len(set(rows)) == 901
    for part in parts.values():
        counts = part.labels.bincount(minlength=task.num_classes)
        assert counts.max() - counts.min() <= 1
        assert part.labels[:40].unique().numel() != 1, "in random order"


def test_repetitions_are_left_out():
    """A task with 96 sequences of length 4 or 5 that repeat themselves much."""
    few = type("Few", (type(TASKS["first-motif"]),), {"lengths": (4, 5), "vocab_size": 9})()
    possible = {tuple(row) for row in rows_of(few.sample(2000, np.random.default_rng(0)))}
    parts = sequences.splits(few, 1, train=len(possible) // 2, validation=4, test=4)
    rows = [tuple(row) for part in parts.values() for row in rows_of(part)]
    assert len(rows) == len(set(rows))
    with pytest.raises(ValueError, match="too few different sequences"):
        sequences.splits(few, 1, train=10_000, validation=2, test=2)


def test_a_seed_gives_the_same_splits_again():
    one, again, other = (sequences.splits(TASKS["trend"], seed, 50, 10, 10) for seed in (3, 3, 4))
    for name in one:
        assert torch.equal(one[name].inputs, again[name].inputs)
        assert torch.equal(one[name].labels, again[name].labels)
    assert one["train"].inputs.shape != other["train"].inputs.shape or not torch.equal(
        one["train"].inputs, other["train"].inputs
    )


def test_sequences_are_chosen_joined_and_trimmed():
    drawn = TASKS["share"].sample(30, np.random.default_rng(0), [12, 20])
    short = drawn[drawn.lengths == 12]
    assert short.inputs.size(1) == 20
    assert short.trimmed().inputs.size(1) == 12
    assert torch.equal(drawn[2:5].labels, drawn.labels[2:5])
    assert torch.equal(drawn[torch.tensor([4, 1])].inputs, drawn.inputs[[4, 1]])
    both = sequences.joined([short.trimmed(), drawn])
    assert len(both) == len(short) + 30
    assert both.inputs.size(1) == 20
    assert torch.equal(both.lengths[: len(short)], torch.full((len(short),), 12))
    assert drawn.to("cpu").inputs.device.type == "cpu"
