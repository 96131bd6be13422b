"""The comparison of chapter 9: the committed rows are all there, made by this code, and a slice of them comes out again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transformer_lab import results, translation
from transformer_lab.data import default_corpus
from transformer_lab.measurements import translators, translators_warmup


@pytest.fixture(scope="module")
def rows():
    return results.load("translators").select()


@pytest.fixture(scope="module")
def task():
    return translation.Task.default(fresh=False)


def test_every_kind_and_seed_has_its_row(rows):
    assert [(row["kind"], row["seed"]) for row in rows] == [
        (k, s) for s in translators.SEEDS for k in translators.KINDS
    ]


def test_all_were_trained_alike(rows):
    assert {row["steps"] for row in rows} == {translators.CONFIG.steps}
    assert len({row["curve"][-1][0] for row in rows}) == 1
    sizes = [row["parameters"] for row in rows]
    assert max(sizes) / min(sizes) < 1.01


def test_the_numbers_of_a_row_agree(rows):
    total = len(default_corpus().test)
    for row in rows:
        assert sum(n for *_, n in row["by_length"]) == total
        assert sum(right for _, _, right, _ in row["by_length"]) == round(row["exact"] * total)
        assert row["curve"][-1][1] == pytest.approx(row["seconds"], abs=1.0)
        for stated, seconds in zip(translators.STATED, row["reached"], strict=True):
            assert (seconds is None) == all(share < stated for *_, share in row["curve"])


def test_parameters_lengths_and_the_diagonal_again(rows, task):
    test = task.corpus.test
    lengths = [[low, high, sum(low <= len(p.source) <= high for p in test)] for low, high in translators.LENGTHS]
    for row in rows:
        assert [[low, high, n] for low, high, _, n in row["by_length"]] == lengths
    for row in rows[: len(translators.KINDS)]:
        model = translators.translator(row["kind"], 0, task).model
        assert sum(p.numel() for p in model.parameters()) == row["parameters"]
    (diagonal,) = results.load("translators-alignment").select(seed=0, head="diagonal")
    # Whatever the model looks at, the diagonal is the corpus's own: a small one gives it as well.
    small = translation.Translator(task, replace(translators.CONFIG, d_model=8, num_heads=1, d_ff=8, num_layers=1))
    again = translators.alignment(small, test)
    assert again[-1]["share"] == diagonal["share"]


def test_every_head_of_every_transformer_has_its_share():
    config = translators.CONFIG
    heads = [*map(str, range(config.num_heads)), "mean"]
    expected = [(layer, head) for layer in range(config.num_layers) for head in heads] + [(-1, "diagonal")]
    for seed in translators.SEEDS:
        found = results.load("translators-alignment").select(seed=seed)
        assert [(row["layer"], row["head"]) for row in found] == expected
        assert all(0 < row["share"] < 1 for row in found)


@pytest.mark.long
def test_the_first_steps_again_give_the_committed_loss(rows, task):
    """250 steps of the GRU without attention, the quickest of the three."""
    (row,) = [row for row in rows if (row["kind"], row["seed"]) == ("gru", 0)]
    one = translators.translator("gru", 0, task)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    trainer = one.trainer(every=250, samples=0)
    trainer.evaluate = None
    try:
        history = trainer.train(steps=250, progress=False)
    finally:
        torch.set_num_threads(before)
    assert [250, pytest.approx(history[0]["loss"], abs=0.02)] == row["losses"][0]


def test_several_at_a_time_give_what_one_gives(tmp_path, monkeypatch):
    """A row is asked for once only, and what is there already is kept."""
    asked = []

    def fake(kind, seed, steps, progress=False):
        asked.append((kind, seed))
        return {"kind": kind, "seed": seed, "steps": steps, "exact": 0.5, "bleu": 50.0, "seconds": 1.0}, []

    class Here:
        def __init__(self, jobs, context):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def submit(self, function, *args, **kwargs):
            from concurrent.futures import Future

            done = Future()
            done.set_result(function(*args, **kwargs))
            return done

    monkeypatch.setattr(translators, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(translators, "run_one", fake)
    run = {"kinds": ("gru", "gru with attention"), "steps": 7, "say": lambda text: None, "folder": tmp_path}
    translators.run(seeds=(1,), **run)
    translators.run(seeds=(0, 1), jobs=2, **run)
    assert sorted(asked) == [(kind, seed) for kind in ("gru", "gru with attention") for seed in (0, 1)]
    found = results.load("translators", tmp_path).select()
    assert [(row["seed"], row["kind"]) for row in found] == [
        (seed, kind) for seed in (0, 1) for kind in ("gru with attention", "gru")
    ]
    monkeypatch.setattr(results, "digest", lambda path: "another")
    assert translators.fresh_rows("translators", translators.CODE, tmp_path) == []


# ------------------------------------------------------------------------------------------------------------- warm-up


def test_the_warm_up_runs_are_all_there():
    found = results.load("translators-warmup").select()
    assert [(row["norm_first"], row["warmup"]) for row in found] == list(translators_warmup.RUNS)
    assert all(row["losses"][-1][0] == row["steps"] for row in found)


def test_the_first_steps_of_a_warm_up_again():
    (row,) = results.load("translators-warmup").select(norm_first=False, warmup=translators_warmup.RUNS[0][1])
    again = translators_warmup.measure(False, row["warmup"], row["seed"], steps=translators_warmup.EVERY, sentences=1)
    assert again["losses"] == [[translators_warmup.EVERY, pytest.approx(row["losses"][0][1], abs=0.01)]]
