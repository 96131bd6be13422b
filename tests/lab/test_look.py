"""``look`` as one types it."""

from __future__ import annotations

import sys

import pytest

from transformer_lab import __main__, translation
from transformer_lab.data import default_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("translator")
    config = translation.Config(d_model=16, num_heads=2, d_ff=32, num_layers=1)
    translation.Translator(translation.Task.of(default_corpus(2000, 5, 5)), config).save(path)
    return path


def look(*words):
    return __main__.main(["look", *map(str, words)])


def test_it_writes_a_page_and_images_and_says_where(folder, tmp_path, capsys):
    out = tmp_path / "new"
    target = ("--target", "the woman sees the dog.")
    assert look("--folder", folder, "--out", out, "--image", *target, "die Frau sieht den Quark.") == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:2] == [
        "the woman sees the dog.",
        f"Wrote {out / 'attention.html'}; open it in a browser.",
    ]
    assert told.err == "Not in the vocabulary: Quark.\n"
    assert "the woman sees the dog." in (out / "attention.html").read_text(encoding="utf-8")
    images = sorted(path.name for path in out.glob("*.png"))
    assert images == [f"attention-{kind}.png" for kind in ("cross", "decoder", "encoder")]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.glob("*.png"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--folder", "nowhere", "die Frau"], "train first"),
        (["--pieces", "nowhere", "die Frau"], "nowhere"),
        ([" "], "at least one word"),
        (["die Frau " * 70], "shorten it"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(folder, tmp_path, capsys, words, said):
    given = [] if "--folder" in words else ["--folder", folder]
    assert look(*given, "--out", tmp_path, *words) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert not told.out
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_there_is_the_page_and_a_sentence(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert look("--folder", folder, "--out", tmp_path, "die Frau") == 0
    assert look("--folder", folder, "--out", tmp_path, "--image", "die Frau") == 2
    assert "pip install matplotlib" in capsys.readouterr().err
