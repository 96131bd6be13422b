"""Whether training notices that heads are merged by a bare reshape.

    python -m transformer_lab.measurements.merging

writes ``results/heads-merging.json``, one row for each task, merge and seed. The model is a small encoder of two
post-norm layers that reads eight symbols and says eight symbols: the same ones, the same ones backwards, or the same
ones in order. It is trained once with the heads merged as they should be, and once with their numbers taken row by row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import results

SYMBOLS, LENGTH, WIDTH, HEADS, HIDDEN, LAYERS = 10, 8, 32, 4, 64, 2
STEPS, BATCH, RATE = 600, 64, 2e-3
TESTED = 2000
#: After this many steps the loss is written down, so that a test can do the first part of a run again.
EARLY = 20

TASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda ids: ids,
    "reverse": lambda ids: ids.flip(1),
    "sort": lambda ids: ids.sort(dim=1).values,
}
MERGES = ("right", "bare reshape")


class Attention(nn.Module):
    """Multi-head self-attention, (B, L, D) → (B, L, D), whose merge may be wrong.

    PyTorch's layer merges rightly; its own output projection copies, so that the merged heads can be mixed up before
    they reach ``w_o``.
    """

    def __init__(self, width: int, heads: int, merge: str):
        super().__init__()
        self.heads, self.merge = heads, merge
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)
        self.inner.out_proj.requires_grad_(False)
        nn.init.eye_(self.inner.out_proj.weight)
        nn.init.zeros_(self.inner.out_proj.bias)
        self.w_o = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        merged, _ = self.inner(x, x, x, need_weights=False)
        if self.merge == "bare reshape":  # the heads (B, H, L, K), read in the order of memory
            merged = torch.stack(merged.chunk(self.heads, dim=-1), dim=1).reshape(merged.shape)
        return self.w_o(merged)


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each followed by residual and LayerNorm, (B, L, D) → (B, L, D)."""

    def __init__(self, merge: str):
        super().__init__()
        self.attention = Attention(WIDTH, HEADS, merge)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))


class Encoder(nn.Module):
    """Ids (B, L) → logits (B, L, SYMBOLS)."""

    def __init__(self, merge: str):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.layers = nn.Sequential(*(Layer(merge) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(ids) + positions(ids.size(1), WIDTH)))


def positions(length: int, width: int) -> Tensor:
    """Sines and cosines of the positions, (L, D), D even, base 10000; pairs of columns side by side."""
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def train(task: str, merge: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """One row: the share of fresh sequences in which every symbol is right after ``steps`` steps, and an early loss."""
    if merge not in MERGES:
        raise ValueError(f"There is no merge {merge!r} among {', '.join(MERGES)}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Encoder(merge)
        optimiser = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), RATE)
        early = float("nan")
        for step in range(1, steps + 1):
            ids = torch.randint(SYMBOLS, (BATCH, LENGTH))
            loss = F.cross_entropy(model(ids).flatten(0, 1), TASKS[task](ids).flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step == EARLY:
                early = float(loss.detach())
        ids = torch.randint(SYMBOLS, (TESTED, LENGTH))
        with torch.no_grad():
            whole = (model(ids).argmax(-1) == TASKS[task](ids)).all(1).double().mean()
    return {
        "task": task,
        "merge": merge,
        "seed": seed,
        "early_loss": round(early, 4),
        "whole_sequences": round(float(whole), 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab.measurements.merging",
        description="Train with heads merged rightly and wrongly; write results/heads-merging.json.",
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many runs of each kind (default: 5)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for task in TASKS:
        for merge in MERGES:
            for seed in range(options.seeds):
                rows.append(train(task, merge, seed))
                print(*rows[-1].values(), file=sys.stderr, flush=True)
    path = results.save(
        "heads-merging",
        rows,
        command="python -m transformer_lab.measurements.merging",
        code=[__file__],
        seed=0,
        machine=results.describe_machine(),
    )
    print(f"{len(rows)} rows in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
