"""The script for a GPU, run through on a processor, so that it does not fail where minutes on a GPU count."""

from __future__ import annotations

import pytest

from transformer_lab import devices, results, translation
from transformer_lab.data import default_corpus, detokenise
from transformer_lab.measurements import gpu

SMALL = translation.Config(
    d_model=16, num_heads=2, d_ff=32, num_layers=1, batch_tokens=400, dropout=0.1, smoothing=0.1, shared=True, warmup=5
)


@pytest.mark.long
def test_the_whole_script_runs_and_keeps_what_it_measures(tmp_path, monkeypatch):
    for part, pairs in zip(("train", "val", "test_2016_flickr"), default_corpus(300, 6, 6), strict=True):
        for language, side in (("de", "source"), ("en", "target")):
            text = "".join(f"{detokenise(getattr(pair, side))}\n" for pair in pairs)
            (tmp_path / f"{part}.{language}").write_text(text, encoding="utf-8")
    monkeypatch.setattr(gpu, "SUBWORDS", 150)
    said: list[str] = []
    where = tmp_path / "results"
    gpu.run(tmp_path, devices.PROCESSOR, size="quick", config=SMALL, minutes=0.05, where=where, say=said.append)
    assert said[0] == "A step of training does not wait for the device."
    (row,) = results.load(gpu.NAME, where).select()
    assert 0 <= row["bleu_greedy"] <= 100
    assert row["steps"] > 1
    assert results.load("bench-cpu", where).select(part="reference")


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(devices, "look", lambda: devices.Capabilities())
    monkeypatch.setattr("sys.argv", ["gpu"])
    assert gpu.main() == 2
    assert "no CUDA device" in capsys.readouterr().err
