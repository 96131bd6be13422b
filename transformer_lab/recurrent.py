"""Translators without a Transformer: a recurrent encoder and decoder, with and without attention, to compare with.

Both read the source from both ends with a GRU. The one without attention keeps of it what fits into one vector, which the
decoder sees at every step (Cho et al. 2014); the one with attention looks back at every word (Bahdanau et al. 2015).
They have the methods of the course's ``Transformer``, so that the same training and the same decoding serve all three.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RecurrentTranslator(nn.Module):
    """source_ids (B, S), target_ids (B, T) → logits (B, T, V).

    Parameters
    ----------
    source_size, target_size
        How many ids there are on each side.
    width
        Of embeddings and of the decoder's state H; the encoder's two directions have half of it each, an even number.
    attention
        Whether the decoder attends to the encoder's states, or sees their last ones only.
    pad_id
        The id of padding on both sides.
    dropout
        Of embeddings, and of what the output is computed from.
    shared
        Whether source, target and output share one table of embeddings, for which both sides have the same ids.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        width: int,
        attention: bool,
        pad_id: int,
        dropout: float = 0.0,
        shared: bool = False,
    ):
        super().__init__()
        self.pad_id, self.dropout = pad_id, nn.Dropout(dropout)
        self.source_embed = nn.Embedding(source_size, width, padding_idx=pad_id)
        self.target_embed = self.source_embed if shared else nn.Embedding(target_size, width, padding_idx=pad_id)
        self.encoder = nn.GRU(width, width // 2, bidirectional=True, batch_first=True)
        self.start = nn.Linear(width, width)
        self.query = nn.Linear(width, width, bias=False) if attention else None
        self.key = nn.Linear(width, width) if attention else None
        self.energy = nn.Linear(width, 1, bias=False) if attention else None
        self.cell = nn.GRUCell(2 * width, width)
        self.output: nn.Module = nn.Linear(3 * width, target_size)
        if shared:
            self.output = nn.Sequential(nn.Linear(3 * width, width), nn.Linear(width, target_size))
            self.output[1].weight = self.target_embed.weight
            nn.init.normal_(self.target_embed.weight, std=width**-0.5)

    @property
    def attends(self) -> bool:
        return self.query is not None

    def encode(self, source_ids: Tensor) -> Tensor:
        """Source ids (B, S) → the states of both directions at every word (B, S, H), 0 at padding."""
        lengths = (source_ids != self.pad_id).sum(1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.source_embed(source_ids)), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = nn.utils.rnn.pad_packed_sequence(
            self.encoder(packed)[0], batch_first=True, total_length=source_ids.size(1)
        )
        return states

    def decode(self, target_ids: Tensor, memory: Tensor, source_ids: Tensor) -> Tensor:
        """Target ids (B, T), what ``encode`` gave and the source ids → logits (B, T, V)."""
        summary = _ends(memory, source_ids != self.pad_id)
        state = torch.tanh(self.start(summary))
        keys = self.key(memory) if self.key is not None else None
        closed = (source_ids == self.pad_id).unsqueeze(-1)
        read = []
        for word in self.dropout(self.target_embed(target_ids)).unbind(1):
            context = summary
            if self.query is not None and self.energy is not None and keys is not None:
                scores = self.energy(torch.tanh(keys + self.query(state).unsqueeze(1)))  # (B, S, 1)
                context = (scores.masked_fill(closed, -torch.inf).softmax(1) * memory).sum(1)
            state = self.cell(torch.cat([word, context], -1), state)
            read.append(torch.cat([word, context, state], -1))
        return self.output(self.dropout(torch.stack(read, 1)))

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        return self.decode(target_ids, self.encode(source_ids), source_ids)


def _ends(memory: Tensor, real: Tensor) -> Tensor:
    """The forward direction's state at each row's last word and the backward direction's at its first, (B, S, H) → (B, H)."""
    half = memory.size(-1) // 2
    last = real.sum(1).sub(1).view(-1, 1, 1).expand(-1, 1, half)
    return torch.cat([memory[..., :half].gather(1, last).squeeze(1), memory[:, 0, half:]], -1)


def width_for(
    parameters: int, source_size: int, target_size: int, attention: bool, pad_id: int, shared: bool = False
) -> int:
    """The width at which a :class:`RecurrentTranslator` comes closest to ``parameters`` parameters."""

    def off(width: int) -> int:
        with torch.device("meta"):
            model = RecurrentTranslator(source_size, target_size, width, attention, pad_id, shared=shared)
        return abs(sum(p.numel() for p in model.parameters()) - parameters)

    return min(range(8, 514, 2), key=off)
