"""What becomes of a translator whose learning rate starts at its highest, instead of rising to it.

    python -m transformer_lab compare

writes ``results/translators-warmup.json``: the losses of short runs with the norm behind each sub-layer, as in the paper,
and before it, each with a warm-up and without. Everything else is the same: sentences, batches, optimiser, first weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_lab import results, translation
from transformer_lab.measurements import translators

#: Deeper and narrower than what is handed in: the depth is what makes the start difficult.
CONFIG = translation.Config(d_model=64, d_ff=256, num_layers=6, batch_size=32, rate=0.005, steps=300)
#: Steps of warm-up, and whether the norm comes first.
RUNS = tuple((norm_first, warmup) for norm_first in (False, True) for warmup in (100, 0))
SEEDS = (0,)
#: A loss is the mean over so many steps.
EVERY = 25
#: Of so many validation sentences the exact ones are counted.
SENTENCES = 100
CODE = [*translators.CODE, __file__]


def measure(norm_first: bool, warmup: int, seed: int, steps: int = 300, sentences: int = SENTENCES) -> dict[str, Any]:
    """Train for ``steps`` steps on one thread: the losses on the way, and the share of exact sentences at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task = translation.Task.default(fresh=False)
        config = replace(CONFIG, norm_first=norm_first, warmup=warmup, seed=seed, steps=steps)
        one = translation.Translator(task, config)
        trainer = one.trainer(every=EVERY, samples=0)
        trainer.evaluate = None  # the last weights are the ones to be judged
        history = trainer.train(steps=steps, progress=False)
        exact = one.exact(task.corpus.validation[:sentences])
    finally:
        torch.set_num_threads(before)
    return {
        "norm_first": norm_first,
        "warmup": warmup,
        "rate": config.rate,
        "num_layers": config.num_layers,
        "seed": seed,
        "steps": steps,
        "losses": [[row["step"], round(row["loss"], 4)] for row in history],
        "exact": exact,
    }


def run(say: Callable[[str], None] = print, folder: Path = results.FOLDER) -> None:
    """Measure unless ``folder`` holds the result of this code."""
    if translators.fresh_rows("translators-warmup", CODE, folder):
        return
    rows = []
    for seed in SEEDS:
        for norm_first, warmup in RUNS:
            rows.append(measure(norm_first, warmup, seed, CONFIG.steps or 0))
            order = "norm first" if norm_first else "norm last"
            say(f"{order}, {warmup} steps of warm-up: loss {rows[-1]['losses'][-1][1]:.2f}")
    results.save(
        "translators-warmup",
        rows,
        command=translators.COMMAND,
        code=CODE,
        seed=0,
        machine=results.describe_machine(),
        folder=folder,
    )
