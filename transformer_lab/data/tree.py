"""What a sentence says, in no language: trees of concepts.

A tree holds concepts of the lexicon, choices such as plural or past, and nothing of German or English: no gender, no
case, no article. Word order enters in two places, what is ``fronted`` and which clause comes ``first``; both are left out
of comparisons, so that two trees are equal, and hash alike, when they *say the same thing*.

A language is a module with one function for each kind of node, which turns it into words tagged with slots. ``german``
and ``english`` are the two that there are. For a third, add a module like them and its words to the lexicon; trees,
sampling, splits and alignments stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """*The two small apples*. ``determiner`` is "the", "a", "this", "my", "our", or a number from 2 to 99."""

    noun: str
    determiner: str | int = "the"
    plural: bool = False
    adjectives: tuple[str, ...] = ()

    @property
    def is_plural(self) -> bool:
        return self.plural or isinstance(self.determiner, int)


@dataclass(frozen=True, slots=True)
class Names:
    """*Anna*, or *Anna and Paul*."""

    names: tuple[str, ...]

    @property
    def is_plural(self) -> bool:
        return len(self.names) > 1


@dataclass(frozen=True, slots=True)
class Pronoun:
    """*I, we, he, she* or *they*, as a subject."""

    word: str

    @property
    def is_plural(self) -> bool:
        return self.word in ("we", "they")


@dataclass(frozen=True, slots=True)
class Several:
    """*A ball, a hat and two books*."""

    items: tuple[NounPhrase, ...]


Person = NounPhrase | Names | Pronoun
Object = NounPhrase | Names | Several


@dataclass(frozen=True, slots=True)
class Adverb:
    """*Yesterday*, *every day*."""

    words: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day: ``hour`` from 1 to 12, ``minute`` a multiple of five."""

    hour: int
    minute: int


@dataclass(frozen=True, slots=True)
class Weekday:
    """*On Monday*, *on Monday at four o'clock*."""

    day: str
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class Date:
    """*On the third of March*."""

    day: int
    month: str


Time = Adverb | Clock | Weekday | Date


@dataclass(frozen=True, slots=True)
class Clause:
    """Someone does something: to whom, when and where.

    ``tense`` is "present", "past", "perfect", or a modal verb: "want", "can", "must", "should", "will".
    ``fronted`` puts the time before everything else.
    """

    verb: str
    subject: Person
    object: Object
    recipient: Person | None = None
    tense: str = "present"
    time: Time | None = None
    place: str | None = None
    fronted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Coordination:
    """Two main clauses, joined by "and" or "but"."""

    conjunction: str
    first: Clause
    second: Clause


@dataclass(frozen=True, slots=True)
class Report:
    """Someone says, believes, knows or hopes that something is so."""

    verb: str
    subject: Person
    content: Clause


@dataclass(frozen=True, slots=True)
class Subordination:
    """A main clause and one with "because" or "although", which may come ``first``."""

    conjunction: str
    main: Clause
    subordinate: Clause
    first: bool = field(default=False, compare=False)


Sentence = Clause | Coordination | Report | Subordination
