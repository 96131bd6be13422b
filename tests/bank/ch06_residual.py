"""Residual(dropout, norm_first): one sub-layer, one norm, and the path past them, and what people make of it."""

from .entry import Collector

BANK = Collector("Residual", "residual")

_CLASS = """
class Residual(nn.Module):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.norm_first = {flag}
        self.dropout = nn.Dropout({rate})

    def forward(self, x, sublayer, norm):
        {before}
        if self.norm_first:
            return {pre}
        return {post}
"""
_LINES = {
    "flag": "norm_first",
    "rate": "dropout",
    "before": "# pre-norm or post-norm",
    "pre": "x + self.dropout(sublayer(norm(x)))",
    "post": "norm(x + self.dropout(sublayer(x)))",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "The two formulas.", _plain())
BANK.right(
    "three-steps",
    "The norm before or behind, as a step of its own.",
    """
class Residual(nn.Module):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.p, self.first = dropout, norm_first

    def forward(self, x, sublayer, norm):
        inside = norm(x) if self.first else x
        total = x + F.dropout(sublayer(inside), self.p, self.training)
        return total if self.first else norm(total)
""",
)
BANK.right(
    "mask-by-hand",
    "Dropout by hand.",
    """
class Residual(nn.Module):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.keep, self.norm_first = 1 - dropout, norm_first

    def drop(self, y):
        return y * torch.bernoulli(torch.full_like(y, self.keep)) / self.keep if self.training else y

    def forward(self, x, sublayer, norm):
        if self.norm_first:
            return self.drop(sublayer(norm(x))).add(x)
        return norm(self.drop(sublayer(x)).add(x))
""",
)
BANK.right(
    "copy-carried",
    "A copy of x is carried, and the sum collects in a tensor of its own.",
    _plain(
        before="path = x.clone()",
        pre="path + self.dropout(sublayer(norm(x)))",
        post="norm(torch.stack([path, self.dropout(sublayer(x))]).sum(0))",
    ),
)
BANK.right(
    "chosen-in-the-constructor",
    "The order is a method chosen once.",
    """
class Residual(nn.Module):
    def __init__(self, dropout=0.0, norm_first=False):
        super().__init__()
        self.drop = nn.Dropout(p=dropout) if dropout else nn.Identity()
        self.order = self.pre if norm_first else self.post

    def pre(self, x, f, norm):
        return torch.add(x, self.drop(f(norm(x))))

    def post(self, x, f, norm):
        return norm(torch.add(x, self.drop(f(x))))

    def forward(self, x, sublayer, norm):
        return self.order(x, sublayer, norm)
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("always-post", "norm_first is ignored.", _plain(flag="False"), "always-post-norm")
BANK.wrong("always-pre", "Pre-norm, whatever was asked for.", _plain(flag="True"), "always-pre-norm")
BANK.wrong("orders-exchanged", "norm_first means the other one.", _plain(flag="not norm_first"), "orders-exchanged")
BANK.wrong(
    "norm-of-the-branch",
    "Post-norm normalises what the sub-layer returns, and the sum stays as it is.",
    _plain(post="x + norm(self.dropout(sublayer(x)))"),
    "norm-before-the-sum",
)
BANK.wrong(
    "path-normalised",
    "In pre-norm the path carries the normalised tensor.",
    _plain(pre="norm(x) + self.dropout(sublayer(norm(x)))"),
    "path-normalised",
)
BANK.wrong(
    "x-overwritten",
    "x is overwritten by its norm, and added in that form.",
    _plain(before="x = norm(x) if self.norm_first else x", pre="x + self.dropout(sublayer(x))"),
    "path-normalised",
)
BANK.wrong(
    "norm-behind-as-well",
    "Pre-norm with a norm behind the sum too.",
    _plain(pre="norm(x + self.dropout(sublayer(norm(x))))"),
    "normalised-twice",
)
BANK.wrong(
    "no-path",
    "The residual path is missing.",
    _plain(pre="self.dropout(sublayer(norm(x)))", post="norm(self.dropout(sublayer(x)))"),
    "nothing-added",
)
BANK.wrong(
    "branch-added-to-itself",
    "x is overwritten by the branch, which is then added to itself.",
    _plain(before="x = x if self.norm_first else self.dropout(sublayer(x))", post="norm(x + x)"),
    "result-added-to-itself",
)
BANK.wrong(
    "dropout-of-the-sum",
    "Dropout after the addition.",
    _plain(pre="self.dropout(x + sublayer(norm(x)))", post="norm(self.dropout(x + sublayer(x)))"),
    "dropout-on-the-sum",
)
BANK.wrong(
    "dropout-at-the-end",
    "Dropout behind the norm in post-norm.",
    _plain(post="self.dropout(norm(x + sublayer(x)))"),
    "dropout-at-the-end",
)
BANK.wrong(
    "dropout-before-the-sublayer",
    "Dropout on what goes into the sub-layer.",
    _plain(pre="x + sublayer(self.dropout(norm(x)))", post="norm(x + sublayer(self.dropout(x)))"),
    "dropout-before-the-sublayer",
)
BANK.wrong(
    "no-dropout",
    "Dropout is forgotten.",
    _plain(pre="x + sublayer(norm(x))", post="norm(x + sublayer(x))"),
    "no-dropout",
)
BANK.wrong(
    "always-dropping",
    "F.dropout without the flag: it drops in evaluation.",
    _plain(
        pre="x + F.dropout(sublayer(norm(x)), self.dropout.p)", post="norm(x + F.dropout(sublayer(x), self.dropout.p))"
    ),
    "dropout-in-evaluation",
)
BANK.wrong(
    "rate-to-keep",
    "The rate is taken for the share that stays.",
    _plain(rate="1 - dropout if dropout else 0.0"),
    "keep-probability",
)
BANK.wrong(
    "added-in-place",
    "The branch is added into the caller's x.",
    _plain(
        pre="x.add_(self.dropout(sublayer(norm(x.clone()))).detach()) + 0",
        post="norm(x.add_(self.dropout(sublayer(x.clone()))).clone())",
    ),
    "changed-in-place",
)
BANK.wrong(
    "branch-in-place",
    "x is added into what the sub-layer returns, which may be x itself.",
    _plain(
        before="y = sublayer(norm(x) if self.norm_first else x)\n        y = self.dropout(y)\n        "
        "y.data.add_(x.data.clone())",
        pre="y",
        post="norm(y)",
    ),
    "changed-in-place",
)
BANK.wrong(
    "path-detached",
    "No gradient flows along the path.",
    _plain(pre="x.detach() + self.dropout(sublayer(norm(x)))", post="norm(x.detach() + self.dropout(sublayer(x)))"),
    "path-cut",
)
BANK.wrong(
    "norm-kept",
    "The norm of the first call serves all later ones.",
    _plain(before='norm = self.__dict__.setdefault("first_norm", norm)'),
)
BANK.wrong(
    "sublayer-twice",
    "The sub-layer is applied twice in pre-norm.",
    _plain(pre="x + self.dropout(sublayer(sublayer(norm(x))))"),
)
