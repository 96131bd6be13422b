"""masked_mean_pool(hidden, mask): the mean over each row's real tokens, (B, D), and what people make of it."""

from .entry import Collector

BANK = Collector("masked_mean_pool", "pool")


def _plain(*lines: str) -> str:
    """The function with these lines."""
    return "\ndef masked_mean_pool(hidden, mask):\n" + "".join(f"    {line}\n" for line in lines)


_MASK = "m = mask.unsqueeze(-1).to(hidden.dtype)"

# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "plain",
    "The mask as numbers, a sum divided by a sum.",
    _plain(_MASK, "return (hidden * m).sum(dim=1) / m.sum(dim=1)"),
)
BANK.right(
    "row-by-row",
    "A loop with boolean indexing.",
    _plain("return torch.stack([h[m].mean(0) for h, m in zip(hidden, mask)])"),
)
BANK.right(
    "weights",
    "Weights that sum to one, and einsum.",
    _plain(
        "w = mask.to(hidden.dtype)",
        "w = w / w.sum(1, keepdim=True)",
        "return torch.einsum('bl,bld->bd', w, hidden)",
    ),
)
BANK.right(
    "filled",
    "Padding filled with zeros, counts kept at least 1.",
    _plain(
        "total = hidden.masked_fill(~mask[..., None], 0).sum(1)",
        "return total / mask.sum(1, keepdim=True).clamp(min=1)",
    ),
)
BANK.right(
    "where",
    "torch.where, and a count in the last axis.",
    _plain(
        "kept = torch.where(mask[:, :, None], hidden, torch.zeros_like(hidden))",
        "return kept.sum(-2) / mask.count_nonzero(dim=-1)[:, None]",
    ),
)
BANK.right(
    "matrix-product",
    "A batched product of a row of shares with the tokens.",
    _plain(
        "shares = mask / mask.sum(-1, keepdim=True)",
        "return (shares.to(hidden.dtype).unsqueeze(1) @ hidden).squeeze(1)",
    ),
)
BANK.right(
    "as-attention",
    "Attention with equal scores: the softmax over the open keys is 1/n.",
    _plain(
        "scores = torch.zeros_like(mask, dtype=hidden.dtype).masked_fill(~mask, float('-inf'))",
        "return (scores.softmax(-1).unsqueeze(-1) * hidden).sum(1)",
    ),
)
BANK.right(
    "index-add",
    "All real tokens in one list, added up by their row.",
    _plain(
        "row, place = mask.nonzero(as_tuple=True)",
        "total = hidden.new_zeros(len(hidden), hidden.size(-1)).index_add(0, row, hidden[row, place])",
        "return total / torch.bincount(row, minlength=len(hidden)).unsqueeze(-1)",
    ),
)
BANK.right(
    "token-by-token",
    "Two loops, a sum and a counter.",
    """
def masked_mean_pool(hidden, mask):
    B, L, D = hidden.shape
    rows = []
    for b in range(B):
        total, count = torch.zeros(D, dtype=hidden.dtype), 0
        for l in range(L):
            if mask[b, l]:
                total = total + hidden[b, l]
                count += 1
        rows.append(total / count)
    return torch.stack(rows)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("mean-of-all", "Padding is averaged too.", _plain("return hidden.mean(dim=1)"), "padding-averaged")
BANK.wrong(
    "mean-of-all-as-mask-is-ones",
    "The mask is turned into ones on the way.",
    _plain("m = torch.ones_like(mask).unsqueeze(-1)", "return (hidden * m).sum(1) / m.sum(1)"),
    "padding-averaged",
)
BANK.wrong(
    "no-division",
    "The sum over the real tokens.",
    _plain("return (hidden * mask.unsqueeze(-1)).sum(dim=1)"),
    "sum-for-mean",
)
BANK.wrong("sum-of-all", "The sum over everything.", _plain("return hidden.sum(1)"), "sum-of-everything")
BANK.wrong(
    "divided-by-length",
    "Padding is set to zero and counted.",
    _plain("hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0)", "return hidden.mean(dim=1)"),
    "padding-counted",
)
BANK.wrong(
    "divided-by-the-shape",
    "The sum divided by hidden.shape[1].",
    _plain("return (hidden * mask[:, :, None]).sum(1) / hidden.shape[1]"),
    "padding-counted",
)
BANK.wrong(
    "added-but-not-counted",
    "The sum over everything, divided by the right count.",
    _plain("return hidden.sum(1) / mask.sum(1).unsqueeze(1)"),
    "padding-added",
)
BANK.wrong(
    "class-token", "The first position, as with a class token.", _plain("return hidden[:, 0, :]"), "first-position"
)
BANK.wrong("final-position", "The last position, padding or not.", _plain("return hidden[:, -1]"), "last-position")
BANK.wrong(
    "final-token",
    "The last real token, found by its count.",
    _plain("last = mask.sum(1) - 1", "return hidden[torch.arange(hidden.size(0)), last]"),
    "last-real-token",
)
BANK.wrong(
    "max-pooling",
    "The maximum of each feature.",
    _plain("return hidden.masked_fill(~mask[..., None], float('-inf')).max(dim=1).values"),
    "maximum",
)
BANK.wrong(
    "padding-only",
    "The mask is taken to be True at padding.",
    _plain("m = (~mask).unsqueeze(-1)", "return (hidden * m).sum(dim=1) / m.sum(dim=1).clamp(min=1)"),
    "mask-inverted",
)
BANK.wrong(
    "padding-only-undivided",
    "True at padding, and nothing guards against a row without any.",
    _plain("return (hidden * ~mask[..., None]).sum(1) / (~mask).sum(1)[:, None]"),
    "mask-inverted",
)
BANK.wrong(
    "features-summed",
    "Summed over the features.",
    _plain("m = mask.unsqueeze(-1)", "return (hidden * m).sum(dim=-1) / m.sum(dim=1)"),
    "over-the-features",
)
BANK.wrong(
    "features-averaged", "The mean over the last axis.", _plain("return hidden.mean(dim=-1)"), "over-the-features"
)
BANK.wrong(
    "rows-averaged",
    "The mean over axis 0.",
    _plain("m = mask.unsqueeze(-1)", "return (hidden * m).sum(dim=0) / m.sum(dim=0).clamp(min=1)"),
    "over-the-batch",
)
BANK.wrong(
    "total-count",
    "Divided by all real tokens of the batch.",
    _plain(_MASK, "return (hidden * m).sum(1) / m.sum()"),
    "one-count-for-all",
)
BANK.wrong(
    "mean-count",
    "Divided by the average number of real tokens.",
    _plain(_MASK, "return (hidden * m).sum(1) / m.sum(1).mean()"),
    "average-count",
)
BANK.wrong(
    "longest-row",
    "Divided by the length of the longest row.",
    _plain(_MASK, "return (hidden * m).sum(1) / m.sum(1).max()"),
    "longest-count",
)
BANK.wrong(
    "all-rows-together",
    "One mean for all rows.",
    _plain("mean = hidden[mask].mean(0)", "return mean.repeat(hidden.size(0), 1)"),
    "one-mean-for-the-batch",
)
BANK.wrong(
    "first-mask",
    "The first row's mask for the whole batch.",
    _plain("return hidden[:, mask[0]].mean(1)"),
    "first-row-for-all",
)
BANK.wrong(
    "lengths",
    "The tokens are counted, and as many taken from the left.",
    _plain("return torch.stack([h[: m.sum()].mean(0) for h, m in zip(hidden, mask)])"),
    "counts-from-the-left",
)
BANK.wrong(
    "until-the-first-padding",
    "Everything behind the first padding is dropped.",
    _plain(
        "m = mask.long().cumprod(1).unsqueeze(-1)",
        "return (hidden * m).sum(1) / m.sum(1).clamp(min=1)",
    ),
)
BANK.wrong(
    "root",
    "Divided by the root of the count.",
    _plain(_MASK, "return (hidden * m).sum(1) / m.sum(1).sqrt()"),
    "root-of-the-count",
)
BANK.wrong(
    "one-too-many",
    "The count plus one, against a division by zero.",
    _plain(_MASK, "return (hidden * m).sum(1) / (m.sum(1) + 1)"),
    "count-off-by-one",
)
BANK.wrong(
    "large-epsilon",
    "An epsilon of a hundredth beside the count.",
    _plain(_MASK, "return (hidden * m).sum(1) / (m.sum(1) + 1e-2)"),
)
BANK.wrong(
    "filled-as-scores",
    "Padding is filled with −∞ before a sum.",
    _plain(
        "hidden = hidden.masked_fill(~mask[..., None], float('-inf'))", "return hidden.sum(1) / mask.sum(1)[:, None]"
    ),
    "filled-with-infinity",
)
BANK.wrong(
    "large-negative",
    "Padding gets −10⁹ added, as scores do.",
    _plain("hidden = hidden + (~mask[..., None]) * -1e9", "return hidden.sum(1) / mask.sum(1)[:, None]"),
)
BANK.wrong(
    "keeps-the-axis",
    "(B, 1, D).",
    _plain(_MASK, "return (hidden * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)"),
    "axis-kept",
)
BANK.wrong(
    "squeezes-everything",
    "A batch of one or a width of one loses its axis.",
    _plain(_MASK, "return ((hidden * m).sum(1, keepdim=True) / m.sum(1, keepdim=True)).squeeze()"),
    "squeezed",
)
BANK.wrong(
    "zeroed-in-place",
    "Padding is set to zero in the caller's tensor.",
    _plain("hidden[~mask] = 0.0", "return hidden.sum(1) / mask.sum(1, keepdim=True)"),
    "changed-in-place",
)
BANK.wrong(
    "detached",
    "The vectors are detached.",
    _plain(_MASK, "return (hidden.detach() * m).sum(1) / m.sum(1)"),
    "gradient-cut",
)
BANK.wrong(
    "numpy",
    "Through NumPy, which cuts the gradient.",
    _plain("return torch.from_numpy(np.stack([h[m].mean(0) for h, m in zip(hidden.detach().numpy(), mask.numpy())]))"),
    "gradient-cut",
)
BANK.wrong(
    "median",
    "The median of each feature.",
    _plain("return torch.stack([h[m].median(0).values for h, m in zip(hidden, mask)])"),
)
BANK.wrong(
    "whole-minus-padding",
    "The sum over everything minus that over padding: large numbers there swallow the rest.",
    _plain(_MASK, "return (hidden.sum(1) - (hidden * (1 - m)).sum(1)) / m.sum(1)"),
)
BANK.wrong(
    "half-precision",
    "Computed in half precision, where large numbers overflow.",
    _plain("m = mask.unsqueeze(-1)", "h = hidden.half()", "return ((h * m).sum(1) / m.sum(1)).to(hidden.dtype)"),
)
