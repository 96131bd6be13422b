"""Greedy and beam decoding of many sentences at once, in which every token is computed once.

    decoder = decoding.decoder_for(model, source_ids)          # with a cache where the model allows one
    ids = decoding.greedy_decode(decoder, source_ids, BOS, EOS, PAD, max_len=50)
    ids, scores = decoding.beam_search(decoder, source_ids, BOS, EOS, PAD, 50, beam_size=4, length_penalty=0.6)

Under a causal mask a position never learns of what comes behind it: its keys and values in every layer stay what they are
when the sentence grows. They are kept, and a step computes the new position only; the keys and values of the source are
computed once a sentence. The results are those of ``builtin.greedy_decode`` and ``builtin.beam_search``, token for token.

The model may consist of anybody's pieces. Its embedding, its layers with their norms and residuals, and its final norm run
as they are; only the attentions inside the decoder's layers are stood in for, by the same four matrices.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import fused


class CannotCache(ValueError):
    """The model does not consist of what a cache needs; the message says what is missing."""


# ------------------------------------------------------------------------------------------------------------ the cache


class KeyValueCache:
    """Keys and values of one attention, (B, H, t, K), for the t positions that have been computed so far.

    There is room for more positions than are filled; it doubles when it is used up, so that a step copies hardly anything.
    """

    def __init__(self) -> None:
        self.length = 0
        self._room: Tensor | None = None  # (2, B, H, ≥ length, K)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of the next n positions, (B, H, n, K); returns all of them, (B, H, t + n, K)."""
        new = torch.stack([keys, values])
        end = self.length + new.size(-2)
        if self._room is None or end > self._room.size(-2):
            larger = new.new_empty(*new.shape[:-2], max(16, 2 * end), new.size(-1))
            if self._room is not None:
                larger[..., : self.length, :] = self._room[..., : self.length, :]
            self._room = larger
        self._room[..., self.length : end, :] = new
        self.length = end
        return self._room[0, ..., :end, :], self._room[1, ..., :end, :]

    def reorder(self, rows: Tensor) -> None:
        """Let row i go on from what was row ``rows[i]``; there may be fewer rows than before, or the same one twice."""
        if self._room is not None:
            self._room = self._room[:, rows]


def attend_with_cache(q: Tensor, k: Tensor, v: Tensor, cache: KeyValueCache, mask: Tensor | None = None) -> Tensor:
    """Attention of new positions to all positions so far, which the cache then holds.

    q, k and v (B, H, n, K) belong to the n new positions; mask, True = may attend, is broadcastable to (B, H, n, t + n).
    Returns (B, H, n, K), the last n rows of what attention over all t + n positions gives.
    """
    keys, values = cache.append(k, v)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)


class _SelfAttention(nn.Module):
    """A piece's self-attention that is given the new positions only, (B, n, D) → (B, n, D)."""

    def __init__(self, attention: Any, num_heads: int):
        super().__init__()
        self.attention, self.num_heads = attention, num_heads
        self.clear()

    def clear(self) -> None:
        self.cache = KeyValueCache()
        self.weight, self.bias = fused.stacked(self.attention.w_q, self.attention.w_k, self.attention.w_v)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        projected = F.linear(query, self.weight, self.bias).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = projected.permute(2, 0, 3, 1, 4)
        return fused.out_projection(self.attention, attend_with_cache(q, k, v, self.cache, mask))


class _CrossAttention(nn.Module):
    """A piece's cross-attention that projects the memory (B, S, D) once, and serves several rows for each of its rows."""

    def __init__(self, attention: Any, num_heads: int):
        super().__init__()
        self.attention, self.num_heads = attention, num_heads
        self.clear()

    def clear(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def keep(self, sentences: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[sentences], self.values[sentences]

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.keys is None or self.values is None:
            keys, values = fused.project(key, self.attention.w_k, self.attention.w_v)
            self.keys, self.values = self._heads(keys), self._heads(values)
        rows, new, _ = query.shape
        # The rows of one sentence stand next to each other: to its keys they are so many more queries.
        queries = self._heads(self.attention.w_q(query).reshape(self.keys.size(0), -1, query.size(-1)))
        heads = F.scaled_dot_product_attention(queries, self.keys, self.values, attn_mask=mask)
        return self.attention.w_o(heads.transpose(1, 2).reshape(rows, new, -1))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


# ---------------------------------------------------------------------------------------------------------- the decoders


class Decoder(Protocol):
    """What :func:`greedy_decode` and :func:`beam_search` need of a model."""

    def start(self, source_ids: Tensor) -> None:
        """Begin with the sources (B, S); what follows has R rows, a multiple of B, those of a sentence side by side."""

    def step(self, ids: Tensor) -> Tensor:
        """The logits (R, V) for the token that follows ids (R, t), of which all but new columns are those of before."""

    def reorder(self, rows: Tensor) -> None:
        """From now on row i goes on from what was row ``rows[i]``, one of the same sentence."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """From now on only these sentences and these rows, both by their numbers of before, are there."""


class PlainDecoder:
    """A model that decodes without a cache: every step computes every position again."""

    def __init__(self, model: Any):
        self.model = model

    def start(self, source_ids: Tensor) -> None:
        self.model.eval()
        self.source_ids, self.memory = source_ids, self.model.encode(source_ids)

    def step(self, ids: Tensor) -> Tensor:
        each = ids.size(0) // self.source_ids.size(0)
        memory, source_ids = (x.repeat_interleave(each, 0) if each > 1 else x for x in (self.memory, self.source_ids))
        return self.model.decode(ids, memory, source_ids)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        pass

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.source_ids, self.memory = self.source_ids[sentences], self.memory[sentences]


class CachedDecoder:
    """A model that decodes with a cache of keys and values.

    It needs the attributes that the course specifies: ``target_embed.token.embedding``, ``decoder.layers``, in each layer
    ``self_attention`` and ``cross_attention``, in these ``w_q``, ``w_k``, ``w_v`` and ``w_o``. The model itself is not
    changed, and its weights may be between two sentences.

    Parameters
    ----------
    model
        An encoder–decoder with ``encode`` and ``decode``.
    num_heads
        How many heads each attention has; None asks its own attribute ``num_heads``.

    Raises
    ------
    CannotCache
        An attribute is missing.
    """

    def __init__(self, model: Any, num_heads: int | None = None):
        self.model = model
        try:
            self._table: Tensor = model.target_embed.token.embedding.weight
            self._pad_id: int = model.pad_id
            layers = [self._stand_in(layer, num_heads) for layer in model.decoder.layers]
        except (AttributeError, TypeError, ValueError) as error:
            raise CannotCache(f"No cache of keys and values: {error}") from error
        self._attentions = [layer.self_attention for layer in layers]
        self._crossings = [layer.cross_attention for layer in layers]
        self._decoder = _twin(model.decoder, layers=nn.ModuleList(layers))

    @staticmethod
    def _stand_in(layer: nn.Module, num_heads: int | None) -> Any:
        """A layer that shares all with ``layer`` but its attentions, which have a cache."""
        parts: dict[str, nn.Module] = {}
        for name, kind in (("self_attention", _SelfAttention), ("cross_attention", _CrossAttention)):
            own = getattr(layer, name)
            for projection in fused.PROJECTIONS:
                if not isinstance(getattr(own, projection, None), nn.Linear):
                    raise AttributeError(f"{name} of a {type(layer).__name__} has no linear {projection}.")
            parts[name] = kind(own, fused.heads_of(own, num_heads))
        return _twin(layer, **parts)

    def start(self, source_ids: Tensor) -> None:
        self.model.eval()
        self._decoder.eval()
        self.length = 0
        for part in (*self._attentions, *self._crossings):
            part.clear()
        self.memory = self.model.encode(source_ids)
        self.memory_mask = (source_ids != self._pad_id)[:, None, None, :]

    def step(self, ids: Tensor) -> Tensor:
        return self._hidden(ids)[:, -1] @ self._table.T

    def reorder(self, rows: Tensor) -> None:
        for part in self._attentions:
            part.cache.reorder(rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.reorder(rows)
        for part in self._crossings:
            part.keep(sentences)
        self.memory, self.memory_mask = self.memory[sentences], self.memory_mask[sentences]

    def _hidden(self, ids: Tensor) -> Tensor:
        """The last layer's states of the columns of ids (R, t) that are new, (R, n, D)."""
        first, self.length = self.length, ids.size(1)
        mask = (ids != self._pad_id)[:, None, None, :]
        if self.length - first > 1:
            places = torch.arange(self.length, device=ids.device)
            mask = mask & (places <= places[first:, None])
        return self._decoder(self.model.target_embed(ids)[:, first:], self.memory, mask, self.memory_mask)

    @torch.no_grad()
    def check(self, source_ids: Tensor) -> None:
        """See on a few sentences that a cached step gives what the model's own ``decode`` gives.

        Pieces may keep all names and compute something else, for instance divide scores by another number.

        Raises
        ------
        CannotCache
            The numbers differ.
        """
        source_ids = source_ids[:2]
        length = min(4, source_ids.size(1))  # a model has positions for its source at least
        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(self._table.size(0), (source_ids.size(0), length), generator=draw).to(source_ids.device)
        ids[:, 0] = (self._pad_id + 1) % self._table.size(0)
        self.start(source_ids)
        wanted = self.model.decode(ids, self.memory, source_ids)
        half = (length + 1) // 2
        hidden = [self._hidden(ids[:, :half]), *(self._hidden(ids[:, : t + 1]) for t in range(half, length))]
        found = torch.cat(hidden, 1) @ self._table.T
        off = float((found - wanted).abs().max())
        if not off <= _TOLERANCE.get(wanted.dtype, 0.05) * float(wanted.abs().max()):
            raise CannotCache(
                f"No cache of keys and values: with it the logits differ by {off:.2g} from those of the model's decode."
            )


#: Logits may differ by so much of the largest one; in half precision by more.
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


def decoder_for(
    model: Any,
    source_ids: Tensor,
    num_heads: int | None = None,
    say: Callable[[str], Any] = lambda text: print(text, file=sys.stderr),
) -> CachedDecoder | PlainDecoder:
    """The decoder with a cache, or, where the model's pieces do not allow it, the one without; then ``say`` is told why.

    ``source_ids`` (B, S) are some sentences on which to see that the two agree; see :class:`CachedDecoder`.
    """
    try:
        cached = CachedDecoder(model, num_heads)
        cached.check(source_ids)
    except CannotCache as reason:
        say(f"{reason} Every step computes the whole sentence again.")
        return PlainDecoder(model)
    return cached


# ---------------------------------------------------------------------------------------------------------- the searches


@torch.no_grad()
def greedy_decode(decoder: Decoder, source_ids: Tensor, bos_id: int, eos_id: int, pad_id: int, max_len: int) -> Tensor:
    """The likeliest token again and again for sources (B, S): ids (B, ≤ max_len) from BOS on, padding behind EOS.

    Sentences that have ended leave the batch when they are half of it. On a GPU one looks only every eighth step whether
    all have ended, since looking means waiting for it.
    """
    device, size = source_ids.device, source_ids.size(0)
    found = torch.full((size, max(1, max_len)), pad_id, device=device)
    found[:, 0] = bos_id
    decoder.start(source_ids)
    numbers = torch.arange(size, device=device)  # which sentence each row of the batch is
    ended = torch.zeros(size, dtype=torch.bool, device=device)
    ids = found[:, :1]
    look = 1 if device.type == "cpu" else 8
    while ids.size(1) < max_len:
        best = decoder.step(ids).argmax(-1).masked_fill(ended, pad_id)
        found[numbers, ids.size(1)] = best
        ids, ended = torch.cat([ids, best[:, None]], 1), ended | (best == eos_id)
        if ids.size(1) % look == 0:
            left = (~ended).nonzero().flatten()
            if not left.numel():
                break
            if 2 * left.numel() <= ended.numel():
                decoder.keep(left, left)
                numbers, ids, ended = numbers[left], ids[left], ended[left]
    return _cut(found, eos_id)


@torch.no_grad()
def beam_search(
    decoder: Decoder,
    source_ids: Tensor,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_len: int,
    beam_size: int,
    length_penalty: float,
) -> tuple[Tensor, Tensor]:
    """The best that a beam finds for each source (B, S): ids (B, ≤ max_len), padding behind EOS, and scores (B,).

    A hypothesis of n generated tokens scores Σ log p / n^length_penalty, EOS counted. Each sentence has ``beam_size`` rows
    in the batch, of which those that have ended wait; sentences without an open one leave when they are half of it.
    """
    device, size = source_ids.device, source_ids.size(0)
    best_ids = torch.full((size, max(1, max_len)), pad_id, device=device)
    best_ids[:, 0] = bos_id
    best_scores: Tensor | None = None
    decoder.start(source_ids)
    numbers = torch.arange(size, device=device)
    ids = torch.full((size, beam_size, 1), bos_id, device=device)
    open_ = (torch.arange(beam_size, device=device) == 0).expand(size, -1)  # all begin alike: one of them is enough
    totals = torch.zeros(size, beam_size, device=device)
    while ids.size(-1) < max_len:
        logits = decoder.step(ids.flatten(0, 1)).unflatten(0, (-1, beam_size))  # (B, beam, V)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if best_scores is None:
            best_scores = logits.new_full((size,), -torch.inf)
        following = (totals[..., None] + logits.log_softmax(-1)).masked_fill(~open_[..., None], -torch.inf)
        totals, places = stable_topk(following.flatten(1), beam_size)
        parents, tokens = places // logits.size(-1), places % logits.size(-1)
        ids = torch.cat([ids.gather(1, parents[..., None].expand(-1, -1, ids.size(-1))), tokens[..., None]], -1)
        length = ids.size(-1)
        open_ = open_.gather(1, parents)
        closed = open_ & ((tokens == eos_id) | (length == max_len))
        open_ = open_ & ~closed
        # Equally long ones have the order of their totals: the first that is closed is the best of this step.
        first = (closed & (closed.cumsum(1) == 1)).to(torch.int8).argmax(1)
        every = torch.arange(len(numbers), device=device)
        scores = (totals / (length - 1) ** length_penalty)[every, first]
        better = closed.any(1) & (scores > best_scores[numbers])
        best_scores[numbers] = torch.where(better, scores, best_scores[numbers])
        best_ids[numbers, :length] = torch.where(better[:, None], ids[every, first], best_ids[numbers, :length])
        decoder.reorder((parents + beam_size * every[:, None]).flatten())
        left = open_.any(1).nonzero().flatten()
        if not left.numel():
            break
        if 2 * left.numel() <= len(numbers):
            rows = (left[:, None] * beam_size + torch.arange(beam_size, device=device)).flatten()
            decoder.keep(left, rows)
            numbers, ids, open_, totals = numbers[left], ids[left], open_[left], totals[left]
    if best_scores is None:
        best_scores = torch.full((size,), -torch.inf, device=device)
    return _cut(best_ids, eos_id), best_scores


def stable_topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k ≤ N largest of each row (B, N), equal ones in the order of their places: values, largest first, and places (B, k).

    ``torch.topk`` leaves open which of several equal ones it takes, and a whole stable sort takes long. Rows are sorted
    only where equal ones stand on both sides of the cut.
    """
    top, places = values.topk(k)
    last = top[:, -1:]
    tied = (values == last).sum(1) > (top == last).sum(1)
    if tied.any():
        ordered, order = values[tied].sort(dim=1, descending=True, stable=True)
        top[tied], places[tied] = ordered[:, :k], order[:, :k]
    places, order = places.sort(dim=1)
    top, order = top.gather(1, order).sort(dim=1, descending=True, stable=True)
    return top, places.gather(1, order)


def _cut(ids: Tensor, eos_id: int) -> Tensor:
    """The columns of ids (B, L) up to the last one that a row needs: to its EOS, or all of them where it has none."""
    ends = ids[:, 1:] == eos_id
    if not ends.numel():
        return ids
    needed = torch.where(ends.any(1), ends.to(torch.int8).argmax(1) + 2, ids.size(1))
    return ids[:, : int(needed.max())]


def _twin(module: nn.Module, **parts: nn.Module) -> Any:
    """A module that shares everything with ``module`` but the sub-modules ``parts``."""
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)
    for name, part in parts.items():
        setattr(twin, name, part)
    return twin
