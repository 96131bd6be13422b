"""A Transformer against recurrent translators, like for like, and what its cross-attention has learnt.

    python -m transformer_lab compare

writes ``results/translators.json``, one row for each kind of model and seed: same sentences, batches, optimiser, schedule
and number of steps, as many parameters as can be had; and ``results/translators-alignment.json``, for every head of the
Transformers the share of target words whose strongest source word is the right one by the grammar's gold alignment.
What :mod:`~transformer_lab.measurements.translator_inside` finds in the Transformers it writes too.

Time is that of the processor on one thread, which other programs on the machine change little.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import transformer_lab.data
from transformer_lab import attention_maps, builtin, engine, recurrent, results, translation
from transformer_lab.data import PAD, Pair, batch
from transformer_lab.measurements.classifier import one_thread

COMMAND = "python -m transformer_lab compare"
KINDS = ("transformer", "gru with attention", "gru")
SEEDS = (0, 1, 2)
#: How each is trained: shorter than what is handed in, because it is done nine times.
CONFIG = translation.SHORT
#: Where the Transformers are kept, so that what looks inside need not train them again.
KEPT = results.COURSE_ROOT / "build" / "translators"
#: The score at which the clock is read.
STATED = (0.9, 0.95)
#: Source lengths, in words, by which the test sentences are told apart.
LENGTHS = ((1, 9), (10, 14), (15, 19), (20, 24), (25, 99))
CODE = [
    __file__,
    translation.__file__,
    recurrent.__file__,
    engine.__file__,
    *sorted(str(path) for path in Path(transformer_lab.data.__file__).parent.glob("*.py")),
]


def translator(kind: str, seed: int, task: translation.Task, config: translation.Config = CONFIG):
    """A new translator of one kind; the recurrent ones have as many parameters as the Transformer, or nearly."""
    own = replace(config, seed=seed)
    one = translation.Translator(task, own)
    if kind == "transformer":
        return one
    sizes = (len(task.source), len(task.target))
    attention = kind == "gru with attention"
    count = sum(p.numel() for p in one.model.parameters())
    width = recurrent.width_for(count, *sizes, attention, PAD, shared=config.shared)
    torch.manual_seed(seed)
    model = recurrent.RecurrentTranslator(
        *sizes, width=width, attention=attention, pad_id=PAD, dropout=config.dropout, shared=config.shared
    )
    return translation.Translator(task, own, model=model)


def measure(
    one: translation.Translator, steps: int, test: Sequence[Pair], progress: bool = True, validate: int = 300
) -> dict[str, Any]:
    """Train ``one`` and say how well it translates ``test``, with the weights that were best on the validation part."""
    trainer = one.trainer(every=250, validate=validate, samples=0)
    assert trainer.evaluate is not None
    score, curve = trainer.evaluate, []
    began, evaluating = time.process_time(), 0.0

    def timed(model):
        nonlocal evaluating
        start = time.process_time()
        found = score(model)
        curve.append([trainer.step, round(start - began - evaluating, 1), round(found["exact"], 4)])
        evaluating += time.process_time() - start
        return found

    trainer.evaluate = timed
    history = trainer.train(steps=steps, progress=progress)
    seconds = time.process_time() - began - evaluating
    theirs = one.translate(*(pair.source for pair in test))
    right = [words == pair.target for words, pair in zip(theirs, test, strict=True)]
    return {
        "parameters": sum(p.numel() for p in one.model.parameters()),
        "steps": steps,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(history[-1]["tokens"] / seconds),
        "exact": round(sum(right) / len(right), 4),
        "bleu": round(builtin.corpus_bleu(theirs, [pair.target for pair in test]), 2),
        "by_length": [
            [low, high, sum(r for r, _ in own), len(own)]
            for low, high in LENGTHS
            if (own := [(r, p) for r, p in zip(right, test, strict=True) if low <= len(p.source) <= high])
        ],
        "losses": [[row["step"], round(row["loss"], 4)] for row in history],
        "curve": curve,
        "reached": [next((s for _, s, share in curve if share >= stated), None) for stated in STATED],
    }


@torch.no_grad()
def alignment(one: translation.Translator, pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """For each layer and head, and for their mean, how often the strongest source word is one of the right ones.

    Counted over the target words that the grammar aligns, while the right translation is read out to the model. The
    attention that counts for a word is that of the step which has to say it.
    """
    pairs = list(pairs)
    num_heads = one.config.num_heads
    found: dict[tuple[int, str], int] = {}
    total = diagonal = 0
    for start in range(0, len(pairs), 100):
        rows = pairs[start : start + 100]
        source, target = batch(rows, one.task.source, one.task.target)
        given, _ = one.pieces.shift_targets(target)
        with attention_maps.recording(one.model, num_heads) as maps:
            one.model(source, given)
        crossing = [own[0] for name, own in maps.items() if "cross_attention" in name]  # of each layer (B, H, T, S)
        for row, pair in enumerate(rows):
            gold: dict[int, set[int]] = {}
            for i, j in pair.alignment:
                gold.setdefault(j, set()).add(i)
            words = len(pair.source)
            total += len(gold)
            diagonal += sum(round((j + 0.5) * words / len(pair.target) - 0.5) in own for j, own in gold.items())
            for layer, attention in enumerate(crossing):
                own = attention[row, :, :, 1 : 1 + words]  # without <bos>, <eos> and padding
                for head, map_ in [*enumerate(own), ("mean", own.mean(0))]:
                    best = map_.argmax(-1)
                    right = sum(int(best[j]) in wanted for j, wanted in gold.items())
                    found[layer, str(head)] = found.get((layer, str(head)), 0) + right
    rows_ = [{"layer": layer, "head": head, "share": round(n / total, 4)} for (layer, head), n in found.items()]
    return [*rows_, {"layer": -1, "head": "diagonal", "share": round(diagonal / total, 4)}]


def run_one(kind: str, seed: int, steps: int, progress: bool = False) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train and measure one translator on one thread: its row, and the rows of a Transformer's heads, which is kept."""
    with one_thread():
        task = translation.Task.default()
        one = translator(kind, seed, task, replace(CONFIG, steps=steps))
        row = {"kind": kind, "seed": seed} | measure(one, steps, task.corpus.test, progress=progress)
        if kind != "transformer":
            return row, []
        one.save(KEPT / f"{kind}-{seed}")
        return row, [{"seed": seed} | head for head in alignment(one, task.corpus.test)]


def run(
    kinds: Sequence[str] = KINDS,
    seeds: Sequence[int] = SEEDS,
    steps: int = CONFIG.steps or 0,
    jobs: int = 1,
    say: Callable[[str], None] = print,
    folder: Path = results.FOLDER,
) -> None:
    """Measure what is not in ``results/`` yet, ``jobs`` at a time, a process each; a row is saved as soon as it is there."""
    from transformer_lab.measurements import translator_inside  # which needs this module

    done = {(row["kind"], row["seed"]) for row in _rows("translators", folder) if row["steps"] == steps}
    todo = [(kind, seed) for seed in seeds for kind in kinds if (kind, seed) not in done]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(run_one, kind, seed, steps, progress=jobs == 1) for kind, seed in todo]
        for finished in as_completed(running):
            row, heads = finished.result()
            kind, seed = row["kind"], row["seed"]
            others = [old for old in _rows("translators", folder) if old["steps"] == steps]
            _save("translators", sorted([*others, row], key=_place), folder)
            say(
                f"{kind}, seed {seed}: {100 * row['exact']:.1f} % exact, BLEU {row['bleu']:.1f}, {row['seconds']:.0f} s"
            )
            if heads:
                others = [old for old in _rows("translators-alignment", folder) if old["seed"] != seed]
                _save("translators-alignment", sorted([*others, *heads], key=lambda head: head["seed"]), folder)
                one = translation.Translator.load(KEPT / f"{kind}-{seed}")
                one.task = translation.Task.default()
                with one_thread():
                    translator_inside.write(one, seed, folder)


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["seed"], KINDS.index(row["kind"])


def table(folder: Path = results.FOLDER) -> str:
    """What was measured, a line for each kind: means over the seeds, and the range of the share that is exact."""
    lines = [f"{'':<20}{'parameters':>11}{'exact %':>20}{'BLEU':>7}{'tokens/s':>10}{'s to 90 %':>13}"]
    for kind in KINDS:
        rows = results.load("translators", folder).select(kind=kind)
        if rows:
            exact = [100 * row["exact"] for row in rows]
            times = [row["reached"][0] for row in rows]
            when = f"{sum(times) / len(times):.0f}" if all(t is not None for t in times) else "not reached"
            lines.append(
                f"{kind:<20}{rows[0]['parameters']:>11,}"
                f"{f'{_mean(exact):.1f} ({min(exact):.1f}–{max(exact):.1f})':>20}"
                f"{_mean([row['bleu'] for row in rows]):>7.1f}"
                f"{_mean([row['tokens_per_second'] for row in rows]):>10,.0f}{when:>13}"
            )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def fresh_rows(name: str, code: Iterable[str], folder: Path) -> list[dict[str, Any]]:
    """The rows of a result that this very ``code`` has made; none where there is no such result."""
    try:
        found = results.load(name, folder)
    except FileNotFoundError:
        return []
    stale = [path for path in code if found.code.get(_relative(path)) != results.digest(Path(path))]
    return [] if stale else found.select()


def _rows(name: str, folder: Path) -> list[dict[str, Any]]:
    return fresh_rows(name, CODE, folder)


def _relative(path: str) -> str:
    return Path(path).resolve().relative_to(results.COURSE_ROOT).as_posix()


def _save(name: str, rows: list[dict[str, Any]], folder: Path) -> None:
    results.save(name, rows, command=COMMAND, code=CODE, seed=0, machine=results.describe_machine(), folder=folder)
