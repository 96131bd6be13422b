"""Transformer(source_embed, target_embed, encoder, decoder, pad_id): the whole of it, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("Transformer", "transformer", IMPORTS)

_CLASS = """
def real(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


def past(size):
    return torch.ones(size, size, dtype=torch.bool).tril()


class Transformer(nn.Module):
    def __init__(self, source_embed, target_embed, encoder, decoder, pad_id):
        super().__init__()
        self.source_embed, self.target_embed = source_embed, target_embed
        self.encoder, self.decoder, self.pad_id = encoder, decoder, pad_id
        table = self.target_embed.token.embedding.weight
        {init}

    def encode(self, source_ids):
        return {encode}

    def decode(self, target_ids, memory, source_ids):
        memory_mask = {memory_mask}
        target_mask = {target_mask}
        hidden = self.decoder({embedded}, memory, target_mask, memory_mask)
        return {logits}

    def forward(self, source_ids, target_ids):
        return {forward}
"""
_LINES = {
    "init": "nn.init.normal_(table, std=table.size(1) ** -0.5)\n"
    "        with torch.no_grad():\n            table[pad_id] = 0",
    "encode": "self.encoder(self.source_embed(source_ids), real(source_ids, self.pad_id))",
    "memory_mask": "real(source_ids, self.pad_id)",
    "target_mask": "real(target_ids, self.pad_id) & past(target_ids.size(1))",
    "embedded": "self.target_embed(target_ids)",
    "logits": "hidden @ self.target_embed.token.embedding.weight.T",
    "forward": "self.decode(target_ids, self.encode(source_ids), source_ids)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Masks made where they are needed, logits by the transposed table.", _plain())
BANK.right("linear", "Logits by F.linear.", _plain(logits="F.linear(hidden, self.target_embed.token.embedding.weight)"))
BANK.right(
    "data",
    "The table is filled anew through its data.",
    _plain(init="table.data = torch.randn_like(table) / math.sqrt(table.shape[1])\n        table.data[pad_id].zero_()"),
)
BANK.right("einsum", "Logits by einsum, masks by logical_and.", _plain(
    logits='torch.einsum("btd,vd->btv", hidden, self.target_embed.token.embedding.weight)',
    target_mask="torch.logical_and(real(target_ids, self.pad_id), past(target_ids.shape[1])[None, None])",
))  # fmt: skip
BANK.right(
    "full-masks",
    "Masks as large as the scores.",
    _plain(
        encode="self.encoder(self.source_embed(source_ids), "
        "real(source_ids, self.pad_id).expand(-1, 1, source_ids.size(1), -1))",
        memory_mask="real(source_ids, self.pad_id).expand(-1, 1, target_ids.size(1), -1)",
    ),
)
BANK.right(
    "trunk",
    "The inside of forward written out.",
    _plain(
        forward="self.decode(target_ids=target_ids, source_ids=source_ids, "
        "memory=self.encoder(self.source_embed(source_ids), real(source_ids, self.pad_id)))"
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "not-tied",
    "An output layer of its own.",
    _plain(
        init=_LINES["init"] + "\n        self.output = nn.Linear(table.size(1), table.size(0), bias=False)",
        logits="self.output(hidden)",
    ),
    "not-tied",
)
BANK.wrong(
    "with-a-bias",
    "The tied output layer has a bias.",
    _plain(
        init=_LINES["init"] + "\n        self.output = nn.Linear(table.size(1), table.size(0))"
        "\n        self.output.weight = table",
        logits="self.output(hidden)",
    ),
    "output-bias",
)
BANK.wrong(
    "copied",
    "A copy of the table, which goes its own way from then on.",
    _plain(
        init=_LINES["init"] + "\n        self.output = nn.Parameter(table.detach().clone())",
        logits="hidden @ self.output.T",
    ),
    "not-tied",
)
BANK.wrong("detached", "The output does not train the table.", _plain(
    logits="hidden @ self.target_embed.token.embedding.weight.detach().T"
), "table-detached")  # fmt: skip
BANK.wrong("tied-to-the-source", "The source's table for the output.", _plain(
    logits="hidden @ self.source_embed.token.embedding.weight.T"
), "tied-to-the-source")  # fmt: skip
BANK.wrong("probabilities", "Softmax at the end.", _plain(logits=f"({_LINES['logits']}).softmax(-1)"), "softmax-inside")
BANK.wrong("log-probabilities", "Logarithms of probabilities.", _plain(
    logits=f"({_LINES['logits']}).log_softmax(-1)"
), "softmax-inside")  # fmt: skip
BANK.wrong(
    "scaled", "Logits divided by √D.", _plain(logits=f"({_LINES['logits']}) / hidden.size(-1) ** 0.5"), "logits-scaled"
)
BANK.wrong(
    "scaled-up",
    "Logits times √D, as the embedding.",
    _plain(logits=f"({_LINES['logits']}) * hidden.size(-1) ** 0.5"),
    "logits-scaled",
)
BANK.wrong("not-initialised", "The table stays as it was made.", _plain(init="pass"), "table-not-initialised")
BANK.wrong("deviation-of-one", "The table is drawn with deviation 1.", _plain(
    init=_LINES["init"].replace("table.size(1) ** -0.5", "1.0")
), "table-not-initialised")  # fmt: skip
BANK.wrong("variance-for-deviation", "1/D for 1/√D.", _plain(
    init=_LINES["init"].replace("** -0.5", "** -1.0")
), "table-too-small")  # fmt: skip
BANK.wrong("padding-row", "The padding row is drawn with the others.", _plain(
    init="nn.init.normal_(table, std=table.size(1) ** -0.5)"
), "padding-row-filled")  # fmt: skip
BANK.wrong("xavier", "The table by Xavier's rule.", _plain(
    init=_LINES["init"].replace("nn.init.normal_(table, std=table.size(1) ** -0.5)", "nn.init.xavier_uniform_(table)")
), "table-not-initialised")  # fmt: skip
BANK.wrong(
    "future-open", "The decoder sees the future.", _plain(target_mask="real(target_ids, self.pad_id)"), "future-open"
)
BANK.wrong("target-padding-open", "The target's padding is open.", _plain(
    target_mask="past(target_ids.size(1)).expand(len(target_ids), 1, -1, -1)"
), "target-padding-open")  # fmt: skip
BANK.wrong("masks-joined-by-or", "OR in place of AND.", _plain(
    target_mask="real(target_ids, self.pad_id) | past(target_ids.size(1))"
), "joined-by-or")  # fmt: skip
BANK.wrong(
    "memory-open", "The source's padding is open to the decoder.", _plain(memory_mask="None"), "memory-padding-open"
)
BANK.wrong("encoder-open", "The source's padding is open to the encoder.", _plain(
    encode="self.encoder(self.source_embed(source_ids))"
), "source-padding-open")  # fmt: skip
BANK.wrong("padding-is-zero", "0 is padding, whatever pad_id is.", _plain(
    encode="self.encoder(self.source_embed(source_ids), real(source_ids, 0))", memory_mask="real(source_ids, 0)",
    target_mask="real(target_ids, 0) & past(target_ids.size(1))",
), "padding-id-fixed")  # fmt: skip
BANK.wrong("masks-inverted", "True marks what is hidden.", _plain(
    encode="self.encoder(self.source_embed(source_ids), ~real(source_ids, self.pad_id))",
    memory_mask="~real(source_ids, self.pad_id)", target_mask="~(real(target_ids, self.pad_id) & past(target_ids.size(1)))",
), "masks-inverted")  # fmt: skip
BANK.wrong("memory-is-the-embedding", "The decoder reads the source's embedding.", _plain(
    forward="self.decode(target_ids, self.source_embed(source_ids), source_ids)"
), "encoder-left-out")  # fmt: skip
BANK.wrong("source-embedding-for-both", "The target is looked up in the source's table.", _plain(
    embedded="self.source_embed(target_ids)"
), "one-embedding-for-both")  # fmt: skip
BANK.wrong("last-word-only", "Logits of the last word only.", _plain(
    logits=_LINES["logits"].replace("hidden", "hidden[:, -1]")
), "last-word-only")  # fmt: skip
BANK.wrong("shifted-inside", "It cuts the target by itself.", _plain(
    forward="self.decode(target_ids[:, :-1], self.encode(source_ids), source_ids)"
), "shifted-inside")  # fmt: skip
