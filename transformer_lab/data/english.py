"""The English half of every rule: the same trees and the same slots as in ``german``, which explains both."""

from __future__ import annotations

from transformer_lab.data.lexicon import ADVERBS, MODALS, NOUNS, PLACES, REPORTING, VERBS, Phrase
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
    Subordination,
    Time,
    Weekday,
)

Words = list[tuple[str, str]]

#: A particle stands behind an object of so many words (*picks the small children up*) and before a longer one.
SHORT_OBJECT = 3

# ------------------------------------------------------------------------------------------------------------- numbers

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ODD_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(number: int) -> str:
    """0 to 99 in one word, the ten before the unit: *twenty-seven*."""
    if number < 20:
        return _UNITS[number]
    ten, unit = divmod(number, 10)
    return _TENS[ten - 2] + (f"-{_UNITS[unit]}" if unit else "")


def ordinal(number: int) -> str:
    """1 to 99: *first*, *twentieth*, *twenty-first*."""
    *before, last = cardinal(number).split("-")
    regular = last.removesuffix("y") + "ieth" if last.endswith("y") else last + "th"
    return "-".join([*before, _ODD_ORDINALS.get(last, regular)])


# -------------------------------------------------------------------------------------------------------- noun phrases


def noun_phrase(tree: NounPhrase, at: str) -> Words:
    noun = NOUNS[tree.noun].english[tree.is_plural]
    rest = [(word, f"{at}adjective{place}") for place, word in enumerate(tree.adjectives)]
    rest.append((noun, at + "noun"))
    determiner = tree.determiner
    if isinstance(determiner, int):
        determiner = cardinal(determiner)
    elif determiner == "a" and rest[0][0][0] in "aeiou":
        determiner = "an"
    elif determiner == "this" and tree.is_plural:
        determiner = "these"
    return [(determiner, at + "determiner"), *rest]


def nominal(tree: Person | Object, at: str) -> Words:
    if isinstance(tree, NounPhrase):
        return noun_phrase(tree, at)
    if isinstance(tree, Pronoun):
        return [(tree.word, at + "pronoun")]
    if isinstance(tree, Names):
        words = [(name, f"{at}name{place}") for place, name in enumerate(tree.names)]
        return words if len(words) == 1 else [words[0], ("and", at + "and"), words[1]]
    words = noun_phrase(tree.items[0], at + "0.")
    for place, item in enumerate(tree.items[1:], start=1):
        last = place == len(tree.items) - 1
        words.append(("and", at + "and") if last else (",", f"{at}comma{place}"))
        words += noun_phrase(item, f"{at}{place}.")
    return words


# ---------------------------------------------------------------------------------------------------- times and places


def phrase(groups: tuple[tuple[str, ...], ...], at: str) -> Words:
    """Groups of words, the groups numbered."""
    return [(word, f"{at}{place}") for place, group in enumerate(groups) for word in group]


def clock(tree: Clock, at: str) -> Words:
    """*At three o'clock, at half past three, at a quarter past three, at ten to four, at twenty-five past three.*

    From the thirty-fifth minute on, the hour that is named is the one to come.
    """
    minute = tree.minute
    hour = (cardinal(tree.hour if minute <= 30 else tree.hour % 12 + 1), at + "hour")
    start = ("at", at + "at")
    if minute == 0:
        return [start, hour, ("o'clock", at + "o'clock")]
    if minute == 30:
        return [start, ("half", at + "minutes"), ("past", at + "minutes"), hour]
    distance = minute if minute < 30 else 60 - minute
    side = "past" if minute < 30 else "to"
    count = [(word, at + "minutes") for word in ("a quarter" if distance == 15 else cardinal(distance)).split()]
    # *Fünf vor halb* is twenty-five past as a whole: no word of it is the side.
    return [start, *count, (side, at + ("minutes" if distance == 25 else "side")), hour]


def time(tree: Time, at: str) -> Words:
    if isinstance(tree, Adverb):
        return phrase(_ADVERBS[tree.words].english, at)
    if isinstance(tree, Clock):
        return clock(tree, at)
    if isinstance(tree, Weekday):
        words = [("on", at + "on"), (tree.day, at + "day")]
        return words + clock(tree.clock, at + "clock.") if tree.clock else words
    assert isinstance(tree, Date)
    day = [("the", at + "day"), (ordinal(tree.day), at + "day")]
    return [("on", at + "on"), *day, ("of", at + "month"), (tree.month, at + "month")]


_ADVERBS: dict[str, Phrase] = {concept: entry for table in ADVERBS.values() for concept, entry in table.items()}

# ------------------------------------------------------------------------------------------------------------- clauses


def _is_third_singular(subject: Person) -> bool:
    return not subject.is_plural and subject != Pronoun("I")


def verbs(tree: Clause, at: str) -> Words:
    """All words of the verb, without particle and preposition: *buys, has bought, wants to buy*."""
    verb, third = VERBS[tree.verb].english, _is_third_singular(tree.subject)
    if tree.tense == "present":
        return [(verb.he if third else verb.base, at + "verb")]
    if tree.tense == "past":
        return [(verb.past, at + "verb")]
    if tree.tense == "perfect":
        return [("has" if third else "have", at + "auxiliary"), (verb.participle, at + "verb")]
    modal = MODALS[tree.tense][2 if third else 3]
    return [*((word, at + "auxiliary") for word in modal.split()), (verb.base, at + "verb")]


def clause(tree: Clause, at: str) -> Words:
    """Subject, verb, recipient, object, place, time; a time that is fronted stands before them."""
    verb = VERBS[tree.verb].english
    when = time(tree.time, at + "time.") if tree.time else []
    what = nominal(tree.object, at + "object.")
    if verb.preposition:
        what = [(verb.preposition, at + "verb"), *what]
    elif verb.particle:
        particle = (verb.particle, at + "verb")
        what = [*what, particle] if len(what) <= SHORT_OBJECT else [particle, *what]

    words = nominal(tree.subject, at + "subject.") + verbs(tree, at)
    if tree.recipient:
        words += nominal(tree.recipient, at + "recipient.")
    words += what
    if tree.place:
        words += phrase(PLACES[tree.place].english, at + "place.")
    return when + words if tree.fronted else words + when


def sentence(tree: Sentence) -> Words:
    """A whole sentence, its full stop included. It begins in lower case, so that every word has one spelling."""
    stop = (".", "stop")
    if isinstance(tree, Clause):
        return [*clause(tree, ""), stop]
    if isinstance(tree, Coordination):
        join = [(",", "comma"), (tree.conjunction, "conjunction")]
        return clause(tree.first, "0.") + join + clause(tree.second, "1.") + [stop]
    if isinstance(tree, Report):
        he, they = REPORTING[tree.verb][3:]
        verb = he if _is_third_singular(tree.subject) else they
        head = [*nominal(tree.subject, "subject."), (verb, "verb"), ("that", "that")]
        return head + clause(tree.content, "content.") + [stop]
    assert isinstance(tree, Subordination)
    head = [(tree.conjunction, "conjunction"), *clause(tree.subordinate, "1.")]
    if tree.first:
        return [*head, (",", "comma"), *clause(tree.main, "0."), stop]
    return [*clause(tree.main, "0."), *head, stop]
