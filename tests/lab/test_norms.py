"""Norms of gradients by part of the model, and of embeddings by frequency: the numbers, the groups and the figures."""

from __future__ import annotations

import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from transformer_lab import norms, plots, results, translation
from transformer_lab.data import SubwordVocabulary, Vocabulary, default_corpus
from transformer_lab.engine import Trainer
from transformer_lab.measurements import gradients
from transformer_lab.recurrent import RecurrentTranslator

SMALL = translation.Config(d_model=16, num_heads=2, d_ff=32, num_layers=2, batch_size=8, rate=0.01, warmup=5, steps=12)


@pytest.fixture(scope="module")
def task():
    return translation.Task.of(default_corpus(60, 10, 10))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("encoder.layers.0.self_attention.w_q.weight", "encoder layer 1"),
        ("decoder.layers.11.norm3.gamma", "decoder layer 12"),
        ("decoder.norm.gamma", "decoder norm"),
        ("source_embed.token.embedding.weight", "source embedding"),
        ("embed.token.embedding.weight", "embedding"),
        ("encoder.weight_hh_l1_reverse", "encoder layer 2"),
        ("cell.bias_ih", "cell"),
        ("head.weight", "head"),
        ("layers.3.weight", "layer 4"),
        ("scale", "scale"),
    ],
)
def test_the_part_of_a_parameter(name, part):
    assert norms.part(name) == part


def test_every_parameter_belongs_to_one_part(task):
    one = translation.Translator(task, SMALL)
    parts = norms.by_part(one.model)
    stacks = [f"{side} {what}" for side in ("encoder", "decoder") for what in ("layer 1", "layer 2", "norm")]
    assert list(parts) == ["source embedding", "target embedding", *stacks]
    assert sum(map(len, parts.values())) == len(list(one.model.parameters()))
    recurrent = RecurrentTranslator(20, 20, 8, attention=True, pad_id=0)
    found = norms.by_part(recurrent)
    assert {"source embedding", "encoder layer 1", "cell", "output"} < set(found)


def test_the_norms_are_those_of_the_gradients_in_a_real_training(task):
    one = translation.Translator(task, SMALL)
    watch, by_hand = norms.GradientNorms(every=4), {}

    def observe(step, model):
        watch(step, model)
        names = [name for name, _ in model.named_parameters() if name.startswith("encoder.layers.1.")]
        squares = sum(float((model.get_parameter(name).grad.double() ** 2).sum()) for name in names)
        by_hand[step] = math.sqrt(squares)

    trainer = one.trainer(validate=2, samples=0)
    Trainer(
        one.model,
        loss=trainer.loss,
        batches=trainer.batches,
        optimiser=trainer.optimiser,
        schedule=trainer.schedule,
        observe=observe,
        say=lambda text: None,
    ).train(steps=12, progress=False)
    assert [row["step"] for row in watch.rows] == [1, 4, 8, 12]
    for row in watch.rows:
        assert set(row) == {"step", *norms.by_part(one.model)}
        assert row["encoder layer 2"] == pytest.approx(by_hand[row["step"]], rel=1e-5)
    assert watch.rows[0]["target embedding"] > 0


def test_a_part_without_gradients_counts_as_nothing_and_steps_come_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    net[1].requires_grad_(False)
    watch = norms.GradientNorms(every=1)
    for step in (1, 2, 3, 2):
        net.zero_grad()
        (step * net(torch.ones(1, 2))).sum().backward()
        watch(step, net)
    assert [row["step"] for row in watch.rows] == [1, 2]
    first, second = watch.rows
    assert second["0"] == pytest.approx(2 * first["0"])
    assert first["1"] == 0
    with pytest.raises(ValueError, match="every step or more rarely"):
        norms.GradientNorms(every=0)


def test_nothing_is_asked_of_the_model_at_other_steps_and_nothing_read_before_it_is_wanted(monkeypatch):
    watch = norms.GradientNorms(every=50)
    for step in range(2, 50):
        watch(step, None)
    net = nn.Linear(1, 1)
    net(torch.ones(1, 1)).sum().backward()
    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__"):
            patch.setattr(torch.Tensor, name, lambda *_: pytest.fail("the device is waited for"))
        watch(50, net)
    assert watch.rows == [{"step": 50, "weight": 1.0, "bias": 1.0}]


def test_the_figure_of_gradients_names_its_lines_and_reads_without_colour():
    plots.style()
    rows = [{"step": step, "a": 10.0**-step, "b": 0.5, "c": math.inf if step == 2 else 0.51} for step in (1, 2, 3)]
    axes = plots.figure()
    norms.draw_gradients(axes, rows)
    lines = axes.get_lines()
    assert [round(y, 6) for y in lines[0].get_ydata()] == [-1, -2, -3]
    assert math.isnan(lines[2].get_ydata()[1])
    assert len({line.get_linestyle() + str(line._dash_pattern) for line in lines}) == 3
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    assert set(places) == {"a", "b", "c"}
    assert places["c"] - places["b"] > 0.05, "the names stand apart"
    assert "0.01" in [label.get_text() for label in axes.get_yticklabels()]
    text = norms.describe_gradients(rows)
    assert "a from 0.1 to 0.001" in text
    assert "At the end c has the largest gradient and a the smallest" in text
    plt.close("all")


#: Five tokens come one to three times each: enough for a median.
SENTENCES = [("a", "b"), ("a", "c"), ("a",)]


def test_norms_of_embeddings_beside_frequencies():
    tokens = Vocabulary.build([("a", "b", "c", "d")])
    table = torch.arange(8.0).unsqueeze(1) * torch.tensor([[0.6, 0.8]])
    rows = norms.embedding_norms(table, tokens, SENTENCES)
    assert [(row.token, row.count) for row in rows] == [
        ("<pad>", 0),
        ("<bos>", 3),
        ("<eos>", 3),
        ("<unk>", 0),
        ("a", 3),
        ("b", 1),
        ("c", 1),
        ("d", 0),
    ]
    assert [row.norm for row in rows] == pytest.approx(list(range(8)))
    assert norms.medians(rows) == [(3.0, 4.0)]
    groups = {(1, 1, 2, 3, 3): (2.0, 2.0), (4, 5, 9, 12, 15): (9.0, 9.0), (16, 17, 18, 19): None}
    more = [norms.EmbeddingNorm("x", count, float(count)) for counts in groups for count in counts]
    assert norms.medians(more) == [median for median in groups.values() if median], "four tokens make no median"
    with pytest.raises(ValueError, match="A table of 7 rows is not that of 8 tokens"):
        norms.embedding_norms(table[1:], tokens, SENTENCES)
    plots.style()
    axes = plots.figure()
    norms.draw_embeddings(axes, rows)
    assert [text.get_text() for text in axes.texts] == ["<unk>", "<eos>", "<bos>", "<pad>"]
    assert axes.get_xticklabels()[0].get_text() == "never"
    assert "<eos> 2.00" in norms.describe_embeddings(rows)
    plt.close("all")


def test_pieces_of_words_are_shown_as_they_are():
    tokens = SubwordVocabulary.train([("abab", "ba")], 8)
    assert norms.token_texts(tokens) == tokens.pieces
    with pytest.raises(TypeError, match="SimpleNamespace cannot be shown"):
        norms.token_texts(SimpleNamespace())


def test_what_is_kept_of_the_first_steps_comes_again():
    (again,) = gradients.measure(norm_first=False, steps=1)
    for norm_first in (False, True):
        kept = gradients.rows(norm_first)
        assert (kept[0] == pytest.approx(again, rel=1e-3)) is not norm_first
        assert [row["step"] for row in kept] == [1, *range(10, 201, 10)]


def test_the_result_is_written_with_a_row_for_each_part(tmp_path, monkeypatch):
    monkeypatch.setattr(gradients, "measure", lambda norm_first: [{"step": 1, "a": 0.123449, "b": 2.0 + norm_first}])
    assert gradients.run(tmp_path).name == "gradients.json"
    found = results.load("gradients", tmp_path)
    assert [row["norms"] for row in found.select()] == [[0.1234], [3.0], [0.1234], [2.0]]
