"""noam_lr(step, d_model, warmup): the learning rate of the paper, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("noam_lr", "noam", IMPORTS)


def _is(expression: str, *before: str) -> str:
    lines = "".join(f"    {line}\n" for line in before)
    return f"\ndef noam_lr(step, d_model, warmup):\n{lines}    return {expression}\n"


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("formula", "As in the paper.", _is("d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)"))
BANK.right(
    "two-cases",
    "Before the end of the warm-up, and after.",
    """
def noam_lr(step, d_model, warmup):
    if step < warmup:
        return step / (warmup * math.sqrt(warmup * d_model))
    return 1.0 / math.sqrt(step * d_model)
""",
)
BANK.right(
    "peak",
    "The highest rate times the smaller of two ratios.",
    _is("(d_model * warmup) ** -0.5 * min(step / warmup, (warmup / step) ** 0.5)"),
)
BANK.right(
    "pow", "With pow.", _is("math.pow(d_model, -0.5) * min(math.pow(step, -0.5), step * math.pow(warmup, -1.5))")
)
BANK.right(
    "logarithms",
    "The smaller of two logarithms.",
    _is(
        "math.exp(min(-0.5 * math.log(step), math.log(step) - 1.5 * math.log(warmup)) - 0.5 * math.log(d_model))",
    ),
)
BANK.right(
    "numpy",
    "NumPy's numbers, which are Python's as well.",
    _is("np.float64(d_model) ** -0.5 * min(np.float64(step) ** -0.5, step * np.float64(warmup) ** -1.5)"),
)
BANK.right(
    "guarded",
    "A step 0 is taken for the first one.",
    _is("1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / warmup**1.5)", "step = max(step, 1)"),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong("max", "max in place of min.", _is("d_model**-0.5 * max(step**-0.5, step * warmup**-1.5)"), "max-for-min")
BANK.wrong(
    "warmup-root",
    "The warm-up term with the exponent of the other one.",
    _is("d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)"),
    "warmup-exponent",
)
BANK.wrong(
    "warmup-linear",
    "The warm-up term divided by warmup only.",
    _is("d_model**-0.5 * min(step**-0.5, step / warmup)"),
    "warmup-exponent",
)
BANK.wrong("times-root", "Times √D.", _is("d_model**0.5 * min(step**-0.5, step * warmup**-1.5)"), "width-multiplied")
BANK.wrong("no-width", "The width is missing.", _is("min(step**-0.5, step * warmup**-1.5)"), "width-missing")
BANK.wrong("over-width", "Divided by D.", _is("min(step**-0.5, step * warmup**-1.5) / d_model"), "width-without-root")
BANK.wrong(
    "no-decay", "It stays at its peak.", _is("d_model**-0.5 * min(warmup**-0.5, step * warmup**-1.5)"), "no-decay"
)
BANK.wrong("no-warm-up", "It decays from the first step on.", _is("(d_model * step) ** -0.5"), "no-warm-up")
BANK.wrong(
    "flat-warm-up", "Constant until the warm-up ends.", _is("(d_model * max(step, warmup)) ** -0.5"), "flat-warm-up"
)
BANK.wrong(
    "exponential-warm-up",
    "It grows by a constant factor.",
    """
def noam_lr(step, d_model, warmup):
    if step < warmup:
        return (d_model * warmup) ** -0.5 * 0.01 ** (1 - step / warmup)
    return (d_model * step) ** -0.5
""",
)
BANK.wrong(
    "peak-of-one",
    "Scaled so that its peak is 1.",
    _is("warmup**0.5 * min(step**-0.5, step * warmup**-1.5)"),
    "scaled-to-one",
)
BANK.wrong(
    "decay-starts-again",
    "The decay counts from the end of the warm-up.",
    """
def noam_lr(step, d_model, warmup):
    if step < warmup:
        return d_model**-0.5 * step * warmup**-1.5
    return (d_model * warmup * (1 + step - warmup)) ** -0.5
""",
    "decay-starts-again",
)
BANK.wrong(
    "bracket-slip",
    "A bracket closed too early.",
    _is("d_model**-0.5 * min(step**-0.5, step) * warmup**-1.5"),
    "bracket-slip",
)
BANK.wrong(
    "from-zero",
    "Steps counted from zero.",
    _is("d_model**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)"),
    "steps-from-zero",
)
BANK.wrong(
    "one-behind",
    "The rate of the step before.",
    _is("0.0 if step == 1 else d_model**-0.5 * min((step - 1) ** -0.5, (step - 1) * warmup**-1.5)"),
    "steps-from-two",
)
BANK.wrong(
    "whole-numbers",
    "Division that throws the rest away.",
    _is("d_model**-0.5 * min(step**-0.5, step // warmup**1.5)"),
)
BANK.wrong(
    "linear-decay",
    "It decays with the step and not with its root.",
    _is("(d_model * warmup) ** -0.5 * min(step / warmup, warmup / step)"),
    "decay-without-root",
)
