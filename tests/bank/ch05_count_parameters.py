"""count_parameters(V, D, H, d_ff, N): what a Transformer learns, part by part, and how people miscount."""

from .entry import Collector

BANK = Collector("count_parameters", "count")

_PLAIN = """
def count_parameters(vocab_size, d_model, num_heads, d_ff, num_layers):
    embedding = {embedding}
    attention = {attention}
    feed_forward = {feed_forward}
    norm = {norm}
    total = {total}
    return {result}
"""
_LINES = {
    "embedding": "vocab_size * d_model",
    "attention": "num_layers * 3 * 4 * (d_model**2 + d_model)",
    "feed_forward": "num_layers * 2 * (2 * d_model * d_ff + d_model + d_ff)",
    "norm": "num_layers * 5 * 2 * d_model",
    "total": "embedding + attention + feed_forward + norm",
    "result": "{'embedding': embedding, 'attention': attention, 'feed_forward': feed_forward, 'norm': norm, "
    "'total': total}",
}


def _plain(**lines: str) -> str:
    """The plain form with some of its lines replaced."""
    assert not set(lines) - set(_LINES), lines
    return _PLAIN.format(**(_LINES | lines))


# ----------------------------------------------------------------------------------------------------------- right

BANK.right("plain", "Each part by its formula.", _plain())
BANK.right("factored", "The attention with D taken out.", _plain(attention="12 * num_layers * d_model * (d_model + 1)"))
BANK.right(
    "head-by-head",
    "The projections counted for each head and added up.",
    _plain(
        attention="3 * num_layers * (num_heads * 3 * (d_model + 1) * (d_model // num_heads) + d_model * (d_model + 1))"
    ),
)
BANK.right(
    "layer-by-layer",
    "A loop over the layers, encoder and decoder.",
    """
def count_parameters(vocab_size, d_model, num_heads, d_ff, num_layers):
    def linear(n, m):
        return n * m + m

    counts = dict.fromkeys(["embedding", "attention", "feed_forward", "norm"], 0)
    counts["embedding"] += vocab_size * d_model
    for attentions in [1, 2]:
        for _ in range(num_layers):
            counts["attention"] += attentions * sum(linear(d_model, d_model) for _ in range(4))
            counts["feed_forward"] += linear(d_model, d_ff) + linear(d_ff, d_model)
            counts["norm"] += (attentions + 1) * (d_model + d_model)
    counts["total"] = sum(counts.values())
    return counts
""",
)
BANK.right(
    "shapes",
    "The shapes of all tensors listed, and their sizes added up.",
    """
def count_parameters(vocab_size, d_model, num_heads, d_ff, num_layers):
    attention = [(d_model, d_model), (d_model,)] * 4
    network = [(d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)]
    norm = [(d_model,), (d_model,)]
    size = lambda shapes: sum(math.prod(shape) for shape in shapes)
    counts = {
        "attention": size(attention * 3) * num_layers,
        "embedding": size([(vocab_size, d_model)]),
        "norm": size(norm * 5) * num_layers,
        "feed_forward": size(network * 2) * num_layers,
    }
    return {"total": sum(counts.values()), **counts}
""",
)
BANK.right(
    "encoder-and-decoder-apart",
    "One layer of each stack counted by itself.",
    _plain(
        attention="(4 * d_model * d_model + 4 * d_model) * num_layers + 2 * (4 * d_model * d_model + 4 * d_model) * num_layers",
        norm="2 * num_layers * (2 * d_model) + 3 * num_layers * (2 * d_model)",
        total="sum([embedding, attention, feed_forward, norm])",
    ),
)

# ----------------------------------------------------------------------------------------------------------- wrong

BANK.wrong(
    "two-tables",
    "A table for the source and one for the target.",
    _plain(embedding="2 * vocab_size * d_model"),
    "several-tables",
)
BANK.wrong(
    "bias-of-the-output",
    "The table as a linear layer with a bias.",
    _plain(embedding="vocab_size * d_model + vocab_size"),
    "output-bias",
)
BANK.wrong(
    "times-heads",
    "Each head with projections of full width.",
    _plain(attention="num_layers * 3 * num_heads * 4 * (d_model**2 + d_model)"),
    "multiplied-by-heads",
)
BANK.wrong(
    "heads-in-the-projections-only",
    "The three projections for each head in full width, and one output projection.",
    _plain(attention="num_layers * 3 * (3 * num_heads + 1) * (d_model**2 + d_model)"),
)
BANK.wrong(
    "without-biases",
    "Matrices only.",
    _plain(attention="num_layers * 12 * d_model**2", feed_forward="num_layers * 4 * d_model * d_ff"),
    "all-biases-forgotten",
)
BANK.wrong(
    "no-cross-attention",
    "One attention in each layer.",
    _plain(attention="2 * num_layers * 4 * (d_model**2 + d_model)"),
    "cross-attention-forgotten",
)
BANK.wrong(
    "no-output-projection",
    "Three layers for an attention.",
    _plain(attention="num_layers * 9 * (d_model**2 + d_model)"),
    "output-projection-forgotten",
)
BANK.wrong(
    "wrong-bias",
    "Both biases as wide as the hidden layer.",
    _plain(feed_forward="2 * num_layers * (2 * d_model * d_ff + 2 * d_ff)"),
    "bias-of-the-wrong-width",
)
BANK.wrong("gain-only", "Norms without an offset.", _plain(norm="num_layers * 5 * d_model"), "norm-without-offset")
BANK.wrong(
    "two-norms-each", "Two norms in every layer.", _plain(norm="4 * num_layers * 2 * d_model"), "norms-miscounted"
)
BANK.wrong(
    "norms-at-the-ends",
    "A norm behind each stack, as nn.Transformer has it.",
    _plain(norm="(5 * num_layers + 2) * 2 * d_model"),
    "final-norms-counted",
)
BANK.wrong(
    "encoder",
    "The encoder alone.",
    _plain(
        attention="num_layers * 4 * (d_model**2 + d_model)",
        feed_forward="num_layers * (2 * d_model * d_ff + d_model + d_ff)",
        norm="num_layers * 2 * 2 * d_model",
    ),
    "encoder-only",
)
BANK.wrong(
    "division",
    "A division on the way: floats.",
    _plain(attention="num_layers * 3 * 4 * (d_model**2 + num_heads * (d_model / num_heads))"),
)
BANK.wrong(
    "numpy-integers",
    "Counted in NumPy's integers, which overflow.",
    _plain(embedding="int(np.prod(np.array([vocab_size % 2**63, d_model % 2**63])))"),
)
BANK.wrong(
    "powers-of-floats",
    "Squares as powers of floats, rounded back.",
    _plain(attention="round(num_layers * 12 * (math.pow(d_model, 2) + d_model))"),
)
BANK.wrong(
    "total-of-the-layers",
    "The total without the table.",
    _plain(total="attention + feed_forward + norm"),
    "total-without-embedding",
)
BANK.wrong(
    "positions-counted",
    "A learnt table of positions, as long as it is wide.",
    _plain(embedding="vocab_size * d_model + d_model * d_model"),
)
BANK.wrong(
    "heads-added",
    "The keys are right, and the number of heads comes with them.",
    _plain(
        result="{'embedding': embedding, 'attention': attention, 'feed_forward': feed_forward, 'norm': norm, "
        "'total': total, 'heads': num_heads}"
    ),
)
