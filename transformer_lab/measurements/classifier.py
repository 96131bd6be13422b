"""What a classifier of sequences learns, with which of its parts, and how that compares with simpler models.

    python -m transformer_lab classify --report

writes ``results/classifier-runs.json`` (one row for each trained model: its accuracy on the validation set while it
learns, and at the end on the test set), ``classifier-lengths.json`` (accuracy on sequences of one length, also longer
ones than in training), ``classifier-maps.json`` (attention weights of one model), ``classifier-confusion.json`` (which
class was taken for which) and ``classifier-leak.json`` (models whose training data gave the class away).

Every model is trained by :func:`transformer_lab.training.fit`, with the same budget. A run that is stopped goes on where
it was: finished models are kept in ``build/classify``.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from transformer_lab import builtin, classifier, results, sequences, training
from transformer_lab.pieces import COURSE_ROOT
from transformer_lab.sequences import PAD_ID, Sequences, Task, splits

COMMAND = "python -m transformer_lab classify --report"
#: What decides the numbers. ``builtin`` is not among them: tests hold it to PyTorch's own, and later chapters add to it.
CODE = [__file__, classifier.__file__, sequences.__file__, training.__file__]
BUILD = COURSE_ROOT / "build" / "classify"
RESULTS = ("runs", "lengths", "maps", "confusion", "leak")

#: How many steps each task is trained for, whatever the model; tasks are not equally hard.
STEPS = {
    "share": 400,
    "first-motif": classifier.STEPS,
    "mean": 300,
    "variance": 500,
    "trend": 1000,
    "period": 3000,
    "lag": 4500,
}
LEAK_STEPS, EVERY, PATIENCE = 300, 50, 20
SEEDS = (0, 1, 2)
TRAINED, VALIDATED, TESTED = 40_000, 1_000, 5_000
#: The order task and the order-free one on which all models are compared.
COMPARED = ("first-motif", "share")
#: Lengths of the test of :func:`lengths`; training ends at the task's longest.
LENGTHS = (8, 10, 12, 14, 16, 20, 24, 32, 40)
#: How many sequences of each length are tested.
OF_EACH_LENGTH = 1_000
#: The model and the sequence whose attention is drawn.
SHOWN_SEED, SHOWN_LENGTH = 0, 12


# --- models -------------------------------------------------------------------------------------------------------------


class OwnValue(builtin.MultiHeadAttention):
    """No attention: each token gets its own value and nobody else's. The parameters are those of attention."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.w_o(self.w_v(value))


class Bare(builtin.Residual):
    """Where the path around a sub-layer goes, without the path; x is what the sub-layer makes of the normalised x."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
        return sublayer(norm(x))


class BareLayer(builtin.EncoderLayer):
    """No residual: a sub-layer's result replaces what it was made of, instead of being added to it."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.residual = Bare()


def instead(**replaced: Any) -> types.SimpleNamespace:
    """PyTorch's layers behind the course's names, some of them replaced."""
    return types.SimpleNamespace(**{**vars(builtin), **replaced})


class Recurrent(nn.Module):
    """An LSTM over the embedded tokens, the mean of its states over the real tokens, and a linear map to the classes.

    It is as wide as it can be with at most ``parameters`` parameters. Padding stands behind: no state of a real token has
    seen it.
    """

    def __init__(self, task: Task, embed: nn.Module, d_model: int, parameters: int):
        super().__init__()
        self.embed = embed

        def size(width: int) -> int:  # of the LSTM and the head
            return 4 * width * (d_model + width + 2) + task.num_classes * (width + 1)

        rest = parameters - count(embed)
        width = max(width for width in range(1, 1000) if size(width) <= rest)
        self.lstm = nn.LSTM(d_model, width, batch_first=True)
        self.head = nn.Linear(width, task.num_classes)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(inputs))
        return self.head(builtin.masked_mean_pool(states, mask))


def count(model: nn.Module) -> int:
    """How many numbers training may change."""
    return sum(parameter.numel() for parameter in model.parameters())


def transformer(task: Task, pieces: Any = builtin, **changed: Any) -> Any:
    return classifier.build(replace(classifier.GRADED, task=task.name, **changed), pieces)


def lstm(task: Task) -> nn.Module:
    whole = transformer(task)
    plain = transformer(task, positional=False)  # an LSTM knows the order without a table
    return Recurrent(task, plain.embed, classifier.GRADED.d_model, count(whole))


#: Each takes a task and returns a fresh model.
MODELS: dict[str, Callable[[Task], nn.Module]] = {
    "transformer": transformer,
    "no encoding": lambda task: transformer(task, positional=False),
    "no attention": lambda task: transformer(task, instead(MultiHeadAttention=OwnValue)),
    "one head": lambda task: transformer(task, num_heads=1),
    "no residual": lambda task: transformer(task, instead(EncoderLayer=BareLayer)),
    "LSTM": lstm,
}
ABLATIONS = ("transformer", "no encoding", "no attention", "one head", "no residual")
BASELINES = ("majority", "order-free statistics")


# --- baselines that are not trained step by step ------------------------------------------------------------------------


def majority(parts: dict[str, Sequences]) -> float:
    """The test accuracy of always saying the class that is most frequent in training."""
    said = parts["train"].labels.bincount().argmax()
    return float((parts["test"].labels == said).double().mean())


def statistics(task: Task, sequences: Sequences) -> Tensor:
    """What can be said of each sequence without its order, (N, S): its length, and how often each token is there, or the
    mean, the second to fourth moment, the mean size, the smallest and the largest number and the quartiles of a series."""
    lengths = sequences.lengths.double()[:, None]
    if task.vocab_size is not None:
        counts = F.one_hot(sequences.inputs, task.vocab_size).sum(1)[:, PAD_ID + 1 :]
        return torch.cat([lengths, counts / lengths], dim=1)
    x = sequences.inputs.double().masked_fill(~sequences.mask, float("nan"))
    moments = [(x**power).nansum(1, keepdim=True) / lengths for power in (1, 2, 3, 4)]
    quantiles = torch.nanquantile(x, torch.tensor([0, 0.25, 0.5, 0.75, 1], dtype=torch.float64), dim=1).T
    return torch.cat([lengths, *moments, x.abs().nansum(1, keepdim=True) / lengths, quantiles], dim=1)


def order_free(task: Task, parts: dict[str, Sequences]) -> float:
    """The test accuracy of a logistic regression on :func:`statistics`."""
    train, test = (statistics(task, parts[name]) for name in ("train", "test"))
    mean, scale = train.mean(0), train.std(0).clamp(min=1e-9)
    model = nn.Linear(train.size(1), task.num_classes, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(model((train - mean) / scale), parts["train"].labels)
        value = value + 1e-6 * model.weight.square().sum()  # separable classes would let the weights grow for ever
        value.backward()
        return value

    optimiser.step(loss)
    guesses = model((test - mean) / scale).argmax(1)
    return float((guesses == parts["test"].labels).double().mean())


# --- one model ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One model to train: on which task, of which kind, from which seed."""

    task: str
    model: str
    seed: int


def jobs() -> list[Job]:
    """All that is trained for the results, in order."""
    graded = [Job(classifier.GRADED.task, "transformer", seed) for seed in range(5)]
    compared = [Job(task, model, seed) for task in COMPARED for model in MODELS for seed in SEEDS]
    others = [Job(task, "transformer", seed) for task in sequences.TASKS for seed in SEEDS]
    simple = [Job(task, model, seed) for task in sequences.TASKS for model in BASELINES for seed in SEEDS]
    leaks = [Job(classifier.GRADED.task, "leak", seed) for seed in SEEDS]
    return list(dict.fromkeys(graded + compared + others + simple + leaks))


def run(job: Job, steps: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """What ``job`` adds to each result: rows by the result's name."""
    task = sequences.TASKS[job.task]
    if job.model == "leak":
        return {"leak": leak(task, job.seed)}
    parts = splits(task, job.seed, TRAINED, VALIDATED, TESTED)
    row = asdict(job) | {"parameters": 0, "best_step": 0, "test": 0.0, "every": EVERY, "validation": []}
    if job.model in BASELINES:
        row["test"] = round(majority(parts) if job.model == "majority" else order_free(task, parts), 4)
        return {"runs": [row]}
    model, history = trained(job, parts, steps)
    row |= {
        "parameters": count(model),
        "best_step": history.best_step,
        "test": round(training.evaluate(model, parts["test"]), 4),
        "validation": [round(accuracy, 4) for accuracy in history.accuracies],
    }
    rows = {"runs": [row]}
    if job.task == classifier.GRADED.task and job.model in ("transformer", "LSTM"):
        rows["lengths"] = lengths(job, model)
    if (job.task, job.model, job.seed) == (classifier.GRADED.task, "transformer", SHOWN_SEED):
        rows["maps"] = maps(model)
    if task.num_classes > 2:
        rows["confusion"] = confusion(job, model, parts["test"])
    return rows


def trained(
    job: Job, parts: dict[str, Sequences], steps: int | None = None, progress: bool = False
) -> tuple[nn.Module, training.History]:
    """The model of ``job``, after training on ``parts``, and the course of its training."""
    torch.manual_seed(job.seed)
    model = MODELS[job.model](sequences.TASKS[job.task])
    history = training.fit(
        model,
        parts["train"],
        parts["validation"],
        steps=steps or STEPS[job.task],
        every=EVERY,
        patience=PATIENCE,
        seed=job.seed,
        progress=progress,
    )
    return model, history


def lengths(job: Job, model: nn.Module) -> list[dict[str, Any]]:
    """One row for each of ``LENGTHS``: accuracy on fresh sequences of that length."""
    rng = np.random.default_rng([job.seed, 1])
    rows = []
    for length in LENGTHS:
        drawn = sequences.TASKS[job.task].sample(OF_EACH_LENGTH, rng, length)
        rows.append(
            {"model": job.model, "seed": job.seed, "length": length, "accuracy": training.evaluate(model, drawn)}
        )
    return rows


def maps(model: nn.Module) -> list[dict[str, Any]]:
    """The attention weights for two sequences, one of each class: a row for each sequence, layer, head and query."""
    task = sequences.TASKS[classifier.GRADED.task]
    drawn = task.sample(20, np.random.default_rng(2), SHOWN_LENGTH)
    rows = []
    for label in range(task.num_classes):
        one = drawn[drawn.labels == label][:1]
        guess = int(training.predict(model, one))
        for layer, weights in enumerate(classifier.attention_weights(model, one, classifier.GRADED.num_heads)):
            for head, matrix in enumerate(weights[0]):
                for query, shares in enumerate(matrix.tolist()):
                    place = {"label": label, "guess": guess, "layer": layer, "head": head, "query": query}
                    token = int(one.inputs[0, query])
                    rows.append(place | {"token": token, "weights": [round(share, 4) for share in shares]})
    return rows


def confusion(job: Job, model: nn.Module, test: Sequences) -> list[dict[str, Any]]:
    """How often each class was taken for each, by the model and by the Bayes rule."""
    task = sequences.TASKS[job.task]
    rows = []
    for who, guesses in (("model", training.predict(model, test)), ("Bayes rule", task.bayes(test))):
        for true in range(task.num_classes):
            counts = guesses[test.labels == true].bincount(minlength=task.num_classes).tolist()
            rows.append({"task": job.task, "seed": job.seed, "who": who, "class": true, "guesses": counts})
    return rows


# --- a leak -------------------------------------------------------------------------------------------------------------


def leaky(task: Task, count: int, rng: np.random.Generator) -> Sequences:
    """``count`` sequences of ``task`` whose length gives the class away: class 0 is short, class 1 is long."""
    lengths = sorted(task.lengths)
    found: list[Sequences] = []
    while sum(map(len, found)) < count:
        drawn = task.sample(2 * count, rng)
        found.append(drawn[(drawn.lengths >= lengths[len(lengths) // 2]).long() == drawn.labels])
    return sequences.joined(found)[:count]


def leak(task: Task, seed: int, steps: int = LEAK_STEPS) -> list[dict[str, Any]]:
    """One row for each kind of training data, model and test data: how often the model is right, and says class 1."""
    rng = np.random.default_rng([seed, 3])
    draw = {"leaky": lambda count: leaky(task, count, rng), "clean": lambda count: task.sample(count, rng)}
    tests = {name: of(TESTED) for name, of in draw.items()}
    train, validation = draw["leaky"](TRAINED), draw["leaky"](VALIDATED)
    torch.manual_seed(seed)
    model = transformer(task)
    training.fit(model, train, validation, steps=steps, every=EVERY, seed=seed, progress=False)
    # What needs no model at all: the class that is more frequent among training sequences of the same length.
    said = torch.zeros(max(task.lengths) + 1, dtype=torch.int64)
    for length in train.lengths.unique().tolist():
        said[length] = train.labels[train.lengths == length].bincount().argmax()
    rows = []
    for tested, test in tests.items():
        for who, guesses in (("transformer", training.predict(model, test)), ("length alone", said[test.lengths])):
            row = {"seed": seed, "trained": "leaky", "who": who, "tested": tested}
            rows.append(row | {"accuracy": round(float((guesses == test.labels).double().mean()), 4)})
            ones = [round(float(guesses[test.lengths == length].double().mean()), 4) for length in task.lengths]
            rows[-1]["says_1_at_length"] = ones
    return rows


# --- all of it ----------------------------------------------------------------------------------------------------------


def measure(
    todo: Sequence[Job] | None = None, keep: Path = BUILD / "finished.jsonl", progress: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each result. Jobs that ``keep`` holds, made by this code, are not run again; the others are added."""
    made_by = {str(Path(file).relative_to(COURSE_ROOT)): results.digest(Path(file)) for file in CODE}
    finished: dict[Job, dict[str, Any]] = {}
    if keep.is_file():
        for line in keep.read_text(encoding="utf-8").splitlines():
            if (entry := _entry(line)) and entry["code"] == made_by:
                finished[Job(**entry["job"])] = entry["rows"]
    todo = jobs() if todo is None else list(todo)
    keep.parent.mkdir(parents=True, exist_ok=True)
    with one_thread(), tqdm(todo, unit="model", disable=not progress) as bar:
        for job in bar:
            bar.set_postfix_str(f"{job.task}, {job.model}, seed {job.seed}")
            if job not in finished:
                finished[job] = run(job)
                with keep.open("a", encoding="utf-8") as file:  # begins a line: the last one may be half a line
                    file.write("\n" + json.dumps({"code": made_by, "job": asdict(job), "rows": finished[job]}))
    return {name: [row for job in todo for row in finished[job].get(name, [])] for name in RESULTS}


def _entry(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:  # the last line of a run that was killed while it wrote
        return None


@contextmanager
def one_thread() -> Iterator[None]:
    """The same sums everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write(rows: dict[str, list[dict[str, Any]]], folder: Path = results.FOLDER) -> list[Path]:
    """Save what :func:`measure` returned as ``results/classifier-*.json``."""
    machine = results.describe_machine()
    return [
        results.save(f"classifier-{name}", found, command=COMMAND, code=CODE, seed=0, machine=machine, folder=folder)
        for name, found in rows.items()
    ]


def up_to_date() -> bool:
    """Whether all results are there and made by the code as it is."""
    stale = " ".join(results.stale())
    return (
        all((results.FOLDER / f"classifier-{name}.json").is_file() for name in RESULTS) and "classifier-" not in stale
    )
