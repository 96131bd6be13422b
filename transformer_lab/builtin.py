"""PyTorch's own layers behind the names of the course's pieces: the baseline to compare with.

Notebooks build on these when ``PIECES = "builtin"``, so that a mistake in one chapter does not follow a learner into the
next. Using them *as* an answer teaches nothing, and the grader notes it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

softmax = F.softmax


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention by PyTorch's fused kernel, (…, L_q, K), (…, L_k, K), (…, L_k, V) → output and weights (…, L_q, L_k).

    The kernel keeps no weights; they come from a second call with the identity as values.
    """
    eye = torch.eye(k.size(-2), dtype=v.dtype, device=v.device).expand(*k.shape[:-2], -1, -1)
    return (
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        F.scaled_dot_product_attention(q, k, eye, attn_mask=mask),
    )


class TokenEmbedding(nn.Module):
    """Token ids (…, L) → vectors (…, L, d_model), scaled by √d_model (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, vocab_size: int, d_model: int, pad_id: int | None = None):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)
