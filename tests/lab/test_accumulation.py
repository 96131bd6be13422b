"""Accumulated gradients are those of the large batch, however the batch is cut."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from transformer_lab.accumulation import accumulate, split
from transformer_lab.data import PAD

VOCABULARY = 7


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(VOCABULARY, 6), nn.Linear(6, VOCABULARY)).double()


def loss(net, part):
    inputs, targets = part
    return F.cross_entropy(net(inputs).flatten(0, 1), targets.flatten(), ignore_index=PAD), (targets != PAD).sum()


def batch(lengths, seed=0):
    """Rows of random tokens, so many in each, padded behind."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)), generator=draw)
    targets = torch.randint(1, VOCABULARY, inputs.shape, generator=draw)
    behind = torch.arange(inputs.size(1)) >= torch.tensor(lengths)[:, None]
    return inputs.masked_fill(behind, PAD), targets.masked_fill(behind, PAD)


def gradients(net):
    return [parameter.grad for parameter in net.parameters()]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=10), st.integers(1, 12))
def test_the_parts_give_what_the_large_batch_gives(lengths, parts):
    whole, cut = model(), model()
    value, tokens = loss(whole, batch(lengths))
    value.backward()
    mean, count = accumulate(cut, loss, split(batch(lengths), parts))
    assert int(count) == int(tokens) == sum(lengths)
    torch.testing.assert_close(mean, value.detach())
    torch.testing.assert_close(gradients(cut), gradients(whole))


def test_a_plain_mean_of_the_parts_would_be_something_else():
    right, plain = model(), model()
    accumulate(right, loss, split(batch([12, 1]), 2))
    sum(loss(plain, part)[0] / 2 for part in split(batch([12, 1]), 2)).backward()
    off = sum((a - b).square().sum() for a, b in zip(gradients(right), gradients(plain), strict=True)).sqrt()
    assert off > 0.3 * sum(a.square().sum() for a in gradients(right)).sqrt()


def test_earlier_gradients_are_gone():
    once, twice = model(), model()
    accumulate(once, loss, split(batch([3, 5]), 2))
    accumulate(twice, loss, split(batch([4, 4], seed=1), 2))
    accumulate(twice, loss, split(batch([3, 5]), 2))
    torch.testing.assert_close(gradients(once), gradients(twice))


def test_one_part_is_done_before_the_next_one_begins():
    parts = split(batch([3, 5, 2]), 3)
    seen = []

    def drawn():
        for part in parts:
            seen.append("drawn")
            yield part

    def backward(summed):
        seen.append("backward")
        summed.backward()

    accumulate(model(), loss, drawn(), backward)
    assert seen == ["drawn", "backward"] * 3


def test_a_count_may_be_a_plain_number():
    mean, tokens = accumulate(model(), lambda net, part: (loss(net, part)[0], 8), [batch([3, 5])])
    assert int(tokens) == 8
    torch.testing.assert_close(mean, loss(model(), batch([3, 5]))[0].detach())


def test_no_part_is_refused():
    with pytest.raises(ValueError, match="at least one part"):
        accumulate(model(), loss, [])
    with pytest.raises(ValueError, match="not 0"):
        split(batch([3]), 0)
