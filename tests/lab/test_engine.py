"""The training engine: what a run leaves behind, however it ends."""

from __future__ import annotations

import errno
import math
import os
import random
import signal

import numpy as np
import pytest
import torch
from torch import nn

from transformer_lab import translation
from transformer_lab.data import default_corpus
from transformer_lab.engine import CHECKPOINT, Trainer, TrainingFailed


class Lines:
    """Ten batches of points on a line, other ones each epoch."""

    def epoch(self, number):
        generator = torch.Generator().manual_seed(number)
        xs = torch.rand(10, 8, 1, generator=generator)
        return [(x, 3 * x - 1) for x in xs]


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))


def loss(net, batch):
    x, y = batch
    noise = random.random() + np.random.rand()  # noqa: NPY002 - the global generators are part of a checkpoint
    return ((net(x) - y) ** 2).mean() * (1 + 0.01 * noise), x.size(0)


def score(net):
    x = torch.linspace(0, 1, 20).unsqueeze(1)
    return {"closeness": -float(((net(x) - (3 * x - 1)) ** 2).mean())}


def trainer(folder=None, **settings):
    net = model()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    given = {
        "loss": loss,
        "batches": Lines(),
        "optimiser": torch.optim.Adam(net.parameters()),
        "schedule": lambda step: 0.05 / math.sqrt(step),
        "evaluate": score,
        "every": 10,
        "folder": folder,
        "say": lambda text: None,
    }
    return Trainer(net, **(given | settings))


def train(one, **how):
    return one.train(progress=False, **how)


def last_weights(one):
    one._use_last()
    return [p.detach().clone() for p in one.model.parameters()]


def same(ones, others):
    return all(torch.equal(a, b) for a, b in zip(ones, others, strict=True))


def test_it_learns_and_writes_down_how():
    one = trainer()
    history = train(one, steps=150)
    assert [row["step"] for row in history] == list(range(10, 151, 10))
    assert history[-1]["loss"] < history[0]["loss"] / 2
    assert history[-1]["lr"] == pytest.approx(0.05 / math.sqrt(150))
    assert history[-1]["tokens"] == 150 * 8
    assert history[-1]["seconds"] > 0
    assert set(history[0]) == {"step", "loss", "lr", "tokens", "seconds", "closeness"}


def test_the_model_ends_with_its_best_weights_in_evaluation_mode():
    scores = iter([{"s": 1.0}, {"s": 3.0}, {"s": 2.0}])
    one = trainer(evaluate=lambda net: next(scores))
    train(one, steps=30)
    other = trainer(evaluate=None)
    train(other, steps=20)
    assert one.best_step == 20
    assert same(one.model.parameters(), other.model.parameters())
    assert not one.model.training


@pytest.mark.parametrize("stop", [7, 10, 23])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, stop):
    whole = trainer()
    train(whole, steps=40)
    first = trainer(tmp_path)
    train(first, steps=stop)
    torch.rand(5), random.random(), np.random.rand()  # noqa: NPY002 - whatever happens in between
    second = trainer(tmp_path)
    torch.manual_seed(99)
    assert second.resume()
    assert second.step == stop
    train(second, steps=40)
    assert same(last_weights(second), last_weights(whole))
    assert second.best_score >= whole.best_score
    assert second.tokens == whole.tokens


def test_a_second_call_goes_on_from_the_last_weights_and_not_from_the_best():
    falling = iter(range(0, -100, -1))
    one = trainer(evaluate=lambda net: {"s": next(falling)})
    train(one, steps=20)
    train(one, steps=40)
    whole = trainer(evaluate=None)
    train(whole, steps=40)
    assert same(last_weights(one), last_weights(whole))


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path):
    assert not trainer(tmp_path).resume()
    assert not trainer().resume()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut off"])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be resumed .*delete it to begin again"):
        trainer(tmp_path).resume()


def test_another_models_checkpoint_is_refused(tmp_path):
    train(trainer(tmp_path), steps=10)
    other = nn.Linear(3, 3)
    one = trainer(tmp_path)
    one.model = other
    with pytest.raises(ValueError, match="cannot be resumed"):
        one.resume()


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    one = trainer(tmp_path)
    train(one, steps=10)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = []
    one.say = said.append
    train(one, steps=20)
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
    assert "Step 20 could not be written down (No space left on device): the earlier checkpoint is kept" in said[0]
    monkeypatch.undo()
    train(one, steps=30)
    again = trainer(tmp_path)
    assert again.resume()
    assert again.step == 30


def test_control_c_stops_behind_the_step_and_keeps_the_best_weights(tmp_path):
    said = []
    steps = []

    def counted(net, batch):
        steps.append(1)
        if len(steps) == 25:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(net, batch)

    one = trainer(tmp_path, loss=counted, say=said.append)
    before = signal.getsignal(signal.SIGINT)
    train(one, steps=1000)
    assert one.step == 25
    assert "Stopped after step 25" in said[-1]
    assert signal.getsignal(signal.SIGINT) is before
    whole = trainer()
    train(whole, steps=40)
    resumed = trainer(tmp_path)
    assert resumed.resume()
    assert resumed.step == 25
    train(resumed, steps=40)
    assert same(last_weights(resumed), last_weights(whole))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_is_ignored_stays_ignored(name):
    """As Ctrl-C is in what a shell runs in the background, and both in what ``nohup`` or a supervisor shields."""
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        one = trainer(loss=lambda net, batch: os.kill(os.getpid(), number) or loss(net, batch))
        train(one, steps=3)
        assert one.step == 3
        assert not one.stopped
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_loss_that_is_no_number_ends_in_words_that_say_where():
    calls = []

    def breaks(net, batch):
        calls.append(1)
        if len(calls) == 25:
            with torch.no_grad():
                net[0].weight[0] = torch.nan
        return loss(net, batch)

    one = trainer(loss=breaks)
    with pytest.raises(TrainingFailed, match=r"nan at step 25.* 0\.weight .*of step \d+ are kept"):
        train(one, steps=100)
    assert all(p.isfinite().all() for p in one.model.parameters())


def test_the_layer_that_overflows_first_is_named():
    class Overflow(nn.Module):
        def forward(self, x):
            return torch.exp(x + 1000)

    net = nn.Sequential(nn.Linear(1, 4), Overflow(), nn.Linear(4, 1))
    one = trainer(evaluate=None)
    one.model = net
    with pytest.raises(TrainingFailed, match=r"first layer to give such a number is 1\. .*no earlier weights"):
        train(one, steps=3)


def test_minutes_are_enough_to_stop():
    one = trainer(evaluate=None)
    train(one, minutes=0.01)
    assert one.step > 0


def test_a_budget_is_asked_for():
    with pytest.raises(ValueError, match="how long"):
        trainer().train()


def test_an_empty_epoch_is_no_endless_loop():
    class Nothing:
        def epoch(self, number):
            return []

    with pytest.raises(ValueError, match="nothing to train on"):
        train(trainer(batches=Nothing()), steps=3)


def test_the_bar_tells_speed_and_time_left(capsys):
    trainer(evaluate=None).train(steps=10)
    err = capsys.readouterr().err
    assert "tokens/s" in err
    assert "10/10" in err


@pytest.mark.long
def test_a_compiled_model_is_compiled_once_for_all_lengths_and_learns_the_same():
    import torch._dynamo

    config = translation.Config(d_model=16, num_heads=2, d_ff=32, num_layers=1, batch_tokens=200, rate=0.005, steps=12)
    task = translation.Task.of(default_corpus(300, 10, 0))

    def learn(compiled):
        one = translation.Translator(task, config)
        run = one.trainer(every=2, samples=0, compiled=compiled)
        run.evaluate = None
        run.train(steps=12, progress=False)
        return run

    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    found, wanted = learn(True), learn(False)
    assert 1 <= counters["stats"]["unique_graphs"] <= 4, "a graph for each shape would be one for each batch"
    shapes = {batch[0].shape for batch in found.batches.epoch(0)}
    assert len(shapes) > 8
    for own, other in zip(found.history, wanted.history, strict=True):
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-3)
