"""Notebooks with several mistakes, made of the bank's entries, and what grading them comes to.

    mistaken = combinations.notebook("04_multi_head", {"split_heads": wrong, "merge_heads": other})
    combinations.graded(mistaken, "04_multi_head")["MultiHeadAttention"].lost

Every piece that is not given is right and calls the pieces before it by their names, as the chapters suggest.
"""

from __future__ import annotations

import types
from dataclasses import dataclass

import autograder
from autograder import registry
from tests.bank import Entry, entries
from tests.proof import filled

#: Right answers that call the pieces before them.
CALLING = {
    "TransformerEmbedding": "embed-functional-dropout",
    "MultiHeadAttention": "mha-own-functions",
    "EncoderLayer": "encoder-through-residual",
    "target_mask": "target-helpers",
    "DecoderLayer": "decoder-through-residual",
}

#: The bank has none for these, whose specification does not suggest it.
WRITTEN = {
    "scaled_dot_product_attention": """
import torch


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = softmax(scores, dim=-1)
    return weights @ v, weights
""",
    "SelfAttention": """
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model, d_k):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_k, bias=False) for _ in range(3))

    def forward(self, x, mask=None):
        return scaled_dot_product_attention(self.w_q(x), self.w_k(x), self.w_v(x), mask)[0]
""",
}


@dataclass(frozen=True)
class Graded:
    """One piece of a graded notebook."""

    earned: float
    points: float
    named: frozenset[str]
    terms: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def lost(self) -> float:
        return self.points - self.earned


def right(piece: str) -> str:
    """A right answer, one that calls earlier pieces where there is one."""
    if piece in WRITTEN:
        return WRITTEN[piece]
    known = entries(piece, "right")
    return filled.answer(next((entry for entry in known if entry.id == CALLING.get(piece)), known[0]))


def notebook(chapter: str, answers: dict[str, str]) -> types.ModuleType:
    """What the cells of a chapter leave behind: ``answers`` by piece, the others right; one module, as in a kernel."""
    module = types.ModuleType("answers")
    own = registry.pieces(chapter)
    earlier = [name for name in registry.pieces() if name not in own and f"{name}(" in "".join(map(right, own))]
    exec(f"from transformer_lab.builtin import {', '.join(earlier)}" if earlier else "", module.__dict__)
    for piece in own:
        exec(compile(answers.get(piece, right(piece)), f"<{piece}>", "exec", dont_inherit=True), module.__dict__)
    return module


def graded(module, chapter: str, seed: int = 0, diagnosing: bool = True) -> dict[str, Graded]:
    """Every piece of the chapter as it was graded."""
    results = autograder.run_checks(module, chapter=chapter, seed=seed, diagnosing=diagnosing)
    found = {}
    for piece in registry.pieces(chapter):
        own = [result for result in results if result.piece == piece]
        found[piece] = Graded(
            sum(r.earned for r in own),
            sum(r.points for r in own),
            frozenset(r.diagnosis.id for r in own if r.diagnosis),
            own[0].terms,
            tuple(r.message for r in own if r.message),
        )
    return found


def representative(piece: str, number: int = 0) -> Entry:
    """A wrong entry with a known mistake: another one for every number."""
    known = [entry for entry in entries(piece, "wrong") if entry.misconception]
    return known[(7 * number) % len(known)]
