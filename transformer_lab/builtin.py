"""PyTorch's own layers behind the names of the course's pieces: the baseline to compare with.

Notebooks build on these when ``PIECES = "builtin"``, so that a mistake in one chapter does not follow a learner into the
next. Using them *as* an answer teaches nothing, and the grader notes it.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab.accumulation import accumulate as accumulate
from transformer_lab.token_batches import batches_by_tokens as batches_by_tokens


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """PyTorch's softmax; without ``dim``, over the last axis, where PyTorch's own would take the first of three."""
    return F.softmax(scores, dim)


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


def positional_encoding(seq_len: int, d_model: int) -> Tensor:
    """The sinusoidal table (seq_len, d_model) of Vaswani et al. (2017), section 3.5, as points that turn on circles.

    Each pair of columns (sin pω, cos pω) is the complex number i·e^(−ipω): from one position to the next it is multiplied
    by e^(−iω). ``d_model`` is even.
    """
    omega = 10000 ** -torch.linspace(0, 1, d_model // 2 + 1, dtype=torch.float64)[:-1]
    turn = torch.polar(torch.ones_like(omega), -omega)
    positions = torch.arange(seq_len, dtype=torch.float64).unsqueeze(-1)
    return torch.view_as_real(1j * turn**positions).flatten(-2).float()


class TransformerEmbedding(nn.Module):
    """Token ids (B, L) → (B, L, d_model): token vectors plus the table of positions, with dropout on the sum."""

    encoding: Tensor

    def __init__(self, vocab_size: int, d_model: int, max_len: int, dropout: float = 0.0, pad_id: int | None = None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("encoding", positional_encoding(max_len, d_model), persistent=False)
        self.p = dropout

    def forward(self, token_ids: Tensor) -> Tensor:
        vectors = self.token(token_ids)
        return F.dropout(vectors + self.encoding[: vectors.size(-2)], self.p, self.training)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """x (B, L, D) → (B, H, L, D / H); ValueError if the width cannot be shared among the heads."""
    _require_divisible(x.size(-1), num_heads)
    return x.unflatten(-1, (num_heads, -1)).movedim(-2, -3)


def merge_heads(x: Tensor) -> Tensor:
    """x (B, H, L, K) → (B, L, H·K): :func:`split_heads` undone."""
    return x.movedim(-3, -2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """The function behind ``nn.MultiheadAttention``, with the course's parameter names and its masks: True = may attend.

    query (B, T, D), key and value (B, S, D), mask broadcastable to (B, H, T, S) → (B, T, D).
    """

    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        _require_divisible(d_model, num_heads)
        self.num_heads = num_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = None
        if mask is not None:  # PyTorch wants one mask for each sentence and head, True = hidden
            sizes = (query.size(0), self.num_heads, query.size(1), key.size(1))
            hidden = mask.logical_not().expand(sizes).flatten(0, 1)
        output, _ = F.multi_head_attention_forward(
            query.transpose(0, 1),
            key.transpose(0, 1),
            value.transpose(0, 1),
            embed_dim_to_check=query.size(-1),
            num_heads=self.num_heads,
            in_proj_weight=None,
            in_proj_bias=torch.cat([self.w_q.bias, self.w_k.bias, self.w_v.bias]),
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.w_o.weight,
            out_proj_bias=self.w_o.bias,
            training=self.training,
            need_weights=False,
            attn_mask=hidden,
            use_separate_proj_weight=True,
            q_proj_weight=self.w_q.weight,
            k_proj_weight=self.w_k.weight,
            v_proj_weight=self.w_v.weight,
        )
        return output.transpose(0, 1)


def _require_divisible(d_model: int, num_heads: int) -> None:
    if d_model % num_heads:
        raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}.")


class PositionwiseFeedForward(nn.Sequential):
    """Two ``nn.Linear`` with ReLU and dropout between them, (…, d_model) → (…, d_model), the same at every position."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__(
            OrderedDict(
                linear1=nn.Linear(d_model, d_ff),
                relu=nn.ReLU(),
                dropout=nn.Dropout(dropout),
                linear2=nn.Linear(d_ff, d_model),
            )
        )


class LayerNorm(nn.Module):
    """``F.layer_norm`` over the last axis, (…, d_model) → (…, d_model), with the course's parameter names."""

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class Residual(nn.Module):
    """A path around a sub-layer: the norm behind the sum, or before the sub-layer when ``norm_first``."""

    def __init__(self, dropout: float = 0.0, norm_first: bool = False):
        super().__init__()
        self.p, self.norm_first = dropout, norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
        update = sublayer(norm(x) if self.norm_first else x)
        total = x + F.dropout(update, self.p, self.training)
        return total if self.norm_first else norm(total)


class EncoderLayer(nn.Module):
    """``nn.TransformerEncoderLayer`` around sub-modules that are given to it, (B, L, d_model) → (B, L, d_model)."""

    def __init__(
        self,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        d_model: int,
        dropout: float = 0.0,
        norm_first: bool = False,
    ):
        super().__init__()
        self.self_attention, self.feed_forward = self_attention, feed_forward
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)
        self.residual = Residual(dropout, norm_first)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        def attend(tokens: Tensor) -> Tensor:
            return self.self_attention(tokens, tokens, tokens, mask)

        return self.residual(self.residual(x, attend, self.norm1), self.feed_forward, self.norm2)


def padding_mask(token_ids: Tensor, pad_id: int) -> Tensor:
    """Token ids (B, L) → (B, 1, 1, L), True at real tokens."""
    return token_ids.ne(pad_id).unflatten(0, (-1, 1, 1))


def causal_mask(size: int) -> Tensor:
    """``nn.Transformer.generate_square_subsequent_mask`` as booleans, (size, size), True where key ≤ query."""
    return nn.Transformer.generate_square_subsequent_mask(size) == 0


def target_mask(token_ids: Tensor, pad_id: int) -> Tensor:
    """Token ids (B, T) → (B, 1, T, T), True where the key is no padding and not in the query's future."""
    return padding_mask(token_ids, pad_id) & causal_mask(token_ids.size(1)).to(token_ids.device)


class DecoderLayer(nn.Module):
    """``nn.TransformerDecoderLayer`` around sub-modules that are given to it, (B, T, d_model) → (B, T, d_model)."""

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        d_model: int,
        dropout: float = 0.0,
        norm_first: bool = False,
    ):
        super().__init__()
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        self.norm1, self.norm2, self.norm3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)
        self.residual = Residual(dropout, norm_first)

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        def attend(tokens: Tensor) -> Tensor:
            return self.self_attention(tokens, tokens, tokens, target_mask)

        def ask(tokens: Tensor) -> Tensor:
            return self.cross_attention(tokens, memory, memory, memory_mask)

        x = self.residual(x, attend, self.norm1)
        return self.residual(self.residual(x, ask, self.norm2), self.feed_forward, self.norm3)


class Encoder(nn.Module):
    """Encoder layers one after the other, each called as ``layer(x, mask)``, and a norm behind the last where one is given.

    ``nn.TransformerEncoder`` would copy its layer; here the layers are those that were handed in. (B, L, D) → (B, L, D).
    """

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = functools.reduce(lambda tokens, layer: layer(tokens, mask), self.layers, x)
        return x if self.norm is None else self.norm(x)


def masked_mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """``torch.masked.mean`` over the real tokens, hidden (B, L, D) and mask (B, L) → (B, D); zeros where there are none."""
    mean = torch.masked.mean(hidden, 1, mask=mask.unsqueeze(-1))
    return mean.masked_fill(mask.any(1, keepdim=True).logical_not(), 0.0)


class SequenceClassifier(nn.Module):
    """Embedding, encoder, mean over the real tokens and one linear map: inputs and mask (B, L) → logits (B, num_classes)."""

    def __init__(self, embed: nn.Module, encoder: nn.Module, d_model: int, num_classes: int):
        super().__init__()
        self.embed, self.encoder = embed, encoder
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(self.embed(inputs), mask.unflatten(0, (-1, 1, 1)))
        return self.head(masked_mean_pool(hidden, mask))


class Decoder(nn.Module):
    """Decoder layers one after the other, each called as ``layer(x, memory, target_mask, memory_mask)``; see :class:`Encoder`.

    ``nn.TransformerDecoder`` would copy its layer. x (B, T, D), memory (B, S, D) → (B, T, D).
    """

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = functools.reduce(lambda tokens, layer: layer(tokens, memory, target_mask, memory_mask), self.layers, x)
        return x if self.norm is None else self.norm(x)


class Transformer(nn.Module):
    """Encoder and decoder with their embeddings; the target's table is the output layer as well (section 3.4 of the paper).

    source_ids (B, S), target_ids (B, T) → logits (B, T, V).
    """

    def __init__(
        self, source_embed: nn.Module, target_embed: nn.Module, encoder: nn.Module, decoder: nn.Module, pad_id: int
    ):
        super().__init__()
        self.source_embed, self.target_embed = source_embed, target_embed
        self.encoder, self.decoder, self.pad_id = encoder, decoder, pad_id
        table = target_embed.get_parameter("token.embedding.weight")
        nn.init.normal_(table, std=table.size(1) ** -0.5)
        with torch.no_grad():
            table[pad_id] = 0.0

    def encode(self, source_ids: Tensor) -> Tensor:
        return self.encoder(self.source_embed(source_ids), padding_mask(source_ids, self.pad_id))

    def decode(self, target_ids: Tensor, memory: Tensor, source_ids: Tensor) -> Tensor:
        masks = target_mask(target_ids, self.pad_id), padding_mask(source_ids, self.pad_id)
        hidden = self.decoder(self.target_embed(target_ids), memory, *masks)
        return F.linear(hidden, self.target_embed.get_parameter("token.embedding.weight"))

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        return self.decode(target_ids, self.encode(source_ids), source_ids)


def shift_targets(target_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (B, T + 1) → what the decoder is given and what it is to say next, both (B, T)."""
    pairs = target_ids.unfold(-1, 2, 1)
    return pairs[..., 0], pairs[..., 1]


def label_smoothed_cross_entropy(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float = 0.0) -> Tensor:
    """``F.cross_entropy`` with ``label_smoothing``, logits (N, V) and targets (N,) → their mean over what is not ``pad_id``."""
    return F.cross_entropy(logits, targets, ignore_index=pad_id, label_smoothing=smoothing)


def noam_lr(step: int, d_model: int, warmup: int) -> float:
    """The learning rate of the paper's section 5.3, for steps from 1: it rises until ``warmup`` and falls as 1/√step."""
    return 1 / math.sqrt(d_model * max(step, warmup)) * min(1.0, step / warmup)


@torch.no_grad()
def greedy_decode(
    step_fn: Callable[[Tensor], Tensor], bos_id: int, eos_id: int, pad_id: int, batch_size: int, max_len: int
) -> Tensor:
    """The likeliest token again and again, from BOS until every row has its EOS or is ``max_len`` long.

    ``step_fn`` maps ids (B, t) to logits (B, t, V). What comes back is ids (B, ≤ max_len), padding behind EOS.
    """
    ids = torch.full((batch_size, 1), bos_id)
    ended = torch.zeros(batch_size, dtype=torch.bool)
    while ids.size(1) < max_len and not ended.all():
        best = step_fn(ids)[:, -1].argmax(-1).cpu().masked_fill(ended, pad_id)
        ids = torch.hstack([ids, best.unsqueeze(-1)])
        ended = ended.logical_or(best == eos_id)
    return ids


@torch.no_grad()
def beam_search(
    step_fn: Callable[[Tensor], Tensor],
    bos_id: int,
    eos_id: int,
    pad_id: int,
    max_len: int,
    beam_size: int,
    length_penalty: float,
) -> tuple[Tensor, float]:
    """The best of what a beam finds for one sentence: ids (≤ max_len,) from BOS on, and their score.

    A hypothesis of n generated tokens scores Σ log p / n^length_penalty, EOS counted (Wu et al. 2016 divide by another
    power of the length). ``step_fn`` maps ids (K, t) to logits (K, t, V) for the K ≤ beam_size that are still open.
    """
    live, totals = torch.full((1, 1), bos_id), torch.zeros(1)
    best_ids, best_score = live[0], -math.inf
    while live.size(0) and live.size(1) < max_len:
        following = totals.unsqueeze(-1) + step_fn(live)[:, -1].log_softmax(-1).cpu()  # (K, V)
        totals, flat = following.flatten().sort(descending=True, stable=True)
        totals, flat = totals[:beam_size], flat[:beam_size]
        parents, tokens = flat // following.size(-1), flat % following.size(-1)
        live = torch.hstack([live[parents], tokens.unsqueeze(-1)])
        scores = totals / (live.size(1) - 1) ** length_penalty
        closed = (tokens == eos_id) | (live.size(1) == max_len)
        for index in closed.nonzero().flatten().tolist():
            if scores[index] > best_score:
                best_ids, best_score = live[index], float(scores[index])
        live, totals = live[~closed], totals[~closed]
    return best_ids, best_score


def corpus_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """sacreBLEU's score, 0 to 100, of token lists with one reference each: no smoothing, no tokenising of its own."""
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError("BLEU is counted by sacrebleu, which is missing: pip install sacrebleu") from error

    metric = sacrebleu.BLEU(smooth_method="none", tokenize="none", force=True)
    return metric.corpus_score([" ".join(h) for h in hypotheses], [[" ".join(r) for r in references]]).score


def attend_with_cache(
    q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Causal attention of n new positions to t past ones and themselves, by the cache of :mod:`transformer_lab.decoding`.

    q, k and v (B, H, n, K), keys and values in ``past`` (B, H, t, K), mask (B, t + n) with True at real tokens → output
    (B, H, n, K), zeros where a query may attend to nothing, and the keys and values of all t + n positions.
    """
    from transformer_lab import decoding  # which stands on this module

    cache = decoding.KeyValueCache()
    if past is not None:
        cache.append(*past)
    opened = causal_mask(cache.length + q.size(-2))[cache.length :].to(q.device)
    if mask is not None:
        opened = opened & mask[:, None, None, :]
    output = decoding.attend_with_cache(q, k, v, cache, opened)
    nothing = opened.any(-1, keepdim=True).logical_not()
    return output.masked_fill(nothing, 0.0), cache.append(k[..., :0, :], v[..., :0, :])
