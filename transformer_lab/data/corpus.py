"""The corpus that comes with the course, in three parts that share no sentence and no meaning."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from transformer_lab.data import grammar
from transformer_lab.data.lexicon import ALL, Lexicon
from transformer_lab.data.pairs import Corpus, Pair
from transformer_lab.data.tree import Sentence

#: As many as Multi30k has, so that what takes long here takes long there.
TRAIN, VALIDATION, TEST = 29_000, 1_014, 1_000
SEED = 2017

#: After so many trees in a row that have been drawn before, there are hardly any others.
PATIENCE = 10_000


class Drawer:
    """Draws pairs that say what none has said before.

    "Gestern sah Anna den Hund" and "Anna sah gestern den Hund" say the same thing: whoever has seen the one has been told
    the answer to the other, so that only one of them is drawn.

    Parameters
    ----------
    lexicon
        The words that there are.
    seen
        What counts as said already.
    """

    def __init__(self, lexicon: Lexicon = ALL, seen: Iterable[Sentence] = ()):
        self._lexicon = lexicon
        self._seen: set[Sentence] = set(seen)

    @property
    def seen(self) -> frozenset[Sentence]:
        """What has been drawn so far, and what counted as said before."""
        return frozenset(self._seen)

    def draw(self, count: int, seed: int) -> tuple[Pair, ...]:
        """``count`` pairs; equal seeds after equal draws give equal pairs.

        ValueError where the lexicon has not as many left.
        """
        found: list[Pair] = []
        repeats = 0
        trees = grammar.trees(seed, self._lexicon)
        while len(found) < count:
            tree = next(trees)
            if tree not in self._seen:
                self._seen.add(tree)
                found.append(grammar.translate(tree))
                repeats = 0
            elif (repeats := repeats + 1) == PATIENCE:
                raise ValueError(f"This lexicon has hardly more than {len(self._seen)} sentences of different meaning.")
        return tuple(found)


@functools.cache
def default_corpus(train: int = TRAIN, validation: int = VALIDATION, test: int = TEST, seed: int = SEED) -> Corpus:
    """The course's own corpus, German to English, the same on every machine.

    The test part is drawn first and the training part last: a longer training part changes neither of the others, and is
    the shorter one with more behind it.
    """
    return _drawn(train, validation, test, seed)[0]


def further_pairs(
    count: int, seed: int, train: int = TRAIN, validation: int = VALIDATION, test: int = TEST, corpus_seed: int = SEED
) -> tuple[Pair, ...]:
    """``count`` pairs that say what no pair of the default corpus of these sizes says, such as another test part."""
    return Drawer(seen=_drawn(train, validation, test, corpus_seed)[1]).draw(count, seed)


def fresh_pairs(epoch: int, count: int = TRAIN) -> tuple[Pair, ...]:
    """``count`` pairs to go on training with: other ones for each epoch from 1, none of the validation or the test part."""
    return Drawer(seen=_drawn(0, VALIDATION, TEST, SEED)[1]).draw(count, SEED + 2 + epoch)


@functools.cache
def _drawn(train: int, validation: int, test: int, seed: int) -> tuple[Corpus, frozenset[Sentence]]:
    """The parts of a corpus, and all that they say."""
    drawer = Drawer()
    last, middle = drawer.draw(test, seed), drawer.draw(validation, seed + 1)
    return Corpus(drawer.draw(train, seed + 2), middle, last), drawer.seen
