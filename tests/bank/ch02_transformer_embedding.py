"""TransformerEmbedding: token vectors plus positional encoding, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector(
    "TransformerEmbedding",
    "embed",
    IMPORTS
    + """\
from transformer_lab import pieces

TokenEmbedding = pieces.earlier("builtin").TokenEmbedding


def positional_encoding(seq_len, d_model):
    angles = torch.arange(seq_len).double()[:, None] / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1).float()


""",
)

_PLAIN = """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        {token}
        {table}
        {drop}

    def forward(self, token_ids):
        {forward}
"""


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    plain = {
        "token": "self.token = TokenEmbedding(vocab_size, d_model, pad_id)",
        "table": 'self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)',
        "drop": "self.dropout = nn.Dropout(dropout)",
        "forward": "return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])",
    }
    return _PLAIN.format(**(plain | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right(
    "functional-dropout",
    "Functional dropout with the training flag, rows of the table taken by index.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.p = dropout
        self.register_buffer("rows", positional_encoding(max_len, d_model), persistent=False)

    def forward(self, token_ids):
        positions = torch.arange(token_ids.shape[-1], device=token_ids.device)
        summed = self.token(token_ids) + F.embedding(positions, self.rows)
        return F.dropout(summed, p=self.p, training=self.training)
""",
)
BANK.right(
    "own-sub-module",
    "The encoding is a module of its own, with a table of shape (1, max_len, D).",
    """
class Positions(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.register_buffer("pe", positional_encoding(max_len, d_model).unsqueeze(0), persistent=False)

    def forward(self, x):
        return x + self.pe[:, : x.size(1), :]


class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.rest = nn.Sequential(Positions(d_model, max_len), nn.Dropout(p=dropout))

    def forward(self, token_ids):
        return self.rest(self.token(token_ids))
""",
)
BANK.right(
    "expanded",
    "The rows are narrowed, expanded over the batch and added by torch.add.",
    _plain(
        forward="rows = self.table.narrow(0, 0, token_ids.size(1)).expand(token_ids.size(0), -1, -1)\n"
        "        return self.dropout(torch.add(rows, self.token(token_ids)))"
    ),
)
BANK.right(
    "own-dropout",
    "Dropout by hand: a random mask, in training mode only.",
    _plain(
        drop="self.keep = 1.0 - dropout",
        forward="x = self.token(token_ids)\n"
        "        x = x + self.table[: x.size(-2)].to(x.dtype)\n"
        "        if self.training and self.keep < 1.0:\n"
        "            x = x * torch.empty_like(x).bernoulli_(self.keep) / self.keep\n"
        "        return x",
    ),
)
BANK.right(
    "own-token-embedding",
    "A TokenEmbedding of its own, written out by one-hot rows.",
    """
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)

    def forward(self, token_ids):
        rows = F.embedding(token_ids, self.embedding.weight, padding_idx=self.embedding.padding_idx)
        return rows * self.embedding.weight.size(1) ** 0.5

"""
    + _plain(table="self.table = nn.Buffer(positional_encoding(max_len, d_model), persistent=False)"),
)
BANK.right(
    "table-by-hand",
    "The table built inside, padded lengths cut by a slice object, and an identity where nothing is dropped.",
    _plain(
        table="pair = torch.arange(d_model).div(2, rounding_mode='floor') * 2\n"
        "        angle = torch.arange(max_len)[:, None] * 10000.0 ** (-pair.double() / d_model)\n"
        "        odd = torch.arange(d_model) % 2\n"
        "        self.register_buffer('table', torch.sin(angle + odd * math.pi / 2).float(), persistent=False)",
        drop="self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()",
        forward="x = self.token(token_ids)\n        return self.dropout(x + self.table[slice(None, x.shape[1])])",
    ),
)

BANK.right(
    "optional-arguments",
    "A further optional argument of forward.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids, offset=0):
        return self.dropout(self.token(token_ids) + self.table[offset : offset + token_ids.size(1)])
""",
)

BANK.right(
    "scaled-under-dropout",
    "Dropout of a tensor of ones, multiplied in.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        x = self.token(token_ids) + self.table[: token_ids.size(1)]
        return x * self.dropout(torch.ones_like(x))
""",
)

BANK.right(
    "kwargs-signature",
    "Starred arguments.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, *rest, **options):
        super().__init__()
        options.update(zip(("dropout", "pad_id"), rest))
        self.token = TokenEmbedding(vocab_size, d_model, options.get("pad_id"))
        self.dropout = nn.Dropout(options.get("dropout", 0.0))
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)

    def forward(self, *args):
        (ids,) = args
        return self.dropout(
            self.token(ids).add(self.table[None, : ids.shape[1]].expand(ids.shape[0], -1, -1))
        )
""",
)

BANK.right(
    "transposed-buffer",
    "The table kept as (D, max_len).",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("t", positional_encoding(max_len, d_model).T.contiguous(), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.t[:, : token_ids.size(1)].T)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "scaled-twice",
    "Multiplies by the root of D once more.",
    _plain(
        forward="x = self.token(token_ids) * math.sqrt(self.table.size(1))\n"
        "        return self.dropout(x + self.table[: token_ids.size(1)])"
    ),
    "scaled-twice",
)
BANK.wrong(
    "unscaled",
    "Goes round the token embedding's scale.",
    _plain(forward="return self.dropout(self.token.embedding(token_ids) + self.table[: token_ids.size(1)])"),
    "tokens-not-scaled",
)
BANK.wrong(
    "scaled-after-sum",
    "The encoding is added first and scaled along.",
    _plain(
        forward="x = self.token.embedding(token_ids) + self.table[: token_ids.size(1)]\n"
        "        return self.dropout(x * math.sqrt(x.size(-1)))"
    ),
    "positions-scaled-too",
)
BANK.wrong(
    "table-scaled",
    "The encoding, too, is multiplied by the root of D.",
    _plain(
        forward="x = self.token(token_ids)\n"
        "        return self.dropout(x + self.table[: x.size(1)] * math.sqrt(x.size(-1)))"
    ),
    "positions-scaled-too",
)
BANK.wrong(
    "batch-as-position",
    "Cuts the table by the batch: sequence-first code given batch-first ids.",
    _plain(forward="return self.dropout(self.token(token_ids) + self.table[: token_ids.size(0)].unsqueeze(1))"),
    "positions-along-the-batch",
)
BANK.wrong(
    "no-positions",
    "The encoding is made and never added.",
    _plain(forward="return self.dropout(self.token(token_ids))"),
    "no-positions",
)
BANK.wrong(
    "concatenated",
    "The encoding is put beside the tokens: width 2D.",
    _plain(
        forward="x = self.token(token_ids)\n"
        "        return self.dropout(torch.cat([x, self.table[: x.size(1)].expand_as(x)], -1))"
    ),
)
BANK.wrong(
    "dropout-on-tokens",
    "Dropout on the tokens alone.",
    _plain(forward="return self.dropout(self.token(token_ids)) + self.table[: token_ids.size(1)]"),
    "dropout-before-the-sum",
)
BANK.wrong(
    "no-dropout",
    "The argument is ignored.",
    _plain(forward="return self.token(token_ids) + self.table[: token_ids.size(1)]"),
    "no-dropout",
)
BANK.wrong(
    "dropout-always",
    "Functional dropout, which stays on in evaluation mode.",
    _plain(
        drop="self.p = dropout",
        forward="return F.dropout(self.token(token_ids) + self.table[: token_ids.size(1)], self.p)",
    ),
    "dropout-in-evaluation",
)
BANK.wrong(
    "keep-probability",
    "Takes the probability of dropping for that of keeping.",
    _plain(drop="self.dropout = nn.Dropout(1 - dropout)"),
    "keep-probability",
)
BANK.wrong(
    "fixed-dropout",
    "Always a tenth, as in the paper.",
    _plain(drop="self.dropout = nn.Dropout(0.1)"),
    "fixed-dropout",
)
BANK.wrong(
    "saved-table",
    "The buffer is saved.",
    _plain(table='self.register_buffer("table", positional_encoding(max_len, d_model))'),
    "table-saved",
)
BANK.wrong(
    "trained-table",
    "The table is a parameter.",
    _plain(table="self.table = nn.Parameter(positional_encoding(max_len, d_model))"),
    "table-learnt",
)
BANK.wrong(
    "frozen-embedding",
    "The table is a frozen embedding, which is a parameter and is saved.",
    _plain(
        table="self.position = nn.Embedding.from_pretrained(positional_encoding(max_len, d_model), freeze=True)",
        forward="p = torch.arange(token_ids.size(1), device=token_ids.device)\n"
        "        return self.dropout(self.token(token_ids) + self.position(p))",
    ),
)
BANK.wrong(
    "learnt-positions",
    "Positions are learnt from random numbers instead of computed.",
    _plain(
        table="self.position = nn.Embedding(max_len, d_model)",
        forward="p = torch.arange(token_ids.size(1), device=token_ids.device)\n"
        "        return self.dropout(self.token(token_ids) + self.position(p))",
    ),
)
BANK.wrong(
    "whole-table",
    "Adds all max_len rows: works for sequences of full length only.",
    _plain(forward="return self.dropout(self.token(token_ids) + self.table)"),
    "whole-table",
)
BANK.wrong(
    "padded-to-max-len",
    "The output is always max_len long, filled up with positions of nothing.",
    _plain(
        forward="x = F.pad(self.token(token_ids), (0, 0, 0, self.table.size(0) - token_ids.size(1)))\n"
        "        return self.dropout(x + self.table)"
    ),
)
BANK.wrong(
    "last-rows",
    "Takes the last rows of the table.",
    _plain(forward="return self.dropout(self.token(token_ids) + self.table[-token_ids.size(1) :])"),
)
BANK.wrong(
    "positions-from-one",
    "Row 1 goes to the first token.",
    _plain(
        table='self.register_buffer("table", positional_encoding(max_len + 1, d_model)[1:], persistent=False)',
    ),
    "embedding-positions-from-one",
)
BANK.wrong(
    "positions-of-real-tokens",
    "Padding is not counted, so that positions move where padding stands in front.",
    _plain(
        token="self.token = TokenEmbedding(vocab_size, d_model, pad_id)\n        self.pad_id = pad_id",
        forward="positions = torch.arange(token_ids.size(1)).expand_as(token_ids)\n"
        "        if self.pad_id is not None:\n"
        "            positions = ((token_ids != self.pad_id).cumsum(1) - 1).clamp(min=0)\n"
        "        return self.dropout(self.token(token_ids) + self.table[positions])",
    ),
)
BANK.wrong(
    "padding-zeroed",
    "Padding gets no encoding.",
    _plain(
        token="self.token = TokenEmbedding(vocab_size, d_model, pad_id)\n        self.pad_id = pad_id",
        forward="x = self.token(token_ids) + self.table[: token_ids.size(1)]\n"
        "        if self.pad_id is not None:\n"
        "            x = x * (token_ids != self.pad_id).unsqueeze(-1)\n"
        "        return self.dropout(x)",
    ),
    "padding-without-position",
)
BANK.wrong(
    "padding-not-handed-on",
    "The padding id never reaches the token embedding: its row is trained.",
    _plain(token="self.token = TokenEmbedding(vocab_size, d_model)"),
    "padding-forgotten",
)
BANK.wrong(
    "padding-id-zero",
    "Padding is taken to be 0, given or not.",
    _plain(token="self.token = TokenEmbedding(vocab_size, d_model, 0)"),
)
BANK.wrong(
    "plain-embedding",
    "An nn.Embedding in place of the TokenEmbedding: no scale, other names.",
    _plain(token="self.token = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)"),
)
BANK.wrong(
    "other-name",
    "The attribute is called embedding.",
    _plain(
        token="self.embedding = TokenEmbedding(vocab_size, d_model, pad_id)",
        forward="return self.dropout(self.embedding(token_ids) + self.table[: token_ids.size(1)])",
    ),
)
BANK.wrong(
    "detached",
    "The token vectors are detached before the sum: nothing is learnt.",
    _plain(forward="return self.dropout(self.token(token_ids).detach() + self.table[: token_ids.size(1)])"),
    "gradient-cut",
)
BANK.wrong(
    "doubled-exponent",
    "The table it makes inside has the doubled exponent.",
    _plain(
        table="even = torch.arange(0, d_model, 2).double()\n"
        "        angle = torch.arange(max_len)[:, None] / 10000 ** (2 * even / d_model)\n"
        "        table = torch.stack((angle.sin(), angle.cos()), 2).flatten(1).float()\n"
        "        self.register_buffer('table', table, persistent=False)"
    ),
    "embedding-doubled-exponent",
)
BANK.wrong(
    "ids-clamped-in-place",
    "Changes the caller's ids.",
    _plain(
        forward="token_ids[:, -1] = 0\n"
        "        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])"
    ),
)
BANK.wrong(
    "table-changed",
    "Adds the tokens of the first sequence into the table itself, which every later call then carries.",
    _plain(
        forward="x = self.token(token_ids)\n"
        "        rows = self.table[: x.size(1)]\n"
        "        rows += x[0].detach()\n"
        "        return self.dropout(x + rows - x[0].detach())"
    ),
)

BANK.wrong(
    "pad-zero-falsy",
    "pad_id=0 is taken for none.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id or None)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
    "padding-zero-taken-for-none",
)

BANK.wrong(
    "plain-attribute",
    "The table is a plain attribute, which stays behind on another device.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.table = positional_encoding(max_len, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
    "table-not-a-buffer",
)

BANK.wrong(
    "made-in-forward",
    "The table is made anew in every forward pass.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)

        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(
            self.token(token_ids) + positional_encoding(token_ids.size(1), self.token.embedding.embedding_dim)
        )
""",
    "table-not-a-buffer",
)

BANK.wrong(
    "double-table",
    "The table is float64, and so is the sum.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model).double(), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
)

BANK.wrong(
    "dropout1d",
    "Drops whole tokens.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout1d(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
)

BANK.wrong(
    "same-mask-for-batch",
    "Drops the same entries in all sentences of a batch.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        x = self.token(token_ids) + self.table[: token_ids.size(1)]
        return x * self.dropout(torch.ones_like(x[:1]))
""",
)

BANK.wrong(
    "seeded-in-forward",
    "Seeds the generator in forward, so that the same entries are dropped in every step.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        torch.manual_seed(0)
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
)

BANK.wrong(
    "frozen-token",
    "The token table is frozen.",
    """
class TransformerEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, max_len, dropout=0.0, pad_id=None):
        super().__init__()
        self.token = TokenEmbedding(vocab_size, d_model, pad_id)
        self.token.embedding.weight.requires_grad_(False)
        self.register_buffer("table", positional_encoding(max_len, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, token_ids):
        return self.dropout(self.token(token_ids) + self.table[: token_ids.size(1)])
""",
    "gradient-cut",
)
