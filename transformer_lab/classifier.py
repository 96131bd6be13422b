"""The classifier of sequences of chapter 8: its sizes, and how it is put together from the course's pieces.

from transformer_lab import classifier, pieces

model = classifier.build(classifier.GRADED)                               # PyTorch's layers
model = classifier.build(classifier.GRADED, pieces.load("solutions"))     # the same, of the course's own pieces
logits = model(inputs, mask)                                              # (B, L), (B, L) → (B, num_classes)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer_lab import builtin, sequences, training
from transformer_lab.sequences import PAD_ID, Sequences, Task


@dataclass(frozen=True)
class Config:
    """The task, the sizes of the model, and how it is trained.

    ``max_len`` is the length of the longest sequence that the table of positions serves; ``positional=False`` leaves the
    table out.
    """

    task: str
    d_model: int = 32
    num_heads: int = 2
    d_ff: int = 64
    num_layers: int = 2
    dropout: float = 0.0
    norm_first: bool = True
    positional: bool = True
    max_len: int = 128


#: What ``classifier.safetensors`` holds the weights of.
GRADED = Config("first-motif")

#: After so many steps of :func:`transformer_lab.training.fit` it has learnt its task.
STEPS = 1500

#: How many sequences the hidden test set has.
HIDDEN_SIZE = 2_000


class SeriesEmbedding(nn.Module):
    """Numbers (B, L) → (B, L, d_model): each number by one linear map, plus the table of positions, dropout on the sum."""

    encoding: Tensor

    def __init__(self, d_model: int, max_len: int, dropout: float = 0.0, positional: bool = True):
        super().__init__()
        self.linear = nn.Linear(1, d_model)
        self.dropout = nn.Dropout(dropout)
        table = builtin.positional_encoding(max_len, d_model)
        self.register_buffer("encoding", table if positional else table * 0, persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.dropout(self.linear(numbers.unsqueeze(-1)) + self.encoding[: numbers.size(1)])


def build(config: Config, pieces: Any = builtin) -> nn.Module:
    """The model that ``config`` describes, with fresh weights, made of ``pieces`` (any namespace of the course's names).

    The token table begins with standard deviation d_model^−½, as in the paper, so that the vectors, which are multiplied
    by √d_model, and the positions are of one size; the matrices of the layers begin as in ``nn.Transformer`` (Glorot and
    Bengio 2010).
    """
    p, c = pieces, config
    task = sequences.TASKS[c.task]
    if task.vocab_size is None:
        embed = SeriesEmbedding(c.d_model, c.max_len, c.dropout, c.positional)
    else:
        if c.positional:
            embed = p.TransformerEmbedding(task.vocab_size, c.d_model, c.max_len, c.dropout, PAD_ID)
        else:
            embed = p.TokenEmbedding(task.vocab_size, c.d_model, PAD_ID)
        tokens = embed.token if c.positional else embed
        nn.init.normal_(tokens.embedding.weight, std=c.d_model**-0.5)
        nn.init.zeros_(tokens.embedding.weight[PAD_ID])
    layers = [
        p.EncoderLayer(
            p.MultiHeadAttention(c.d_model, c.num_heads),
            p.PositionwiseFeedForward(c.d_model, c.d_ff, c.dropout),
            c.d_model,
            c.dropout,
            c.norm_first,
        )
        for _ in range(c.num_layers)
    ]
    encoder = p.Encoder(layers, p.LayerNorm(c.d_model) if c.norm_first else None)
    for parameter in encoder.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return p.SequenceClassifier(embed, encoder, c.d_model, task.num_classes)


def hidden_test_set(rng: np.random.Generator) -> Sequences:
    """Fresh sequences of the graded task, ``HIDDEN_SIZE`` of them; whoever has another ``rng`` has another set."""
    return task_of(GRADED).sample(HIDDEN_SIZE, rng)


def task_of(config: Config) -> Task:
    """The task of a configuration."""
    return sequences.TASKS[config.task]


@torch.no_grad()
def attention_weights(model: Any, sequences: Sequences, num_heads: int) -> list[Tensor]:
    """The attention weights of each layer, (B, H, L, L), whoever's pieces the model is made of.

    Modules of the course return no weights: they are computed again from what each layer's attention was called with and
    from its parameters, softmax(q kᵀ / √d_k) for each head, keys at padding left out.
    """
    found: list[Tensor] = []

    def look(attention: Any, arguments: tuple[Tensor, ...]) -> None:
        query, key, _, mask = arguments
        q, k = (builtin.split_heads(w(x), num_heads) for w, x in ((attention.w_q, query), (attention.w_k, key)))
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        found.append(scores.masked_fill(~mask, float("-inf")).softmax(-1))

    hooks = [layer.self_attention.register_forward_pre_hook(look) for layer in model.encoder.layers]
    try:
        training.logits(model, sequences)
    finally:
        for hook in hooks:
            hook.remove()
    return found
