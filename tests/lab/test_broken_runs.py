"""The three broken runs: they load from anywhere, show what they should, and are what the command makes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from transformer_lab import broken_runs, results, translation
from transformer_lab.data import BOS, PAD
from transformer_lab.measurements import broken_runs as made

ROOT = Path(__file__).resolve().parents[2]
EVERY = ("healthy", *broken_runs.NAMES)
CAUSE_OF = {"A": "target shift", "B": "warm-up", "C": "leaking mask"}


@pytest.fixture(scope="module")
def runs():
    return {name: broken_runs.load(name) for name in broken_runs.NAMES} | {"healthy": broken_runs.healthy()}


def forced(run, labels_behind: int, causal: bool = True) -> float:
    """The loss on held-out sentences if the label of a place stands so many places behind what is given there."""
    source, target = run.batch(100)
    given, labels = target[:, :-1], target[:, labels_behind : target.size(1) - 1 + labels_behind]
    logits = run.logits(source, given, causal)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD).item()


def mean(run, key: str, first: int, last: int) -> float:
    rows = run.history[first - 1 : last]
    return sum(row[key] for row in rows) / len(rows)


def test_every_run_can_be_loaded(runs):
    for name, run in runs.items():
        assert run.name == name
        assert [row["step"] for row in run.history] == list(range(1, made.STEPS + 1))
        assert all(row["gradient_norm"] > 0 for row in run.history[:100])
        assert [row["step"] for row in run.history if "exact" in row] == list(range(100, made.STEPS + 1, 100))
        assert len(run.pairs) == 200
        assert not run.translator.model.training


def test_another_name_is_refused():
    with pytest.raises(KeyError, match="D"):
        broken_runs.load("D")
    with pytest.raises(KeyError):
        broken_runs.load("healthy")
    assert set(CAUSE_OF) == set(broken_runs.NAMES)
    assert set(CAUSE_OF.values()) | {"none of these"} == set(broken_runs.CAUSES)


def test_only_the_healthy_one_translates(runs):
    for name, run in runs.items():
        samples = run.samples(50)
        right = sum(wanted == said for _, wanted, said in samples)
        assert len(samples) == 50
        assert right >= 35 if name == "healthy" else right == 0
        assert run.history[-1]["exact"] == (pytest.approx(0.9, abs=0.05) if name == "healthy" else 0)


def test_samples_show_every_token(runs):
    assert all(said.split() == ["<bos>"] * len(said.split()) for _, _, said in runs["A"].samples(5))
    assert [said for _, _, said in runs["C"].samples(5)] == ["<eos>"] * 5
    for (source, wanted, _), pair in zip(runs["B"].samples(5), runs["B"].pairs, strict=False):
        assert (source, wanted) == (" ".join(pair.source), " ".join((*pair.target, "<eos>")))


def test_the_log_alone_tells_the_warm_up(runs):
    top = {name: max(row["lr"] for row in run.history) for name, run in runs.items()}
    assert top["A"] == top["C"] == top["healthy"] < top["B"] / 5
    last = {name: mean(run, "loss", 781, 800) for name, run in runs.items()}
    assert last["B"] > 2
    assert max(last["A"], last["C"]) < last["healthy"] < 0.1


def test_the_first_steps_tell_what_the_target_is(runs):
    """A new tied model wants to repeat: it is cheap at the start only for whoever asks it to."""
    first = {name: run.history[0]["loss"] for name, run in runs.items()}
    assert first["A"] < 2 < 5.5 < min(first["B"], first["C"], first["healthy"])


def test_an_experiment_for_each_cause(runs):
    right = {name: forced(run, 1) for name, run in runs.items()}
    assert right["healthy"] < 0.3
    assert min(right["A"], right["B"], right["C"]) > 1.5
    in_place = {name: forced(run, 0) for name, run in runs.items()}
    assert in_place["A"] < 0.01
    assert min(in_place["B"], in_place["C"]) > 1
    open_ = {name: forced(run, 1, causal=False) for name, run in runs.items()}
    assert open_["C"] < 0.2
    assert min(open_["A"], open_["B"]) > 1.5


def test_a_word_behind_moves_the_open_model_alone_where_it_may_look(runs):
    run = runs["C"]
    source, target = run.batch(1)
    given = target[:, :-1]
    other = given.clone()
    other[0, 4] = given[0, 1]
    for causal in (True, False):
        moved = (run.logits(source, other, causal) - run.logits(source, given, causal))[0].abs().amax(-1)
        assert (moved[:4].max() > 1e-3) == (not causal)
        assert moved[4] > 1e-3
    assert given[0, 0] == BOS


def test_logits_are_those_of_the_model(runs):
    run = runs["healthy"]
    source, target = run.batch(3)
    with torch.no_grad():
        assert torch.equal(run.logits(source, target), run.translator.model(source, target))


def test_the_files_are_those_of_the_result():
    rows = results.load("broken-runs").select()
    assert [row["run"] for row in rows] == list(EVERY)
    named = {name: digest for row in rows for name, digest in row["files"].items()}
    there = {path.name: made.digest(path.read_bytes()) for path in made.FOLDER.iterdir()}
    assert there == named
    assert max(path.stat().st_size for path in made.FOLDER.iterdir()) < 200_000
    for row in rows:
        run = broken_runs.healthy() if row["run"] == "healthy" else broken_runs.load(row["run"])
        assert sum(p.numel() for p in run.translator.model.parameters()) == row["parameters"]
        assert run.history[0]["loss"] == row["first_loss"]


def test_they_load_from_a_zip(tmp_path):
    """As on a hosted service, where the class's bundle is one file on the path."""
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        for path in (ROOT / "transformer_lab").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(ROOT))
    code = (
        f"import sys; sys.path.insert(0, {str(bundle)!r})\n"
        "from transformer_lab import broken_runs\n"
        "print(broken_runs.__file__, len(broken_runs.load('B').history))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert str(bundle) in done.stdout
    assert done.stdout.split()[-1] == "800"


@pytest.mark.long
def test_the_first_steps_come_out_again(runs):
    task = translation.Task.of(made.corpus())
    assert tuple(pair.source for pair in task.corpus.test) == tuple(pair.source for pair in runs["A"].pairs)
    for name, run in runs.items():
        rows, _ = made.train(name, task, steps=20)
        assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in run.history[:20]], rel=1e-3)
        assert [row["lr"] for row in rows] == [row["lr"] for row in run.history[:20]]
