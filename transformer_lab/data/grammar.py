"""The grammar: a tree becomes a pair of sentences whose words are aligned by the slots that they came from.

    from transformer_lab.data import grammar

    pair = next(grammar.pairs(seed=1))
    " ".join(pair.source), " ".join(pair.target), pair.alignment

Every rule has a German and an English half that fill the same slots: a synchronous grammar, written as one abstract tree
and one concrete syntax for each language, as Grammatical Framework does (Ranta 2011). A sentence has one
translation and one right alignment, because both come from the same tree by rules that leave nothing open:

- a time in the middle of the German clause stands at the end of the English one; what is fronted stays fronted;
- the subject always stands before the objects;
- the English particle stands behind an object of at most three words, and before a longer one;
- the perfect goes with *today* and *many times* only; there is no *du* and no *ihr*, and one form for each profession.
"""

from __future__ import annotations

from collections.abc import Iterator

from transformer_lab.data import english, german
from transformer_lab.data.lexicon import ALL, Lexicon
from transformer_lab.data.pairs import Pair
from transformer_lab.data.sampling import Sampler
from transformer_lab.data.tree import Sentence


def translate(tree: Sentence) -> Pair:
    """The German sentence that says what ``tree`` says, the English one, and their alignment."""
    source, target = german.sentence(tree), english.sentence(tree)
    places: dict[str, list[int]] = {}
    for place, (_, slot) in enumerate(source):
        places.setdefault(slot, []).append(place)
    return Pair(
        tuple([word for word, _ in source]),
        tuple([word for word, _ in target]),
        frozenset([(i, j) for j, (_, slot) in enumerate(target) for i in places[slot]]),
    )


def trees(seed: int, lexicon: Lexicon = ALL) -> Iterator[Sentence]:
    """Trees without end; equal seeds give equal trees, on every machine."""
    sampler = Sampler(seed, lexicon)
    while True:
        yield sampler.sentence()


def pairs(seed: int, lexicon: Lexicon = ALL) -> Iterator[Pair]:
    """Pairs without end, now and then one that has come before; equal seeds give equal pairs, on every machine."""
    return map(translate, trees(seed, lexicon))
