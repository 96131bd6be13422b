"""attend_with_cache(q, k, v, past, mask): attention of new positions to all, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("attend_with_cache", "cache", IMPORTS)

_PLAIN = """
def attend_with_cache(q, k, v, past=None, mask=None):
    {start}
    keys, values = k, v
    if past is not None:
        {join}
    n, total = q.shape[2], keys.shape[2]
    opened = {edge}
    if mask is not None:
        opened = opened & {real}
    scores = q @ keys.mT / {scale}
    {attend}
    return {result}
"""
_LINES = {
    "start": "",
    "join": "keys, values = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)",
    "edge": "torch.ones(n, total, dtype=torch.bool).tril(total - n)",
    "real": "mask[:, None, None]",
    "scale": "math.sqrt(q.shape[-1])",
    "attend": "weights = scores.masked_fill(~opened, -torch.inf).softmax(-1).nan_to_num(0.0); output = weights @ values",
    "result": "output, (keys, values)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return "\n".join(line for line in _PLAIN.format(**(_LINES | lines)).split("\n") if line.strip()) + "\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Join, open, attend.", _plain())
BANK.right(
    "places",
    "The edge by comparing places.",
    _plain(edge="torch.arange(total)[None, :] <= torch.arange(total - n, total)[:, None]", scale="q.shape[-1] ** 0.5"),
)
BANK.right(
    "whole-sentence",
    "A causal mask of the whole sentence, of which the last rows are taken.",
    _plain(edge="torch.tril(torch.ones(total, total, dtype=torch.bool))[-n:]"),
)
BANK.right(
    "fused",
    "PyTorch's own attention with a mask.",
    _plain(
        attend="output = F.scaled_dot_product_attention(q, keys, values, attn_mask=opened.expand(q.shape[0], 1, n, total))\n"
        "    output = output.masked_fill(~opened.any(-1, keepdim=True), 0.0)"
    ),
)
BANK.right(
    "finite-fill",
    "The smallest finite number, and zeros behind the softmax.",
    _plain(
        attend="weights = scores.masked_fill(~opened, torch.finfo(scores.dtype).min).softmax(-1)\n"
        "    output = (weights * opened) @ values"
    ),
)
BANK.right(
    "by-hand",
    "A softmax by hand that subtracts the largest open score.",
    _plain(
        attend="top = scores.masked_fill(~opened, -torch.inf).amax(-1, keepdim=True).nan_to_num(neginf=0.0)\n"
        "    powers = torch.where(opened, (scores - top).clamp(max=0.0).exp(), torch.zeros_like(scores))\n"
        "    output = powers @ values / powers.sum(-1, keepdim=True).clamp(min=1e-30)"
    ),
)
BANK.right(
    "one-by-one",
    "One new position after another.",
    """
def attend_with_cache(q, k, v, past=None, mask=None):
    if past is None:
        past = k[:, :, :0], v[:, :, :0]
    start = past[0].size(2)
    keys, values = (torch.cat(pair, dim=2) for pair in zip(past, (k, v)))
    rows = []
    for i in range(q.size(2)):
        seen = start + i + 1
        scores = torch.einsum("bhk,bhsk->bhs", q[:, :, i], keys[:, :, :seen]) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :seen], float("-inf"))
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
        rows.append(torch.einsum("bhs,bhsk->bhk", weights, values[:, :, :seen]))
    return torch.stack(rows, dim=2), (keys, values)
""",
)
BANK.right(
    "buffer",
    "Room for all positions, filled.",
    _plain(
        join="t = past[0].shape[2]\n"
        "        keys, values = (x.new_empty(*x.shape[:2], t + x.shape[2], x.shape[3]) for x in (k, v))\n"
        "        keys[:, :, :t], keys[:, :, t:] = past[0], k\n"
        "        values[:, :, :t], values[:, :, t:] = past[1], v",
        result="output, [keys, values]",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "edge-left",
    "A lower triangle without an offset.",
    _plain(edge="torch.ones(n, total, dtype=torch.bool).tril()"),
    "edge-at-the-left",
)
BANK.wrong(
    "is-causal",
    "is_causal, whose edge begins at the left, too.",
    _plain(
        attend="output = F.scaled_dot_product_attention(q, keys, values, is_causal=True) if mask is None else "
        "F.scaled_dot_product_attention(q, keys, values, attn_mask=torch.ones(n, total, dtype=torch.bool).tril() & "
        "mask[:, None, None])\n    output = output.nan_to_num(0.0)"
    ),
    "edge-at-the-left",
)
BANK.wrong(
    "all-open",
    "New positions see each other's future.",
    _plain(edge="torch.ones(n, total, dtype=torch.bool)"),
    "not-causal",
)
BANK.wrong(
    "causal-without-a-past",
    "It is causal as long as there is no past.",
    _plain(
        edge="torch.ones(n, total, dtype=torch.bool) if past is not None else torch.ones(n, n, dtype=torch.bool).tril()"
    ),
    "not-causal",
)
BANK.wrong(
    "not-itself",
    "Not itself.",
    _plain(edge="torch.ones(n, total, dtype=torch.bool).tril(total - n - 1)"),
    "not-itself",
)
BANK.wrong(
    "one-too-far",
    "One too far.",
    _plain(edge="torch.ones(n, total, dtype=torch.bool).tril(total - n + 1)"),
    "one-too-far",
)
BANK.wrong(
    "past-alone",
    "The past alone.",
    _plain(edge="torch.zeros(n, total, dtype=torch.bool)\n    opened[:, : total - n] = True"),
    "past-alone",
)
BANK.wrong("no-scale", "No scale.", _plain(scale="1"), "scale-missing")
BANK.wrong("over-width", "Divided by K.", _plain(scale="q.shape[-1]"), "scale-without-root")
BANK.wrong("over-length", "Divided by the root of the length.", _plain(scale="math.sqrt(total)"), "scale-by-length")
BANK.wrong("over-heads", "Divided by √(H · K).", _plain(scale="math.sqrt(q.shape[1] * q.shape[-1])"))
BANK.wrong(
    "past-behind",
    "The past comes last.",
    _plain(join="keys, values = torch.cat([k, past[0]], 2), torch.cat([v, past[1]], 2)"),
    "past-behind",
)
BANK.wrong(
    "past-forgotten", "The past is not used.", _plain(join="pass", real="mask[:, None, None, -n:]"), "past-forgotten"
)
BANK.wrong("pair-exchanged", "Values first.", _plain(result="output, (values, keys)"), "pair-exchanged")
BANK.wrong(
    "past-exchanged",
    "The past is read as values and keys.",
    _plain(join="keys, values = torch.cat([past[1], k], 2), torch.cat([past[0], v], 2)"),
    "past-exchanged",
)
BANK.wrong("new-back", "Only the new ones come back.", _plain(result="output, (k, v)"), "new-ones-returned")
BANK.wrong(
    "past-back", "The past comes back as it was.", _plain(result="output, (past if past is not None else (k, v))")
)
BANK.wrong("output-alone", "Only the output.", _plain(result="output"), "output-alone")
BANK.wrong("three", "Three results.", _plain(result="output, keys, values"), "three-returned")
BANK.wrong(
    "changed-in-place",
    "The past that was given is changed.",
    _plain(join="past[0], past[1] = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2); keys, values = past"),
)
BANK.wrong("mask-bare", "The mask as it comes.", _plain(real="mask"), "mask-without-axes")
BANK.wrong("mask-one-axis", "The mask with one axis more.", _plain(real="mask.unsqueeze(1)"), "mask-without-axes")
BANK.wrong("mask-ignored", "No mask.", _plain(real="torch.ones(1, 1, 1, 1, dtype=torch.bool)"), "mask-ignored")
BANK.wrong("mask-inverted", "True hides.", _plain(real="mask[:, None, None].logical_not()"), "mask-inverted")
BANK.wrong("queries-masked", "Queries are masked.", _plain(real="mask[:, None, -n:].unsqueeze(-1)"), "queries-masked")
BANK.wrong(
    "masked-before-the-past-alone",
    "The mask of the past only.",
    _plain(real="torch.cat([mask[:, : total - n], torch.ones_like(mask[:, total - n :])], 1)[:, None, None]"),
)
BANK.wrong(
    "after-softmax",
    "Zeros behind the softmax.",
    _plain(attend="output = (scores.softmax(-1) * opened) @ values"),
    "mask-after-softmax",
)
BANK.wrong(
    "zero-scores",
    "Scores times the mask.",
    _plain(attend="output = (scores * opened).softmax(-1) @ values"),
    "scores-of-zero",
)
BANK.wrong(
    "nan",
    "NaN where nothing is open.",
    _plain(attend="output = scores.masked_fill(~opened, -torch.inf).softmax(-1) @ values"),
    "nothing-open",
)
BANK.wrong(
    "even",
    "The mean of everything where nothing is open.",
    _plain(attend="output = scores.masked_fill(~opened, -1e9).softmax(-1) @ values"),
    "nothing-open",
)
BANK.wrong(
    "over-queries",
    "The softmax runs over the queries.",
    _plain(attend="output = scores.masked_fill(~opened, -torch.inf).softmax(-2).nan_to_num(0.0) @ values"),
    "softmax-over-queries",
)
BANK.wrong(
    "overflows",
    "exp of the scores as they are.",
    _plain(
        attend="powers = torch.where(opened, scores.exp(), torch.zeros_like(scores))\n"
        "    output = powers / powers.sum(-1, keepdim=True).clamp(min=1e-30) @ values"
    ),
    "overflow",
)
BANK.wrong(
    "heads-joined",
    "The heads are merged.",
    _plain(result="output.transpose(1, 2).flatten(2), (keys, values)"),
)
BANK.wrong(
    "rounded",
    "Everything is rounded.",
    _plain(start="q, k, v = (x.bfloat16().to(x.dtype) for x in (q, k, v))"),
)
BANK.wrong(
    "masked-keys-kept-out-of-the-cache",
    "Keys of padding become 0 in what comes back.",
    _plain(result="output, ((keys, values) if mask is None else (keys * mask[:, None, :, None], values))"),
    "padding-zeroed",
)
BANK.wrong(
    "masked-values-kept-out-of-the-cache",
    "Values of padding become 0, in the product and in what comes back.",
    _plain(
        attend="values = values if mask is None else values * mask[:, None, :, None]\n"
        "    output = scores.masked_fill(~opened, -torch.inf).softmax(-1).nan_to_num(0.0) @ values"
    ),
    "padding-zeroed",
)
