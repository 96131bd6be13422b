"""DecoderLayer(self_attention, cross_attention, feed_forward, d_model, …): three sub-layers, and what people make of it."""

from .ch06_encoder_layer import LAYER_NORM, RESIDUAL
from .entry import IMPORTS, Collector

BANK = Collector("DecoderLayer", "decoder", IMPORTS + LAYER_NORM)

_CLASS = """
class DecoderLayer(nn.Module):
    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = {cross}
        self.feed_forward = feed_forward
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.norm3 = {norm3}
        self.dropout = nn.Dropout({rate})
        self.norm_first = {flag}

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        {before}
        if self.norm_first:
            y = self.norm1(x)
            x = {pre1}
            y = {y2}
            x = {pre2}
            y = {y3}
            x = {pre3}
        else:
            x = {post1}
            x = {post2}
            x = {post3}
        return x
"""
_LINES = {
    "cross": "cross_attention",
    "norm3": "LayerNorm(d_model)",
    "rate": "dropout",
    "flag": "norm_first",
    "before": "f, c, g, drop = self.self_attention, self.cross_attention, self.feed_forward, self.dropout",
    "pre1": "x + drop(f(y, y, y, target_mask))",
    "y2": "self.norm2(x)",
    "pre2": "x + drop(c(y, memory, memory, memory_mask))",
    "y3": "self.norm3(x)",
    "pre3": "x + drop(g(y))",
    "post1": "self.norm1(x + drop(f(x, x, x, target_mask)))",
    "post2": "self.norm2(x + drop(c(x, memory, memory, memory_mask)))",
    "post3": "self.norm3(x + drop(g(x)))",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced; a line ``before`` comes after the four names."""
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
class DecoderLayer(nn.Module):
    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed_forward = feed_forward
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model) for _ in range(3))
        self.residual = Residual(dropout, norm_first)

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        x = self.residual(x, lambda y: self.self_attention(y, y, y, target_mask), self.norm1)
        x = self.residual(x, lambda y: self.cross_attention(y, memory, memory, memory_mask), self.norm2)
        return self.residual(x, self.feed_forward, self.norm3)
""",
)
BANK.right(
    "loop-over-sublayers",
    "One loop over pairs of sub-layer and norm; masks that are None are left out.",
    """
class DecoderLayer(nn.Module):
    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        for i in (1, 2, 3):
            setattr(self, f"norm{i}", LayerNorm(d_model))
        self.p, self.pre = dropout, norm_first

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        own = () if target_mask is None else (target_mask,)
        other = () if memory_mask is None else (memory_mask,)
        sublayers = [
            (lambda y: self.self_attention(y, y, y, *own), self.norm1),
            (lambda y: self.cross_attention(y, memory, memory, *other), self.norm2),
            (self.feed_forward, self.norm3),
        ]
        for sublayer, norm in sublayers:
            branch = F.dropout(sublayer(norm(x) if self.pre else x), self.p, self.training)
            x = x + branch if self.pre else norm(x + branch)
        return x
""",
)
BANK.right(
    "blocks-as-methods",
    "As PyTorch's own layer is written, with a dropout for each.",
    """
class DecoderLayer(nn.Module):
    def __init__(self, self_attention, cross_attention, feed_forward, d_model, dropout=0.0, norm_first=False):
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.norm1, self.norm2, self.norm3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))
        self.norm_first = norm_first

    def forward(self, x, memory, target_mask=None, memory_mask=None):
        if self.norm_first:
            x = x + self._own(self.norm1(x), target_mask)
            x = x + self._other(self.norm2(x), memory, memory_mask)
            x = x + self._think(self.norm3(x))
            return x
        x = self.norm1(x + self._own(x, target_mask))
        x = self.norm2(x + self._other(x, memory, memory_mask))
        return self.norm3(x + self._think(x))

    def _own(self, x, mask):
        return self.dropout1(self.self_attention(x, x, x, mask))

    def _other(self, x, memory, mask):
        return self.dropout2(self.cross_attention(x, memory, memory, mask))

    def _think(self, x):
        return self.dropout3(self.feed_forward(x))
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
    "Branch plus path, and copies of what comes in.",
    _plain(
        before="x, memory = x.clone(), memory.clone()",
        pre1="drop(f(y, y, y, target_mask)) + x",
        pre2="drop(c(y, memory, memory, memory_mask)).add(x)",
        post3="self.norm3(drop(g(x)) + x)",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "query-from-memory",
    "In the cross-attention, memory asks the target.",
    _plain(
        pre2="x + drop(c(memory, y, y, memory_mask))[:, : x.size(1)]",
        post2="self.norm2(x + drop(c(memory, x, x, memory_mask))[:, : x.size(1)])",
    ),
    "query-from-the-memory",
)
BANK.wrong(
    "memory-carried",
    "The path of the cross-attention carries memory.",
    _plain(
        pre2="memory.mean(1, keepdim=True) + drop(c(y, memory, memory, memory_mask))",
        post2="self.norm2(memory.mean(1, keepdim=True) + drop(c(x, memory, memory, memory_mask)))",
    ),
    "memory-added",
)
BANK.wrong(
    "memory-carried-where-it-fits",
    "The path of the cross-attention carries memory where it is as long as the target.",
    _plain(
        before="path = lambda x: memory if memory.shape == x.shape else x",
        pre2="path(x) + drop(c(y, memory, memory, memory_mask))",
        post2="self.norm2(path(x) + drop(c(x, memory, memory, memory_mask)))",
    ),
    "memory-added",
)
BANK.wrong(
    "value-from-the-target",
    "The value of the cross-attention is the target where it is as long as memory.",
    _plain(
        before="v = lambda t: t if t.shape == memory.shape else memory",
        pre2="x + drop(c(y, memory, v(y), memory_mask))",
        post2="self.norm2(x + drop(c(x, memory, v(x), memory_mask)))",
    ),
    "value-from-the-target",
)
BANK.wrong(
    "key-from-the-target",
    "Key and value of the cross-attention are the target: it attends to itself.",
    _plain(pre2="x + drop(c(y, y, y, target_mask))", post2="self.norm2(x + drop(c(x, x, x, target_mask)))"),
    "memory-not-read",
)
BANK.wrong(
    "memory-normalised",
    "Pre-norm normalises memory too.",
    _plain(pre2="x + drop(c(y, self.norm2(memory), self.norm2(memory), memory_mask))"),
    "memory-normalised",
)
BANK.wrong(
    "memory-key-normalised",
    "Pre-norm normalises memory as key.",
    _plain(pre2="x + drop(c(y, self.norm2(memory), memory, memory_mask))"),
    "memory-normalised",
)
BANK.wrong(
    "query-not-normalised",
    "In pre-norm the cross-attention's query is x itself.",
    _plain(y2="x"),
)
BANK.wrong(
    "masks-exchanged",
    "Each attention gets the other's mask where that can be.",
    _plain(
        pre1="x + drop(f(y, y, y, memory_mask))",
        pre2="x + drop(c(y, memory, memory, target_mask))",
        post1="self.norm1(x + drop(f(x, x, x, memory_mask)))",
        post2="self.norm2(x + drop(c(x, memory, memory, target_mask)))",
    ),
    "masks-exchanged",
)
BANK.wrong(
    "memory-mask-forgotten",
    "The cross-attention gets no mask.",
    _plain(pre2="x + drop(c(y, memory, memory))", post2="self.norm2(x + drop(c(x, memory, memory)))"),
    "memory-mask-not-handed-on",
)
BANK.wrong(
    "target-mask-forgotten",
    "The self-attention gets no mask.",
    _plain(pre1="x + drop(f(y, y, y))", post1="self.norm1(x + drop(f(x, x, x)))"),
    "target-mask-not-handed-on",
)
BANK.wrong(
    "target-mask-lost-without-memory-mask",
    "The target mask is handed on only if there is a memory mask.",
    _plain(before="target_mask = None if memory_mask is None else target_mask"),
)
BANK.wrong(
    "cross-attention-left-out",
    "The cross-attention is never called.",
    _plain(pre2="x", post2="x"),
    "cross-attention-left-out",
)
BANK.wrong(
    "cross-attention-first",
    "Cross-attention before self-attention.",
    _plain(
        pre1="x + drop(c(y, memory, memory, memory_mask))",
        pre2="x + drop(f(y, y, y, target_mask))",
        post1="self.norm1(x + drop(c(x, memory, memory, memory_mask)))",
        post2="self.norm2(x + drop(f(x, x, x, target_mask)))",
    ),
    "cross-attention-first",
)
BANK.wrong(
    "self-attention-for-both",
    "The self-attention module also serves as cross-attention.",
    _plain(cross="self_attention"),
    "self-attention-twice",
)
BANK.wrong(
    "second-norm-for-the-third",
    "norm2 serves the feed-forward too.",
    _plain(y3="self.norm2(x)", post3="self.norm2(x + drop(g(x)))"),
    "norm2-twice",
)
BANK.wrong("norms-are-one", "norm3 is norm1.", _plain(norm3="self.norm1"))
BANK.wrong(
    "first-norm-for-the-second",
    "norm1 serves the cross-attention in pre-norm.",
    _plain(y2="self.norm1(x)"),
    "norm1-twice",
)
BANK.wrong(
    "paths-from-the-beginning",
    "All paths start at the layer's input.",
    _plain(
        before="start = x",
        pre2="start + drop(c(y, memory, memory, memory_mask))",
        pre3="start + drop(g(y))",
        post2="self.norm2(start + drop(c(x, memory, memory, memory_mask)))",
        post3="self.norm3(start + drop(g(x)))",
    ),
    "paths-from-the-beginning",
)
BANK.wrong(
    "path-normalised",
    "In pre-norm the paths carry the normalised tensor.",
    _plain(
        pre1="y + drop(f(y, y, y, target_mask))",
        pre2="y + drop(c(y, memory, memory, memory_mask))",
        pre3="y + drop(g(y))",
    ),
    "path-normalised",
)
BANK.wrong(
    "cross-attention-without-path",
    "No path past the cross-attention.",
    _plain(pre2="drop(c(y, memory, memory, memory_mask))", post2="self.norm2(drop(c(x, memory, memory, memory_mask)))"),
)
BANK.wrong("always-post", "norm_first is ignored.", _plain(flag="False"), "always-post-norm")
BANK.wrong("always-pre", "Always pre-norm.", _plain(flag="True"), "always-pre-norm")
BANK.wrong(
    "dropout-of-the-sum",
    "Dropout after the addition, in the cross-attention's third.",
    _plain(
        pre2="drop(x + c(y, memory, memory, memory_mask))",
        post2="self.norm2(drop(x + c(x, memory, memory, memory_mask)))",
    ),
    "dropout-on-the-sum",
)
BANK.wrong(
    "cross-dropout-missing",
    "No dropout on the cross-attention's result.",
    _plain(pre2="x + c(y, memory, memory, memory_mask)", post2="self.norm2(x + c(x, memory, memory, memory_mask))"),
)
BANK.wrong("fixed-dropout", "The rate is 0.1, whatever is given.", _plain(rate="0.1"))
BANK.wrong(
    "memory-detached",
    "No gradient reaches memory.",
    _plain(before="memory = memory.detach()"),
    "memory-detached",
)
BANK.wrong(
    "added-in-place",
    "The first branch is added into the caller's x.",
    _plain(
        pre1="x.data.add_(drop(f(y, y, y, target_mask)).data)",
        post1="self.norm1(x.data.add_(drop(f(*[x.clone()] * 3, target_mask)).data))",
    ),
    "changed-in-place",
)
