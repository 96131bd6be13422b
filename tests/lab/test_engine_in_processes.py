"""The engine in two processes, connected by Gloo: what they learn together is what one learns from the same batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.lab.test_distributed import torchrun
from transformer_lab import distributed, translation
from transformer_lab.data import default_corpus, pad

CONFIG = translation.Config(
    d_model=16, num_heads=2, d_ff=32, num_layers=1, batch_tokens=300, rate=0.005, warmup=4, steps=8
)


def translator():
    """Small, and in float64, so that sums in another order show no difference."""
    one = translation.Translator(translation.Task.of(default_corpus(200, 20, 0)), CONFIG)
    one.model.double()
    return one


def train(folder, ranks, *stops):
    """Train up to each of the stops in turn, resumed from the checkpoint in between: the history and the weights."""
    for stop in stops:
        one = translator()
        trainer = one.trainer(folder, every=2, samples=0, ranks=ranks, say=lambda text: None)
        trainer.resume()
        trainer.train(steps=stop, progress=False)
    trainer._use_last()
    losses = [[row["step"], row["loss"], row["tokens"]] for row in trainer.history]
    return losses, {name: p.detach().clone() for name, p in one.model.named_parameters()}, trainer


def worker(folder):
    """What each of the two processes runs; the first writes what came out."""
    torch.set_num_threads(1)
    with distributed.group() as ranks:
        losses, weights, trainer = train(folder, ranks, 4, 8)
        if ranks.first:
            torch.save({"weights": weights, "scored": "exact" in trainer.history[0]}, f"{folder}/out.pt")
        Path(folder, f"losses-{ranks.rank}.json").write_text(json.dumps(losses))


class Merged:
    """Batches of one process, each the two that two processes would have in a step."""

    def __init__(self, batches):
        self.batches = batches

    def epoch(self, number):
        both = [self.batches(rank).epoch(number) for rank in (0, 1)]
        return [
            tuple(pad([row.tolist() for side in sides for row in side]) for sides in zip(*pair, strict=True))
            for pair in zip(*both, strict=True)
        ]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    script = folder / "own.py"
    script.write_text(f"from tests.lab.test_engine_in_processes import worker\nworker({str(folder)!r})\n")
    torchrun(str(script))
    return folder


def test_two_processes_learn_what_one_learns_and_go_on_where_they_stopped(together):
    one = translator()

    def share(rank):
        return translation.Batches(one.task, 0, tokens=CONFIG.batch_tokens, rank=rank, world=2)

    trainer = one.trainer(every=2, samples=0)
    trainer.batches = Merged(share)
    trainer.train(steps=8, progress=False)
    trainer._use_last()
    found = torch.load(together / "out.pt")
    wanted = {name: p.detach() for name, p in one.model.named_parameters()}
    torch.testing.assert_close(found["weights"], wanted, rtol=1e-6, atol=1e-9)
    losses = json.loads((together / "losses-0.json").read_text())
    for (step, loss, tokens), row in zip(losses, trainer.history, strict=True):
        assert (step, tokens) == (row["step"], row["tokens"])
        assert loss == pytest.approx(row["loss"], rel=1e-9)
    assert found["scored"]


def test_every_process_knows_the_mean_over_all(together):
    first, second = ((together / f"losses-{rank}.json").read_text() for rank in (0, 1))
    assert first == second


def test_a_checkpoint_of_two_processes_is_refused_by_one(together):
    with pytest.raises(ValueError, match="one of 2 processes and this run has 1"):
        translator().trainer(together, samples=0).resume()


def test_they_draw_other_dropout(together):
    states = torch.load(together / "checkpoint.pt")["random"]
    assert not torch.equal(states[0]["torch"], states[1]["torch"])
