"""How good translations are: BLEU and chrF as sacreBLEU counts them, with the signatures that make them comparable.

A score is worth something only with what it was counted on: tokenised how, cased or not, smoothed how. The signature says
it (Post 2018), and two scores with different signatures are two different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """Scores from 0 to 100, and how each was counted.

    ``bleu`` is that of the texts as they are, cased and cut into tokens by sacreBLEU; ``lowercased`` the same without
    regard to case, for comparison with results that were published so; ``chrf`` the F-score of character n-grams.
    """

    bleu: float
    lowercased: float
    chrf: float
    bleu_signature: str
    lowercased_signature: str
    chrf_signature: str

    def __str__(self) -> str:
        return "\n".join(
            f"{name:<18} {value:5.1f}   {signature}"
            for name, value, signature in (
                ("BLEU", self.bleu, self.bleu_signature),
                ("BLEU, lower-cased", self.lowercased, self.lowercased_signature),
                ("chrF", self.chrf, self.chrf_signature),
            )
        )


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations, texts as one would print them, against one reference each.

    Raises
    ------
    ValueError
        There are none, or not as many as references.
    ImportError
        sacrebleu is not installed.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations cannot be held against {len(references)} references.")
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError("BLEU and chrF are counted by sacrebleu, which is missing: pip install sacrebleu") from error

    metrics = (BLEU(), BLEU(lowercase=True), CHRF())
    bleu, lowercased, chrf = (m.corpus_score(list(hypotheses), [list(references)]).score for m in metrics)
    return Scores(bleu, lowercased, chrf, *(str(metric.get_signature()) for metric in metrics))
