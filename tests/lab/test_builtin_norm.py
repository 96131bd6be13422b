"""PyTorch's norm and encoder layer behind the course's names give what the reference pieces give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transformer_lab import builtin, pieces


@pytest.fixture(scope="module")
def reference():
    return pieces.load("solutions/06_norm_and_residual.md")


class Attention(nn.Module):
    """Stands where an attention goes: not linear, and sensitive to each of its arguments."""

    def __init__(self, width: int):
        super().__init__()
        self.w = nn.Linear(width, width)

    def forward(self, query, key, value, mask=None):
        return nn.functional.scaled_dot_product_attention(self.w(query), key.tanh(), value.sin(), attn_mask=mask)


def shuffle(module, generator):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layer_norm(reference, dtype):
    g = torch.Generator().manual_seed(0)
    ours = shuffle(builtin.LayerNorm(7, eps=1e-3), g).to(dtype)
    theirs = reference.LayerNorm(7, eps=1e-3).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x = torch.cat([torch.randn(2, 3, 7, generator=g), 1e-2 * torch.randn(2, 3, 7, generator=g), torch.ones(2, 1, 7)], 1)
    x = x.to(dtype)
    assert ours(x).dtype == dtype
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_encoder_layer(reference, norm_first, training):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, 6, generator=g)
    mask = torch.rand(5, 5, generator=g) < 0.5
    mask[:, 0] = True
    results = []
    for namespace in (builtin, reference):
        g.manual_seed(2)
        feed_forward = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
        layer = namespace.EncoderLayer(Attention(6), feed_forward, 6, 0.3, norm_first).train(training)
        shuffle(layer, g)
        torch.manual_seed(3)
        results.append((sorted(layer.state_dict()), layer(x, mask)))
    assert results[0][0] == results[1][0]
    assert torch.allclose(results[0][1], results[1][1], atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_is_pytorchs(norm_first):
    g = torch.Generator().manual_seed(4)
    theirs = shuffle(nn.TransformerEncoderLayer(6, 1, 8, 0.0, batch_first=True, norm_first=norm_first), g)

    class Single(nn.Module):
        def forward(self, query, key, value, mask=None):
            return theirs.self_attn(query, key, value, need_weights=False)[0]

    feed_forward = nn.Sequential(theirs.linear1, nn.ReLU(), theirs.linear2)
    ours = builtin.EncoderLayer(Single(), feed_forward, 6, norm_first=norm_first)
    with torch.no_grad():
        for mine, other in ((ours.norm1, theirs.norm1), (ours.norm2, theirs.norm2)):
            mine.gamma.copy_(other.weight)
            mine.beta.copy_(other.bias)
    x = torch.randn(3, 4, 6, generator=g)
    assert torch.allclose(ours(x), theirs(x), atol=1e-4)
