"""corpus_bleu(hypotheses, references): how much of one text is in another, 0–100, and what people make of it."""

from .entry import IMPORTS, Collector

BANK = Collector("corpus_bleu", "bleu", IMPORTS)

_PLAIN = """
from collections import Counter


def ngrams(words, n):
    return {ngrams}


def corpus_bleu(hypotheses, references):
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references):
        for n in {orders}:
            h, r = ngrams(hypothesis, n), ngrams(reference, n)
            matches[n - 1] += {matched}
            totals[n - 1] += {total}
    c, r = {lengths}
    if {nothing}:
        return 0.0
    mean = {mean}
    brevity = {brevity}
    return {result}
"""
_LINES = {
    "ngrams": "Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))",
    "orders": "(1, 2, 3, 4)",
    "matched": "sum((h & r).values())",
    "total": "sum(h.values())",
    "lengths": "sum(map(len, hypotheses)), sum(map(len, references))",
    "nothing": "min(matches) == 0",
    "mean": "math.exp(sum(math.log(m / t) for m, t in zip(matches, totals)) / 4)",
    "brevity": "math.exp(1 - r / c) if c < r else 1.0",
    "result": "100 * brevity * mean",
}


_RATIOS = "m / t for m, t in zip(matches, totals)"
_INVERTED = "math.exp(1 - c / r) if c > r else 1.0"
_ADDED = "math.log((m + 1) / (t + 1)) for m, t in zip(matches, totals)"
_FORGETFUL = _LINES["ngrams"].replace("n + 1", "n")
_LETTERS = 'Counter(" ".join(words)[i : i + n] for i in range(len(" ".join(words)) - n + 1))'
_JOINED = """\
    hypotheses, references = ([[word for words in text for word in words]] for text in (hypotheses, references))
    matches, totals"""


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _PLAIN.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Counted over the corpus, clipped by the intersection of two counters.", _plain())
BANK.right(
    "clipped-by-hand",
    "Each count at most that of the reference.",
    _plain(matched="sum(min(count, r[gram]) for gram, count in h.items())", total="max(len(hypothesis) - n + 1, 0)"),
)
BANK.right(
    "product",
    "The fourth root of a product, and an early end.",
    """
def corpus_bleu(hypotheses, references):
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    score = 1.0
    for n in (1, 2, 3, 4):
        hits = count = 0
        for hypothesis, reference in zip(hypotheses, references):
            left = [tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)]
            for i in range(len(hypothesis) - n + 1):
                count += 1
                gram = tuple(hypothesis[i : i + n])
                if gram in left:
                    left.remove(gram)
                    hits += 1
        if not hits:
            return 0.0
        score *= (hits / count) ** 0.25
    return 100 * score * (1.0 if c > r else math.exp(1 - r / c))
""",
)
BANK.right("min-in-the-exponent", "One exponential for both factors.", _plain(
    mean="sum(math.log(m) - math.log(t) for m, t in zip(matches, totals)) / 4",
    brevity="min(0.0, 1 - r / c)",
    result="100.0 * math.exp(mean + brevity)",
))  # fmt: skip
BANK.right(
    "zipped-slices",
    "n-grams from shifted copies.",
    _plain(
        ngrams="Counter(zip(*(words[i:] for i in range(n))))",
        mean=f"math.prod({_RATIOS}) ** 0.25",
    ),
)
BANK.right(
    "numpy",
    "NumPy's logarithms.",
    _plain(
        mean="float(np.exp(np.log(np.divide(matches, totals)).mean()))",
        brevity="float(np.exp(min(0.0, 1 - r / c)))",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "mean-of-sentences",
    "The mean of the sentences' scores.",
    _plain().replace("def corpus_bleu", "def one_bleu")
    + """

def corpus_bleu(hypotheses, references):
    return sum(one_bleu([h], [r]) for h, r in zip(hypotheses, references)) / len(hypotheses)
""",
    "mean-of-sentences",
)
BANK.wrong("not-clipped", "A word counts as often as it is said.", _plain(
    matched="sum(count for gram, count in h.items() if gram in r)"
), "not-clipped")  # fmt: skip
BANK.wrong(
    "sets", "Each n-gram counts once.", _plain(matched="len(h.keys() & r.keys())", total="len(h)"), "counted-once"
)
BANK.wrong("no-brevity", "Short texts are not punished.", _plain(brevity="1.0"), "no-brevity-penalty")
BANK.wrong(
    "brevity-inverted",
    "Long texts are punished.",
    _plain(brevity=_INVERTED),
    "brevity-inverted",
)
BANK.wrong(
    "brevity-ratio",
    "The ratio of the lengths.",
    _plain(brevity="min(1.0, c / r)"),
    "brevity-ratio",
)
BANK.wrong("brevity-rewarded", "Long texts are rewarded.", _plain(brevity="math.exp(1 - r / c)"), "brevity-both-ways")
BANK.wrong("arithmetic-mean", "The arithmetic mean.", _plain(
    nothing="c == 0", mean="sum(m / max(t, 1) for m, t in zip(matches, totals)) / 4"
), "arithmetic-mean")  # fmt: skip
BANK.wrong(
    "recall", "Divided by the n-grams of the reference.", _plain(total="sum(r.values())"), "recall-for-precision"
)
BANK.wrong("fraction", "Between 0 and 1.", _plain(result="brevity * mean"), "fraction-for-percent")
BANK.wrong(
    "bigrams",
    "Up to n = 2 only.",
    _plain(
        orders="(1, 2)",
        nothing="min(matches[:2]) == 0",
        mean="(matches[0] / totals[0] * matches[1] / totals[1]) ** 0.5",
    ),
    "fewer-orders",
)
BANK.wrong(
    "product-without-root",
    "The product of the precisions.",
    _plain(mean=f"math.prod({_RATIOS})"),
    "root-missing",
)
BANK.wrong(
    "add-one",
    "One is added to every count.",
    _plain(nothing="c == 0", mean=f"math.exp(sum({_ADDED}) / 4)"),
    "smoothed",
)
BANK.wrong(
    "orders-left-out",
    "Orders without a match are left out.",
    _plain(
        nothing="max(matches) == 0", mean="math.exp(sum(math.log(m / t) for m, t in zip(matches, totals) if m) / 4)"
    ),
    "smoothed",
)
BANK.wrong("unknown-words-dropped", "What looks like a special token is dropped.", _plain(
    ngrams='Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1) if "<unk>" not in words[i : i + n])'
))  # fmt: skip
BANK.wrong("lower-case", "Capitals don't count.", _plain(
    ngrams="Counter(tuple(word.lower() for word in words[i : i + n]) for i in range(len(words) - n + 1))"
), "case-ignored")  # fmt: skip
BANK.wrong(
    "range-short",
    "The last n-gram is forgotten.",
    _plain(ngrams=_FORGETFUL),
    "last-forgotten",
)
BANK.wrong(
    "letters",
    "n-grams of letters.",
    _plain(ngrams=_LETTERS),
    "letters-for-words",
)
BANK.wrong(
    "one-text",
    "All sentences are one: n-grams across their ends.",
    _plain().replace("    matches, totals", _JOINED),
    "sentences-joined",
)
