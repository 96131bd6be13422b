"""SequenceClassifier(embed, encoder, d_model, num_classes): from inputs to logits, and what people make of it."""

from .entry import IMPORTS, Collector

POOL = """
def masked_mean_pool(hidden, mask):
    m = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * m).sum(dim=1) / m.sum(dim=1)


"""

BANK = Collector("SequenceClassifier", "classifier", IMPORTS + POOL)

_CLASS = """
class SequenceClassifier(nn.Module):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.embed, self.encoder = embed, encoder
        self.head = {head}
        {init}

    def forward(self, inputs, mask):
        {before}
        x = {embedded}
        x = {encoded}
        x = {pooled}
        return {result}
"""
_LINES = {
    "head": "nn.Linear(d_model, num_classes)",
    "init": "self.d_model = d_model",
    "before": "pass",
    "embedded": "self.embed(inputs)",
    "encoded": "self.encoder(x, mask[:, None, None, :])",
    "pooled": "masked_mean_pool(x, mask)",
    "result": "self.head(x)",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Four steps.", _plain())
BANK.right(
    "unsqueezed",
    "The mask by two times unsqueeze, everything in one expression.",
    """
class SequenceClassifier(nn.Module):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.encoder = encoder
        self.embed = embed
        self.head = nn.Linear(in_features=d_model, out_features=num_classes, bias=True)

    def forward(self, inputs, mask):
        keys = mask.unsqueeze(1).unsqueeze(1)
        return self.head(masked_mean_pool(self.encoder(self.embed(inputs), keys), mask))
""",
)
BANK.right(
    "head-before-the-mean",
    "Logits for every token, and their mean: the head is linear, so the order does not matter.",
    _plain(pooled="self.head(x)", result="masked_mean_pool(x, mask)"),
)
BANK.right(
    "pooled-by-hand",
    "The mean without masked_mean_pool.",
    _plain(pooled="torch.where(mask[..., None], x, 0).sum(1) / mask.sum(1, keepdim=True)"),
)
BANK.right(
    "row-by-row-pooling",
    "A loop over the rows for the mean.",
    _plain(pooled="torch.stack([tokens[real].mean(0) for tokens, real in zip(x, mask)])"),
)
BANK.right(
    "sizes-read-off",
    "The mask brought into shape by its sizes, and the axis for heads last.",
    _plain(before="B, L = mask.shape", encoded="self.encoder(x, mask.view(B, 1, 1, L))"),
)
BANK.right(
    "padding-zeroed-behind",
    "The vectors at padding are set to zero behind the encoder, which changes nothing.",
    _plain(pooled="masked_mean_pool(x.masked_fill(~mask.unsqueeze(-1), 0.0), mask)"),
)

BANK.right(
    "ids-zeroed",
    "The inputs are multiplied by the mask first, which changes nothing that is read.",
    _plain(embedded="self.embed(inputs * mask)"),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "pooling-masked-only", "The encoder gets no mask.", _plain(encoded="self.encoder(x)"), "encoder-without-mask"
)
BANK.wrong("encoder-masked-only", "Padding enters the mean.", _plain(pooled="x.mean(dim=1)"), "padding-averaged")
BANK.wrong(
    "nothing-masked",
    "The mask is an argument that nobody reads.",
    _plain(encoded="self.encoder(x)", pooled="x.mean(1)"),
    "mask-not-used",
)
BANK.wrong(
    "two-axes", "The encoder gets the mask as (B, L).", _plain(encoded="self.encoder(x, mask)"), "mask-axes-missing"
)
BANK.wrong(
    "three-axes",
    "The encoder gets the mask as (B, 1, L).",
    _plain(encoded="self.encoder(x, mask.unsqueeze(1))"),
    "mask-axes-missing",
)
BANK.wrong(
    "axes-behind",
    "The encoder gets the mask as (B, L, 1, 1).",
    _plain(encoded="self.encoder(x, mask[..., None, None])"),
)
BANK.wrong(
    "queries-blocked",
    "The encoder gets the mask as (B, 1, L, 1).",
    _plain(encoded="self.encoder(x, mask[:, None, :, None])"),
    "closes-queries",
)
BANK.wrong(
    "rows-and-columns",
    "The encoder gets a mask of pairs, (B, 1, L, L).",
    _plain(encoded="self.encoder(x, (mask.unsqueeze(1) & mask.unsqueeze(2)).unsqueeze(1))"),
    "queries-and-keys",
)
BANK.wrong(
    "hidden-is-true",
    "The encoder's mask is True at padding.",
    _plain(encoded="self.encoder(x, (~mask)[:, None, None])"),
    "encoder-mask-inverted",
)
BANK.wrong(
    "mask-of-floats",
    "The encoder's mask holds 0 and 1.",
    _plain(encoded="self.encoder(x, mask[:, None, None].to(torch.float32))"),
    "encoder-mask-in-numbers",
)
BANK.wrong(
    "causal",
    "A causal mask is joined to the padding mask.",
    _plain(
        before="causal = torch.ones(mask.size(1), mask.size(1), dtype=torch.bool).tril()",
        encoded="self.encoder(x, mask[:, None, None] & causal)",
    ),
)
BANK.wrong(
    "sum-pooling",
    "The real tokens are added up.",
    _plain(pooled="(x * mask[..., None]).sum(1)"),
    "sum-for-mean",
)
BANK.wrong(
    "divided-by-length",
    "The sum over the real tokens divided by L.",
    _plain(pooled="(x * mask[..., None]).sum(1) / x.size(1)"),
    "padding-counted",
)
BANK.wrong(
    "mean-of-padding",
    "The mean gets the mask turned round.",
    _plain(pooled="masked_mean_pool(x, ~mask).nan_to_num(0.0)"),
    "pooling-mask-inverted",
)
BANK.wrong("class-token", "The first token decides.", _plain(pooled="x[:, 0]"), "first-position")
BANK.wrong("final-position", "The last position decides.", _plain(pooled="x[:, -1, :]"), "last-position")
BANK.wrong(
    "max-pooling",
    "The maximum of each feature.",
    _plain(pooled="x.masked_fill(~mask[..., None], float('-inf')).max(1)[0]"),
    "maximum",
)
BANK.wrong("token-logits", "Logits for every token.", _plain(pooled="x"), "no-pooling")
BANK.wrong(
    "probabilities", "A softmax at the end.", _plain(result="torch.softmax(self.head(x), dim=-1)"), "softmax-inside"
)
BANK.wrong(
    "probabilities-of-the-batch",
    "A softmax over axis 0.",
    _plain(result="F.softmax(self.head(x), dim=0)"),
    "softmax-over-the-batch",
)
BANK.wrong(
    "log-probabilities",
    "A log-softmax at the end.",
    _plain(result="F.log_softmax(self.head(x), -1)"),
    "log-softmax-inside",
)
BANK.wrong("sigmoids", "A sigmoid for each class.", _plain(result="torch.sigmoid(self.head(x))"), "sigmoid-inside")
BANK.wrong("the-class", "The most likely class.", _plain(result="self.head(x).argmax(dim=1)"), "classes-for-logits")
BANK.wrong(
    "relu-before-the-head", "A ReLU on the mean.", _plain(result="self.head(F.relu(x))"), "activation-before-the-head"
)
BANK.wrong("pooler", "A tanh on the mean.", _plain(result="self.head(torch.tanh(x))"), "activation-before-the-head")
BANK.wrong(
    "mlp-head",
    "A hidden layer in the head.",
    _plain(head="nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, num_classes))"),
)
BANK.wrong(
    "dropout-added",
    "A dropout of a tenth before the head.",
    _plain(init="self.dropout = nn.Dropout(0.1)", result="self.head(self.dropout(x))"),
)
BANK.wrong(
    "norm-added",
    "A norm without parameters before the head.",
    _plain(result="self.head(F.layer_norm(x, x.shape[-1:]))"),
)
BANK.wrong(
    "scaled",
    "The vectors are scaled by √D once more.",
    _plain(embedded="self.embed(inputs) * self.d_model**0.5"),
    "scaled-again",
)
BANK.wrong("no-encoder", "The encoder is kept and never called.", _plain(encoded="x"), "encoder-not-called")
BANK.wrong(
    "encoder-twice",
    "The encoder runs twice.",
    _plain(pooled="masked_mean_pool(self.encoder(x, mask[:, None, None]), mask)"),
)
BANK.wrong(
    "residual-around-the-encoder",
    "The embedding is added to the encoder's output.",
    _plain(encoded="x + self.encoder(x, mask[:, None, None])"),
)
BANK.wrong(
    "mask-from-ids", "Where an input is 0, padding is assumed.", _plain(before="mask = inputs != 0"), "padding-guessed"
)
BANK.wrong(
    "changed-in-place",
    "The inputs are set to zero at padding in the caller's tensor.",
    _plain(before="inputs.data[~mask] = 0"),
)
BANK.wrong("mask-for-embed", "embed gets the mask too.", _plain(embedded="self.embed(inputs, mask)"))
BANK.wrong("squeezes", "A batch of one loses its axis.", _plain(result="self.head(x).squeeze()"), "squeezed")
BANK.wrong(
    "no-bias", "The head has no bias.", _plain(head="nn.Linear(d_model, num_classes, bias=False)"), "head-without-bias"
)
BANK.wrong(
    "other-name",
    "The head is called fc.",
    """
class SequenceClassifier(nn.Module):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.embed, self.encoder = embed, encoder
        self.fc = nn.Linear(d_model, num_classes)

    def forward(self, inputs, mask):
        x = self.encoder(self.embed(inputs), mask[:, None, None])
        return self.fc(masked_mean_pool(x, mask))
""",
)
BANK.wrong(
    "other-name-of-embed",
    "The embedding is called embedding.",
    """
class SequenceClassifier(nn.Module):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.embedding, self.encoder = embed, encoder
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, inputs, mask):
        x = self.encoder(self.embedding(inputs), mask[:, None, None])
        return self.head(masked_mean_pool(x, mask))
""",
    "parts-under-other-names",
)
BANK.wrong(
    "frozen-body",
    "The mean is detached, so that only the head learns.",
    _plain(result="self.head(x.detach())"),
    "encoder-cut-off",
)
BANK.wrong(
    "frozen-embedding",
    "The token vectors are detached.",
    _plain(embedded="self.embed(inputs).detach()"),
    "embedding-cut-off",
)
BANK.wrong(
    "no-gradient-at-all",
    "Everything before the head runs without gradients.",
    """
class SequenceClassifier(nn.Module):
    def __init__(self, embed, encoder, d_model, num_classes):
        super().__init__()
        self.embed, self.encoder, self.head = embed, encoder, nn.Linear(d_model, num_classes)

    @torch.no_grad()
    def body(self, inputs, mask):
        return masked_mean_pool(self.encoder(self.embed(inputs), mask[:, None, None]), mask)

    def forward(self, inputs, mask):
        return self.head(self.body(inputs, mask))
""",
    "encoder-cut-off",
)
BANK.wrong(
    "longest-row-cut",
    "Rows are cut to the first row's length.",
    _plain(
        before="n = int(mask[0].sum())\n        inputs, mask = inputs[:, :n], mask[:, :n]",
        pooled="masked_mean_pool(x, mask).nan_to_num()",
    ),
)
