"""Known mistakes of chapter 7, each as the code that makes it and the hint that a tutor would give."""

import torch
from torch import nn

from autograder.misconceptions import ch06_norm_and_residual as chapter6
from autograder.registry import misconception

# ------------------------------------------------------------------------------------------------------- padding_mask

PADDING = "padding_mask"


def _real(token_ids, pad_id):
    """The correct mask, (B, 1, 1, L)."""
    return (token_ids != pad_id)[:, None, None, :]


@misconception(PADDING, "mask-inverted", "True marks padding: it must mark the real tokens, as True means may attend.")
def padding_inverted(token_ids, pad_id):
    return ~_real(token_ids, pad_id)


@misconception(PADDING, "padding-id-fixed", "Padding is taken to be 0: compare with pad_id, which may be any number.")
def padding_id_fixed(token_ids, pad_id):
    return _real(token_ids, 0)


@misconception(PADDING, "padding-id-fixed", "Real tokens are taken to be greater than 0: compare with pad_id.")
def padding_not_positive(token_ids, pad_id):
    return (token_ids > 0)[:, None, None, :]


@misconception(
    PADDING, "greater-than-padding", "Ids below pad_id count as padding: real is what is *not equal* to pad_id."
)
def greater_than_padding(token_ids, pad_id):
    return (token_ids > pad_id)[:, None, None, :]


@misconception(PADDING, "axes-missing", "The axes for heads and queries are missing: the mask is (B, 1, 1, L).")
def axes_missing(token_ids, pad_id):
    return token_ids != pad_id


@misconception(PADDING, "one-axis-only", "There is one axis of length 1 where two belong: the mask is (B, 1, 1, L).")
def one_axis_only(token_ids, pad_id):
    return (token_ids != pad_id)[:, None, :]


@misconception(
    PADDING, "axes-in-front", "The axes of length 1 stand in front of the batch: they go between it and the keys."
)
def axes_in_front(token_ids, pad_id):
    return (token_ids != pad_id)[None, None]


@misconception(
    PADDING, "axes-behind", "The axes of length 1 stand behind the keys: the keys are the last axis, (B, 1, 1, L)."
)
def axes_behind(token_ids, pad_id):
    return (token_ids != pad_id)[:, :, None, None]


@misconception(PADDING, "closes-queries", "The mask closes queries, (B, 1, L, 1): it closes keys, (B, 1, 1, L).")
def closes_queries(token_ids, pad_id):
    return (token_ids != pad_id)[:, None, :, None]


@misconception(
    PADDING,
    "queries-and-keys",
    "The mask has a row for each query and closes those of padding: it closes keys only, for all alike, (B, 1, 1, L).",
)
def queries_and_keys(token_ids, pad_id):
    real = token_ids != pad_id
    return (real[:, :, None] & real[:, None, :])[:, None]


@misconception(
    PADDING,
    "repeated-for-queries",
    "The mask is repeated for each query: leave that axis 1, (B, 1, 1, L), it broadcasts.",
)
def repeated_for_queries(token_ids, pad_id):
    return _real(token_ids, pad_id).repeat(1, 1, token_ids.size(1), 1)


NUMBERS = "The mask holds numbers, which would be added to the scores: a comparison gives booleans, keep them."


@misconception(PADDING, "numbers-for-booleans", NUMBERS)
def padding_as_floats(token_ids, pad_id):
    return _real(token_ids, pad_id).float()


@misconception(PADDING, "numbers-for-booleans", NUMBERS)
def padding_as_integers(token_ids, pad_id):
    return _real(token_ids, pad_id).long()


ADDITIVE = "The mask holds 0 and −∞, to be added to scores: here masks are boolean, and True means may attend."


@misconception(PADDING, "additive-mask", ADDITIVE)
def additive_padding(token_ids, pad_id):
    return torch.zeros(token_ids.shape).masked_fill(token_ids == pad_id, float("-inf"))[:, None, None, :]


@misconception(
    PADDING,
    "counts-from-the-left",
    "The number of real tokens is counted and as many opened from the left: padding may stand anywhere, look at each id.",
)
def counts_from_the_left(token_ids, pad_id):
    lengths = (token_ids != pad_id).sum(1)
    return (torch.arange(token_ids.size(1)) < lengths[:, None])[:, None, None, :]


@misconception(
    PADDING,
    "ends-at-first-padding",
    "Everything behind the first padding is closed: padding may stand anywhere, look at each id by itself.",
)
def ends_at_first_padding(token_ids, pad_id):
    return (token_ids != pad_id).long().cumprod(1).bool()[:, None, None, :]


@misconception(PADDING, "first-sentence-for-all", "The mask of the first sentence serves all: each has its own.")
def first_sentence_for_all(token_ids, pad_id):
    return (token_ids[:1] != pad_id).expand_as(token_ids)[:, None, None, :]


@misconception(
    PADDING,
    "padding-of-any-sentence",
    "A position that is padding in one sentence is closed in all: each has its own row.",
)
def padding_of_any_sentence(token_ids, pad_id):
    return (token_ids != pad_id).all(0).expand_as(token_ids)[:, None, None, :]


@misconception(PADDING, "changed-in-place", "token_ids is changed in place: make the mask by a comparison.")
def padding_in_place(token_ids, pad_id):
    mask = _real(token_ids, pad_id)
    token_ids[token_ids == pad_id] = -1
    return mask


# -------------------------------------------------------------------------------------------------------- causal_mask

CAUSAL = "causal_mask"


def _square(size):
    return torch.ones(size, size, dtype=torch.bool)


@misconception(
    CAUSAL, "upper-triangle", "That is the upper triangle: each token sees the future. The lower one, tril, is wanted."
)
def upper_triangle(size):
    return _square(size).triu()


@misconception(CAUSAL, "mask-inverted", "True marks what is hidden, as in nn.Transformer: here True means may attend.")
def causal_inverted(size):
    return _square(size).triu(1)


@misconception(
    CAUSAL, "diagonal-closed", "A token doesn't see itself, and the first sees nothing: the diagonal belongs to it."
)
def diagonal_closed(size):
    return _square(size).tril(-1)


@misconception(
    CAUSAL, "one-step-ahead", "Each token sees one step into the future: the triangle ends with the diagonal."
)
def one_step_ahead(size):
    return _square(size).tril(1)


@misconception(CAUSAL, "nothing-hidden", "Nothing is hidden: a query may attend to keys up to its own position only.")
def nothing_hidden(size):
    return _square(size)


@misconception(CAUSAL, "only-itself", "Each token sees only itself: the past is open too.")
def only_itself(size):
    return torch.eye(size, dtype=torch.bool)


@misconception(CAUSAL, "only-the-last-row", "The mask is one row: each query has a row of its own, (size, size).")
def only_the_last_row(size):
    return torch.ones(size, dtype=torch.bool)


@misconception(CAUSAL, "two-back", "Each token sees itself and one before it only: the whole past is open.")
def two_back(size):
    return _square(size).tril() & _square(size).triu(-1)


@misconception(CAUSAL, "turned-round", "The triangle is cut along the other diagonal: row i is open up to column i.")
def turned_round(size):
    return _square(size).tril().flip(1)


@misconception(CAUSAL, "numbers-for-booleans", NUMBERS)
def causal_as_floats(size):
    return _square(size).tril().float()


@misconception(CAUSAL, "numbers-for-booleans", NUMBERS)
def causal_as_integers(size):
    return _square(size).tril().long()


@misconception(CAUSAL, "additive-mask", ADDITIVE)
def additive_causal(size):
    return torch.full((size, size), float("-inf")).triu(1)


@misconception(CAUSAL, "axes-added", "The mask has further axes: here it is (size, size), and broadcasts as it is.")
def axes_added(size):
    return _square(size).tril()[None, None]


@misconception(CAUSAL, "axes-added", "The mask has a further axis: here it is (size, size), and broadcasts as it is.")
def axis_added(size):
    return _square(size).tril()[None]


@misconception(CAUSAL, "one-short", "The mask is one row and one column short: it is (size, size).")
def one_short(size):
    return _square(size - 1).tril()


# -------------------------------------------------------------------------------------------------------- target_mask

TARGET = "target_mask"


def _past(token_ids):
    return _square(token_ids.size(1)).tril()


@misconception(TARGET, "joined-by-or", "The two masks are joined by or: a key is open only if both open it, use &.")
def joined_by_or(token_ids, pad_id):
    return _real(token_ids, pad_id) | _past(token_ids)


@misconception(
    TARGET, "joined-by-xor", "The two masks are joined by ^ or !=: a key is open only if both open it, use &."
)
def joined_by_xor(token_ids, pad_id):
    return _real(token_ids, pad_id) ^ _past(token_ids)


@misconception(TARGET, "numbers-for-booleans", "The two masks are added, which gives numbers: join them by &.")
def added(token_ids, pad_id):
    return _real(token_ids, pad_id).long() + _past(token_ids).long()


@misconception(TARGET, "numbers-for-booleans", NUMBERS)
def target_as_floats(token_ids, pad_id):
    return _real(token_ids, pad_id).float() * _past(token_ids)


@misconception(TARGET, "numbers-for-booleans", NUMBERS)
def target_as_integers(token_ids, pad_id):
    return _real(token_ids, pad_id).long() * _past(token_ids)


@misconception(TARGET, "padding-open", "Padding is open as a key: join the causal mask with the padding mask.")
def padding_open(token_ids, pad_id):
    return _past(token_ids).repeat(token_ids.size(0), 1, 1, 1)


@misconception(TARGET, "future-open", "The future is open: join the padding mask with the causal mask.")
def future_open(token_ids, pad_id):
    return _real(token_ids, pad_id).expand(-1, -1, token_ids.size(1), -1)


@misconception(
    TARGET, "padding-inverted", "The padding mask is the wrong way round: real tokens are open, padding is not."
)
def target_padding_inverted(token_ids, pad_id):
    return ~_real(token_ids, pad_id) & _past(token_ids)


@misconception(TARGET, "upper-triangle", "The causal part is the upper triangle: the lower one is wanted.")
def target_upper_triangle(token_ids, pad_id):
    return _real(token_ids, pad_id) & _square(token_ids.size(1)).triu()


@misconception(TARGET, "diagonal-closed", "A token doesn't see itself: the diagonal of the causal mask is open.")
def target_diagonal_closed(token_ids, pad_id):
    return _real(token_ids, pad_id) & _square(token_ids.size(1)).tril(-1)


@misconception(
    TARGET, "one-step-ahead", "Each token sees one step into the future: the causal mask ends with the diagonal."
)
def target_one_step_ahead(token_ids, pad_id):
    return _real(token_ids, pad_id) & _square(token_ids.size(1)).tril(1)


@misconception(TARGET, "mask-inverted", "True marks what is hidden: here True means may attend.")
def target_inverted(token_ids, pad_id):
    return ~(_real(token_ids, pad_id) & _past(token_ids))


@misconception(
    TARGET,
    "padding-queries-closed",
    "The rows of padding are closed too: only keys are, so that no row is emptied without need.",
)
def padding_queries_closed(token_ids, pad_id):
    real = token_ids != pad_id
    return (real[:, :, None] & real[:, None, :])[:, None] & _past(token_ids)


@misconception(
    TARGET,
    "queries-for-keys",
    "Padding closes rows instead of columns: it is keys that are closed, the last axis.",
)
def queries_for_keys(token_ids, pad_id):
    return (token_ids != pad_id)[:, None, :, None] & _past(token_ids)


@misconception(
    TARGET, "diagonal-opened", "The diagonal is opened at padding too: a padding token is no key, not even for itself."
)
def diagonal_opened(token_ids, pad_id):
    return _real(token_ids, pad_id) & _past(token_ids) | torch.eye(token_ids.size(1), dtype=torch.bool)


@misconception(
    TARGET,
    "empty-rows-opened",
    "Rows without an open key are opened: the rule leaves them empty, and so does the result.",
)
def empty_rows_opened(token_ids, pad_id):
    mask = _real(token_ids, pad_id) & _past(token_ids)
    return mask | ~mask.any(-1, keepdim=True)


@misconception(TARGET, "heads-missing", "The axis for the heads is missing: the mask is (B, 1, T, T).")
def heads_missing(token_ids, pad_id):
    return (_real(token_ids, pad_id) & _past(token_ids))[:, 0]


@misconception(TARGET, "padding-id-fixed", "Padding is taken to be 0: hand pad_id on, which may be any number.")
def target_padding_id_fixed(token_ids, pad_id):
    return _real(token_ids, 0) & _past(token_ids)


@misconception(TARGET, "first-sentence-for-all", "The padding of the first sentence serves all: each has its own.")
def target_first_sentence_for_all(token_ids, pad_id):
    return _real(token_ids[:1].expand_as(token_ids), pad_id) & _past(token_ids)


@misconception(
    TARGET,
    "sizes-exchanged",
    "The causal mask has the size of the batch: it has that of the sentences, token_ids.size(1).",
)
def sizes_exchanged(token_ids, pad_id):
    return _real(token_ids, pad_id) & _square(token_ids.size(0)).tril()


# ------------------------------------------------------------------------------------------------------- DecoderLayer

DECODER = "DecoderLayer"


class _Decoder(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    residual: type[nn.Module] = chapter6.RightResidual

    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention, self.cross_attention, self.feed_forward = self_attention, cross_attention, feed_forward
        self.norm1, self.norm2, self.norm3 = (chapter6.RightNorm(d_model) for _ in range(3))
        self.path = self.residual(dropout, norm_first)
        self.dropout, self.norm_first = dropout, norm_first

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        x = self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm2)
        return self.path(x, self.think, self.norm3)

    def attend(self, t, mask):
        return self.self_attention(t, t, t, mask)

    def ask(self, t, memory, mask):
        return self.cross_attention(t, memory, memory, mask)

    def think(self, t):
        return self.feed_forward(t)


_ON_PATHS = (
    ("AlwaysPostNorm", "always-post-norm", "norm_first has no effect, the order is always post-norm: hand it on."),
    (
        "AlwaysPreNorm",
        "always-pre-norm",
        "The order is always pre-norm: without norm_first each third is norm(x + sublayer(x)).",
    ),
    (
        "OrdersExchanged",
        "orders-exchanged",
        "The two orders have changed places: with norm_first each third is x + sublayer(norm(x)).",
    ),
    (
        "PathNormalised",
        "path-normalised",
        "In pre-norm the residual path carries the norm of x: it carries x itself, so don't overwrite x with its norm.",
    ),
    (
        "NormBeforeTheSum",
        "norm-before-the-sum",
        "In post-norm the norms act on the sub-layers' results alone: they act on the sums.",
    ),
    (
        "NormAfterTheSublayer",
        "norm-after-the-sublayer",
        "In pre-norm the norms act on what the sub-layers return: they act on what the sub-layers are given.",
    ),
    ("NothingAdded", "nothing-added", "Nothing is added to what the sub-layers return: there are no residual paths."),
    (
        "ResultAddedToItself",
        "result-added-to-itself",
        "The sub-layer's result is added to itself, as x was overwritten: add it to x.",
    ),
    ("NormalisedTwice", "normalised-twice", "In pre-norm the sums are normalised too: nothing follows the addition."),
    ("NormForgotten", "norms-forgotten", "The three norms are never called."),
    ("NoDropout", "no-dropout", "Nothing is ever dropped: hand dropout on, or put an nn.Dropout around each result."),
    (
        "DropoutOnTheSum",
        "dropout-on-the-sum",
        "Dropout acts on the sums, and so on the residual path: it acts on each sub-layer's result, before the addition.",
    ),
    (
        "DropoutAtTheEnd",
        "dropout-at-the-end",
        "In post-norm dropout acts after the norm: it acts on each sub-layer's result, before the addition.",
    ),
    (
        "DropoutBeforeTheSublayer",
        "dropout-before-the-sublayer",
        "Dropout acts on what the sub-layers are given: it acts on what they return.",
    ),
    (
        "DropoutInEvaluation",
        "dropout-in-evaluation",
        "Entries are dropped in evaluation too: F.dropout is active unless told self.training, nn.Dropout knows by itself.",
    ),
    ("DropoutNotRescaled", "dropout-not-rescaled", "What dropout keeps is not divided by 1 − p: use nn.Dropout."),
    (
        "SumInPlace",
        "changed-in-place",
        "x is changed in place (+= or add_), and with it the caller's tensor: write a + b.",
    ),
    ("SublayerCut", "gradient-cut", "No gradient comes through the sub-layers: something detaches what they return."),
    ("PathCut", "path-cut", "No gradient comes through the residual paths: something detaches x."),
)


def _on_paths(slip, name, hint):
    @misconception(DECODER, name, hint)
    class OnPaths(_Decoder):
        residual = getattr(chapter6, slip)

    return OnPaths


ON_PATHS = [_on_paths(*row) for row in _ON_PATHS]


@misconception(
    DECODER,
    "dropout-on-the-sum",
    "Around the cross-attention dropout acts on the sum: it acts on what the attention returns, before the addition.",
)
class DropoutOnTheMiddleSum(_Decoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.middle = chapter6.DropoutOnTheSum(self.dropout, self.norm_first)

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        x = self.middle(x, lambda t: self.ask(t, memory, memory_mask), self.norm2)
        return self.path(x, self.think, self.norm3)


@misconception(DECODER, "pre-norm-by-default", "The default is post-norm, the order of the paper: norm_first=False.")
class DecoderPreNormByDefault(_Decoder):
    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=True):
        super().__init__(self_attention, cross_attention, feed_forward, d_model, dropout, norm_first)


def _norms(numbers, name, hint):
    @misconception(DECODER, name, hint)
    class OtherNorms(_Decoder):
        def forward(self, x, memory, target_mask=None, memory_mask=None):
            first, second, third = (getattr(self, f"norm{number}") for number in numbers)
            x = self.path(x, lambda t: self.attend(t, target_mask), first)
            x = self.path(x, lambda t: self.ask(t, memory, memory_mask), second)
            return self.path(x, self.think, third)

    return OtherNorms


OTHER_NORMS = [
    _norms((1, 1, 3), "norm1-twice", "norm1 serves the cross-attention too: that has norm2."),
    _norms((1, 2, 2), "norm2-twice", "norm2 serves the feed-forward too: that has norm3."),
    _norms((1, 1, 2), "norms-out-of-step", "norm1 serves two thirds and norm3 none: each third has its own norm."),
    _norms((1, 1, 1), "norm1-for-all", "norm1 serves all three thirds: each has a norm of its own."),
    _norms((2, 1, 3), "norms-exchanged", "norm1 and norm2 have changed places: norm1 belongs to the self-attention."),
    _norms((1, 3, 2), "norms-exchanged", "norm2 and norm3 have changed places: norm2 belongs to the cross-attention."),
]


@misconception(DECODER, "norms-shared", "The three norms are one and the same object: make three.")
class NormsShared(_Decoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.norm2 = self.norm3 = self.norm1


@misconception(DECODER, "norm1-twice", "In pre-norm norm1 serves the cross-attention too: that has norm2.")
class Norm1TwiceInPreNorm(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        x = self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm1 if self.norm_first else self.norm2)
        return self.path(x, self.think, self.norm3)


@misconception(DECODER, "cross-attention-first", "The cross-attention comes first: the target reads itself before.")
class CrossAttentionFirst(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm1)
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm2)
        return self.path(x, self.think, self.norm3)


@misconception(
    DECODER, "attentions-exchanged", "The two attentions have changed places: self_attention reads the target."
)
class AttentionsExchanged(_Decoder):
    def attend(self, t, mask):
        return self.cross_attention(t, t, t, mask)

    def ask(self, t, memory, mask):
        return self.self_attention(t, memory, memory, mask)


@misconception(
    DECODER, "self-attention-twice", "self_attention asks the memory too: that is what cross_attention is for."
)
class SelfAttentionTwice(_Decoder):
    def ask(self, t, memory, mask):
        return self.self_attention(t, memory, memory, mask)


@misconception(DECODER, "cross-attention-left-out", "The cross-attention is never called: the source has no influence.")
class CrossAttentionLeftOut(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        return self.path(x, self.think, self.norm3)


@misconception(DECODER, "feed-forward-left-out", "The feed-forward is never called.")
class FeedForwardLeftOut(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        return self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm2)


@misconception(
    DECODER,
    "query-from-the-memory",
    "The memory asks and the target answers: the query of cross_attention is the target.",
)
class QueryFromTheMemory(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(memory, t, t, mask)


@misconception(
    DECODER, "value-from-the-target", "cross_attention gets the target as value: key and value are the memory."
)
class ValueFromTheTarget(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(t, memory, t, mask)


@misconception(DECODER, "key-from-the-target", "cross_attention gets the target as key: key and value are the memory.")
class KeyFromTheTarget(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(t, t, memory, mask)


@misconception(
    DECODER, "memory-not-read", "cross_attention reads the target once more: its key and value are the memory."
)
class MemoryNotRead(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(t, t, t, mask)


@misconception(
    DECODER, "memory-not-read", "cross_attention reads the target once more: its key and value are the memory."
)
class MemoryNotReadWithTargetMask(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return super().forward(x, memory, target_mask, target_mask)

    def ask(self, t, memory, mask):
        return self.cross_attention(t, t, t, mask)


@misconception(DECODER, "memory-normalised", "The memory is normalised too: it goes in as it is, in both orders.")
class MemoryNormalised(_Decoder):
    def ask(self, t, memory, mask):
        return super().ask(t, self.norm2(memory) if self.norm_first else memory, mask)


@misconception(
    DECODER, "memory-normalised", "In pre-norm the key of cross_attention is normalised memory: it goes in as it is."
)
class MemoryNormalisedAsKey(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(t, self.norm2(memory) if self.norm_first else memory, memory, mask)


@misconception(DECODER, "memory-dropped", "Dropout acts on the memory: it acts on what the sub-layers return only.")
class MemoryDropped(_Decoder):
    def ask(self, t, memory, mask):
        return super().ask(t, self.path.drop(memory), mask)


@misconception(DECODER, "memory-detached", "The memory is detached, so that the encoder could never learn.")
class MemoryDetached(_Decoder):
    def ask(self, t, memory, mask):
        return super().ask(t, memory.detach(), mask)


@misconception(
    DECODER,
    "memory-added",
    "The residual path of the cross-attention carries the memory: it carries the target's tensor.",
)
class MemoryAdded(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        if self.norm_first:
            x = memory + self.path.drop(self.ask(self.norm2(x), memory, memory_mask))
        else:
            x = self.norm2(memory + self.path.drop(self.ask(x, memory, memory_mask)))
        return self.path(x, self.think, self.norm3)


@misconception(
    DECODER,
    "paths-from-the-beginning",
    "All residual paths carry the x of the beginning: each carries what the third before it gave.",
)
class PathsFromTheBeginning(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        y = x
        for norm, sublayer in (
            (self.norm1, lambda t: self.attend(t, target_mask)),
            (self.norm2, lambda t: self.ask(t, memory, memory_mask)),
            (self.norm3, self.think),
        ):
            drop = self.path.drop
            y = x + drop(sublayer(norm(y))) if self.norm_first else norm(x + drop(sublayer(y)))
        return y


@misconception(DECODER, "masks-exchanged", "The masks have changed places: target_mask goes to self_attention.")
class MasksExchanged(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return super().forward(x, memory, memory_mask, target_mask)


@misconception(
    DECODER, "target-mask-for-both", "target_mask goes to both attentions: cross_attention gets memory_mask."
)
class TargetMaskForBoth(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return super().forward(x, memory, target_mask, target_mask)


@misconception(DECODER, "memory-mask-for-both", "memory_mask goes to both attentions: self_attention gets target_mask.")
class MemoryMaskForBoth(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        return super().forward(x, memory, memory_mask, memory_mask)


@misconception(
    DECODER, "target-mask-not-handed-on", "target_mask does not reach self_attention, so that the future is open."
)
class TargetMaskNotHandedOn(_Decoder):
    def attend(self, t, mask):
        return super().attend(t, None)


@misconception(
    DECODER, "target-mask-not-handed-on", "target_mask does not reach self_attention, so that the future is open."
)
class NoTargetMask(_Decoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t)


@misconception(
    DECODER,
    "memory-mask-not-handed-on",
    "memory_mask does not reach cross_attention, so that padding of the source is open.",
)
class MemoryMaskNotHandedOn(_Decoder):
    def ask(self, t, memory, mask):
        return super().ask(t, memory, None)


@misconception(
    DECODER,
    "memory-mask-not-handed-on",
    "memory_mask does not reach cross_attention, so that padding of the source is open.",
)
class NoMemoryMask(_Decoder):
    def ask(self, t, memory, mask):
        return self.cross_attention(t, memory, memory)


@misconception(DECODER, "masks-not-handed-on", "Neither mask reaches its attention: each is the fourth argument.")
class MasksNotHandedOn(_Decoder):
    def attend(self, t, mask):
        return self.self_attention(t, t, t)

    def ask(self, t, memory, mask):
        return self.cross_attention(t, memory, memory)


@misconception(
    DECODER, "masks-inverted", "The masks are turned round on their way: they go to the attentions as they are."
)
class MasksInverted(_Decoder):
    def attend(self, t, mask):
        return super().attend(t, None if mask is None else ~mask)

    def ask(self, t, memory, mask):
        return super().ask(t, memory, None if mask is None else ~mask)


@misconception(
    DECODER,
    "always-causal",
    "Without target_mask a causal mask is made all the same: None means that nothing is hidden.",
)
class AlwaysCausal(_Decoder):
    def attend(self, t, mask):
        return super().attend(t, _past(t) if mask is None else mask)


@misconception(
    DECODER,
    "keys-and-values-not-normalised",
    "In pre-norm only the query is normalised: self_attention gets one and the same tensor three times.",
)
class KeysAndValuesNotNormalised(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        start = x
        x = self.path(x, lambda t: self.self_attention(t, start, start, target_mask), self.norm1)
        x = self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm2)
        return self.path(x, self.think, self.norm3)


@misconception(
    DECODER, "mask-to-the-feed-forward", "The feed-forward gets a mask too: it is given one tensor and nothing else."
)
class MaskToTheFeedForward(_Decoder):
    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.path(x, lambda t: self.attend(t, target_mask), self.norm1)
        x = self.path(x, lambda t: self.ask(t, memory, memory_mask), self.norm2)
        return self.path(x, lambda t: self.feed_forward(t, target_mask), self.norm3)


@misconception(
    DECODER,
    "sublayers-under-other-names",
    "The sub-layers are kept under other names: the attributes are self_attention, cross_attention and feed_forward.",
)
class SublayersUnderOtherNames(_Decoder):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.self_attn, self.cross_attn, self.ff = self.self_attention, self.cross_attention, self.feed_forward
        del self.self_attention, self.cross_attention, self.feed_forward

    def attend(self, t, mask):
        return self.self_attn(t, t, t, mask)

    def ask(self, t, memory, mask):
        return self.cross_attn(t, memory, memory, mask)

    def think(self, t):
        return self.ff(t)
