"""Drawing trees: which sentences there are, and how often."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from transformer_lab.data.lexicon import (
    ADVERBS,
    ANIMALS,
    COORDINATING,
    DAYS_IN_MONTH,
    DETERMINERS,
    MODALS,
    PEOPLE,
    REPORTING,
    SUBORDINATING,
    Lexicon,
)
from transformer_lab.data.tree import (
    Adverb,
    Clause,
    Clock,
    Coordination,
    Date,
    Names,
    NounPhrase,
    Object,
    Person,
    Pronoun,
    Report,
    Sentence,
    Several,
    Subordination,
    Time,
    Weekday,
)

T = TypeVar("T")

#: As often as they stand here. The full and the half hour are said most.
TENSES = ("present", "present", "past", "past", "perfect", *MODALS)
UNWILLED = ("present", "present", "past", "past", "perfect", "will")
MINUTES = (0, 0, 0, 0, 30, 30, 30, 15, 15, 45, 45, 5, 10, 20, 25, 35, 40, 50, 55)
HOW_MANY_ADJECTIVES = (0, 0, 0, 1, 1, 2)
HOW_MANY_OBJECTS = (1, 1, 1, 1, 2, 3)

#: Goods are counted up to 99, people and animals up to here.
MOST_CREATURES = 20


class Sampler:
    """An endless source of trees: equal seeds and lexicons draw equal trees, on every machine.

    Only ``random.Random.random`` is used, the one method of which Python promises that it will not change.
    """

    def __init__(self, seed: int, lexicon: Lexicon):
        self._chance = random.Random(seed).random
        self._lexicon = lexicon
        self._people = self._nouns_of(PEOPLE)
        self._creatures = self._nouns_of(PEOPLE | ANIMALS)
        self._objects = {
            verb: nouns for verb, entry in lexicon.verbs.items() if (nouns := self._nouns_of(entry.objects))
        }
        self._adjectives = {
            noun: tuple(word for word, adjective in lexicon.adjectives.items() if entry.kind in adjective.kinds)
            for noun, entry in lexicon.nouns.items()
        }
        self._plain_verbs = tuple(verb for verb in self._objects if not lexicon.verbs[verb].recipient)
        self._giving_verbs = tuple(verb for verb in self._objects if lexicon.verbs[verb].recipient)
        self._few = tuple(number for number in lexicon.numbers if number <= MOST_CREATURES)
        self._adverbs = {tense: tuple(words) for tense, words in ADVERBS.items()}

    def sentence(self) -> Sentence:
        """Six of ten sentences are one clause; in the others, two clauses meet, each kept short."""
        chance = self._chance()
        if chance < 0.62:
            return self.clause(long=True)
        if chance < 0.72:
            return Coordination(self._pick(tuple(COORDINATING)), self.clause(), self.clause())
        if chance < 0.82:
            speaker = self._person(self._people, adjectives=False, numbers=False)
            return Report(self._pick(tuple(REPORTING)), speaker, self.clause(may_front=False))
        main = self.clause()
        first = chance < 0.91
        if first:  # the subordinate clause is what is fronted, so that the time cannot be
            main = replace(main, fronted=False)
        return Subordination(self._pick(tuple(SUBORDINATING)), main, self.clause(may_front=False), first)

    def clause(self, long: bool = False, may_front: bool = True) -> Clause:
        verb = self._pick(self._giving_verbs if self._giving_verbs and self._chance() < 0.2 else self._plain_verbs)
        entry = self._lexicon.verbs[verb]
        tense = self._pick(TENSES if entry.willed else UNWILLED)
        subject = self._person(self._creatures if entry.animals else self._people, pronouns=True)
        others = self._names_but(subject)
        time = self._time(tense) if self._chance() < 0.5 else None
        return Clause(
            verb,
            subject,
            self._object(verb, long, others),
            self._person(self._people, numbers=False, names=others) if entry.recipient else None,
            tense,
            time,
            self._pick(self._lexicon.places) if self._chance() < 0.3 else None,
            fronted=may_front and time is not None and self._chance() < 0.5,
        )

    # ----------------------------------------------------------------------------------------------------------------

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self._chance() * len(options))]

    def _nouns_of(self, kinds: Collection[str]) -> tuple[str, ...]:
        return tuple(noun for noun, entry in self._lexicon.nouns.items() if entry.kind in kinds)

    def _person(
        self,
        nouns: Sequence[str],
        pronouns: bool = False,
        adjectives: bool = True,
        numbers: bool = True,
        names: Sequence[str] | None = None,
    ) -> Person:
        names = self._lexicon.names if names is None else names
        if pronouns and self._chance() < 0.2:
            return Pronoun(self._pick(self._lexicon.pronouns))
        if names and self._chance() < 0.2:
            return self._named(names)
        return self._noun_phrase(self._pick(nouns), adjectives, numbers)

    def _named(self, names: Sequence[str]) -> Names:
        first, second = self._pick(names), self._pick(names)
        return Names((first, second) if first != second and self._chance() < 0.3 else (first,))

    def _names_but(self, person: Person) -> tuple[str, ...]:
        """Nobody calls herself by her own name."""
        taken = person.names if isinstance(person, Names) else ()
        return tuple(name for name in self._lexicon.names if name not in taken)

    def _object(self, verb: str, long: bool, names: Sequence[str]) -> Object:
        nouns = self._objects[verb]
        if names and self._lexicon.verbs[verb].objects <= PEOPLE and self._chance() < 0.2:
            return self._named(names)
        count = self._pick(HOW_MANY_OBJECTS) if long else 1
        chosen = dict.fromkeys(self._pick(nouns) for _ in range(count))  # no noun twice: a hat, a ball and a hat
        items = tuple(self._noun_phrase(noun) for noun in chosen)
        return items[0] if len(items) == 1 else Several(items)

    def _noun_phrase(self, noun: str, adjectives: bool = True, numbers: bool = True) -> NounPhrase:
        determiner: str | int = self._pick(DETERMINERS[self._lexicon.nouns[noun].kind])
        if determiner == "number":
            few = self._lexicon.nouns[noun].kind in PEOPLE | ANIMALS
            determiner = self._pick(self._few if few else self._lexicon.numbers) if numbers else "the"
        plural = determiner != "a" and not isinstance(determiner, int) and self._chance() < 0.3
        chosen = self._adjectives_of(noun, self._pick(HOW_MANY_ADJECTIVES)) if adjectives else ()
        return NounPhrase(noun, determiner, plural, chosen)

    def _adjectives_of(self, noun: str, count: int) -> tuple[str, ...]:
        """At most ``count``, one of a rank, in the order in which they stand."""
        options = self._adjectives[noun]
        if not options or not count:
            return ()
        rank = {word: self._lexicon.adjectives[word].rank for word in options}
        first, second = self._pick(options), self._pick(options)
        if count == 1 or rank[first] == rank[second]:
            return (first,)
        return (first, second) if rank[first] < rank[second] else (second, first)

    def _time(self, tense: str) -> Time:
        adverbs = self._adverbs.get(tense, self._adverbs["future"])
        if tense == "perfect":  # *she has bought a hat on Monday* is no English
            return Adverb(self._pick(adverbs))
        kind = int(self._chance() * 5)
        if kind < 2:
            return Adverb(self._pick(adverbs))
        if kind == 2:
            return self._clock()
        if kind == 3:
            return Weekday(self._pick(self._lexicon.weekdays), self._clock() if self._chance() < 0.3 else None)
        month = self._pick(self._lexicon.months)
        return Date(1 + int(self._chance() * DAYS_IN_MONTH[month]), month)

    def _clock(self) -> Clock:
        return Clock(self._pick(self._lexicon.hours), self._pick(MINUTES))
