"""BLEU and chrF: numbers that can be worked out by hand, and the signatures beside them."""

from __future__ import annotations

import math

import pytest

from transformer_lab.scores import score


def test_what_is_right_has_a_hundred_of_everything():
    scores = score(["The cat saw the small bird."], ["The cat saw the small bird."])
    assert (scores.bleu, scores.lowercased, scores.chrf) == pytest.approx((100, 100, 100))


def test_a_small_example_by_hand():
    # One word of six differs: 5/6 unigrams, 3/5, 2/4 and 1/3; both are equally long.
    scores = score(["the cat saw the old bird"], ["the cat saw the small bird"])
    assert scores.bleu == pytest.approx(100 * math.exp(sum(map(math.log, (5 / 6, 3 / 5, 2 / 4, 1 / 3))) / 4))
    assert scores.bleu < scores.chrf < 100


def test_case_counts_in_one_of_the_two():
    scores = score(["the cat saw the small bird ."], ["The cat saw the small bird ."])
    assert scores.lowercased == pytest.approx(100)
    assert scores.bleu < 100


def test_signatures_are_printed_beside_the_numbers():
    scores = score(["The cat sat."], ["The dog sat."])
    assert "case:mixed" in scores.bleu_signature
    assert "tok:13a" in scores.bleu_signature
    assert "case:lc" in scores.lowercased_signature
    assert "nc:6" in scores.chrf_signature
    lines = str(scores).splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "BLEU,", "chrF"]
    assert all("version:" in line for line in lines)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_what_cannot_be_compared_is_refused(hypotheses, references):
    with pytest.raises(ValueError, match="cannot be held against"):
        score(hypotheses, references)
