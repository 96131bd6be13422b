"""The tables and figures of chapter 9.

from transformer_lab import plots, translation_figures as figures

figures.data_flow(plots.figure(7, 6.4))
figures.learning(plots.figure(6.4, 3.3))              # from results/, which python -m transformer_lab compare makes
"""

from __future__ import annotations

import difflib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from transformer_lab import plots, results
from transformer_lab.classifier_figures import percent
from transformer_lab.data import detokenise

BLUE, ORANGE, GREEN, VERMILION = (plots.COLOURS[name] for name in ("blue", "orange", "green", "vermilion"))
PALE = "#eceff2"

#: The kinds of ``results/translators.json`` in the order of the tables, and their names there.
KINDS = {
    "transformer": "Transformer",
    "gru with attention": "GRU with attention",
    "gru": "GRU without attention",
}

# --- from the results: tables -------------------------------------------------------------------------------------------


def runs(kind: str) -> list[dict[str, Any]]:
    """The rows of one kind of translator, a row for each seed."""
    return results.load("translators").select(kind=kind)


def reached(kind: str, stated: int) -> list[float] | None:
    """The seconds until each run was as good as the stated score of that number; None where one never was."""
    times = [row["reached"][stated] for row in runs(kind)]
    return None if None in times else times


def kinds_table() -> list[list[str]]:
    """Each kind of translator: size, exact sentences and BLEU on the test part, speed, and seconds to 90 %."""
    table = [["", "parameters", "exact, %", "BLEU", "tokens/s", "s to 90 %", "s in all"]]
    for kind, name in KINDS.items():
        rows = runs(kind)
        times = reached(kind, 0)
        table.append(
            [
                name,
                f"{rows[0]['parameters']:,}",
                percent([row["exact"] for row in rows]),
                f"{statistics.fmean(row['bleu'] for row in rows):.1f}",
                f"{statistics.fmean(row['tokens_per_second'] for row in rows):,.0f}",
                f"{statistics.fmean(times):.0f}" if times else "not reached",
                f"{statistics.fmean(row['seconds'] for row in rows):.0f}",
            ]
        )
    return table


def shares(layer: int, head: str) -> list[float]:
    """The share of target words whose strongest source word is a right one, for one head or "mean", for each seed."""
    return [row["share"] for row in results.load("translators-alignment").select(layer=layer, head=head)]


def alignment_table() -> list[list[str]]:
    """By layer and head, the share of words whose strongest source word is right, mean of the seeds; then the diagonal."""
    rows = results.load("translators-alignment").select()
    heads = sorted({row["head"] for row in rows} - {"diagonal", "mean"})
    table = [["", *(f"head {int(head) + 1}" for head in heads), "mean of the heads"]]
    for layer in sorted({row["layer"] for row in rows} - {-1}):
        table.append(
            [f"layer {layer + 1}", *(f"{100 * statistics.fmean(shares(layer, head)):.1f}" for head in [*heads, "mean"])]
        )
    guess = f"{100 * shares(-1, 'diagonal')[0]:.1f}"
    table.append(["the diagonal", *["–"] * len(heads), guess])
    return table


def beams_table() -> list[list[str]]:
    """Greedy decoding and a beam on the test part: exact sentences, BLEU, and sentences that come out otherwise."""
    found = results.load("translators-beams")
    table = [["", "exact, %", "BLEU", "sentences that differ from greedy"]]
    for beam in sorted({row["beam"] for row in found.select()}):
        rows = found.select(beam=beam)
        name = "greedy" if beam == 1 else f"beam of {beam}"
        table.append(
            [
                name,
                percent([row["exact"] for row in rows]),
                f"{statistics.fmean(row['bleu'] for row in rows):.1f}",
                f"{sum(row['changed'] for row in rows)} of {sum(row['sentences'] for row in rows):,}"
                if beam > 1
                else "–",
            ]
        )
    return table


def changes() -> dict[str, dict[str, tuple[float, float]]]:
    """For each kind of case and each change: the share that says its own word, and the share that says the other one's."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    rows = results.load("translators-explanation").select()
    for case, change in dict.fromkeys((row["case"], row["change"]) for row in rows):
        own = [row for row in rows if (row["case"], row["change"]) == (case, change)]
        total = sum(row["sentences"] for row in own)
        share = sum(row["own"] for row in own) / total, sum(row["other"] for row in own) / total
        found.setdefault(case, {})[change] = share
    return found


#: Kinds of wrong translations, told apart by their words alone.
ERRORS = {
    "order": "the right words in another order",
    "one word": "one word in place of another",
    "other": "more than that: words lost, repeated or moved to another place",
}


def error_kind(row: Mapping[str, Any]) -> str:
    """Which of :data:`ERRORS` a row of ``results/translators-errors.json`` is."""
    wanted, got = row["wanted"], row["got"]
    if sorted(wanted) == sorted(got):
        return "order"
    different = sum(a != b for a, b in zip(wanted, got, strict=False))
    return "one word" if len(wanted) == len(got) and different == 1 else "other"


def errors(seed: int | None = None) -> list[dict[str, Any]]:
    """The wrong translations of one model, or of all, with their kind."""
    rows = results.load("translators-errors").select()
    return [row | {"kind": error_kind(row)} for row in rows if seed is None or row["seed"] == seed]


def errors_table() -> list[list[str]]:
    """How many wrong translations of each kind there are, all models together, and how long their sources are."""
    rows = errors()
    table = [["", "translations", "words of the source, on average"]]
    for kind, words in ERRORS.items():
        own = [row for row in rows if row["kind"] == kind]
        length = f"{statistics.fmean(len(row['source']) for row in own):.0f}" if own else "–"
        table.append([words, str(len(own)), length])
    return table


def shown_errors(kind: str, count: int, seed: int = 0) -> str:
    """The ``count`` shortest wrong translations of a kind, as a list: what was wanted, and what came, its other words bold."""
    rows = sorted((row for row in errors(seed) if row["kind"] == kind), key=lambda row: len(row["source"]))[:count]
    return "\n".join(
        f"- {detokenise(row['source'])}\\\n  *{detokenise(row['wanted'])}*\\\n  {_marked(row['got'], row['wanted'])}"
        for row in rows
    )


def _marked(words: Sequence[str], others: Sequence[str]) -> str:
    """``words`` as text, bold where they are not a part of ``others`` in the same order."""
    runs = difflib.SequenceMatcher(None, others, words, autojunk=False).get_opcodes()
    parts = []
    for change, _, _, start, end in runs:
        text = " ".join(words[start:end])
        parts.append(text if change == "equal" else f"**{text}**" if text else "**[…]**")
    return re.sub(r" (?=[.,])", "", " ".join(parts))


# --- from the results: figures ------------------------------------------------------------------------------------------


def learning(ax: Axes) -> None:
    """Exact sentences of the validation part against seconds of one processor: the mean of the seeds and their range."""
    ends = {}
    for (kind, name), line in zip(KINDS.items(), ("-", "--", "-."), strict=True):
        table = np.array([row["curve"] for row in runs(kind)])  # (seeds, evaluations, (step, seconds, share))
        seconds, share = table[:, :, 1].mean(0), 100 * table[:, :, 2]
        (drawn,) = ax.plot(seconds, share.mean(0), linestyle=line, marker="o", markersize=3)
        ax.fill_between(seconds, share.min(0), share.max(0), color=drawn.get_color(), alpha=0.15, linewidth=0)
        ends[name] = (seconds[-1], share.mean(0)[-1], drawn.get_color())
    plots.names_at_ends(ax, ends, apart=7)
    ax.set(xlabel="seconds of one processor", ylabel="exact, %", ylim=(-3, 104))


def by_length(ax: Axes) -> None:
    """Exact sentences of the test part by the number of source words, all seeds together."""
    for kind, line, marker in zip(KINDS, ("-", "--", "-."), "osD", strict=True):
        counts: dict[tuple[int, int], list[int]] = {}
        for row in runs(kind):
            for low, high, right, total in row["by_length"]:
                count = counts.setdefault((low, high), [0, 0])
                count[0], count[1] = count[0] + right, count[1] + total
        ax.plot([100 * right / total for right, total in counts.values()], linestyle=line, marker=marker)
    seeds = len(runs("transformer"))
    names = [
        f"{low}–{high}\n{total // seeds}" if high < 99 else f"{low}+\n{total // seeds}"
        for (low, high), (_, total) in counts.items()
    ]
    ax.set_xticks(range(len(names)), names)
    ax.set(xlabel="words of the source; sentences", ylabel="exact, %", ylim=(-3, 104))


def length_shares(kind: str) -> list[float]:
    """The share of exact test sentences in each class of length, all seeds together."""
    table = np.array([row["by_length"] for row in runs(kind)])
    return (table[:, :, 2].sum(0) / table[:, :, 3].sum(0)).tolist()


def warmup(ax: Axes, norm_first: bool) -> None:
    """The loss of translators in one order of norm and sub-layer, with and without a warm-up, a line for each seed."""
    rows = results.load("translators-warmup").select(norm_first=norm_first)
    for row in sorted(rows, key=lambda row: row["warmup"]):
        steps, losses = np.array(row["losses"]).T
        slow = bool(row["warmup"])
        name = f"{row['warmup']} steps of warm-up" if slow else "no warm-up"
        first = not [line for line in ax.lines if line.get_label() == name]
        ax.plot(
            steps,
            losses,
            color=BLUE if slow else VERMILION,
            linestyle="--" if slow else "-",
            label=name if first else "_",
        )
    ax.set(title="pre-norm" if norm_first else "post-norm", xlabel="step", ylabel="" if norm_first else "loss")
    ax.set_ylim(bottom=0)
    if norm_first:
        ax.legend(loc="upper right")


def attention(ax: Axes, sentence: int, layer: int, head: int | None = None, seed: int = 0) -> None:
    """Cross-attention of one head, or the mean of a layer's, with a frame where the grammar aligns the two words."""
    rows = results.load("translators-maps").select(seed=seed, sentence=sentence, layer=layer)
    maps = np.array([row["weights"] for row in rows if head is None or row["head"] == head])
    source, target = rows[0]["source"], rows[0]["target"]
    plots.heatmap(ax, maps.mean(0), [*target, "<eos>"], ["<bos>", *source, "<eos>"], values=False, limits=(0, 1))
    ax.tick_params(axis="x", rotation=90)
    for i, j in rows[0]["alignment"]:
        ax.add_patch(Rectangle((i + 0.54, j - 0.46), 0.92, 0.92, fill=False, edgecolor=VERMILION, linewidth=1.6))


def head_shares(ax: Axes) -> None:
    """A bar for each head and for the mean of each layer, with a mark for each seed; the diagonal guess as a line."""
    rows = results.load("translators-alignment").select()
    layers = sorted({row["layer"] for row in rows} - {-1})
    heads = sorted({row["head"] for row in rows} - {"diagonal"})
    place, ticks = 0.0, []
    for layer in layers:
        for head in heads:
            values = [100 * share for share in shares(layer, head)]
            mean = head == "mean"
            ax.bar(
                place,
                statistics.fmean(values),
                0.8,
                color=BLUE if mean else "#a9cbe6",
                edgecolor=BLUE,
                hatch="" if mean else "///",
            )
            ax.plot([place] * len(values), values, "o", color=plots.INK, markersize=3, linestyle="none")
            ticks.append((place, "mean" if mean else str(int(head) + 1)))
            place += 1
        middle = place - (len(heads) + 1) / 2
        ax.annotate(
            f"layer {layer + 1}",
            (middle, 0),
            (0, -26),
            xycoords="data",
            textcoords="offset points",
            ha="center",
            size=9,
        )
        place += 0.8
    guess = 100 * shares(-1, "diagonal")[0]
    ax.axhline(guess, color=VERMILION, linestyle="--", linewidth=1.4)
    ax.annotate("the\ndiagonal", (1, guess), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                size=8.5, color=VERMILION, va="center", annotation_clip=False)  # fmt: skip
    ax.set_xticks(*zip(*ticks, strict=True))
    ax.set(ylabel="strongest word is right, %", ylim=(0, 100))


#: What was exchanged, in the words of the figure; %s is the word itself.
CHANGES = {
    "nothing": "nothing",
    "the word": "{deciding} in the sentence",
    "the state of the deciding word": "only what the encoder\nmade of {deciding}",
    "the state of the pointed word": "only what the encoder\nmade of {pointed}",
    "both states": "both of these",
    "the deciding word closed": "nothing, but {deciding} closed\nto the decoder",
    "the pointed word closed": "nothing, but {pointed} closed\nto the decoder",
}


def explanation(ax: Axes, case: str, pointed: str, deciding: str) -> None:
    """How often the own word, the other sentence's, or a third is said, when something is taken from the other sentence."""
    found = changes()[case]
    for row, change in enumerate(CHANGES):
        own, other = (100 * share for share in found[change])
        left = 0.0
        for width, colour, hatch in ((own, "#a9cbe6", ""), (other, VERMILION, ""), (100 - own - other, PALE, "////")):
            if width > 1e-9:
                ax.barh(row, width, 0.72, left=left, color=colour, hatch=hatch, edgecolor=plots.FAINT, linewidth=0.6)
                if width >= 9:
                    ink = "white" if colour == VERMILION else plots.INK
                    behind = dict(facecolor=PALE, edgecolor="none", pad=1) if hatch else None
                    ax.text(
                        left + width / 2,
                        row,
                        f"{width:.0f}",
                        ha="center",
                        va="center",
                        size=8.5,
                        color=ink,
                        bbox=behind,
                    )
            left += width
    ax.set_yticks(
        range(len(CHANGES)), [words.format(pointed=pointed, deciding=deciding) for words in CHANGES.values()], size=8.5
    )
    ax.invert_yaxis()
    ax.set(xlim=(0, 100), xlabel="% of the sentences")


# --- drawn from numbers alone -------------------------------------------------------------------------------------------


def data_flow(ax: Axes) -> None:
    """The whole Transformer with the shape of what passes, to be read from below."""
    ax.set(xlim=(-1.2, 14.2), ylim=(-0.5, 13.3))
    ax.axis("off")
    left, right = 2.6, 10.0
    box = dict(boxstyle="round,pad=0.42", facecolor="white", edgecolor=plots.INK, linewidth=1.3)
    table = dict(box, edgecolor=ORANGE, facecolor="#fdf0d5", linewidth=1.6)
    arrow = dict(arrowstyle="-|>", color=plots.INK, linewidth=1.3, shrinkA=0, shrinkB=0)
    columns = (
        (
            left,
            [
                (0.2, "source_ids", None),
                (2.4, "embedding\nand positions", box),
                (5.3, "N encoder layers", box),
                (7.6, "memory", None),
            ],
            ["(B, S)", "(B, S, D)", "(B, S, D)"],
        ),
        (
            right,
            [
                (0.2, "target_ids\nwithout the last", None),
                (2.4, "embedding $E$\nand positions", table),
                (5.3, "N decoder layers", box),
                (8.2, "times $E^\\top$", table),
                (10.6, "softmax, loss", box),
                (12.8, "how surprised it is", None),
            ],
            ["(B, T)", "(B, T, D)", "(B, T, D)", "(B, T, V)", ""],
        ),
    )
    for x, stops, shapes in columns:
        for y, words, look in stops:
            ax.text(
                x,
                y,
                words,
                ha="center",
                va="center",
                size=9.5,
                bbox=look,
                family="monospace" if "_ids" in words and "\n" not in words else None,
            )
        for (low, words, look), (high, more, further), shape in zip(stops, stops[1:], shapes, strict=False):
            start = low + (0.75 if "\n" in words else 0.5) + (0.2 if look else 0)
            end = high - (0.75 if "\n" in more else 0.45) - (0.2 if further else 0)
            ax.annotate("", (x, end), (x, start), arrowprops=arrow)
            ax.text(x + 0.2, (start + end) / 2, shape, ha="left", va="center", size=8.5)
    # the memory goes to every decoder layer
    ax.annotate(
        "",
        (right - 2.0, 5.3),
        (left + 1.1, 7.6),
        arrowprops=dict(arrow, color=GREEN, linewidth=2.2, connectionstyle="angle,angleA=0,angleB=90,rad=6"),
    )
    ax.text(5.2, 7.95, "keys and values", size=8.5, color=GREEN, ha="center")
    # one table, used twice
    ax.plot(
        [right + 1.65, 13.6, 13.6, right + 1.2],
        [2.4, 2.4, 8.2, 8.2],
        color=ORANGE,
        linestyle="--",
        linewidth=1.6,
        zorder=0,
    )
    ax.text(13.6, 6.6, "one\ntable", size=8.5, ha="center", va="center", bbox=dict(facecolor="white", edgecolor="none"))
    # labels
    ax.text(left + 2.6, 10.6, "labels: target_ids\nwithout the first", ha="center", va="center", size=9.5)
    ax.annotate("", (right - 1.75, 10.6), (left + 4.9, 10.6), arrowprops=arrow)
    ax.text(right - 2.5, 10.78, "(B, T)", size=8.5, ha="center", va="bottom")
    # masks
    faint = dict(arrow, color=plots.FAINT, linestyle="--")
    ax.text(-1.1, 7.0, "padding\nof the source\n(B, 1, 1, S)", size=8.5, ha="left", va="bottom", color=plots.INK)
    ax.annotate("", (left - 1.9, 5.5), (0.0, 6.9), arrowprops=faint)
    ax.text(5.55, 4.0, "padding of the source\n(B, 1, 1, S)", size=8.5, ha="center", va="center")
    ax.annotate("", (right - 1.95, 5.05), (7.4, 4.3), arrowprops=faint)
    ax.text(right + 2.4, 3.9, "target mask\n(B, 1, T, T)", size=8.5, ha="center", va="center")
    ax.annotate("", (right + 1.75, 4.95), (right + 2.3, 4.3), arrowprops=faint)


def shifted(ax: Axes, words: Sequence[str]) -> None:
    """A target sentence once as what the decoder is given and once as what it is to say: one place apart."""
    rows = {"given": words[:-1], "to be said": words[1:]}
    widths = [max(len(a), len(b)) + 2.2 for a, b in zip(*rows.values(), strict=True)]
    starts = np.concatenate([[0.0], np.cumsum(widths)])
    ax.set(xlim=(-12, starts[-1] + 0.5), ylim=(-0.75, 2.1))
    ax.axis("off")
    for (name, row), y in zip(rows.items(), (0.0, 1.3), strict=True):
        ax.text(-1, y + 0.25, name, ha="right", va="center", size=9, weight="bold")
        for place, word in enumerate(row):
            special = word.startswith("<")
            ax.add_patch(
                Rectangle(
                    (starts[place], y - 0.1),
                    widths[place] - 0.4,
                    0.7,
                    facecolor="#fdf0d5" if special else "#dcebf7",
                    edgecolor=ORANGE if special else BLUE,
                    linewidth=1,
                )
            )
            ax.text(starts[place] + widths[place] / 2 - 0.2, y + 0.25, word, ha="center", va="center", size=8)
    for place, width in enumerate(widths):
        x = starts[place] + width / 2 - 0.2
        ax.annotate(
            "",
            (x, 1.2),
            (x, 0.6),
            arrowprops=dict(arrowstyle="-|>", color=plots.INK, linewidth=0.9, shrinkA=0, shrinkB=0),
        )
        ax.text(x, -0.45, str(place), ha="center", va="center", size=7.5, color=plots.INK)


def smoothed_loss(p: np.ndarray, smoothing: float, size: int) -> np.ndarray:
    """The loss of a model that gives the right word ``p`` and shares the rest among the other ``size`` − 1."""
    rest = (1 - p) / (size - 1)
    on_right = 1 - smoothing + smoothing / size
    return -on_right * np.log(p) - (1 - on_right) * np.log(rest)


def schedules(ax: Axes, config: Any, noam_lr: Any, steps: int = 2500) -> None:
    """The paper's learning rate for two warm-ups and the course's, which falls along a cosine."""
    x = np.arange(1, steps + 1)
    highest = noam_lr(config.warmup, config.d_model, config.warmup)
    ax.plot(
        x,
        [config.rate * noam_lr(int(n), config.d_model, config.warmup) / highest for n in x],
        label="the paper's shape, 400 steps of warm-up",
    )
    slow = 2 * config.warmup
    ax.plot(
        x,
        [config.rate * noam_lr(int(n), config.d_model, slow) / highest for n in x],
        label="the same with 800",
        linestyle="--",
    )
    cosine = [
        config.rate
        * (
            n / config.warmup
            if n <= config.warmup
            else 0.5 * (1 + math.cos(math.pi * (n - config.warmup) / (steps - config.warmup)))
        )
        for n in x
    ]
    ax.plot(x, cosine, label="the course's: falls along a cosine", linestyle="-.")
    ax.set(xlabel="step", ylabel="learning rate", xlim=(0, steps), ylim=(0, 1.12 * config.rate))
    ax.legend(loc="upper right")


def tree(
    ax: Axes,
    table: Mapping[tuple[str, ...], Mapping[str, float]],
    kept: Sequence[set[tuple[str, ...]]],
    greedy: Sequence[str],
) -> None:
    """A table of probabilities as a tree: thick what a beam keeps, dashed what it drops, and the greedy way in orange.

    ``table`` has, for the words written so far, the probabilities of the next one; ``kept`` the hypotheses that a beam keeps
    after each step.
    """
    leaves: list[tuple[str, ...]] = []

    def visit(prefix: tuple[str, ...]) -> None:
        if prefix not in table:
            leaves.append(prefix)
            return
        for word in table[prefix]:
            visit((*prefix, word))

    visit(())
    height = {leaf: -float(row) for row, leaf in enumerate(leaves)}

    def level(prefix: tuple[str, ...]) -> float:
        if prefix not in height:
            children = [level((*prefix, word)) for word in table[prefix]]
            height[prefix] = (max(children) + min(children)) / 2
        return height[prefix]

    level(())
    total: dict[tuple[str, ...], float] = {(): 1.0}
    everything = set().union(*kept)
    for prefix in sorted(height, key=len):
        if prefix:
            total[prefix] = total[prefix[:-1]] * table[prefix[:-1]][prefix[-1]]
            alive, easy = prefix in everything, tuple(greedy[: len(prefix)]) == prefix
            colour = ORANGE if easy and not alive else BLUE if alive else plots.FAINT
            x = (len(prefix) - 1, len(prefix))
            y = (height[prefix[:-1]], height[prefix])
            ax.plot(
                [x[0] + 0.28 * bool(prefix[:-1]), x[1] - 0.3],
                y,
                color=colour,
                linewidth=2.6 if alive else 1.8 if easy else 1.0,
                linestyle="-" if alive else "--",
                zorder=0,
            )
            if easy and alive:
                ax.plot(
                    [x[0] + 0.28 * bool(prefix[:-1]), x[1] - 0.3],
                    [y[0] - 0.13, y[1] - 0.13],
                    color=ORANGE,
                    linewidth=1.8,
                    linestyle="--",
                    zorder=0,
                )
            words = f"{prefix[-1]}\n{total[prefix]:.3f}"
            edge = BLUE if alive else ORANGE if easy else plots.FAINT
            box = dict(
                boxstyle="round,pad=0.25", facecolor="white", edgecolor=edge, linewidth=1.6 if alive or easy else 0.8
            )
            ax.text(len(prefix), height[prefix], words, ha="center", va="center", size=8, linespacing=1.15, bbox=box)
            middle, share = (x[0] + 0.28 + x[1] - 0.3) / 2, f"{table[prefix[:-1]][prefix[-1]]:.2f}".lstrip("0")
            plain = dict(facecolor="white", edgecolor="none", pad=0.8)
            ax.text(middle, sum(y) / 2, share, ha="center", va="center", size=7, color=plots.INK, bbox=plain)
    ax.text(
        0,
        height[()],
        "<bos>",
        ha="center",
        va="center",
        size=8,
        bbox=dict(boxstyle="round,pad=0.25", facecolor="white", edgecolor=plots.INK),
    )
    deepest = max(map(len, height))
    ax.set(xlim=(-0.4, deepest + 0.45), ylim=(-len(leaves) + 0.3, 0.7))
    ax.axis("off")


def n_grams(ax: Axes, words: Sequence[str], reference: Sequence[str], title: str) -> None:
    """The n-grams of ``words``, a row of tiles for each n: filled where the reference has one left to match."""
    ax.set_title(title, size=9.5)
    for n in range(1, 5):
        left = [tuple(reference[i : i + n]) for i in range(len(reference) - n + 1)]
        matched = 0
        for place in range(len(words) - n + 1):
            gram = tuple(words[place : place + n])
            hit = gram in left
            if hit:
                left.remove(gram)
            matched += hit
            look: dict[str, Any] = (
                dict(facecolor=BLUE, edgecolor="white")
                if hit
                else dict(facecolor=PALE, edgecolor=plots.FAINT, hatch="////")
            )
            ax.add_patch(Rectangle((place + (n - 1) / 2 + 0.05, -n), 0.9, 0.72, linewidth=0.6, **look))
        ax.text(-0.3, -n + 0.36, f"n = {n}", ha="right", va="center", size=8.5)
        ax.text(len(words) + 0.4, -n + 0.36, f"{matched}/{len(words) - n + 1}", ha="left", va="center", size=8.5)
    for place, word in enumerate(words):
        ax.text(
            place + 0.5, 0.1, word, ha="center", va="bottom", size=7.5, weight="normal" if word in reference else "bold"
        )
    ax.set(xlim=(-1.6, 12.6), ylim=(-4.2, 0.9))
    ax.axis("off")
