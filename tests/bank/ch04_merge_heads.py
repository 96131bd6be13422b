"""merge_heads(x): (B, H, L, K) into (B, L, H·K), and what people make of it."""

from .entry import Collector

BANK = Collector("merge_heads", "merge")

_PLAIN = """
def merge_heads(x):
    B, H, L, K = x.shape
    {merge}
"""


def _plain(merge: str) -> str:
    """The four sizes unpacked, and the rest."""
    return _PLAIN.format(merge=merge)


# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "transposed-and-reshaped",
    "Positions before heads, then the last two axes joined.",
    _plain("return x.transpose(1, 2).reshape(B, L, H * K)"),
)
BANK.right(
    "contiguous-view",
    "A copy in the new order and a view of it.",
    _plain("return x.permute(0, 2, 1, 3).contiguous().view(B, L, -1)"),
)
BANK.right(
    "flattened",
    "movedim and flatten.",
    """
def merge_heads(x):
    return torch.movedim(x, -3, -2).flatten(start_dim=-2)
""",
)
BANK.right(
    "concatenated",
    "The heads side by side.",
    """
def merge_heads(x):
    return torch.cat(x.unbind(dim=1), dim=-1)
""",
)
BANK.right(
    "slices-in-a-loop",
    "Each head written into its columns of a tensor of its own.",
    _plain(
        "merged = torch.empty(B, L, H * K, dtype=x.dtype)\n"
        "    for i in range(H):\n"
        "        merged[:, :, i * K : (i + 1) * K] = x[:, i]\n"
        "    return merged"
    ),
)
BANK.right(
    "einsum-with-places",
    "Each head by a 0–1 matrix that puts its columns in place, added up.",
    _plain(
        'place = torch.eye(H * K, dtype=x.dtype).view(H, K, H * K)\n    return torch.einsum("bhlk,hkd->bld", x, place)'
    ),
)
BANK.right(
    "padded-and-added",
    "Each head padded with zeros to the full width, and the sum.",
    _plain("return sum(F.pad(x[:, i], (i * K, (H - 1 - i) * K)) for i in range(H))"),
)
BANK.right(
    "stacked",
    "The heads stacked beside the positions and flattened.",
    """
def merge_heads(x):
    return torch.stack(list(x.swapaxes(0, 1)), dim=2).flatten(2)
""",
)
BANK.right(
    "position-by-position",
    "A loop over sentences and positions.",
    _plain("return torch.stack([torch.stack([x[b, :, t].reshape(-1) for t in range(L)]) for b in range(B)])"),
)
BANK.right(
    "columns-gathered",
    "Column j of the result is column j mod K of head j // K.",
    _plain("j = torch.arange(H * K)\n    return x.transpose(1, 2)[:, :, j // K, j % K]"),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "bare-reshape",
    "Reshaped at once to (B, L, D): what belongs to one position comes from several.",
    _plain("return x.reshape(B, L, H * K)"),
    "merged-by-reshape",
)
BANK.wrong(
    "interleaved",
    "The heads' columns alternate.",
    _plain("return x.permute(0, 2, 3, 1).reshape(B, L, H * K)"),
    "columns-interleaved",
)
BANK.wrong(
    "last-axes-transposed",
    "Positions and columns are exchanged before the reshape.",
    _plain("return x.transpose(2, 3).reshape(B, L, H * K)"),
    "wrong-axes-exchanged",
)
BANK.wrong(
    "view-after-transpose",
    "A view of the transposed tensor: possible only if x came from a transpose itself.",
    _plain("return x.transpose(1, 2).view(B, L, H * K)"),
    "view-after-transpose",
)
BANK.wrong(
    "view-before-transpose",
    "A view with batch and heads joined, which strides other than a fresh tensor's forbid.",
    _plain("return torch.cat(x.view(B * H, L, K).view(B, H, L, K).unbind(1), -1)"),
)
BANK.wrong(
    "strides-of-a-fresh-tensor",
    "as_strided with the strides of a fresh tensor, whatever x has.",
    _plain("return torch.as_strided(x, (B, L, H, K), (H * L * K, K, L * K, 1)).reshape(B, L, H * K)"),
)
BANK.wrong(
    "below-each-other",
    "The heads are put one after the other along the positions.",
    _plain("return torch.cat(x.unbind(1), dim=1)"),
    "heads-joined-with-tokens",
)
BANK.wrong(
    "heads-in-reverse",
    "The last head comes first.",
    _plain("return torch.cat(x.unbind(1)[::-1], dim=-1)"),
    "heads-backwards",
)
BANK.wrong("heads-averaged", "The mean of the heads, K wide.", _plain("return x.mean(dim=1)"), "heads-averaged")
BANK.wrong(
    "heads-added",
    "The sum of the heads, K wide.",
    _plain("return x.sum(dim=1)"),
    "heads-added",
)
BANK.wrong("first-head-alone", "The first head, K wide.", _plain("return x.select(1, 0)"), "one-head-only")
BANK.wrong(
    "first-head-repeated",
    "The first head H times.",
    _plain("return torch.cat([x[:, 0]] * H, dim=-1)"),
)
BANK.wrong(
    "two-heads-only",
    "Puts the first and the last head side by side.",
    _plain("return torch.cat([x[:, 0], x[:, -1]], dim=-1)"),
)
BANK.wrong(
    "batch-and-positions-mixed",
    "Positions come before the batch when the reshape is made.",
    _plain("return x.permute(2, 0, 1, 3).reshape(B, L, H * K)"),
)
BANK.wrong(
    "sequence-first",
    "Returns (L, B, D).",
    _plain("return x.permute(2, 0, 1, 3).reshape(L, B, H * K)"),
)
BANK.wrong(
    "axes-misread",
    "Takes x for (B, L, H, K).",
    _plain("return x.flatten(2)"),
)
BANK.wrong(
    "not-flattened",
    "Stops at (B, L, H, K).",
    _plain("return x.transpose(1, 2).contiguous()"),
    "heads-still-apart",
)
BANK.wrong(
    "one-head-shortcut",
    "One head is handed back as it is, with its axis.",
    _plain("if H == 1:\n        return x\n    return x.transpose(1, 2).reshape(B, L, H * K)"),
)
BANK.wrong(
    "sizes-of-one-lost",
    "squeeze takes away every axis of size 1.",
    _plain("return x.transpose(1, 2).reshape(B, L, H * K).squeeze()"),
)
BANK.wrong(
    "square-heads-only",
    "The width is taken from the positions: right where L is K.",
    _plain("return x.transpose(1, 2).reshape(B, -1, H * L)"),
)
BANK.wrong(
    "as-many-heads-as-sentences",
    "Batch and heads are read the wrong way round: right where both are one.",
    _plain("return x.transpose(0, 1).transpose(1, 2).reshape(H, L, B * K)"),
)
BANK.wrong(
    "detached",
    "The heads are copied out of the graph.",
    _plain("return torch.cat(x.data.unbind(1), -1)"),
    "gradient-cut",
)
BANK.wrong(
    "new-tensor",
    "torch.tensor of nested lists, which has no graph.",
    _plain("return torch.tensor(x.transpose(1, 2).reshape(B, L, H * K).tolist(), dtype=x.dtype)"),
    "gradient-cut",
)
BANK.wrong(
    "gradient-of-the-last-head",
    "The result is filled in through .data, but for the last head.",
    _plain(
        "merged = torch.zeros(B, L, H * K, dtype=x.dtype)\n"
        "    for i in range(H - 1):\n"
        "        merged[:, :, i * K : (i + 1) * K] = x.data[:, i]\n"
        "    merged[:, :, (H - 1) * K :] = x[:, -1]\n"
        "    return merged"
    ),
)
BANK.wrong(
    "input-transposed",
    "transpose_ turns the caller's x.",
    _plain("x.data = x.data.transpose(1, 2)\n    return x.reshape(B, L, H * K)"),
)
BANK.wrong(
    "input-reordered",
    "The caller's numbers are overwritten with the merged ones.",
    _plain(
        "merged = x.transpose(1, 2).reshape(B, L, H * K).clone()\n"
        "    x.data.copy_(merged.detach().view(B, H, L, K))\n"
        "    return merged"
    ),
)
BANK.wrong(
    "scaled",
    "Divided by the number of heads along the way.",
    _plain("return x.transpose(1, 2).reshape(B, L, H * K) / H"),
)
