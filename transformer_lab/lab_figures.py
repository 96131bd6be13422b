"""The tables and figures of chapter 10.

from transformer_lab import lab_figures as figures, plots

figures.step(plots.figure(7, 3))
figures.staircase(plots.figure(6.4, 3.4), results.load("bench-cpu").select())     # from python -m transformer_lab bench
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from transformer_lab import costs, plots, translation
from transformer_lab.costs import Gpu

BLUE, ORANGE, GREEN, VERMILION = (plots.COLOURS[name] for name in ("blue", "orange", "green", "vermilion"))
LIGHT, PALE = "#a9cbe6", "#eceff2"

# --- a step -------------------------------------------------------------------------------------------------------------

#: The parts of a step in order, and what the chapter does about each.
STEP = {
    "batch": "like lengths,\na budget of tokens",
    "forward": "number format,\nfused attention,\ncompiling",
    "loss": "a mean over\nreal tokens",
    "backward": "in parts, if the\nmemory is small",
    "gradients": "summed over\nprocesses",
    "optimiser": "one kernel for\nall parameters",
}


def step(ax: Axes) -> None:
    """The parts of a training step, left to right, and below each what makes it cheaper or keeps it right."""
    for place, (name, what) in enumerate(STEP.items()):
        x = 1.2 * place
        box = FancyBboxPatch((x, 1), 0.9, 0.55, boxstyle="round,pad=0.02", facecolor=LIGHT, edgecolor=BLUE, linewidth=1)
        ax.add_patch(box)
        ax.text(x + 0.45, 1.275, name, ha="center", va="center", size=9)
        ax.text(x + 0.45, 0.86, what, ha="center", va="top", size=7.5, linespacing=1.3)
        if place:
            arrow = dict(arrowstyle="-|>", color=plots.INK, linewidth=1, shrinkA=1, shrinkB=1)
            ax.annotate("", (x - 0.02, 1.275), (x - 0.28, 1.275), arrowprops=arrow)
    ax.set(xlim=(-0.15, 1.2 * len(STEP) - 0.15), ylim=(0.3, 1.62))
    ax.axis("off")


def work(config: translation.Config, vocabulary: int, length: int) -> dict[str, int]:
    """Multiplications of one forward pass, for a pair with ``length`` tokens on either side, by what they are for."""
    width, hidden, layers = config.d_model, config.d_ff, config.num_layers
    return {
        "projections": layers * 3 * 4 * length * width**2,
        "scores and sums": layers * 3 * 2 * length**2 * width,
        "feed-forward": layers * 2 * 2 * length * width * hidden,
        "output words": length * width * vocabulary,
    }


def work_shares(ax: Axes, cases: Mapping[str, Mapping[str, int]]) -> None:
    """A bar for each case, cut into the shares of the multiplications of :func:`work`."""
    looks = {
        "projections": (BLUE, ""),
        "scores and sums": (ORANGE, "///"),
        "feed-forward": (LIGHT, ""),
        "output words": (PALE, "..."),
    }
    for row, parts in enumerate(cases.values()):
        left, total = 0.0, sum(parts.values())
        for name, count in parts.items():
            colour, hatch = looks[name]
            share = 100 * count / total
            ax.barh(
                row,
                share,
                0.66,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor=plots.FAINT,
                linewidth=0.6,
                label=name if not row else "_",
            )
            if share >= 6:
                ink = "white" if colour == BLUE else plots.INK
                behind = dict(facecolor=colour, edgecolor="none", pad=1) if hatch else None
                ax.text(
                    left + share / 2, row, f"{share:.0f}", ha="center", va="center", size=8.5, color=ink, bbox=behind
                )
            left += share
    ax.set_yticks(range(len(cases)), list(cases), size=9)
    ax.invert_yaxis()
    ax.set(xlim=(0, 100), xlabel="% of the multiplications")
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8.5, handlelength=1.2, columnspacing=1.2)


# --- batches ------------------------------------------------------------------------------------------------------------


def padded(ax: Axes, lengths: Sequence[int], longest: int, rows: int) -> None:
    """One batch, a row for each sentence: real tokens blue, padding hatched."""
    width = max(lengths)
    for row, length in enumerate(lengths):
        ax.barh(row, length, 1.0, color=LIGHT, edgecolor=BLUE, linewidth=0.3)
        if length < width:
            ax.barh(
                row, width - length, 1.0, left=length, color=PALE, hatch="////", edgecolor=plots.FAINT, linewidth=0.3
            )
    ax.set(xlim=(0, longest), ylim=(rows - 0.5, -0.5), xlabel="tokens")


def padding_share(lengths: Sequence[int]) -> float:
    """Which share of one padded batch is padding."""
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


# --- number formats -----------------------------------------------------------------------------------------------------

#: Bits of the exponent and behind the point. TF32 is a way of multiplying float32 numbers, and no type of PyTorch.
FORMATS = {"float32": (8, 23), "TF32": (8, 10), "bfloat16": (8, 7), "float16": (5, 10)}


def spacing(name: str) -> float:
    """From 1 to the next larger number of a format."""
    return 2.0 ** -FORMATS[name][1]


def largest(name: str) -> float:
    """The largest finite number of a format."""
    exponent, fraction = FORMATS[name]
    return (2 - 2.0**-fraction) * 2.0 ** (2 ** (exponent - 1) - 1)


def smallest(name: str) -> float:
    """The smallest number above 0 of a format, with all but the last bit lost."""
    exponent, fraction = FORMATS[name]
    return 2.0 ** (2 - 2 ** (exponent - 1) - fraction)


def formats_table() -> list[list[str]]:
    """Each format: bits, the gap behind 1, and the largest and the smallest number."""
    table = [["", "bits", "exponent", "behind the point", "gap behind 1", "largest", "smallest"]]
    for name, (exponent, fraction) in FORMATS.items():
        table.append(
            [
                name,
                "32" if name == "TF32" else str(1 + exponent + fraction),
                str(exponent),
                str(fraction),
                _power(spacing(name)),
                _power(largest(name)),
                _power(smallest(name)),
            ]
        )
    return table


def _power(value: float) -> str:
    """0.0078 as 8 · 10⁻³, and what is nearer to 1 than 10⁻² or 10⁴ as it is."""
    if 1e-2 <= value < 1e5:
        return f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
    exponent = math.floor(math.log10(value))
    digits = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(d)] for d in str(abs(exponent)))
    return f"{value / 10**exponent:.1f}\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}10{'⁻' if exponent < 0 else ''}{digits}"


def gradient_sizes(ax: Axes, gradients: torch.Tensor, factor: float) -> None:
    """How large gradients are, by powers of two, as they come and ``factor`` times as large; and what float16 makes of them."""
    sizes = gradients.abs()
    powers = sizes[sizes > 0].log2().numpy()
    edges = np.arange(math.floor(powers.min()), 3)
    for shift, style, name in ((0.0, "-", "as they come"), (math.log2(factor), "--", f"times {factor:,.0f}")):
        counts, _ = np.histogram(powers + shift, bins=np.arange(edges[0], edges[-1] + shift + 1))
        middles = np.arange(edges[0], edges[-1] + shift) + 0.5
        ax.plot(middles[: len(counts)], 100 * counts / len(powers), linestyle=style, label=name)
    zero, short = math.log2(smallest("float16")) - 1, math.log2(torch.finfo(torch.float16).smallest_normal)
    left, top = ax.get_xlim()[0], ax.get_ylim()[1]
    for low, high, colour, name in ((left, zero, "#d5dbe1", "0"), (zero, short, PALE, "fewer digits")):
        ax.axvspan(low, high, color=colour, zorder=0, linewidth=0)
        ax.axvline(high, color=VERMILION, linewidth=1.2, linestyle=":")
        ax.annotate(name, (high, top), (-4, -2), textcoords="offset points", ha="right", va="top", size=8.5)
    ax.set(xlabel="size, as a power of 2", ylabel="% of the gradients", ylim=(0, None), xlim=(max(edges[0], -34), None))
    ax.legend(loc="upper right")


# --- attention and decoding ---------------------------------------------------------------------------------------------


def score_bytes(tokens: int, length: int, num_heads: int, each: int = 4) -> float:
    """Bytes of the scores of one self-attention over ``tokens`` tokens in sentences of one length."""
    return float(tokens * length * num_heads * each)


def vector_bytes(tokens: int, d_model: int, each: int = 4) -> float:
    """Bytes of its queries, keys, values and outputs."""
    return 4.0 * tokens * d_model * each


def scores_memory(ax: Axes, tokens: int, d_model: int, num_heads: int) -> None:
    """Memory of the scores against that of queries, keys, values and outputs, when sentences get longer and fewer."""
    lengths = 2.0 ** np.arange(4, 14)
    ax.plot(lengths, [score_bytes(tokens, int(n), num_heads) / 1e9 for n in lengths], label="scores (T, S)")
    ax.plot(lengths, [vector_bytes(tokens, d_model) / 1e9] * len(lengths), "--", label="queries, keys, values, outputs")
    crossing = 4 * d_model / num_heads
    ax.axvline(crossing, color=plots.FAINT, linewidth=0.8)
    ax.annotate(
        f"{crossing:.0f} tokens", (crossing, ax.get_ylim()[1]), (4, -4), textcoords="offset points", va="top", size=8.5
    )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths[::2], [f"{n:.0f}" for n in lengths[::2]])
    ax.set(xlabel="tokens of a sentence", ylabel="GB in one layer")
    ax.legend(loc="upper left")


def writing(tokens: int, d_model: int, cached: bool) -> dict[str, int]:
    """Multiplications of one self-attention while ``tokens`` tokens are written one by one: projections, scores and sums."""
    seen = range(1, tokens + 1)
    if cached:
        return {"projections": tokens * 4 * d_model**2, "scores and sums": sum(2 * t * d_model for t in seen)}
    return {
        "projections": sum(t * 4 * d_model**2 for t in seen),
        "scores and sums": sum(2 * t * t * d_model for t in seen),
    }


def writing_costs(ax: Axes, d_model: int) -> None:
    """All multiplications of :func:`writing` against the number of tokens, without and with a cache."""
    tokens = 2 ** np.arange(0, 12)
    for cached, style, marker in ((False, "-", "o"), (True, "--", "s")):
        counts = [sum(writing(int(n), d_model, cached).values()) for n in tokens]
        ax.plot(
            tokens,
            counts,
            linestyle=style,
            marker=marker,
            markersize=3.5,
            label="with a cache" if cached else "everything again",
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(tokens[::2], [str(n) for n in tokens[::2]])
    ax.set(xlabel="tokens written", ylabel="multiplications")
    ax.legend(loc="upper left")


# --- from the results ---------------------------------------------------------------------------------------------------


#: The models of ``results/multi30k.json``.
MODELS = {"transformer": "Transformer", "gru with attention": "GRU with attention"}


def bench_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of training and the references: what was measured of each."""
    table = [["", "tokens/s", "factor", "MB", "padding, %", "MFU, %", "off by"]]
    first = rows[0]["tokens_per_second"]
    for row in rows:
        if row["part"] == "decoding":
            continue
        table.append(
            [
                row["name"],
                f"{row['tokens_per_second']:,.0f}",
                f"{row['tokens_per_second'] / first:.2f}",
                "–" if row["memory_mb"] is None else f"{row['memory_mb']:,.0f}",
                f"{100 * row['padding']:.1f}",
                f"{100 * row['utilisation']:.0f}",
                f"{row['gradient_difference']:.0e}".replace("-", "\N{NON-BREAKING HYPHEN}")
                if row["gradient_difference"]
                else "0",
            ]
        )
    return table


def staircase(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """A bar for each way to train, real target tokens a second, with the range of the turns; hatched: PyTorch's own model."""
    shown = [row for row in rows if row["part"] != "decoding"]
    first = shown[0]["tokens_per_second"]
    for place, row in enumerate(shown):
        reference = row["part"] == "reference"
        speed = row["tokens_per_second"]
        ax.barh(
            place,
            speed,
            0.66,
            color=PALE if reference else LIGHT,
            hatch="///" if reference else "",
            edgecolor=plots.FAINT if reference else BLUE,
        )
        ax.plot([row["slowest"], row["fastest"]], [place, place], color=plots.INK, linewidth=1.2, linestyle="-")
        end = max(speed, row["fastest"])
        ax.annotate(f"{speed / first:.2f} ×", (end, place), (5, 0), textcoords="offset points", va="center", size=8.5)
    ax.set_yticks(range(len(shown)), [row["name"] for row in shown], size=8.5)
    ax.invert_yaxis()
    ax.set(xlabel="real target tokens a second", xlim=(0, 1.16 * max(row["fastest"] for row in shown)))
    ax.ticklabel_format(axis="x", style="plain")


def decoding_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of decoding: speed without and with a cache, the factor, and how many sentences come out otherwise."""
    table = [["", "tokens/s without a cache", "with a cache", "times", "other sentences"]]
    own = {row["name"]: row for row in rows if row["part"] == "decoding"}
    for search in dict.fromkeys(name.split(",")[0] for name in own):
        plain, cached = own[f"{search}, without a cache"], own[f"{search}, with a cache"]
        factor = cached["tokens_per_second"] / plain["tokens_per_second"]
        other = f"{100 * cached['other_sentences']:.1f} %" if cached["other_sentences"] else "none"
        speeds = (f"{row['tokens_per_second']:,.0f}" for row in (plain, cached))
        table.append([search, *speeds, f"{factor:.1f}", other])
    return table


def multi30k_table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each training on Multi30k: size, time, steps, and scores of the test part."""
    table = [["", "parameters", "steps", "greedy", "beam of 4", "lower-cased", "tokenised", "chrF"]]
    several = len({row["seed"] for row in rows}) > 1
    for row in rows:
        table.append(
            [
                MODELS[row["model"]] + (f", seed {row['seed']}" if several else ""),
                f"{row['parameters'] / 1e6:.2f} M",
                f"{row['steps']:,}",
                *(f"{row[name]:.1f}" for name in ("bleu_greedy", "bleu_beam", "bleu_lowercased", "bleu_tokenised")),
                f"{row['chrf_greedy']:.1f}",
            ]
        )
    return table


# --- curves -------------------------------------------------------------------------------------------------------------


def healthy(ax: Axes, history: Sequence[Mapping[str, float]], know_nothing: float, frequencies: float) -> None:
    """The loss of a training without a fault, each step, with the losses of who knows nothing and of who knows frequencies."""
    steps, losses = [row["step"] for row in history], [row["loss"] for row in history]
    ax.plot(steps, losses, linewidth=1.2)
    for level, name in ((know_nothing, "log V: knows nothing"), (frequencies, "knows how frequent words are")):
        ax.axhline(level, color=plots.FAINT, linewidth=0.9, linestyle="--")
        ax.annotate(
            name,
            (1, level),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            size=8.5,
        )
    ax.set(xlabel="step", ylabel="loss", ylim=(0, None), xlim=(0, steps[-1]))


# --- costs --------------------------------------------------------------------------------------------------------------


def costs_table(gpu: Gpu) -> list[list[str]]:
    """The paper's two models: operations, what the paper says, and hours and price of one GPU as one assumes it."""
    table = [["", *costs.PAPER]]
    trainings = costs.PAPER.values()
    lines = {
        "parameters, counted": lambda t: f"{t.parameters() / 1e6:.0f} million",
        "parameters, as stated": lambda t: f"{t.stated_parameters / 1e6:.0f} million",
        "operations of a step, counted": lambda t: _power(t.step_flops()),
        "steps, as stated": lambda t: f"{t.steps:,}",
        "operations of all steps, counted": lambda t: _power(t.training_flops()),
        "hours of 8 P100, as stated": lambda t: f"{t.stated_hours():.0f}",
        "MFU that follows, %": lambda t: f"{100 * t.utilisation():.0f}",
        "hours of one assumed GPU": lambda t: f"{costs.hours(t.training_flops(), gpu):.1f}",
        "price of these hours, assumed": lambda t: f"{costs.price(t.training_flops(), gpu):.0f}",
    }
    return table + [[name, *(line(training) for training in trainings)] for name, line in lines.items()]


#: Bytes a second that a GPU is assumed to send while it receives as many.
LINKS = {"inside a machine, 450 GB/s": 450e9, "100 Gbit/s": 12.5e9, "1 Gbit/s": 1.25e8}


def communication(ax: Axes, parameters: float, gpu: Gpu, gpus: int = 8) -> None:
    """Seconds that one step computes, against the tokens of each GPU; and that the gradients travel, a line a link."""
    tokens = np.logspace(2, 7, 40)
    computing = [costs.compute_seconds(parameters, n, gpu) for n in tokens]
    (line,) = ax.plot(tokens, computing)
    ax.annotate(
        "computing",
        (tokens[25], computing[25]),
        (8, -4),
        textcoords="offset points",
        va="top",
        size=8.5,
        color=line.get_color(),
    )
    for (name, bandwidth), style in zip(LINKS.items(), ("--", "-.", ":"), strict=True):
        seconds = costs.communication_seconds(parameters, gpus, bandwidth)
        (line,) = ax.plot(tokens, [seconds] * len(tokens), linestyle=style)
        equal = costs.balance_tokens(gpu, gpus, bandwidth)
        ax.plot([equal], [seconds], marker="o", color=plots.INK, markersize=4)
        right = equal < 1e4  # there the left end is where computing crosses
        end, side = (tokens[-1], "right") if right else (tokens[0], "left")
        ax.annotate(
            name,
            (end, seconds),
            (-3 if right else 3, 3),
            textcoords="offset points",
            ha=side,
            size=8.5,
            color=line.get_color(),
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="tokens that a GPU has in a step", ylabel="seconds of a step", xlim=(tokens[0], tokens[-1]))
