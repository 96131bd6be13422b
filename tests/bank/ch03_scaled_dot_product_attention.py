"""scaled_dot_product_attention(q, k, v, mask=None), and what people make of it."""

from .entry import Collector

BANK = Collector("scaled_dot_product_attention", "attention")

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "einsum-1e9",
    "Einsum and a fill of −1e9.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = torch.einsum("...ik,...jk->...ij", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    weights = scores.softmax(-1)
    return torch.einsum("...ij,...jv->...iv", weights, v), weights
""",
)
BANK.right(
    "smallest-number",
    "Scaled queries, and the smallest finite number of the dtype as the fill.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (q / math.sqrt(q.size(-1))) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
)
BANK.right(
    "minus-ten-thousand",
    "A fill of −10 000, far enough below scores of a thousand.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-1, -2)) * q.size(-1) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e4)
    weights = F.softmax(scores, dim=-1)
    return torch.matmul(weights, v), weights
""",
)
BANK.right(
    "log-of-mask",
    "Adds the logarithm of the mask, which is 0 or −∞.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores + mask.to(scores.dtype).log()
    weights = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
    return weights @ v, weights
""",
)
BANK.right(
    "masked-exponentials",
    "The mask acts on the exponentials, before the sum, and the maximum is that of allowed keys.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    top = scores.detach().where(allowed, torch.tensor(-math.inf, dtype=scores.dtype)).amax(-1, keepdim=True)
    e = torch.exp(scores.where(allowed, top) - top) * allowed
    weights = e / e.sum(-1, keepdim=True)
    return weights @ v, weights
""",
)
BANK.right(
    "fused-kernel",
    "PyTorch's own for the output, and once more with the identity as values for the weights.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    identity = torch.eye(k.size(-2), dtype=k.dtype).expand(*k.shape[:-2], -1, -1)
    return tuple(F.scaled_dot_product_attention(q, k, values, attn_mask=mask) for values in (v, identity))
""",
)
BANK.right(
    "flattened-bmm",
    "Leading axes flattened for bmm and restored.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    leading = q.shape[:-2]
    a, b, c = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    scores = torch.baddbmm(torch.zeros(1, 1, 1, dtype=q.dtype), a, b.transpose(1, 2), beta=0, alpha=a.size(2) ** -0.5)
    scores = scores.reshape(*leading, *scores.shape[-2:])
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    weights = torch.softmax(scores, -1)
    output = torch.bmm(weights.reshape(-1, *weights.shape[-2:]), c)
    return output.reshape(*leading, *output.shape[-2:]), weights
""",
)
BANK.right(
    "query-by-query",
    "A loop over queries, in float64, the weights handed out without a graph.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    outputs, rows = [], []
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.size(-2))
    for i in range(q.size(-2)):
        s = (k.double() @ q.double()[..., i, :, None]).squeeze(-1) / math.sqrt(q.size(-1))
        if mask is not None:
            s = s.masked_fill(~mask[..., i, :], -math.inf)
        w = s.softmax(-1)
        rows.append(w.detach())
        outputs.append((w[..., None] * v.double()).sum(-2))
    return torch.stack(outputs, -2).to(q.dtype), torch.stack(rows, -2).to(q.dtype)
""",
)
BANK.right(
    "own-scores-in-place",
    "Works in place on its own scores and returns a list-like named tuple.",
    """
from typing import NamedTuple


class Attended(NamedTuple):
    output: torch.Tensor
    weights: torch.Tensor


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q.matmul(k.transpose(-2, -1)).div_(math.sqrt(q.size(-1)))
    if mask is not None:
        scores.masked_fill_(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return Attended(weights.matmul(v), weights)
""",
)
BANK.right(
    "keys-first",
    "Scores computed as keys times queries and transposed, weights read along the right axis.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = (k @ q.mT).mT * (1.0 / math.sqrt(q.shape[-1]))
    scores = scores if mask is None else scores.masked_fill(mask.bitwise_not(), float("-inf"))
    weights = nn.Softmax(dim=-1)(scores)
    return (v.mT @ weights.mT).mT, weights
""",
)

BANK.right(
    "online",
    "One key at a time, with a running maximum and a running sum.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    s = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1) / q.size(-1) ** 0.5
    if mask is not None:
        s = torch.where(mask, s, torch.finfo(s.dtype).min / 2)
    top = torch.full_like(s[..., 0], torch.finfo(s.dtype).min)
    total = torch.zeros_like(top)
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=v.dtype)
    for j in range(k.size(-2)):
        new = torch.maximum(top, s[..., j])
        shrink, p = torch.exp(top - new), torch.exp(s[..., j] - new)
        total = total * shrink + p
        out = out * shrink[..., None] + p[..., None] * v[..., j : j + 1, :]
        top = new
    return out / total[..., None], torch.exp(s - top[..., None]) / total[..., None]
""",
)

BANK.right(
    "vmapped",
    "One query with its keys, mapped twice.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    lead = q.shape[:-2]
    allowed = torch.ones((), dtype=torch.bool) if mask is None else mask
    allowed = allowed.expand(*lead, q.size(-2), k.size(-2)).reshape(-1, q.size(-2), k.size(-2))

    def one(q, k, v, m):
        s = torch.where(m, (k @ q) / math.sqrt(q.numel()), -math.inf)
        w = torch.softmax(s, 0)
        return w @ v, w

    f = torch.vmap(torch.vmap(one, in_dims=(0, None, None, 0)))
    o, w = f(
        q.reshape(-1, *q.shape[-2:]), k.reshape(-1, *k.shape[-2:]), v.reshape(-1, *v.shape[-2:]), allowed
    )
    return o.reshape(*lead, *o.shape[1:]), w.reshape(*lead, *w.shape[1:])
""",
)

BANK.right(
    "boolean-indexing",
    "Only the allowed keys of each query are gathered.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    lead, n, m = q.shape[:-2], q.size(-2), k.size(-2)
    mask = torch.ones(n, m, dtype=torch.bool) if mask is None else mask
    mask = mask.expand(*lead, n, m).reshape(-1, n, m)
    Q, K, V = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    outs, ws = [], []
    for b in range(Q.size(0)):
        for i in range(n):
            keep = mask[b, i].nonzero().flatten()
            p = torch.softmax(K[b, keep] @ Q[b, i] / math.sqrt(q.size(-1)), 0)
            ws.append(torch.zeros(m, dtype=q.dtype).index_add(0, keep, p))
            outs.append(p @ V[b, keep])
    return torch.stack(outs).view(*lead, n, -1), torch.stack(ws).view(*lead, n, m)
""",
)

BANK.right(
    "autograd-function",
    "An autograd function with the backward pass written out.",
    """
class _A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        s = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            s = s.masked_fill(~mask, -math.inf)
        w = s.softmax(-1)
        ctx.save_for_backward(q, k, v, w)
        return w @ v, w

    @staticmethod
    def backward(ctx, go, gw):
        q, k, v, w = ctx.saved_tensors
        gw = gw + go @ v.mT
        gs = w * (gw - (gw * w).sum(-1, keepdim=True)) / math.sqrt(q.size(-1))
        return gs @ k, gs.mT @ q, w.mT @ go, None


def scaled_dot_product_attention(q, k, v, mask=None):
    return _A.apply(q, k, v, mask)
""",
)

BANK.right(
    "mean-shifted-keys",
    "Keys centred first, which changes no weight.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    s = q @ (k - k.mean(-2, keepdim=True)).mT / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = s.softmax(-1)
    return w @ v, w
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

_PLAIN = """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = {scores}
    if mask is not None:
        scores = {masked}
    weights = {weights}
    return {result}
"""


def _changed(name: str, note: str, misconception: str | None = None, **lines: str) -> None:
    """One line of the plain form replaced."""
    plain = {
        "scores": "q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "masked": 'scores.masked_fill(~mask, float("-inf"))',
        "weights": "torch.softmax(scores, dim=-1)",
        "result": "weights @ v, weights",
    }
    BANK.wrong(name, note, _PLAIN.format(**(plain | lines)), misconception)


_changed("no-scale", "No scaling.", "missing-scale", scores="q @ k.transpose(-2, -1)")
_changed(
    "scale-by-width",
    "Divides by the width of the keys, not its root.",
    "scaled-by-d-k",
    scores="q @ k.transpose(-2, -1) / q.size(-1)",
)
_changed(
    "scale-by-length",
    "The root of the number of keys in place of their width.",
    "scaled-by-length",
    scores="q @ k.transpose(-2, -1) / math.sqrt(k.size(-2))",
)
_changed(
    "scale-by-value-width",
    "The root of the width of the values in place of that of the keys.",
    "scaled-by-value-width",
    scores="q @ k.transpose(-2, -1) / math.sqrt(v.size(-1))",
)
_changed(
    "scale-of-example",
    "The 2 of the worked example, whatever the width.",
    scores="q @ k.transpose(-2, -1) / 2",
)
_changed(
    "scaled-up",
    "Multiplied by the root instead of divided.",
    "multiplied-by-root",
    scores="q @ k.transpose(-2, -1) * math.sqrt(q.size(-1))",
)
_changed(
    "scaled-twice",
    "Queries and keys are both divided by the full root.",
    "scaled-by-d-k",
    scores="(q / q.size(-1) ** 0.5) @ (k / k.size(-1) ** 0.5).transpose(-2, -1)",
)
_changed(
    "softmax-over-queries",
    "The softmax runs over the queries: columns sum to 1.",
    "softmax-over-queries",
    weights="torch.softmax(scores, dim=-2)",
)
_changed(
    "softmax-over-axis-one",
    "dim=1, which is the axis of keys only for two axes.",
    "softmax-over-axis-one",
    weights="torch.softmax(scores, dim=1)",
)
_changed(
    "softmax-over-everything",
    "One softmax over all queries and keys together.",
    "softmax-over-everything",
    weights="torch.softmax(scores.flatten(-2), dim=-1).view_as(scores)",
)
_changed(
    "mask-inverted",
    "True is taken for blocked.",
    "mask-inverted",
    masked='scores.masked_fill(mask, float("-inf"))',
)
_changed(
    "mask-tiny-fill", "A fill close to 0 instead of far below.", "tiny-fill", masked="scores.masked_fill(~mask, -1e-9)"
)
_changed(
    "mask-zero-fill",
    "Blocked scores become 0, an ordinary score.",
    "tiny-fill",
    masked="scores.masked_fill(~mask, 0.0)",
)
_changed(
    "mask-shallow-fill",
    "A fill of −20: blocked keys keep a small weight, and more where all scores are low.",
    "fill-too-small",
    masked="scores.masked_fill(~mask, -20.0)",
)
_changed("mask-multiplied", "The scores are multiplied by the mask.", "tiny-fill", masked="scores * mask")
_changed("mask-added", "The mask is added as 0 and 1.", "mask-added", masked="scores + mask")
_changed(
    "mask-times-infinity",
    "0 times −∞ is NaN at every allowed key.",
    "infinity-times-zero",
    masked='scores + (~mask).to(scores.dtype) * float("-inf")',
)
_changed(
    "mask-thrown-away",
    "masked_fill returns a new tensor, which is not kept.",
    "mask-ignored",
    masked="(scores.masked_fill(~mask, -1e9), scores)[1]",
)
_changed(
    "mask-last-row",
    "Every query gets the mask of the last one.",
    masked="scores.masked_fill(~mask[..., -1:, :], -1e9)",
)
_changed(
    "mask-transposed",
    "The mask is read as (keys, queries).",
    masked='scores.masked_fill(~mask.transpose(-2, -1), float("-inf"))',
)
_changed(
    "mask-per-head-added",
    "Inserts an axis for heads into every mask, whether or not there are heads.",
    masked="scores.masked_fill(~mask.unsqueeze(1), -1e9)",
)
_changed(
    "mask-reversed-in-place",
    "Turns the caller's mask over in place.",
    None,
    masked="scores.masked_fill(mask.logical_not_(), -1e9)",
)
_changed("returns-scores", "Scores in place of weights.", "scores-returned", result="weights @ v, scores")
_changed("returns-output-only", "The weights are not returned.", "only-the-output", result="weights @ v")
_changed("returns-swapped", "Weights first, output second.", "results-swapped", result="weights, weights @ v")
_changed("values-are-keys", "The weights average the keys.", "keys-for-values", result="weights @ k, weights")
_changed(
    "weights-rounded",
    "Weights rounded to three decimals as printed in the book, in the second result alone.",
    result="weights @ v, weights.round(decimals=3)",
)
_changed(
    "weights-dropped-out",
    "Functional dropout, which is always on.",
    "dropout-in-evaluation",
    weights="F.dropout(torch.softmax(scores, dim=-1), p=0.1)",
)
_changed(
    "weights-detached",
    "The output is made with detached weights: no gradient for queries and keys.",
    "gradient-cut",
    result="weights.detach() @ v, weights",
)
_changed(
    "keys-detached",
    "The keys are cut off from the graph.",
    "gradient-cut",
    scores="q @ k.detach().transpose(-2, -1) / math.sqrt(q.size(-1))",
)
_changed(
    "two-axes-only",
    "k.T, which is a transpose of the last two axes only when there are no others.",
    scores="q @ k.T / math.sqrt(q.size(-1))",
)
_changed(
    "three-axes-only",
    "bmm, which wants exactly one leading axis.",
    scores="torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.size(-1))",
)
_changed(
    "four-axes-only",
    "Unpacks batch and heads from the shape.",
    scores="torch.einsum('bhik,bhjk->bhij', q, k) / math.sqrt(q.size(-1))",
)
_changed(
    "keys-by-queries",
    "Scores as keys times queries: the wrong way round, unless both are the same.",
    "keys-times-queries",
    scores="k @ q.transpose(-2, -1) / math.sqrt(q.size(-1))",
)
_changed(
    "no-transpose-but-reshape",
    "The keys are reshaped to (K, L_k) instead of transposed.",
    "reshape-for-transpose",
    scores="q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]) / math.sqrt(q.size(-1))",
)
_changed(
    "cosine-similarity",
    "Queries and keys are normalised to length 1 first.",
    scores="F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) / math.sqrt(q.size(-1))",
)
_changed("sigmoid", "A sigmoid for each key: the weights do not compete.", weights="torch.sigmoid(scores)")

BANK.wrong(
    "mask-after-softmax",
    "Blocked weights are set to 0 after the softmax: rows sum to less than 1.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights
""",
    "mask-after-softmax",
)
BANK.wrong(
    "mask-after-softmax-minus-infinity",
    "−1e9 is written into the weights instead of the scores.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, -1e9)
    return weights @ v, weights
""",
)
BANK.wrong(
    "mask-renormalised",
    "Taken out after the softmax and renormalised: right for small scores, 0/0 where a blocked key is far ahead.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v, weights
""",
    misconception="mask-after-softmax",
)
BANK.wrong(
    "mask-of-keys-only",
    "Only the axis of keys of the mask is used: a key that some query may see is open to all.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask.any(-2, keepdim=True), -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
)
BANK.wrong(
    "mask-for-weights-only",
    "The output is computed before the mask is applied.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    output = torch.softmax(scores, dim=-1) @ v
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return output, torch.softmax(scores, dim=-1)
""",
    "mask-for-the-weights-only",
)
BANK.wrong(
    "weights-before-mask",
    "The output is right; the weights returned are those before the mask.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    weights = torch.softmax(scores, dim=-1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), weights
""",
    "unmasked-weights-returned",
)
BANK.wrong(
    "scale-after-softmax",
    "The weights are divided by the root, not the scores.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1) / math.sqrt(q.size(-1))
    return weights @ v, weights
""",
    "scaled-after-softmax",
)
BANK.wrong(
    "overflow",
    "A softmax of its own without subtracting the maximum.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    e = torch.exp(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)))
    if mask is not None:
        e = e * mask
    weights = e / e.sum(dim=-1, keepdim=True)
    return weights @ v, weights
""",
    "no-maximum-subtracted",
)
BANK.wrong(
    "global-maximum",
    "One maximum for all rows: a query whose scores are all far below it underflows to 0/0.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    e = torch.exp(scores - scores.max())
    weights = e / e.sum(dim=-1, keepdim=True)
    return weights @ v, weights
""",
    "one-maximum-for-all",
)
BANK.wrong(
    "causal-unasked",
    "Blocks the future even when no mask is given.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is None:
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    weights = torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
    return weights @ v, weights
""",
    "always-causal",
)
BANK.wrong(
    "one-length",
    "Takes the number of keys from the queries.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    length = q.size(-2)
    scores = q @ k[..., :length, :].transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask[..., :length], -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v[..., :length, :], weights
""",
)
BANK.wrong(
    "scales-query-in-place",
    "Divides the caller's queries in place.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    q.data /= math.sqrt(q.size(-1))
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
)
BANK.wrong(
    "no-grad-block",
    "Everything under no_grad.",
    """
@torch.no_grad()
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
    "gradient-cut",
)
BANK.wrong(
    "remembers-mask",
    "The mask of one call stays for the next.",
    """
_last = {}


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    mask = _last.setdefault(scores.shape, mask)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
    misconception="mask-ignored",
)
BANK.wrong(
    "mean-over-batch",
    "The weights are averaged over the leading axis before they are used.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = torch.softmax(scores, dim=-1)
    if weights.dim() > 2:
        weights = weights.mean(0, keepdim=True).expand_as(weights)
    return weights @ v, weights
""",
)

BANK.wrong(
    "fill-minus-thousand",
    "A fill of −1000, which allowed scores may reach.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e3)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
    "fill-too-small",
)

BANK.wrong(
    "fill-minus-500",
    "A fill of −500, which allowed scores may fall below.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -500.0)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
    "fill-too-small",
)

BANK.wrong(
    "scores-clamped-500",
    "Scores beyond ±500 are cut off.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    s = (q @ k.mT / math.sqrt(q.size(-1))).clamp(-500, 500)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = s.softmax(-1)
    return w @ v, w
""",
)

BANK.wrong(
    "integer-root",
    "Divides by the integer part of the root.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.mT / int(math.sqrt(q.size(-1)))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights
""",
)

BANK.wrong(
    "weights-double",
    "The weights come back as float64.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights.double()
""",
)

BANK.wrong(
    "residual",
    "The queries are added to the output where values are as wide as they are.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    return (weights @ v + (q if q.shape[-1] == v.shape[-1] else 0)), weights
""",
)

BANK.wrong(
    "grad-only-with-mask",
    "Without a mask everything happens under no_grad.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    if mask is None:
        with torch.no_grad():
            w = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
        return w @ v, w
    w = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask, -math.inf).softmax(-1)
    return w @ v, w
""",
)

BANK.wrong(
    "single-query-special",
    "A single query is normalised along the wrong axis.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    s = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = s.softmax(-1 if q.size(-2) > 1 else -2)
    return w @ v, w
""",
)

BANK.wrong(
    "topk",
    "Only the four largest scores of a row count.",
    """
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(
        scores.masked_fill(scores < scores.topk(min(4, scores.size(-1)), -1).values[..., -1:], -math.inf), -1
    )
    return weights @ v, weights
""",
)
