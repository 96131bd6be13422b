"""``train`` and ``translate`` as one types them, on a small corpus of the course's grammar."""

from __future__ import annotations

import argparse

import pytest

from transformer_lab import translation
from transformer_lab.commands import train, translate
from transformer_lab.data import default_corpus


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


def test_files_of_pairs_are_read(tmp_path, monkeypatch, small):
    lines = [f"{' '.join(p.target)}\t{' '.join(p.source)}\n" for p in default_corpus(2600, 0, 0).train]
    path = tmp_path / "pairs.txt"
    path.write_text("".join(lines), encoding="utf-8")
    task = train.read_task(str(path), subwords=120)
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
