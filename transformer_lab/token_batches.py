"""Batches with as many tokens as fit a budget, from sentences of like length.

A batch costs what its padded rows cost, so that not the number of sentences is held fixed but rows × longest row
(Vaswani et al. 2017, section 5.1, give 25,000 tokens a side). Sentences of like length leave little to pad.

    batches = TokenBatches(pairs, budget=2000, seed=0)          # pairs of lists of ids
    for source_ids, target_ids in batches.epoch(0): …           # (B, S) and (B, T), another B each time
    print(f"{batches.padding(0):.1%} of all tokens are padding")

The number of an epoch decides its batches and their order, so that the place in an epoch is all that a checkpoint needs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from torch import Tensor

from transformer_lab.data import pad

T = TypeVar("T")

#: The ids of a sentence and of its translation.
IdPair = tuple[Sequence[int], Sequence[int]]


def batches_by_tokens(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Share out sentences, shortest first, into batches of which none takes more than ``budget`` tokens when padded.

    Parameters
    ----------
    lengths
        How many tokens each sentence has.
    budget
        The most that rows × longest row may be.

    Returns
    -------
    list of list of int
        The indices of the sentences of each batch. Every index comes once; equally long ones keep their order.

    Raises
    ------
    ValueError
        A sentence alone is longer than the budget.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if lengths[index] > budget:
            raise ValueError(
                f"A sentence of {lengths[index]} tokens does not fit into a budget of {budget}: raise the budget."
            )
        # The one that comes is the longest so far: its length is what every row is padded to.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Which share of all tokens of padded batches is padding, from 0 to below 1; 0 where there is no token."""
    real = sum(lengths[index] for batch in batches for index in batch)
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches if batch)
    return 1 - real / padded if padded else 0.0


class TokenBatches:
    """Batches of pairs by a budget of tokens, other ones each epoch; one process's share of them.

    Every pair comes once an epoch, in one batch of one process, and all processes have equally many batches. An epoch's
    sentences are shuffled, cut into pools, put into batches by length within a pool, and the batches shuffled.

    Parameters
    ----------
    pairs
        The ids of both sides of every pair.
    budget
        The most tokens that either side of a batch may have when padded.
    seed
        Equal seeds give equal batches.
    rank, world
        Which of how many processes this is.
    pool
        So many budgets make a pool: the larger, the less padding and the more alike the batches of two epochs.

    Raises
    ------
    ValueError
        A sentence is longer than the budget, ``rank`` is not below ``world``, or there are too few pairs for so many
        processes.
    """

    def __init__(
        self, pairs: Sequence[IdPair], budget: int, *, seed: int = 0, rank: int = 0, world: int = 1, pool: int = 50
    ):
        if not 0 <= rank < world:
            raise ValueError(f"There is no process {rank} among {world}: they are counted from 0.")
        if len(pairs) < world:
            raise ValueError(f"{len(pairs)} pairs cannot be shared out among {world} processes.")
        self.pairs, self.budget, self.seed, self.rank, self.world, self.pool = pairs, budget, seed, rank, world, pool
        self.lengths = [max(len(source), len(target)) for source, target in pairs]
        batches_by_tokens([max(self.lengths)], budget)  # says now what an epoch would say later
        self._kept: tuple[int, list[list[int]]] = (-1, [])

    def epoch(self, number: int) -> Sequence[tuple[Tensor, Tensor]]:
        """This process's batches of epoch ``number``: ids (B, S) and (B, T), padded when they are asked for."""
        return _Padded(self.pairs, self.indices(number))

    def indices(self, number: int) -> list[list[int]]:
        """Which pairs this process's batches of epoch ``number`` hold."""
        return self.all_indices(number)[self.rank :: self.world]

    def all_indices(self, number: int) -> list[list[int]]:
        """Which pairs the batches of all processes hold; batch i belongs to process i modulo ``world``."""
        if self._kept[0] != number:
            self._kept = (number, self._draw(number))
        return self._kept[1]

    def padding(self, number: int) -> float:
        """Which share of the tokens of epoch ``number`` is padding, both sides and all processes together."""
        batches = self.all_indices(number)
        sides = [[len(pair[side]) for pair in self.pairs] for side in (0, 1)]
        real = sum(map(sum, sides))
        padded = sum(len(batch) * max(side[index] for index in batch) for side in sides for batch in batches)
        return 1 - real / padded

    def _draw(self, number: int) -> list[list[int]]:
        draw = random.Random(f"{self.seed}/{number}")
        order = list(range(len(self.pairs)))
        draw.shuffle(order)
        size = max(1, self.pool * self.budget * len(order) // sum(self.lengths))
        batches = []
        for start in range(0, len(order), size):
            # Both sides of a pair matter: the shorter one decides among pairs whose longer sides are equal.
            alike = sorted(order[start : start + size], key=lambda index: sum(map(len, self.pairs[index])))
            shares = batches_by_tokens([self.lengths[index] for index in alike], self.budget)
            batches += [[alike[place] for place in share] for share in shares]
        draw.shuffle(batches)
        return divisible(batches, self.world)


class TokenBatchStream:
    """Batch after batch without end, and a state from which another stream goes on with the next one.

    An iterator over ``batches``, epoch after epoch. ``state_dict`` and ``load_state_dict`` are those of PyTorch's objects.
    """

    def __init__(self, batches: TokenBatches):
        self.batches, self.number, self.place = batches, 0, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        own = self.batches.epoch(self.number)
        batch = own[self.place]
        self.place += 1
        if self.place == len(own):
            self.number, self.place = self.number + 1, 0
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, and what must be the same for it to go on."""
        return {"epoch": self.number, "place": self.place} | self._fixed()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken; ValueError where seed, budget, processes or pairs are others."""
        other = [name for name, value in self._fixed().items() if state.get(name) != value]
        if other:
            raise ValueError(f"These batches are not those of the state: {', '.join(other)} differ.")
        self.number, self.place = state["epoch"], state["place"]

    def _fixed(self) -> dict[str, int]:
        own = self.batches
        return {"seed": own.seed, "budget": own.budget, "world": own.world, "pool": own.pool, "pairs": len(own.pairs)}


class _Padded(Sequence):
    """Batches as tensors, each made when it is asked for."""

    def __init__(self, pairs: Sequence[IdPair], indices: list[list[int]]):
        self._pairs, self._indices = pairs, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, place):
        rows = [self._pairs[index] for index in self._indices[place]]
        return pad([source for source, _ in rows]), pad([target for _, target in rows])


def divisible(batches: Sequence[list[T]], world: int) -> list[list[T]]:
    """The batches, of which the last large ones are halved until ``world`` processes can have equally many."""
    batches = list(batches)
    while len(batches) % world:
        largest = max(range(len(batches)), key=lambda place: (len(batches[place]), place))
        rows = batches[largest]
        if len(rows) < 2:
            raise ValueError(
                f"{len(batches)} batches of one sentence each cannot be shared out equally among {world} processes."
            )
        batches[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return batches
