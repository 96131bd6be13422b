"""How large the gradients of a translator's layers are in its first steps, with the norm before and behind each sub-layer.

    python -m transformer_lab.measurements.gradients

writes ``results/gradients.json``, a row for each part of the two models. Everything but the order is the same: sentences,
batches, optimiser, first weights. It takes less than a minute of one processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_lab import builtin, engine, norms, results, translation

#: Deep enough for layers to differ, and else small.
CONFIG = translation.Config(d_model=48, d_ff=96, num_layers=4, batch_size=32, rate=0.002, warmup=100, steps=200)
EVERY = 10
NAME = "gradients"
CODE = [engine.__file__, translation.__file__, builtin.__file__, norms.__file__, __file__]


def measure(norm_first: bool, steps: int | None = None, every: int = EVERY) -> list[dict[str, float]]:
    """Train for ``steps`` steps on one thread, by default as many as ``CONFIG`` says; the norms of each part's gradients."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        one = translation.Translator(translation.Task.default(fresh=False), replace(CONFIG, norm_first=norm_first))
        trainer = one.trainer(samples=0)
        trainer.evaluate = None  # what it has learnt is not asked for here
        trainer.observe = watch = norms.GradientNorms(every)
        trainer.train(steps=steps or CONFIG.steps, progress=False)
    finally:
        torch.set_num_threads(before)
    return watch.rows


def rows(norm_first: bool) -> list[dict[str, float]]:
    """What :func:`measure` has given, as it is kept in ``results/``."""
    kept = results.load(NAME).select(norm_first=norm_first)
    return [
        {"step": step} | {row["part"]: row["norms"][place] for row in kept}
        for place, step in enumerate(kept[0]["steps"])
    ]


def run(folder: Path = results.FOLDER) -> Path:
    """Measure both orders and write the result; returns its path."""
    table = [row for norm_first in (True, False) for row in _by_part(norm_first, measure(norm_first))]
    return results.save(
        NAME,
        table,
        command="python -m transformer_lab.measurements.gradients",
        code=CODE,
        seed=CONFIG.seed,
        machine=f"{results.describe_machine()}, 1 thread",
        folder=folder,
    )


def _by_part(norm_first: bool, measured: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    steps = [row["step"] for row in measured]
    return [
        {
            "norm_first": norm_first,
            "part": part,
            "steps": steps,
            "norms": [float(f"{row[part]:.4g}") for row in measured],
        }
        for part in measured[0]
        if part != "step"
    ]


if __name__ == "__main__":
    print(f"wrote {run()}")
