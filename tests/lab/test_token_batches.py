"""Batches by tokens: nothing is lost, nothing comes twice, no batch is too large, and a stream goes on where it was."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lab.data import PAD, pad
from transformer_lab.token_batches import TokenBatches, TokenBatchStream, batches_by_tokens, padding_share

LENGTHS = st.lists(st.integers(1, 30), max_size=60)
PAIRS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=16, max_size=60)


def ids(lengths):
    """Pairs of lists of ids, of which the first id is the pair's own."""
    return [([10 + number] * source, [10 + number] * target) for number, (source, target) in enumerate(lengths)]


@given(LENGTHS, st.integers(30, 200))
def test_every_sentence_once_and_within_the_budget(lengths, budget):
    batches = batches_by_tokens(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[index] for index in batch) <= budget for batch in batches)


@given(LENGTHS, st.integers(30, 200))
def test_no_batch_could_have_taken_the_next_sentence_too(lengths, budget):
    batches = batches_by_tokens(lengths, budget)
    for batch, after in itertools.pairwise(batches):
        assert (len(batch) + 1) * lengths[after[0]] > budget


def test_a_small_example_by_hand():
    # Sorted: 2 2 3 5 6. Three rows of 3 are 9, four rows of 5 would be 20; two rows of 6 are 12 and too many.
    assert batches_by_tokens([5, 2, 6, 3, 2], 10) == [[1, 4, 3], [0], [2]]
    assert padding_share([5, 2, 6, 3, 2], [[1, 4, 3], [0], [2]]) == pytest.approx(1 - 18 / 20)
    assert padding_share([], []) == 0


def test_a_sentence_above_the_budget_is_named():
    with pytest.raises(ValueError, match="A sentence of 12 tokens does not fit into a budget of 10"):
        batches_by_tokens([3, 12], 10)
    with pytest.raises(ValueError, match="12 tokens"):
        TokenBatches(ids([(3, 12)]), 10)


@given(PAIRS, st.integers(40, 90), st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_processes_share_an_epoch_without_overlap_and_in_equal_parts(lengths, budget, world, epoch, seed):
    parts = [TokenBatches(ids(lengths), budget, seed=seed, rank=rank, world=world, pool=2) for rank in range(world)]
    shares = [part.indices(epoch) for part in parts]
    assert len({len(share) for share in shares}) == 1
    assert sorted(i for share in shares for batch in share for i in batch) == list(range(len(lengths)))
    for part, share in zip(parts, shares, strict=True):
        for batch, (source, target) in zip(share, part.epoch(epoch), strict=True):
            assert source[:, 0].tolist() == [10 + index for index in batch] == target[:, 0].tolist()
            assert max(source.numel(), target.numel()) <= budget
            assert [int((row != PAD).sum()) for row in source] == [lengths[index][0] for index in batch]


@given(PAIRS, st.integers(20, 80), st.integers(0, 40))
def test_a_stream_goes_on_where_its_state_was_taken(lengths, budget, steps):
    def stream():
        return TokenBatchStream(TokenBatches(ids(lengths), budget, seed=5, pool=2))

    one = stream()
    for _ in range(steps):
        next(one)
    other = stream()
    other.load_state_dict(one.state_dict())
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(next(one), next(other), strict=True))


def test_a_stream_of_other_batches_does_not_take_the_state():
    pairs = ids([(3, 4), (5, 6), (2, 2)])
    state = TokenBatchStream(TokenBatches(pairs, 20)).state_dict()
    with pytest.raises(ValueError, match="seed, budget differ"):
        TokenBatchStream(TokenBatches(pairs, 30, seed=1)).load_state_dict(state)


def test_epochs_and_seeds_differ_and_repeat():
    pairs = ids([(1 + number % 17, 1 + number % 13) for number in range(300)])
    one = TokenBatches(pairs, 60, seed=1, pool=4)
    assert one.indices(0) != one.indices(1)
    assert one.indices(0) == TokenBatches(pairs, 60, seed=1, pool=4).indices(0)
    assert one.indices(0) != TokenBatches(pairs, 60, seed=2, pool=4).indices(0)


def test_like_lengths_leave_little_padding_and_the_share_is_that_of_the_tensors():
    pairs = ids([(5 + number * 7 % 23, 5 + number * 7 % 23 + number % 3) for number in range(2000)])
    batches = TokenBatches(pairs, 400, seed=0)
    tokens = [tensor for batch in batches.epoch(0) for tensor in batch]
    padding = sum(int((ids == PAD).sum()) for ids in tokens) / sum(ids.numel() for ids in tokens)
    assert batches.padding(0) == pytest.approx(padding)
    mixed = [pad([source for source, _ in pairs[i : i + 20]]) for i in range(0, 2000, 20)]
    assert padding < 0.08 < 0.3 < sum(int((ids == PAD).sum()) for ids in mixed) / sum(ids.numel() for ids in mixed)


@pytest.mark.parametrize(
    ("pairs", "how", "said"), [(3, {"rank": 2, "world": 2}, "no process 2 among 2"), (1, {"world": 2}, "1 pairs")]
)
def test_impossible_shares_are_refused(pairs, how, said):
    with pytest.raises(ValueError, match=said):
        TokenBatches(ids([(2, 2)] * pairs), 20, **how)


def test_single_sentences_that_do_not_go_round_are_refused():
    with pytest.raises(ValueError, match="3 batches of one sentence each"):
        TokenBatches(ids([(20, 20)] * 3), 20, world=2).indices(0)
