"""The fused attention computes what the piece computes, forwards and backwards, and its parameters keep their names."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_lab import builtin, fused, translation
from transformer_lab.data import default_corpus


def pair(width, heads, dtype=torch.float64):
    """The built-in piece, and the fused one with its weights."""
    torch.manual_seed(0)
    one = builtin.MultiHeadAttention(width, heads).to(dtype)
    for name in fused.PROJECTIONS:
        nn.init.normal_(getattr(one, name).bias)
    other = fused.MultiHeadAttention(width, heads).to(dtype)
    other.load_state_dict(one.state_dict())
    return one, other


def results(attention, inputs, mask):
    """Output, and gradients of parameters and inputs."""
    leaves = {id(x): x.detach().clone().requires_grad_() for x in inputs}
    query, key, value = (leaves[id(x)] for x in inputs)
    output = attention(query, key, value, mask)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weights).sum().backward()
    return output, [p.grad for p in attention.parameters()], [x.grad for x in leaves.values()]


@settings(max_examples=60)
@given(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3),
    st.sampled_from(["self", "cross", "three"]), st.sampled_from([None, "keys", "pairs", "heads"]), st.integers(0, 99),
)  # fmt: skip
def test_output_and_gradients_are_the_pieces(batch, length, keys, heads, per_head, kind, masked, seed):
    one, other = pair(heads * per_head, heads)
    draw = torch.Generator().manual_seed(seed)

    def tokens(size):
        return torch.randn(batch, size, heads * per_head, generator=draw, dtype=torch.float64)

    query = tokens(length)
    key = query if kind == "self" else tokens(keys)
    value = tokens(keys) if kind == "three" else key
    sizes = {"keys": (batch, 1, 1), "pairs": (batch, 1, length), "heads": (batch, heads, length)}
    mask = None
    if masked:  # at most some rows are closed altogether, which the course's rule gives zeros
        mask = torch.rand(*sizes[masked], key.size(1), generator=draw) < 0.6
    torch.testing.assert_close(results(other, (query, key, value), mask), results(one, (query, key, value), mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_may_attend_to_nothing_has_zeros_for_its_heads_and_finite_gradients(dtype):
    _, attention = pair(6, 2, dtype)
    x = torch.randn(2, 4, 6, dtype=dtype)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, :, 1] = False
    mask[1] = False
    output, gradients, inputs = results(attention, (x, x, x), mask)
    for row in (output[0, 1], *output[1]):
        torch.testing.assert_close(row, attention.w_o.bias)
    assert all(gradient.isfinite().all() for gradient in (*gradients, *inputs))
    assert not inputs[0][1].any()


def test_one_product_serves_what_comes_from_one_tensor(monkeypatch):
    _, attention = pair(6, 2)
    products = []
    plain = F.linear
    monkeypatch.setattr(
        F, "linear", lambda x, weight, bias=None: products.append(len(weight)) or plain(x, weight, bias)
    )
    x, y = torch.randn(2, 1, 4, 6, dtype=torch.float64)
    for inputs, wanted in (((x, x, x), [18, 6]), ((x, y, y), [6, 12, 6]), ((x, y, x), [6, 6, 6, 6])):
        products.clear()
        attention(*inputs)
        assert products == wanted


def test_names_are_those_of_the_piece():
    one, other = pair(6, 3)
    assert list(one.state_dict()) == list(other.state_dict())
    with pytest.raises(ValueError, match="6 is not divisible by num_heads = 4"):
        fused.MultiHeadAttention(6, 4)


@pytest.fixture(scope="module")
def task():
    return translation.Task.of(default_corpus(20, 2, 2))


SMALL = translation.Config(d_model=12, num_heads=3, d_ff=16, num_layers=2)


def test_a_model_is_fused_in_place(task):
    model = translation.build(SMALL, task, builtin).double().eval()
    before, names = list(model.parameters()), list(model.state_dict())
    source, target = torch.randint(3, 20, (2, 3, 7))
    wanted = model(source, target)
    assert fused.fuse(model) == 6
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert not any(module.training for module in model.modules())
    assert sum(isinstance(module, fused.MultiHeadAttention) for module in model.modules()) == 6
    torch.testing.assert_close(model(source, target), wanted)


def test_a_model_is_built_of_fused_pieces_with_equal_numbers(task):
    one, other = (translation.build(SMALL, task, pieces) for pieces in (builtin, fused.over(builtin)))
    assert isinstance(other.encoder.layers[0].self_attention, fused.MultiHeadAttention)
    torch.testing.assert_close(dict(one.named_parameters()), dict(other.named_parameters()), rtol=0, atol=0)


def test_heads_are_asked_for_where_the_piece_does_not_say():
    own = nn.Module()
    own.inner = builtin.MultiHeadAttention(6, 2)
    del own.inner.num_heads
    with pytest.raises(ValueError, match="has no attribute num_heads"):
        fused.fuse(own)
    with pytest.raises(ValueError, match="4 heads cannot share"):
        fused.fuse(own, num_heads=4)
    assert fused.fuse(own, num_heads=2) == 1
    assert own.inner.num_heads == 2


def test_layers_without_bias_are_stacked_too():
    torch.manual_seed(0)
    with_bias, without = nn.Linear(3, 2), nn.Linear(3, 4, bias=False)
    x = torch.randn(5, 3)
    torch.testing.assert_close(fused.project(x, with_bias, without), (with_bias(x), without(x)))
    torch.testing.assert_close(fused.project(x, without, without), (without(x), without(x)))


def test_other_names_of_the_namespace_stay():
    pieces = fused.over(types.SimpleNamespace(LayerNorm=nn.LayerNorm, _hidden=1))
    assert pieces.LayerNorm is nn.LayerNorm
    assert not hasattr(pieces, "_hidden")
