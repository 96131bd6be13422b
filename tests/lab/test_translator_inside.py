"""What is measured inside a trained translator for the page of chapter 9."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from transformer_lab import results, translation
from transformer_lab.data import Pair, default_corpus, grammar, pad
from transformer_lab.measurements import translator_inside as inside

SMALL = translation.Config(
    d_model=32, num_heads=2, d_ff=64, num_layers=1, batch_size=16, rate=0.01, warmup=20, steps=60
)


@pytest.fixture(scope="module")
def one():
    """A small translator that has learnt a little, and two test sentences."""
    corpus = default_corpus(200, 30, 30)
    task = translation.Task.of(replace(corpus, test=corpus.test[:2]))
    found = translation.Translator(task, SMALL)
    found.trainer(every=60, validate=5, samples=0).train(steps=SMALL.steps, progress=False)
    return found


def test_the_cases_differ_in_the_word_that_decides_and_in_nothing_before_the_word_asked_for():
    found = inside.cases(12)
    assert {case.kind for case in found} == {"hour", "pronoun"}
    for case in found:
        own, other = case.pair, case.other
        assert [i for i, (a, b) in enumerate(zip(own.source, other.source, strict=True)) if a != b] == [case.deciding]
        assert own.target[: case.asked] == other.target[: case.asked]
        assert own.target[case.asked] != other.target[case.asked]
        assert own.source[case.pointed] == {"hour": "halb", "pronoun": "sie"}[case.kind]
        if case.kind == "pronoun":  # the alignment agrees with the one who looks, and the verb decides all the same
            assert (case.pointed, case.asked) in own.alignment
            assert {own.target[case.asked], other.target[case.asked]} == {"she", "they"}
    assert len({case.pair.target[case.asked] for case in found if case.kind == "hour"}) == 12


def test_a_row_of_weights_for_each_word_to_be_said(one):
    pairs = [grammar.translate(tree) for tree in inside.EXAMPLES]
    rows = inside.maps(one, pairs)
    assert [(row["sentence"], row["layer"], row["head"]) for row in rows] == [
        (0, 0, 0),
        (0, 0, 1),
        (1, 0, 0),
        (1, 0, 1),
    ]
    for row in rows:
        weights = torch.tensor(row["weights"])
        assert weights.shape == (len(row["target"]) + 1, len(row["source"]) + 2)
        assert torch.allclose(weights.sum(1), torch.ones(len(weights)), atol=0.02)


def test_what_is_exchanged_is_what_is_said_to_be(one):
    case = inside.cases(1)[0]
    source, other = (pad([one.task.source.encode(pair.source)]) for pair in (case.pair, case.other))
    with torch.no_grad():
        memory, exchanged = one.model.encode(source), one.model.encode(other)
    everything = range(source.size(1))
    assert torch.equal(inside._patched(memory, exchanged, *everything), exchanged)
    one_word = inside._patched(memory, exchanged, 3)
    assert torch.equal(one_word[:, 3], exchanged[:, 3])
    assert torch.equal(one_word[:, :3], memory[:, :3])
    given = pad([one.task.target.encode(case.pair.target)])[:, : case.asked + 1]
    (open_,), (closed,) = (
        inside._looks(one, memory, given, seen) for seen in (source, inside._closed(source, case.deciding + 1))
    )
    assert (open_[..., case.deciding + 1] > 0).all()
    assert not closed[..., case.deciding + 1].any()


def test_the_counts_are_those_of_the_cases(one):
    glances, explanation = inside.explain(one, inside.cases(3))
    assert {(row["case"], row["sentences"]) for row in glances} == {("hour", 3), ("pronoun", 3)}
    assert len(explanation) == 14
    assert all(row["sentences"] == 3 and row["own"] + row["other"] <= 3 for row in explanation)
    assert all(0 <= row["strongest_pointed"] + row["strongest_deciding"] <= 1 for row in glances)


def test_errors_are_counted_behind_the_first_wrong_word(one, monkeypatch):
    (pair,) = one.task.corpus.test[:1]
    got = (*pair.target[:1], "cat", *pair.target[2:])

    def translate(*sentences, **options):
        return [got for _ in sentences]

    monkeypatch.setattr(one, "translate", translate)
    told = torch.full((1, len(pair.target) + 1, len(one.task.target)), -9.0)
    ids = one.task.target.encode(pair.target)[1:]
    for place, token in enumerate([*ids[:1], one.task.target.encode(("cat",))[1], *ids[2:]]):
        told[0, place, token] = 9.0
    monkeypatch.setattr(one.model, "decode", lambda *_: told)
    (row,) = inside.errors(one, [pair])
    behind = len(ids) - 2
    assert (row["first"], row["after"], row["right_free"], row["right_told"]) == (1, behind, behind, behind)
    assert row["p_got"] > 0.9 > row["p_wanted"]
    assert inside.errors(one, [Pair(pair.source, got)]) == []


def test_the_files_hold_every_seed_once(one, tmp_path, monkeypatch):
    for seed in (1, 0, 1):
        inside.write(one, seed, tmp_path, sentences=2)
    names = sorted(path.stem for path in tmp_path.glob("*.json"))
    assert names == [f"translators-{name}" for name in ("beams", "errors", "explanation", "glances", "maps")]
    for name in names:
        seeds = [row["seed"] for row in results.load(name, tmp_path).select()]
        assert seeds == sorted(seeds)
        assert seeds.count(0) == seeds.count(1) > 0
    beams = results.load("translators-beams", tmp_path).select(seed=0)
    assert [row["beam"] for row in beams] == [1, inside.BEAM]
    assert beams[0]["changed"] == 0
    monkeypatch.setattr(results, "digest", lambda path: "other")  # the code has changed: what it made before is dropped
    inside.write(one, 2, tmp_path, sentences=1)
    assert {row["seed"] for row in results.load(names[0], tmp_path).select()} == {2}
