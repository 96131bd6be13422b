"""What a trained translator looks at, what decides, what it gets wrong, and what a beam changes: for the page of chapter 9.

    python -m transformer_lab compare

measures each Transformer when it has been trained, and writes, with rows for each seed,

- ``results/translators-maps.json``: every cross-attention of two sentences, beside the gold alignment;
- ``results/translators-glances.json`` and ``results/translators-explanation.json``: for words that one source word is
  aligned with and another decides, where the heads look, and what is said when the one or the other is exchanged;
- ``results/translators-errors.json``: every test sentence that is translated wrongly, and what follows the first slip;
- ``results/translators-beams.json``: greedy decoding against a beam.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_lab import attention_maps, builtin, results, translation
from transformer_lab.data import PAD, Pair, grammar, pad
from transformer_lab.data.corpus import SEED
from transformer_lab.data.tree import Clause, Clock, NounPhrase, Pronoun, Report
from transformer_lab.measurements import translators

CODE = [*translators.CODE, __file__, attention_maps.__file__]

#: "um halb vier holt sie die kleinen Kinder ab ." and "ich glaube , dass sie unsere Schlüssel verloren haben ."
EXAMPLES = (
    Clause(
        "pick up",
        Pronoun("she"),
        NounPhrase("child", "the", plural=True, adjectives=("small",)),
        time=Clock(3, 30),
        fronted=True,
    ),
    Report(
        "believe", Pronoun("I"), Clause("lose", Pronoun("they"), NounPhrase("key", "our", plural=True), tense="perfect")
    ),
)

#: So many sentences of each kind are looked into.
SENTENCES = 200
#: The beam and the length penalty that greedy decoding is compared with.
BEAM, PENALTY = 4, 0.6


def write(one: translation.Translator, seed: int, folder: Path = results.FOLDER, sentences: int = SENTENCES) -> None:
    """Measure the trained ``one`` and put its rows into the five files, in place of those of the same seed."""
    test = one.task.corpus.test
    glances, explanation = explain(one, cases(sentences))
    for name, rows in (
        ("maps", maps(one, [grammar.translate(tree) for tree in EXAMPLES])),
        ("glances", glances),
        ("explanation", explanation),
        ("errors", errors(one, test)),
        ("beams", beams(one, test)),
    ):
        _merge(f"translators-{name}", [{"seed": seed} | row for row in rows], folder)


# ---------------------------------------------------------------------------------------------------- where it looks


@torch.no_grad()
def maps(one: translation.Translator, pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """Every head's cross-attention while the right translation is read out: a row of weights for each word to be said.

    The columns are the source's tokens, <bos> and <eos> among them; the last row says <eos>.
    """
    rows = []
    for number, pair in enumerate(pairs):
        source, target = (pad([side.encode(words)]) for side, words in _sides(one, pair))
        given, _ = one.pieces.shift_targets(target)
        for layer, weights in enumerate(_looks(one, one.model.encode(source), given, source)):
            rows += [
                {
                    "sentence": number,
                    "source": pair.source,
                    "target": pair.target,
                    "alignment": sorted(pair.alignment),
                    "layer": layer,
                    "head": head,
                    "weights": [[round(w, 3) for w in row] for row in map_.tolist()],
                }
                for head, map_ in enumerate(weights)
            ]
    return rows


def _sides(one: translation.Translator, pair: Pair) -> tuple[tuple[Any, Sequence[str]], tuple[Any, Sequence[str]]]:
    return (one.task.source, pair.source), (one.task.target, pair.target)


def _looks(one: translation.Translator, memory: Tensor, given: Tensor, source: Tensor) -> list[Tensor]:
    """The weights of each layer's cross-attention for a batch of one sentence: (H, T, S) each."""
    with attention_maps.recording(one.model, one.config.num_heads) as found:
        one.model.decode(given, memory, source)
    return [own[0][0] for name, own in found.items() if "cross_attention" in name]


# ----------------------------------------------------------------------------------------------------- what decides


@dataclass(frozen=True)
class Case:
    """A sentence and another that differs in the word ``deciding``; the gold alignment, or the eye, points elsewhere.

    Attributes
    ----------
    kind
        What is asked: "hour" or "pronoun".
    pair, other
        Both sentences with their translations, which are equal up to the target word ``asked``.
    asked
        The place of the target word in question, the first in which the two translations differ.
    pointed, deciding
        Places of two source words: the one that one would expect, and the one in which the two sentences differ.
    """

    kind: str
    pair: Pair
    other: Pair
    asked: int
    pointed: int
    deciding: int


def cases(count: int) -> list[Case]:
    """``count`` cases of each kind, made of the clauses of the test part.

    hour
        *um halb vier* and *um halb fünf*: is it "three" because of *halb*, beside which it is said, or of *vier*?
    pronoun
        *sie sieht* and *sie sehen*: is it "she" because of *sie*, which it translates, or of the verb?
    """
    found = []
    for number, clause in enumerate(itertools.islice(_clauses(), count)):
        hour, fronted = number % 12 + 1, number % 2 == 0
        now, later = (replace(clause, time=Clock(when, 30), fronted=fronted) for when in (hour, hour % 12 + 1))
        found.append(_case("hour", now, later, "halb"))
        she, they = (replace(clause, subject=Pronoun(word)) for word in ("she", "they"))
        found.append(_case("pronoun", they, she, "sie") if number % 2 else _case("pronoun", she, they, "sie"))
    return found


def _clauses() -> Iterator[Clause]:
    """The test part's sentences of one clause in which a time may stand."""
    trees = itertools.islice(grammar.trees(SEED), 1000)
    return (tree for tree in trees if isinstance(tree, Clause) and tree.tense != "perfect")


def _case(kind: str, tree: Clause, other: Clause, pointed: str) -> Case:
    one, two = grammar.translate(tree), grammar.translate(other)
    (deciding,) = [i for i, (a, b) in enumerate(zip(one.source, two.source, strict=True)) if a != b]
    asked = next(j for j, (a, b) in enumerate(zip(one.target, two.target, strict=True)) if a != b)
    return Case(kind, one, two, asked, one.source.index(pointed), deciding)


@torch.no_grad()
def explain(one: translation.Translator, those: Iterable[Case]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Where the heads look when the word in question is to be said, and what is said when something is exchanged.

    The first table has a row for each kind and layer: the mean weight, over heads and sentences, on the word that is
    pointed at and on the one that decides, and how often the one and the other is the strongest word. The second has a row
    for each kind and change: how often the sentence's own word is said, and how often the other sentence's. Changes are

    nothing
        the sentence as it is;
    the word
        the other sentence;
    the state of the deciding word, … of the pointed one, both
        the sentence, but what the encoder made of the one word is taken from the other sentence;
    the deciding word closed, the pointed word closed
        the sentence, but no cross-attention may attend to the word.
    """
    those = list(those)
    weights: dict[tuple[str, int], list[tuple[float, float, bool, bool]]] = {}
    says: dict[tuple[str, str], Counter] = {}
    for case in those:
        source, other = (pad([one.task.source.encode(pair.source)]) for pair in (case.pair, case.other))
        given = pad([one.task.target.encode(case.pair.target)])[:, : case.asked + 1]
        own, others = (one.task.target.encode(pair.target)[case.asked + 1] for pair in (case.pair, case.other))
        memory, exchanged = one.model.encode(source), one.model.encode(other)
        pointed, deciding = case.pointed + 1, case.deciding + 1  # <bos> stands before the words
        for layer, map_ in enumerate(_looks(one, memory, given, source)):
            row = map_[:, -1].mean(0)
            best = int(row[1:-1].argmax()) + 1
            weights.setdefault((case.kind, layer), []).append(
                (float(row[pointed]), float(row[deciding]), best == pointed, best == deciding)
            )
        for change, (states, seen) in {
            "nothing": (memory, source),
            "the word": (exchanged, source),
            "the state of the deciding word": (_patched(memory, exchanged, deciding), source),
            "the state of the pointed word": (_patched(memory, exchanged, pointed), source),
            "both states": (_patched(memory, exchanged, pointed, deciding), source),
            "the deciding word closed": (memory, _closed(source, deciding)),
            "the pointed word closed": (memory, _closed(source, pointed)),
        }.items():
            said = int(one.model.decode(given, states, seen)[0, -1].argmax())
            count = says.setdefault((case.kind, change), Counter())
            count["own"] += said == own
            count["other"] += said == others
            count["all"] += 1
    glances = []
    for (kind, layer), rows in weights.items():
        at_pointed, at_deciding, first, second = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        glances.append(
            {"case": kind, "layer": layer, "sentences": len(rows)}
            | {"on_pointed": round(at_pointed, 4), "on_deciding": round(at_deciding, 4)}
            | {"strongest_pointed": round(first, 4), "strongest_deciding": round(second, 4)}
        )
    explanation = [
        {"case": kind, "change": change, "sentences": n["all"], "own": n["own"], "other": n["other"]}
        for (kind, change), n in says.items()
    ]
    return glances, explanation


def _patched(memory: Tensor, other: Tensor, *places: int) -> Tensor:
    mixed = memory.clone()
    mixed[:, list(places)] = other[:, list(places)]
    return mixed


def _closed(source: Tensor, place: int) -> Tensor:
    """Source ids by which ``decode`` takes the word at ``place`` for padding, so that nobody may attend to it."""
    seen = source.clone()
    seen[:, place] = PAD
    return seen


# ------------------------------------------------------------------------------------------------------ what is wrong


@torch.no_grad()
def errors(one: translation.Translator, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """A row for each pair whose greedy translation is another one.

    ``first`` is the place of the first wrong word, ``p_got`` and ``p_wanted`` what the model gave it and the right one, and
    ``after`` counts the tokens of the right translation behind it, <eos> among them: how many there are, how many are right
    when the model goes on from its own words, place by place, and how many when it is told the true ones.
    """
    theirs = one.translate(*(pair.source for pair in pairs))
    rows = []
    for pair, words in zip(pairs, theirs, strict=True):
        if words == pair.target:
            continue
        source, target = (pad([side.encode(given)]) for side, given in _sides(one, pair))
        given, wanted = one.pieces.shift_targets(target)
        p = one.model.decode(given, one.model.encode(source), source)[0].softmax(-1)
        told = p.argmax(-1)
        free = torch.tensor(one.task.target.encode(words)[1:])
        first = int((told != wanted[0]).nonzero()[0])
        behind = range(first + 1, wanted.size(1))
        (beam,) = one.translate(pair.source, beam=BEAM, length_penalty=PENALTY)
        rows.append(
            {
                "source": pair.source,
                "wanted": pair.target,
                "got": words,
                "beam": beam,
                "first": first,
                "p_got": round(float(p[first].max()), 3),
                "p_wanted": round(float(p[first, wanted[0, first]]), 3),
                "after": len(behind),
                "right_free": sum(int(free[j] == wanted[0, j]) for j in behind if j < len(free)),
                "right_told": sum(int(told[j] == wanted[0, j]) for j in behind),
            }
        )
    return rows


def beams(one: translation.Translator, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Greedy decoding and a beam: the share that is exact, BLEU, and in how many sentences the two say different things."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    greedy = one.translate(*sources)
    rows = []
    for beam in (1, BEAM):
        theirs = greedy if beam == 1 else one.translate(*sources, beam=beam, length_penalty=PENALTY)
        rows.append(
            {
                "beam": beam,
                "length_penalty": PENALTY if beam > 1 else 0.0,
                "exact": sum(map(_same, theirs, targets)) / len(pairs),
                "bleu": round(builtin.corpus_bleu(theirs, targets), 2),
                "sentences": len(pairs),
                "changed": sum(a != b for a, b in zip(theirs, greedy, strict=True)),
            }
        )
    return rows


def _same(words: Sequence[str], others: Sequence[str]) -> bool:
    return tuple(words) == tuple(others)


# -------------------------------------------------------------------------------------------------------------- files


def _merge(name: str, rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Add ``rows`` to those of other seeds that the same code has made."""
    seeds = {row["seed"] for row in rows}
    try:
        found = results.load(name, folder)
    except FileNotFoundError:
        kept = []
    else:
        fresh = all(found.code.get(_relative(path)) == results.digest(Path(path)) for path in CODE)
        kept = [row for row in found.select() if row["seed"] not in seeds] if fresh else []
    everything = sorted([*kept, *rows], key=lambda row: row["seed"])
    if everything:
        results.save(
            name,
            everything,
            command=translators.COMMAND,
            code=CODE,
            seed=0,
            machine=results.describe_machine(),
            folder=folder,
        )


def _relative(path: str) -> str:
    return Path(path).resolve().relative_to(results.COURSE_ROOT).as_posix()
