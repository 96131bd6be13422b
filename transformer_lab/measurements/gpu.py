"""Everything that the course wants to know of a GPU, in less than eight minutes.

    python -m transformer_lab.measurements.gpu [FOLDER]

measures, one after the other,

1. whether a step of training waits for the GPU, which it must not: PyTorch raises an error where it does;
2. the staircase of ``python -m transformer_lab bench`` for the paper's base size, into ``results/bench-cuda.json``;
3. where FOLDER holds Multi30k, what nine million parameters learn of it in four minutes, into
   ``results/multi30k-cuda.json``.

What is measured is kept at once, so that a script that was ended early has not run for nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_lab import devices, results, scores, translation
from transformer_lab.data import default_corpus
from transformer_lab.engine import LOOK
from transformer_lab.measurements import bench, multi30k

COMMAND = "python -m transformer_lab.measurements.gpu FOLDER"
NAME = "multi30k-cuda"
#: Pieces of words for the nine million parameters, and minutes for them.
SUBWORDS, MINUTES = 6000, 4.0


def waits(setting: devices.Setting, steps: int = LOOK - 2) -> str:
    """Why a step of training waits for the GPU, in PyTorch's words; empty where none of so many steps does.

    The first steps, in which PyTorch sets itself up, are not looked at; nor are those at which losses are read.
    """
    config = translation.Config(d_model=64, num_heads=4, d_ff=128, num_layers=2, batch_tokens=1000, dropout=0.1)
    one = translation.Translator(translation.Task.of(default_corpus(2000, 10, 10)), config, setting=setting)
    trainer = one.trainer(every=10**6, samples=0)
    trainer.evaluate = None
    setting.apply()
    trainer._running = trainer._wrapped()
    batches = iter(trainer._remaining(LOOK + steps))
    for _ in range(LOOK):
        trainer._advance(next(batches))
    ready = [next(batches) for _ in range(steps)]
    if setting.device != "cuda":
        return ""
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in ready:
            trainer._advance(batch)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def train(folder: Path, setting: devices.Setting, config: translation.Config, minutes: float) -> dict[str, Any]:
    """Train on Multi30k for so many minutes, evaluations included, and score the test part: a row."""
    task = translation.Task.read(folder, subwords=SUBWORDS, joint=True)
    trial = translation.Translator(task, config, setting=setting).trainer(samples=0, every=10**6)
    trial.evaluate = None
    trial.train(steps=LOOK, progress=False)
    start = time.perf_counter()
    trial.train(steps=4 * LOOK, progress=False)
    each = (time.perf_counter() - start) / (3 * LOOK)
    steps = max(1, int(60 * minutes * (1 - multi30k.EVALUATING) / each))
    one = translation.Translator(task, replace(config, steps=steps), setting=setting)
    trainer = one.trainer(score="bleu", samples=1, every=max(1, steps // multi30k.EVALUATIONS))
    start = time.perf_counter()
    history = trainer.train(steps=steps)
    seconds = time.perf_counter() - start
    pairs = task.corpus.test
    texts = [task.text(pair.target) for pair in pairs]
    greedy, beam = (
        scores.score([task.text(words) for words in one.translate(*(pair.source for pair in pairs), beam=size)], texts)
        for size in (1, multi30k.BEAM)
    )
    return {
        "parameters": sum(p.numel() for p in one.model.parameters()),
        "minutes": round(seconds / 60, 2),
        "steps": steps,
        "tokens_per_second": round(history[-1]["tokens"] / seconds),
        "bleu_greedy": round(greedy.bleu, 2),
        "bleu_beam": round(beam.bleu, 2),
        "chrf_beam": round(beam.chrf, 2),
        "bleu_signature": greedy.bleu_signature,
        "curve": [[row["step"], round(row["loss"], 4), round(row["bleu"], 2)] for row in history],
    }


def run(
    folder: Path | None,
    setting: devices.Setting,
    *,
    size: str = "base",
    config: translation.Config = translation.REAL_LARGE,
    minutes: float = MINUTES,
    where: Path = results.FOLDER,
    say: Callable[[str], None] = print,
) -> None:
    """Measure all three, and keep what comes out in ``where``."""
    reason = waits(setting)
    say("A step of training does not wait for the device." if not reason else f"A step waits for the device: {reason}")
    rows = bench.run(size, device=setting.device, folder=where, command=COMMAND, say=say)
    for line in (bench.HEADS, *bench.lines(rows)):
        say("  ".join(line))
    if folder is None:
        say("No folder with Multi30k was given: nothing is trained.")
        return
    row = train(folder, setting, config, minutes)
    machine = results.describe_machine(setting.device)
    code = [__file__, *multi30k.CODE]
    results.save(NAME, [row], command=COMMAND, code=code, seed=config.seed, machine=machine, folder=where)
    say(f"BLEU {row['bleu_greedy']} greedy, {row['bleu_beam']} with a beam of {multi30k.BEAM}: {row['bleu_signature']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="with the files of Multi30k")
    options = parser.parse_args()
    machine = devices.look()
    if not machine.cuda:
        print("There is no CUDA device here: nothing to measure.", file=sys.stderr)
        return 2
    run(options.folder, devices.choose(machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
