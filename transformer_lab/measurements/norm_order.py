"""How twelve encoder layers learn to sort, with the norm behind the sum or before the sub-layer, with and without warm-up.

    python -m transformer_lab.measurements.norm_order

writes ``results/norm-order.json``, one row for each order, learning rate, warm-up and seed. The layers are PyTorch's own,
``nn.TransformerEncoderLayer``, without dropout. A sequence of random digits comes in; at each place the model names the
digit that stands there when they are sorted. The loss is the mean cross-entropy in nats, and guessing costs ln 10 = 2.30.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lab import results

DIGITS, LENGTH, BATCH = 10, 8, 16
LAYERS, WIDTH, HEADS, HIDDEN = 12, 32, 4, 64
ORDERS = {"post-norm": False, "pre-norm": True}
RATES = (0.001, 0.002, 0.005)
WARMUPS = (0, 200)
STEPS = 500
#: How many steps one number of a curve is the mean of.
WINDOW = 20


class Sorter(nn.Module):
    """Digits (B, LENGTH) → scores (B, LENGTH, DIGITS) of the digit that stands there in sorted order."""

    def __init__(self, norm_first: bool, layers: int = LAYERS):
        super().__init__()
        self.digits = nn.Embedding(DIGITS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=norm_first)
            for _ in range(layers)
        )
        # A pre-norm stack ends with a sum: it needs one more norm.
        self.norm = nn.LayerNorm(WIDTH) if norm_first else nn.Identity()
        self.head = nn.Linear(WIDTH, DIGITS)
        for parameter in (*self.layers.parameters(), *self.head.parameters()):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.digits(ids) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def train(norm_first: bool, rate: float, warmup: int, seed: int, steps: int = STEPS) -> tuple[Sorter, Iterator[float]]:
    """A model, fresh from ``seed``, and its loss step by step: each number that is asked for is one step of Adam.

    The learning rate rises in a straight line to ``rate`` over ``warmup`` steps and stays there; 0 starts with all of it.
    """
    torch.manual_seed(seed)
    model = Sorter(norm_first)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    generator = torch.Generator().manual_seed(seed)

    def losses() -> Iterator[float]:
        for step in range(1, steps + 1):
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1.0, step / warmup) if warmup else rate
            ids = torch.randint(DIGITS, (BATCH, LENGTH), generator=generator)
            loss = F.cross_entropy(model(ids).flatten(0, 1), ids.sort(dim=1).values.flatten())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            yield loss.item()

    return model, losses()


@torch.no_grad()
def accuracy(model: Sorter, seed: int = 1_000_000, sequences: int = 512) -> float:
    """The share of places at which the likeliest digit is the right one, on sequences that training has not drawn."""
    ids = torch.randint(DIGITS, (sequences, LENGTH), generator=torch.Generator().manual_seed(seed))
    return float((model(ids).argmax(-1) == ids.sort(dim=1).values).double().mean())


def measure(
    rates: Sequence[float] = RATES,
    warmups: Sequence[int] = WARMUPS,
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = STEPS,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """One row per run: its setting, the mean loss of every ``WINDOW`` steps, and the accuracy at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums everywhere
    rows = []
    try:
        for rate in rates:
            for warmup in warmups:
                for order, norm_first in ORDERS.items():
                    for seed in seeds:
                        model, losses = train(norm_first, rate, warmup, seed, steps)
                        curve = torch.tensor(list(losses)).unfold(0, WINDOW, WINDOW).mean(1)
                        rows.append(
                            {
                                "order": order,
                                "rate": rate,
                                "warmup": warmup,
                                "seed": seed,
                                "accuracy": round(accuracy(model), 4),
                                "losses": [round(value, 4) for value in curve.tolist()],
                            }
                        )
                        say(f"{order}, rate {rate}, warm-up {warmup}, seed {seed}: accuracy {rows[-1]['accuracy']:.3f}")
    finally:
        torch.set_num_threads(before)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab.measurements.norm_order",
        description="Train post-norm and pre-norm encoders with and without warm-up; write results/norm-order.json.",
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each setting (default: 3)")
    options = parser.parse_args(arguments)
    rows = measure(seeds=range(options.seeds), say=lambda text: print(text, file=sys.stderr))
    path = results.save(
        "norm-order",
        rows,
        command="python -m transformer_lab.measurements.norm_order",
        code=[__file__],
        seed=0,
        machine=results.describe_machine(),
    )
    print(f"{len(rows)} rows in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
