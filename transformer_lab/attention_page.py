"""Every attention map of a translator for one sentence: as a page to explore, and as images.

    found = attention_page.look(translator, ["sie", "schläft", "."])
    attention_page.write(found, "build/look/attention.html")
    attention_page.draw(found, "cross")                 # heat maps in the course's style, a row for each layer

The page is one file of HTML that asks nothing of any other file or host. In a notebook or a page of the book,
``attention_page.Embedded(found)`` as a cell's last line shows it in place.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from transformer_lab import attention_maps
from transformer_lab.data import UNK, Tokens, Vocabulary, detokenise, pad
from transformer_lab.norms import token_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from transformer_lab.translation import Translator

#: The three attentions of a translator: what they are called, what a row and a column stand for.
KINDS = {
    "encoder": ("Encoder self-attention", "source token", "reads source token"),
    "decoder": ("Decoder self-attention", "word to be said", "reads target token"),
    "cross": ("Cross-attention", "word to be said", "reads source token"),
}
_CALLED = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


@dataclass(frozen=True)
class Maps:
    """What every head of a translator attends to while it reads one sentence and says another.

    Attributes
    ----------
    source
        The S tokens that the encoder reads, ``<bos>`` and ``<eos>`` among them.
    target
        T + 1 tokens from ``<bos>`` on: the decoder reads the first T and is to say the last T.
    sentence, translation
        The two as texts.
    weights
        For each of ``KINDS`` a tensor with axes layer, head, row and column. In ``encoder`` rows and columns are the source
        tokens; in ``decoder`` and ``cross`` a row is a place of the target, columns are the target tokens read, (T, T), or
        the source tokens, (T, S).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sentence: str
    translation: str
    weights: dict[str, Tensor]

    def rows(self, kind: str) -> tuple[str, ...]:
        """The names of a map's rows: who attends. In the decoder those are the words to be said."""
        return self.source if kind == "encoder" else self.target[1:]

    def columns(self, kind: str) -> tuple[str, ...]:
        """The names of a map's columns: what is attended to."""
        return self.target[:-1] if kind == "decoder" else self.source


@torch.no_grad()
def look(translator: Translator, words: Sequence[str], target: Sequence[str] | None = None) -> Maps:
    """Let ``translator`` translate ``words`` greedily, or read out ``target``, and write down all attention weights.

    The model runs as it is, whoever has written its pieces; the weights are taken beside it, see
    :mod:`~transformer_lab.attention_maps`.

    Raises
    ------
    ValueError
        There are no words, or too many for the model; or it has no multi-head attention in layers of an encoder and a
        decoder with ``w_q`` and ``w_k``, as a recurrent one has not; or weights are no finite numbers.
    """
    if not words:
        raise ValueError("There is no sentence to look at: give at least one word.")
    said = tuple(target) if target is not None else translator.translate(words)[0]
    task, most = translator.task, translator.config.max_len
    source_ids, target_ids = task.source.encode(words), task.target.encode(said)
    if max(len(source_ids), len(target_ids) - 1) > most:
        raise ValueError(f"A sentence has more tokens than the model has positions, {most}: shorten it.")
    source, given = pad([source_ids]), pad([target_ids[:-1]])
    device = next(translator.model.parameters()).device
    source, given = source.to(device), given.to(device)
    translator.model.eval()
    with attention_maps.recording(translator.model, translator.config.num_heads) as found:
        memory = translator.model.encode(source)
        translator.model.decode(given, memory, source)
    return Maps(
        _texts(task.source, source_ids, words),
        _texts(task.target, target_ids, said),
        detokenise(words),
        detokenise(said),
        _by_kind(found, len(source_ids), len(target_ids) - 1),
    )


def _by_kind(found: dict[str, list[Tensor]], source: int, target: int) -> dict[str, Tensor]:
    """The recorded maps by kind, one (layers, H, rows, columns) each."""
    layers: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for name, calls in found.items():
        if not calls:
            continue
        side, _, rest = name.partition(".")
        kind = "cross" if side == "decoder" and "cross" in rest else side
        if kind in layers:
            layers[kind].append(calls[-1][0].float().cpu())
    sizes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for kind, size in sizes.items():
        if not layers[kind] or any(map_.shape[-2:] != size for map_ in layers[kind]):
            raise ValueError(
                f"This model shows no {_CALLED[kind]}: it needs layers whose attention has w_q and w_k, as those of "
                "the course have."
            )
        if not all(map_.isfinite().all() for map_ in layers[kind]):
            raise ValueError(f"The weights of the {_CALLED[kind]} are no finite numbers.")
    return {kind: torch.stack(maps) for kind, maps in layers.items()}


def _texts(tokens: Tokens, ids: Sequence[int], words: Sequence[str]) -> tuple[str, ...]:
    """The tokens as they are shown; a word that the model does not know is named beside ``<unk>``."""
    names = token_texts(tokens)
    texts = [names[index] for index in ids]
    if isinstance(tokens, Vocabulary):  # a token is a word, between <bos> and <eos>
        for place, word in enumerate(words, 1):
            if ids[place] == UNK:
                texts[place] = f"{word} {names[UNK]}"
    return tuple(texts)


# ---------------------------------------------------------------------------------------------------------- the page


def page(maps: Maps) -> str:
    """The maps as a page of HTML with everything in it: choose an attention, a layer and a head, and a token."""
    template = files("transformer_lab").joinpath("attention_page.html").read_text(encoding="utf-8")
    title = f"Attention: {maps.sentence}"
    before, middle, after = template.split("⟦title⟧", 1)[0], *template.split("⟦title⟧", 1)[1].split("⟦data⟧", 1)
    return before + html.escape(title) + middle + _json(_content(maps)) + after


def _content(maps: Maps) -> dict[str, Any]:
    kinds = []
    for kind, (name, row, column) in KINDS.items():
        kinds.append(
            {
                "id": kind,
                "name": name,
                "row": row,
                "column": column,
                "rows": maps.rows(kind),
                "columns": maps.columns(kind),
                "read": maps.target[:-1] if kind != "encoder" else None,
                # In ten-thousandths, and −1 for exactly nothing: what a mask has closed.
                "weights": [[[_parts(row) for row in head] for head in layer] for layer in maps.weights[kind].tolist()],
            }
        )
    return {"sentence": maps.sentence, "translation": maps.translation, "kinds": kinds}


def _parts(row: Iterable[float]) -> list[int]:
    return [round(10_000 * weight) if weight else -1 for weight in row]


def _json(content: Any) -> str:
    """JSON that can stand in a script element, whatever the sentences are: nothing in it ends the element."""
    text = json.dumps(content, separators=(",", ":"))  # ASCII, so that no line separator is in it either
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write(maps: Maps, path: str | Path) -> Path:
    """Write the page to a file; returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(maps), encoding="utf-8")
    return path


class Embedded:
    """The page as a frame in a notebook or in the book, as high as its content and as light or dark as the page around it.

    Parameters
    ----------
    height
        In pixels, where the frame cannot measure its content.
    """

    def __init__(self, maps: Maps, height: int = 900):
        self.maps, self.height = maps, height

    def _repr_html_(self) -> str:
        title = html.escape(f"Attention of a translator, to be explored: {self.maps.sentence}")
        return (
            f'<iframe title="{title}" srcdoc="{html.escape(page(self.maps))}" loading="lazy" '
            f'style="width: 100%; height: {self.height}px; border: 0; color-scheme: normal"></iframe>'
        )


# -------------------------------------------------------------------------------------------------------- the images


def draw(maps: Maps, kind: str, layers: Iterable[int] | None = None) -> Figure:
    """Heat maps of all heads of one of ``KINDS``, a row of them for each layer; returns the figure.

    Call ``plots.style()`` before. ``layers``, from 0, are those to draw; None draws all.
    """
    from transformer_lab import plots

    weights = maps.weights[kind]
    chosen = list(layers) if layers is not None else list(range(len(weights)))
    heads = weights.size(1)
    rows, columns = maps.rows(kind), maps.columns(kind)
    longest = max(map(len, columns)) * 0.062
    width = max(1.15, 0.14 * len(columns))
    height = max(1.15, 0.14 * len(rows))
    grid = plots.figure(
        width * heads + 0.062 * max(map(len, rows)) + 0.3,
        (height + 0.25) * len(chosen) + longest + 0.15,
        rows=len(chosen),
        columns=heads,
        squeeze=False,
    )
    for axes, layer in zip(grid, chosen, strict=True):
        for head, ax in enumerate(axes):
            first, top = head == 0, layer == chosen[0]
            plots.heatmap(ax, weights[layer, head], rows, columns, values=False, limits=(0, 1))
            ax.tick_params(labelsize=7, labelleft=first, labeltop=top)
            ax.tick_params(axis="x", rotation=90)
            ax.set_title(f"layer {layer + 1}, head {head + 1}", size=8.5, weight="normal")
    return grid[0][0].figure


def describe(maps: Maps, kind: str) -> str:
    """What :func:`draw` shows, in words: how many maps, and what each token reads most, the mean of the last layer's heads."""
    weights = maps.weights[kind]
    mean = weights[-1].mean(0)
    rows, columns = maps.rows(kind), maps.columns(kind)
    pairs = [
        f"{row} {columns[place]} {weight:.2f}"
        for row, weight, place in zip(rows, *(t.tolist() for t in mean.max(-1)), strict=True)
    ]
    count = math.prod(weights.shape[:2])
    return (
        f"{count} heat maps of {_CALLED[kind]}, {weights.size(0)} layers of {weights.size(1)} heads, {len(rows)} rows and "
        f"{len(columns)} columns each, dark where the weight is large. In the mean of the last layer's heads the strongest "
        f"weights are: {', '.join(pairs)}."
    )
