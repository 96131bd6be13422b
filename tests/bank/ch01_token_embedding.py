"""TokenEmbedding(vocab_size, d_model, pad_id=None): a table of vectors times √D, and what people make of it."""

from .entry import Collector

BANK = Collector("TokenEmbedding", "token")

_PLAIN = """
class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__()
        {init}

    def forward(self, token_ids):
        {forward}
"""
_TABLE = "self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)"


def _plain(init: str = _TABLE, forward: str = "return self.embedding(token_ids) * self.embedding.embedding_dim**0.5"):
    """The plain form with its constructor or its forward pass replaced; ``init`` keeps the table if it starts with +."""
    if init.startswith("+"):
        init = _TABLE + "\n        " + init[1:]
    return _PLAIN.format(init=init, forward=forward)


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "The module times the root of its width.", _plain())
BANK.right(
    "scale-attribute",
    "The scale is worked out in the constructor.",
    _plain("+self.scale = math.sqrt(d_model)", "return self.scale * self.embedding(token_ids)"),
)
BANK.right(
    "scale-buffer",
    "The scale is a buffer that is not saved, and the lookup functional.",
    _plain(
        '+self.register_buffer("scale", torch.tensor(float(d_model)).sqrt(), persistent=False)',
        "table = self.embedding\n"
        "        return F.embedding(token_ids, table.weight, padding_idx=table.padding_idx).mul(self.scale)",
    ),
)
BANK.right(
    "scaled-table-first",
    "The whole table is scaled, out of place, and then looked up.",
    _plain(
        forward="table = self.embedding.weight * self.embedding.weight.size(1) ** 0.5\n"
        "        return F.embedding(token_ids, table, self.embedding.padding_idx)"
    ),
)
BANK.right(
    "one-hot-product",
    "One-hot vectors times the table, whose padding row is taken without its gradient.",
    _plain(
        "+self.pad_id = pad_id",
        "weight = self.embedding.weight\n"
        "        classes = torch.arange(weight.size(0))\n"
        "        if self.pad_id is not None:\n"
        "            weight = torch.where((classes == self.pad_id)[:, None], weight.detach(), weight)\n"
        "        one_hot = (token_ids.unsqueeze(-1) == classes).to(weight.dtype)\n"
        "        return one_hot @ weight * math.sqrt(weight.size(1))",
    ),
)
BANK.right(
    "gradient-hook",
    "The padding row is emptied by hand, and a hook empties its gradient.",
    _plain(
        "self.embedding = nn.Embedding(vocab_size, d_model)\n"
        "        self.root = d_model**0.5\n"
        "        if pad_id is not None:\n"
        "            with torch.no_grad():\n"
        "                self.embedding.weight[pad_id].zero_()\n"
        "            self.embedding.weight.register_hook(lambda g: g.index_fill(0, torch.tensor([pad_id]), 0.0))",
        "return self.embedding.weight[token_ids] * self.root",
    ),
)
BANK.right(
    "smaller-start",
    "Entries of variance 1/D at the start, the padding row emptied again.",
    _plain(
        "+nn.init.normal_(self.embedding.weight, std=d_model**-0.5)\n"
        "        if self.embedding.padding_idx is not None:\n"
        "            nn.init.zeros_(self.embedding.weight.data[self.embedding.padding_idx])"
    ),
)
BANK.right(
    "own-subclass",
    "A subclass of nn.Embedding that scales, as the sub-module.",
    """
class ScaledEmbedding(nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * math.sqrt(self.embedding_dim)


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, pad_id=None):
        super().__init__()
        self.embedding = ScaledEmbedding(vocab_size, d_model, pad_id)

    def forward(self, token_ids):
        return self.embedding(token_ids)
""",
)
BANK.right(
    "flattened",
    "One long list of ids, the shape restored at the end.",
    _plain(
        "options = {} if pad_id is None else {'padding_idx': pad_id}\n"
        "        self.embedding = nn.Embedding(num_embeddings=vocab_size, embedding_dim=d_model, **options)",
        "rows = self.embedding(token_ids.reshape(-1))\n"
        "        return (rows * np.sqrt(rows.shape[1])).reshape(*token_ids.shape, rows.shape[1])",
    ),
)
BANK.right(
    "starred-arguments",
    "Starred arguments, both in the constructor and in forward.",
    """
class TokenEmbedding(nn.Module):
    def __init__(self, *sizes, **options):
        nn.Module.__init__(self)
        pad_id = sizes[2] if len(sizes) > 2 else options.pop("pad_id", None)
        names = ("vocab_size", "d_model")
        vocab_size, d_model = (*sizes[:2], *(options[name] for name in names[len(sizes) :]))
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)

    def forward(self, *args, **kwargs):
        (ids,) = (*args, *kwargs.values())
        x = self.embedding(ids)
        return x / x.size(-1) ** -0.5
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("no-scale", "The rows as they are.", _plain(forward="return self.embedding(token_ids)"), "no-scale")
BANK.wrong(
    "divided",
    "Divided by the root instead of multiplied.",
    _plain(forward="return self.embedding(token_ids) / math.sqrt(self.embedding.embedding_dim)"),
    "divided",
)
BANK.wrong(
    "scale-by-width",
    "Multiplied by D, not its root.",
    _plain(forward="return self.embedding(token_ids) * self.embedding.embedding_dim"),
    "scaled-by-the-width",
)
BANK.wrong(
    "scale-by-vocabulary",
    "The root of the size of the vocabulary.",
    _plain(forward="return self.embedding(token_ids) * math.sqrt(self.embedding.num_embeddings)"),
    "scaled-by-the-vocabulary",
)
BANK.wrong(
    "scale-by-length",
    "The root of the length of the sequence.",
    _plain(forward="return self.embedding(token_ids) * math.sqrt(token_ids.size(-1))"),
    "scaled-by-the-length",
)
BANK.wrong(
    "scale-of-the-paper",
    "The root of the paper's 512, whatever the width.",
    _plain(forward="return self.embedding(token_ids) * math.sqrt(512)"),
    "scale-of-one-model",
)
BANK.wrong(
    "whole-root",
    "The root is cut down to a whole number: right for widths like 4, 16 and 64.",
    _plain("+self.scale = int(math.sqrt(d_model))", "return self.embedding(token_ids) * self.scale"),
    "whole-root",
)
BANK.wrong(
    "baked-in",
    "The weights are scaled once, when they are made: weights that are loaded are not.",
    _plain("+self.embedding.weight.data.mul_(math.sqrt(d_model))", "return self.embedding(token_ids)"),
    "no-scale",
)
BANK.wrong(
    "weights-scaled-in-every-call",
    "The weights themselves are scaled, again in every call.",
    _plain(
        "+self.scale = math.sqrt(d_model)",
        "self.embedding.weight.data *= self.scale\n        return self.embedding(token_ids)",
    ),
    "weights-scaled-in-every-call",
)
BANK.wrong(
    "scaled-in-training-only",
    "Evaluation mode goes without the scale.",
    _plain(forward="x = self.embedding(token_ids)\n        return x * math.sqrt(x.size(-1)) if self.training else x"),
    "scaled-in-one-mode",
)
BANK.wrong(
    "scaled-in-evaluation-only",
    "Training mode goes without the scale.",
    _plain(forward="x = self.embedding(token_ids)\n        return x if self.training else x * math.sqrt(x.size(-1))"),
    "scaled-in-one-mode",
)
BANK.wrong(
    "scale-without-gradient",
    "What the scale adds is detached: the values are right, the gradient is not scaled.",
    _plain(forward="x = self.embedding(token_ids)\n        return x + (x * (math.sqrt(x.size(-1)) - 1)).detach()"),
    "scale-without-gradient",
)
BANK.wrong(
    "detached-copy",
    "A detached copy is scaled in place.",
    _plain(
        forward="x = self.embedding(token_ids).detach()\n"
        "        x *= math.sqrt(self.embedding.embedding_dim)\n"
        "        return x"
    ),
    "gradient-cut",
)
BANK.wrong(
    "frozen",
    "The table is made from given numbers, which from_pretrained freezes.",
    _plain(
        "numbers = torch.randn(vocab_size, d_model)\n"
        "        if pad_id is not None:\n"
        "            numbers[pad_id] = 0\n"
        "        self.embedding = nn.Embedding.from_pretrained(numbers, padding_idx=pad_id)"
    ),
    "table-frozen",
)
BANK.wrong(
    "stale-table",
    "Looks up in a scaled copy that was made in the constructor.",
    _plain(
        "+self.table = (self.embedding.weight * math.sqrt(d_model)).detach()",
        "return F.embedding(token_ids, self.table.to(self.embedding.weight)) + 0 * self.embedding(token_ids)",
    ),
)
BANK.wrong(
    "no-padding",
    "The padding id is accepted and forgotten.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model)"),
    "padding-forgotten",
)
BANK.wrong(
    "padding-trained",
    "The padding row is emptied once, and trained like the others.",
    _plain(
        "self.embedding = nn.Embedding(vocab_size, d_model)\n"
        "        if pad_id is not None:\n"
        "            with torch.no_grad():\n"
        "                self.embedding.weight[pad_id] = 0"
    ),
    "padding-row-trained",
)
BANK.wrong(
    "padding-zero-is-false",
    "A padding id of 0 is taken for none.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id or None)"),
    "zero-taken-for-no-padding",
)
BANK.wrong(
    "padding-never-absent",
    "No padding id is taken for 0.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id or 0)"),
    "no-padding-taken-for-zero",
)
BANK.wrong(
    "padding-is-zero",
    "Row 0 is the padding row, whatever is asked for.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=0)"),
    "padding-always-first",
)
BANK.wrong(
    "padding-by-default",
    "The default padding id is 0 instead of none.",
    _plain().replace("pad_id=None", "pad_id=0"),
    "no-padding-taken-for-zero",
)
BANK.wrong(
    "padding-is-last",
    "The padding row is the last one, whatever is asked for.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=None if pad_id is None else -1)"),
)
BANK.wrong(
    "padding-filled-again",
    "The weights are drawn once more, with them the padding row.",
    _plain("+nn.init.normal_(self.embedding.weight, std=d_model**-0.5)"),
    "padding-row-overwritten",
)
BANK.wrong(
    "padding-emptied-in-every-call",
    "The padding row is emptied before every lookup, and its gradient arrives all the same.",
    _plain(
        "self.embedding = nn.Embedding(vocab_size, d_model)\n        self.pad_id = pad_id",
        "if self.pad_id is not None:\n"
        "            self.embedding.weight.data[self.pad_id] = 0\n"
        "        return self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)",
    ),
    "padding-in-forward",
)
BANK.wrong(
    "padding-by-keyword",
    "The padding id can be given by its name only.",
    _plain().replace("d_model, pad_id=None", "d_model, *, pad_id=None"),
)
BANK.wrong(
    "other-name",
    "The table is called embed.",
    _plain(
        "self.embed = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)",
        "return self.embed(token_ids) * math.sqrt(self.embed.embedding_dim)",
    ),
)
BANK.wrong(
    "bare-parameter",
    "The table is a parameter of its own, which the padding row does not spare.",
    _plain(
        "self.embedding = nn.Parameter(torch.randn(vocab_size, d_model))",
        "return self.embedding[token_ids] * math.sqrt(self.embedding.size(1))",
    ),
)
BANK.wrong(
    "linear-layer",
    "A linear layer on one-hot vectors: its weight is (D, V).",
    _plain(
        "self.embedding = nn.Linear(vocab_size, d_model, bias=False)",
        "layer = self.embedding\n"
        "        one_hot = F.one_hot(token_ids, layer.in_features).to(layer.weight.dtype)\n"
        "        return layer(one_hot) * math.sqrt(layer.out_features)",
    ),
)
BANK.wrong(
    "sizes-swapped",
    "Width and vocabulary are exchanged.",
    _plain("self.embedding = nn.Embedding(d_model, vocab_size, padding_idx=pad_id)"),
    "sizes-exchanged",
)
BANK.wrong(
    "one-row-more",
    "A row is added for padding, which has one already.",
    _plain("self.embedding = nn.Embedding(vocab_size + 1, d_model, padding_idx=pad_id)"),
)
BANK.wrong(
    "learnt-scale",
    "The scale is a parameter and trained.",
    _plain(
        "+self.scale = nn.Parameter(torch.tensor(math.sqrt(d_model)))",
        "return self.embedding(token_ids) * self.scale",
    ),
    "scale-learnt",
)
BANK.wrong(
    "saved-scale",
    "The scale is a buffer that is saved with the weights.",
    _plain(
        '+self.register_buffer("scale", torch.tensor(math.sqrt(d_model)))',
        "return self.embedding(token_ids) * self.scale",
    ),
    "scale-saved",
)
BANK.wrong(
    "bias",
    "A bias is added to every vector.",
    _plain(
        "+self.bias = nn.Parameter(torch.zeros(d_model))",
        "return self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim) + self.bias",
    ),
)
BANK.wrong(
    "dropout-in-training",
    "A tenth of the entries is dropped while training.",
    _plain(
        "+self.dropout = nn.Dropout(0.1)",
        "return self.dropout(self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim))",
    ),
    "dropout-while-training",
)
BANK.wrong(
    "dropout-always",
    "Functional dropout, which stays on in evaluation mode.",
    _plain(forward="return F.dropout(self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim), 0.1)"),
    "dropout-in-evaluation",
)
BANK.wrong(
    "rows-normalised",
    "Layer normalisation in place of the scale.",
    _plain(forward="x = self.embedding(token_ids)\n        return F.layer_norm(x, x.shape[-1:])"),
)
BANK.wrong(
    "unit-rows",
    "Every row is brought to length 1 in place of the scale.",
    _plain(forward="return F.normalize(self.embedding(token_ids), dim=-1)"),
)
BANK.wrong(
    "rows-shortened",
    "max_norm shortens rows that are longer than 1.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id, max_norm=1.0)"),
    "rows-shortened",
)
BANK.wrong(
    "gradient-by-frequency",
    "The gradient of a row is divided by how often its id occurs.",
    _plain("self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=pad_id, scale_grad_by_freq=True)"),
    "gradient-averaged",
)
BANK.wrong(
    "positions-added",
    "The positional encoding of the next chapter is added already.",
    _plain(
        forward="x = self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)\n"
        "        column = torch.arange(x.size(-1))\n"
        "        angle = torch.arange(x.size(-2))[:, None] / 10000 ** (column // 2 * 2 / x.size(-1))\n"
        "        return x + torch.where(column % 2 == 0, angle.sin(), angle.cos())"
    ),
)
BANK.wrong(
    "sequence-first",
    "Returns (L, B, D), as layers without batch_first want it.",
    _plain(
        forward="x = self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)\n"
        "        return x.transpose(0, -2)"
    ),
)
BANK.wrong(
    "two-axes-only",
    "Unpacks batch and length from the shape.",
    _plain(
        forward="B, L = token_ids.shape\n"
        "        return (self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)).view(B, L, -1)"
    ),
    "batches-only",
)
BANK.wrong(
    "squeezed",
    "Every axis of size 1 is lost.",
    _plain(forward="return (self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)).squeeze()"),
    "axes-squeezed",
)
BANK.wrong(
    "batch-added",
    "A sequence without a batch comes back with one.",
    _plain(
        forward="ids = token_ids if token_ids.dim() > 1 else token_ids[None]\n"
        "        return self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)"
    ),
)
BANK.wrong(
    "stays-flat",
    "The ids are flattened and their shape is not restored.",
    _plain(forward="return self.embedding(token_ids.flatten()) * math.sqrt(self.embedding.embedding_dim)"),
)
BANK.wrong(
    "mean-of-the-sentence",
    "One vector for a sequence: the mean of its tokens.",
    _plain(
        forward="x = self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)\n"
        "        return x.mean(-2, keepdim=True).expand_as(x)"
    ),
)
BANK.wrong(
    "ids-overwritten",
    "Unknown ids are replaced in place, and with them the last one of the vocabulary.",
    _plain(
        forward="token_ids[token_ids >= self.embedding.num_embeddings - 1] = 0\n"
        "        return self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)"
    ),
)
BANK.wrong(
    "two-tables",
    "Training and evaluation have a table each.",
    _plain(
        "+self.second = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)",
        "table = self.embedding if self.training else self.second\n"
        "        return table(token_ids) * math.sqrt(table.embedding_dim)",
    ),
)
