"""Trained weights as a submission: how often they are right on fresh sequences, and whose are the same.

Grading trains nothing. The file is read by :mod:`transformer_lab.weights` in the grader's process, its numbers are put into
a model of ``transformer_lab.builtin`` (the tests hold the course's own pieces to the same logits), and that model
classifies or translates a test set which the round's secret decides.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autograder.compare import CheckFailed
from autograder.student import UNREADABLE, Student, StudentError
from transformer_lab import builtin, classifier, training, translation, weights
from transformer_lab.data import BOS, EOS, PAD, Pair, further_pairs, pad
from transformer_lab.sequences import Sequences

#: Two files whose numbers differ by less than this share of their size count as nearly the same. Trainings of the graded
#: classifier from other initial weights were measured to end 1.2 apart, from the same ones with the batches in another
#: order 0.19.
NEAR = 0.01

#: How many numbers a sketch has. A distance estimated from so many is right to about a tenth.
SKETCH = 64


@dataclass(frozen=True)
class Score:
    """How often weights are right: ``right`` of ``of``; where ``overflown`` of them, the logits were not finite."""

    right: int
    of: int
    overflown: int = 0

    @property
    def accuracy(self) -> float:
        return self.right / self.of


@dataclass(frozen=True)
class Exam:
    """What weights of a kind are asked: ``draw(rng)`` gives a hidden test set, of ``what``, ``judge(model, tests)`` a score."""

    draw: Callable[[np.random.Generator], Any]
    judge: Callable[[Any, Any], Score]
    what: str


def _classified(model: nn.Module, tests: Sequences) -> Score:
    logits = training.logits(model, tests)
    finite = logits.isfinite().all(-1)
    right = finite & (logits.argmax(-1) == tests.labels)
    return Score(int(right.sum()), len(tests), int((~finite).sum()))


#: How many sentences a translator is given: three seconds' work. The graded training, right on 99.5 %, then gets its points.
SENTENCES = 500


def _drawn_sentences(rng: np.random.Generator) -> tuple[Pair, ...]:
    """Sentences that say what no pair of the corpus says."""
    return further_pairs(SENTENCES, int(rng.integers(1 << 62)))


#: A sentence of the training lab's exam has so many German words, signs counted, or more: 44 of 100 have.
LONG = 15


def _drawn_long_sentences(rng: np.random.Generator) -> tuple[Pair, ...]:
    """Long ones among sentences that say what no pair of the corpus says."""
    seed, count = int(rng.integers(1 << 62)), 3 * SENTENCES
    found: tuple[Pair, ...] = ()
    while len(found) < SENTENCES:
        found = tuple(pair for pair in further_pairs(count, seed) if len(pair.source) >= LONG)[:SENTENCES]
        count *= 2
    return found


@torch.no_grad()
def _translated(model: Any, pairs: Sequence[Pair]) -> Score:
    """Greedy translations, each right when it is the reference word for word."""
    task = _task()
    order = sorted(pairs, key=lambda pair: len(pair.source))
    right = overflown = 0
    for start in range(0, len(order), 100):
        rows = order[start : start + 100]
        source = pad([task.source.encode(pair.source) for pair in rows])
        memory = model.encode(source)
        finite = memory.isfinite().flatten(1).all(1)

        def step(ids: Tensor, memory: Tensor = memory, source: Tensor = source, finite: Tensor = finite) -> Tensor:
            logits = model.decode(ids, memory, source)
            finite &= logits[:, -1].isfinite().all(-1)
            return logits

        longest = max(len(pair.target) for pair in rows) + 3  # BOS, EOS and a word too many: who says more is wrong
        ids = builtin.greedy_decode(step, BOS, EOS, PAD, len(rows), longest)
        said = [task.target.decode(row) for row in ids.tolist()]
        good = torch.tensor([words == pair.target for words, pair in zip(said, rows, strict=True)])
        right, overflown = right + int((good & finite).sum()), overflown + int((~finite).sum())
    return Score(right, len(pairs), overflown)


@functools.cache
def _task() -> translation.Task:
    return translation.Task.default()


#: Of each kind of weights, how it is tried.
EXAMS: dict[str, Exam] = {
    "classifier": Exam(classifier.hidden_test_set, _classified, "fresh sequences"),
    "translator": Exam(_drawn_sentences, _translated, "fresh sentences"),
    "lab": Exam(_drawn_long_sentences, _translated, f"fresh sentences of {LONG} words and more"),
}


def require_accuracy(student: Student, rng: np.random.Generator, kind: str, threshold: float) -> None:
    """Raise unless the weights that ``student`` handed in are right on at least ``threshold`` of a fresh test set.

    Raises
    ------
    CheckFailed
        They are right less often; the sentence says how often.
    StudentError
        There is no such file, or it does not hold the weights that it should.
    """
    data = student.file(weights.file_name(kind), weights.max_bytes(kind))
    try:
        found = score(kind, data, int(rng.integers(1 << 62)))
    except weights.WeightsError as error:
        raise StudentError(UNREADABLE, str(error)) from None
    if found.right < threshold * found.of:
        reached = f"{found.right:,} of {found.of:,} {EXAMS[kind].what} ({math.floor(found.accuracy * 1000) / 10:.1f} %)"
        sentence = f"The model with your weights is right on {reached}; {100 * threshold:g} % are asked for here."
        if found.overflown:
            sentence += f" On {found.overflown:,} its logits are not finite, which counts as wrong."
        raise CheckFailed(sentence)


@functools.lru_cache(maxsize=8)
def score(kind: str, data: bytes, seed: int) -> Score:
    """How often the weights in ``data``, the content of a file, are right on the test set of ``seed``.

    Raises ``WeightsError`` where they cannot be read.
    """
    tensors = weights.parse(data, kind)
    model = _model(kind, weights.config_of(data, kind))
    weights.put(model, tensors, kind)
    return EXAMS[kind].judge(model, _tests(kind, seed))


@functools.lru_cache(maxsize=8)
def _model(kind: str, config: translation.Config | None = None) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return (weights.KINDS[kind]() if config is None else weights.KINDS[kind](config)).eval()


@functools.lru_cache(maxsize=2)
def _tests(kind: str, seed: int) -> Any:
    return EXAMS[kind].draw(np.random.default_rng(seed))


# ------------------------------------------------------------------------------------------------- whose are the same


def fingerprint(kind: str, data: bytes) -> dict[str, Any] | None:
    """What tells copies of weights apart from others, as plain data; None where ``data`` holds no such weights.

    ``digest`` is of the numbers, so that a file saved again, in whatever order and with whatever metadata, has the same.
    ``sketch`` is a random projection, the same for everybody, in which distances are about what they are between the
    numbers themselves (Johnson and Lindenstrauss 1984).
    """
    try:
        tensors = weights.parse(data, kind)
    except weights.WeightsError:
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + b"\0" + tensor.numpy().astype("<f4").tobytes())
    return {"digest": digest.hexdigest(), "sketch": _sketch(tensors.values())}


def _sketch(tensors: Iterable[Tensor]) -> list[float]:
    numbers = torch.cat([tensor.flatten() for tensor in tensors]).double().numpy()
    rng, total = np.random.default_rng(0), np.zeros(SKETCH)
    for start in range(0, len(numbers), 1 << 16):  # a part at a time, so that a large model needs little memory
        part = numbers[start : start + (1 << 16)]
        with np.errstate(over="ignore"):
            total += (rng.integers(0, 2, size=(SKETCH, len(part)), dtype=np.int8) * 2 - 1) @ part / math.sqrt(SKETCH)
    return [float(f"{value:.6g}") for value in total]


@dataclass(frozen=True)
class Alike:
    """Learners whose files of weights are the same, or (``near``) differ by less than ``NEAR`` of their size."""

    file: str
    students: tuple[str, ...]
    near: bool = False


def alike(records: Sequence[Mapping[str, Any]]) -> list[Alike]:
    """Who handed in the same or nearly the same weights, from the records of one assignment.

    Nothing is claimed beyond that: who gave to whom, or whether both ran one program with one seed on one kind of machine,
    which gives the same numbers too, a person has to ask. Weights that were trained on, permuted or rescaled are others.
    """
    found: list[Alike] = []
    names = sorted({name for record in records for name in record.get("files") or {}})
    for name in names:
        prints = {r["student"]: r["files"][name] for r in records if (r.get("files") or {}).get(name)}
        same: dict[str, list[str]] = {}
        for student in sorted(prints):
            same.setdefault(prints[student]["digest"], []).append(student)
        found += [Alike(name, tuple(students)) for students in same.values() if len(students) > 1]
        found += [Alike(name, group, near=True) for group in _near(same, prints)]
    return found


def _near(same: Mapping[str, list[str]], prints: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Groups of students, linked by small distances, that hold more than one digest."""
    heads = [students[0] for students in same.values()]
    groups = {student: {student} for student in heads}
    if len(heads) > 1:
        sketches = np.array([prints[student]["sketch"] for student in heads], dtype=np.float64)
        sizes = np.linalg.norm(sketches, axis=1)
        for i, student in enumerate(heads):
            with np.errstate(invalid="ignore", over="ignore"):
                apart = np.linalg.norm(sketches[i + 1 :] - sketches[i], axis=1)
                close = apart < NEAR * np.maximum(sizes[i + 1 :], sizes[i])
            for j in np.flatnonzero(close):
                joined = groups[student] | groups[heads[i + 1 + j]]
                for member in joined:
                    groups[member] = joined
    unique = {frozenset(group) for group in groups.values() if len(group) > 1}
    members = {students[0]: students for students in same.values()}
    return sorted(tuple(sorted(s for head in group for s in members[head])) for group in unique)
