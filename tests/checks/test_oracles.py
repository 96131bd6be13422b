"""What the checks compare with, held against PyTorch's own modules: two independent ways to the same numbers."""

import numpy as np
import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from torch import nn

from autograder import oracles
from autograder.checks import ch01_embedding as ch01
from autograder.checks import ch04_multi_head as ch04
from autograder.checks import ch09_translation
from transformer_lab.driver import cotangent

RNG = np.random.default_rng(7)


def close(a, b) -> bool:
    return np.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_pytorchs(masked):
    q, k, v = RNG.normal(size=(2, 3, 5, 4)), RNG.normal(size=(2, 3, 7, 4)), RNG.normal(size=(2, 3, 7, 6))
    mask = oracles.any_mask(RNG, 2, 1, 5, 7) if masked else None
    output, weights = oracles.attention(q, k, v, mask)
    given = [torch.from_numpy(a) for a in (q, k, v)] + [None if mask is None else torch.from_numpy(mask)]
    assert close(output, F.scaled_dot_product_attention(*given))
    assert close(weights @ v, output)
    assert close(weights.sum(-1), 1)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 5, 7)])
def test_every_row_of_a_random_mask_allows_a_key_and_blocks_one(shape):
    for seed in range(50):
        mask = oracles.any_mask(np.random.default_rng(seed), *shape)
        assert mask.shape == shape
        assert mask.any(-1).all()
        assert not mask.all(-1).any()


def _multi_head_attention(state, num_heads: int) -> nn.MultiheadAttention:
    """PyTorch's module with the parameters of ``state``."""
    module = nn.MultiheadAttention(len(state["w_o.bias"]), num_heads, batch_first=True, dtype=torch.float64)
    joint = {kind: np.concatenate([state[f"w_{name}.{kind}"] for name in "qkv"]) for kind in ("weight", "bias")}
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.from_numpy(joint["weight"]))
        module.in_proj_bias.copy_(torch.from_numpy(joint["bias"]))
        module.out_proj.weight.copy_(torch.from_numpy(state["w_o.weight"]))
        module.out_proj.bias.copy_(torch.from_numpy(state["w_o.bias"]))
    return module


@pytest.mark.parametrize("shape", [None, ("T", "S"), ("B", 1, 1, "S"), (1, "H", "T", "S"), ("B", "H", "T", "S")])
def test_multi_head_attention_is_that_of_pytorchs_module(shape):
    batch, queries, keys, (d_model, heads), state = ch04._multi_head(RNG)
    inputs = ch04._three(RNG, (batch, queries, keys), d_model, np.float64)
    sizes = {"B": batch, "H": heads, "T": queries, "S": keys}
    mask = None if shape is None else oracles.any_mask(RNG, *(sizes.get(size, size) for size in shape))
    output = ch04.multi_head(inputs, state, heads, mask)

    hidden = None
    if mask is not None:
        whole = np.broadcast_to(~mask, (batch, heads, queries, keys))
        hidden = torch.from_numpy(whole.reshape(-1, queries, keys).copy())
    module, given = _multi_head_attention(state, heads), [torch.from_numpy(a).requires_grad_(True) for a in inputs]
    theirs, _ = module(*given, attn_mask=hidden)
    assert close(output, theirs.detach())

    (theirs * torch.from_numpy(cotangent(output.shape))).sum().backward()
    grads = oracles.gradients(ch04.pytorchs(heads, mask), *inputs, *(state[name] for name in ch04.NAMES))
    assert len(grads) == 3 + 8
    for grad, tensor in zip(grads[:3], given, strict=True):
        assert close(grad, tensor.grad)
    for position, name in enumerate(("w_q", "w_k", "w_v")):
        rows = slice(position * d_model, (position + 1) * d_model)
        assert close(grads[3 + 2 * position], module.in_proj_weight.grad[rows]), name
        assert close(grads[4 + 2 * position], module.in_proj_bias.grad[rows]), name
    assert close(grads[-2], module.out_proj.weight.grad)
    assert close(grads[-1], module.out_proj.bias.grad)


def test_no_two_sizes_of_a_multi_head_check_agree():
    for seed in range(200):
        batch, queries, keys, (d_model, heads), _ = ch04._multi_head(np.random.default_rng(seed))
        assert len({batch, queries, keys, heads, d_model // heads, d_model}) == 6


def test_heads_split_and_merged_are_those_of_pytorchs_operators():
    x = RNG.normal(size=(2, 5, 12))
    heads = ch04.split(x, 3)
    assert np.array_equal(heads, torch.from_numpy(x).unflatten(-1, (3, 4)).transpose(1, 2))
    assert np.array_equal(ch04.merge(heads), x)


@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (2, 3, 4)])
def test_gradients_of_rows_are_those_of_pytorchs_embedding(shape):
    ids = RNG.integers(0, 6, size=shape)
    table = torch.zeros(6, 4, dtype=torch.float64, requires_grad=True)
    (F.embedding(torch.from_numpy(ids), table) * 3 * torch.from_numpy(cotangent((*shape, 4)))).sum().backward()
    assert close(ch01.row_gradients(ids, (6, 4), 3.0), table.grad)


def test_bleu_is_sacrebleus():
    metric = sacrebleu.BLEU(smooth_method="none", tokenize="none", force=True)
    rng = np.random.default_rng(9)
    for shorter in (False, True):
        for _ in range(20):
            hypotheses, references = ch09_translation._texts(rng, 4, shorter)
            want = metric.corpus_score([" ".join(h) for h in hypotheses], [[" ".join(r) for r in references]]).score
            assert ch09_translation.bleu(hypotheses, references) == pytest.approx(want, abs=1e-9)


def test_the_smoothed_loss_is_pytorchs():
    rng = np.random.default_rng(10)
    for smoothing in (0.0, 0.1, 1.0):
        logits, targets = rng.normal(size=(7, 5)), rng.integers(5, size=7)
        want = torch.nn.functional.cross_entropy(
            torch.from_numpy(logits), torch.from_numpy(targets), ignore_index=2, label_smoothing=smoothing
        )
        assert ch09_translation.smoothed_loss(logits, targets, 2, smoothing) == pytest.approx(want.item())
