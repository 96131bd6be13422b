"""causal_mask(size): True where key j ≤ query i, and what people make of it."""

from .entry import Collector

BANK = Collector("causal_mask", "causal")


def _plain(body: str) -> str:
    """The function with this body."""
    return f"\ndef causal_mask(size):\n    {body}\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("tril", "The lower triangle of ones.", _plain("return torch.tril(torch.ones(size, size, dtype=torch.bool))"))
BANK.right(
    "not-triu",
    "What is not above the diagonal.",
    _plain("return ~torch.triu(torch.ones(size, size, dtype=bool), diagonal=1)"),
)
BANK.right(
    "aranges",
    "Numbers of queries against numbers of keys.",
    _plain("i = torch.arange(size)\n    return i[None, :] <= i[:, None]"),
)
BANK.right("ones-to-booleans", "Numbers first, booleans then.", _plain("return torch.ones(size, size).tril() == 1"))
BANK.right(
    "nested-lists", "Two loops.", _plain("return torch.tensor([[j <= i for j in range(size)] for i in range(size)])")
)
BANK.right(
    "row-by-row",
    "Each row opened up to the diagonal.",
    _plain(
        "mask = torch.zeros(size, size, dtype=torch.bool)\n"
        "    for i in range(size):\n"
        "        mask[i, : i + 1] = True\n"
        "    return mask"
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "upper", "The upper triangle.", _plain("return torch.ones(size, size, dtype=torch.bool).triu()"), "upper-triangle"
)
BANK.wrong(
    "true-is-closed",
    "True above the diagonal: what is closed.",
    _plain("return torch.ones(size, size, dtype=torch.bool).triu(1)"),
    "mask-inverted",
)
BANK.wrong(
    "strict",
    "Without the diagonal.",
    _plain("return torch.ones(size, size, dtype=torch.bool).tril(-1)"),
    "diagonal-closed",
)
BANK.wrong(
    "strict-but-first",
    "Without the diagonal, and the first row mended.",
    _plain("mask = torch.ones(size, size, dtype=torch.bool).tril(-1)\n    mask[0, 0] = True\n    return mask"),
)
BANK.wrong(
    "one-ahead",
    "One step into the future.",
    _plain("return torch.ones(size, size, dtype=torch.bool).tril(1)"),
    "one-step-ahead",
)
BANK.wrong(
    "floats", "Ones and zeros as floats.", _plain("return torch.tril(torch.ones(size, size))"), "numbers-for-booleans"
)
BANK.wrong(
    "integers",
    "Ones and zeros as integers.",
    _plain("i = torch.arange(size)\n    return (i <= i[:, None]).int()"),
    "numbers-for-booleans",
)
BANK.wrong(
    "added-to-scores",
    "0 and −∞, to be added to scores.",
    _plain("return torch.full((size, size), float('-inf')).triu(1)"),
    "additive-mask",
)
BANK.wrong(
    "four-axes",
    "(1, 1, size, size).",
    _plain("return torch.ones(1, 1, size, size, dtype=torch.bool).tril()"),
    "axes-added",
)
BANK.wrong(
    "three-axes",
    "(1, size, size).",
    _plain("return torch.ones(size, size, dtype=torch.bool).tril().unsqueeze(0)"),
    "axes-added",
)
BANK.wrong(
    "itself-only", "Each token sees itself alone.", _plain("return torch.eye(size, dtype=torch.bool)"), "only-itself"
)
BANK.wrong(
    "all-open", "Everything is open.", _plain("return torch.ones(size, size, dtype=torch.bool)"), "nothing-hidden"
)
BANK.wrong(
    "cached",
    "The mask of the first call, cut from then on.",
    _plain(
        'table = causal_mask.__dict__.setdefault("table", torch.ones(size, size, dtype=torch.bool).tril())\n'
        "    return table[:size, :size]"
    ),
)
BANK.wrong(
    "fixed-window",
    "At most 16 tokens back.",
    _plain(
        "mask = torch.ones(size, size, dtype=torch.bool).tril()\n    return mask & mask.triu(-15).logical_or(mask & False)"
    ),
)
BANK.wrong(
    "one-short",
    "One row and column too few.",
    _plain("return torch.ones(size - 1, size - 1, dtype=torch.bool).tril()"),
    "one-short",
)
