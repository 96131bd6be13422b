"""What the configuration comes to with which chapter 10's notebook begins its last training, for several seeds.

    python -m transformer_lab.measurements.lab_weights --jobs 2

writes ``results/lab-weights.json``, a row for each seed: how many of the test part and of the notebook's public long
sentences are translated word for word, with the weights that were best on the validation part. A training takes five to ten
minutes of one processor thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_lab import builtin, engine, results, translation
from transformer_lab.data import Pair, further_pairs
from transformer_lab.measurements import translators
from transformer_lab.measurements.classifier import one_thread

NAME = "lab-weights"
COMMAND = "python -m transformer_lab.measurements.lab_weights"
CODE = [__file__, builtin.__file__, engine.__file__, translation.__file__]
CONFIG = translation.Config(d_model=64, num_heads=4, d_ff=256, num_layers=2, steps=5000)
EVERY, VALIDATED = 500, 300
#: A sentence is long from so many tokens on; of ``FURTHER`` ones of the notebook's seed those are asked for that are.
LONG, FURTHER, SEED = 15, 1500, 2017


def public_long_sentences() -> list[Pair]:
    """The sentences of the notebook's visible test."""
    return [pair for pair in further_pairs(FURTHER, seed=SEED) if len(pair.source) >= LONG]


def measure(seed: int, config: translation.Config = CONFIG, every: int = EVERY) -> dict[str, Any]:
    """Train on one thread as the notebook does, with one seed: its row."""
    with one_thread():
        one = translation.Translator(translation.Task.default(), replace(config, seed=seed))
        trainer = one.trainer(every=every, validate=VALIDATED, samples=0)
        start = time.process_time()
        trainer.train(steps=config.steps, progress=False)
        seconds = time.process_time() - start
        return {
            "seed": seed,
            "parameters": sum(p.numel() for p in one.model.parameters()),
            "steps": trainer.step,
            "best_step": trainer.best_step,
            "minutes": round(seconds / 60, 1),
            "exact": round(one.exact(one.task.corpus.test), 4),
            "exact_long": round(one.exact(public_long_sentences()), 4),
        }


def run(seeds: Sequence[int], jobs: int, folder: Path = results.FOLDER) -> None:
    """Measure the seeds that are not in ``results/`` yet, ``jobs`` at a time; a row is saved as soon as it is there."""
    done = {row["seed"] for row in translators.fresh_rows(NAME, CODE, folder)}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(measure, seed) for seed in seeds if seed not in done]):
            rows = [*translators.fresh_rows(NAME, CODE, folder), finished.result()]
            rows.sort(key=lambda row: row["seed"])
            machine = f"{results.describe_machine()}, 1 thread for each training"
            results.save(NAME, rows, command=COMMAND, code=CODE, seed=0, machine=machine, folder=folder)
            print(finished.result(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], help="(default: 0 1 2 3)")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time (default: %(default)s)")
    options = parser.parse_args()
    run(options.seeds, options.jobs)


if __name__ == "__main__":
    main()
