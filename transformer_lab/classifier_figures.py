"""The tables and figures of chapter 8: the page and ``python -m transformer_lab classify --report`` draw with these.

from transformer_lab import classifier_figures as figures, plots

axes = plots.figure(rows=1, columns=2)
figures.curves(axes[0], "first-motif")
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from transformer_lab import plots, results, sequences

#: 97.5 % points of Student's t with 1, 2, … degrees of freedom (Fisher and Yates, *Statistical Tables*, table III).
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

#: What the models of ``classifier-runs`` are, in the order of the tables.
MODELS = {
    "transformer": "the whole classifier",
    "one head": "one head instead of two",
    "no residual": "no residual connections",
    "no attention": "no attention: each token gets its own value",
    "no encoding": "no positional encoding",
    "LSTM": "an LSTM with as many parameters",
    "order-free statistics": "logistic regression on order-free statistics",
    "majority": "always the most frequent class",
}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of several seeds' numbers and the half width of its 95 % confidence interval, by Student's t; 0 for one."""
    if len(values) == 1:
        return values[0], 0.0
    return statistics.fmean(values), STUDENT[len(values) - 2] * statistics.stdev(values) / len(values) ** 0.5


def percent(values: Sequence[float]) -> str:
    """``98.7 ± 0.4``, or the number alone when there is one or all are equal."""
    mean, half = interval(values)
    return f"{100 * mean:.1f}" + (f" ± {100 * half:.1f}" if half else "")


def scores(task: str, model: str) -> list[float]:
    """The accuracies of a model on the test set, one for each seed."""
    return [row["test"] for row in results.load("classifier-runs").select(task=task, model=model)]


# --- tables -------------------------------------------------------------------------------------------------------------


def tasks_table() -> list[list[str]]:
    """Each task: what decides it, chance, logistic regression without order, the classifier, the Bayes rule; in per cent."""
    table = [["task", "decided by", "chance", "order-free statistics", "classifier", "best possible"]]
    for name, task in sequences.TASKS.items():
        by = "order" if task.ordered else "contents"
        chance = percent([1 / task.num_classes])
        found = [percent(scores(name, model)) for model in ("order-free statistics", "transformer")]
        table.append([name, by, chance, *found, percent([task.bayes_accuracy()])])
    return table


def models_table(tasks: Sequence[str] = ("first-motif", "share")) -> list[list[str]]:
    """Each model: its parameters, and its test accuracy on each task in per cent."""
    table = [["model", "parameters", *tasks]]
    for model, words in MODELS.items():
        (first, *_) = results.load("classifier-runs").select(task=tasks[0], model=model)
        size = f"{first['parameters']:,}" if first["parameters"] else "–"
        table.append([words, size, *(percent(scores(task, model)) for task in tasks)])
    return table


def leak_table() -> list[list[str]]:
    """The model that learnt from sequences whose length gives the class away, and length alone, on both kinds of data."""
    rows = results.load("classifier-leak")
    table = [["trained on leaky data", "tested on leaky data", "tested on clean data"]]
    for who in ("transformer", "length alone"):
        table.append(
            [who, *(percent([r["accuracy"] for r in rows.select(who=who, tested=t)]) for t in ("leaky", "clean"))]
        )
    return table


def as_markdown(table: list[list[str]]) -> str:
    """A table for a page: columns of words on the left, columns of numbers on the right."""
    words = [any(cell[:1].isalpha() or cell[:1] == "*" for cell in column) for column in zip(*table[1:], strict=True)]
    rule = [":--" if wordy else "--:" for wordy in words]
    lines = [f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]]]
    return "\n".join(lines).replace(" ± ", "\u00a0±\u00a0")  # not torn apart at the end of a line


def as_text(table: list[list[str]]) -> str:
    """Columns under each other, the first on the left, the others on the right."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


# --- figures ------------------------------------------------------------------------------------------------------------


def curves(ax: Axes, task: str, models: Sequence[str] = ("transformer", "LSTM", "no encoding")) -> None:
    """Accuracy on the validation set while the models learn: the mean of the seeds, and the range of all of them."""
    runs = results.load("classifier-runs")
    ends = {}
    for model in models:
        found = [row for row in runs.select(task=task, model=model)]
        longest = max(len(row["validation"]) for row in found)
        # A run that stopped early keeps its last accuracy.
        table = np.array(
            [row["validation"] + row["validation"][-1:] * (longest - len(row["validation"])) for row in found]
        )
        steps = found[0]["every"] * np.arange(1, longest + 1)
        (line,) = ax.plot(steps, 100 * table.mean(0))
        ax.fill_between(steps, 100 * table.min(0), 100 * table.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
        ends[model] = (steps[-1], 100 * table.mean(0)[-1], line.get_color())
    plots.names_at_ends(ax, ends, apart=4.5)
    for model, words in (("order-free statistics", "without order"), ("majority", "always one class")):
        level = 100 * interval(scores(task, model))[0]
        if model == "majority" or abs(level - 50) > 2:
            ax.axhline(level, color=plots.FAINT, linewidth=0.8)
            ax.annotate(words, (1, level), (-2, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
                        ha="right", size=8, color=plots.INK)  # fmt: skip
    ax.set_xlabel("step")
    ax.set_ylabel("accuracy on the validation set, %")
    ax.set_ylim(45, 102)


def ablations(ax: Axes, tasks: Sequence[str] = ("first-motif", "share")) -> None:
    """Test accuracy of the classifier and of what is left of it, with a mark for each seed, on an order and another task."""
    models = [
        model for model in MODELS if model in ("transformer", "one head", "no residual", "no attention", "no encoding")
    ]
    for task, marker, shift, colour in zip(tasks, "os", (-0.14, 0.14), (plots.RIGHT, plots.WRONG), strict=True):
        for place, model in enumerate(models):
            values = [100 * value for value in scores(task, model)]
            mean, half = interval(values)
            ax.errorbar(mean, place + shift, xerr=half, color=colour, marker=marker, capsize=3, linewidth=1,
                        label=task if place == 0 else None)  # fmt: skip
            ax.plot(values, [place + shift] * len(values), "|", color=colour, markersize=9)
    ax.axvline(50, color=plots.FAINT, linewidth=0.8)
    ax.set_yticks(range(len(models)), models)
    ax.invert_yaxis()
    ax.set_xlim(44, 102)
    ax.set_xlabel("accuracy on the test set, %")
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def lengths(ax: Axes, models: Sequence[str] = ("transformer", "LSTM")) -> None:
    """Accuracy against length; the lengths of the training data are shaded."""
    task = sequences.TASKS["first-motif"]
    found = results.load("classifier-lengths")
    ax.axvspan(task.min_length, task.max_length, color="#eceff2", linewidth=0)
    ax.annotate("trained on", ((task.min_length + task.max_length) / 2, 101.3), ha="center", size=8)
    ends = {}
    for model in models:
        rows = found.select(model=model)
        x = sorted({row["length"] for row in rows})
        table = np.array([[100 * row["accuracy"] for row in rows if row["length"] == length] for length in x])
        (line,) = ax.plot(x, table.mean(1), marker="o")
        ax.fill_between(x, table.min(1), table.max(1), color=line.get_color(), alpha=0.15, linewidth=0)
        ends[model] = (x[-1], table.mean(1)[-1], line.get_color())
    plots.names_at_ends(ax, ends, apart=4.5)
    ax.axhline(50, color=plots.FAINT, linewidth=0.8)
    ax.set_xlabel("tokens in the sequence")
    ax.set_ylabel("accuracy, %")
    ax.set_ylim(45, 104)


def attention(ax: Axes, label: int, layer: int, head: int) -> None:
    """The attention weights of one head for the shown sequence of one class, the tokens of the motifs marked."""
    rows = results.load("classifier-maps").select(label=label, layer=layer, head=head)
    tokens = [row["token"] for row in rows]
    names = [str(token) for token in tokens]
    plots.heatmap(
        ax, [row["weights"] for row in rows], names, names, values=False, limits=(0, 1), rows="query", columns="key"
    )
    motifs = sequences.FirstMotif.motifs
    starts = [place for place in range(len(tokens)) for motif in motifs if tokens[place : place + 2] == motif.tolist()]
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for start in starts:
            for tick in ticks[start : start + 2]:
                tick.set(fontweight="bold", color=plots.WRONG)


def confusion(ax: Axes, who: str = "model") -> None:
    """Of 100 sequences of each class, how many were taken for each, all seeds together."""
    rows = results.load("classifier-confusion").select(task="period", who=who)
    counts = np.zeros((sequences.Period.num_classes,) * 2)
    for row in rows:
        counts[row["class"]] += row["guesses"]
    names = [str(period) for period in sequences.Period.periods]
    share = 100 * counts / counts.sum(1, keepdims=True)
    plots.heatmap(ax, share, names, names, digits=1, limits=(0, 100), rows="true period", columns="guessed period")


def leak(ax: Axes) -> None:
    """On clean data: how often the model that learnt from leaky data says class 1, by length, and how often it is right."""
    task = sequences.TASKS["first-motif"]
    rows = results.load("classifier-leak").select(who="transformer", tested="clean")
    says = np.array([row["says_1_at_length"] for row in rows])
    ax.plot(task.lengths, 100 * says.mean(0), marker="o", color=plots.WRONG)
    ax.fill_between(task.lengths, 100 * says.min(0), 100 * says.max(0), color=plots.WRONG, alpha=0.15, linewidth=0)
    ax.axhline(50, color=plots.RIGHT, linestyle="--")
    ax.annotate("what is true", (task.lengths[0], 50), (0, 3), textcoords="offset points", size=9, color=plots.RIGHT)
    ax.set_xticks(task.lengths)
    ax.set_xlabel("tokens in the sequence")
    ax.set_ylabel("taken for class 1, %")
    ax.set_ylim(-5, 105)


# --- all of them, for the command ---------------------------------------------------------------------------------------


def figures() -> dict[str, Callable[[], Any]]:
    """How to draw each figure of the report, by its name."""

    def both(draw: Callable[[Axes, str], None]) -> None:
        for ax, task in zip(plots.figure(7, 3.2, columns=2, sharey=True), ("first-motif", "share"), strict=True):
            draw(ax, task)
            ax.set_title(task)

    def maps() -> None:
        grid = plots.figure(7, 7, rows=2, columns=2)
        for layer in range(2):
            for head in range(2):
                attention(grid[layer, head], label=0, layer=layer, head=head)
                grid[layer, head].set_title(f"layer {layer + 1}, head {head + 1}")

    def confusions() -> None:
        for ax, who in zip(plots.figure(7, 3.2, columns=2), ("model", "Bayes rule"), strict=True):
            confusion(ax, who)
            ax.set_title(f"The {who}")

    return {
        "curves": lambda: both(curves),
        "ablations": lambda: ablations(plots.figure(6.4, 3.2)),
        "lengths": lambda: lengths(plots.figure(6.4, 3.2)),
        "attention": maps,
        "confusion": confusions,
        "leak": lambda: leak(plots.figure(4.5, 3)),
    }


def report(folder: Path) -> str:
    """Draw every figure into ``folder`` as PNG and SVG; the tables as text."""
    plots.style()
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures().items():
        draw()
        for kind in ("png", "svg"):
            plt.savefig(folder / f"{name}.{kind}", dpi=150, metadata={"Date": None} if kind == "svg" else None)
        plt.close()
    tables = {
        "Accuracy on the test set in per cent, mean of the seeds with 95 % interval": tasks_table(),
        "The classifier, what is left of it, and simpler models; accuracy in per cent": models_table(),
        "A leak: in the training data, short sequences are of class 0 and long ones of class 1": leak_table(),
    }
    text = "\n\n".join(f"{title}\n\n{as_text(table)}" for title, table in tables.items()) + "\n"
    (folder / "tables.txt").write_text(text, encoding="utf-8")
    return text
