"""Known mistakes of chapter 4, each as the code that makes it and the hint that a tutor would give."""

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

# -------------------------------------------------------------------------------------------------------- split_heads


def _check(x, num_heads):
    if x.size(-1) % num_heads:
        raise ValueError(f"d_model = {x.size(-1)} is not divisible by num_heads = {num_heads}.")


def _split(x, num_heads):
    """The correct split, without a look at divisibility."""
    batch, length, d_model = x.shape
    return x.reshape(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


@misconception(
    "split_heads",
    "split-by-reshape",
    "A reshape straight to (B, H, L, K) keeps the order of the numbers: tokens and features mix. Cut the last axis, then "
    "exchange two axes.",
)
def split_by_reshape(x, num_heads):
    _check(x, num_heads)
    return x.reshape(x.size(0), num_heads, x.size(1), x.size(2) // num_heads)


@misconception(
    "split_heads",
    "axes-not-exchanged",
    "The result is (B, L, H, K): the last axis is cut rightly, but heads must come before tokens, (B, H, L, K).",
)
def axes_not_exchanged(x, num_heads):
    _check(x, num_heads)
    return _split(x, num_heads).transpose(1, 2)


@misconception(
    "split_heads",
    "heads-interleaved",
    "Head i gets every H-th column: it owns K neighbours, from iK on. Put the axis of heads before that of columns when you "
    "cut.",
)
def heads_interleaved(x, num_heads):
    _check(x, num_heads)
    return x.reshape(*x.shape[:2], -1, num_heads).permute(0, 3, 1, 2)


@misconception(
    "split_heads",
    "heads-and-width-exchanged",
    "You make D / H heads of width H: num_heads is the number of heads, and K = D / H the width of each.",
)
def heads_and_width_exchanged(x, num_heads):
    _check(x, num_heads)
    return x.reshape(*x.shape[:2], -1, num_heads).transpose(1, 2)


@misconception(
    "split_heads",
    "heads-folded-into-the-batch",
    "The heads are folded into the batch, (B·H, L, K): keep them an axis of their own, (B, H, L, K).",
)
def heads_folded_into_the_batch(x, num_heads):
    _check(x, num_heads)
    return _split(x, num_heads).flatten(0, 1)


@misconception("split_heads", "heads-backwards", "The heads stand in the wrong order: head 0 owns the first K columns.")
def split_heads_backwards(x, num_heads):
    _check(x, num_heads)
    return _split(x, num_heads).flip(1)


@misconception(
    "split_heads",
    "heads-first",
    "The axis of heads stands first, (H, B, L, K): sentences stay first, then come the heads, (B, H, L, K).",
)
def heads_first(x, num_heads):
    _check(x, num_heads)
    return _split(x, num_heads).transpose(0, 1)


@misconception(
    "split_heads",
    "tokens-last",
    "Tokens and columns of a head have changed places, (B, H, K, L): the columns come last, (B, H, L, K).",
)
def tokens_last(x, num_heads):
    _check(x, num_heads)
    return _split(x, num_heads).transpose(2, 3)


@misconception(
    "split_heads",
    "view-for-reshape",
    "view refuses a tensor whose numbers lie otherwise in memory, as after a transpose: use reshape, or cut the last axis "
    "only.",
)
def view_for_reshape(x, num_heads):
    _check(x, num_heads)
    batch, length, _ = x.shape
    return x.view(batch * length, num_heads, -1).view(batch, length, num_heads, -1).transpose(1, 2)


@misconception(
    "split_heads",
    "view-for-reshape",
    "view refuses a tensor whose numbers lie otherwise in memory, as after a transpose: use reshape, or cut the last axis "
    "only.",
)
def flat_view_for_reshape(x, num_heads):
    _check(x, num_heads)
    return _split(x.view(-1).view(x.shape), num_heads)


DIVISIBILITY = (
    "no-look-at-divisibility",
    "A width that num_heads does not divide ends in an error about shapes, if at all: test the remainder first and raise a "
    "ValueError.",
)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility(x, num_heads):
    return _split(x, num_heads)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility_unflatten(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility_unflatten_whole(x, num_heads):
    return x.unflatten(-1, (num_heads, x.size(-1) // num_heads)).transpose(1, 2)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility_open_width(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).transpose(1, 2)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility_open_length(x, num_heads):
    return x.reshape(x.size(0), -1, num_heads, x.size(2) // num_heads).transpose(1, 2)


@misconception("split_heads", *DIVISIBILITY)
def no_look_at_divisibility_chunks(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


@misconception(
    "split_heads",
    "columns-cut-off",
    "A width that num_heads does not divide loses its last columns in silence: raise a ValueError instead.",
)
def columns_cut_off(x, num_heads):
    width = x.size(-1) // num_heads
    return _split(x[..., : width * num_heads], num_heads)


@misconception(
    "split_heads",
    "assert-for-value-error",
    "assert raises an AssertionError, and nothing at all under python -O: raise a ValueError that names both numbers.",
)
def assert_for_value_error(x, num_heads):
    if x.size(-1) % num_heads:
        raise AssertionError
    return _split(x, num_heads)


NO_NUMBERS = "error-without-numbers", "The ValueError names no number: put the width and num_heads into its message."


@misconception("split_heads", *NO_NUMBERS)
def error_without_message(x, num_heads):
    if x.size(-1) % num_heads:
        raise ValueError
    return _split(x, num_heads)


@misconception("split_heads", *NO_NUMBERS)
def error_without_numbers(x, num_heads):
    if x.size(-1) % num_heads:
        raise ValueError("d_model must be divisible by num_heads")
    return _split(x, num_heads)


@misconception(
    "split_heads", "gradient-cut", "No gradient reaches x: something detaches it (detach, .data, no_grad or NumPy)."
)
def split_gradient_cut(x, num_heads):
    _check(x, num_heads)
    return _split(x.detach(), num_heads)


# -------------------------------------------------------------------------------------------------------- merge_heads


def _merge(x):
    """The correct merge."""
    return x.transpose(1, 2).flatten(2)


@misconception(
    "merge_heads",
    "merged-by-reshape",
    "A reshape straight from (B, H, L, K) puts several tokens of one head into a row: bring the axis of heads beside that of "
    "columns first.",
)
def merged_by_reshape(x):
    return x.reshape(x.size(0), x.size(2), -1)


@misconception(
    "merge_heads",
    "view-after-transpose",
    "After a transpose the numbers lie otherwise in memory, which view refuses: use reshape or flatten.",
)
def view_after_transpose(x):
    return x.transpose(1, 2).view(x.size(0), x.size(2), -1)


@misconception(
    "merge_heads",
    "columns-interleaved",
    "The heads' columns alternate: all K columns of head 0 come first, then those of head 1.",
)
def columns_interleaved(x):
    return x.permute(0, 2, 3, 1).flatten(2)


ADDED = "heads-added", "The heads are added: put them side by side, H·K columns for every token."
AVERAGED = "heads-averaged", "The heads are averaged: put them side by side, H·K columns for every token."


@misconception("merge_heads", *ADDED)
def heads_added(x):
    return x.sum(1)


@misconception("merge_heads", *ADDED)
def heads_added_and_repeated(x):
    return x.sum(1).repeat(1, 1, x.size(1))


@misconception("merge_heads", *AVERAGED)
def heads_averaged(x):
    return x.mean(1)


@misconception("merge_heads", *AVERAGED)
def heads_averaged_and_repeated(x):
    return x.mean(1).repeat(1, 1, x.size(1))


@misconception(
    "merge_heads",
    "heads-still-apart",
    "Heads and tokens have changed places, but the heads are still an axis of their own: join the last two axes.",
)
def heads_still_apart(x):
    return x.transpose(1, 2)


@misconception(
    "merge_heads",
    "heads-joined-with-tokens",
    "Heads are joined with tokens, (B, H·L, K): it is the columns that they are joined with, (B, L, H·K).",
)
def heads_joined_with_tokens(x):
    return x.flatten(1, 2)


@misconception(
    "merge_heads",
    "heads-joined-with-tokens",
    "Heads are joined with tokens, (B, L·H, K): it is the columns that they are joined with, (B, L, H·K).",
)
def tokens_joined_with_heads(x):
    return x.transpose(1, 2).flatten(1, 2)


@misconception(
    "merge_heads",
    "wrong-axes-exchanged",
    "The wrong two axes change places: of (B, H, L, K), heads and tokens must, axes 1 and 2.",
)
def tokens_and_columns_exchanged(x):
    return x.transpose(2, 3).reshape(x.size(0), x.size(2), -1)


@misconception(
    "merge_heads",
    "wrong-axes-exchanged",
    "The wrong two axes change places: of (B, H, L, K), heads and tokens must, axes 1 and 2.",
)
def heads_and_columns_exchanged(x):
    return x.transpose(1, 3).reshape(x.size(0), x.size(2), -1)


@misconception(
    "merge_heads", "one-head-only", "Only the first head comes back: every head's columns belong in the row."
)
def one_head_only(x):
    return x[:, 0]


@misconception("merge_heads", "heads-backwards", "The heads stand in the wrong order: head 0's columns come first.")
def heads_backwards(x):
    return _merge(x.flip(1))


@misconception(
    "merge_heads", "gradient-cut", "No gradient reaches x: something detaches it (detach, .data, no_grad or NumPy)."
)
def merge_gradient_cut(x):
    return _merge(x.detach())


# -------------------------------------------------------------------------------------------------- MultiHeadAttention

MHA = "MultiHeadAttention"


class _MultiHead(nn.Module):
    """The correct module; each slip overrides the one line that it gets wrong."""

    bias = True

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.check(d_model, num_heads)
        self.num_heads, self.width = num_heads, d_model // num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(d_model, d_model, bias=self.bias))

    def check(self, d_model, num_heads):
        if d_model % num_heads:
            raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}.")

    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x) for x in self.project(query, key, value))
        return self.output(self.merge(self.attend(q, k, v, mask)))

    def project(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_v(value)

    def split(self, x):
        return _split(x, self.num_heads)

    def attend(self, q, k, v, mask):
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.block(scores, mask)
        return self.mix(scores.softmax(-1), v)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * self.scale()

    def scale(self):
        return self.width**-0.5

    def block(self, scores, mask):
        return scores.masked_fill(~mask, float("-inf"))

    def mix(self, weights, v):
        return weights @ v

    def merge(self, x):
        return _merge(x)

    def output(self, x):
        return self.w_o(x)


@misconception(
    MHA,
    "split-and-merged-by-reshape",
    "Heads are cut and joined by a reshape alone, so every head sees pieces of several tokens: cut the last axis, then "
    "exchange heads and tokens; back likewise.",
)
class SplitAndMergedByReshape(_MultiHead):
    def split(self, x):
        return x.reshape(x.size(0), self.num_heads, x.size(1), self.width)

    def merge(self, x):
        return x.reshape(x.size(0), x.size(2), -1)


@misconception(
    MHA,
    "split-by-reshape",
    "Heads are cut by a reshape straight to (B, H, L, K), which mixes tokens: cut the last axis, then exchange two axes.",
)
class SplitByReshape(_MultiHead):
    def split(self, x):
        return x.reshape(x.size(0), self.num_heads, x.size(1), self.width)


@misconception(
    MHA,
    "merged-by-reshape",
    "Heads are joined by a reshape alone, so a row holds several tokens of one head: exchange heads and tokens first.",
)
class MergedByReshape(_MultiHead):
    def merge(self, x):
        return x.reshape(x.size(0), x.size(2), -1)


@misconception(
    MHA,
    "attention-among-heads",
    "Attention runs over the heads of one token instead of over the tokens: exchange the axes of heads and tokens after the "
    "cut, and back after it.",
)
class AttentionAmongHeads(_MultiHead):
    def split(self, x):
        return super().split(x).transpose(1, 2)

    def merge(self, x):
        return x.flatten(2)


@misconception(
    MHA,
    "heads-interleaved",
    "Head i owns every H-th column: it owns K neighbours, from iK on.",
)
class HeadsInterleaved(_MultiHead):
    def split(self, x):
        return x.reshape(*x.shape[:2], self.width, self.num_heads).permute(0, 3, 1, 2)

    def merge(self, x):
        return x.permute(0, 2, 3, 1).flatten(2)


@misconception(
    MHA,
    "columns-interleaved",
    "The heads' columns alternate when they are joined: all K of head 0 come first, then those of head 1.",
)
class ColumnsInterleaved(_MultiHead):
    def merge(self, x):
        return x.permute(0, 2, 3, 1).flatten(2)


@misconception(
    MHA,
    "one-wide-head",
    "All D columns attend as one head: cut q, k and v into heads, so that each head has weights of its own.",
)
class OneWideHead(_MultiHead):
    def split(self, x):
        return x.unsqueeze(1)

    def scale(self):
        return (self.width * self.num_heads) ** -0.5


@misconception(
    MHA,
    "heads-and-width-exchanged",
    "You make D / H heads of width H: num_heads is the number of heads, and K = D / H the width of each.",
)
class HeadsAndWidthExchanged(_MultiHead):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.num_heads, self.width = self.width, self.num_heads


@misconception(
    MHA,
    "heads-of-sentences-exchanged",
    "Heads are folded into the batch head by head and unfolded sentence by sentence, so that heads of different sentences "
    "change places.",
)
class HeadsOfSentencesExchanged(_MultiHead):
    def merge(self, x):
        batch, heads, length, width = x.shape
        return _merge(x.transpose(0, 1).reshape(batch, heads, length, width))


@misconception(
    MHA,
    "heads-averaged",
    "The heads are averaged, each repeated H times: put them side by side, head 0's columns first.",
)
class HeadsAveraged(_MultiHead):
    def merge(self, x):
        return x.mean(1).repeat(1, 1, self.num_heads)


@misconception(
    MHA,
    "scaled-by-d-model",
    "The scores are divided by √d_model: each head's queries have K = D / H numbers, so the scale is √K.",
)
class ScaledByDModel(_MultiHead):
    def scale(self):
        return (self.width * self.num_heads) ** -0.5


@misconception(
    MHA, "scaled-by-heads", "The scores are divided by √H: the scale is √K, the root of the width of a head."
)
class ScaledByHeads(_MultiHead):
    def scale(self):
        return self.num_heads**-0.5


@misconception(
    MHA, "scaled-by-d-k", "The scores are divided by K: by √K once is right (attention may have done it already)."
)
class ScaledByDK(_MultiHead):
    def scale(self):
        return 1 / self.width


@misconception(
    MHA,
    "missing-scale",
    "The scores are not divided by √K: every call divides them, whatever weights are loaded.",
)
class MissingScale(_MultiHead):
    def scale(self):
        return 1.0


@misconception(
    MHA, "no-output-projection", "The merged heads come back as they are: w_o mixes them, and it is the last step."
)
class NoOutputProjection(_MultiHead):
    def output(self, x):
        return x


@misconception(MHA, "output-projected-twice", "w_o is applied twice: once, to the merged heads, is right.")
class OutputProjectedTwice(_MultiHead):
    def output(self, x):
        return self.w_o(self.w_o(x))


@misconception(
    MHA,
    "projected-twice",
    "Queries, keys and values are projected twice: once as a whole, which holds all heads' projections already.",
)
class ProjectedTwice(_MultiHead):
    def project(self, query, key, value):
        return super().project(*super().project(query, key, value))


@misconception(
    MHA, "nothing-projected", "The inputs are cut into heads as they are: project them with w_q, w_k and w_v."
)
class NothingProjected(_MultiHead):
    def project(self, query, key, value):
        return query, key, value


@misconception(MHA, "values-not-projected", "The values are the input itself: project them with w_v.")
class ValuesNotProjected(_MultiHead):
    def project(self, query, key, value):
        return self.w_q(query), self.w_k(key), value


@misconception(MHA, "keys-from-the-query-projection", "The keys are made with w_q: use w_k for them.")
class KeysFromTheQueryProjection(_MultiHead):
    def project(self, query, key, value):
        return self.w_q(query), self.w_q(key), self.w_v(value)


@misconception(MHA, "values-from-the-key-projection", "The values are made with w_k: use w_v for them.")
class ValuesFromTheKeyProjection(_MultiHead):
    def project(self, query, key, value):
        return self.w_q(query), self.w_k(key), self.w_k(value)


@misconception(MHA, "one-projection-for-all", "w_q serves for queries, keys and values: each has a layer of its own.")
class OneProjectionForAll(_MultiHead):
    def project(self, query, key, value):
        return self.w_q(query), self.w_q(key), self.w_q(value)


@misconception(MHA, "projections-exchanged", "w_q and w_k have changed places: w_q is for the query, w_k for the key.")
class ProjectionsExchanged(_MultiHead):
    def project(self, query, key, value):
        return self.w_k(query), self.w_q(key), self.w_v(value)


@misconception(
    MHA,
    "always-self-attention",
    "Keys and values are made of the query: in cross-attention they come from the inputs key and value.",
)
class AlwaysSelfAttention(_MultiHead):
    def project(self, query, key, value):
        return super().project(query, query, query)


@misconception(
    MHA, "values-from-the-key", "The values are made of key: project the input value, which may be another tensor."
)
class ValuesFromTheKey(_MultiHead):
    def project(self, query, key, value):
        return super().project(query, key, key)


@misconception(
    MHA, "keys-from-the-value", "The keys are made of value: project the input key, which may be another tensor."
)
class KeysFromTheValue(_MultiHead):
    def project(self, query, key, value):
        return super().project(query, value, value)


@misconception(
    MHA, "keys-and-values-exchanged", "The inputs key and value have changed places: w_k is for key, w_v for value."
)
class KeysAndValuesExchanged(_MultiHead):
    def project(self, query, key, value):
        return super().project(query, value, key)


@misconception(
    MHA,
    "roles-exchanged",
    "The query attends as key and value, and the key as query: in cross-attention the output has a row for every query.",
)
class RolesExchanged(_MultiHead):
    def project(self, query, key, value):
        return super().project(key, query, query)


@misconception(
    MHA,
    "nonlinearity-added",
    "A ReLU follows the projections: w_q, w_k and w_v are linear, and nothing comes after them.",
)
class NonlinearityAdded(_MultiHead):
    def project(self, query, key, value):
        return tuple(x.relu() for x in super().project(query, key, value))


@misconception(
    MHA,
    "length-of-the-query-for-all",
    "key and value are cut with the query's length: in cross-attention they have another, S instead of T.",
)
class LengthOfTheQueryForAll(_MultiHead):
    def forward(self, query, key, value, mask=None):
        batch, length, _ = query.shape
        size = (batch, length, self.num_heads, self.width)
        q, k, v = (x.view(size).transpose(1, 2) for x in self.project(query, key, value))
        return self.output(self.merge(self.attend(q, k, v, mask)))


@misconception(
    MHA,
    "attends-across-the-batch",
    "Attention runs over the batch axis and mixes sentences: tokens are axis 1 of (B, L, D).",
)
class AttendsAcrossTheBatch(_MultiHead):
    def forward(self, query, key, value, mask=None):
        return super().forward(*(x.transpose(0, 1) for x in (query, key, value))).transpose(0, 1)


@misconception(
    MHA, "mask-ignored", "The mask has no effect: hand it on to attention, and keep what masked_fill returns."
)
class MaskIgnored(_MultiHead):
    def block(self, scores, mask):
        return scores


@misconception(MHA, "mask-inverted", "The mask is taken the wrong way round: True means may attend.")
class MaskInverted(_MultiHead):
    def block(self, scores, mask):
        return super().block(scores, ~mask)


@misconception(MHA, "mask-inverted", "The mask is taken the wrong way round: True means may attend.")
class MaskInvertedWithLargeFill(_MultiHead):
    def block(self, scores, mask):
        return scores.masked_fill(mask, -1e9)


@misconception(MHA, "mask-inverted", "The mask is taken the wrong way round: True means may attend.")
class MaskInvertedForPyTorch(_MultiHead):
    def attend(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, None if mask is None else ~mask)


@misconception(MHA, "mask-after-softmax", "The mask is applied after the softmax: set blocked scores to −∞ before it.")
class MaskAfterSoftmax(_MultiHead):
    def attend(self, q, k, v, mask):
        weights = self.scores(q, k).softmax(-1)
        return self.mix(weights if mask is None else weights * mask, v)


@misconception(
    MHA, "fill-of-zero", "Blocked scores are set to (nearly) 0, an ordinary score with exp(0) = 1: set them to −∞."
)
class FillOfZero(_MultiHead):
    def block(self, scores, mask):
        return scores.masked_fill(~mask, 0.0)


@misconception(MHA, "mask-added", "The mask is added to the scores as 0 and 1: blocked scores must become −∞.")
class MaskAdded(_MultiHead):
    def block(self, scores, mask):
        return scores + mask


def _filled(fill):
    @misconception(
        MHA, "fill-too-small", "Blocked scores are lowered too little, so that blocked keys keep weight: use −∞."
    )
    class FillTooSmall(_MultiHead):
        def block(self, scores, mask):
            return scores.masked_fill(~mask, fill)

    return FillTooSmall


FILLS_TOO_SMALL = [_filled(fill) for fill in (-1.0, -5.0, -10.0, -20.0)]


@misconception(
    MHA, "mask-for-one-head", "The mask reaches the first head alone: it must broadcast over the axis of heads."
)
class MaskForOneHead(_MultiHead):
    def block(self, scores, mask):
        hidden = ~mask.expand_as(scores)
        hidden = hidden & (torch.arange(scores.size(1)) == 0)[:, None, None]
        return scores.masked_fill(hidden, float("-inf"))


@misconception(
    MHA,
    "first-heads-mask-for-all",
    "A mask with its own rows for every head, (…, H, T, S), is read for the first head only.",
)
class FirstHeadsMaskForAll(_MultiHead):
    def block(self, scores, mask):
        return super().block(scores, mask if mask.dim() < 3 else mask[..., :1, :, :])


@misconception(
    MHA,
    "first-sentences-mask-for-all",
    "The mask of the first sentence is used for all: keep its batch axis, (B, 1, T, S).",
)
class FirstSentencesMaskForAll(_MultiHead):
    def block(self, scores, mask):
        return super().block(scores, mask if mask.dim() < 4 else mask[:1])


@misconception(
    MHA,
    "mask-unsqueezed",
    "The mask gets one more axis on its way: it broadcasts to (B, H, T, S) as it comes, with axes of size 1 where they belong.",
)
class MaskUnsqueezed(_MultiHead):
    def block(self, scores, mask):
        return super().block(scores, mask.unsqueeze(1))


@misconception(MHA, "softmax-over-queries", "The softmax runs over the queries: normalise the last axis, the keys.")
class SoftmaxOverQueries(_MultiHead):
    def attend(self, q, k, v, mask):
        scores = self.scores(q, k)
        return self.mix((scores if mask is None else self.block(scores, mask)).softmax(-2), v)


@misconception(MHA, "softmax-over-heads", "The softmax runs over the heads: normalise the last axis, the keys.")
class SoftmaxOverHeads(_MultiHead):
    def attend(self, q, k, v, mask):
        scores = self.scores(q, k)
        return self.mix((scores if mask is None else self.block(scores, mask)).softmax(1), v)


@misconception(
    MHA,
    "always-causal",
    "Without a mask the future is blocked all the same: with mask=None every query may attend to every key.",
)
class AlwaysCausal(_MultiHead):
    def attend(self, q, k, v, mask):
        if mask is None:
            mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
        return super().attend(q, k, v, mask)


@misconception(
    MHA,
    "residual-inside",
    "The query is added to the output: the residual connection belongs to the layer of chapter 6, not here.",
)
class ResidualInside(_MultiHead):
    def forward(self, query, key, value, mask=None):
        return query + super().forward(query, key, value, mask)


@misconception(
    MHA,
    "dropout-in-evaluation",
    "Numbers are dropped at random in every call: this piece has no dropout, and F.dropout is active unless told otherwise.",
)
class OutputDroppedInEvaluation(_MultiHead):
    def output(self, x):
        return F.dropout(super().output(x), 0.1)


@misconception(
    MHA,
    "dropout-in-evaluation",
    "Weights are dropped at random in every call: this piece has no dropout, and F.dropout is active unless told otherwise.",
)
class WeightsDroppedInEvaluation(_MultiHead):
    def mix(self, weights, v):
        return F.dropout(weights, 0.1) @ v


@misconception(MHA, "dropout-while-training", "In training, weights are dropped at random: this piece has no dropout.")
class DropoutWhileTraining(_MultiHead):
    def mix(self, weights, v):
        return F.dropout(weights, 0.1, self.training) @ v


@misconception(MHA, "projections-without-bias", "The projections have no bias: here nn.Linear keeps its own.")
class ProjectionsWithoutBias(_MultiHead):
    bias = False


# An error in setting the parameters names the class, and learners' classes are called like the piece.
ProjectionsWithoutBias.__name__ = MHA


@misconception(MHA, "pair-returned", "Output and weights come back: return the output alone, after w_o, and no tuple.")
class PairReturned(_MultiHead):
    def forward(self, query, key, value, mask=None):
        q, k, v = (self.split(x) for x in self.project(query, key, value))
        scores = self.scores(q, k) if mask is None else self.block(self.scores(q, k), mask)
        weights = scores.softmax(-1)
        return self.output(self.merge(weights @ v)), weights


@misconception(MHA, "weights-returned", "The attention weights come back: return the output.")
class WeightsReturned(_MultiHead):
    def forward(self, query, key, value, mask=None):
        q, k = self.split(self.w_q(query)), self.split(self.w_k(key))
        scores = self.scores(q, k) if mask is None else self.block(self.scores(q, k), mask)
        return scores.softmax(-1)


@misconception(
    MHA,
    "first-call-kept",
    "Keys and values of the first call are kept for later ones: every call projects the inputs that it is given.",
)
class FirstCallKept(_MultiHead):
    kept = None

    def project(self, query, key, value):
        if self.kept is None:
            self.kept = self.w_k(key), self.w_v(value)
        return self.w_q(query), *self.kept


@misconception(
    MHA,
    "first-call-kept",
    "The mask of the first call is kept for later ones: every call obeys the one that it is given.",
)
class FirstMaskKept(_MultiHead):
    kept = None

    def block(self, scores, mask):
        if self.kept is None or self.kept.shape != mask.shape:
            self.kept = mask
        return super().block(scores, self.kept)


@misconception(
    MHA,
    "columns-cut-off",
    "A width that the heads can't share loses columns in silence: raise a ValueError in the constructor.",
)
class ColumnsCutOff(_MultiHead):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.w_o = nn.Linear(self.width * num_heads, d_model)

    def check(self, d_model, num_heads):
        pass

    def split(self, x):
        return super().split(x[..., : self.width * self.num_heads])


def _cut(letters, which):
    @misconception(
        MHA,
        "gradient-cut",
        f"No gradient comes through {which}: something detaches a tensor (detach, .data, no_grad or NumPy).",
    )
    class GradientCut(_MultiHead):
        def project(self, query, key, value):
            projected = super().project(query, key, value)
            return tuple(x.detach() if name in letters else x for name, x in zip("qkv", projected, strict=True))

    return GradientCut


GRADIENTS_CUT = [
    _cut("q", "the queries"),
    _cut("k", "the keys"),
    _cut("v", "the values"),
    _cut("qk", "the scores or the weights"),
    _cut("qkv", "the projections"),
]


def _input_cut(letters, which):
    @misconception(
        MHA,
        "gradient-cut",
        f"No gradient reaches {which}: something detaches it before it is projected, or rebuilds it.",
    )
    class InputCut(_MultiHead):
        def project(self, query, key, value):
            given = zip("qkv", (query, key, value), strict=True)
            return super().project(*(x.detach() if name in letters else x for name, x in given))

    return InputCut


INPUTS_CUT = [
    _input_cut(letters, which) for letters, which in (("q", "query"), ("kv", "key and value"), ("qkv", "the inputs"))
]


@misconception(
    MHA, "gradient-cut", "No gradient comes back at all: the result is detached (detach, .data, no_grad or NumPy)."
)
class EverythingCut(_MultiHead):
    def output(self, x):
        return super().output(x).detach()


@misconception(
    MHA,
    "gradient-cut",
    "No gradient passes the merged heads: something detaches them before w_o (detach, .data, no_grad or NumPy).",
)
class HeadsCut(_MultiHead):
    def merge(self, x):
        return super().merge(x).detach()
