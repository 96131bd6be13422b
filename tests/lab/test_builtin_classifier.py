"""Positions, embedding and classifier of ``builtin`` give what the formulas and the reference pieces give."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

from transformer_lab import builtin, pieces


@pytest.fixture(scope="module")
def chapter2():
    return pieces.load("solutions/02_positional_encoding.md")


def test_positional_encoding(chapter2):
    for length, width in ((1, 2), (7, 6), (501, 32), (3, 512)):
        table = builtin.positional_encoding(length, width)
        assert table.shape == (length, width)
        assert table.dtype == torch.float32
        assert torch.allclose(table, chapter2.positional_encoding(length, width), atol=1e-6)
    table = builtin.positional_encoding(40, 6)
    for position, pair in itertools.product((0, 1, 39), range(3)):
        angle = position / 10000 ** (2 * pair / 6)
        wanted = [math.sin(angle), math.cos(angle)]
        assert table[position, 2 * pair : 2 * pair + 2].tolist() == pytest.approx(wanted, abs=1e-6)


def test_transformer_embedding(chapter2):
    ids = torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(0))
    ours, theirs = (space.TransformerEmbedding(11, 6, 9, 0.25, pad_id=2) for space in (builtin, chapter2))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["token.embedding.weight"]
    ours.load_state_dict(theirs.state_dict())
    results = []
    for module in (ours, theirs):
        torch.manual_seed(1)
        results.append((module.train()(ids), module.eval()(ids), module.double()(ids)))
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        assert torch.allclose(a, b, atol=1e-6)
    assert not torch.equal(results[0][0], results[0][1])


def test_masked_mean_pool():
    g = torch.Generator().manual_seed(2)
    hidden = torch.randn(4, 6, 3, generator=g)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]) == 1
    wanted = torch.stack(
        [row[open_].mean(0) if open_.any() else torch.zeros(3) for row, open_ in zip(hidden, mask, strict=True)]
    )
    hidden[~mask] = 1e30
    for dtype in (torch.float32, torch.float64):
        given = hidden.to(dtype).clone().requires_grad_()
        pooled = builtin.masked_mean_pool(given, mask)
        assert pooled.dtype == dtype
        assert torch.allclose(pooled.float(), wanted, atol=1e-6)
        pooled.sum().backward()
        share = mask / mask.sum(1, keepdim=True).clamp(min=1)
        assert torch.allclose(given.grad, share.to(dtype).unsqueeze(-1).expand_as(given))


class Shifted(nn.Module):
    """Adds its number to x, and notes its mask."""

    def __init__(self, number: float):
        super().__init__()
        self.number = nn.Parameter(torch.tensor(number))
        self.masks: list = []

    def forward(self, x, mask):
        self.masks.append(mask)
        return 2 * x + self.number


def test_encoder_is_pytorchs():
    layer = nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=True)
    theirs = nn.TransformerEncoder(layer, 3, nn.LayerNorm(6), enable_nested_tensor=False).train()
    g = torch.Generator().manual_seed(3)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, generator=g)
    ours = builtin.Encoder(theirs.layers, theirs.norm)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(2, 4, 6, generator=g)
    assert torch.allclose(ours(x), theirs(x), atol=1e-5)

    layers = [Shifted(1.0), Shifted(5.0)]
    encoder = builtin.Encoder([*layers, layers[0]])
    mask = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    assert torch.allclose(encoder(x, mask), 8 * x + 4 + 10 + 1)
    assert [len(layer.masks) for layer in layers] == [2, 1]
    assert all(seen is mask for layer in layers for seen in layer.masks)
    assert "norm" not in dict(encoder.named_children())


@pytest.mark.parametrize("norm_first", [False, True])
def test_classifier_does_not_see_padding(norm_first):
    torch.manual_seed(4)
    layers = [
        builtin.EncoderLayer(
            builtin.MultiHeadAttention(8, 2), builtin.PositionwiseFeedForward(8, 12), 8, 0.1, norm_first
        )
        for _ in range(2)
    ]
    embed = builtin.TransformerEmbedding(9, 8, 16, pad_id=0)
    model = builtin.SequenceClassifier(embed, builtin.Encoder(layers, builtin.LayerNorm(8)), 8, 3).eval()
    ids = torch.randint(1, 9, (2, 5))
    ids[1, 3:] = 0
    logits = model(ids, ids != 0)
    assert logits.shape == (2, 3)
    longer = torch.cat([ids, torch.zeros(2, 4, dtype=torch.int64)], 1)
    assert torch.allclose(model(longer, longer != 0), logits, atol=1e-6)
    assert torch.allclose(model(ids[1:, :3], torch.ones(1, 3, dtype=torch.bool)), logits[1:], atol=1e-6)
    assert not torch.allclose(logits.sum(-1), torch.ones(2))


@pytest.mark.parametrize("own", [False, True])
def test_only_positions_tell_one_order_from_another(own):
    p = pieces.load("solutions") if own else builtin
    ids, padding = torch.tensor([[7, 4, 9, 5, 1]]), torch.zeros(1, 3, dtype=torch.int64)
    said_twice, backwards = ids.repeat_interleave(2, dim=1), ids.flip(1)
    for embed, blind in ((p.TokenEmbedding(10, 8, 0), True), (p.TransformerEmbedding(10, 8, 12, pad_id=0), False)):
        layers = [
            p.EncoderLayer(p.MultiHeadAttention(8, 2), p.PositionwiseFeedForward(8, 12), 8, norm_first=True)
            for _ in range(2)
        ]
        model = p.SequenceClassifier(embed, p.Encoder(layers, p.LayerNorm(8)), 8, 2).eval()
        logits = model(ids, ids != 0)
        for other in (said_twice, backwards, torch.cat([padding, ids], 1)):
            assert torch.allclose(model(other, other != 0), logits, atol=1e-5) == blind
        behind = torch.cat([ids, padding], 1)
        assert torch.allclose(model(behind, behind != 0), logits, atol=1e-5)
