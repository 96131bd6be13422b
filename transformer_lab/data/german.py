"""The German half of every rule: a tree as words, each tagged with the slot that it came from.

A function turns one kind of node into a list of ``(word, slot)``. ``at`` is the path of the node in the tree, such as
``"object."``, and a slot is a path with a name at its end, such as ``"object.noun"``. The English half gives the same slots
to the words that say the same thing. Only the comma before a clause whose verb stands last has a slot of its own.
"""

from __future__ import annotations

from transformer_lab.data.lexicon import (
    ADJECTIVES,
    ADVERBS,
    COORDINATING,
    MODALS,
    MONTHS,
    NOUNS,
    PLACES,
    PRONOUNS,
    REPORTING,
    SUBORDINATING,
    VERBS,
    WEEKDAYS,
    Phrase,
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
    Subordination,
    Time,
    Weekday,
)

Words = list[tuple[str, str]]

# ------------------------------------------------------------------------------------------------------------- numbers

# fmt: off
_UNITS = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun",
    "zehn", "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]
# fmt: on
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_ODD_ORDINALS = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}


def cardinal(number: int) -> str:
    """0 to 99 in one word, the unit before the ten: *siebenundzwanzig*."""
    if number < 20:
        return _UNITS[number]
    ten, unit = divmod(number, 10)
    if unit == 0:
        return _TENS[ten - 2]
    return ("ein" if unit == 1 else _UNITS[unit]) + "und" + _TENS[ten - 2]


def ordinal(number: int) -> str:
    """1 to 99: *erste*, *dritte*, *zwanzigste*."""
    return _ODD_ORDINALS.get(number) or cardinal(number) + ("te" if number < 20 else "ste")


# -------------------------------------------------------------------------------------------------------- noun phrases

#: Determiner → case → form for masculine, feminine, neuter, plural. The plural of *ein* is no word at all.
_DETERMINERS = {
    "the": {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"},
    "this": {
        "nom": "dieser diese dieses diese",
        "acc": "diesen diese dieses diese",
        "dat": "diesem dieser diesem diesen",
    },
    "a": {"nom": "ein eine ein", "acc": "einen eine ein", "dat": "einem einer einem"},
    "my": {"nom": "mein meine mein meine", "acc": "meinen meine mein meine", "dat": "meinem meiner meinem meinen"},
    "our": {
        "nom": "unser unsere unser unsere",
        "acc": "unseren unsere unser unsere",
        "dat": "unserem unserer unserem unseren",
    },
}
_FORMS = {
    (determiner, case, gender): form
    for determiner, cases in _DETERMINERS.items()
    for case, forms in cases.items()
    for gender, form in zip(("m", "f", "n", "plural"), forms.split(), strict=False)
}


def adjective_ending(determiner: str | int, case: str, gender: str) -> str:
    """What an adjective adds to its stem; ``gender`` is ``m``, ``f``, ``n`` or ``plural``.

    The ending shows gender and case where the determiner does not: *der kleine Hund*, *ein kleiner Hund*, *zwei kleine
    Hunde*, but *den kleinen Hunden*.
    """
    if case == "dat":
        return "en"
    if isinstance(determiner, int):
        return "e"
    if gender == "plural" or (case == "acc" and gender == "m"):
        return "en"
    if determiner in ("the", "this"):
        return "e"
    return {"m": "er", "f": "e", "n": "es"}[gender]


def noun_phrase(tree: NounPhrase, case: str, at: str) -> Words:
    noun, determiner, plural = NOUNS[tree.noun], tree.determiner, tree.is_plural
    gender = "plural" if plural else noun.gender
    first = cardinal(determiner) if isinstance(determiner, int) else _FORMS[determiner, case, gender]
    words = [(first, at + "determiner")]
    for place, adjective in enumerate(tree.adjectives):
        words.append(
            (ADJECTIVES[adjective].german + adjective_ending(determiner, case, gender), f"{at}adjective{place}")
        )
    form = noun.german[plural]
    if plural and case == "dat" and form[-1] not in "ns":
        form += "n"  # den Kindern
    words.append((form, at + "noun"))
    return words


def nominal(tree: Person | Object, case: str, at: str) -> Words:
    if isinstance(tree, NounPhrase):
        return noun_phrase(tree, case, at)
    if isinstance(tree, Pronoun):
        return [(PRONOUNS[tree.word], at + "pronoun")]
    if isinstance(tree, Names):
        words = [(name, f"{at}name{place}") for place, name in enumerate(tree.names)]
        return words if len(words) == 1 else [words[0], ("und", at + "and"), words[1]]
    words = noun_phrase(tree.items[0], case, at + "0.")
    for place, item in enumerate(tree.items[1:], start=1):
        last = place == len(tree.items) - 1
        words.append(("und", at + "and") if last else (",", f"{at}comma{place}"))
        words += noun_phrase(item, case, f"{at}{place}.")
    return words


# ---------------------------------------------------------------------------------------------------- times and places


def phrase(groups: tuple[tuple[str, ...], ...], at: str) -> Words:
    """Groups of words, the groups numbered."""
    return [(word, f"{at}{place}") for place, group in enumerate(groups) for word in group]


def clock(tree: Clock, at: str) -> Words:
    """*Um drei Uhr, um halb vier, um Viertel nach drei, um zehn vor vier, um fünf vor halb vier.*

    From the twenty-fifth minute on, the hour that is named is the one to come.
    """
    minute = tree.minute
    named = tree.hour if minute < 25 else tree.hour % 12 + 1
    hour = (cardinal(named), at + "hour")
    um = ("um", at + "at")
    if minute == 0:
        return [um, ("ein" if named == 1 else hour[0], hour[1]), ("Uhr", at + "o'clock")]
    if minute == 30:
        return [um, ("halb", at + "minutes"), hour]
    if minute in (25, 35):
        side = "vor" if minute == 25 else "nach"
        return [um, ("fünf", at + "minutes"), (side, at + "minutes"), ("halb", at + "minutes"), hour]
    distance = minute if minute < 30 else 60 - minute
    count = "Viertel" if distance == 15 else cardinal(distance)
    return [um, (count, at + "minutes"), ("nach" if minute < 30 else "vor", at + "side"), hour]


def time(tree: Time, at: str) -> Words:
    if isinstance(tree, Adverb):
        return phrase(_ADVERBS[tree.words].german, at)
    if isinstance(tree, Clock):
        return clock(tree, at)
    if isinstance(tree, Weekday):
        words = [("am", at + "on"), (WEEKDAYS[tree.day], at + "day")]
        return words + clock(tree.clock, at + "clock.") if tree.clock else words
    assert isinstance(tree, Date)
    return [("am", at + "on"), (ordinal(tree.day) + "n", at + "day"), (MONTHS[tree.month], at + "month")]


_ADVERBS: dict[str, Phrase] = {concept: entry for table in ADVERBS.values() for concept, entry in table.items()}

# ------------------------------------------------------------------------------------------------------------- clauses


def verb_forms(tree: Clause) -> tuple[str, str, str]:
    """The finite verb; what ends the clause in *er **hat** den Ball **gekauft***; and what ends it in *dass er …*."""
    verb, plural = VERBS[tree.verb].german, tree.subject.is_plural
    first_person = tree.subject == Pronoun("I")
    if tree.tense == "present":
        finite = verb.infinitive if plural else verb.ich if first_person else verb.er
        return finite, verb.prefix, verb.prefix + finite
    if tree.tense == "past":
        finite = verb.preterite_plural if plural else verb.preterite
        return finite, verb.prefix, verb.prefix + finite
    if tree.tense == "perfect":
        finite, end = "haben" if plural else "habe" if first_person else "hat", verb.participle
    else:
        finite, end = MODALS[tree.tense][1 if plural else 0], verb.prefix + verb.infinitive
        if tree.tense == "will" and first_person:
            finite = "werde"
    return finite, end, f"{end} {finite}"


def clause(tree: Clause, order: str, at: str) -> Words:
    """A clause in one of three orders.

    ``"second"``: the finite verb stands second, as in a main clause. ``"first"``: it stands first, because something before
    the clause is fronted. ``"last"``: it stands last, as in a clause after *dass*, *weil* or *obwohl*.
    """
    finite, end, final = verb_forms(tree)
    compound = tree.tense not in ("present", "past")
    auxiliary = at + ("auxiliary" if compound else "verb")
    subject = nominal(tree.subject, "nom", at + "subject.")

    middle: Words = []
    if tree.time and not tree.fronted:
        middle += time(tree.time, at + "time.")
    if tree.recipient:
        middle += nominal(tree.recipient, "dat", at + "recipient.")
    place = phrase(PLACES[tree.place].german, at + "place.") if tree.place else []
    if VERBS[tree.verb].dative:
        middle += nominal(tree.object, "dat", at + "object.") + place
    elif isinstance(tree.object, Names):  # who has a name is known: Anna am Bahnhof, but am Bahnhof einen Freund
        middle += nominal(tree.object, "acc", at + "object.") + place
    else:
        middle += place + nominal(tree.object, "acc", at + "object.")

    if order == "last":
        verbs = [(word, at + "verb") for word in final.split()]
        if compound:
            verbs[-1] = (verbs[-1][0], auxiliary)
        return subject + middle + verbs
    bracket = [(end, at + "verb")] if end else []
    verb_first = [(finite, auxiliary)]
    if order == "first":
        return verb_first + subject + middle + bracket
    if tree.fronted and tree.time:
        return time(tree.time, at + "time.") + verb_first + subject + middle + bracket
    return subject + verb_first + middle + bracket


def sentence(tree: Sentence) -> Words:
    """A whole sentence, its full stop included. It begins in lower case, so that every word has one spelling."""
    stop = (".", "stop")
    comma = (",", "german comma")
    if isinstance(tree, Clause):
        return [*clause(tree, "second", ""), stop]
    if isinstance(tree, Coordination):
        join = [(",", "comma"), (COORDINATING[tree.conjunction], "conjunction")]
        return clause(tree.first, "second", "0.") + join + clause(tree.second, "second", "1.") + [stop]
    if isinstance(tree, Report):
        ich, er, wir, *_ = REPORTING[tree.verb]
        verb = wir if tree.subject.is_plural else ich if tree.subject == Pronoun("I") else er
        head = [*nominal(tree.subject, "nom", "subject."), (verb, "verb"), comma, ("dass", "that")]
        return head + clause(tree.content, "last", "content.") + [stop]
    assert isinstance(tree, Subordination)
    head = [(SUBORDINATING[tree.conjunction], "conjunction"), *clause(tree.subordinate, "last", "1.")]
    if tree.first:
        return [*head, (",", "comma"), *clause(tree.main, "first", "0."), stop]
    return [*clause(tree.main, "second", "0."), comma, *head, stop]
