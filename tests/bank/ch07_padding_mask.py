"""padding_mask(token_ids, pad_id): True at real tokens, (B, 1, 1, L), and what people make of it."""

from .entry import Collector

BANK = Collector("padding_mask", "padding")


def _plain(body: str) -> str:
    """The function with this body."""
    return f"\ndef padding_mask(token_ids, pad_id):\n    {body}\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "A comparison and two new axes.", _plain("return (token_ids != pad_id)[:, None, None, :]"))
BANK.right("unsqueezed", "Two times unsqueeze.", _plain("return token_ids.ne(pad_id).unsqueeze(1).unsqueeze(1)"))
BANK.right(
    "viewed",
    "The sizes read off and put in.",
    _plain("B, L = token_ids.shape\n    return ~(token_ids == pad_id).view(B, 1, 1, L)"),
)
BANK.right(
    "xor",
    "The difference as a boolean.",
    _plain("return (token_ids - pad_id).bool().reshape(len(token_ids), 1, 1, -1)"),
)
BANK.right(
    "token-by-token",
    "A loop over sentences and tokens.",
    _plain(
        "rows = [[token != pad_id for token in ids] for ids in token_ids.tolist()]\n"
        "    return torch.tensor(rows, dtype=torch.bool)[:, None, None]"
    ),
)
BANK.right(
    "filled",
    "Padding filled into a mask of ones.",
    _plain(
        "mask = torch.ones_like(token_ids, dtype=torch.bool)\n"
        "    return mask.masked_fill(token_ids == pad_id, False)[:, None, None]"
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "inverted",
    "True at padding, as PyTorch's modules have it.",
    _plain("return (token_ids == pad_id)[:, None, None, :]"),
    "mask-inverted",
)
BANK.wrong(
    "two-axes",
    "(B, L): the axes of heads and queries are missing.",
    _plain("return token_ids != pad_id"),
    "axes-missing",
)
BANK.wrong("three-axes", "(B, 1, L).", _plain("return (token_ids != pad_id).unsqueeze(1)"), "one-axis-only")
BANK.wrong(
    "queries-blocked",
    "(B, 1, L, 1): queries are closed instead of keys.",
    _plain("return (token_ids != pad_id)[:, None, :, None]"),
    "closes-queries",
)
BANK.wrong(
    "queries-blocked-too",
    "(B, 1, L, L): keys and queries.",
    _plain("real = token_ids != pad_id\n    return (real[:, :, None] & real[:, None, :])[:, None]"),
    "queries-and-keys",
)
BANK.wrong(
    "expanded",
    "(B, 1, L, L): a row for each query.",
    _plain("mask = (token_ids != pad_id)[:, None, None]\n    return mask.expand(-1, 1, token_ids.size(1), -1)"),
    "repeated-for-queries",
)
BANK.wrong(
    "zero-is-padding",
    "0 is padding, whatever pad_id is.",
    _plain("return (token_ids != 0)[:, None, None, :]"),
    "padding-id-fixed",
)
BANK.wrong(
    "larger-than-padding",
    "Ids above pad_id are real.",
    _plain("return (token_ids > pad_id)[:, None, None, :]"),
    "greater-than-padding",
)
BANK.wrong(
    "numbers",
    "0 and 1 in place of booleans.",
    _plain("return (token_ids != pad_id).long()[:, None, None, :]"),
    "numbers-for-booleans",
)
BANK.wrong(
    "added-to-scores",
    "0 and −∞, to be added to scores.",
    _plain(
        "mask = torch.zeros(token_ids.shape).masked_fill(token_ids == pad_id, float('-inf'))\n    return mask[:, None, None, :]"
    ),
    "additive-mask",
)
BANK.wrong(
    "everything-behind-the-first",
    "Closed from the first padding on, tokens behind it too.",
    _plain("return ((token_ids == pad_id).cumsum(1) == 0)[:, None, None, :]"),
    "ends-at-first-padding",
)
BANK.wrong(
    "length-counted",
    "The real tokens are counted, and that many places opened from the left.",
    _plain(
        "lengths = (token_ids != pad_id).sum(1, keepdim=True)\n"
        "    return (torch.arange(token_ids.size(1)) < lengths)[:, None, None, :]"
    ),
    "counts-from-the-left",
)
BANK.wrong(
    "first-sentence",
    "The first sentence's padding for all of the batch.",
    _plain("return (token_ids != pad_id)[:1].expand_as(token_ids)[:, None, None, :]"),
    "first-sentence-for-all",
)
BANK.wrong("batch-and-heads-exchanged", "(1, B, 1, L).", _plain("return (token_ids != pad_id)[None, :, None, :]"))
BANK.wrong(
    "squeezed", "A batch of one loses its axis.", _plain("return (token_ids != pad_id).squeeze(0)[..., None, None, :]")
)
BANK.wrong(
    "in-place",
    "The ids are turned into the mask in place.",
    _plain("mask = token_ids.sub_(pad_id)\n    return mask.bool()[:, None, None, :]"),
    "changed-in-place",
)
