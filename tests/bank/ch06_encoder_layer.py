"""EncoderLayer(self_attention, feed_forward, d_model, …): two sub-layers wired up, and what people make of it."""

from .entry import IMPORTS, Collector

LAYER_NORM = """
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return self.gamma * centred / torch.sqrt(variance + self.eps) + self.beta


"""
RESIDUAL = """
class Residual(nn.Module):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer, norm):
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


"""

BANK = Collector("EncoderLayer", "encoder", IMPORTS + LAYER_NORM)

_CLASS = """
class EncoderLayer(nn.Module):
    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = {attention}
        self.feed_forward = {network}
        self.norm1 = LayerNorm(d_model)
        self.norm2 = {norm2}
        self.dropout = nn.Dropout({rate})
        self.norm_first = {flag}

    def forward(self, x, mask=None):
        {before}
        if self.norm_first:
            y = self.norm1(x)
            x = {pre1}
            y = {y2}
            x = {pre2}
        else:
            x = {post1}
            x = {post2}
        return x
"""
_LINES = {
    "attention": "self_attention",
    "network": "feed_forward",
    "norm2": "LayerNorm(d_model)",
    "rate": "dropout",
    "flag": "norm_first",
    "before": "f, g = self.self_attention, self.feed_forward",
    "pre1": "x + self.dropout(f(y, y, y, mask))",
    "y2": "self.norm2(x)",
    "pre2": "x + self.dropout(g(y))",
    "post1": "self.norm1(x + self.dropout(f(x, x, x, mask)))",
    "post2": "self.norm2(x + self.dropout(g(x)))",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced; a line ``before`` comes after the two names."""
    assert not set(lines) - set(_LINES), lines
    if "before" in lines:
        lines["before"] = _LINES["before"] + "\n        " + lines["before"]
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Both orders written out.", _plain())
BANK.right(
    "through-residual",
    "Residual does the rest.",
    RESIDUAL
    + """
class EncoderLayer(nn.Module):
    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention, self.feed_forward = self_attention, feed_forward
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)
        self.residual1, self.residual2 = Residual(dropout, norm_first), Residual(dropout, norm_first)

    def forward(self, x, mask=None):
        attend = lambda y: self.self_attention(y, y, y, mask)
        return self.residual2(self.residual1(x, attend, self.norm1), self.feed_forward, self.norm2)
""",
)
BANK.right(
    "loop-over-sublayers",
    "One loop over pairs of sub-layer and norm.",
    """
class EncoderLayer(nn.Module):
    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.p, self.pre = dropout, norm_first

    def forward(self, x, mask=None):
        def attention(y):
            return self.self_attention(y, y, y) if mask is None else self.self_attention(y, y, y, mask)

        for sublayer, norm in ((attention, self.norm1), (self.feed_forward, self.norm2)):
            branch = F.dropout(sublayer(norm(x) if self.pre else x), self.p, self.training)
            x = x + branch
            if not self.pre:
                x = norm(x)
        return x
""",
)
BANK.right(
    "blocks-as-methods",
    "As PyTorch's own layer is written, with a dropout for each.",
    """
class EncoderLayer(nn.Module):
    def __init__(self, self_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = feed_forward
        self.norm1 = LayerNorm(d_model, eps=1e-5)
        self.norm2 = LayerNorm(d_model, eps=1e-5)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x, mask=None):
        if self.norm_first:
            x = x + self._attend(self.norm1(x), mask)
            return x + self._think(self.norm2(x))
        x = self.norm1(x + self._attend(x, mask))
        return self.norm2(x + self._think(x))

    def _attend(self, x, mask):
        return self.dropout1(self.self_attention(x, x, x, mask))

    def _think(self, x):
        return self.dropout2(self.feed_forward(x))
""",
)
BANK.right(
    "pytorchs-norm",
    "The norms calculate with F.layer_norm.",
    """
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)

"""
    + _plain(),
)
BANK.right(
    "sums-the-other-way",
    "Branch plus path, and a copy of x.",
    _plain(
        before="x = x.clone()",
        pre1="self.dropout(f(y, y, y, mask)) + x",
        pre2="self.dropout(g(y)).add(x)",
        post2="self.norm2(self.dropout(g(x)) + x)",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "path-normalised",
    "In pre-norm the path carries the normalised tensor.",
    _plain(pre1="y + self.dropout(f(y, y, y, mask))", pre2="y + self.dropout(g(y))"),
    "path-normalised",
)
BANK.wrong("always-pre", "norm_first is ignored: always pre-norm.", _plain(flag="True"), "always-pre-norm")
BANK.wrong("always-post", "norm_first is ignored: always post-norm.", _plain(flag="False"), "always-post-norm")
BANK.wrong(
    "norm-of-the-branch",
    "Post-norm normalises the branches instead of the sums.",
    _plain(post1="x + self.norm1(self.dropout(f(x, x, x, mask)))", post2="x + self.norm2(self.dropout(g(x)))"),
    "norm-before-the-sum",
)
BANK.wrong(
    "no-paths",
    "The residual paths are missing.",
    _plain(
        pre1="self.dropout(f(y, y, y, mask))",
        pre2="self.dropout(g(y))",
        post1="self.norm1(self.dropout(f(x, x, x, mask)))",
        post2="self.norm2(self.dropout(g(x)))",
    ),
    "nothing-added",
)
BANK.wrong(
    "second-path-missing",
    "The feed-forward half has no path.",
    _plain(pre2="self.dropout(g(y))", post2="self.norm2(self.dropout(g(x)))"),
)
BANK.wrong(
    "branch-added-to-itself",
    "The branch is added to itself in post-norm.",
    _plain(before="h = f(x, x, x, mask) if not self.norm_first else x", post1="self.norm1(h + self.dropout(h))"),
    "result-added-to-itself",
)
BANK.wrong(
    "paths-from-the-beginning",
    "The second path starts at the layer's input.",
    _plain(before="start = x", pre2="start + self.dropout(g(y))", post2="self.norm2(start + self.dropout(g(x)))"),
    "second-path-from-the-beginning",
)
BANK.wrong(
    "parallel",
    "Both sub-layers see the layer's input.",
    _plain(before="start = x", y2="self.norm2(start)", post2="self.norm2(x + self.dropout(g(start)))"),
    "halves-side-by-side",
)
BANK.wrong(
    "norm-used-twice",
    "norm1 serves both halves.",
    _plain(y2="self.norm1(x)", post2="self.norm1(x + self.dropout(g(x)))"),
    "norm1-twice",
)
BANK.wrong("norms-are-one", "Both norms are one object.", _plain(norm2="self.norm1"), "norms-shared")
BANK.wrong(
    "norms-exchanged",
    "Each half has the other's norm.",
    _plain(
        before="self_norm = (self.norm1, self.norm2)",
        y2="self.norm1(x)",
        pre1="x + self.dropout(f(*[self.norm2(x)] * 3, mask))",
        post1="self.norm2(x + self.dropout(f(x, x, x, mask)))",
        post2="self.norm1(x + self.dropout(g(x)))",
    ),
    "norms-exchanged",
)
BANK.wrong(
    "feed-forward-first",
    "The feed-forward comes before the attention.",
    _plain(
        pre1="x + self.dropout(g(y))",
        pre2="x + self.dropout(f(y, y, y, mask))",
        post1="self.norm1(x + self.dropout(g(x)))",
        post2="self.norm2(x + self.dropout(f(x, x, x, mask)))",
    ),
    "feed-forward-first",
)
BANK.wrong(
    "mask-forgotten",
    "The mask does not reach the attention.",
    _plain(pre1="x + self.dropout(f(y, y, y))", post1="self.norm1(x + self.dropout(f(x, x, x)))"),
    "mask-not-handed-on",
)
BANK.wrong(
    "mask-forgotten-in-pre-norm",
    "The mask does not reach the attention in pre-norm.",
    _plain(pre1="x + self.dropout(f(y, y, y))"),
    "mask-not-handed-on",
)
BANK.wrong(
    "mask-inverted",
    "The mask is turned round on its way.",
    _plain(before="mask = None if mask is None else ~mask"),
    "mask-inverted",
)
BANK.wrong(
    "keys-not-normalised",
    "In pre-norm only the query is normalised.",
    _plain(pre1="x + self.dropout(f(y, x, x, mask))"),
    "keys-and-values-not-normalised",
)
BANK.wrong(
    "value-not-normalised",
    "In pre-norm the value is x itself.",
    _plain(pre1="x + self.dropout(f(y, y, x, mask))"),
)
BANK.wrong(
    "dropout-of-the-sum",
    "Dropout after the addition.",
    _plain(
        pre1="self.dropout(x + f(y, y, y, mask))",
        pre2="self.dropout(x + g(y))",
        post1="self.norm1(self.dropout(x + f(x, x, x, mask)))",
        post2="self.norm2(self.dropout(x + g(x)))",
    ),
    "dropout-on-the-sum",
)
BANK.wrong(
    "second-dropout-missing",
    "No dropout on the feed-forward's result.",
    _plain(pre2="x + g(y)", post2="self.norm2(x + g(x))"),
    "dropout-in-one-half",
)
BANK.wrong(
    "no-dropout",
    "Dropout is forgotten.",
    _plain(
        pre1="x + f(y, y, y, mask)",
        pre2="x + g(y)",
        post1="self.norm1(x + f(x, x, x, mask))",
        post2="self.norm2(x + g(x))",
    ),
    "no-dropout",
)
BANK.wrong("fixed-dropout", "The rate is 0.1, whatever is given.", _plain(rate="0.1"))
BANK.wrong(
    "always-dropping",
    "F.dropout without the flag.",
    _plain(
        before="self_p = self.dropout.p",
        pre2="x + F.dropout(g(y), self_p)",
        post2="self.norm2(x + F.dropout(g(x), self_p))",
    ),
    "dropout-in-evaluation",
)
BANK.wrong(
    "added-in-place",
    "The first branch is added into the caller's x.",
    _plain(
        pre1="x.data.add_(self.dropout(f(y, y, y, mask)).data)",
        post1="self.norm1(x.data.add_(self.dropout(f(x.clone(), x.clone(), x.clone(), mask)).data))",
    ),
    "changed-in-place",
)
BANK.wrong(
    "norm-behind-the-layer",
    "A further norm at the end of pre-norm.",
    _plain(pre2="self.norm2(x + self.dropout(g(y)))"),
    "normalised-twice",
)
BANK.wrong(
    "copies-kept",
    "The layer keeps copies of what it is given.",
    _plain(attention="__import__('copy').deepcopy(self_attention)"),
)
