"""Attention in few large kernels, behind the course's own piece and under its parameter names.

    model = translation.build(config, task, fused.over(builtin))      # new models whose attention is the fused one
    fused.fuse(model)                                                 # or one that is there already, weights and all

Two things are put together. Query, key and value of self-attention come from the same tokens: one product with the three
matrices on top of each other does what three products do. And ``torch.nn.functional.scaled_dot_product_attention`` goes
through scores, softmax and weighted sum block by block, so that the (T, S) scores are never stored (Dao et al. 2022).
The four matrices remain the parameters ``w_q``, ``w_k``, ``w_v`` and ``w_o``: weights move freely between this and any
other ``MultiHeadAttention``.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import builtin

PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")


class MultiHeadAttention(builtin.MultiHeadAttention):
    """query (B, T, D), key and value (B, S, D), mask True = may attend, broadcastable to (B, H, T, S) → (B, T, D).

    A query that may attend to nothing has zeros for its heads, as the course's rule wants. ValueError where ``d_model``
    cannot be shared among the heads.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = in_projections(self, query, key, value)
        return out_projection(self, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def in_projections(attention: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query (B, T, D), key and value (B, S, D) → heads (B, H, T, K), (B, H, S, K) and (B, H, S, K).

    Inputs that are one tensor are projected in one product: all three in self-attention, key and value in cross-attention.
    """
    layers = (attention.w_q, attention.w_k, attention.w_v)
    if query is key is value:
        q, k, v = project(query, *layers)
    elif key is value:
        (q,), (k, v) = project(query, layers[0]), project(key, *layers[1:])
    else:
        (q,), (k,), (v,) = (project(x, layer) for x, layer in zip((query, key, value), layers, strict=True))
    return tuple(x.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for x in (q, k, v))  # type: ignore[return-value]


def out_projection(attention: Any, heads: Tensor) -> Tensor:
    """Heads (B, H, T, K) → (B, T, D)."""
    return attention.w_o(heads.transpose(1, 2).flatten(-2))


def project(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """The results of several linear layers of one input (…, D), by one product."""
    if len(layers) == 1:
        return (layers[0](x),)
    weight, bias = stacked(*layers)
    return F.linear(x, weight, bias).split([layer.out_features for layer in layers], dim=-1)


def stacked(*layers: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """The weights of several linear layers on top of each other, and their biases; gradients reach every layer's own.

    Layers without a bias count as having one of 0 where another has one.
    """
    weight = torch.cat(tuple(layer.weight for layer in layers))
    if all(layer.bias is None for layer in layers):
        return weight, None
    biases = [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
    return weight, torch.cat(tuple(biases))


def over(pieces: Any) -> types.SimpleNamespace:
    """The namespace ``pieces`` with this module's ``MultiHeadAttention`` in the place of its own."""
    names = {name: value for name, value in vars(pieces).items() if not name.startswith("_")}
    return types.SimpleNamespace(**names | {"MultiHeadAttention": MultiHeadAttention})


def fuse(model: nn.Module, num_heads: int | None = None) -> int:
    """Let every multi-head attention of ``model`` compute by this module's; returns how many there were.

    What has linear ``w_q``, ``w_k``, ``w_v`` and ``w_o`` counts as one. Parameters stay the very same objects, so that an
    optimiser that holds them goes on.

    Parameters
    ----------
    num_heads
        How many heads each has; None asks its own attribute ``num_heads``.

    Raises
    ------
    ValueError
        The number of heads is neither given nor to be found.
    """
    found = [
        (module, name) for module in model.modules() for name, child in module.named_children() if _is_attention(child)
    ]
    for parent, name in found:
        own = getattr(parent, name)
        setattr(parent, name, sharing(own, heads_of(own, num_heads)))
    return len(found)


def sharing(attention: nn.Module, num_heads: int) -> MultiHeadAttention:
    """A fused attention with the four linear layers of another one."""
    with torch.device("meta"):
        new = MultiHeadAttention(num_heads, num_heads)
    new.num_heads = num_heads
    for name in PROJECTIONS:
        setattr(new, name, getattr(attention, name))
    return new.train(attention.training)


def heads_of(attention: nn.Module, num_heads: int | None = None) -> int:
    """How many heads an attention has; ValueError where nobody says, or where they cannot share its width."""
    found = num_heads if num_heads is not None else getattr(attention, "num_heads", None)
    if not isinstance(found, int):
        raise ValueError(f"{type(attention).__name__} has no attribute num_heads: say how many heads there are.")
    if attention.get_submodule("w_q").out_features % found:  # type: ignore[operator]
        raise ValueError(f"{found} heads cannot share the width of {type(attention).__name__}.")
    return found


def _is_attention(module: nn.Module) -> bool:
    return all(isinstance(getattr(module, name, None), nn.Linear) for name in PROJECTIONS)
