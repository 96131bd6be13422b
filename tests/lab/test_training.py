"""The training loop: it learns, stops, keeps the best weights, and says what is wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import training
from transformer_lab.sequences import TASKS, splits


class Bag(nn.Module):
    """The smallest classifier of tokens: the share of each, and a linear map. It notes how it is called."""

    def __init__(self, vocab_size: int = 9, num_classes: int = 2, dropout: float = 0.0):
        super().__init__()
        self.linear = nn.Linear(vocab_size, num_classes)
        self.dropout = nn.Dropout(dropout)
        self.vocab_size, self.calls = vocab_size, []

    def forward(self, inputs, mask):
        self.calls.append((self.training, tuple(inputs.shape), inputs[:, 0].tolist()))
        shares = F.one_hot(inputs, self.vocab_size).float() * mask.unsqueeze(-1)
        return self.linear(self.dropout(shares.sum(1) / mask.sum(1, keepdim=True)))


@pytest.fixture(scope="module")
def parts():
    return splits(TASKS["share"], 0, train=600, validation=200, test=400)


def bag(seed: int = 0, **options) -> Bag:
    torch.manual_seed(seed)
    return Bag(**options)


def fit(model, parts, **options):
    return training.fit(model, parts["train"], parts["validation"], **({"progress": False} | options))


def test_it_learns_and_writes_down_how(parts):
    model = bag()
    assert training.evaluate(model, parts["test"]) < 0.8
    history = fit(model, parts, steps=250, every=50, lr=0.3)
    assert training.evaluate(model, parts["test"]) > 0.97
    assert history.steps == [50, 100, 150, 200, 250]
    assert len(history.losses) == 250
    assert np.mean(history.losses[-20:]) < np.mean(history.losses[:20]) / 2
    assert len(history.accuracies) == len(history.validation_losses) == 5
    assert history.best_step == history.steps[int(np.argmin(history.validation_losses))]
    assert not model.training


def test_it_looks_in_evaluation_mode_and_trains_in_training_mode(parts):
    model = bag()
    fit(model, parts, steps=4, every=2, batch_size=64)
    assert [training_mode for training_mode, *_ in model.calls] == [True, True, False, True, True, False]


def test_the_last_step_is_looked_at_too(parts):
    assert fit(bag(), parts, steps=5, every=2).steps == [2, 4, 5]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(parts):
    def weights(seed):
        model = bag(dropout=0.5)
        fit(model, parts, steps=20, every=10, seed=seed)
        return model.linear.weight

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_the_best_weights_are_kept(parts):
    """Where validation says the opposite of training its loss only rises; the model ends with the lowest."""
    model = bag()
    opposite = parts["validation"]
    parts = parts | {"validation": replace(opposite, labels=1 - opposite.labels)}
    history = fit(model, parts, steps=60, every=3, patience=99)
    best = min(history.validation_losses)
    assert history.validation_losses[-1] > best, "the run must have a worse end for this test to say anything"
    now = F.cross_entropy(training.logits(model, parts["validation"]), parts["validation"].labels)
    assert float(now) == pytest.approx(best)


def test_patience_ends_training(parts):
    model = bag()
    model.linear.requires_grad_(False)
    model.free = nn.Parameter(torch.zeros(()))
    frozen = type("Frozen", (Bag,), {"forward": lambda self, i, m: Bag.forward(self, i, m) + 0 * self.free})
    model.__class__ = frozen  # nothing changes: the first look is the best
    history = fit(model, parts, steps=1000, every=2, patience=3)
    assert history.steps == [2, 4, 6, 8]
    assert history.best_step == 2


def test_a_loss_that_is_not_finite_says_at_which_step(parts):
    model = bag()
    calls = itertools.count(1)

    def spoil(module, arguments, output):
        return output * math.nan if next(calls) == 3 else output

    model.register_forward_hook(spoil)
    with pytest.raises(FloatingPointError, match="The loss is nan at step 3; try a smaller learning rate"):
        fit(model, parts, steps=10, every=100)


def test_ctrl_c_keeps_the_best_weights_so_far(parts, capsys):
    model = bag()
    kept = {}

    def interrupt(module, arguments, output):
        if len(model.calls) == 3:  # two steps and a look
            kept.update({name: value.clone() for name, value in module.state_dict().items()})
        if len(model.calls) == 5:
            raise KeyboardInterrupt

    model.register_forward_hook(interrupt)
    history = fit(model, parts, steps=100, every=2, batch_size=200)
    assert len(history.losses) == 3
    assert history.best_step == 2
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())
    assert "Stopped at step 3; the weights of step 2 are kept." in "".join(capsys.readouterr())


def test_batches_show_every_sequence_before_any_comes_again(parts):
    torch.manual_seed(0)
    train = parts["train"]
    rows = [tuple(row.tolist()) for batch in training.batches(train, 50, 24) for row in padded(batch.inputs, 32)]
    assert len(rows) == 1200
    everything = {tuple(row.tolist()) for row in padded(train.inputs, 32)}
    assert set(rows[:600]) == set(rows[600:]) == everything
    assert rows[:600] != rows[600:], "in another order"


def padded(inputs, width):
    return F.pad(inputs, (0, width - inputs.size(1)))


def test_batches_of_a_size_that_does_not_divide_are_all_of_that_size(parts):
    torch.manual_seed(0)
    found = list(training.batches(parts["train"], 250, 7))
    assert [len(batch) for batch in found] == [250] * 7
    few = list(training.batches(parts["train"][:5], 16, 2))
    assert [len(batch) for batch in few] == [16, 16], "a set smaller than a batch is repeated"
    assert all(batch.mask.any(0).all() for batch in found), "no column that is all padding"


def test_the_batches_of_an_evaluation_do_not_matter(parts):
    model = bag(dropout=0.5)
    model.train()
    one, many = (training.logits(model, parts["test"], batch_size) for batch_size in (7, 1000))
    assert model.training, "the mode is put back"
    assert torch.allclose(one, many, atol=1e-6)
    assert one.shape == (400, 2)
    assert torch.equal(training.predict(model, parts["test"]), many.argmax(1))
    right = sum(a == b for a, b in zip(many.argmax(1).tolist(), parts["test"].labels.tolist(), strict=True))
    assert training.evaluate(model, parts["test"]) == right / 400
    assert not one.requires_grad


def test_the_bar_shows_how_it_goes(parts, capsys):
    fit(bag(), parts, steps=4, every=2, progress=True)
    shown = capsys.readouterr().err
    assert "4/4" in shown
    assert "validation=0." in shown
    fit(bag(), parts, steps=4, every=2)
    assert capsys.readouterr().err == ""
