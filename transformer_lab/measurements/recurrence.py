"""How long a recurrent layer and a self-attention layer take over growing lengths.

    python -m transformer_lab.measurements.recurrence --device cpu

writes ``results/recurrence-cpu.json``, one row for each layer, length, phase and number of threads. All layers read and
write vectors of one width, one sequence at a time, in float32: ``nn.RNN`` (tanh), ``nn.LSTM``, and the three bias-free
projections of one attention head followed by ``F.scaled_dot_product_attention``.

On one CPU thread the clock is the processor's time for this process, so that other programs don't count; on several
threads and on a GPU it is the clock on the wall, and the machine should be idle.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import results

WIDTH = 256
LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LAYERS = ("rnn", "lstm", "attention")
PHASES = ("forward", "training")
#: A layer that takes less than this is called several times per measurement.
SHORTEST = 0.01


class Attention(nn.Module):
    """One head of self-attention as wide as its input, (B, L, D) → (B, L, D), by PyTorch's own operator."""

    def __init__(self, width: int):
        super().__init__()
        self.projections = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.projections(x).chunk(3, dim=-1))


def make(layer: str, width: int) -> nn.Module:
    """The layer of that name, (1, L, width) → (1, L, width), fresh from PyTorch's generator."""
    if layer == "attention":
        return Attention(width)
    return {"rnn": nn.RNN, "lstm": nn.LSTM}[layer](width, width, batch_first=True)


def multiplications(layer: str, length: int, width: int) -> int:
    """Multiplications in the matrix products of one forward pass."""
    if layer == "attention":
        return 3 * length * width**2 + 2 * length**2 * width
    return {"rnn": 1, "lstm": 4}[layer] * 2 * length * width**2


def run(module: nn.Module, x: Tensor, phase: str) -> None:
    """One forward pass without a graph, or one forward and backward pass down to parameters and input."""
    if phase == "forward":
        with torch.no_grad():
            module(x)
        return
    output = module(x)
    output = output[0] if isinstance(output, tuple) else output
    output.sum().backward()


def measure(
    device: str = "cpu",
    *,
    threads: int = 1,
    lengths: Sequence[int] = LENGTHS,
    width: int = WIDTH,
    repeats: int = 20,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """One row for each layer, length and phase: the shortest and the middle one of ``repeats`` times, in seconds.

    The layers take turns, so that a disturbance meets all of them; the shortest time is the least disturbed one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(seed)
        modules = {layer: make(layer, width).to(device) for layer in LAYERS}
        rows = []
        for length in lengths:
            x = torch.randn(1, length, width, device=device, requires_grad=True)
            cases = [(layer, phase) for phase in PHASES for layer in LAYERS]
            calls = {}
            for layer, phase in cases:  # the first call pays for what is set up once
                _time(modules[layer], x, phase, 1)
                calls[layer, phase] = max(1, round(SHORTEST / _time(modules[layer], x, phase, 1)))
            times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
            for _ in range(repeats):
                for layer, phase in cases:
                    times[layer, phase].append(_time(modules[layer], x, phase, calls[layer, phase]))
            for layer, phase in cases:
                ordered = sorted(times[layer, phase])
                rows.append(
                    {
                        "layer": layer,
                        "length": length,
                        "width": width,
                        "phase": phase,
                        "threads": threads,
                        "multiplications": multiplications(layer, length, width),
                        "seconds": float(f"{ordered[0]:.4g}"),
                        "median_seconds": float(f"{ordered[len(ordered) // 2]:.4g}"),
                    }
                )
            say(f"{device}, threads {threads}, length {length}: done")
        return rows
    finally:
        torch.set_num_threads(before)


def _time(module: nn.Module, x: Tensor, phase: str, calls: int) -> float:
    """Seconds per call."""
    alone = not x.is_cuda and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    _wait(x)
    started = clock()
    for _ in range(calls):
        run(module, x, phase)
    _wait(x)
    return (clock() - started) / calls


def _wait(x: Tensor) -> None:
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab.measurements.recurrence",
        description="Time an RNN, an LSTM and self-attention over growing lengths; write results/recurrence-<device>.json.",
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="numbers of CPU threads (default: 1)")
    parser.add_argument("--repeats", type=int, default=20, help="measurements of each case (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    threads = [1] if torch.device(options.device).type == "cuda" else options.threads
    rows = [
        row
        for number in threads
        for row in measure(
            options.device,
            threads=number,
            repeats=options.repeats,
            seed=options.seed,
            say=lambda text: print(text, file=sys.stderr),
        )
    ]
    path = results.save(
        f"recurrence-{torch.device(options.device).type}",
        rows,
        command=f"python -m transformer_lab.measurements.recurrence --device {torch.device(options.device).type}",
        code=[__file__],
        seed=options.seed,
        machine=results.describe_machine(options.device),
    )
    print(f"{len(rows)} rows in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
