"""The course's own corpus: German that is German, one translation for every sentence, alignments that are right."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections import defaultdict
from dataclasses import replace
from itertools import cycle, groupby, islice, pairwise

import babel.dates
import num2words
import pytest

from transformer_lab.data import (
    Pair,
    corpus,
    default_corpus,
    detokenise,
    english,
    further_pairs,
    german,
    grammar,
    tokenise,
)
from transformer_lab.data.lexicon import ALL, DAYS_IN_MONTH, MONTHS, NOUNS, VERBS, WEEKDAYS
from transformer_lab.data.sampling import Sampler
from transformer_lab.data.tree import (
    Adverb,
    Clause,
    Clock,
    Coordination,
    Date,
    Names,
    NounPhrase,
    Pronoun,
    Report,
    Several,
    Subordination,
    Weekday,
)
from transformer_lab.pieces import COURSE_ROOT

#: Few words, those that look alike among them, so that sentences repeat: *Lehrer* and *Schlüssel* are one and many, *groß*
#: is tall and big, *macht* opens and closes, *bringt* stands with and without its prefix, *vergessen* is three forms.
SMALL = replace(
    ALL,
    nouns={noun: NOUNS[noun] for noun in ("teacher", "girl", "key", "door")},
    adjectives={word: ALL.adjectives[word] for word in ("tall", "big")},
    verbs={verb: VERBS[verb] for verb in ("open", "close", "bring", "bring along", "help", "forget")},
    names=("Anna",),
    pronouns=("she", "they"),
    places=("in the garden",),
    months=("May",),
    weekdays=("Monday",),
    numbers=(2,),
    hours=(3,),
)


def trees(count, seed=1, lexicon=ALL):
    return list(islice(grammar.trees(seed, lexicon), count))


# -------------------------------------------------------------------------------------------- sentences, one by one

ANNA, SHE, THEY, I = Names(("Anna",)), Pronoun("she"), Pronoun("they"), Pronoun("I")  # noqa: E741
MAN, WOMAN = NounPhrase("man"), NounPhrase("woman")

SENTENCES = [
    (
        Clause("pick up", SHE, NounPhrase("child", "the", True, ("small",)), time=Clock(3, 30), fronted=True),
        "um halb vier holt sie die kleinen Kinder ab .",
        "at half past three she picks the small children up .",
    ),
    (
        Clause("pick up", THEY, NounPhrase("child", "our", True, ("tired", "small")), time=Clock(3, 30)),
        "sie holen um halb vier unsere müden kleinen Kinder ab .",
        "they pick up our tired small children at half past three .",
    ),
    (
        Clause("see", WOMAN, NounPhrase("man", "the", False, ("tall",)), tense="past", time=Adverb("yesterday"), fronted=True),
        "gestern sah die Frau den großen Mann .",
        "yesterday the woman saw the tall man .",
    ),
    (
        Clause("buy", MAN, NounPhrase("apple", "a"), tense="perfect", time=Adverb("today")),
        "der Mann hat heute einen Apfel gekauft .",
        "the man has bought an apple today .",
    ),
    (
        Clause("buy", ANNA, NounPhrase("suitcase", "a", False, ("big", "red")), tense="want", place="at the market"),
        "Anna will auf dem Markt einen großen roten Koffer kaufen .",
        "Anna wants to buy a big red suitcase at the market .",
    ),
    (
        Clause("help", THEY, NounPhrase("teacher", "this", True), tense="perfect"),
        "sie haben diesen Lehrern geholfen .",
        "they have helped these teachers .",
    ),
    (
        Clause("give", MAN, NounPhrase("book", "a"), NounPhrase("child", "the", True), place="in the garden"),
        "der Mann gibt den Kindern im Garten ein Buch .",
        "the man gives the children a book in the garden .",
    ),
    (
        Clause("open", I, NounPhrase("door"), tense="past"),
        "ich machte die Tür auf .",
        "I opened the door .",
    ),
    (
        Clause("close", I, NounPhrase("door"), tense="will"),
        "ich werde die Tür zumachen .",
        "I will close the door .",
    ),
    (
        Clause("look for", WOMAN, Several((NounPhrase("hat", 21), NounPhrase("key", "my"), NounPhrase("egg", "a")))),
        "die Frau sucht einundzwanzig Hüte , meinen Schlüssel und ein Ei .",
        "the woman looks for twenty-one hats , my key and an egg .",
    ),
    (
        Clause("call", Names(("Anna", "Paul")), Names(("Max",)), time=Weekday("Monday", Clock(12, 25)), place="at the station"),
        "Anna und Paul rufen am Montag um fünf vor halb eins Max am Bahnhof an .",
        "Anna and Paul call Max at the station on Monday at twenty-five past twelve .",
    ),
    (
        Report("know", I, Clause("throw away", SHE, NounPhrase("letter", "my"), tense="perfect")),
        "ich weiß , dass sie meinen Brief weggeworfen hat .",
        "I know that she has thrown my letter away .",
    ),
    (
        Report("hope", ANNA, Clause("invite", THEY, NounPhrase("guest", "our", True))),
        "Anna hofft , dass sie unsere Gäste einladen .",
        "Anna hopes that they invite our guests .",
    ),
    (
        Subordination(
            "because",
            Clause("wash", MAN, NounPhrase("dog", "the", False, ("white",)), time=Adverb("every day")),
            Clause("lend", SHE, NounPhrase("coat", "a"), NounPhrase("sister", "my"), "past", Date(3, "March")),
            first=True,
        ),
        "weil sie am dritten März meiner Schwester einen Mantel lieh , wäscht der Mann jeden Tag den weißen Hund .",
        "because she lent my sister a coat on the third of March , the man washes the white dog every day .",
    ),
    (
        Subordination(
            "although",
            Clause("write", WOMAN, NounPhrase("letter", "a", False, ("long",)), tense="can"),
            Clause("eat", NounPhrase("girl"), NounPhrase("cake", 2, False, ("fresh",)), tense="should", time=Clock(1, 0)),
        ),
        "die Frau kann einen langen Brief schreiben , obwohl das Mädchen um ein Uhr zwei frische Kuchen essen soll .",
        "the woman can write a long letter although the girl should eat two fresh cakes at one o'clock .",
    ),
    (
        Coordination(
            "but",
            Clause("try on", WOMAN, NounPhrase("dress", "this", False, ("old",)), time=Clock(11, 45), fronted=True),
            Clause("lose", THEY, NounPhrase("key"), tense="past", place="on the beach"),
        ),
        "um Viertel vor zwölf probiert die Frau dieses alte Kleid an , aber sie verloren am Strand den Schlüssel .",
        "at a quarter to twelve the woman tries this old dress on , but they lost the key on the beach .",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "source", "target"), SENTENCES, ids=[target for *_, target in SENTENCES])
def test_a_sentence_and_its_one_translation(tree, source, target):
    pair = grammar.translate(tree)
    assert (" ".join(pair.source), " ".join(pair.target)) == (source, target)


def test_the_alignment_of_one_sentence():
    pair = grammar.translate(SENTENCES[0][0])
    linked = {(pair.source[i], pair.target[j]) for i, j in pair.alignment}
    verbs = {(german, english) for german in ("holt", "ab") for english in ("picks", "up")}
    assert linked == verbs | {
        ("um", "at"), ("halb", "half"), ("halb", "past"), ("vier", "three"), ("sie", "she"),
        ("die", "the"), ("kleinen", "small"), ("Kinder", "children"), (".", "."),
    }  # fmt: skip


# -------------------------------------------------------------------------------------------------- the forms of words

#: Determiner, adjective and noun in the nominative, accusative and dative, as a school grammar prints them.
PARADIGM = """
der kleine Hund         den kleinen Hund        dem kleinen Hund
die kleine Katze        die kleine Katze        der kleinen Katze
das kleine Kind         das kleine Kind         dem kleinen Kind
die kleinen Kinder      die kleinen Kinder      den kleinen Kindern
dieser kleine Hund      diesen kleinen Hund     diesem kleinen Hund
diese kleine Katze      diese kleine Katze      dieser kleinen Katze
dieses kleine Kind      dieses kleine Kind      diesem kleinen Kind
diese kleinen Kinder    diese kleinen Kinder    diesen kleinen Kindern
ein kleiner Hund        einen kleinen Hund      einem kleinen Hund
eine kleine Katze       eine kleine Katze       einer kleinen Katze
ein kleines Kind        ein kleines Kind        einem kleinen Kind
mein kleiner Hund       meinen kleinen Hund     meinem kleinen Hund
meine kleine Katze      meine kleine Katze      meiner kleinen Katze
mein kleines Kind       mein kleines Kind       meinem kleinen Kind
meine kleinen Kinder    meine kleinen Kinder    meinen kleinen Kindern
unser kleiner Hund      unseren kleinen Hund    unserem kleinen Hund
unsere kleine Katze     unsere kleine Katze     unserer kleinen Katze
unser kleines Kind      unser kleines Kind      unserem kleinen Kind
unsere kleinen Kinder   unsere kleinen Kinder   unseren kleinen Kindern
zwei kleine Kinder      zwei kleine Kinder      zwei kleinen Kindern
"""


def test_case_gender_and_number_show_in_determiner_adjective_and_noun():
    phrases = [
        NounPhrase(noun, determiner, plural, ("small",))
        for determiner in ("the", "this", "a", "my", "our")
        for noun, plural in (("dog", False), ("cat", False), ("child", False), ("child", True))
        if not (determiner == "a" and plural)
    ] + [NounPhrase("child", 2, False, ("small",))]
    table = [
        [" ".join(word for word, _ in german.noun_phrase(phrase, case, "")) for case in ("nom", "acc", "dat")]
        for phrase in phrases
    ]
    assert table == [[" ".join(cell.split()) for cell in _cells(row)] for row in PARADIGM.strip().splitlines()]


def _cells(row):
    words = row.split()
    return [" ".join(words[start : start + 3]) for start in (0, 3, 6)]


def test_the_dative_plural_ends_in_n_and_no_plural_is_doubled():
    for noun, entry in NOUNS.items():
        form = german.noun_phrase(NounPhrase(noun, "the", True), "dat", "")[-1][0]
        assert form.endswith("n")
        assert form in (entry.german[1], entry.german[1] + "n")
        assert not form.endswith("nn")


def test_every_german_noun_is_written_large_and_nothing_else_but_names_days_and_uhr():
    large = set(ALL.names) | {"Uhr", "Viertel"} | {form for noun in NOUNS.values() for form in noun.german}
    large |= (
        {form + "n" for noun in NOUNS.values() for form in noun.german[1:]}
        | set(MONTHS.values())
        | set(WEEKDAYS.values())
    )
    for pair in map(grammar.translate, trees(3000)):
        places = {
            "Garten",
            "Küche",
            "Haus",
            "Wald",
            "Dorf",
            "Stadt",
            "Park",
            "Straße",
            "Markt",
            "Bahnhof",
            "See",
            "Strand",
        }
        times = {"Tag", "Woche", "Jahr", "Morgen", "Abend"}
        assert {word for word in pair.source if word[0].isupper()} <= large | places | times


@pytest.mark.parametrize(("language", "module"), [("de", german), ("en", english)])
def test_number_words_are_those_of_num2words(language, module):
    assert [module.cardinal(n) for n in range(100)] == [num2words.num2words(n, lang=language) for n in range(100)]
    assert [module.ordinal(n) for n in range(1, 100)] == [
        num2words.num2words(n, lang=language, to="ordinal") for n in range(1, 100)
    ]


@pytest.mark.parametrize(("language", "side"), [("en", 0), ("de", 1)])
def test_months_and_weekdays_are_those_of_babel(language, side):
    months, days = (
        babel.dates.get_month_names("wide", locale=language),
        babel.dates.get_day_names("wide", locale=language),
    )
    assert [entry[side] for entry in MONTHS.items()] == [months[number] for number in range(1, 13)]
    assert [entry[side] for entry in WEEKDAYS.items()] == [days[number] for number in range(7)]


def test_every_date_is_one_of_a_leap_year():
    day, days = datetime.date(2028, 1, 1), []
    while day.year == 2028:
        days.append((day.day, list(MONTHS)[day.month - 1]))
        day += datetime.timedelta(days=1)
    assert days == [(number, month) for month in MONTHS for number in range(1, DAYS_IN_MONTH[month] + 1)]


def test_both_languages_read_the_same_clock():
    """Told in words, and computed back from the words of each language by what these mean to a speaker."""
    cardinals = {language.cardinal(n): n for language in (german, english) for n in range(60)} | {"ein": 1}

    def minutes_german(words):
        words = words.removeprefix("um ").replace("Viertel", "fünfzehn").split()
        if "Uhr" in words:
            return 60 * cardinals[words[0]]
        hour = 60 * cardinals[words[-1]]
        if "halb" in words:
            hour -= 30
        return hour if words[0] == "halb" else hour + {"vor": -1, "nach": 1}[words[1]] * cardinals[words[0]]

    def minutes_english(words):
        words = words.removeprefix("at ").replace("a quarter", "fifteen").replace("half", "thirty").split()
        if "o'clock" in words:
            return 60 * cardinals[words[0]]
        return 60 * cardinals[words[-1]] + {"to": -1, "past": 1}[words[1]] * cardinals[words[0]]

    for hour in range(1, 13):
        for minute in range(0, 60, 5):
            right = (60 * hour + minute) % 720
            clock = Clock(hour, minute)
            assert minutes_german(" ".join(word for word, _ in german.clock(clock, ""))) % 720 == right
            assert minutes_english(" ".join(word for word, _ in english.clock(clock, ""))) % 720 == right


def test_an_stands_before_vowels_and_only_there():
    seen = set()
    for pair in map(grammar.translate, trees(3000)):
        for word, following in pairwise(pair.target):
            if word in ("a", "an") and following != "quarter":
                assert (word == "an") == (following[0] in "aeiou")
                seen.add(following)
    assert {"apple", "egg", "old", "hat"} <= seen


# ----------------------------------------------------------------------------------------------------------- word order


def constituents(words):
    """The parts of a clause in their order: *subject, auxiliary, time, object, verb*."""
    return [name for name, _ in groupby(slot.split(".")[0] for _, slot in words)]


def test_the_finite_verb_stands_second_first_or_last():
    seen = defaultdict(int)
    for tree in trees(4000):
        clauses = {"second": [], "last": [], "first": []}
        if isinstance(tree, Clause):
            clauses["second"] = [tree]
        elif isinstance(tree, Coordination):
            clauses["second"] = [tree.first, tree.second]
        elif isinstance(tree, Report):
            clauses["last"] = [tree.content]
        else:
            clauses["last"], clauses["first" if tree.first else "second"] = [tree.subordinate], [tree.main]
        for order, found in clauses.items():
            for clause in found:
                simple = clause.tense in ("present", "past")
                finite = "verb" if simple else "auxiliary"
                parts = constituents(german.clause(clause, order, ""))
                place = {"second": 1, "first": 0, "last": len(parts) - 1}[order]
                assert parts[place] == finite
                assert parts[0] == ("time" if clause.fronted else finite if order == "first" else "subject")
                bracket = order != "last" and (not simple or bool(VERBS[clause.verb].german.prefix))
                assert parts.count("verb") == (2 if bracket and simple else 1)
                assert parts[-1] == "verb" if bracket else True
                seen[order, simple, bracket] += 1
    assert len(seen) == 8  # last: simple, compound; first and second: simple with a prefix and without, compound
    assert min(seen.values()) > 20


@pytest.mark.parametrize("verb", [verb for verb, entry in VERBS.items() if entry.german.prefix])
def test_a_prefix_leaves_its_verb_in_main_clauses_only(verb):
    prefix, goods = (
        VERBS[verb].german.prefix,
        next(n for n, entry in NOUNS.items() if entry.kind in VERBS[verb].objects),
    )
    for tense in ("present", "past"):
        clause = Clause(verb, SHE, NounPhrase(goods), tense=tense)
        main = [word for word, _ in german.clause(clause, "second", "")]
        last = [word for word, _ in german.clause(clause, "last", "")]
        assert main[-1] == prefix
        assert last[-1] == prefix + main[1]
    for tense in ("perfect", "want"):
        words = [word for word, _ in german.clause(Clause(verb, SHE, NounPhrase(goods), tense=tense), "second", "")]
        assert words[-1].startswith(prefix)


def test_the_verb_decides_who_sie_is():
    for verb in VERBS:
        for tense in ("present", "past", "perfect", "want", "can", "must", "should", "will"):
            kind = next(iter(sorted(VERBS[verb].objects)))
            thing = NounPhrase(next(noun for noun, entry in NOUNS.items() if entry.kind == kind))
            she, they = (grammar.translate(Clause(verb, who, thing, tense=tense)) for who in (SHE, THEY))
            assert she.source[0] == they.source[0] == "sie"
            assert [a == b for a, b in zip(she.source, they.source, strict=True)].count(False) == 1
            assert (she.target[0], they.target[0]) == ("she", "they")


# ------------------------------------------------------------------------------------------- one translation, one alignment


def test_the_slots_of_both_languages_are_the_same_but_for_one_comma():
    for tree in trees(5000):
        source, target = {slot for _, slot in german.sentence(tree)}, {slot for _, slot in english.sentence(tree)}
        assert source - {"german comma"} == target


def test_words_are_linked_slot_by_slot():
    """Every English word is linked, all German ones but a comma; two words with a link in common have all in common."""
    for tree in trees(1000):
        pair = grammar.translate(tree)
        sources, targets = defaultdict(set), defaultdict(set)
        for i, j in pair.alignment:
            sources[j].add(i)
            targets[i].add(j)
        assert set(sources) == set(range(len(pair.target)))
        assert {pair.source[i] for i in range(len(pair.source)) if i not in targets} <= {","}
        assert all(targets[i] == targets[next(iter(group))] for group in sources.values() for i in group)


def conflicts(pairs):
    """Sentences with more than one translation, in each direction, and how many of the pairs came more than once."""
    there, back = defaultdict(set), defaultdict(set)
    count = 0
    for pair in pairs:
        there[pair.source].add(pair.target)
        back[pair.target].add(pair.source)
        count += 1
    several = [[(key, values) for key, values in table.items() if len(values) > 1] for table in (there, back)]
    return (*several, count - len(there))


def test_no_sentence_has_two_translations():
    source, target, _ = conflicts(islice(grammar.pairs(seed=1), 50_000))
    assert not source
    assert not target


def short_sentences(count, seed):
    sampler = Sampler(seed, SMALL)
    return (grammar.translate(sampler.clause()) for _ in range(count))


def test_no_sentence_has_two_translations_where_many_repeat():
    source, target, repeats = conflicts(short_sentences(20_000, seed=2))
    assert not source
    assert not target
    assert repeats > 1_500


@pytest.mark.long
def test_no_sentence_has_two_translations_in_half_a_million_of_few_words():
    for pairs in (short_sentences(500_000, seed=3), islice(grammar.pairs(3, SMALL), 500_000)):
        source, target, repeats = conflicts(pairs)
        assert not source
        assert not target
        assert repeats > 20_000


def test_a_tree_that_says_something_else_is_another_sentence():
    """Equal trees up to word order, and only these, so that parts without a common tree have no common sentence either."""
    said = {}
    for tree in trees(8_000, lexicon=SMALL):
        assert said.setdefault(grammar.translate(tree).source, tree) == tree


# ------------------------------------------------------------------------------------------------------------ the corpus


@pytest.fixture(scope="module")
def parts():
    return default_corpus()


def test_the_parts_have_their_sizes_and_share_nothing(parts):
    assert [len(part) for part in parts] == [29_000, 1_014, 1_000]
    everything = [pair for part in parts for pair in part]
    assert len({pair.source for pair in everything}) == len({pair.target for pair in everything}) == len(everything)


def test_german_sentences_have_4_to_34_words(parts):
    """As the stub of chapter 10 says."""
    stub = next((COURSE_ROOT / "solutions").glob("10_*.md")).read_text(encoding="utf-8")
    low, high = map(int, re.search(r"German sentences of the corpus have (\d+) to (\d+) words", stub).groups())
    lengths = [len(pair.source) for pair in parts.train]
    assert (min(lengths), max(lengths)) == (low, high)


def test_word_order_makes_no_other_meaning(monkeypatch):
    clause = Clause("see", ANNA, NounPhrase("dog"), tense="past", time=Adverb("yesterday"))
    because = Subordination("because", clause, Clause("see", SHE, NounPhrase("cat")))
    variants = [
        clause,
        replace(clause, fronted=True),
        because,
        replace(because, first=True),
        replace(clause, verb="find"),
    ]
    monkeypatch.setattr(corpus.grammar, "trees", lambda *_: iter(variants))
    drawn = corpus.Drawer().draw(3, seed=0)
    assert drawn == tuple(grammar.translate(variants[index]) for index in (0, 2, 4))


def test_a_longer_training_part_leaves_the_others_as_they_are():
    short, long = default_corpus(30, 20, 10), default_corpus(60, 20, 10)
    assert (long.test, long.validation, long.train[:30]) == (short.test, short.validation, short.train)
    assert default_corpus(30, 20, 10, seed=1).test != short.test


def test_further_pairs_say_what_the_corpus_does_not():
    """With the seed of a part, they begin where that part ends; the first trees have all been drawn."""
    known = {pair.source for part in default_corpus(300, 200, 100) for pair in part}
    further = [further_pairs(50, seed, 300, 200, 100) for seed in (corpus.SEED, corpus.SEED + 1, corpus.SEED + 2, 5)]
    assert not known & {pair.source for part in further for pair in part}
    assert len({part[0] for part in further}) == 4
    assert further[0] == default_corpus(0, 0, 150).test[100:]


def test_drawing_ends_where_there_is_nothing_left(monkeypatch):
    monkeypatch.setattr(corpus.grammar, "trees", lambda *_: cycle(tree for tree, *_ in SENTENCES))
    with pytest.raises(ValueError, match=f"hardly more than {len(SENTENCES)} sentences"):
        corpus.Drawer().draw(len(SENTENCES) + 1, seed=0)


def test_the_corpus_is_the_same_everywhere(parts):
    """Whatever was measured on it was measured on these sentences. Who changes them measures again."""
    text = "\n".join(" ".join(pair.source) + "\t" + " ".join(pair.target) for part in parts for pair in part[:100])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "3d51cc1795fe26c0"


def test_sentences_are_text_and_back():
    for pair in map(grammar.translate, trees(2000)):
        assert tokenise(detokenise(pair.source)) == pair.source
        assert tokenise(detokenise(pair.target)) == pair.target
    assert detokenise(grammar.translate(SENTENCES[9][0]).target) == (
        "the woman looks for twenty-one hats, my key and an egg."
    )


def test_a_pair_of_real_text_has_no_alignment():
    assert Pair(("a",), ("b",)).alignment == frozenset()
