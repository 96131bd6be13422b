"""The classifier: put together from anybody's pieces, blind to padding, and blind to order without its positions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab import builtin, classifier, pieces, sequences, training
from transformer_lab.classifier import GRADED, Config

rng = np.random.default_rng


def model_of(config: Config, made_of=builtin, seed: int = 0):
    torch.manual_seed(seed)
    return classifier.build(config, made_of).eval()


@pytest.fixture(scope="module")
def solutions():
    return pieces.load("solutions")


def test_the_graded_model_is_what_the_notebook_asks_for():
    assert GRADED.task == "first-motif" and GRADED.max_len >= sequences.TASKS[GRADED.task].max_length
    assert sum(parameter.numel() for parameter in model_of(GRADED).parameters()) < 50_000
    assert classifier.task_of(GRADED) is sequences.TASKS["first-motif"]


@pytest.mark.parametrize("task", sequences.TASKS)
@pytest.mark.parametrize("norm_first", [True, False])
def test_logits_have_a_column_for_each_class(task, norm_first):
    drawn = sequences.TASKS[task].sample(5, rng(0))
    logits = model_of(Config(task, norm_first=norm_first))(drawn.inputs, drawn.mask)
    assert logits.shape == (5, sequences.TASKS[task].num_classes) and logits.dtype == torch.float32
    assert logits.isfinite().all()


@pytest.mark.parametrize("config", [GRADED, Config("trend"), Config("share", positional=False, norm_first=False)])
def test_the_course_s_own_pieces_make_the_same_model(config, solutions):
    drawn = sequences.TASKS[config.task].sample(6, rng(1))
    ours, theirs = model_of(config, solutions, seed=1), model_of(config, seed=2)
    assert [(n, p.shape) for n, p in ours.named_parameters()] == [(n, p.shape) for n, p in theirs.named_parameters()]
    theirs.load_state_dict(ours.state_dict())
    assert torch.allclose(ours(drawn.inputs, drawn.mask), theirs(drawn.inputs, drawn.mask), atol=1e-5)


def test_only_parameters_are_in_the_state():
    model = model_of(GRADED)
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("task", ["first-motif", "period"])
def test_padding_changes_nothing(task):
    drawn = sequences.TASKS[task].sample(6, rng(2))
    model = model_of(Config(task))
    wider, mask = nn.functional.pad(drawn.inputs, (0, 9)), nn.functional.pad(drawn.mask, (0, 9))
    loud = torch.where(mask, wider, 3)
    expected = model(drawn.inputs, drawn.mask)
    assert torch.allclose(model(wider, mask), expected, atol=1e-5)
    assert torch.allclose(model(loud, mask), expected, atol=1e-5)
    alone = torch.cat([model(one.inputs, one.mask) for one in (drawn[i : i + 1].trimmed() for i in range(6))])
    assert torch.allclose(alone, expected, atol=1e-5)


@pytest.mark.parametrize("task", ["first-motif", "trend"])
def test_without_positions_the_order_makes_no_difference_and_with_them_it_does(task):
    drawn = sequences.TASKS[task].sample(8, rng(3), 14 if task == "trend" else 13)
    backwards = drawn.inputs.flip(1)
    blind, seeing = model_of(Config(task, positional=False)), model_of(Config(task))
    assert torch.allclose(blind(drawn.inputs, drawn.mask), blind(backwards, drawn.mask), atol=1e-5)
    assert not torch.allclose(seeing(drawn.inputs, drawn.mask), seeing(backwards, drawn.mask), atol=1e-2)


def test_the_token_table_begins_as_large_as_the_positions():
    table = model_of(dataclasses.replace(GRADED, d_model=256, num_heads=4)).embed.token.embedding.weight
    assert not table[sequences.PAD_ID].any()
    assert float(table[1:].std() * 256**0.5) == pytest.approx(1.0, abs=0.1)


def test_a_longer_sequence_than_the_table_is_refused():
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        model_of(Config("mean", max_len=10))(torch.zeros(1, 11), torch.ones(1, 11, dtype=torch.bool))


def test_dropout_is_for_training_only():
    drawn = sequences.TASKS["mean"].sample(4, rng(4))
    model = model_of(Config("mean", dropout=0.5))
    assert torch.equal(model(drawn.inputs, drawn.mask), model(drawn.inputs, drawn.mask))
    model.train()
    assert not torch.equal(model(drawn.inputs, drawn.mask), model(drawn.inputs, drawn.mask))


def test_attention_weights_are_those_of_pytorch_s_layer():
    drawn = sequences.TASKS[GRADED.task].sample(4, rng(5))
    model = model_of(GRADED)
    weights = classifier.attention_weights(model, drawn, GRADED.num_heads)
    length = drawn.inputs.size(1)
    assert [w.shape for w in weights] == [(4, GRADED.num_heads, length, length)] * GRADED.num_layers
    first = model.encoder.layers[0]
    theirs = nn.MultiheadAttention(GRADED.d_model, GRADED.num_heads, batch_first=True)
    attention = first.self_attention
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([attention.w_q.weight, attention.w_k.weight, attention.w_v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([attention.w_q.bias, attention.w_k.bias, attention.w_v.bias]))
        x = first.norm1(model.embed(drawn.inputs))
        _, expected = theirs(x, x, x, key_padding_mask=~drawn.mask, average_attn_weights=False)
    assert torch.allclose(weights[0], expected, atol=1e-5)


def test_attention_weights_leave_the_model_as_it_was(solutions):
    drawn = sequences.TASKS[GRADED.task].sample(3, rng(6))
    model = model_of(GRADED, solutions)
    model.train()
    (*_, last) = classifier.attention_weights(model, drawn, GRADED.num_heads)
    assert torch.allclose(last.sum(-1), torch.ones(last.shape[:-1]), atol=1e-5)
    assert not last.masked_select(~drawn.mask[:, None, None]).any(), "nobody attends to padding"
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_hidden_test_set_is_of_the_graded_task_and_each_rng_has_its_own():
    one, again, other = (classifier.hidden_test_set(rng(seed)) for seed in (1, 1, 2))
    assert len(one) == classifier.HIDDEN_SIZE and torch.equal(one.inputs, again.inputs)
    assert one.inputs.shape != other.inputs.shape or not torch.equal(one.inputs, other.inputs)
    assert torch.equal(sequences.TASKS[GRADED.task].bayes(one), one.labels)
    assert one.labels.bincount().tolist() == [classifier.HIDDEN_SIZE // 2] * 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 6))
def test_the_graded_model_learns_its_task(seed):
    """From seeds that the results do not have: at least 99 of 100 sequences that training has not seen."""
    parts = sequences.splits(classifier.task_of(GRADED), seed)
    model = model_of(GRADED, seed=seed)
    training.fit(model, parts["train"], parts["validation"], steps=classifier.STEPS, seed=seed, progress=False)
    assert training.evaluate(model, classifier.hidden_test_set(rng(seed))) >= 0.99


@pytest.mark.long
def test_without_positions_the_graded_task_is_not_learnt():
    parts = sequences.splits(classifier.task_of(GRADED), 0)
    model = model_of(dataclasses.replace(GRADED, positional=False))
    training.fit(model, parts["train"], parts["validation"], steps=classifier.STEPS, progress=False)
    assert training.evaluate(model, parts["test"]) == pytest.approx(0.5, abs=0.03)
