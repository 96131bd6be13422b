"""``train`` and ``translate`` as one types them, on a small corpus of the course's grammar."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from tests.lab.test_distributed import torchrun
from transformer_lab import logs, translation
from transformer_lab.commands import train, translate
from transformer_lab.data import default_corpus, detokenise


def call(command, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(map(str, words))))


@pytest.fixture
def small(monkeypatch):
    """The default corpus with few sentences, and a small model."""
    corpus = default_corpus(60, 10, 10)
    monkeypatch.setattr(translation, "default_corpus", lambda: corpus)
    monkeypatch.setattr(translation, "fresh_pairs", lambda epoch: corpus.train)
    config = translation.Config(d_model=16, num_heads=2, d_ff=32, num_layers=1, batch_size=8, warmup=5, steps=12)
    monkeypatch.setattr(translation, "GRADED", config)
    return corpus


def test_a_short_run_is_reported_and_kept(small, tmp_path, capsys):
    assert call(train, "--folder", tmp_path, "--threads", 1) == 0
    out = capsys.readouterr().out
    assert "60 pairs" in out
    assert "step 12: 0.0 % of the validation sentences exact" in out
    assert "% of 10 sentences exact, BLEU" in out
    assert not list(tmp_path.glob("*.pt"))
    assert call(translate, "die Frau sieht den Hund.", "--folder", tmp_path, "--beam", 2) == 0


def test_a_stopped_run_is_gone_on_with(small, tmp_path, capsys):
    assert call(train, "--folder", tmp_path, "--minutes", 0.0001, "--threads", 1) == 0
    assert (tmp_path / "checkpoint.pt").is_file()
    assert call(train, "--folder", tmp_path) == 2
    assert "add --resume" in capsys.readouterr().err
    assert call(train, "--folder", tmp_path, "--resume") == 0
    assert not (tmp_path / "checkpoint.pt").exists()


def test_the_history_is_written_down_and_gone_on_with(small, tmp_path):
    call(train, "--folder", tmp_path, "--minutes", 0.0001, "--every", 4, "--threads", 1)
    call(train, "--folder", tmp_path, "--resume", "--every", 4)
    steps = [row["step"] for row in logs.read(tmp_path / train.HISTORY)]
    assert steps == sorted(set(steps))
    assert steps[-1] == 12


def test_real_text_is_taken_as_it_stands_and_scored_as_others_score_it(small, tmp_path, monkeypatch, capsys):
    config = replace(translation.GRADED, batch_tokens=200, shared=True, smoothing=0.1, dropout=0.1)
    monkeypatch.setattr(translation, "REAL", config)
    for part, pairs in zip(("train", "val", "test_2016_flickr"), small, strict=True):
        for language, side in (("de", "source"), ("en", "target")):
            text = "".join(f"{detokenise(getattr(pair, side))}\n" for pair in pairs)
            (tmp_path / f"{part}.{language}").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    assert call(train, "--corpus", tmp_path, "--subwords", 120, "--folder", out, "--threads", 1) == 0
    said = capsys.readouterr().out
    assert "120 and 120 tokens" in said
    assert "BLEU over words" in said
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp" in said
    one = translation.Translator.load(out)
    assert one.task.source is one.task.target
    assert one.task.words("Anna sieht ihn.") == ("Anna", "sieht", "ihn.")
    assert call(translate, "Anna sieht den Ball.", "--folder", out) == 0


@pytest.mark.long
def test_torchrun_trains_with_two_processes(tmp_path):
    words = ["-m", "transformer_lab", "train", "--steps", "6", "--every", "3", "--folder", str(tmp_path)]
    out = torchrun(*words, seconds=600)
    assert "2 processes" in out
    assert out.count("Test part:") == 1
    assert (tmp_path / translation.WEIGHTS).is_file()


def test_files_of_pairs_are_read(tmp_path, monkeypatch, small):
    lines = [f"{' '.join(p.target)}\t{' '.join(p.source)}\n" for p in default_corpus(2600, 0, 0).train]
    path = tmp_path / "pairs.txt"
    path.write_text("".join(lines), encoding="utf-8")
    task = translation.Task.read(path, subwords=120)
    assert len(task.source) == 120
    assert len(task.corpus.test) == 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--corpus", "nowhere"], "There is no corpus nowhere"),
        (["--pieces", "nowhere"], "nowhere"),
        (["--resume"], "no .*checkpoint.pt to go on from"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(small, tmp_path, capsys, words, said):
    import re

    assert call(train, "--folder", tmp_path, *words) == 2
    assert re.search(said, capsys.readouterr().err)


def test_there_must_be_a_translator(tmp_path, capsys):
    assert call(translate, "die Frau", "--folder", tmp_path) == 2
    assert "train first" in capsys.readouterr().err


def test_what_is_unknown_is_named(small, tmp_path, capsys):
    translation.Translator(translation.Task.of(small), translation.GRADED).save(tmp_path)
    assert call(translate, "der Quark lacht", "--folder", tmp_path) == 0
    assert "Not in the vocabulary: Quark, lacht." in capsys.readouterr().err
