"""label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0): the loss of a batch, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("label_smoothed_cross_entropy", "smoothed", IMPORTS)

_PLAIN = """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing={default}):
    real = {real}
    logits, targets = logits[real], targets[real]
    log_p = {log_p}
    right = {right}
    even = {even}
    loss = {loss}
    return {result}
"""
_LINES = {
    "default": "0.0",
    "real": "targets != pad_id",
    "log_p": "F.log_softmax(logits, dim=-1)",
    "right": "-log_p.gather(1, targets[:, None]).squeeze(1)",
    "even": "-log_p.mean(dim=-1)",
    "loss": "(1 - smoothing) * right + smoothing * even",
    "result": "loss.mean()",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _PLAIN.format(**(_LINES | lines))


def _built_in(arguments: str, factor: str = "", default: str = "0.0") -> str:
    return f"""
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing={default}):
    return {factor}F.cross_entropy({arguments})
"""


_ALL = "logits, targets, ignore_index=pad_id, label_smoothing=smoothing"

# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Real rows, a part for the right class and one for all.", _plain())
BANK.right("built-in", "PyTorch's own loss.", _built_in(_ALL))
BANK.right(
    "none-reduced",
    "PyTorch's own loss of each row, summed and divided by the number of real ones.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    loss = F.cross_entropy(logits, targets, ignore_index=pad_id, label_smoothing=smoothing, reduction="none")
    return loss.sum() / (targets != pad_id).sum().clamp(min=1)
""",
)
BANK.right(
    "full-distribution",
    "The whole target distribution, one-hot and even part.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    keep = targets.ne(pad_id)
    logits, targets = logits[keep], targets[keep]
    classes = logits.size(1)
    wanted = F.one_hot(targets, classes).to(logits.dtype) * (1 - smoothing) + smoothing / classes
    return -(wanted * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
""",
)
BANK.right(
    "logsumexp-in-double",
    "The logarithm of the sum, in double precision.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    x = logits.double()
    real = targets != pad_id
    safe = torch.where(real, targets, torch.zeros_like(targets))
    chosen = x[torch.arange(len(safe)), safe]
    each = torch.logsumexp(x, dim=1) - (1 - smoothing) * chosen - smoothing * x.mean(dim=1)
    return each.masked_select(real).mean().to(logits.dtype)
""",
)
BANK.right(
    "row-by-row",
    "A loop over the rows.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    total, count = logits.new_zeros(()), 0
    for row, target in zip(logits, targets.tolist()):
        if target == pad_id:
            continue
        log_p = row - row.logsumexp(0)
        total = total - (1 - smoothing) * log_p[target] - smoothing * log_p.mean()
        count += 1
    return total / count
""",
)
BANK.right(
    "masked-sum",
    "Padding weighed with zero, its target replaced before it is looked up.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    log_p = torch.log_softmax(logits, dim=-1)
    right = log_p.gather(1, targets.masked_fill(~real, 0).unsqueeze(1)).squeeze(1)
    loss = -(1.0 - smoothing) * right - smoothing * log_p.mean(dim=-1)
    return (loss * real).sum() / real.sum()
""",
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "softmax-first",
    "Softmax before the loss that does its own.",
    _built_in(_ALL.replace("logits,", "logits.softmax(-1),")),
    "softmax-twice",
)
BANK.wrong(
    "padding-in-the-denominator",
    "The mean over all rows, padding among them.",
    _plain(result="loss.sum() / len(real)"),
    "padding-in-the-mean",
)
BANK.wrong(
    "padding-counted",
    "Padding is a class to be predicted like others.",
    _plain(real="torch.ones_like(targets, dtype=torch.bool)"),
    "padding-counted",
)
BANK.wrong(
    "default-ignore-index",
    "Ignores −100 and not the padding.",
    _built_in("logits, targets, label_smoothing=smoothing"),
    "padding-counted",
)
BANK.wrong(
    "others-only",
    "Smoothing spread over the other classes only.",
    _plain(even="(right + log_p.sum(-1)) / (1 - logits.size(1))"),
    "smoothed-over-the-others",
)
BANK.wrong(
    "others-without-padding",
    "Smoothing spread over the classes but the right one and padding, as in the Annotated Transformer.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    logits, targets = logits[real], targets[real]
    wanted = torch.full_like(logits, smoothing / (logits.size(1) - 2))
    wanted.scatter_(1, targets[:, None], 1.0 - smoothing)
    if 0 <= pad_id < logits.size(1):
        wanted[:, pad_id] = 0.0
    return -(wanted * logits.log_softmax(-1)).sum(-1).mean()
""",
    "smoothed-over-the-others",
)
BANK.wrong(
    "inverted", "Smoothing is what the right class keeps.", _plain(loss="smoothing * right + (1 - smoothing) * even"),
    "smoothing-inverted",
)  # fmt: skip
BANK.wrong("sum", "The sum over the tokens.", _plain(result="loss.sum()"), "summed")
BANK.wrong("sign", "The sign is lost.", _plain(result="-loss.mean()"), "sign-lost")
BANK.wrong(
    "over-classes-too",
    "The mean over rows and classes.",
    _plain(result="loss.mean() / logits.size(1)"),
    "mean-over-classes",
)
BANK.wrong(
    "probabilities-to-kl",
    "kl_div is given probabilities in place of their logarithms.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    p = logits[real].softmax(-1)
    wanted = torch.full_like(p, smoothing / p.size(1))
    wanted.scatter_add_(1, targets[real][:, None], torch.full_like(p[:, :1], 1.0 - smoothing))
    return F.kl_div(p, wanted, reduction="batchmean")
""",
    "probabilities-for-logarithms",
)
BANK.wrong(
    "divergence",
    "The divergence from the smoothed distribution: the loss less its smallest value.",
    """
def label_smoothed_cross_entropy(logits, targets, pad_id, smoothing=0.0):
    real = targets != pad_id
    log_p = logits[real].log_softmax(-1)
    wanted = torch.full_like(log_p, smoothing / log_p.size(1))
    wanted.scatter_add_(1, targets[real][:, None], torch.full_like(log_p[:, :1], 1.0 - smoothing))
    return F.kl_div(log_p, wanted, reduction="batchmean")
""",
    "divergence-for-entropy",
)
BANK.wrong(
    "log-of-softmax",
    "The logarithm of a softmax that underflows.",
    _plain(log_p="torch.log(logits.exp() / logits.exp().sum(-1, keepdim=True))"),
    "unstable-logarithm",
)
BANK.wrong(
    "log-plus-tiny",
    "A tiny number keeps the logarithm finite, and wrong.",
    _plain(log_p="torch.log(torch.softmax(logits, dim=-1) + 1e-9)"),
    "unstable-logarithm",
)
BANK.wrong("zero-is-padding", "0 is padding, whatever pad_id is.", _plain(real="targets != 0"), "padding-id-fixed")
BANK.wrong(
    "not-smoothed", "Smoothing is ignored.", _built_in("logits, targets, ignore_index=pad_id"), "smoothing-ignored"
)
BANK.wrong(
    "always-a-tenth",
    "Smoothed by 0.1, whatever is asked for.",
    _built_in(_ALL.replace("=smoothing", "=0.1")),
    "smoothing-fixed",
)
BANK.wrong(
    "smoothed-by-default",
    "Smoothed by 0.1 where nothing is said.",
    _built_in(_ALL, default="0.1"),
    "smoothing-by-default",
)
BANK.wrong(
    "added",
    "The even part is added, and the right class keeps all.",
    _plain(loss="right + smoothing * even"),
    "right-class-not-lowered",
)
BANK.wrong(
    "wrong-axis", "Softmax over the tokens.", _plain(log_p="F.log_softmax(logits, dim=0)"), "softmax-over-tokens"
)
BANK.wrong(
    "even-sum", "The even part is a sum over the classes.", _plain(even="-log_p.sum(dim=-1)"), "even-part-summed"
)
BANK.wrong("in-bits", "Logarithms to base two.", _plain(result="loss.mean() / math.log(2)"), "bits-for-nats")
BANK.wrong("perplexity", "The exponential of the loss.", _plain(result="loss.mean().exp()"), "perplexity-for-loss")
BANK.wrong("a-number", "A number without a gradient.", _plain(result="loss.mean().item()"), "no-gradient")
