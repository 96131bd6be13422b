"""split_heads(x, num_heads): (B, L, D) into (B, H, L, K), and what people make of it."""

from .entry import Collector

BANK = Collector("split_heads", "split")

_PLAIN = """
def split_heads(x, num_heads):
    B, L, D = x.shape
    {check}
    {split}
"""
_CHECK = """if D % num_heads != 0:
        raise ValueError(f"d_model = {D} does not divide into num_heads = {num_heads} heads.")"""
_SPLIT = "return x.reshape(B, L, num_heads, D // num_heads).transpose(1, 2)"


def _plain(split: str = _SPLIT, check: str = _CHECK) -> str:
    """The plain form with its split, or what it makes of other widths, replaced."""
    return _PLAIN.format(check=check, split=split)


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("reshaped-and-transposed", "The columns split, then heads before positions.", _plain())
BANK.right(
    "view-and-permute",
    "A view of any strides, for one axis is split and none joined; a copy at the end.",
    _plain("return x.view(B, L, num_heads, -1).permute(0, 2, 1, 3).contiguous()"),
)
BANK.right(
    "unflattened",
    "unflatten and movedim, and a check by divmod.",
    """
def split_heads(x, num_heads):
    d_k, rest = divmod(x.shape[-1], num_heads)
    if rest:
        raise ValueError("%d heads do not divide a width of %d" % (num_heads, x.shape[-1]))
    return torch.movedim(x.unflatten(-1, (num_heads, d_k)), -2, -3)
""",
)
BANK.right(
    "stacked-chunks",
    "One chunk of columns for each head, stacked along a new axis.",
    _plain("return torch.stack(x.chunk(num_heads, dim=-1), dim=1)"),
)
BANK.right(
    "slices-in-a-loop",
    "The columns of each head, from i·K on, written into a tensor of its own.",
    _plain(
        "K = D // num_heads\n"
        "    heads = x.new_zeros(B, num_heads, L, K)\n"
        "    for i in range(num_heads):\n"
        "        heads[:, i] = x[:, :, i * K : (i + 1) * K]\n"
        "    return heads"
    ),
)
BANK.right(
    "einsum-with-selections",
    "Each head by a 0–1 matrix that picks its columns.",
    _plain(
        "pick = torch.eye(D, dtype=x.dtype).reshape(D, num_heads, -1)\n"
        '    return torch.einsum("bld,dhk->bhlk", x, pick)'
    ),
)
BANK.right(
    "columns-gathered",
    "The columns by their numbers.",
    """
def split_heads(x, num_heads):
    width = x.size(-1)
    if width // num_heads * num_heads != width:
        raise ValueError("cannot split %s columns into %s heads" % (width, num_heads))
    columns = torch.arange(width).view(num_heads, 1, -1)
    rows = torch.arange(x.size(1)).view(1, -1, 1)
    return x[:, rows, columns]
""",
)
BANK.right(
    "strided",
    "as_strided with the strides that x has.",
    _plain(
        "b, l, d = x.stride()\n    K = D // num_heads\n    return x.as_strided((B, num_heads, L, K), (b, K * d, l, d))"
    ),
)
BANK.right(
    "windows",
    "unfold by windows of K columns, K apart.",
    _plain("K = D // num_heads\n    return x.unfold(-1, K, K).swapaxes(1, 2)"),
)
BANK.right(
    "module-and-sentence-loop",
    "nn.Unflatten for one sentence at a time.",
    """
class _Split(nn.Module):
    def forward(self, x, num_heads):
        if x.size(2) % num_heads > 0:
            raise ValueError(f"{num_heads=} and d_model={x.size(2)}")
        split = nn.Unflatten(1, (num_heads, x.size(2) // num_heads))
        return torch.stack([split(sentence).transpose(0, 1) for sentence in x])


split_heads = _Split()
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "bare-reshape",
    "Reshaped at once to (B, H, L, K): heads get other positions, not other columns.",
    _plain("return x.reshape(B, num_heads, L, D // num_heads)"),
    "split-by-reshape",
)
BANK.wrong(
    "not-transposed",
    "The columns are split, and positions stay before heads.",
    _plain("return x.reshape(B, L, num_heads, D // num_heads)"),
    "axes-not-exchanged",
)
BANK.wrong(
    "every-h-th-column",
    "Head i gets columns i, i + H, i + 2H and so on.",
    _plain("return x.reshape(B, L, D // num_heads, num_heads).permute(0, 3, 1, 2)"),
    "heads-interleaved",
)
BANK.wrong(
    "transposed-then-reshaped",
    "Columns before positions, and then a reshape, which mixes the two.",
    _plain("return x.transpose(1, 2).reshape(B, num_heads, L, D // num_heads)"),
)
BANK.wrong(
    "columns-before-positions",
    "Ends as (B, H, K, L): transposed once too little.",
    _plain("return x.transpose(1, 2).reshape(B, num_heads, D // num_heads, L)"),
    "tokens-last",
)
BANK.wrong(
    "width-for-number",
    "The number of heads is taken for the width of each.",
    _plain("return x.reshape(B, L, -1, num_heads).transpose(1, 2)"),
    "heads-and-width-exchanged",
)
BANK.wrong(
    "heads-first",
    "Heads before the batch.",
    _plain("return x.reshape(B, L, num_heads, -1).permute(2, 0, 1, 3)"),
    "heads-first",
)
BANK.wrong(
    "heads-folded-into-batch",
    "Three axes, (B·H, L, K), as bmm wants them.",
    _plain("return x.reshape(B, L, num_heads, -1).transpose(1, 2).flatten(0, 1)"),
    "heads-folded-into-the-batch",
)
BANK.wrong(
    "tuple-of-heads",
    "A tuple with one tensor for each head.",
    _plain("return x.chunk(num_heads, dim=-1)"),
)
BANK.wrong(
    "stacked-in-front",
    "The heads are stacked along axis 0.",
    _plain("return torch.stack(x.split(D // num_heads, dim=-1))"),
    "heads-first",
)
BANK.wrong(
    "heads-in-reverse",
    "The last columns go to the first head.",
    _plain("return x.reshape(B, L, num_heads, -1).transpose(1, 2).flip(1)"),
    "heads-backwards",
)
BANK.wrong(
    "same-columns-for-all",
    "Every head gets the columns of the first one.",
    _plain("return x[:, None, :, : D // num_heads].expand(-1, num_heads, -1, -1)"),
)
BANK.wrong(
    "overlapping-windows",
    "Windows of K columns, one apart.",
    _plain("return x.unfold(-1, D // num_heads, 1)[:, :, :num_heads].transpose(1, 2)"),
)
BANK.wrong(
    "positions-split",
    "The positions are dealt out to the heads, where the columns should be.",
    _plain(
        "if L % num_heads:\n"
        "        return x[:, None].expand(-1, num_heads, -1, -1)[..., : D // num_heads]\n"
        "    return x.reshape(B, num_heads, L // num_heads, D)"
    ),
)
BANK.wrong(
    "two-heads-only",
    "Always two halves.",
    _plain("return torch.stack([x[..., : D // 2], x[..., D // 2 :]], dim=1)"),
)
BANK.wrong(
    "flat-view",
    "A view with batch and positions joined, which strides other than a fresh tensor's forbid.",
    _plain("return x.view(B * L, num_heads, -1).view(B, L, num_heads, -1).transpose(1, 2)"),
    "view-for-reshape",
)
BANK.wrong(
    "strides-of-a-fresh-tensor",
    "as_strided with the strides of a fresh tensor, whatever x has.",
    _plain("K = D // num_heads\n    return torch.as_strided(x, (B, num_heads, L, K), (L * D, K, D, 1))"),
)
BANK.wrong(
    "one-head-shortcut",
    "One head needs no split, and so the axis is missing.",
    _plain("if num_heads == 1:\n        return x\n    " + _SPLIT),
)
BANK.wrong(
    "sizes-of-one-lost",
    "squeeze takes away every axis of size 1.",
    _plain("return x.reshape(B, L, num_heads, -1).transpose(1, 2).squeeze()"),
)
BANK.wrong(
    "narrow-heads-refused",
    "Heads of a single column are refused.",
    _plain(check='if D % num_heads or D == num_heads:\n        raise ValueError(f"{D} and {num_heads}")'),
)
BANK.wrong(
    "leftover-columns-dropped",
    "Where D does not divide, the last columns are cut off.",
    _plain(
        "K = D // num_heads\n    return x[..., : num_heads * K].reshape(B, L, num_heads, K).transpose(1, 2)", "pass"
    ),
    "columns-cut-off",
)
BANK.wrong(
    "reshape-complains",
    "No check: PyTorch's RuntimeError about the reshape speaks of neither heads nor width.",
    _plain(check="pass"),
    "no-look-at-divisibility",
)
BANK.wrong(
    "asserted",
    "An assertion, which python -O skips, in place of a ValueError.",
    _plain(check='assert D % num_heads == 0, f"{D} does not divide into {num_heads} heads"'),
    "assert-for-value-error",
)
BANK.wrong(
    "silent-about-the-numbers",
    "A ValueError that names no number.",
    _plain(check='if D % num_heads:\n        raise ValueError("d_model must be divisible by num_heads")'),
    "error-without-numbers",
)
BANK.wrong(
    "names-one-number",
    "A ValueError that names the width and not the number of heads.",
    _plain(check='if D % num_heads:\n        raise ValueError(f"a width of {D} does not divide")'),
)
BANK.wrong(
    "length-checked",
    "The length must divide, in place of the width.",
    _plain(check='if L % num_heads:\n        raise ValueError(f"{D} and {num_heads}")'),
)
BANK.wrong(
    "division-turned-round",
    "The number of heads must divide by the width.",
    _plain(check='if num_heads % D:\n        raise ValueError(f"{D} and {num_heads}")'),
)
BANK.wrong(
    "scaled",
    "The heads are divided by √K along the way.",
    _plain("K = D // num_heads\n    return x.reshape(B, L, num_heads, K).transpose(1, 2) / math.sqrt(K)"),
)
BANK.wrong(
    "detached",
    "The heads are copied out of the graph.",
    _plain("return x.detach().reshape(B, L, num_heads, -1).transpose(1, 2).clone()"),
    "gradient-cut",
)
BANK.wrong(
    "gradient-of-the-first-head",
    "Only the first head is part of the graph.",
    _plain(
        "first, *others = x.chunk(num_heads, dim=-1)\n"
        "    return torch.stack([first, *(head.detach() for head in others)], dim=1)"
    ),
)
BANK.wrong(
    "input-moved",
    "The caller's x is overwritten with its columns in the order of interleaved heads.",
    _plain(
        "heads = x.reshape(B, L, num_heads, -1).transpose(1, 2).clone()\n"
        "    x.data.copy_(x.data.reshape(B, L, num_heads, -1).transpose(2, 3).reshape(B, L, D))\n"
        "    return heads"
    ),
)
BANK.wrong(
    "first-size-kept",
    "The width of a head is kept from the first call.",
    """
_width = None


def split_heads(x, num_heads):
    global _width
    if x.size(-1) % num_heads:
        raise ValueError(f"{x.size(-1)} and {num_heads}")
    _width = _width or x.size(-1) // num_heads
    return x.reshape(x.size(0), x.size(1), -1, _width).transpose(1, 2)
""",
)
