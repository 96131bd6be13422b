"""Labelled random sequences whose class is a statistical property, and the best that anybody can do on them.

    import numpy as np
    from transformer_lab import sequences

    task = sequences.TASKS["first-motif"]
    few = task.sample(8, np.random.default_rng(0))            # inputs (8, L), mask (8, L), labels (8,)
    parts = sequences.splits(task, seed=0)                    # parts["train"], parts["validation"], parts["test"]

Some tasks are decided by what is in the sequence, in whatever order; in others, the *ordered* ones, everything that does
not depend on the order has the same distribution in every class, and only the order decides. Each task knows its Bayes
rule, the likelihood-ratio test that no other rule can beat on average (Neyman and Pearson 1933; with equally frequent
classes it is the class with the largest likelihood), and how often that rule is right.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: The id of padding; no task uses it for anything else.
PAD_ID = 0


@dataclass(frozen=True)
class Sequences:
    """Sequences of different lengths in one table, padding behind.

    ``inputs`` (N, L), int64 token ids or float32 numbers, 0 at padding; ``mask`` (N, L), True at real tokens; ``labels``
    (N,), int64. An index (a slice, or a tensor or array of places or of booleans) chooses sequences.
    """

    inputs: Tensor
    mask: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Any) -> Sequences:
        return Sequences(self.inputs[index], self.mask[index], self.labels[index])

    @property
    def lengths(self) -> Tensor:
        """How many real tokens each sequence has, (N,)."""
        return self.mask.sum(1)

    def trimmed(self) -> Sequences:
        """The same without the columns that are padding in every sequence."""
        longest = int(self.lengths.max())
        return Sequences(self.inputs[:, :longest], self.mask[:, :longest], self.labels)

    def to(self, device: torch.device | str) -> Sequences:
        """The same on another device."""
        return Sequences(self.inputs.to(device), self.mask.to(device), self.labels.to(device))


class Task(ABC):
    """One kind of sequence: how it is drawn, what its class means, and the best rule for it.

    Attributes
    ----------
    name
        Its key in ``TASKS``.
    kind
        ``"tokens"`` (ids below ``vocab_size``) or ``"series"`` (numbers, ``vocab_size`` is None).
    ordered
        Whether only the order decides: every statistic that does not depend on it has the same distribution in all classes.
    num_classes
        The classes are 0 … ``num_classes`` − 1, equally frequent.
    description
        One sentence.
    lengths
        The lengths that are drawn, all equally often, unless others are asked for.
    """

    name: str
    kind: str
    ordered: bool
    description: str
    lengths: tuple[int, ...] = tuple(range(12, 33))
    num_classes: int = 2
    vocab_size: int | None = None

    @property
    def min_length(self) -> int:
        return min(self.lengths)

    @property
    def max_length(self) -> int:
        return max(self.lengths)

    def sample(self, count: int, rng: np.random.Generator, lengths: int | Sequence[int] | None = None) -> Sequences:
        """``count`` sequences, as many of each class as there can be, in random order.

        Parameters
        ----------
        lengths
            A length, or several from which each sequence draws its own; None for the task's.

        Raises
        ------
        ValueError
            There is no sequence of such a length in this task.
        """
        chosen = rng.choice(self._lengths(lengths), size=count)
        labels = rng.permutation(np.arange(count) % self.num_classes)
        mask = np.arange(chosen.max(initial=1)) < chosen[:, None]
        inputs = np.where(mask, self._draw(labels, chosen, rng), 0)
        as_tensor = torch.from_numpy(inputs.astype(np.int64 if self.kind == "tokens" else np.float32))
        return Sequences(as_tensor, torch.from_numpy(mask), torch.from_numpy(labels.astype(np.int64)))

    def bayes_accuracy(self, lengths: int | Sequence[int] | None = None) -> float:
        """How often the Bayes rule is right, on average over sequences of the given lengths (None: the task's)."""
        return float(np.mean([self._accuracy(int(length)) for length in self._lengths(lengths)]))

    @abstractmethod
    def bayes(self, sequences: Sequences) -> Tensor:
        """The most likely class of each sequence, (N,)."""

    @abstractmethod
    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Inputs (N, longest) for labels (N,) and lengths (N,); what stands behind a length is overwritten."""

    @abstractmethod
    def _accuracy(self, length: int) -> float:
        """How often the Bayes rule is right on sequences of one length."""

    def _possible(self, length: int) -> bool:
        return length >= 2

    def _lengths(self, lengths: int | Sequence[int] | None) -> np.ndarray:
        chosen = np.atleast_1d(np.asarray(self.lengths if lengths is None else lengths, dtype=np.int64))
        for length in chosen:
            if not self._possible(int(length)):
                raise ValueError(f"The task {self.name} has no sequences of length {length}.")
        return chosen


def splits(
    task: Task, seed: int, train: int = 20_000, validation: int = 1_000, test: int = 5_000
) -> dict[str, Sequences]:
    """Three sets of sequences, each with equally frequent classes, no sequence in two of them, nor twice in one.

    The same seed gives the same sets.
    """
    rng = np.random.default_rng(seed)
    seen: set[bytes] = set()
    counts = {"train": train, "validation": validation, "test": test}
    return {name: _unseen(task, count, rng, seen) for name, count in counts.items()}


def _unseen(task: Task, count: int, rng: np.random.Generator, seen: set[bytes]) -> Sequences:
    """``count`` sequences that are not in ``seen``, into which they are put."""
    missing = [count // task.num_classes + (label < count % task.num_classes) for label in range(task.num_classes)]
    found: list[Sequences] = []
    while any(missing):
        drawn = task.sample(max(100, *missing) * task.num_classes, rng)
        places = []
        for place, (row, label) in enumerate(zip(drawn.inputs.numpy(), drawn.labels.tolist(), strict=True)):
            key = row.tobytes().rstrip(b"\0")  # padding behind is zeros
            if missing[label] and key not in seen:
                seen.add(key)
                places.append(place)
                missing[label] -= 1
        if not places:
            raise ValueError(f"The task {task.name} has too few different sequences for {sum(missing)} more.")
        found.append(drawn[torch.tensor(places)])
    return joined(found)[torch.from_numpy(rng.permutation(count))].trimmed()


def joined(parts: Sequence[Sequences]) -> Sequences:
    """The sequences of all ``parts``, one after the other."""
    width = max(part.inputs.size(1) for part in parts)

    def widened(table: Tensor) -> Tensor:
        return torch.nn.functional.pad(table, (0, width - table.size(1)))

    return Sequences(
        torch.cat([widened(part.inputs) for part in parts]),
        torch.cat([widened(part.mask) for part in parts]),
        torch.cat([part.labels for part in parts]),
    )


# --- tokens -------------------------------------------------------------------------------------------------------------


class Share(Task):
    """Tokens drawn evenly; the class is the more frequent one of two symbols, which are never equally frequent.

    The Bayes rule counts, and is always right.
    """

    name, kind, ordered = "share", "tokens", False
    description = "Which of the tokens 1 and 2 is more frequent?"
    vocab_size = 9

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        real = np.arange(lengths.max(initial=1)) < lengths[:, None]
        ids = np.zeros(real.shape, dtype=np.int64)
        lead = np.zeros(len(lengths), dtype=np.int64)
        while (tied := lead == 0).any():
            ids[tied] = rng.integers(1, self.vocab_size, size=ids[tied].shape)
            lead = ((ids == 2) & real).sum(1) - ((ids == 1) & real).sum(1)
        # Exchanging the two symbols turns a sequence of one class into an equally likely one of the other.
        wrong = (lead > 0) != (labels == 1)
        ids[wrong] = np.array([0, 2, 1, *range(3, self.vocab_size)])[ids[wrong]]
        return ids

    def bayes(self, sequences: Sequences) -> Tensor:
        return ((sequences.inputs == 2).sum(1) > (sequences.inputs == 1).sum(1)).long()

    def _accuracy(self, length: int) -> float:
        return 1.0


class FirstMotif(Task):
    """Two motifs in noise, each exactly once; the class says which of them comes first.

    Each motif is the other read backwards: the same two tokens, so that it is not the tokens that tell them apart. The
    noise is made of these tokens and others, and both orders of the motifs in it are sequences of this kind: exchanging
    them turns a sequence of one class into an equally likely one of the other, with the same tokens. The Bayes rule looks
    where the motifs are, and is always right.
    """

    name, kind, ordered = "first-motif", "tokens", True
    description = "Which of the motifs 1 2 and 2 1 comes first?"
    vocab_size = 9
    lengths = tuple(range(8, 21))
    motifs = (np.array([1, 2]), np.array([2, 1]))

    def _possible(self, length: int) -> bool:
        return length >= 2 * len(self.motifs[0])

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        size, width = len(self.motifs[0]), int(lengths.max(initial=1))
        ids = np.zeros((len(lengths), width), dtype=np.int64)
        todo = np.arange(len(lengths))
        while len(todo):
            noise = rng.integers(1, self.vocab_size, size=(len(todo), width))
            noise[np.arange(width) >= lengths[todo, None]] = PAD_ID
            # Two different slots, the motifs being one token long as it were; then the second moves behind the first.
            slots = lengths[todo] - 2 * size + 2
            first = rng.integers(0, slots)
            second = (first + rng.integers(1, slots)) % slots
            starts = np.minimum(first, second), np.maximum(first, second) + size - 1
            orders = []
            for order in (self.motifs, self.motifs[::-1]):
                filled = noise.copy()
                for start, motif in zip(starts, order, strict=True):
                    np.put_along_axis(filled, start[:, None] + np.arange(size), motif[None], axis=1)
                orders.append(filled)
            good = np.logical_and.reduce(
                [self._places(filled, motif).sum(1) == 1 for filled in orders for motif in self.motifs]
            )
            ids[todo[good]] = np.where(labels[todo, None] == 0, *orders)[good]
            todo = todo[~good]
        return ids

    @staticmethod
    def _places(ids: np.ndarray, motif: np.ndarray) -> np.ndarray:
        """True where the motif begins, (N, L − its length + 1)."""
        windows = np.lib.stride_tricks.sliding_window_view(ids, len(motif), axis=1)
        return (windows == motif).all(-1)

    def bayes(self, sequences: Sequences) -> Tensor:
        first, second = (self._places(sequences.inputs.numpy(), motif).argmax(1) for motif in self.motifs)
        return torch.from_numpy((second < first).astype(np.int64))

    def _accuracy(self, length: int) -> float:
        return 1.0


# --- series -------------------------------------------------------------------------------------------------------------


class Mean(Task):
    """Normal numbers of variance 1 around −``shift`` (class 0) or +``shift`` (class 1).

    The log likelihood ratio is 2 · shift · Σ x, so that the Bayes rule is the sign of the sum, which is normal with mean
    ± shift · L and variance L: it is right with probability Φ(shift · √L).
    """

    name, kind, ordered = "mean", "series", False
    description = "Is the mean of the process below or above zero?"
    shift = 0.3

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        noise = rng.standard_normal((len(lengths), lengths.max(initial=1)))
        return noise + self.shift * (2 * labels[:, None] - 1)

    def bayes(self, sequences: Sequences) -> Tensor:
        return (sequences.inputs.double().sum(1) > 0).long()

    def _accuracy(self, length: int) -> float:
        return _normal_cdf(self.shift * math.sqrt(length))


class Variance(Task):
    """Normal numbers of mean 0 and standard deviation 1 (class 0) or ``large`` (class 1).

    The likelihood ratio grows with Σ x², and is 1 where the mean of x² is c = 2 ln(large) / (1 − large⁻²). Σ x² has a χ²
    distribution with L degrees of freedom, times the variance, and P(χ² ≤ t) is the regularised incomplete gamma function
    of L/2 and t/2.
    """

    name, kind, ordered = "variance", "series", False
    description = "Is the standard deviation of the process 1 or 1.5?"
    large = 1.5

    @property
    def threshold(self) -> float:
        """The mean of x² at which both classes are equally likely."""
        return 2 * math.log(self.large) / (1 - self.large**-2)

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (
            rng.standard_normal((len(lengths), lengths.max(initial=1)))
            * np.where(labels == 1, self.large, 1.0)[:, None]
        )

    def bayes(self, sequences: Sequences) -> Tensor:
        return (sequences.inputs.double().square().sum(1) > self.threshold * sequences.lengths).long()

    def _accuracy(self, length: int) -> float:
        half = torch.tensor(length / 2, dtype=torch.float64)
        below = [float(torch.special.gammainc(half, half * self.threshold / scale**2)) for scale in (1.0, self.large)]
        return (below[0] + 1 - below[1]) / 2


class Trend(Task):
    """Normal noise of variance 1 upon a straight line through zero that falls (class 0) or rises (class 1) by ``rise``.

    Read backwards, a sequence of one class is an equally likely one of the other. The log likelihood ratio is
    2 · rise · Σ u x with u = (t − mean of t) / (L − 1): the Bayes rule is its sign, which is right with probability
    Φ(rise · √Σ u²), where Σ u² = L (L + 1) / (12 (L − 1)).
    """

    name, kind, ordered = "trend", "series", True
    description = "Does the series fall or rise?"
    rise = 1.2

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        line = np.arange(lengths.max(initial=1)) / (lengths[:, None] - 1) - 0.5
        return rng.standard_normal(line.shape) + self.rise * (2 * labels[:, None] - 1) * line

    def bayes(self, sequences: Sequences) -> Tensor:
        last = sequences.lengths[:, None] - 1
        line = torch.arange(sequences.inputs.size(1), dtype=torch.float64) - last / 2
        return ((sequences.inputs * line).sum(1) > 0).long()

    def _accuracy(self, length: int) -> float:
        return _normal_cdf(self.rise * math.sqrt(length * (length + 1) / (12 * (length - 1))))


class Period(Task):
    """A cosine with a random phase in noise; the class says how long its period is, about 4, 6, 9 or 14.

    The length L is a prime, and the cosine makes a whole number k of turns: k = L / period, rounded. As t runs from 0 to
    L − 1, k·t mod L runs through the same numbers for every k, in another order: all classes have the same numbers. The
    likelihood of k grows with |Σ x e^(−2πikt/L)| alone, so that the Bayes rule is the largest of the four. At the right k
    this is a complex normal number around a signal, at the others without; with γ = amplitude² · L / (4 · noise²) the
    largest is the right one with probability Σ (−1)ⁿ C(3, n) / (n + 1) · e^(−γ n / (n + 1)), n = 0 … 3, as in the
    detection of orthogonal signals of unknown phase (Proakis, *Digital Communications*, section on noncoherent detection).
    """

    name, kind, ordered = "period", "series", True
    description = "How long is the period: about 4, 6, 9 or 14 steps?"
    lengths = (29, 31, 37, 41, 43, 47)
    periods = (4, 6, 9, 14)
    num_classes = 4
    amplitude, noise = 1.0, 1.0

    def _possible(self, length: int) -> bool:
        prime = length > 1 and all(length % divisor for divisor in range(2, math.isqrt(length) + 1))
        return prime and length >= 2 * self.periods[-1]

    def _turns(self, lengths: np.ndarray) -> np.ndarray:
        """How many turns each class makes in each length, (N, classes)."""
        return np.rint(lengths[:, None] / np.array(self.periods))

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        turns = np.take_along_axis(self._turns(lengths), labels[:, None], axis=1) / lengths[:, None]
        angles = 2 * np.pi * (np.arange(lengths.max(initial=1)) * turns + rng.random((len(lengths), 1)))
        return self.amplitude * np.cos(angles) + self.noise * rng.standard_normal(angles.shape)

    def bayes(self, sequences: Sequences) -> Tensor:
        lengths = sequences.lengths.numpy()
        turns = self._turns(lengths)[..., None] / lengths[:, None, None]
        waves = np.exp(-2j * np.pi * turns * np.arange(sequences.inputs.size(1)))  # (N, classes, L)
        return torch.from_numpy(np.abs((waves * sequences.inputs.double().numpy()[:, None]).sum(-1)).argmax(1))

    def _accuracy(self, length: int) -> float:
        gamma = self.amplitude**2 * length / (4 * self.noise**2)
        others = self.num_classes - 1
        return sum(
            (-1) ** n * math.comb(others, n) / (n + 1) * math.exp(-gamma * n / (n + 1)) for n in range(others + 1)
        )


class Lag(Task):
    """Numbers whose neighbours tend to have opposite signs (class 0) or the same sign (class 1).

    The lag-1 correlation is negative in one class and positive in the other. Half of the numbers are positive and half
    negative, and their sizes are those of independent normal numbers: only the arrangement of the signs has to do with
    the class. An arrangement with r runs of equal signs has a probability proportional to e^(∓ tilt · r). How many
    arrangements have r runs is known (Wald and Wolfowitz 1940), and so are both constants of proportion: the Bayes rule
    counts runs and compares with the number at which the likelihoods cross, and its accuracy is a finite sum.
    """

    name, kind, ordered = "lag", "series", True
    description = "Do neighbours tend to have opposite signs or the same sign?"
    lengths = tuple(range(12, 33, 2))
    tilt = 0.6

    def _possible(self, length: int) -> bool:
        return length >= 2 and length % 2 == 0

    def _runs(self, length: int) -> np.ndarray:
        """P(r runs | class), (2, L + 1), for r = 0 … L."""
        half = length // 2
        counts = [0.0, 0.0]
        for runs in range(2, length + 1):
            fewer, more = runs // 2, runs - runs // 2
            counts.append(2.0 * math.comb(half - 1, fewer - 1) * math.comb(half - 1, more - 1))
        tilted = np.array(counts) * np.exp(np.array([[1.0], [-1.0]]) * self.tilt * np.arange(length + 1))
        return tilted / tilted.sum(1, keepdims=True)

    def _draw(self, labels: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        runs = np.zeros_like(lengths)
        for length in np.unique(lengths):
            for label, chances in enumerate(self._runs(int(length))):
                chosen = (lengths == length) & (labels == label)
                runs[chosen] = rng.choice(len(chances), p=chances, size=chosen.sum())
        # The runs of either sign share its half of the numbers: so many cuts among those numbers say where they end.
        half = lengths[:, None] // 2
        ends = []
        for cuts in ((runs - 1) // 2, runs // 2 - 1):
            places = np.arange(1, half.max(initial=1))
            ranks = np.where(places < half, rng.random((len(lengths), len(places))), 2).argsort(1).argsort(1)
            cut = np.where(ranks < cuts[:, None], places, half)
            ends.append(np.hstack([np.sort(cut, axis=1), half]))
        behind = np.hstack([ends[0], ends[1]]) + np.hstack([np.pad(ends[1][:, :-1], ((0, 0), (1, 0))), ends[0]])
        change = np.zeros((len(lengths), lengths.max(initial=1) + 1))
        np.put_along_axis(change, behind, 1, axis=1)
        signs = rng.choice([-1.0, 1.0], size=(len(lengths), 1)) * (-1.0) ** change[:, :-1].cumsum(1)
        return signs * np.abs(rng.standard_normal(signs.shape))

    def bayes(self, sequences: Sequences) -> Tensor:
        signs = sequences.inputs.sign()
        runs = 1 + (signs[:, 1:] * signs[:, :-1] == -1).sum(1)
        guesses = torch.zeros(len(sequences), dtype=torch.int64)
        for length in sequences.lengths.unique().tolist():
            chosen = sequences.lengths == length
            guesses[chosen] = torch.from_numpy(self._runs(length).argmax(0))[runs[chosen]]
        return guesses

    def _accuracy(self, length: int) -> float:
        return float(self._runs(length).max(0).sum() / 2)


def _normal_cdf(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


TASKS: dict[str, Task] = {
    task.name: task for task in (Share(), FirstMotif(), Mean(), Variance(), Trend(), Period(), Lag())
}
