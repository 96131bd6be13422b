"""PyTorch's masks and decoder layer behind the course's names give what the reference pieces give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transformer_lab import builtin, pieces


@pytest.fixture(scope="module")
def reference():
    return pieces.load("solutions/07_masking_and_decoder.md")


@pytest.mark.parametrize("pad_id", [0, 3, -1])
def test_masks(reference, pad_id):
    g = torch.Generator().manual_seed(0)
    for batch, length in ((3, 5), (1, 4), (4, 1)):
        token_ids = torch.randint(-1, 4, (batch, length), generator=g)
        for name in ("padding_mask", "target_mask"):
            ours, theirs = (getattr(namespace, name)(token_ids, pad_id) for namespace in (builtin, reference))
            assert ours.dtype == theirs.dtype == torch.bool
            assert torch.equal(ours, theirs), f"{name} of {token_ids.tolist()}"
        assert torch.equal(builtin.causal_mask(length), reference.causal_mask(length))


class Attention(nn.Module):
    """PyTorch's attention behind the course's signature."""

    def __init__(self, attention: nn.MultiheadAttention):
        super().__init__()
        self.attention = attention

    def forward(self, query, key, value, mask=None):
        return self.attention(query, key, value, attn_mask=None if mask is None else ~mask, need_weights=False)[0]


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_is_pytorchs(reference, norm_first):
    g = torch.Generator().manual_seed(1)
    theirs = nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=norm_first)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    feed_forward = nn.Sequential(theirs.linear1, nn.ReLU(), theirs.linear2)
    x, memory = torch.randn(3, 4, 6, generator=g), torch.randn(3, 5, 6, generator=g)
    causal, source = builtin.causal_mask(4), torch.tensor([True, True, True, True, False]).expand(4, 5)
    wanted = theirs(x, memory, tgt_mask=~causal, memory_mask=~source)
    for namespace in (builtin, reference):
        layer = namespace.DecoderLayer(
            Attention(theirs.self_attn), Attention(theirs.multihead_attn), feed_forward, 6, norm_first=norm_first
        )
        with torch.no_grad():
            for name in ("norm1", "norm2", "norm3"):
                getattr(layer, name).gamma.copy_(getattr(theirs, name).weight)
                getattr(layer, name).beta.copy_(getattr(theirs, name).bias)
        assert torch.allclose(layer(x, memory, causal, source), wanted, atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_drops_as_the_reference_does(reference, norm_first):
    class First(nn.Module):
        def forward(self, query, key, value, mask=None):
            return query.tanh()

    g = torch.Generator().manual_seed(2)
    x, memory = torch.randn(3, 4, 6, generator=g), torch.randn(3, 5, 6, generator=g)
    results = []
    for namespace in (builtin, reference):
        layer = namespace.DecoderLayer(First(), First(), nn.Tanh(), 6, 0.3, norm_first).train()
        torch.manual_seed(3)
        results.append((sorted(layer.state_dict()), layer(x, memory)))
    assert results[0][0] == results[1][0]
    assert torch.allclose(results[0][1], results[1][1], atol=1e-5)
    assert not torch.allclose(layer.eval()(x, memory), results[1][1])
