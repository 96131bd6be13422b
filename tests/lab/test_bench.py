"""The bench: what it counts, that its ways to train are one and the same training, and that it says what it found."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_lab import builtin, results, translation
from transformer_lab.commands import bench as command
from transformer_lab.data import PAD, default_corpus
from transformer_lab.devices import Capabilities, choose
from transformer_lab.measurements import bench

QUICK = bench.PLANS["quick"]
PLAIN = Capabilities(threads=2, fused=frozenset({"cpu"}))
NEW = Capabilities(cuda="H100", compute=(9, 0), fused=frozenset({"cuda", "cpu"}))
OLD = Capabilities(cuda="T4", compute=(7, 5), fused=frozenset({"cuda", "cpu"}))


@pytest.fixture(scope="module")
def rows():
    torch.set_num_threads(1)
    return bench.measure(QUICK, choose(PLAIN))


def test_each_row_has_one_change_more():
    names = [way.name for way in bench.staircase(choose(NEW), compiled=True)]
    assert names[:8] == [
        "pieces in float32", "TF32", "bfloat16", "fused attention", "batches by length", "torch.compile", "fused Adam",
        "4 times the batch",
    ]  # fmt: skip
    for machine in (NEW, OLD, PLAIN, Capabilities(mps=True)):
        ways = [way for way in bench.staircase(choose(machine)) if not way.reference]
        for before, after in itertools.pairwise(ways):
            changed = [k for k, v in vars(after).items() if k != "name" and v != getattr(before, k)]
            assert len(changed) == 1
            if changed == ["setting"]:
                own, other = vars(before.setting), vars(after.setting)
                assert {k for k in own if own[k] != other[k]} in ({"tf32"}, {"dtype"}, {"dtype", "scaled"}, {"fused"})


def test_what_a_device_cannot_do_has_no_row():
    def names(machine):
        return [way.name for way in bench.staircase(choose(machine))]

    assert "float16" in names(OLD)
    assert "TF32" not in names(OLD)
    assert not {"TF32", "bfloat16", "float16", "torch.compile"} & set(names(PLAIN))
    assert "fused Adam" not in names(Capabilities())
    assert not any(way.processes > 1 for way in bench.staircase(choose(PLAIN)))
    assert [way.name for way in bench.staircase(choose(PLAIN), processes=2) if way.processes > 1] == ["2 processes"]


def test_the_references_have_the_batches_of_the_first_and_of_the_last_row():
    ways = bench.staircase(choose(NEW))
    first, last = [way for way in ways if way.reference]
    steps = [way for way in ways if not way.reference]
    assert (first.bucketed, first.larger) == (steps[0].bucketed, steps[0].larger)
    assert (last.bucketed, last.larger) == (steps[-1].bucketed, steps[-1].larger)
    assert first.setting == steps[0].setting
    assert last.setting == replace(steps[-1].setting, fused=False)


@pytest.mark.parametrize(("s", "t", "layers"), [(5, 7, 1), (9, 4, 3)])
def test_the_formula_counts_what_pytorch_counts(s, t, layers):
    config = translation.Config(d_model=16, num_heads=2, d_ff=24, num_layers=layers)
    task = translation.Task.of(default_corpus(20, 2, 2))
    model = translation.build(config, task, builtin)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it does not know the fused kernels
        model(torch.full((1, s), 5), torch.full((1, t), 5))
    assert bench.model_flops(config, len(task.target), [s], [t]) == 3 * counter.get_total_flops()


def test_the_peak_is_that_of_the_largest_moment():
    x = torch.zeros(1000)  # 4000 bytes

    def action():
        y = x + x
        z = y + x
        del y
        return z + x

    assert bench.peak_memory("cpu", action) == 8000


def test_the_reference_is_the_same_function_with_the_same_gradients():
    plan = replace(QUICK, config=replace(QUICK.config, num_layers=2))
    prepared = bench.Prepared(plan, "builtin")
    prepared.model.double()
    with torch.no_grad():
        for parameter in prepared.model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    setting = choose(PLAIN)
    ways = (
        bench.Way("pieces", setting),
        bench.Way("fused", setting, fused=True),
        bench.Way("torch", setting, reference=True),
    )
    found = [bench.Contestant(way, prepared).beginning(prepared.batches[False, False][0]) for way in ways]
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-12)
        torch.testing.assert_close(gradients, found[0][1])
        assert gradients.norm() > 0.01
    with pytest.raises(ValueError, match="norm_first=True"):
        bench.TorchTransformer(prepared.model, replace(plan.config, norm_first=False))


@pytest.fixture
def team():
    """Two processes, and a contestant that does the same in this one."""
    prepared = bench.Prepared(QUICK, "builtin")
    alone = bench.Way("one process", choose(PLAIN), fused=True, bucketed=True)
    own = bench.Team(replace(alone, name="2 processes", processes=2), prepared)
    yield own, bench.Contestant(alone, prepared)
    own.close()
    assert not any(member.is_alive() for member in own._members)


def test_processes_share_every_batch_and_make_the_same_steps(team):
    common = team[0].prepared.batches[False, False][0]
    for steps in (2, 3):
        (loss, gradients), (other_loss, other_gradients) = (one.beginning(common) for one in team)
        assert loss == pytest.approx(other_loss, rel=1e-6)
        torch.testing.assert_close(gradients, other_gradients)
        for one in team:
            one.advance(1, steps)
    together, alone = (one.peak_memory() for one in team)
    assert alone < together < 2 * alone  # each has all of the weights and half of the batch
    for one in team:
        one.turn()
        assert one.rates[0] > 0


def test_a_process_that_fails_or_ends_is_told_of(team):
    team[0].prepared.name = "nowhere"
    own = bench.Team(team[0].way, team[0].prepared)
    with contextlib.closing(own), pytest.raises(RuntimeError, match=r"A process of “2 processes” failed: .*nowhere"):
        own.advance(0, 1)
    team[0].advance(0, 1)
    team[0]._members[0].kill()
    with pytest.raises(RuntimeError, match=r"A process of “2 processes” (failed|ended before its time)"):
        team[0].advance(0, 1)


def test_batches_hold_the_same_pairs_with_less_padding():
    task = translation.Task.of(default_corpus(400, 2, 2))
    pairs = [(task.source.encode(p.source), task.target.encode(p.target)) for p in task.corpus.train]
    fixed, bucketed = bench.fixed_batches(pairs, 16), bench.bucketed_batches(pairs, 16)

    def sentences(batches):
        return sorted(tuple(row[row != PAD].tolist()) for source, _ in batches for row in source)

    assert sentences(fixed) == sentences(bucketed)
    assert bench.padding(bucketed) < bench.padding(fixed) / 3
    real = [sum(int((ids != PAD).sum()) for batch in own for ids in batch) / len(own) for own in (fixed, bucketed)]
    assert real[1] == pytest.approx(real[0], rel=0.15)


def test_all_ways_are_one_training(rows):
    assert [row["part"] for row in rows] == ["training"] * 5 + ["reference"] * 2 + ["decoding"] * 4
    for row in rows[:7]:
        assert row["loss_difference"] < 1e-5
        assert row["gradient_difference"] < 1e-4
        assert 0 < row["utilisation"] < 1
        assert row["memory_mb"] > 0
    assert [row["other_sentences"] for row in rows[7:]] == [0.0] * 4
    assert rows[2]["padding"] < rows[0]["padding"] / 2
    assert all(row["slowest"] <= row["tokens_per_second"] <= row["fastest"] for row in rows)


def test_the_table_says_how_many_times_faster(rows):
    table = bench.lines(rows)
    assert all(len(line) == len(bench.HEADS) for line in table)
    assert table[0][3] == table[7][3] == table[9][3] == "1.00"
    assert table[4][3] == f"{rows[4]['tokens_per_second'] / rows[0]['tokens_per_second']:.2f}"
    assert table[8][3] == f"{rows[8]['tokens_per_second'] / rows[7]['tokens_per_second']:.2f}"


@pytest.mark.parametrize("rich", [True, False])
def test_the_command_prints_and_keeps_the_table(rows, rich, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *given, **how: rows)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    if not rich:
        monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--size", "quick", "--device", "cpu", "--no-compile"]
    assert command.run(parser.parse_args(words)) == 0
    printed = capsys.readouterr()
    assert "Computing on the processor" in printed.err
    assert "torch.nn.Transformer, last batches" in printed.out
    assert "greedy, with a cache" in printed.out
    kept = results.load("bench-cpu", tmp_path)
    assert kept.command == "python -m transformer_lab bench --size quick --device cpu --no-compile"
    assert [row["name"] for row in kept.select()] == [row["name"] for row in rows]
    assert command.run(parser.parse_args([*words, "--dry", "--dtype", "float16"])) == 2
    assert "take float32 or bfloat16" in capsys.readouterr().err
