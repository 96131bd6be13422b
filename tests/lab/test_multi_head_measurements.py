"""The measurements behind chapter 4 measure what they say, and their files were made by this code."""

from __future__ import annotations

import pytest
import torch

from transformer_lab import pieces, results
from transformer_lab.measurements import heads, merging


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("merge", merging.MERGES)
def test_the_merge_alone_is_exchanged(merge):
    chapter = pieces.load("solutions/04_multi_head.md")
    if merge == "bare reshape":
        chapter.MultiHeadAttention.forward.__globals__["merge_heads"] = lambda x: x.reshape(
            x.size(0), x.size(2), x.size(1) * x.size(3)
        )
    torch.manual_seed(0)
    measured, piece = merging.Attention(12, 3, merge), chapter.MultiHeadAttention(12, 3)
    torch.nn.init.normal_(measured.inner.in_proj_bias)
    with torch.no_grad():
        for index, layer in enumerate((piece.w_q, piece.w_k, piece.w_v)):
            layer.weight.copy_(measured.inner.in_proj_weight.chunk(3)[index])
            layer.bias.copy_(measured.inner.in_proj_bias.chunk(3)[index])
        piece.w_o.load_state_dict(measured.w_o.state_dict())
    x = torch.randn(2, 5, 12)
    torch.testing.assert_close(measured(x), piece(x, x, x))


def test_the_inner_projection_stays_a_copy():
    model = merging.Encoder("right")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not any("out_proj" in name for name in trained)
    assert torch.equal(model.layers[0].attention.inner.out_proj.weight, torch.eye(merging.WIDTH))


def test_sentences_ask_what_they_say():
    torch.manual_seed(0)
    sentences = heads.draw(20)
    for letters, colours, twin, answers in zip(
        sentences.letters.tolist(),
        sentences.colours.tolist(),
        sentences.twin.tolist(),
        sentences.answers.tolist(),
        strict=True,
    ):
        assert sorted(letters) == sorted([*range(heads.LETTERS)] * 2)
        for place in range(heads.LENGTH):
            assert [j for j in range(heads.LENGTH) if letters[j] == letters[place] and j != place] == [twin[place]]
            before = colours[place - 1] if place else -100
            assert answers[place] == [before, colours[twin[place]]]


def test_a_silenced_head_says_its_mean():
    """With one head, silencing it leaves the token itself and one constant vector."""
    torch.manual_seed(0)
    model, sentences = heads.Reader(1), heads.draw(50)
    torch.nn.init.normal_(model.attention.in_proj_bias)
    with torch.no_grad():
        x = model.letter(sentences.letters) + model.colour(sentences.colours) + heads.positions()
        constant = model.attention(x, x, x, attn_mask=~heads.OTHERS)[0].mean((0, 1))
        right = (model.read_out(x + constant).unflatten(-1, (2, heads.COLOURS)).argmax(-1) == sentences.answers)[:, 1:]
    before, twin, both = heads.accuracy(model, sentences, without=0)
    assert [before, twin] == pytest.approx(right.double().mean((0, 1)).tolist(), abs=2e-3)
    assert both == pytest.approx(right.all(-1).double().mean().item(), abs=2e-3)
    untouched = heads.accuracy(model, sentences)
    assert untouched == heads.accuracy(model, sentences), "silencing left its hook behind"
    logits = model(sentences)[0][:, 1:]
    expected = (logits.argmax(-1) == sentences.answers[:, 1:]).double().mean((0, 1)).tolist()
    assert list(untouched[:2]) == pytest.approx(expected)


@pytest.mark.parametrize(("task", "merge"), [("copy", "bare reshape"), ("sort", "right")])
def test_the_stored_runs_of_merging_begin_like_this_one(task, merge):
    (stored,) = results.load("heads-merging").select(task=task, merge=merge, seed=1)
    again = merging.train(task, merge, 1, steps=merging.EARLY)
    assert again["early_loss"] == pytest.approx(stored["early_loss"], abs=2e-3)


@pytest.mark.parametrize("number", [1, 4])
def test_the_stored_runs_of_heads_begin_like_this_one(number):
    stored = results.load("heads-roles").select(heads=number, seed=1)
    _, early = heads.train(number, 1, steps=heads.EARLY)
    assert [row["early_loss"] for row in stored] == pytest.approx([early] * number, abs=2e-3)


def test_the_stored_files_are_whole():
    roles, maps, merged = (results.load(f"heads-{name}") for name in ("roles", "maps", "merging"))
    assert [len(roles.select(heads=number)) for number in heads.HEADS] == [10 * number for number in heads.HEADS]
    assert len(maps.rows) == heads.SHOWN_HEADS * heads.LENGTH
    assert all(sum(row["weights"]) == pytest.approx(1, abs=1e-3) for row in maps.select())
    assert len(merged.rows) == len(merging.TASKS) * len(merging.MERGES) * 5
