"""Three trainings in which something is wrong, to find out what: their logs, and the checkpoints that they left.

    from transformer_lab import broken_runs

    run = broken_runs.load("A")
    run.history[0]                                     # {"step": 1, "loss": …, "lr": …, "gradient_norm": …}
    for source, wanted, said in run.samples(3): …      # what the checkpoint writes by itself
    source_ids, target_ids = run.batch(20)             # sentences of no training, (B, S) and (B, T + 1)
    run.logits(source_ids, target_ids[:, :-1])         # as the Transformer should: (B, T, V)
    broken_runs.healthy()                              # the same training without a fault

All have learnt a small language, with one layer on each side, from the same first weights and in the same batches. Only the
weights have been kept, not the program that trained them: the translator that holds them is a right one. What was wrong in
the training has to be inferred from what the log shows and from what the weights can do and can't.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

import transformer_lab
from transformer_lab import builtin, data, translation
from transformer_lab.data import BOS, EOS, PAD, Corpus, Pair, Vocabulary
from transformer_lab.data.vocabulary import SPECIALS

#: The runs to be diagnosed.
NAMES = ("A", "B", "C")
#: What may have been wrong.
CAUSES = ("warm-up", "leaking mask", "target shift", "none of these")
DATA = "broken_runs_data"
#: The size of all of them: post-norm, as in the paper.
CONFIG = translation.Config(d_model=32, num_heads=2, d_ff=64, num_layers=1, norm_first=False, steps=None, warmup=200)


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes
    ----------
    name
        ``"A"``, ``"B"``, ``"C"`` or ``"healthy"``.
    history
        The log, one row for each step: ``step`` from 1, ``loss`` as the training computed it, ``lr``, ``gradient_norm``; and
        every hundred steps ``exact``, the share of 200 held-out sentences that were translated word for word.
    translator
        The last weights in a translator that has no fault, in evaluation mode.
    pairs
        200 sentences that no training has seen, and that ``exact`` was not measured on.
    """

    name: str
    history: tuple[dict[str, float], ...]
    translator: translation.Translator
    pairs: tuple[Pair, ...]

    @torch.no_grad()
    def samples(self, count: int = 5) -> list[tuple[str, str, str]]:
        """For the first ``count`` pairs: the source, the right translation, and what the checkpoint writes, greedily.

        Both translations are given token by token, ``<eos>`` and any other special token included.
        """
        source_ids, target_ids = self.batch(count)
        model, most = self.translator.model, 2 * target_ids.size(1)
        memory = model.encode(source_ids)
        said = builtin.greedy_decode(
            lambda ids: model.decode(ids, memory, source_ids), BOS, EOS, PAD, source_ids.size(0), most
        )
        wanted, written = ([self._text(row) for row in ids[:, 1:].tolist()] for ids in (target_ids, said))
        sources = (" ".join(pair.source) for pair in self.pairs[:count])
        return list(zip(sources, wanted, written, strict=True))

    def _text(self, ids: list[int]) -> str:
        target = self.translator.task.target
        assert isinstance(target, Vocabulary)
        end = ids.index(EOS) + 1 if EOS in ids else len(ids)
        return " ".join((*SPECIALS, *target.words)[index] for index in ids[:end])

    def batch(self, count: int = 20) -> tuple[Tensor, Tensor]:
        """The ids of the first ``count`` pairs: source (B, S) and target, from BOS to EOS, (B, T + 1)."""
        return data.batch(self.pairs[:count], self.translator.task.source, self.translator.task.target)

    @torch.no_grad()
    def logits(self, source_ids: Tensor, given_ids: Tensor, causal: bool = True) -> Tensor:
        """What the checkpoint says when the decoder is given ids (B, T) beside sources (B, S): logits (B, T, V).

        With ``causal=False`` every place of the target may attend to every other one, those behind it included.
        """
        return logits(self.translator.model, source_ids, given_ids, causal)


def load(name: str) -> Run:
    """The run of that name: ``"A"``, ``"B"`` or ``"C"``; KeyError for another name."""
    if name not in NAMES:
        raise KeyError(f"There is no run {name!r}: take {', '.join(NAMES)}.")
    return _load(name)


def healthy() -> Run:
    """The same training with nothing wrong in it, to compare with."""
    return _load("healthy")


def logits(model: Any, source_ids: Tensor, given_ids: Tensor, causal: bool = True) -> Tensor:
    """Logits (B, T, V) of a ``Transformer``, whose target mask is the right one or, not ``causal``, one for padding alone."""
    memory = model.encode(source_ids)
    if causal:
        return model.decode(given_ids, memory, source_ids)
    real, readable = (ids.ne(model.pad_id)[:, None, None, :] for ids in (given_ids, source_ids))
    hidden = model.decoder(model.target_embed(given_ids), memory, real, readable)
    return hidden @ model.target_embed.token.embedding.weight.T


def _load(name: str) -> Run:
    words = json.loads(_read("vocabularies.json"))
    source, target = (Vocabulary(words[side]) for side in ("source", "target"))
    lines = _read("pairs.tsv").decode().splitlines()
    sides = ((tuple(side.split()) for side in line.split("\t")) for line in lines)
    pairs = tuple(Pair(given, wanted) for given, wanted in sides)
    translator = translation.Translator(translation.Task(Corpus((), (), pairs), source, target), CONFIG)
    weights = safetensors.torch.load(_read(f"{name}.safetensors"))
    with torch.no_grad():
        for key, parameter in translator.model.named_parameters():
            parameter.copy_(weights[key])
    translator.model.eval()
    rows = csv.DictReader(io.StringIO(_read(f"{name}.csv").decode()))
    history = tuple({key: int(v) if key == "step" else float(v) for key, v in row.items() if v} for row in rows)
    return Run(name, history, translator, pairs)


def _read(name: str) -> bytes:
    return files(transformer_lab).joinpath(DATA, name).read_bytes()
