"""A training that is disturbed loses nothing: one sentence, a checkpoint, and in the end the bits of an undisturbed one.

The real command runs in processes of its own, where the fault happens: too little memory, a full disk, Ctrl-C, the notice
before a machine is taken away, and the end without notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.lab.trainings import DISK, EVERY, STEPS
from transformer_lab import logs
from transformer_lab.pieces import COURSE_ROOT

WEIGHTS, CHECKPOINT, HISTORY = "translator.safetensors", "checkpoint.pt", "history.csv"
KEPT = {WEIGHTS, "translator.json", HISTORY}


class Trainings:
    """The process that trains, and what a training has left behind."""

    def __init__(self, folder: Path):
        self.folder = folder / "run"
        self.folder.mkdir()
        command = [sys.executable, "-m", "tests.lab.trainings", str(self.folder)]
        small = [shutil.which("bwrap") or "bwrap", "--dev-bind", "/", "/", "--die-with-parent"]
        small += ["--size", str(DISK), "--tmpfs", str(self.folder)]
        #: Whether the folder is a real disk of few bytes; where none can be had, files of few bytes take its place.
        self.on_small_disk = subprocess.run([*small, "true"], capture_output=True).returncode == 0
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(COURSE_ROOT)}
        self.process = subprocess.Popen(
            [*small, *command] if self.on_small_disk else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=COURSE_ROOT,
            env=environment,
        )

    def train(
        self, *words: str, resume: bool = False, faults=(), killed_after: float | None = None, steps: int = STEPS
    ):
        """Run ``train``; what has come of it."""
        order = ["train", "--steps", steps, "--every", EVERY, "--threads", 1, *words, *(["--resume"] * resume)]
        self._send({"words": list(map(str, order)), "faults": list(faults)})
        pid = self._read()["pid"]
        if killed_after is not None:
            time.sleep(killed_after)
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(pid, signal.SIGKILL)
        return self._read()

    def clean(self):
        self._send({"words": [], "faults": [["clean", {}]]})
        self._read(), self._read()

    def _send(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def _read(self):
        line = self.process.stdout.readline()
        assert line, "the process that trains has ended"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    one = Trainings(tmp_path_factory.mktemp("trainings"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def whole(trainings):
    """What an undisturbed training leaves behind."""
    trainings.clean()
    result = trainings.train()
    assert result["status"] == 0, result["err"]
    assert set(result["files"]) == KEPT
    scores = {row["step"]: row["exact"] for row in rows(result)}
    assert max(scores, key=scores.get) < STEPS, (
        "the best weights are not the last ones, so that both must be remembered"
    )
    return result | {"best": max(scores, key=scores.get)}


@pytest.fixture
def train(trainings, whole):
    trainings.clean()
    return trainings.train


def rows(result):
    """The history as it lay in the folder, which is another process's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, HISTORY)
        path.write_text(result["history"], encoding="utf-8")
        return logs.read(path)


def sentences(result) -> str:
    """What was said about the trouble: no traceback, and no bar."""
    assert "Traceback" not in result["err"], result["err"]
    return result["out"] + "\n".join(line for line in result["err"].splitlines() if "step/s" not in line)


def is_as_good_as(result, whole, began_anew: bool = False) -> None:
    """The same weights to the last bit, nothing half written, and every step once in the history."""
    assert result["status"] == 0, result["err"]
    # Of runs that left no checkpoint, each set aside the rows of the one before it.
    set_aside = {name for name in result["files"] if began_anew and re.fullmatch(r"history\.\d+\.csv", name)}
    assert KEPT <= set(result["files"]) <= KEPT | set_aside
    assert result["files"][WEIGHTS] == whole["files"][WEIGHTS]
    steps = [row["step"] for row in rows(result)]
    assert steps == sorted(set(steps))
    wanted = {row["step"]: row["exact"] for row in rows(whole)}
    assert {row["step"]: row["exact"] for row in rows(result) if "exact" in row} == wanted


def goes_on(train, disturbed, whole) -> None:
    """The next run goes on from the checkpoint, or begins anew where there is none; it ends as the undisturbed one."""
    there = CHECKPOINT in disturbed["files"]
    is_as_good_as(train(resume=there), whole, began_anew=not there)


# ------------------------------------------------------------------------------------------------------------ signals


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("SIGINT", 6),
        ("SIGTERM", "best"),
        *(pytest.param(name, step, marks=LONG) for name in ("SIGINT", "SIGTERM") for step in (1, 7, EVERY)),
    ],
)
def test_a_request_to_end_is_obeyed_behind_the_step(train, whole, name, step):
    step = whole["best"] if step == "best" else step
    stopped = train(faults=[["receive", {"name": name, "steps": [step]}]])
    assert stopped["status"] == 130
    assert f"Stopped after step {step}; the model has the weights of" in sentences(stopped)
    assert "Go on with: --resume" in stopped["out"]
    assert CHECKPOINT in stopped["files"]
    is_as_good_as(train(resume=True), whole)


def test_a_second_request_ends_at_once_and_leaves_the_last_checkpoint(train, whole):
    stopped = train(
        faults=[["receive", {"name": "SIGINT", "steps": [6]}], ["receive", {"name": "SIGINT", "steps": [6]}]]
    )
    assert stopped["status"] == 130
    assert "Stopped." in sentences(stopped)
    is_as_good_as(train(resume=True), whole)


@pytest.mark.long
def test_many_interruptions_are_as_none(train, whole):
    resume = False
    for _ in range(5):
        stopped = train(resume=resume, faults=[["receive", {"name": "SIGTERM", "steps": [3]}]])
        assert stopped["status"] == 130
        resume = True
    is_as_good_as(train(resume=True), whole)


# --------------------------------------------------------------------------------------------------- killed, power cut


@pytest.mark.parametrize(
    ("call", "number", "after"),
    [
        ("fsync", 4, True),
        ("replace", 3, False),
        *(
            pytest.param(call, number, after, marks=LONG)
            for call, number in (
                ("fsync", 1),
                ("fsync", 2),
                ("replace", 1),
                ("replace", 2),
                ("replace", 4),
                ("unlink", 4),
            )
            for after in (False, True)
        ),
    ],
)
def test_killed_around_any_write_it_goes_on(train, whole, call, number, after):
    died = train(faults=[["die", {"call": call, "number": number, "after": after}]])
    assert died["status"] == -signal.SIGKILL
    goes_on(train, died, whole)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("file", [1, 2])
def test_killed_around_the_last_files_it_goes_on(train, whole, file, after):
    """The weights and the description, when the last checkpoint is there."""
    before = STEPS // EVERY + 1  # checkpoints, and one for the first row of the history
    died = train(faults=[["die", {"call": "replace", "number": before + file, "after": after}]])
    assert died["status"] == -signal.SIGKILL
    assert CHECKPOINT in died["files"]
    assert ("translator.json" in died["files"]) == (file == 2 and after)
    is_as_good_as(train(resume=True), whole)


def _killed_at_random(train, whole, kills, seed):
    generator, seconds, there, anew = random.Random(seed), 1.0, False, True
    for _ in range(kills):
        began = time.monotonic()
        result = train(resume=there, killed_after=generator.uniform(0, seconds))
        if result["status"] == 0:  # it was faster; the next ones are killed earlier
            seconds = max(0.05, 0.7 * (time.monotonic() - began))
            break
        assert result["status"] == -signal.SIGKILL, result["err"]
        there = CHECKPOINT in result["files"]
        anew &= not there
    result = result if result["status"] == 0 else train(resume=there)
    is_as_good_as(result, whole, began_anew=True)


def test_killed_at_random_moments_it_goes_on(train, whole):
    _killed_at_random(train, whole, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_very_many_random_moments_it_goes_on(train, whole, seed):
    _killed_at_random(train, whole, kills=10, seed=seed)


# ------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("error", ["torch", pytest.param("python", marks=LONG)])
def test_a_batch_that_is_too_large_goes_in_parts(train, whole, error):
    result = train(faults=[["need", {"steps": [6], "error": error}]])
    assert result["status"] == 0
    assert "Step 6 needs more memory than there is: batches go in 2 parts now." in sentences(result)
    losses = [[row["loss"] for row in rows(one)] for one in (result, whole)]
    assert losses[0][0] == losses[1][0]
    assert losses[0][-1] == pytest.approx(losses[1][-1], rel=0.1), "dropout draws others from then on"


@pytest.mark.parametrize("step", [11, pytest.param(2, marks=LONG)])
def test_too_little_memory_for_a_sentence_ends_in_a_sentence(train, whole, step):
    ended = train(faults=[["need", {"steps": list(range(step, 1000))}]])
    assert ended["status"] == 1
    told = sentences(ended)
    assert f"The memory does not suffice for step {step}" in told
    assert ("has everything up to step 8" in told) == (step == 11)
    goes_on(train, ended, whole)


def test_too_little_memory_for_an_evaluation_loses_nothing(train, whole):
    ended = train(faults=[["need_in_evaluation", {"number": 3}]])
    assert "memory" in sentences(ended)
    if ended["status"]:
        ended = train(resume=True)
    is_as_good_as(ended, whole)


# --------------------------------------------------------------------------------------------------------------- disk


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_only(train, whole):
    result = train(faults=[["fill", {"steps": [6]}], ["empty", {"steps": [14]}]])
    told = sentences(result)
    for step in (8, 12):
        assert f"Step {step} could not be written down" in told
    assert "the earlier checkpoint is kept, and training goes on" in told
    assert "Step 16" not in told
    is_as_good_as(result, whole)


@pytest.mark.long
def test_a_run_that_is_killed_while_the_disk_is_full_goes_on_from_the_checkpoint_before(train, whole):
    died = train(faults=[["fill", {"steps": [6]}], ["receive", {"name": "SIGKILL", "steps": [15]}]])
    assert died["status"] == -signal.SIGKILL
    assert CHECKPOINT in died["files"]
    is_as_good_as(train(resume=True), whole)


def test_stopped_on_a_full_disk_it_says_so_and_goes_on_later(train, whole):
    stopped = train(faults=[["fill", {"steps": [6]}], ["receive", {"name": "SIGTERM", "steps": [7]}]])
    told = sentences(stopped)
    assert stopped["status"] != 0
    assert "Step 7 could not be written down" in told
    is_as_good_as(train(resume=True), whole)


@pytest.mark.parametrize("step", [STEPS, pytest.param(1, marks=LONG)])
def test_a_disk_that_is_full_at_the_end_is_said_and_the_run_goes_on_later(train, whole, step):
    ended = train(faults=[["fill", {"steps": [step]}]])
    told = sentences(ended)
    assert ended["status"] == 1
    assert f"Step {STEPS} could not be written down" in told
    assert "could not be written to" in told
    assert ("--resume" in told) == (step > EVERY), "there must be something to go on from"
    goes_on(train, ended, whole)
