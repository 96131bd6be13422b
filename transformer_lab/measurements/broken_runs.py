"""Three small translators trained with a fault each, and one without: what ``transformer_lab.broken_runs`` loads.

    python -m transformer_lab.measurements.broken_runs

writes a log and a checkpoint for each run, their vocabularies and sentences of no training into
``transformer_lab/broken_runs_data/``, and ``results/broken-runs.json``, which says how they came about and holds the digest
of every file. The four differ in the fault alone: same sentences, batches, first weights, sizes, optimiser.

Whoever wants to find out which run has which fault should not read on here.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

import transformer_lab.data
from transformer_lab import broken_runs, builtin, results, translation
from transformer_lab.data import PAD, Corpus, Pair
from transformer_lab.data.corpus import Drawer
from transformer_lab.data.lexicon import ADJECTIVES, NOUNS, VERBS, Lexicon
from transformer_lab.measurements.classifier import one_thread

COMMAND = "python -m transformer_lab.measurements.broken_runs"
FOLDER = Path(broken_runs.__file__).parent / broken_runs.DATA
CODE = [
    __file__,
    broken_runs.__file__,
    builtin.__file__,
    *sorted(str(path) for path in Path(transformer_lab.data.__file__).parent.glob("*.py")),
]

#: The language of the runs: few words, sentences of at most ten.
LEXICON = Lexicon(
    {noun: NOUNS[noun] for noun in ("woman", "man", "child", "dog", "cat", "ball", "letter", "door")},
    {adjective: ADJECTIVES[adjective] for adjective in ("small", "old", "big", "tall")},
    {verb: VERBS[verb] for verb in ("see", "look for", "open", "pick up", "lose")},
    names=("Anna",),
    pronouns=("she", "they", "I"),
    places=("in the house",),
    numbers=(2, 3, 20),
    hours=(3, 4, 5),
)
DRAWN, LONGEST, HELD_OUT = 25_000, 10, 200
STEPS, BATCH, WARMUP, SEED = 800, 32, 200, 0
#: The share of exact sentences is looked at every so many steps.
EVERY = 100

_Taught = Callable[[nn.Module, Tensor, Tensor], Tensor]


def _proper(model: Any, source: Tensor, target: Tensor) -> Tensor:
    given, labels = builtin.shift_targets(target)
    return _loss(model(source, given), labels)


def _in_place(model: Any, source: Tensor, target: Tensor) -> Tensor:
    """The decoder is given the very tokens that it should say."""
    labels = target[:, :-1]
    return _loss(model(source, labels), labels)


def _open(model: Any, source: Tensor, target: Tensor) -> Tensor:
    """The decoder may attend to every token of the target, those behind included."""
    given, labels = builtin.shift_targets(target)
    return _loss(broken_runs.logits(model, source, given, causal=False), labels)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return builtin.label_smoothed_cross_entropy(logits.flatten(0, 1), labels.flatten(), PAD)


#: By name of the run: how its loss is made, and its steps of warm-up.
RUNS: dict[str, tuple[_Taught, int]] = {
    "healthy": (_proper, WARMUP),
    "A": (_in_place, WARMUP),
    "B": (_proper, 4),  # the paper's schedule: a short warm-up is a high top as well
    "C": (_open, WARMUP),
}


def corpus() -> Corpus:
    """Pairs with at most :data:`LONGEST` source words; no part holds a sentence of another."""
    short = tuple(pair for pair in Drawer(LEXICON).draw(DRAWN, seed=1) if len(pair.source) <= LONGEST)
    return Corpus(short[2 * HELD_OUT :], short[:HELD_OUT], short[HELD_OUT : 2 * HELD_OUT])


def train(name: str, task: translation.Task, steps: int = STEPS) -> tuple[list[dict[str, Any]], translation.Translator]:
    """Train one run: its log, a row for each step, and the translator with its last weights."""
    loss_of, warmup = RUNS[name]
    one = translation.Translator(task, broken_runs.CONFIG)
    model = one.model
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    rows: list[dict[str, Any]] = []
    for step, (source, target) in zip(range(1, steps + 1), _batches(task), strict=False):
        model.train()
        rate = builtin.noam_lr(step, broken_runs.CONFIG.d_model, warmup)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        loss = loss_of(model, source, target)
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        optimiser.step()
        exact = one.exact(task.corpus.validation) if step % EVERY == 0 else ""
        rows.append(
            {
                "step": step,
                "loss": round(loss.item(), 4),
                "lr": float(f"{rate:.4g}"),
                "gradient_norm": round(float(norm), 4),
                "exact": exact,
            }
        )
    model.eval()
    return rows, one


def _batches(task: translation.Task) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of pairs in random order, epoch after epoch, the same in every run."""
    draw = torch.Generator().manual_seed(SEED)
    while True:
        order = torch.randperm(len(task.corpus.train), generator=draw).tolist()
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows: list[Pair] = [task.corpus.train[index] for index in order[start : start + BATCH]]
            yield transformer_lab.data.batch(rows, task.source, task.target)


def run(say: Callable[[str], None] = print, folder: Path = FOLDER, result: Path = results.FOLDER) -> None:
    """Train the four, on one thread, and write everything."""
    with one_thread():
        task = translation.Task.of(corpus())
        files = {
            "vocabularies.json": json.dumps(
                {"source": list(task.source.words), "target": list(task.target.words)},  # type: ignore[attr-defined]
                ensure_ascii=False,
                indent=0,
            ).encode(),
            "pairs.tsv": "".join(f"{' '.join(p.source)}\t{' '.join(p.target)}\n" for p in task.corpus.test).encode(),
        }
        summary = []
        for name in RUNS:
            rows, one = train(name, task)
            weights = {key: p.detach().half().contiguous() for key, p in one.model.named_parameters()}
            files[f"{name}.csv"] = _as_csv(rows)
            files[f"{name}.safetensors"] = safetensors.torch.save(weights)
            losses = [row["loss"] for row in rows]
            summary.append(
                {
                    "run": name,
                    "steps": len(rows),
                    "parameters": sum(p.numel() for p in one.model.parameters()),
                    "first_loss": losses[0],
                    "last_loss": round(sum(losses[-20:]) / 20, 4),
                    "highest_rate": max(row["lr"] for row in rows),
                    "exact": rows[-1]["exact"],
                }
            )
            say(f"{name}: {summary[-1]}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    shared = {name: digest(files[name]) for name in ("vocabularies.json", "pairs.tsv")}
    for row in summary:
        own = {name: digest(files[name]) for name in (f"{row['run']}.csv", f"{row['run']}.safetensors")}
        row["files"] = own | shared
    results.save(
        "broken-runs",
        summary,
        command=COMMAND,
        code=CODE,
        seed=SEED,
        machine=results.describe_machine() + ", one thread",
        folder=result,
    )


def digest(content: bytes) -> str:
    """16 hexadecimal digits of a file's bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def _as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


if __name__ == "__main__":
    run()
