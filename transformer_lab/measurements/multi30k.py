"""A real result: Multi30k, German to English, by a Transformer and by a GRU with attention, each in the same time.

    python -m transformer_lab.measurements.multi30k FOLDER

where FOLDER holds the files of Multi30k (``train.de.gz`` and so on, from the repository multi30k/dataset, folder
``data/task1/raw``), writes ``results/multi30k.json``, one row for each kind of model and seed.

Both have the same subwords, batches, optimiser and schedule, as many parameters as can be had, and the same time of one
processor thread, evaluations included: how many steps fit into it is measured first. The test part is looked at once, with
the weights that had the best BLEU on the validation part.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_lab import (
    accumulation,
    builtin,
    decoding,
    devices,
    distributed,
    engine,
    recurrent,
    results,
    scores,
    token_batches,
    translation,
)
from transformer_lab.data import tokenise
from transformer_lab.measurements import translators
from transformer_lab.measurements.classifier import one_thread

COMMAND = "python -m transformer_lab.measurements.multi30k FOLDER"
NAME = "multi30k"
KINDS = ("transformer", "gru with attention")
SUBWORDS = 4000
CONFIG = translation.REAL
BEAM = 4
#: Minutes of one processor thread that a training may take, and the share of them that is left for evaluations.
MINUTES, EVALUATING = 40.0, 0.08
EVALUATIONS = 10
CODE = [
    __file__,
    accumulation.__file__,
    builtin.__file__,
    decoding.__file__,
    devices.__file__,
    distributed.__file__,
    engine.__file__,
    recurrent.__file__,
    token_batches.__file__,
    translation.__file__,
]


def steps_within(kind: str, task: translation.Task, seconds: float, trial: int = 100) -> int:
    """How many steps of training a kind of model takes in so many seconds of one processor thread."""
    one = translators.translator(kind, 0, task, replace(CONFIG, steps=trial + 10))
    trainer = one.trainer(samples=0, every=10_000)
    trainer.evaluate = None
    trainer.train(steps=10, progress=False)
    start = time.process_time()
    trainer.train(steps=10 + trial, progress=False)
    return int(seconds / ((time.process_time() - start) / trial))


def run_one(kind: str, seed: int, folder: Path, minutes: float, kept: Path, progress: bool) -> dict[str, Any]:
    """Train one translator for ``minutes`` on one thread, keep it in ``kept`` and score it: its row."""
    with one_thread():
        task = translation.Task.read(folder, subwords=SUBWORDS, joint=True)
        steps = steps_within(kind, task, 60 * minutes * (1 - EVALUATING))
        one = translators.translator(kind, seed, task, replace(CONFIG, steps=steps))
        trainer = one.trainer(
            every=max(1, steps // EVALUATIONS), samples=1 if progress else 0, score="bleu", folder=kept / "running"
        )
        start = time.process_time()
        history = trainer.train(steps=steps, progress=progress)
        seconds = time.process_time() - start
        one.save(kept)
        pairs = task.corpus.test
        sources = [pair.source for pair in pairs]
        start = time.process_time()
        greedy = one.translate(*sources)
        decoding_seconds = time.process_time() - start
        by_beam = one.translate(*sources, beam=BEAM)
        texts = [task.text(pair.target) for pair in pairs]
        found, best = (scores.score([task.text(words) for words in theirs], texts) for theirs in (greedy, by_beam))
        return {
            "model": kind,
            "seed": seed,
            "parameters": sum(p.numel() for p in one.model.parameters()),
            "minutes": round(seconds / 60, 1),
            "steps": steps,
            "epochs": round(trainer.epoch + trainer.place / max(1, len(trainer.batches.epoch(trainer.epoch))), 1),
            "tokens_per_second": round(history[-1]["tokens"] / seconds),
            "best_step": trainer.best_step,
            "bleu_greedy": round(found.bleu, 2),
            "bleu_beam": round(best.bleu, 2),
            "bleu_lowercased": round(found.lowercased, 2),
            "bleu_tokenised": round(_tokenised(greedy, [pair.target for pair in pairs]), 2),
            "chrf_greedy": round(found.chrf, 2),
            "chrf_beam": round(best.chrf, 2),
            "bleu_signature": found.bleu_signature,
            "lowercased_signature": found.lowercased_signature,
            "chrf_signature": found.chrf_signature,
            "decoding_seconds": round(decoding_seconds, 1),
            "curve": [[row["step"], round(row["loss"], 4), round(row["bleu"], 2)] for row in history],
        }


def _tokenised(theirs: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """BLEU over lower-cased words and signs, without smoothing, as the tutorials count it that publish one."""
    cut = [[list(tokenise(" ".join(words).lower())) for words in side] for side in (theirs, wanted)]
    return builtin.corpus_bleu(*cut)


def run(
    folder: Path, kinds: Sequence[str], seeds: Sequence[int], minutes: float, jobs: int, where: Path = results.FOLDER
) -> None:
    """Measure what is not in ``results/`` yet, ``jobs`` at a time; a row is saved as soon as it is there."""
    done = {(row["model"], row["seed"]) for row in translators.fresh_rows(NAME, CODE, where)}
    todo = [(kind, seed) for seed, kind in itertools.product(seeds, kinds) if (kind, seed) not in done]
    kept = results.COURSE_ROOT / "build" / NAME
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(run_one, kind, seed, folder, minutes, kept / f"{kind.replace(' ', '-')}-{seed}", jobs == 1)
            for kind, seed in todo
        ]
        for finished in as_completed(running):
            row = finished.result()
            rows = [*translators.fresh_rows(NAME, CODE, where), row]
            rows.sort(key=lambda row: (row["seed"], KINDS.index(row["model"])))
            machine = results.describe_machine()
            results.save(NAME, rows, command=COMMAND, code=CODE, seed=0, machine=machine, folder=where)
            print(f"{row['model']}, seed {row['seed']}: BLEU {row['bleu_greedy']} greedy, {row['bleu_beam']} beam")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the files of Multi30k")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of one processor thread (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time (default: %(default)s)")
    options = parser.parse_args()
    run(options.folder, options.kinds, options.seeds, options.minutes, options.jobs)


if __name__ == "__main__":
    main()
