"""How large gradients and embeddings are: a model's norms, part by part.

    watch = norms.GradientNorms(every=50)
    Trainer(model, …, observe=watch).train(steps=1000)
    norms.draw_gradients(plots.figure(), watch.rows)

A part is what one would point to in a drawing of the model: an embedding, a layer of the encoder or of the decoder, the
norm behind a stack, an output layer.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from transformer_lab.data import SPECIALS, SubwordVocabulary, Tokens, Vocabulary

if TYPE_CHECKING:  # figures are drawn where matplotlib is installed; norms are taken everywhere
    from matplotlib.axes import Axes

_LAYER = re.compile(r"^(?:(.*?)\.)?layers?\.(\d+)\.")
_RECURRENT = re.compile(r"^(?:(.*?)\.)?(?:weight|bias)_[ih]h_l(\d+)(?:_reverse)?$")


def part(name: str) -> str:
    """The part of the model to which the parameter ``name`` belongs, in words; layers count from 1.

    ``encoder.layers.0.self_attention.w_q.weight`` → ``encoder layer 1``, ``source_embed.token.embedding.weight`` → ``source
    embedding``, ``decoder.norm.gamma`` → ``decoder norm``, ``head.weight`` → ``head``.
    """
    if match := _LAYER.match(name) or _RECURRENT.match(name):
        stack, number = match.groups()
        return f"{_words(stack or '')} layer {int(number) + 1}".lstrip()
    modules = name.split(".")[:-1]
    if not modules:
        return _words(name)
    if "embed" in modules[0]:
        return re.sub(r"\bembed\b", "embedding", _words(modules[0]))
    return _words(".".join(modules[:2] if modules[0] in ("encoder", "decoder") else modules[:1]))


def by_part(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of each part, in the model's order; one that is used twice belongs where it is first."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        parts.setdefault(part(name), []).append(parameter)
    return parts


class GradientNorms:
    """The norm of the gradients of each part, every so many steps: for the engine's ``observe``.

    Calling it costs nothing at the steps between, and never waits for a GPU: what has been measured is taken from there
    when somebody asks for ``rows``.

    Parameters
    ----------
    every
        Steps 1, ``every``, 2 · ``every``, … are measured.
    """

    def __init__(self, every: int = 50):
        if every < 1:
            raise ValueError(f"Gradients are measured every step or more rarely, not every {every}.")
        self.every = every
        self._names: list[str] = []
        self._rows: list[dict[str, float]] = []
        self._on_device: list[tuple[int, Tensor]] = []

    def __call__(self, step: int, model: nn.Module) -> None:
        """Measure, where it is time. To be called when a step's gradients are there and before the weights change.

        A part without gradients counts as 0. A step that comes again, in a resumed run, replaces itself and later ones.
        """
        if step % self.every and step != 1:
            return
        parts = by_part(model)
        self._names = list(parts)
        measured = [_norm([p.grad for p in parameters if p.grad is not None]) for parameters in parts.values()]
        device = next(model.parameters()).device
        self._on_device.append((step, torch.stack([value.to(device) for value in measured])))

    @property
    def rows(self) -> list[dict[str, float]]:
        """A row for each measured step: ``step``, and the Euclidean norm of all gradients of each part, by its name."""
        for step, values in self._on_device:
            while self._rows and self._rows[-1]["step"] >= step:
                self._rows.pop()
            self._rows.append({"step": step} | dict(zip(self._names, values.tolist(), strict=True)))
        self._on_device = []
        return self._rows


def _norm(gradients: Sequence[Tensor]) -> Tensor:
    if not gradients:
        return torch.zeros(())
    return nn.utils.get_total_norm([gradient.detach() for gradient in gradients]).float()


def draw_gradients(ax: Axes, rows: Sequence[Mapping[str, float]], parts: Iterable[str] | None = None) -> None:
    """The norms of ``rows`` over the steps, on a logarithmic scale, each line with its name at its end.

    ``parts`` names those to draw; None draws all. A norm of 0 and one that is no finite number leave a gap.
    """
    import numpy as np

    from transformer_lab import plots

    steps = [row["step"] for row in rows]
    names = list(parts) if parts is not None else [name for name in rows[0] if name != "step"]
    ends = {}
    for name in names:
        values = np.array([row.get(name, np.nan) for row in rows], dtype=float)
        logs = np.log10(np.where(np.isfinite(values) & (values > 0), values, np.nan))
        ax.plot(steps, logs)
        seen = logs[np.isfinite(logs)]
        if seen.size:
            ends[name] = (steps[-1], float(seen[-1]), plots.INK)
    _powers_of_ten(ax)
    plots.names_at_ends(ax, ends, _points(ax, 11))
    ax.set(xlabel="step", ylabel="norm of the gradient")


def describe_gradients(rows: Sequence[Mapping[str, float]], parts: Iterable[str] | None = None) -> str:
    """What the figure of :func:`draw_gradients` shows, in a sentence or two: its alternative text."""
    names = list(parts) if parts is not None else [name for name in rows[0] if name != "step"]
    first, last = rows[0], rows[-1]
    lines = "; ".join(f"{name} from {first[name]:.2g} to {last[name]:.2g}" for name in names)
    largest = max(names, key=lambda name: last[name])
    smallest = min(names, key=lambda name: last[name])
    return (
        f"Norms of gradients on a logarithmic scale from step {first['step']:g} to step {last['step']:g}, a line for each "
        f"part of the model: {lines}. At the end {largest} has the largest gradient and {smallest} the smallest."
    )


# -------------------------------------------------------------------------------------------------------- embeddings


@dataclass(frozen=True)
class EmbeddingNorm:
    """A token, how often it comes in training, and the Euclidean norm of its row of the table."""

    token: str
    count: int
    norm: float


def embedding_norms(table: Tensor, tokens: Tokens, sentences: Iterable[Iterable[str]]) -> list[EmbeddingNorm]:
    """The norm of every row of ``table`` (V, D), beside how often its token comes in ``sentences``, in the order of the ids.

    ``<bos>`` and ``<eos>`` come once in every sentence, ``<pad>`` never. ValueError where the table has another number of
    rows than there are tokens.
    """
    if len(table) != len(tokens):
        raise ValueError(f"A table of {len(table)} rows is not that of {len(tokens)} tokens.")
    counts = Counter(index for words in sentences for index in tokens.encode(words))
    sizes = table.detach().float().norm(dim=-1).tolist()
    texts = token_texts(tokens)
    return [EmbeddingNorm(text, counts[index], sizes[index]) for index, text in enumerate(texts)]


def token_texts(tokens: Tokens) -> tuple[str, ...]:
    """What stands for each id when it is shown, the special tokens among them."""
    if isinstance(tokens, Vocabulary):
        return SPECIALS + tokens.words
    if isinstance(tokens, SubwordVocabulary):
        return tokens.pieces
    raise TypeError(f"The tokens of a {type(tokens).__name__} cannot be shown.")


def draw_embeddings(ax: Axes, rows: Sequence[EmbeddingNorm], named: Iterable[str] = SPECIALS) -> None:
    """A dot for each token, its norm over how often it comes in training; those ``named`` with their names.

    What never comes in training is drawn as a cross at the left edge. The line joins the :func:`medians`.
    """
    import matplotlib.ticker

    from transformer_lab import plots

    seen, never = [row for row in rows if row.count], [row for row in rows if not row.count]
    blue = plots.COLOURS["blue"]
    ax.plot([row.count for row in seen], [row.norm for row in seen], "o", color=blue, markersize=2.5, alpha=0.5)
    line = medians(rows)
    ax.plot([count for count, _ in line], [norm for _, norm in line], color=plots.INK, linestyle="-", linewidth=1.6)
    ax.plot([_NEVER] * len(never), [row.norm for row in never], "x", color=plots.COLOURS["vermilion"], markersize=5)
    ax.set_xscale("log")
    ax.set_xlim(left=0.7 * _NEVER)
    powers = [10**power for power in range(len(str(max((row.count for row in rows), default=1))))]
    ax.set_xticks([_NEVER, *powers], ["never", *(f"{tick:,}" for tick in powers)])
    ax.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    largest = max((row.norm for row in rows), default=1.0)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.08 * largest))  # axes may be shared
    wanted = set(named)
    names = {row.token: (float(row.count or _NEVER), row.norm, plots.INK) for row in rows if row.token in wanted}
    plots.names_at_ends(ax, names, _points(ax, 11))
    ax.set(xlabel="occurrences in training", ylabel="norm of the embedding")


#: Where on the logarithmic axis that has no 0 tokens stand that never come.
_NEVER = 0.12
#: A median of fewer tokens says nothing.
_FEWEST = 5


def medians(rows: Sequence[EmbeddingNorm]) -> list[tuple[float, float]]:
    """Counts and median norms of tokens that are about equally frequent: from 1 to 3, from 4 to 15, and so on by factors of 4.

    The counts are the medians too. Groups of fewer than five tokens are left out.
    """
    groups: dict[int, list[EmbeddingNorm]] = {}
    for row in rows:
        if row.count:
            groups.setdefault((row.count.bit_length() - 1) // 2, []).append(row)
    return [
        (_median(row.count for row in group), _median(row.norm for row in group))
        for _, group in sorted(groups.items())
        if len(group) >= _FEWEST
    ]


def describe_embeddings(rows: Sequence[EmbeddingNorm]) -> str:
    """What the figure of :func:`draw_embeddings` shows: its alternative text."""
    specials = ", ".join(f"{row.token} {row.norm:.2f}" for row in rows if row.token in SPECIALS)
    line = [f"{norm:.2f} where tokens come about {count:,.0f} times" for count, norm in medians(rows)]
    across = f"The line of medians goes from {line[0]} to {line[-1]}. " if line else ""
    return (
        f"A dot for each of {len(rows)} tokens, the norm of its embedding over how often it comes in training. "
        f"{across}The special tokens: {specials}."
    )


# --------------------------------------------------------------------------------------------------------------------


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ").strip()


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def _points(ax: Axes, points: float) -> float:
    """So many points of height in units of the y axis."""
    low, high = ax.get_ylim()
    return points * (high - low) / (ax.get_window_extent().height * 72 / ax.figure.dpi)


def _powers_of_ten(ax: Axes) -> None:
    """Label an axis of logarithms with the numbers themselves: 1, 2, 5 and their multiples by powers of ten."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    low, high = ax.get_ylim()
    digits = (1, 2, 5) if high - low < 3 else (1,)
    places = [power + math.log10(digit) for power in range(-12, 13) for digit in digits]
    ax.yaxis.set_major_locator(FixedLocator(places))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{10**place:.1g}"))
