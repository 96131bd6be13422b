"""Several processes train as one does: two of them, connected by Gloo, on a processor."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lab import accumulation, distributed
from transformer_lab.data import PAD
from transformer_lab.distributed import Ranks
from transformer_lab.pieces import COURSE_ROOT
from transformer_lab.token_batches import TokenBatches

SEED, BUDGET, STEPS = 3, 60, 3


def pairs():
    """Pairs of very different lengths, so that the processes' batches have different numbers of tokens."""
    draw = torch.Generator().manual_seed(SEED)
    lengths = torch.randint(1, 20, (60, 2), generator=draw)
    return [tuple(torch.randint(1, 9, (int(n),), generator=draw).tolist() for n in row) for row in lengths]


def model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9)).double()


def loss(net, batch):
    _, target = batch
    return F.cross_entropy(net(target).flatten(0, 1), target.flatten(), ignore_index=PAD), (target != PAD).sum()


def train(ranks, net, groups):
    """A few steps, each with the parts of one group: the losses, and the weights at the end."""
    losses = []
    for parts in groups:
        mean, _ = distributed.accumulate(ranks, net, loss, parts)
        losses.append(float(mean))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.5 * parameter.grad
    return losses, [parameter.detach().clone() for parameter in net.parameters()]


def groups(rank, world, each):
    """The parts of this process for each step, ``each`` of them a step; together they are the same for any ``world``."""
    batches = TokenBatches(pairs(), BUDGET, seed=SEED, rank=rank, world=world).epoch(0)
    return [[batches[i] for i in range(step * each, (step + 1) * each)] for step in range(STEPS)]


def worker(path):
    """What each of two processes runs; the first writes what came out."""
    torch.set_num_threads(1)
    with distributed.group() as ranks:
        net = ranks.wrap(model(seed=ranks.rank))  # the second process's own weights are replaced by the first's
        losses, weights = train(ranks, net, groups(ranks.rank, ranks.world, each=2))
        torch.manual_seed(ranks.seed(SEED))
        noise = torch.rand(2, 1, dtype=torch.float64)[ranks.rank]
        others = ranks.sum(torch.zeros(2, dtype=torch.float64).index_fill_(0, torch.tensor(ranks.rank), float(noise)))
        if ranks.first:
            torch.save({"losses": losses, "weights": weights, "noise": others}, path)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def torchrun(*words, seconds=240):
    """Run a program in two processes to its good end; those that wait for each other are ended with it. What it said."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    process = subprocess.Popen(
        [*command, *words],
        env=os.environ | {"PYTHONPATH": str(COURSE_ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, error
    return out


def test_two_processes_give_what_one_gives(tmp_path):
    path = tmp_path / "out.pt"
    script = f"from tests.lab.test_distributed import worker; worker({str(path)!r})"
    here = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "PYTHONPATH": str(COURSE_ROOT),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | here | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        for process in processes:
            _, error = process.communicate(timeout=120)
            assert process.returncode == 0, error
    finally:
        for process in processes:
            process.kill()
    found = torch.load(path)
    alone = train(Ranks(), model(seed=0), groups(0, 1, each=4))
    torch.testing.assert_close(torch.tensor(found["losses"]), torch.tensor(alone[0]))
    torch.testing.assert_close(found["weights"], alone[1])
    assert len(found["noise"].unique()) == 2


@pytest.mark.long
def test_torchrun_starts_them(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(
        textwrap.dedent(f"""
            from tests.lab.test_distributed import worker
            worker({str(tmp_path / "out.pt")!r})
        """)
    )
    torchrun(str(script), seconds=300)
    assert len(torch.load(tmp_path / "out.pt")["losses"]) == STEPS


def test_one_process_accumulates_as_without_a_group():
    one, other = model(0), model(0)
    parts = groups(0, 1, each=3)[0]
    with distributed.group() as ranks:
        assert ranks == Ranks()
        assert ranks.wrap(one) is one
        mean, tokens = distributed.accumulate(ranks, one, loss, parts)
    wanted, count = accumulation.accumulate(other, loss, parts)
    assert int(tokens) == int(count)
    torch.testing.assert_close(mean, wanted)
    torch.testing.assert_close([p.grad for p in one.parameters()], [p.grad for p in other.parameters()])
    with pytest.raises(ValueError, match="at least one part"):
        distributed.accumulate(Ranks(), one, loss, [])


def test_seeds_differ_between_processes_and_the_first_keeps_its_own():
    assert Ranks().seed(7) == 7
    assert len({Ranks(rank, 0, 8).seed(7) for rank in range(8)}) == 8


def test_the_environment_says_which_process_this_is():
    assert Ranks.of({}) == Ranks()
    assert Ranks.of({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}) == Ranks(3, 1, 4)
    assert not Ranks(3, 1, 4).first
    with pytest.raises(ValueError, match="no process 4"):
        Ranks.of({"RANK": "4", "WORLD_SIZE": "4"})
