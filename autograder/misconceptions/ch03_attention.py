"""Known mistakes of chapter 3, each as the code that makes it and the hint that a tutor would give."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from autograder.registry import misconception

ATTENTION = "scaled_dot_product_attention"

# ------------------------------------------------------------------------------------------------------------ softmax


@misconception(
    "softmax",
    "no-maximum-subtracted",
    "exp overflows for large scores: subtract each row's maximum before you exponentiate; the result stays the same.",
)
def no_maximum_subtracted(scores, dim=-1):
    powers = scores.exp()
    return powers / powers.sum(dim, keepdim=True)


@misconception(
    "softmax",
    "one-maximum-for-all",
    "You subtract the maximum of the whole tensor: a row far below it underflows to 0/0. Take the maximum along dim.",
)
def one_maximum_for_all(scores, dim=-1):
    powers = (scores - scores.max()).exp()
    return powers / powers.sum(dim, keepdim=True)


@misconception(
    "softmax", "one-sum-for-all", "The whole tensor sums to 1 instead of every row: sum along dim and keep the axis."
)
def one_sum_for_all(scores, dim=-1):
    powers = (scores - scores.amax(dim, keepdim=True)).exp()
    return powers / powers.sum()


@misconception(
    "softmax", "one-sum-for-all", "The whole tensor sums to 1 instead of every row: sum along dim and keep the axis."
)
def one_softmax_for_all(scores, dim=-1):
    powers = (scores - scores.max()).exp()
    return powers / powers.sum()


@misconception("softmax", "always-the-last-axis", "The argument dim is ignored: you always normalise the last axis.")
def always_the_last_axis(scores, dim=-1):
    return torch.softmax(scores, -1)


@misconception("softmax", "always-the-first-axis", "You normalise along the first axis whatever dim says.")
def always_the_first_axis(scores, dim=-1):
    return torch.softmax(scores, 0)


@misconception("softmax", "always-the-second-axis", "You normalise along axis 1 whatever dim says.")
def always_the_second_axis(scores, dim=-1):
    return torch.softmax(scores, 1)


@misconception("softmax", "logarithm", "These are the logarithms of the weights: a log_softmax, not a softmax.")
def logarithm(scores, dim=-1):
    return torch.log_softmax(scores, dim)


@misconception("softmax", "not-normalised", "The exponentials are not divided by their sum.")
def not_normalised(scores, dim=-1):
    return (scores - scores.amax(dim, keepdim=True)).exp()


@misconception("softmax", "not-normalised", "The exponentials are not divided by their sum.")
def plain_exponentials(scores, dim=-1):
    return scores.exp()


@misconception("softmax", "no-exponential", "The scores are divided by their sum without being exponentiated.")
def no_exponential(scores, dim=-1):
    return scores / scores.sum(dim, keepdim=True)


@misconception(
    "softmax", "wrong-sign", "The smallest score gets the largest weight: the sign of the exponent is turned round."
)
def wrong_sign(scores, dim=-1):
    return torch.softmax(-scores, dim)


@misconception(
    "softmax",
    "clamped",
    "Scores are cut off before exp, so that large ones become equal: subtract the maximum instead of clamping.",
)
def clamped(scores, dim=-1):
    powers = scores.clamp(-50, 50).exp()
    return powers / powers.sum(dim, keepdim=True)


@misconception(
    "softmax",
    "gradient-cut",
    "No gradient comes back: something detaches the scores (detach, .data, no_grad or a NumPy detour).",
)
def softmax_gradient_cut(scores, dim=-1):
    return torch.softmax(scores.detach(), dim)


@misconception(
    "softmax",
    "maximum-over-the-wrong-axis",
    "The maximum is taken along another axis than dim, so that a row far below it underflows.",
)
def maximum_over_the_first_axis(scores, dim=-1):
    powers = (scores - scores.amax(0, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


@misconception("softmax", "maximum-over-the-wrong-axis", "The maximum is taken along the last axis whatever dim says.")
def maximum_over_the_last_axis(scores, dim=-1):
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


@misconception(
    "softmax", "changes-its-input", "The scores are changed in place (-=, exp_, masked_fill_): work on a new tensor."
)
def changes_its_input(scores, dim=-1):
    with torch.no_grad():
        scores -= scores.amax(dim, keepdim=True)
    return torch.softmax(scores, dim)


# --------------------------------------------------------------------------------------- scaled_dot_product_attention


def _scores(q, k, scale=None):
    return q @ k.transpose(-2, -1) * (q.size(-1) ** -0.5 if scale is None else scale)


def _blocked(scores, mask, fill=float("-inf")):
    return scores if mask is None else scores.masked_fill(~mask, fill)


def _finish(scores, v):
    weights = scores.softmax(-1)
    return weights @ v, weights


@misconception(ATTENTION, "missing-scale", "The scores are not divided by √d_k, so the weights are too sharp.")
def missing_scale(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, 1.0), mask), v)


@misconception(ATTENTION, "scaled-by-d-k", "The scores are divided by d_k itself: divide by its square root, √d_k.")
def scaled_by_d_k(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, 1 / q.size(-1)), mask), v)


@misconception(ATTENTION, "multiplied-by-root", "The scores are multiplied by √d_k: divide by it.")
def multiplied_by_root(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, q.size(-1) ** 0.5), mask), v)


@misconception(
    ATTENTION,
    "scaled-by-length",
    "The scale is the root of a sequence length: it is the root of the last axis of q, √d_k.",
)
def scaled_by_key_length(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, k.size(-2) ** -0.5), mask), v)


@misconception(
    ATTENTION,
    "scaled-by-length",
    "The scale is the root of a sequence length: it is the root of the last axis of q, √d_k.",
)
def scaled_by_query_length(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, q.size(-2) ** -0.5), mask), v)


@misconception(
    ATTENTION,
    "scaled-by-value-width",
    "The scale comes from the width of v: it is the root of the last axis of q, √d_k.",
)
def scaled_by_value_width(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k, v.size(-1) ** -0.5), mask), v)


@misconception(
    ATTENTION,
    "softmax-over-queries",
    "The softmax runs over the queries: columns sum to 1 instead of rows. Normalise the last axis, the keys.",
)
def softmax_over_queries(q, k, v, mask=None):
    weights = _blocked(_scores(q, k), mask).softmax(-2)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "softmax-over-everything",
    "All weights of a sentence sum to 1 together: normalise every query's row by itself, along the last axis.",
)
def softmax_over_everything(q, k, v, mask=None):
    scores = _blocked(_scores(q, k), mask)
    weights = scores.flatten(-2).softmax(-1).view_as(scores)
    return weights @ v, weights


@misconception(
    ATTENTION, "softmax-over-axis-one", "The softmax runs over axis 1 of the scores: use the last axis, dim=-1."
)
def softmax_over_axis_one(q, k, v, mask=None):
    weights = _blocked(_scores(q, k), mask).softmax(1)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "mask-inverted",
    "The mask is taken the wrong way round: True means may attend, so block where it is False.",
)
def mask_inverted(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), None if mask is None else ~mask), v)


@misconception(
    ATTENTION,
    "mask-inverted",
    "The mask is taken the wrong way round: True means may attend, so block where it is False.",
)
def mask_inverted_with_large_fill(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), None if mask is None else ~mask, -1e9), v)


@misconception(
    ATTENTION,
    "mask-after-softmax",
    "The mask is applied after the softmax, so rows sum to less than 1: set blocked scores to −∞ before it.",
)
def mask_after_softmax(q, k, v, mask=None):
    weights = _scores(q, k).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v, weights


@misconception(
    ATTENTION,
    "weights-set-to-minus-infinity",
    "The weights of blocked keys are set to −∞: it is the scores that are, before the softmax; the weights then come out 0.",
)
def weights_set_to_minus_infinity(q, k, v, mask=None):
    weights = _blocked(_scores(q, k).softmax(-1), mask)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "mask-after-softmax",
    "The mask is applied after the softmax, and what is left renormalised: right in theory, but set the scores to −∞ before, "
    "or large scores leave nothing to renormalise.",
)
def mask_renormalised(q, k, v, mask=None):
    weights = _scores(q, k).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "mask-for-the-weights-only",
    "The output is that of unmasked weights: multiply the values with the weights after masking.",
)
def mask_for_the_weights_only(q, k, v, mask=None):
    return _finish(_scores(q, k), v)[0], _blocked(_scores(q, k), mask).softmax(-1)


@misconception(
    ATTENTION,
    "infinity-times-zero",
    "A product of 0 and −∞ is NaN: choose between score and −∞ with masked_fill or torch.where instead of multiplying.",
)
def infinity_times_zero(q, k, v, mask=None):
    scores = _scores(q, k)
    return _finish(scores if mask is None else scores + (~mask).to(scores.dtype) * float("-inf"), v)


@misconception(ATTENTION, "mask-ignored", "The mask has no effect: masked_fill returns a new tensor, keep its result.")
def mask_ignored(q, k, v, mask=None):
    return _finish(_scores(q, k), v)


@misconception(
    ATTENTION,
    "tiny-fill",
    "Blocked scores are set to (nearly) 0, which is an ordinary score: exp(0) = 1. Set them to −∞.",
)
def zero_fill(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask, 0.0), v)


@misconception(ATTENTION, "mask-added", "The mask is added to the scores as 0 and 1: blocked scores must become −∞.")
def mask_added(q, k, v, mask=None):
    scores = _scores(q, k)
    return _finish(scores if mask is None else scores + mask, v)


@misconception(
    ATTENTION, "mask-added", "The mask is added to the scores as 0 and −1 or so: blocked scores must become −∞."
)
def blocked_minus_one(q, k, v, mask=None):
    scores = _scores(q, k)
    return _finish(scores if mask is None else scores - (~mask).to(scores.dtype), v)


def _filled(fill):
    @misconception(
        ATTENTION,
        "fill-too-small",
        "Blocked scores are lowered too little: allowed ones come near or below, so that blocked keys keep weight. Use −∞.",
    )
    def fill_too_small(q, k, v, mask=None):
        return _finish(_blocked(_scores(q, k), mask, fill), v)

    return fill_too_small


# One for each order of magnitude: where they fail, their numbers differ.
FILLS_TOO_SMALL = [_filled(fill) for fill in (-10.0, -20.0, -50.0, -100.0, -500.0, -1000.0)]


@misconception(
    ATTENTION, "scores-returned", "The second result holds the scores: return the weights, after the softmax."
)
def scores_returned(q, k, v, mask=None):
    scores = _blocked(_scores(q, k), mask)
    return _finish(scores, v)[0], scores


@misconception(
    ATTENTION, "scores-returned", "The second result holds the scores: return the weights, after the softmax."
)
def scores_returned_with_large_fill(q, k, v, mask=None):
    scores = _blocked(_scores(q, k), mask, -1e9)
    return _finish(scores, v)[0], scores


@misconception(ATTENTION, "unmasked-weights-returned", "The weights that you return are those before masking.")
def unmasked_weights_returned(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask), v)[0], _scores(q, k).softmax(-1)


@misconception(ATTENTION, "only-the-output", "Only the output comes back: return the pair (output, weights).")
def only_the_output(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask), v)[0]


@misconception(ATTENTION, "results-swapped", "The results have changed places: return output first, then weights.")
def results_swapped(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask), v)[::-1]


@misconception(
    ATTENTION,
    "dropout-in-evaluation",
    "Weights are dropped at random in every call: this piece has no dropout, and F.dropout is active unless told otherwise.",
)
def dropout_in_evaluation(q, k, v, mask=None):
    weights = F.dropout(_blocked(_scores(q, k), mask).softmax(-1), p=0.1)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "no-maximum-subtracted",
    "exp overflows for large scores and gives NaN: use torch.softmax, or subtract each row's maximum first.",
)
def attention_without_maximum(q, k, v, mask=None):
    powers = _scores(q, k).exp()
    if mask is not None:
        powers = powers * mask
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "no-maximum-subtracted",
    "exp overflows for large scores and gives NaN: use torch.softmax, or subtract each row's maximum first.",
)
def attention_without_maximum_filled(q, k, v, mask=None):
    powers = _blocked(_scores(q, k), mask).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "one-maximum-for-all",
    "You subtract the largest score of all: a row far below it underflows to 0/0. Take the maximum of each row.",
)
def one_maximum_for_all_rows(q, k, v, mask=None):
    scores = _blocked(_scores(q, k), mask)
    powers = (scores - scores.max()).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


@misconception(
    ATTENTION,
    "scaled-after-softmax",
    "The scale is applied after the softmax, so rows sum to 1/√d_k: scale the scores.",
)
def scaled_after_softmax(q, k, v, mask=None):
    weights = _blocked(_scores(q, k, 1.0), mask).softmax(-1) / math.sqrt(q.size(-1))
    return weights @ v, weights


@misconception(ATTENTION, "keys-for-values", "The weights are multiplied with the keys: the output mixes the values.")
def keys_for_values(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask), k)


@misconception(ATTENTION, "keys-times-queries", "The scores are k qᵀ: rows belong to queries, so it must be q kᵀ.")
def keys_times_queries(q, k, v, mask=None):
    return _finish(_blocked(_scores(k, q), mask), v)


@misconception(
    ATTENTION,
    "reshape-for-transpose",
    "k is reshaped to (…, K, L_k) instead of transposed: a reshape keeps the order of the numbers and mixes positions.",
)
def reshape_for_transpose(q, k, v, mask=None):
    turned = k.reshape(*k.shape[:-2], k.size(-1), k.size(-2))
    return _finish(_blocked(q @ turned * q.size(-1) ** -0.5, mask), v)


@misconception(
    ATTENTION,
    "always-causal",
    "Without a mask the future is blocked all the same: with mask=None every query may attend to every key.",
)
def output_always_causal(q, k, v, mask=None):
    return always_causal(q, k, v, mask)[0], _finish(_blocked(_scores(q, k), mask), v)[1]


@misconception(
    ATTENTION,
    "always-causal",
    "Without a mask the future is blocked all the same: with mask=None every query may attend to every key.",
)
def always_causal(q, k, v, mask=None):
    if mask is None:
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return _finish(_blocked(_scores(q, k), mask), v)


@misconception(
    ATTENTION,
    "gradient-cut",
    "No gradient reaches q: something detaches it (detach, .data, no_grad or NumPy).",
)
def queries_cut(q, k, v, mask=None):
    return _finish(_blocked(_scores(q.detach(), k), mask), v)


@misconception(
    ATTENTION,
    "gradient-cut",
    "No gradient reaches k: something detaches it (detach, .data, no_grad or NumPy).",
)
def keys_cut(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k.detach()), mask), v)


@misconception(
    ATTENTION,
    "gradient-cut",
    "No gradient reaches v: something detaches it (detach, .data, no_grad or NumPy).",
)
def values_cut(q, k, v, mask=None):
    return _finish(_blocked(_scores(q, k), mask), v.detach())


@misconception(
    ATTENTION,
    "gradient-cut",
    "No gradient comes back at all: something detaches the result (detach, .data, no_grad or NumPy).",
)
def everything_cut(q, k, v, mask=None):
    return _finish(_blocked(_scores(q.detach(), k.detach()), mask), v.detach())


@misconception(
    ATTENTION,
    "gradient-cut",
    "No gradient reaches q and k: something detaches the scores or the weights (detach, .data, no_grad or NumPy).",
)
def weights_cut(q, k, v, mask=None):
    return _finish(_blocked(_scores(q.detach(), k.detach()), mask), v)


# ------------------------------------------------------------------------------------------------------ SelfAttention


class _SelfAttention(nn.Module):
    """The correct layer; each slip overrides the one line that it gets wrong."""

    bias = False

    def __init__(self, d_model, d_k):
        super().__init__()
        for name in ("w_q", "w_k", "w_v"):
            setattr(self, name, nn.Linear(d_model, d_k, bias=self.bias))

    def forward(self, x, mask=None):
        return self.attend(*self.project(x), mask)

    def project(self, x):
        return self.w_q(x), self.w_k(x), self.w_v(x)

    def attend(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@misconception(
    "SelfAttention",
    "projections-with-bias",
    "The projections have a bias: make them nn.Linear(d_model, d_k, bias=False).",
)
class ProjectionsWithBias(_SelfAttention):
    bias = True


@misconception("SelfAttention", "mask-not-handed-on", "The mask is accepted but never handed on to attention.")
class MaskNotHandedOn(_SelfAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None)


@misconception(
    "SelfAttention", "mask-inverted", "The mask is turned round on its way to attention: True means may attend."
)
class MaskInverted(_SelfAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None else ~mask)


@misconception("SelfAttention", "values-not-projected", "The values are x itself: project them with w_v.")
class ValuesNotProjected(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x), x


@misconception(
    "SelfAttention", "one-projection-for-all", "One projection serves for queries, keys and values: each has its own."
)
class OneProjectionForAll(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_q(x), self.w_q(x)


@misconception("SelfAttention", "keys-from-the-query-projection", "The keys are made with w_q: use w_k for them.")
class KeysFromTheQueryProjection(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_q(x), self.w_v(x)


@misconception("SelfAttention", "values-from-the-key-projection", "The values are made with w_k: use w_v for them.")
class ValuesFromTheKeyProjection(_SelfAttention):
    def project(self, x):
        return self.w_q(x), self.w_k(x), self.w_k(x)


@misconception("SelfAttention", "queries-and-keys-swapped", "Queries and keys have changed places.")
class QueriesAndKeysSwapped(_SelfAttention):
    def project(self, x):
        return self.w_k(x), self.w_q(x), self.w_v(x)


@misconception(
    "SelfAttention",
    "always-causal",
    "Without a mask the future is blocked all the same: with mask=None every position may attend to every other.",
)
class AlwaysCausal(_SelfAttention):
    def attend(self, q, k, v, mask):
        return always_causal(q, k, v, mask)[0]


@misconception(
    "SelfAttention",
    "sentences-mixed",
    "Attention runs over the batch axis and mixes sentences: positions are axis 1 of (B, L, D).",
)
class SentencesMixed(_SelfAttention):
    def attend(self, q, k, v, mask):
        return _finish(_scores(*(t.transpose(0, 1) for t in (q, k))), v.transpose(0, 1))[0].transpose(0, 1)


@misconception(
    "SelfAttention",
    "first-call-kept",
    "Keys and values of the first call are kept for the next ones: every call projects the x that it is given.",
)
class FirstCallKept(_SelfAttention):
    kept = None

    def project(self, x):
        if self.kept is None:
            self.kept = super().project(x)[1:]
        return self.w_q(x), *self.kept


@misconception(
    "SelfAttention", "mask-after-softmax", "The mask is applied after the softmax: set blocked scores to −∞ before it."
)
class MaskAfterSoftmax(_SelfAttention):
    def attend(self, q, k, v, mask):
        return mask_after_softmax(q, k, v, mask)[0]


@misconception(
    "SelfAttention", "input-detached", "No gradient reaches x: something detaches it before the projections."
)
class InputDetached(_SelfAttention):
    def project(self, x):
        return super().project(x.detach())


@misconception("SelfAttention", "mask-inverted", "The mask is taken the wrong way round: True means may attend.")
class MaskInvertedWithLargeFill(_SelfAttention):
    def attend(self, q, k, v, mask):
        return mask_inverted_with_large_fill(q, k, v, mask)[0]


@misconception("SelfAttention", "pair-returned", "Both results of attention come back: return the output alone.")
class PairReturned(_SelfAttention):
    def attend(self, q, k, v, mask):
        return _finish(_blocked(_scores(q, k), mask), v)


@misconception("SelfAttention", "weights-returned", "The attention weights come back: return the output.")
class WeightsReturned(_SelfAttention):
    def attend(self, q, k, v, mask):
        return _blocked(_scores(q, k), mask).softmax(-1)


@misconception("SelfAttention", "missing-scale", "The scores are not divided by √d_k.")
class MissingScale(_SelfAttention):
    def attend(self, q, k, v, mask):
        return missing_scale(q, k, v, mask)[0]


@misconception(
    "SelfAttention", "scaled-by-d-model", "The scores are divided by √d_model: the scale is √d_k, the width of a query."
)
class ScaledByDModel(_SelfAttention):
    def attend(self, q, k, v, mask):
        return _finish(_blocked(_scores(q, k, self.w_q.in_features**-0.5), mask), v)[0]


@misconception("SelfAttention", "scaled-twice", "The scores are divided by √d_k twice: attention does it already.")
class ScaledTwice(_SelfAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q / math.sqrt(q.size(-1)), k, v, mask)


@misconception(
    "SelfAttention", "softmax-over-queries", "The softmax runs over the queries: normalise the last axis, the keys."
)
class SoftmaxOverQueries(_SelfAttention):
    def attend(self, q, k, v, mask):
        return softmax_over_queries(q, k, v, mask)[0]


@misconception(
    "SelfAttention",
    "gradient-cut",
    "Some gradient does not arrive: something detaches a tensor (detach, .data, no_grad or NumPy).",
)
class GradientCut(_SelfAttention):
    def project(self, x):
        return tuple(projected.detach() for projected in super().project(x))
