"""PyTorch's multi-head attention behind the course's names gives what the reference gives."""

from __future__ import annotations

import pytest
import torch

from transformer_lab import pieces

BUILTIN = pieces.load("builtin")


@pytest.fixture(scope="module")
def reference():
    return pieces.load("solutions/04_multi_head.md")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_splitting_and_merging(reference, heads):
    x = torch.randn(2, 12, 5).transpose(1, 2)
    split = BUILTIN.split_heads(x, heads)
    assert torch.equal(split, reference.split_heads(x, heads))
    assert torch.equal(BUILTIN.merge_heads(split), x)


MASKS = {
    "none": None,
    "(T, S)": (3, 5),
    "(B, 1, 1, S)": (2, 1, 1, 5),
    "(B, 1, T, S)": (2, 1, 3, 5),
    "(1, H, T, S)": (1, 4, 3, 5),
    "(B, H, T, S)": (2, 4, 3, 5),
    "(H, 1, S)": (4, 1, 5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
def test_attention_with_every_mask(reference, shape, dtype):
    ours, theirs = BUILTIN.MultiHeadAttention(24, 4).to(dtype), reference.MultiHeadAttention(24, 4).to(dtype)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    inputs = [torch.randn(2, length, 24, dtype=dtype) for length in (3, 5, 5)]
    mask = None
    if shape:
        mask = torch.rand(shape) < 0.5
        mask[..., 1] = True
    gradients = []
    for module in (ours, theirs):
        leaves = [tensor.clone().requires_grad_(True) for tensor in inputs]
        output = module(*leaves, mask)
        output.square().sum().backward()
        gradients.append([output, *(leaf.grad for leaf in leaves), *(p.grad for p in module.parameters())])
    for ours_, theirs_ in zip(*gradients, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "call", [lambda: BUILTIN.split_heads(torch.zeros(1, 2, 7), 3), lambda: BUILTIN.MultiHeadAttention(7, 3)]
)
def test_a_width_that_does_not_divide(call):
    with pytest.raises(ValueError, match=r"7.*3"):
        call()
