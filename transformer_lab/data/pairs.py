"""What a corpus is made of: pairs of sentences, and three parts of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation.

    Attributes
    ----------
    source, target
        The words of each side, full stops and commas among them.
    alignment
        The pairs ``(i, j)`` for which source word ``i`` and target word ``j``, both counted from 0, belong together.
        Empty where nobody knows it, as in every corpus that was not made by the grammar.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    alignment: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from, pairs to choose by, and pairs that nobody looks at before the end."""

    train: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    test: tuple[Pair, ...]

    def __iter__(self) -> Iterator[tuple[Pair, ...]]:
        """``train, validation, test = corpus``."""
        return iter((self.train, self.validation, self.test))
