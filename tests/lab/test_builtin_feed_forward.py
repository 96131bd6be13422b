"""PyTorch's layers in a row, behind the course's name, give what the reference piece and PyTorch's own layer give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import builtin, pieces


@pytest.fixture(scope="module")
def reference():
    return pieces.load("solutions/05_feed_forward.md")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_the_reference(reference, dtype, training):
    torch.manual_seed(0)
    ours = builtin.PositionwiseFeedForward(5, 7, dropout=0.4).to(dtype).train(training)
    theirs = reference.PositionwiseFeedForward(5, 7, dropout=0.4).to(dtype).train(training)
    assert list(ours.state_dict()) == ["linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"]
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 5, dtype=dtype)
    results = []
    for network in (ours, theirs):
        torch.manual_seed(1)  # the same draw of dropout
        results.append(network(x))
    assert results[0].dtype == dtype
    assert torch.allclose(*results)
    assert torch.equal(ours(x), ours(x)) is not training


def test_it_is_what_pytorchs_layer_has_inside():
    torch.manual_seed(2)
    theirs = nn.TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True, norm_first=True)
    nn.init.zeros_(theirs.self_attn.out_proj.weight)
    ours = builtin.PositionwiseFeedForward(6, 9)
    ours.linear1.load_state_dict(theirs.linear1.state_dict())
    ours.linear2.load_state_dict(theirs.linear2.state_dict())
    x = torch.randn(2, 4, 6)
    assert torch.allclose(ours(F.layer_norm(x, (6,))), theirs(x) - x, atol=1e-6)


def test_the_count_is_the_size_of_the_builtin_parts(reference):
    network = builtin.PositionwiseFeedForward(6, 9)
    counts = reference.count_parameters(11, 6, 2, 9, 3)
    assert counts["feed_forward"] == 2 * 3 * sum(parameter.numel() for parameter in network.parameters())
    assert counts["norm"] == 5 * 3 * sum(parameter.numel() for parameter in builtin.LayerNorm(6).parameters())
