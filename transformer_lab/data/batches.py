"""Pairs of sentences as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from transformer_lab.data.pairs import Pair
from transformer_lab.data.vocabulary import PAD, Tokens


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Sequences of ids as rows of one tensor (B, L) of int64, L being the longest length, filled up with ``<pad>``.

    ValueError where there is no sequence.
    """
    if not sequences:
        raise ValueError("A batch holds at least one sequence.")
    ids = torch.full((len(sequences), max(map(len, sequences))), PAD)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
    return ids


def batch(pairs: Iterable[Pair], source: Tokens, target: Tokens) -> tuple[Tensor, Tensor]:
    """The ids of ``pairs``: sources (B, S) and targets (B, T), each row ``<bos> … <eos> <pad> …``."""
    both = [(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]
    return pad([ids for ids, _ in both]), pad([ids for _, ids in both])
