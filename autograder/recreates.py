"""Which built-ins a piece re-creates, and whether a learner's piece uses one of them.

A use is looked for in the source of the piece (:mod:`autograder.uses`) and, where that shows none, by tracing the calls of
a request that the piece has just answered. The trace runs where the learner's code runs, so it may be told anything: it
makes a note. What a note costs is the instructor's to say (:mod:`autograder.settings`).
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from autograder import registry, uses
from autograder.student import LocalStudent, Probe, Strided, Student, StudentError
from transformer_lab import builtin, pieces
from transformer_lab.cells import Cell

#: The built-ins that each piece re-creates, with their other spellings. A piece that is not here re-creates none: its
#: specification asks for the built-in (``TokenEmbedding``, ``SelfAttention``), or PyTorch has none (``shift_matrix``).
#: To a piece belongs besides what ``transformer_lab.builtin`` has under its name.
RECREATES: dict[str, tuple[str, ...]] = {
    "one_hot_lookup": (
        "torch.embedding",
        "torch.nn.functional.embedding",
        "torch.nn.Embedding",
        "torch.nn.functional.embedding_bag",
        "torch.nn.EmbeddingBag",
    ),
    "softmax": (
        "torch.softmax",
        "torch.nn.functional.softmax",
        "torch.Tensor.softmax",
        "torch.special.softmax",
        "torch.nn.Softmax",
        "torch.log_softmax",
        "torch.nn.functional.log_softmax",
        "torch.Tensor.log_softmax",
        "torch.special.log_softmax",
        "torch.nn.LogSoftmax",
        "torch.nn.functional.softmin",
        "torch.nn.Softmin",
        "torch.nn.Softmax2d",
    ),
    "scaled_dot_product_attention": (
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.functional.multi_head_attention_forward",
        "torch.nn.MultiheadAttention",
    ),
    "MultiHeadAttention": (
        "torch.nn.functional.multi_head_attention_forward",
        "torch.nn.MultiheadAttention",
    ),
    "LayerNorm": (
        "torch.layer_norm",
        "torch.native_layer_norm",
        "torch.nn.functional.layer_norm",
        "torch.nn.LayerNorm",
    ),
    "EncoderLayer": ("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerEncoder"),
    "DecoderLayer": ("torch.nn.TransformerDecoderLayer", "torch.nn.TransformerDecoder"),
    "masked_mean_pool": ("torch.masked.mean",),
    "Encoder": ("torch.nn.TransformerEncoder",),
    "label_smoothed_cross_entropy": (
        "torch.nn.functional.cross_entropy",
        "torch.nn.CrossEntropyLoss",
    ),
    "Decoder": ("torch.nn.TransformerDecoder",),
    "Transformer": ("torch.nn.Transformer",),
    "corpus_bleu": (
        "sacrebleu.corpus_bleu",
        "sacrebleu.BLEU",
        "sacrebleu.metrics.BLEU",
        "nltk.translate.bleu_score.corpus_bleu",
    ),
    "batches_by_tokens": (
        "transformer_lab.token_batches.batches_by_tokens",
        "transformer_lab.token_batches.TokenBatches",
    ),
    "accumulate": ("transformer_lab.accumulation.accumulate",),
    "attend_with_cache": (
        "transformer_lab.decoding.attend_with_cache",
        "transformer_lab.decoding.KeyValueCache",
    ),
}


def targets(piece: str) -> tuple[str, ...]:
    """The dotted names of what ``piece`` re-creates; empty where it re-creates nothing."""
    own = (f"{uses.BUILTIN}.{piece}",) if hasattr(builtin, piece) else ()
    return RECREATES.get(piece, ()) + own


def note(
    student: Student, piece: str, requests: Sequence[dict], cells: Sequence[Cell] | None = None, right: bool = False
) -> str:
    """One sentence on which of the built-ins that it re-creates a piece uses, and where; empty where it uses none.

    Parameters
    ----------
    student
        Whose piece it is.
    requests
        What the piece has answered; one of each kind is sent again to trace its calls where the source shows nothing.
    cells
        The code cells in which the piece is defined; None looks for them (:func:`cells_of`).
    right
        Whether every check of the piece holds, which the sentence grants.
    """
    wanted = targets(piece)
    if not wanted:
        return ""
    source = uses.Source(cells_of(student, piece) if cells is None else cells)
    seen = source.uses(piece, wanted, others=registry.pieces())
    found = [f"{_short(use.name)} ({_where(use, source, piece)})" for use in seen]
    verb = "uses"
    if not found and (call := _traced(student, piece, requests, wanted)):
        found, verb = [call], "was seen to call"
    if not found:
        return ""
    named = found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
    granted = "your numbers are right, but the exercise is to build it" if right else "the exercise is to build it"
    return f"`{piece}` {verb} {named}, which this piece re-creates: {granted}."


# ------------------------------------------------------------------------------------------------------------- source


def cells_of(student: Student, piece: str) -> list[Cell]:
    """The code cells in which a local piece is defined, as far as its namespace tells; [] where there is no telling."""
    namespace: Any = student.namespace if isinstance(student, LocalStudent) else {}
    if isinstance(namespace, pieces.Pieces):
        return pieces.cells_of(namespace, piece)
    if not isinstance(namespace, dict):
        namespace = getattr(namespace, "__dict__", {})
    if isinstance(history := namespace.get("In"), list):  # a notebook's kernel
        texts = [text for text in history if isinstance(text, str)]
        return [Cell(number, "", text, True) for number, text in enumerate(texts)]
    module = sys.modules.get(str(getattr(namespace.get(piece), "__module__", "")))
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or any(part in path for part in ("site-packages", "dist-packages")):
        return []
    return [Cell(1, "", "".join(linecache.getlines(path)), True)]


def _where(use: uses.Use, source: uses.Source, piece: str) -> str:
    if len(source.cells) == 1:
        return f"line {use.line}"
    if use.cell is source.home(piece):
        return f"line {use.line} of your answer"
    return f"line {use.line} of the cell that defines `{use.within}`"


def _short(name: str) -> str:
    """A dotted name as the notebooks write it: `F.softmax`, `nn.Softmax`, `Tensor.softmax`."""
    for long, short in (("torch.nn.functional.", "F."), ("torch.nn.", "nn."), ("torch.Tensor.", "Tensor.")):
        if name.startswith(long):
            return f"`{short}{name.removeprefix(long)}`"
    return f"`{name}`"


# -------------------------------------------------------------------------------------------------------------- trace


def _traced(student: Student, piece: str, requests: Iterable[dict], wanted: tuple[str, ...]) -> str:
    """The first call among ``wanted`` that a request shows, in words."""
    others, targets = set(registry.pieces()) - {piece}, uses.Targets(wanted)
    for request in {_kind(request): request for request in requests}.values():
        try:
            answer = student.send(request | {"want": ["torch_calls"], "then": None})["torch_calls"]
        except StudentError:
            continue
        for name, place, through in _calls(answer):
            target = targets.named(name)
            if target and not others & {function.partition(".")[0] for function in through}:
                return f"{_short(target)} ({place})" if place else _short(target)
    return ""


def _kind(value: Any) -> Any:
    """What two requests have in common that differ in their numbers alone: they take the same way through a piece."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.ndim
    if isinstance(value, dict):
        return tuple((key, _kind(item)) for key, item in value.items() if key not in ("want", "then", "seed"))
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    if isinstance(value, Probe):
        return value.kind, value.name
    if isinstance(value, Strided):
        return "strided", _kind(value.array)
    return type(value).__name__


def _calls(answer: Any) -> list[tuple[str, str, list[str]]]:
    """What the driver answers, of which a learner's kernel may have made anything."""
    found = []
    for item in answer if isinstance(answer, list) else []:
        if isinstance(item, list) and len(item) == 3 and isinstance(item[2], list):
            name, place, through = item
            found.append((str(name), _plain(str(place)), [str(function) for function in through]))
    return found


def _plain(place: str) -> str:
    """One short line without backquotes, which would end the code in our sentence."""
    return re.sub(r"[`\s]+", " ", place)[:120].strip()
