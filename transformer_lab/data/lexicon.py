"""The words of the small world: concepts with their forms in German and in English, side by side.

A concept is named by its English base form and stands for one thing only, so that no word has two translations. Two
words that a reader might miss are left out for that reason: *lesen*, because "they read" is present and past, and *Uhr*
as a thing, because it is a clock and a watch. German nouns and adjectives are chosen so that one table of endings serves
all: no weak nouns (*der Junge, den Jungen*), no stems that change (*teuer, teure*).

What goes together is decided here as well, by the *kind* of a noun: nobody eats a table, and dogs sell nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# -------------------------------------------------------------------------------------------------------------- nouns

PEOPLE = frozenset({"adult", "child", "role", "kin"})
ANIMALS = frozenset({"animal"})
GOODS = frozenset({"food", "clothes", "text", "letter", "opening", "vessel", "thing"})

#: The determiners that a noun of each kind may have. *Meine Frau* is my wife and not my woman, hence no "my" before adults;
#: and families are not counted.
DETERMINERS = {
    "adult": ("the", "the", "a", "a", "this", "number"),
    "child": ("the", "the", "a", "a", "this", "number"),
    "kin": ("the", "a", "my", "my", "our", "our"),
} | {kind: ("the", "the", "a", "a", "my", "our", "this", "number", "number") for kind in ("role", *ANIMALS, *GOODS)}


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun: its kind; German gender (``m``, ``f`` or ``n``), singular and plural; English singular and plural."""

    kind: str
    gender: str
    german: tuple[str, str]
    english: tuple[str, str]


def _nouns(table: str) -> dict[str, Noun]:
    gender = {"der": "m", "die": "f", "das": "n"}
    rows = (line.split() for line in table.strip().splitlines())
    return {one: Noun(kind, gender[der], (ein, zwei), (one, two)) for kind, der, ein, zwei, one, two in rows}


NOUNS = _nouns("""
    adult    der  Mann         Männer         man          men
    adult    die  Frau         Frauen         woman        women
    child    das  Mädchen      Mädchen        girl         girls
    child    das  Kind         Kinder         child        children
    role     der  Lehrer       Lehrer         teacher      teachers
    role     die  Ärztin       Ärztinnen      doctor       doctors
    role     der  Bäcker       Bäcker         baker        bakers
    role     die  Sängerin     Sängerinnen    singer       singers
    role     der  König        Könige         king         kings
    role     die  Königin      Königinnen     queen        queens
    role     der  Gast         Gäste          guest        guests
    role     der  Freund       Freunde        friend       friends
    role     die  Nachbarin    Nachbarinnen   neighbour    neighbours
    kin      der  Sohn         Söhne          son          sons
    kin      die  Tochter      Töchter        daughter     daughters
    kin      der  Bruder       Brüder         brother      brothers
    kin      die  Schwester    Schwestern     sister       sisters
    animal   der  Hund         Hunde          dog          dogs
    animal   die  Katze        Katzen         cat          cats
    animal   das  Pferd        Pferde         horse        horses
    animal   der  Vogel        Vögel          bird         birds
    food     der  Apfel        Äpfel          apple        apples
    food     die  Birne        Birnen         pear         pears
    food     das  Ei           Eier           egg          eggs
    food     der  Kuchen       Kuchen         cake         cakes
    clothes  der  Hut          Hüte           hat          hats
    clothes  die  Jacke        Jacken         jacket       jackets
    clothes  das  Hemd         Hemden         shirt        shirts
    clothes  der  Mantel       Mäntel         coat         coats
    clothes  das  Kleid        Kleider        dress        dresses
    letter   der  Brief        Briefe         letter       letters
    text     die  Postkarte    Postkarten     postcard     postcards
    text     das  Buch         Bücher         book         books
    opening  die  Tür          Türen          door         doors
    opening  das  Fenster      Fenster        window       windows
    vessel   der  Koffer       Koffer         suitcase     suitcases
    vessel   die  Flasche      Flaschen       bottle       bottles
    thing    der  Tisch        Tische         table        tables
    thing    der  Stuhl        Stühle         chair        chairs
    thing    die  Lampe        Lampen         lamp         lamps
    thing    der  Ball         Bälle          ball         balls
    thing    die  Blume        Blumen         flower       flowers
    thing    der  Schlüssel    Schlüssel      key          keys
    thing    das  Bild         Bilder         picture      pictures
    thing    das  Fahrrad      Fahrräder      bicycle      bicycles
    thing    die  Tasse        Tassen         cup          cups
    thing    das  Glas         Gläser         glass        glasses
    thing    das  Messer       Messer         knife        knives
""")

#: The same in both languages, and the only persons without a determiner.
NAMES = ("Anna", "Paul", "Maria", "Peter", "Clara", "Max")

# --------------------------------------------------------------------------------------------------------- adjectives


@dataclass(frozen=True, slots=True)
class Adjective:
    """An adjective: German stem, to which the ending is added; its place among others; the kinds of noun it goes with.

    Of two adjectives the one with the lower ``rank`` stands first, in both languages, and no two of one rank stand
    together: an apple that is small and big, or red and green, is not in this world.
    """

    german: str
    rank: int
    kinds: frozenset[str]


def _adjectives(table: str) -> dict[str, Adjective]:
    found = {}
    for line in table.strip().splitlines():
        rank, german, english, *kinds = line.split()
        named: set[str] = set()
        for kind in kinds:
            named |= {"people": PEOPLE, "goods": GOODS}.get(kind, {kind})
        found[english] = Adjective(german, int(rank), frozenset(named))
    return found


# "Groß" is tall of people and big of all else: the noun decides. *Mein großer Bruder* is an older one, so kin have no size.
ADJECTIVES = _adjectives("""
    1  freundlich  friendly   people
    1  berühmt     famous     adult role
    1  müd         tired      people animal
    1  hungrig     hungry     people animal
    1  schön       beautiful  animal clothes text letter opening vessel thing
    1  billig      cheap      food clothes text vessel thing
    1  frisch      fresh      food
    2  klein       small      adult child role animal goods
    2  groß        tall       adult child role
    2  groß        big        animal goods
    2  schwer      heavy      opening vessel
    2  lang        long       letter
    2  kurz        short      letter
    3  alt         old        adult role animal clothes text letter opening vessel thing
    3  jung        young      people animal
    3  neu         new        clothes text opening vessel thing
    4  rot         red        clothes opening vessel thing
    4  blau        blue       clothes opening vessel thing
    4  grün        green      clothes opening vessel thing
    4  gelb        yellow     clothes opening vessel thing
    4  schwarz     black      animal clothes opening vessel thing
    4  weiß        white      animal clothes opening vessel thing
""")

# -------------------------------------------------------------------------------------------------------------- verbs


@dataclass(frozen=True, slots=True)
class GermanVerb:
    """Forms without the prefix, which leaves the verb in main clauses; the participle is whole. *Er* and *sie* alike."""

    prefix: str
    infinitive: str
    er: str
    preterite: str
    participle: str

    @property
    def ich(self) -> str:
        return self.infinitive[:-1]

    @property
    def preterite_plural(self) -> str:
        return self.preterite + ("n" if self.preterite.endswith("e") else "en")


@dataclass(frozen=True, slots=True)
class EnglishVerb:
    """Forms, and what follows: a particle, which may stand behind the object, or a preposition, which may not."""

    base: str
    he: str
    past: str
    participle: str
    particle: str = ""
    preposition: str = ""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its forms, and what it takes.

    Attributes
    ----------
    objects
        The kinds of noun that its object may be.
    dative
        Its German object stands in the dative: *sie hilft dem Mann*.
    recipient
        It takes someone who receives: *sie gibt dem Mann den Ball*.
    animals
        Animals do it as well as people.
    willed
        One does it on purpose, so that one may want, have or be told to. Nobody wants to lose a key.
    """

    german: GermanVerb
    english: EnglishVerb
    objects: frozenset[str]
    dative: bool = False
    recipient: bool = False
    animals: bool = False
    willed: bool = True


def _verb(german: str, english: str, objects: Iterable[str], preposition: str = "", **more: bool) -> tuple[str, Verb]:
    first, *forms = german.split()
    prefix, bar, infinitive = first.partition("|")
    if not bar:
        prefix, infinitive = "", first
    base, he, past, participle, particle = [*english.split(), ""][:5]
    right = EnglishVerb(base, he, past, participle, particle, preposition)
    concept = f"{base} {particle}{preposition}".strip()
    return concept, Verb(GermanVerb(prefix, infinitive, *forms), right, frozenset(objects), **more)


ANYTHING = PEOPLE | ANIMALS | GOODS
WARES = GOODS - {"letter"}
PORTABLE = GOODS - {"opening"}

VERBS = dict(
    [
        _verb("kaufen kauft kaufte gekauft", "buy buys bought bought", WARES | ANIMALS),
        _verb("verkaufen verkauft verkaufte verkauft", "sell sells sold sold", WARES | ANIMALS),
        _verb("sehen sieht sah gesehen", "see sees saw seen", ANYTHING, animals=True),
        _verb("suchen sucht suchte gesucht", "look looks looked looked", ANYTHING, preposition="for", animals=True),
        _verb("finden findet fand gefunden", "find finds found found", ANYTHING, animals=True),
        _verb("malen malt malte gemalt", "paint paints painted painted", PEOPLE | ANIMALS | {"food", "thing"}),
        _verb("tragen trägt trug getragen", "carry carries carried carried", PORTABLE - {"clothes"}),
        _verb("waschen wäscht wusch gewaschen", "wash washes washed washed", ANIMALS | {"clothes"}),
        _verb("essen isst aß gegessen", "eat eats ate eaten", {"food"}),
        _verb("schreiben schreibt schrieb geschrieben", "write writes wrote written", {"text", "letter"}),
        _verb("brauchen braucht brauchte gebraucht", "need needs needed needed", WARES | ANIMALS, willed=False),
        _verb("verlieren verliert verlor verloren", "lose loses lost lost", PORTABLE - {"food"}, willed=False),
        _verb("vergessen vergisst vergaß vergessen", "forget forgets forgot forgotten", PORTABLE, willed=False),
        # The prefix leaves the verb and may decide what it means: *macht … auf* opens, *macht … zu* closes.
        _verb("ab|holen holt holte abgeholt", "pick picks picked picked up", PEOPLE | {"thing", "letter"}),
        _verb("an|rufen ruft rief angerufen", "call calls called called", PEOPLE),
        _verb("ein|laden lädt lud eingeladen", "invite invites invited invited", PEOPLE),
        _verb("mit|bringen bringt brachte mitgebracht", "bring brings brought brought along", PORTABLE),
        _verb("weg|werfen wirft warf weggeworfen", "throw throws threw thrown away", PORTABLE),
        _verb("hoch|heben hebt hob hochgehoben", "lift lifts lifted lifted up", {"vessel", "thing"}),
        _verb("an|probieren probiert probierte anprobiert", "try tries tried tried on", {"clothes"}),
        _verb("auf|machen macht machte aufgemacht", "open opens opened opened", {"opening", "vessel", "letter"}),
        _verb("zu|machen macht machte zugemacht", "close closes closed closed", {"opening", "vessel"}),
        # The object stands in the dative.
        _verb("helfen hilft half geholfen", "help helps helped helped", PEOPLE, dative=True),
        _verb("danken dankt dankte gedankt", "thank thanks thanked thanked", PEOPLE, dative=True),
        # Someone receives it.
        _verb("geben gibt gab gegeben", "give gives gave given", PORTABLE, recipient=True),
        _verb("zeigen zeigt zeigte gezeigt", "show shows showed shown", GOODS | ANIMALS, recipient=True),
        _verb("schicken schickt schickte geschickt", "send sends sent sent", PORTABLE, recipient=True),
        _verb("leihen leiht lieh geliehen", "lend lends lent lent", {"clothes", "text", "thing"}, recipient=True),
        _verb("bringen bringt brachte gebracht", "bring brings brought brought", PORTABLE, recipient=True),
    ]
)

#: Modal verbs and the future: German singular and plural; English of *he* and of *they*.
MODALS = {
    "want": ("will", "wollen", "wants to", "want to"),
    "can": ("kann", "können", "can", "can"),
    "must": ("muss", "müssen", "must", "must"),
    "should": ("soll", "sollen", "should", "should"),
    "will": ("wird", "werden", "will", "will"),
}

#: Verbs that a *dass* clause follows: German of *ich*, *er* and *wir*; English of *he* and of *they*.
REPORTING = {
    "say": ("sage", "sagt", "sagen", "says", "say"),
    "believe": ("glaube", "glaubt", "glauben", "believes", "believe"),
    "know": ("weiß", "weiß", "wissen", "knows", "know"),
    "hope": ("hoffe", "hofft", "hoffen", "hopes", "hope"),
}

#: Subjects only. *Sie* is she and they: the verb decides.
PRONOUNS = {"I": "ich", "we": "wir", "he": "er", "she": "sie", "they": "sie"}

#: Between main clauses, and before clauses whose verb stands last.
COORDINATING = {"and": "und", "but": "aber"}
SUBORDINATING = {"because": "weil", "although": "obwohl"}

# ---------------------------------------------------------------------------------------------------- times and places


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that always go together, in groups that translate each other: *im* is *in the*, *jeden* is *every*."""

    german: tuple[tuple[str, ...], ...]
    english: tuple[tuple[str, ...], ...]


def _phrases(table: str) -> dict[str, Phrase]:
    found = {}
    for line in table.strip().splitlines():
        german, english = (
            tuple(tuple(group.split()) for group in side.split("|")) for side in re.split("   +", line.strip())
        )
        found[" ".join(word for group in english for word in group)] = Phrase(german, english)
    return found


#: Where. *Im* and *am* hold the article, *in der* and *auf dem* show it.
PLACES = _phrases("""
    im|Garten          in the|garden
    in|der|Küche       in|the|kitchen
    im|Haus            in the|house
    im|Wald            in the|forest
    im|Dorf            in the|village
    in|der|Stadt       in|the|town
    im|Park            in the|park
    auf|der|Straße     in|the|street
    auf|dem|Markt      at|the|market
    am|Bahnhof         at the|station
    am|See             by the|lake
    am|Strand          on the|beach
""")

#: When, in words, by the tense that allows it. A perfect goes with few of them in English.
ADVERBS = {
    "present": _phrases("""
        heute              today
        jeden|Tag          every|day
        jeden|Morgen       every|morning
        jeden|Abend        every|evening
        jede|Woche         every|week
        immer wieder       again and again
    """),
    "past": _phrases("""
        gestern            yesterday
        vorgestern         the day before yesterday
        letzte|Woche       last|week
        letztes|Jahr       last|year
    """),
    "perfect": _phrases("""
        heute              today
        schon oft          many times
    """),
    "future": _phrases("""
        morgen             tomorrow
        übermorgen         the day after tomorrow
        bald               soon
        nächste|Woche      next|week
        nächstes|Jahr      next|year
    """),
}

MONTHS = {
    "January": "Januar",
    "February": "Februar",
    "March": "März",
    "April": "April",
    "May": "Mai",
    "June": "Juni",
    "July": "Juli",
    "August": "August",
    "September": "September",
    "October": "Oktober",
    "November": "November",
    "December": "Dezember",
}
DAYS_IN_MONTH = dict(zip(MONTHS, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))

WEEKDAYS = {
    "Monday": "Montag",
    "Tuesday": "Dienstag",
    "Wednesday": "Mittwoch",
    "Thursday": "Donnerstag",
    "Friday": "Freitag",
    "Saturday": "Samstag",
    "Sunday": "Sonntag",
}


@dataclass(frozen=True)
class Lexicon:
    """The part of the words from which sentences are drawn: all of them by default, a few of them in tests."""

    nouns: Mapping[str, Noun]
    adjectives: Mapping[str, Adjective]
    verbs: Mapping[str, Verb]
    names: tuple[str, ...] = NAMES
    pronouns: tuple[str, ...] = tuple(PRONOUNS)
    places: tuple[str, ...] = tuple(PLACES)
    months: tuple[str, ...] = tuple(MONTHS)
    weekdays: tuple[str, ...] = tuple(WEEKDAYS)
    numbers: tuple[int, ...] = tuple(range(2, 100))
    hours: tuple[int, ...] = tuple(range(1, 13))


ALL = Lexicon(NOUNS, ADJECTIVES, VERBS)
