"""LayerNorm(d_model, eps): every token at mean 0 and variance 1, gain and offset, and what people make of it."""

from .entry import Collector

BANK = Collector("LayerNorm", "ln")

_CLASS = """
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps={default}):
        super().__init__()
        self.eps = {eps}
        self.gamma = {gamma}
        self.beta = {beta}

    def forward(self, x):
        {mean}
        {var}
        {normed}
        return {result}
"""
_LINES = {
    "default": "1e-5",
    "eps": "eps",
    "gamma": "nn.Parameter(torch.ones(d_model))",
    "beta": "nn.Parameter(torch.zeros(d_model))",
    "mean": "mean = x.mean(-1, keepdim=True)",
    "var": "var = ((x - mean) ** 2).mean(-1, keepdim=True)",
    "normed": "normed = (x - mean) / torch.sqrt(var + self.eps)",
    "result": "self.gamma * normed + self.beta",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _CLASS.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Mean, biased variance, ε inside the root, gain, offset.", _plain())
BANK.right(
    "var-mean",
    "torch.var_mean with correction 0, and rsqrt.",
    _plain(
        mean="var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)",
        var="scale = torch.rsqrt(var + self.eps)",
        normed="normed = (x - mean) * scale",
    ),
)
BANK.right(
    "biased-var",
    "Tensor.var with unbiased=False.",
    _plain(var="var = x.var(-1, unbiased=False, keepdim=True)", result="torch.addcmul(self.beta, normed, self.gamma)"),
)
BANK.right(
    "corrected-by-hand",
    "The unbiased variance times (D − 1) / D; one feature needs no variance.",
    _plain(
        var="D = x.size(-1)\n        var = x.var(-1, keepdim=True) * (D - 1) / D if D > 1 else torch.zeros_like(mean)"
    ),
)
BANK.right(
    "built-in",
    "F.layer_norm with the parameters.",
    _plain(normed="normed = None", result="F.layer_norm(x, x.shape[-1:], self.gamma, self.beta, self.eps)"),
)
BANK.right(
    "row-by-row",
    "A loop over all rows, by norms of vectors.",
    """
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.d_model, self.eps = d_model, eps
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def one(self, row):
        centred = row - row.sum() / self.d_model
        return centred / ((centred @ centred) / self.d_model + self.eps) ** 0.5 * self.gamma + self.beta

    def forward(self, x):
        return torch.stack([self.one(row) for row in x.reshape(-1, self.d_model)]).reshape(x.shape)
""",
)
BANK.right(
    "in-double",
    "Calculated in float64 and brought back.",
    _plain(
        mean="y = x.double()\n        y = y - y.mean(dim=-1, keepdim=True)",
        var="var = y.square().mean(dim=-1, keepdim=True)",
        normed="normed = (y / (var + self.eps).sqrt()).to(x.dtype)",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "unbiased",
    "Tensor.var as it is: divided by D − 1.",
    _plain(var="var = x.var(-1, keepdim=True)"),
    "unbiased-variance",
)
BANK.wrong(
    "unbiased-and-outside",
    "Tensor.std, and ε added to it, as in a much-copied tutorial.",
    _plain(var="std = x.std(-1, keepdim=True)", normed="normed = (x - mean) / (std + self.eps)"),
    "unbiased-and-epsilon-outside",
)
BANK.wrong(
    "eps-outside",
    "ε is added to the root.",
    _plain(normed="normed = (x - mean) / (torch.sqrt(var) + self.eps)"),
    "epsilon-outside-the-root",
)
BANK.wrong(
    "divided-by-the-variance",
    "The root is forgotten.",
    _plain(normed="normed = (x - mean) / (var + self.eps)"),
    "divided-by-the-variance",
)
BANK.wrong(
    "over-the-tokens",
    "Mean and variance of each feature over the tokens.",
    _plain(
        mean="axis = max(x.dim() - 2, 0)\n        mean = x.mean(axis, keepdim=True)",
        var="var = ((x - mean) ** 2).mean(axis, keepdim=True)",
    ),
    "statistics-over-tokens",
)
BANK.wrong(
    "over-the-sentence",
    "Mean and variance of a whole sentence.",
    _plain(
        mean="axes = (-2, -1) if x.dim() > 1 else -1\n        mean = x.mean(axes, keepdim=True)",
        var="var = ((x - mean) ** 2).mean(axes, keepdim=True)",
    ),
    "statistics-over-sentences",
)
BANK.wrong(
    "over-the-batch",
    "Mean and variance over the first axis, as in batch normalisation.",
    _plain(mean="mean = x.mean(0, keepdim=True)", var="var = ((x - mean) ** 2).mean(0, keepdim=True)"),
    "statistics-over-the-batch",
)
BANK.wrong(
    "variance-of-the-batch",
    "The mean is each token's own, the variance that of all tokens.",
    _plain(var="var = ((x - mean) ** 2).mean()"),
)
BANK.wrong(
    "parameters-idle",
    "Gain and offset are made and not used.",
    _plain(result="normed + 0 * (self.gamma + self.beta)"),
    "gamma-and-beta-unused",
)
BANK.wrong("offset-idle", "The offset is not added.", _plain(result="self.gamma * normed"), "beta-unused")
BANK.wrong(
    "offset-before-the-gain",
    "The offset is multiplied by the gain too.",
    _plain(result="self.gamma * (normed + self.beta)"),
    "offset-before-gain",
)
BANK.wrong(
    "gain-from-zero",
    "The gain starts at 0.",
    _plain(gamma="nn.Parameter(torch.zeros(d_model))"),
    "gamma-starts-at-zero",
)
BANK.wrong(
    "one-plus-gain",
    "The gain counts from 1, and starts at 0 for that.",
    _plain(gamma="nn.Parameter(torch.zeros(d_model))", result="(1 + self.gamma) * normed + self.beta"),
    "one-plus-gamma",
)
BANK.wrong(
    "scalars",
    "One gain and one offset for all features.",
    _plain(gamma="nn.Parameter(torch.ones(1))", beta="nn.Parameter(torch.zeros(1))"),
    "scalar-parameters",
)
BANK.wrong(
    "root-mean-square",
    "The mean is not subtracted.",
    _plain(var="var = (x**2).mean(-1, keepdim=True)", normed="normed = x / torch.sqrt(var + self.eps)"),
    "mean-not-subtracted",
)
BANK.wrong(
    "no-eps",
    "ε is forgotten: 0 / 0 in a constant row.",
    _plain(normed="normed = (x - mean) / torch.sqrt(var)"),
    "no-epsilon",
)
BANK.wrong(
    "eps-squared",
    "The square of ε inside the root.",
    _plain(normed="normed = (x - mean) / (var + self.eps**2).sqrt()"),
    "epsilon-squared",
)
BANK.wrong("tiny-default", "Another ε unless one is given.", _plain(default="1e-12"), "other-default-epsilon")
BANK.wrong("eps-fixed", "The argument eps is ignored.", _plain(eps="1e-5"), "epsilon-fixed")
BANK.wrong(
    "mean-deviation",
    "The mean absolute deviation for the root.",
    _plain(normed="normed = (x - mean) / ((x - mean).abs().mean(-1, keepdim=True) + self.eps)"),
    "absolute-deviation",
)
BANK.wrong(
    "one-pass",
    "The mean of the squares minus the square of the mean, which loses its digits.",
    _plain(var="var = (x * x).mean(-1, keepdim=True) - mean * mean"),
    "difference-of-means",
)
BANK.wrong(
    "centred-in-place",
    "x loses its mean in place.",
    _plain(
        var="var = ((x - mean) ** 2).mean(-1, keepdim=True)\n        x.data -= mean.data",
        normed="normed = x / torch.sqrt(var + self.eps)",
    ),
    "changed-in-place",
)
BANK.wrong(
    "statistics-detached",
    "No gradient flows through mean and variance.",
    _plain(
        mean="mean = x.mean(-1, keepdim=True).detach()", var="var = ((x - mean) ** 2).mean(-1, keepdim=True).detach()"
    ),
    "statistics-detached",
)
BANK.wrong(
    "clamped-variance",
    "ε as a lower bound in place of a summand.",
    _plain(normed="normed = (x - mean) / var.clamp(min=self.eps).sqrt()"),
)
BANK.wrong(
    "frozen",
    "Gain and offset are buffers, and nothing is learnt.",
    """
class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("gamma", torch.ones(d_model))
        self.register_buffer("beta", torch.zeros(d_model))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.gamma * centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() + self.beta
""",
    "parameters-not-trained",
)
