"""One slip costs a share of its piece, and never all where something is right: what is wanted, slip by slip."""

import pytest

import autograder
from tests.bank import entries, load

CONCEPT, COSMETIC = (0.19, 0.6), (0.0, 0.2)
#: The share of a piece's points that a slip is to cost: of a concept, of something small, or as it says.
WANTED = {
    "attention-no-scale": CONCEPT,
    "attention-scale-by-width": CONCEPT,
    "attention-mask-inverted": CONCEPT,
    "attention-mask-after-softmax": CONCEPT,
    "attention-returns-output-only": CONCEPT,
    "attention-causal-unasked": CONCEPT,
    "attention-weights-detached": COSMETIC,
    "attention-overflow": COSMETIC,
    "attention-softmax-over-queries": (0.6, 1.0),  # no output is right then
    "mha-no-scale": CONCEPT,
    "mha-scale-by-d_model": CONCEPT,
    "mha-bare-split": CONCEPT,
    "mha-bare-merge": CONCEPT,
    "mha-one-wide-head": CONCEPT,
    "mha-keys-by-query-layer": CONCEPT,
    "mha-values-not-projected": CONCEPT,
    "mha-no-output-layer": CONCEPT,
    "mha-mask-ignored": CONCEPT,
    "mha-mask-inverted": CONCEPT,
    "mha-self-attention-only": CONCEPT,
    "mha-no-biases": (0.3, 0.7),
    "mha-other-names": COSMETIC,
    "mha-mask-of-the-first-head": COSMETIC,
    "mha-softmax-over-queries": (0.6, 0.8),
    "encoder-mask-forgotten": CONCEPT,
    "encoder-always-pre": CONCEPT,
    "encoder-no-paths": CONCEPT,
    "encoder-no-dropout": COSMETIC,
    "decoder-masks-exchanged": CONCEPT,
    "decoder-always-pre": CONCEPT,
    "decoder-cross-attention-first": CONCEPT,
    "decoder-cross-dropout-missing": COSMETIC,
    "token-no-scale": CONCEPT,
    "token-no-padding": CONCEPT,
    "token-learnt-scale": COSMETIC,
    "ffn-no-relu": CONCEPT,
    "ffn-dropout-of-x": CONCEPT,
    "self-mask-inverted": CONCEPT,
    "residual-always-pre": CONCEPT,
    "causal-upper": (0.2, 0.8),
    "target-causal-only": CONCEPT,
    "transformer-future-open": CONCEPT,
    "transformer-not-tied": (0.6, 0.8),  # every logit is another then
    "transformer-padding-row": (0.19, 0.3),
    "decoder-stack-norm-in-the-loop": CONCEPT,
    "smoothed-padding-in-the-denominator": CONCEPT,
    "greedy-filled-with-eos": CONCEPT,
    "bleu-no-brevity": CONCEPT,
    "beam-no-penalty": CONCEPT,
    "accumulate-mean-of-means": CONCEPT,
    "accumulate-sum": CONCEPT,
    "accumulate-emptied-each-time": CONCEPT,
    "accumulate-not-emptied": CONCEPT,
    "accumulate-one-backward": CONCEPT,
    "accumulate-retained": (0.19, 0.2),
    "accumulate-with-graph": (0.19, 0.2),
    "accumulate-unused-not-expected": (0.19, 0.2),
    "cache-no-scale": CONCEPT,
    "cache-all-open": CONCEPT,
    "cache-edge-left": (0.6, 0.8),  # a single new position sees one key only
    "cache-mask-ignored": CONCEPT,
    "cache-nan": (0.19, 0.2),
    "cache-changed-in-place": (0.19, 0.2),
    "batches-strict": CONCEPT,
    "batches-too-long-alone": CONCEPT,
    "batches-real-tokens": (0.6, 0.7),
}
BANK = {entry.id: entry for entry in entries(verdict="wrong")}


@pytest.mark.parametrize("slip", WANTED)
def test_a_slip_costs_its_share(slip):
    entry = BANK[slip]
    low, high = WANTED[slip]
    for seed in (0, 1):
        results = autograder.run_checks(load(entry), piece=entry.piece, seed=seed, diagnosing=False)
        share = 1 - sum(r.earned for r in results) / sum(r.points for r in results)
        assert low <= share <= high, [(r.check, r.points) for r in results if r.message]
        assert share > 0
