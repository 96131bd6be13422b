"""Two mistakes in one notebook, and mistakes in what several pieces share: points go only where they belong."""

import functools
from itertools import combinations as pairs_of

import pytest

from autograder import judge, registry, sandbox
from autograder.intake import rebuild
from tests.bank import entries
from tests.proof import combinations, filled
from tests.proof.combinations import graded, notebook, representative
from transformer_lab.cells import read_notebook

CHAPTERS = [name for name, own in filled.chapters().items() if set(own) <= {entry.piece for entry in entries()}]
PAIRS = [(name, *pair) for name in CHAPTERS for pair in pairs_of(registry.pieces(name), 2)]
#: For every commit: the last piece of a chapter with the one before it, which it is likely to call.
SHORT = [(name, *registry.pieces(name)[-2:]) for name in CHAPTERS]


def by_id(entry_id):
    return next(entry for entry in entries() if entry.id == entry_id)


@functools.cache
def alone(chapter, piece, number):
    """What a mistake costs in a notebook where all else is right."""
    entry = representative(piece, number)
    return graded(notebook(chapter, {piece: filled.answer(entry)}), chapter, diagnosing=False)


def check_pair(chapter, first, second, number):
    wrong = {piece: representative(piece, number) for piece in (first, second)}
    found = graded(notebook(chapter, {piece: filled.answer(entry) for piece, entry in wrong.items()}), chapter)
    for piece, piece_found in found.items():
        if piece not in wrong:
            assert piece_found.lost == 0, (piece, piece_found.messages)
            assert not piece_found.named
        else:
            assert piece_found.earned == alone(chapter, piece, number)[piece].earned, (piece, piece_found.messages)
            assert piece_found.named <= {wrong[piece].misconception}, piece


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_right_answers_that_call_each_other_earn_every_point(chapter):
    for piece, found in graded(notebook(chapter, {}), chapter).items():
        assert found.lost == 0, (piece, found.messages)
        assert not found.terms


@pytest.mark.parametrize(("chapter", "first", "second"), SHORT)
def test_two_mistakes_cost_what_each_costs_alone(chapter, first, second):
    check_pair(chapter, first, second, 0)


@pytest.mark.long
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize(("chapter", "first", "second"), PAIRS)
def test_any_two_mistakes_cost_what_each_costs_alone(chapter, first, second, number):
    check_pair(chapter, first, second, number)


def test_mistakes_in_two_chapters_do_not_meet():
    """A notebook of chapter 6 with a slip, then one of chapter 7 that builds on it: the norm's slip stays in chapter 6."""
    sixth = notebook("06_norm_and_residual", {"LayerNorm": filled.answer(by_id("ln-unbiased"))})
    seventh = notebook("07_masking_and_decoder", {"causal_mask": filled.answer(by_id("causal-strict"))})
    vars(seventh).update({name: getattr(sixth, name) for name in ("LayerNorm", "Residual")})
    found = graded(seventh, "07_masking_and_decoder")
    assert {piece for piece, one in found.items() if one.lost} == {"causal_mask"}
    assert found["causal_mask"].named == {"diagonal-closed"}
    assert "`LayerNorm`" in found["DecoderLayer"].terms[0]
    assert "`causal_mask`" in found["target_mask"].terms[0]


HELPERS = [
    ("03_attention", "softmax", "softmax-no-maximum", {"scaled_dot_product_attention"}),
    ("03_attention", "softmax", "softmax-ignores-dim", set()),
    ("03_attention", "softmax", "softmax-softmin", {"scaled_dot_product_attention", "SelfAttention"}),
    ("03_attention", "scaled_dot_product_attention", "attention-no-scale", {"SelfAttention"}),
    ("04_multi_head", "split_heads", "split-bare-reshape", {"MultiHeadAttention"}),
    ("04_multi_head", "merge_heads", "merge-view-after-transpose", {"MultiHeadAttention"}),
    ("02_positional_encoding", "positional_encoding", "pe-doubled-exponent-loop", {"TransformerEmbedding"}),
    ("06_norm_and_residual", "Residual", "residual-always-pre", {"EncoderLayer"}),
    ("06_norm_and_residual", "LayerNorm", "ln-unbiased", {"EncoderLayer"}),
    ("07_masking_and_decoder", "padding_mask", "padding-inverted", {"target_mask"}),
]


@pytest.mark.parametrize(("chapter", "helper", "entry", "callers"), HELPERS)
def test_a_slip_in_a_helper_costs_its_points_once_and_is_told_where_it_shows(chapter, helper, entry, callers):
    found = graded(notebook(chapter, {helper: filled.answer(by_id(entry))}), chapter)
    for piece, one in found.items():
        assert bool(one.lost) == (piece == helper), (piece, one.messages)
        told = " ".join(one.terms)
        assert (f"Your `{helper}`" in told) == (piece in callers), piece
        assert not told or "Nothing else is wrong here" in told


def test_a_helper_that_is_not_written_leaves_the_rest_its_points():
    for answer in ("", "def split_heads(x, num_heads):\n    raise NotImplementedError\n", "split_heads = 3\n"):
        found = graded(notebook("04_multi_head", {"split_heads": answer}), "04_multi_head")
        assert [one.earned for one in found.values()] == [0, 4, 12], answer
        assert "`split_heads`" in found["MultiHeadAttention"].terms[0]


ATTENDING = """
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"{d_model}, {num_heads}")
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (split_heads(w(x), self.num_heads) for w, x in zip((self.w_q, self.w_k, self.w_v), (query, key, value)))
        return self.w_o(merge_heads(scaled_dot_product_attention(q, k, v, mask)[0]))
"""


def test_a_slip_of_its_own_is_named_behind_a_helper_that_fails():
    wrong = {
        "split_heads": filled.answer(by_id("split-bare-reshape")),
        "merge_heads": filled.answer(by_id("merge-bare-reshape")),
        "MultiHeadAttention": ATTENDING.replace("(q, k, v, mask)", "(q, k, v)"),
    }
    found = graded(notebook("04_multi_head", wrong), "04_multi_head")
    attention = found["MultiHeadAttention"]
    assert attention.named == {"mask-ignored"}
    assert "Your `split_heads` and `merge_heads` fail their own checks" in attention.terms[0]
    assert "What fails here fails all the same" in attention.terms[0]
    only = graded(notebook("04_multi_head", {"MultiHeadAttention": wrong["MultiHeadAttention"]}), "04_multi_head")
    assert attention.earned == only["MultiHeadAttention"].earned


def test_a_helper_of_the_learners_own_belongs_to_each_piece_that_calls_it():
    """It is no piece: nothing can stand in for it, and what the diagnoses say of it is true of each."""
    own = "def cut(x, n):\n    return x.reshape(x.size(0), n, x.size(1), x.size(2) // n)\n\n\n"
    split = own + (
        "def split_heads(x, num_heads):\n    if x.size(-1) % num_heads:\n"
        "        raise ValueError(f'{x.size(-1)}, {num_heads}')\n    return cut(x, num_heads)\n"
    )
    found = graded(
        notebook(
            "04_multi_head", {"split_heads": split, "MultiHeadAttention": ATTENDING.replace("split_heads(", "cut(")}
        ),
        "04_multi_head",
    )
    assert found["merge_heads"].lost == 0
    assert found["split_heads"].named == {"split-by-reshape"}
    assert found["MultiHeadAttention"].named == {"split-by-reshape"}
    assert not found["MultiHeadAttention"].terms


def test_a_piece_that_makes_up_for_its_helper_keeps_its_points():
    """split_heads leaves the axes unexchanged, and the attention exchanges them: wrong there, right here."""
    split = (
        "def split_heads(x, num_heads):\n    if x.size(-1) % num_heads:\n"
        "        raise ValueError(f'{x.size(-1)}, {num_heads}')\n    return x.unflatten(-1, (num_heads, -1))\n"
    )
    attention = ATTENDING.replace(
        "split_heads(w(x), self.num_heads)", "split_heads(w(x), self.num_heads).transpose(1, 2)"
    )
    found = graded(notebook("04_multi_head", {"split_heads": split, "MultiHeadAttention": attention}), "04_multi_head")
    assert found["split_heads"].named == {"axes-not-exchanged"}
    assert found["MultiHeadAttention"].lost == 0
    assert not found["MultiHeadAttention"].terms


TWO_SLIPS = [  # two mistakes in one piece: none of the known ones gives both, so none is named for both
    ("scaled_dot_product_attention", "/ q.size(-1) ** 0.5", "", "~mask", "mask"),
    (
        "MultiHeadAttention",
        "(self.w_q, self.w_k, self.w_v)",
        "(self.w_k, self.w_q, self.w_v)",
        "(q, k, v, mask)",
        "(q, k, v)",
    ),
]


@pytest.mark.parametrize(("piece", "one", "for_one", "other", "for_other"), TWO_SLIPS)
def test_two_slips_in_one_piece_are_never_named_as_something_else(piece, one, for_one, other, for_other):
    chapter = next(name for name, own in filled.chapters().items() if piece in own)
    source = ATTENDING if piece == "MultiHeadAttention" else combinations.WRITTEN[piece]
    first, second = source.replace(one, for_one), source.replace(other, for_other)
    both = first.replace(other, for_other)
    assert len({source, first, second, both}) == 4
    found = [graded(notebook(chapter, {piece: text}), chapter)[piece] for text in (first, second, both)]
    assert all(each.lost for each in found)
    assert found[2].lost >= max(found[0].lost, found[1].lost)
    assert found[2].named <= found[0].named | found[1].named


def test_names_of_its_own_cost_the_check_that_asks_for_them():
    renamed = ATTENDING
    for name, own in (("w_q", "queries"), ("w_k", "keys"), ("w_v", "values"), ("w_o", "out")):
        renamed = renamed.replace(f"self.{name}", f"self.{own}")
    found = graded(notebook("04_multi_head", {"MultiHeadAttention": renamed}), "04_multi_head", diagnosing=False)[
        "MultiHeadAttention"
    ]
    assert found.lost == 1
    assert "no trainable w_q.weight" in found.messages[0]
    assert "set in the order in which they are created" in found.terms[0]
    both = {"MultiHeadAttention": renamed, "split_heads": filled.answer(by_id("split-bare-reshape"))}
    found = graded(notebook("04_multi_head", both), "04_multi_head", diagnosing=False)["MultiHeadAttention"]
    assert found.lost == 1
    assert len(found.terms) == 2


def test_in_the_sandbox_it_is_the_same(needs_sandbox):
    answers = {
        "positional_encoding": filled.answer(by_id("pe-doubled-exponent-loop")),
        "shift_matrix": filled.answer(by_id("shift-entries")),
        "TransformerEmbedding": filled.answer(by_id("embed-functional-dropout")),
    }
    stub = next(stub for stub in filled.STUBS if stub.stem.startswith("02"))
    source = read_notebook(stub)
    for cell in source.cells:  # the graded line, which the stub has not
        if cell.source.startswith("# The hidden checks of `"):
            piece = cell.source.split("`")[1]
            cell.source += f'\nfrom autograder.award import award\n\naward(globals(), "{piece}")'
    judged = judge.judge(rebuild(source, filled.notebook(stub, answers)).notebook, 5, sandbox.Limits())
    lost = {r.piece for r in judged.results if r.earned < r.points}
    assert lost == {"positional_encoding"}
    terms = {r.piece: r.terms for r in judged.results if r.terms}
    assert set(terms) == {"TransformerEmbedding"}
    assert "Your `positional_encoding` fails its own checks" in terms["TransformerEmbedding"][0]
    graded_cell = next(c for c in judged.notebook.cells if "checks of `TransformerEmbedding`" in c.source)
    assert graded_cell.outputs[0].text.startswith("Mind: Your `positional_encoding`")
