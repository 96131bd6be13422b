"""What a training writes down is on the disk, once, whatever happens in between."""

from __future__ import annotations

import errno
import math
import os
import sys

import numpy as np
import pytest
import torch

from transformer_lab import logs
from transformer_lab.logs import CsvLog, TensorBoardLog


def row(step, **numbers):
    return {"step": step, "loss": 1 / (step + 3), **numbers}


def test_rows_come_back_to_the_last_bit(tmp_path):
    log = CsvLog(tmp_path / "new" / "log.csv")
    rows = [row(step, exact=math.pi * step, tokens=10**12 + step) for step in range(5)]
    for number, one in enumerate(rows, 1):
        log.write(one)
        assert logs.read(log.path) == rows[:number], "a row is in the file when write returns"
    assert log.path.read_text().splitlines()[0] == "step,loss,exact,tokens"
    assert type(logs.read(log.path)[0]["tokens"]) is int


def test_every_row_is_forced_to_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    log = CsvLog(tmp_path / "log.csv")
    for step in range(3):
        log.write(row(step))
        assert synced[-1] == log.path.stat().st_size
    assert len(synced) == 3


def test_new_and_missing_columns_lose_nothing(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    rows = [{"loss": 2.0, "step": 1}, row(2, exact=0.5), {"step": 3, "exact": 0.75}, row(4, **{'a "name", with': 1.5})]
    for one in rows:
        log.write(one)
    assert logs.read(log.path) == rows
    assert log.path.read_text().splitlines()[0] == 'step,loss,exact,"a ""name"", with"'
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_numbers_of_other_kinds_and_no_numbers(tmp_path):
    log = CsvLog(tmp_path / "log.csv")
    log.write({"step": torch.tensor(7), "a": np.float64(0.1), "b": np.int64(3), "c": torch.tensor(0.5), "d": math.nan})
    log.write({"step": 8, "a": math.inf})
    first, second = logs.read(log.path)
    assert math.isnan(first.pop("d"))
    assert first == {"step": 7, "a": 0.1, "b": 3, "c": 0.5}
    assert second == {"step": 8, "a": math.inf}
    with pytest.raises(ValueError, match="has a step, and this one only loss"):
        log.write({"loss": 1.0})


def test_a_resumed_run_has_no_step_twice(tmp_path):
    first = CsvLog(tmp_path / "log.csv")
    for step in (10, 20, 30):
        first.write(row(step))
    second = CsvLog(tmp_path / "log.csv")
    second.resume(20)
    assert [one["step"] for one in logs.read(second.path)] == [10, 20]
    second.write(row(30, late=1.0))
    second.write(row(40))
    assert logs.read(second.path) == [row(10), row(20), row(30, late=1.0), row(40)]
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_run_left_half_written_is_dropped(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n10,0.5\n20,0.2")
    (tmp_path / ".log.csv.new").write_text("step,loss\n10")
    assert logs.read(path) == [{"step": 10, "loss": 0.5}]
    log = CsvLog(path)
    log.resume(20)
    log.write({"step": 20, "loss": 0.25})
    assert logs.read(path) == [{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.25}]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "step,lo"])
def test_a_run_that_was_killed_before_its_first_row_goes_on(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_text(content)
    for log in (CsvLog(path), CsvLog(tmp_path / "nothing.csv")):
        log.resume(0)
        log.write(row(10))
        assert logs.read(log.path) == [row(10)]


def test_a_new_run_sets_the_file_of_an_old_one_aside(tmp_path):
    for run in range(3):
        log = CsvLog(tmp_path / "log.csv")
        log.write(row(10, run=run))
        log.write(row(20, run=run))
    kept = {path.name: logs.read(path)[0]["run"] for path in tmp_path.iterdir()}
    assert kept == {"log.1.csv": 0, "log.2.csv": 1, "log.csv": 2}


@pytest.mark.parametrize("columns", [{}, {"new": 1.0}])
def test_a_row_that_found_the_disk_full_comes_with_the_next(tmp_path, monkeypatch, columns):
    log = CsvLog(tmp_path / "log.csv")
    log.write(row(10))
    before = log.path.read_bytes()

    def full(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for step in (20, 30):
            with pytest.raises(OSError, match="No space"):
                log.write(row(step, **columns))
        with pytest.raises(OSError, match="No space"):
            log.close()
    assert log.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    log.write(row(40))
    log.close()
    assert logs.read(log.path) == [row(10), row(20, **columns), row(30, **columns), row(40)]


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "step,loss\n1,x\n", "step,loss\n1\n"])
def test_another_kind_of_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"log.csv is no log of a training"):
        CsvLog(path).resume(10)
    assert path.read_text() == content


# ------------------------------------------------------------------------------------------------------- TensorBoard


def shown(folder):
    """What TensorBoard itself would draw."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: [(p.step, p.value) for p in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_shows_a_curve_for_each_name_and_no_step_twice(tmp_path):
    first = TensorBoardLog(tmp_path)
    for step in (10, 20, 30):
        first.write({"step": step, "loss": step / 8, "exact": 0.5})
    first.close()
    assert shown(tmp_path) == {
        "loss": [(10, 1.25), (20, 2.5), (30, 3.75)],
        "exact": [(10, 0.5), (20, 0.5), (30, 0.5)],
    }
    second = TensorBoardLog(tmp_path)
    second.resume(20)
    second.write({"step": 30, "loss": 0.25})
    second.write({"step": 40, "loss": 0.125})
    second.close()
    assert shown(tmp_path)["loss"] == [(10, 1.25), (20, 2.5), (30, 0.25), (40, 0.125)]


def test_tensorboard_shows_a_new_run_without_the_old_one(tmp_path):
    for value in (1.0, 2.0):
        log = TensorBoardLog(tmp_path)
        log.write({"step": 10, "loss": value})
        log.close()
    assert shown(tmp_path)["loss"] == [(10, 2.0)]


def test_without_tensorboard_one_is_told_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoardLog(tmp_path)
