"""PositionwiseFeedForward(d_model, d_ff, dropout): two layers and a ReLU for each token, and what people make of it."""

from .entry import Collector

BANK = Collector("PositionwiseFeedForward", "ffn")

_CLASS = """
class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.linear1 = nn.Linear({widths1})
        self.linear2 = nn.Linear({widths2})
        self.dropout = nn.Dropout({rate})

    def forward(self, x):
        {hidden}
        return {result}
"""
_LINES = {
    "widths1": "d_model, d_ff",
    "widths2": "d_ff, d_model",
    "rate": "dropout",
    "hidden": "hidden = torch.relu(self.linear1(x))",
    "result": "self.linear2(self.dropout(hidden))",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Wide, cut, dropped, narrow.", _plain())
BANK.right("clamped", "clamp for ReLU.", _plain(hidden="hidden = self.linear1(x).clamp(min=0)"))
BANK.right(
    "dropped-before-the-relu",
    "Dropout before the ReLU: scaling by a positive number and cutting at 0 may change places.",
    _plain(hidden="hidden = self.dropout(self.linear1(x))", result="self.linear2(F.relu(hidden))"),
)
BANK.right(
    "mask-by-hand",
    "Dropout by hand: a draw for each entry, and what stays divided by its share.",
    """
class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.p = dropout
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        hidden = self.linear1(x)
        hidden = torch.where(hidden > 0, hidden, torch.zeros_like(hidden))
        if self.training and self.p > 0:
            hidden = hidden * (torch.rand_like(hidden) >= self.p) / (1 - self.p)
        return self.linear2(hidden)
""",
)
BANK.right(
    "token-by-token",
    "A loop over all tokens, and functions in place of modules.",
    """
class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.rate = dropout
        self.linear1 = nn.Linear(in_features=d_model, out_features=d_ff)
        self.linear2 = nn.Linear(in_features=d_ff, out_features=d_model)

    def one(self, token):
        hidden = F.relu(self.linear1.weight @ token + self.linear1.bias)
        hidden = F.dropout(hidden, self.rate, training=self.training)
        return self.linear2.weight @ hidden + self.linear2.bias

    def forward(self, x):
        tokens = x.flatten(0, -2) if x.dim() > 1 else x[None]
        return torch.stack([self.one(token) for token in tokens]).reshape(x.shape)
""",
)
BANK.right(
    "einsum",
    "Products by einsum, and half the sum of a number and its absolute value.",
    _plain(
        hidden='z = torch.einsum("...d,fd->...f", x, self.linear1.weight) + self.linear1.bias\n'
        "        hidden = (z + z.abs()) / 2",
        result='torch.einsum("...f,df->...d", self.dropout(hidden), self.linear2.weight) + self.linear2.bias',
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("no-relu", "Two layers with nothing between.", _plain(hidden="hidden = self.linear1(x)"), "no-activation")
BANK.wrong(
    "relu-at-the-end",
    "The ReLU comes after the second layer.",
    _plain(hidden="hidden = self.linear1(x)", result="F.relu(self.linear2(self.dropout(hidden)))"),
    "activation-after-the-second-layer",
)
BANK.wrong(
    "relu-twice",
    "A second ReLU after the second layer.",
    _plain(result="self.linear2(self.dropout(hidden)).clamp_min(0)"),
    "result-cut-too",
)
BANK.wrong("gelu", "GELU, as later models have it.", _plain(hidden="hidden = F.gelu(self.linear1(x))"), "gelu-for-relu")
BANK.wrong(
    "leaky",
    "A leaky ReLU by hand.",
    _plain(hidden="z = self.linear1(x)\n        hidden = torch.maximum(z, 0.01 * z)"),
    "leaky-relu",
)
BANK.wrong(
    "residual-and-norm",
    "Residual path and norm inside.",
    _plain(result="F.layer_norm(self.linear2(self.dropout(hidden)) + x, x.shape[-1:])"),
    "norm-inside",
)
BANK.wrong("residual", "x is added.", _plain(result="self.linear2(self.dropout(hidden)) + x"), "residual-inside")
BANK.wrong(
    "always-dropping",
    "F.dropout without training=self.training.",
    _plain(result="self.linear2(F.dropout(hidden, p=self.dropout.p))"),
    "dropout-in-evaluation",
)
BANK.wrong(
    "dropout-after-the-second-layer",
    "Dropout on the result.",
    _plain(result="self.dropout(self.linear2(hidden))"),
    "dropout-on-the-result",
)
BANK.wrong(
    "dropout-of-x",
    "Dropout on x.",
    _plain(hidden="hidden = F.relu(self.linear1(self.dropout(x)))", result="self.linear2(hidden)"),
    "dropout-on-the-input",
)
BANK.wrong(
    "rate-to-keep", "The rate is taken for the share that stays.", _plain(rate="1.0 - dropout"), "keep-probability"
)
BANK.wrong(
    "not-rescaled",
    "Dropout by hand, and what stays is not divided by its share.",
    _plain(result="self.linear2(hidden * (torch.rand_like(hidden) >= self.dropout.p) if self.training else hidden)"),
)
BANK.wrong(
    "classical-dropout",
    "As in the first papers: not scaled in training, scaled down in evaluation.",
    _plain(
        result="self.linear2(hidden * (torch.rand_like(hidden) >= self.dropout.p) if self.training "
        "else hidden * (1 - self.dropout.p))"
    ),
)
BANK.wrong(
    "one-draw-for-the-batch",
    "One draw for a token's hidden layer, used for all tokens.",
    _plain(result="self.linear2(hidden * self.dropout(torch.ones(hidden.size(-1), dtype=hidden.dtype)))"),
    "one-draw-for-all",
)
BANK.wrong(
    "relu-in-place",
    "An in-place ReLU that reaches the caller's tensor.",
    _plain(hidden="hidden = F.relu(self.linear1(F.relu(x, inplace=True)))"),
    "input-changed",
)
BANK.wrong(
    "weights-as-data",
    "The products are calculated with .data, so that nothing is learnt.",
    _plain(
        hidden="hidden = torch.relu(x @ self.linear1.weight.data.T + self.linear1.bias.data)",
        result="self.dropout(hidden) @ self.linear2.weight.data.T + self.linear2.bias.data",
    ),
    "gradient-cut",
)
BANK.wrong(
    "bias-of-the-second-layer-missing",
    "The second product is written out and its bias forgotten.",
    _plain(result="self.dropout(hidden) @ self.linear2.weight.T"),
    "biases-left-out",
)
BANK.wrong(
    "three-axes",
    "x is brought to three axes, and the result is left so.",
    _plain(hidden="hidden = torch.relu(self.linear1(x.reshape(x.size(0), -1, x.size(-1))))"),
)
BANK.wrong(
    "norm-of-the-positions",
    "The hidden layer is centred over the tokens: no position by itself any more.",
    _plain(hidden="z = self.linear1(x)\n        hidden = torch.relu(z - z.mean(0, keepdim=True))"),
)
BANK.wrong(
    "four-times-the-width",
    "d_ff is ignored: the hidden layer is four times as wide as the token.",
    _plain(widths1="d_model, 4 * d_model", widths2="4 * d_model, d_model"),
    "width-inside-fixed",
)
