"""target_mask(token_ids, pad_id): causal and padding mask in one, (B, 1, T, T), and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("target_mask", "target", IMPORTS)

_PLAIN = """
def target_mask(token_ids, pad_id):
    B, T = token_ids.shape
    real = {real}
    causal = {causal}
    return {result}
"""
_LINES = {
    "real": "(token_ids != pad_id)[:, None, None, :]",
    "causal": "torch.ones(T, T, dtype=torch.bool, device=token_ids.device).tril()",
    "result": "real & causal",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _PLAIN.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Both masks, and AND between.", _plain())
BANK.right(
    "helpers",
    "The two masks as functions of their own.",
    """
def padding_mask(token_ids, pad_id):
    return (token_ids != pad_id)[:, None, None, :]


def causal_mask(size):
    return torch.tril(torch.ones(size, size, dtype=torch.bool))


def target_mask(token_ids, pad_id):
    return torch.logical_and(padding_mask(token_ids, pad_id), causal_mask(token_ids.size(1)).to(token_ids.device))
""",
)
BANK.right(
    "expanded-and-cut",
    "The padding mask expanded to all queries, and its lower triangle.",
    _plain(causal="real.expand(B, 1, T, T)", result="causal.tril()"),
)
BANK.right(
    "filled",
    "The future closed by masked_fill.",
    _plain(
        real="(token_ids != pad_id).view(B, 1, 1, T).repeat(1, 1, T, 1)",
        result="real.masked_fill(~causal, False)",
    ),
)
BANK.right("multiplied", "A product of booleans.", _plain(result="real * causal[None, None]"))
BANK.right(
    "entry-by-entry",
    "A loop over sentences, queries and keys.",
    _plain(
        real="token_ids.tolist()",
        causal="[[[j <= i and ids[j] != pad_id for j in range(T)] for i in range(T)] for ids in real]",
        result="torch.tensor(causal).unsqueeze(1)",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("or", "OR in place of AND.", _plain(result="real | causal"), "joined-by-or")
BANK.wrong(
    "added",
    "The sum of the masks, which is OR again.",
    _plain(result="(real.int() + causal.int()).bool()"),
    "joined-by-or",
)
BANK.wrong("causal-only", "The padding is forgotten.", _plain(result="causal.expand(B, 1, T, T)"), "padding-open")
BANK.wrong("padding-only", "The future is open.", _plain(result="real.expand(B, 1, T, T)"), "future-open")
BANK.wrong(
    "queries-blocked-too",
    "The rows of padding queries are closed.",
    _plain(result="real & causal & real.transpose(-1, -2)"),
    "padding-queries-closed",
)
BANK.wrong(
    "queries-blocked",
    "Queries are closed in place of keys.",
    _plain(result="real.transpose(-1, -2) & causal"),
    "queries-for-keys",
)
BANK.wrong(
    "padding-rows-opened",
    "The rows of padding queries are opened to all that came before.",
    _plain(result="(real & causal) | (~real.transpose(-1, -2) & causal)"),
)
BANK.wrong(
    "padding-sees-itself",
    "The diagonal is opened, so that no row is empty.",
    _plain(result="(real & causal) | torch.eye(T, dtype=torch.bool)"),
    "diagonal-opened",
)
BANK.wrong(
    "empty-rows-opened",
    "Rows in which nothing may be attended to are opened.",
    _plain(causal="real & torch.ones(T, T, dtype=torch.bool).tril()", result="causal | ~causal.any(-1, keepdim=True)"),
    "empty-rows-opened",
)
BANK.wrong(
    "strict",
    "A token does not see itself.",
    _plain(causal="torch.ones(T, T, dtype=torch.bool).tril(-1)"),
    "diagonal-closed",
)
BANK.wrong(
    "upper",
    "The future instead of the past.",
    _plain(causal="torch.ones(T, T, dtype=torch.bool).triu()"),
    "upper-triangle",
)
BANK.wrong("inverted", "True where it is closed.", _plain(result="~(real & causal)"), "mask-inverted")
BANK.wrong(
    "padding-inverted", "True at padding.", _plain(real="(token_ids == pad_id)[:, None, None, :]"), "padding-inverted"
)
BANK.wrong(
    "three-axes",
    "(B, T, T): the axis of heads is missing.",
    _plain(result="(real & causal).squeeze(1)"),
    "heads-missing",
)
BANK.wrong(
    "numbers", "Ones and zeros in place of booleans.", _plain(result="(real & causal).float()"), "numbers-for-booleans"
)
BANK.wrong(
    "zero-is-padding",
    "0 is padding, whatever pad_id is.",
    _plain(real="(token_ids != 0)[:, None, None, :]"),
    "padding-id-fixed",
)
BANK.wrong(
    "one-mask-for-all",
    "The axes of batch and queries are mixed up: right for a batch of one only.",
    _plain(real="(token_ids != pad_id).all(0)[None, None, None, :]", result="(real & causal).expand(B, 1, T, T)"),
)
BANK.wrong(
    "closed-behind-the-first-padding",
    "Everything behind the first padding is closed.",
    _plain(real="((token_ids == pad_id).cumsum(1) == 0)[:, None, None, :]"),
)
