"""What the heads of a trained model attend to: the weights of any attention piece, while the model runs as it is.

    with attention_maps.recording(model, num_heads=4) as maps:
        model(source_ids, target_ids)
    maps["decoder.layers.0.cross_attention"][0]        # (B, H, T, S), one entry for each call

The weights are computed beside the piece, from the query and key that it was called with and its own ``w_q`` and ``w_k``,
so that a piece need not return them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def recording(model: nn.Module, num_heads: int) -> Iterator[dict[str, list[Tensor]]]:
    """While the context lasts, write down the weights of every attention in ``model``, by the name of the module.

    An attention is what has ``w_q`` and ``w_k``; head i owns their output columns i·K to (i + 1)·K − 1.
    """
    maps: dict[str, list[Tensor]] = {}
    hooks = []

    def watch(name: str):
        def before(module: nn.Module, args: tuple, kwargs: dict) -> None:
            query, key, *rest = (*args, *kwargs.values())
            mask = rest[1] if len(rest) > 1 else None
            maps[name].append(weights(module, query, key, mask, num_heads))

        return before

    for name, module in model.named_modules():
        if hasattr(module, "w_q") and hasattr(module, "w_k"):
            maps[name] = []
            hooks.append(module.register_forward_pre_hook(watch(name), with_kwargs=True))
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def weights(attention: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, num_heads: int) -> Tensor:
    """softmax(q kᵀ / √K) of every head: query (B, T, D), key (B, S, D), mask broadcastable to (B, H, T, S) → (B, H, T, S)."""
    q = attention.get_submodule("w_q")(query).unflatten(-1, (num_heads, -1)).transpose(1, 2)
    k = attention.get_submodule("w_k")(key).unflatten(-1, (num_heads, -1)).transpose(1, 2)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1)
