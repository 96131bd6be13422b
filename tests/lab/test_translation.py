"""The translator of chapter 9: its batches, its loss, its rate, what it learns, and what is kept of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from transformer_lab import attention_maps, builtin, recurrent, translation
from transformer_lab.data import BOS, EOS, PAD, SubwordVocabulary, batch, default_corpus
from transformer_lab.data.corpus import Drawer
from transformer_lab.data.lexicon import ADJECTIVES, NOUNS, VERBS, Lexicon
from transformer_lab.measurements import translators

SMALL = translation.Config(
    d_model=32, num_heads=2, d_ff=64, num_layers=1, batch_size=16, rate=0.01, warmup=20, steps=120
)


@pytest.fixture(scope="module")
def task():
    return translation.Task.of(default_corpus(200, 30, 30))


@pytest.fixture(scope="module")
def learned(task):
    """A small translator that knows a few sentences by heart."""
    few = translation.Task(
        translation.Corpus(task.corpus.train[:8], task.corpus.train[:8], ()), task.source, task.target
    )
    one = translation.Translator(few, SMALL)
    one.trainer(every=60, samples=0).train(steps=SMALL.steps, progress=False)
    return one


# ------------------------------------------------------------------------------------------------------------ batches


def test_an_epoch_has_every_pair_once_and_another_order_each_time(task):
    batches = translation.Batches(task, 16, seed=3)

    def rows(epoch):
        return [tuple(row[row != PAD].tolist()) for source, _ in batches.epoch(epoch) for row in source]

    wanted = sorted(tuple(task.source.encode(pair.source)) for pair in task.corpus.train)
    assert sorted(rows(0)) == sorted(rows(1)) == wanted
    assert rows(0) != rows(1)
    assert rows(0) == rows(0)
    other = translation.Batches(task, 16, seed=4).epoch(0)
    assert any(not torch.equal(a, b) for (a, _), (b, _) in zip(batches.epoch(0), other, strict=True))


def test_sentences_of_a_batch_are_of_like_length(task):
    def padding(batches):
        return sum(int((target == PAD).sum()) for _, target in batches)

    sorted_ = padding(translation.Batches(task, 16).epoch(0))
    mixed = padding(translation.Batches(task, 16, pool=1).epoch(0))
    assert sorted_ < mixed / 2


def test_a_fresh_task_trains_on_new_sentences_that_nobody_is_tested_on(monkeypatch):
    monkeypatch.setattr(translation, "fresh_pairs", lambda epoch: default_corpus(50, 0, 0, seed=epoch).train)
    corpus = default_corpus(40, 5, 5)
    assert translation.Task.of(corpus).epoch(3) == corpus.train
    fresh = translation.Task.of(corpus, fresh=True)
    assert fresh.epoch(0) == corpus.train
    assert len({fresh.epoch(1), fresh.epoch(2), fresh.epoch(0)}) == 3


# --------------------------------------------------------------------------------------------------------------- loss


def test_the_loss_at_the_start_is_about_that_of_guessing(task):
    one = translation.Translator(task, SMALL)
    source, target = translation.Batches(task, 64).epoch(0)[0]
    loss, tokens = one.loss(one.model, (source, target))
    assert loss.item() == pytest.approx(math.log(len(task.target)), rel=0.2)
    assert tokens == int((target != PAD).sum()) - target.size(0), "every word and <eos>, not <bos>"


def test_the_rate_rises_and_falls_to_nothing():
    one = translation.Translator.__new__(translation.Translator)
    one.config, one.pieces = SMALL, builtin
    assert one.rate(1) == pytest.approx(0.01 / 20)
    assert one.rate(20) == pytest.approx(0.01)
    assert one.rate(70) == pytest.approx(0.005)
    assert one.rate(120) == one.rate(300) == pytest.approx(0, abs=1e-12)
    one.config = translation.Config(rate=0.01, warmup=20, steps=None)
    assert one.rate(10) == pytest.approx(0.005)
    assert one.rate(20) == pytest.approx(0.01)
    assert one.rate(80) == pytest.approx(0.005)


# -------------------------------------------------------------------------------------------------------- translating


def test_it_learns_sentences_by_heart(learned):
    assert learned.exact(learned.task.corpus.train) == 1.0


def test_it_translates_sentences_that_it_has_never_seen():
    """A real training in seconds: few words, short sentences, none of the test's among those trained on."""
    few = Lexicon(
        {noun: NOUNS[noun] for noun in ("woman", "man", "child", "ball", "letter", "door")},
        {adjective: ADJECTIVES[adjective] for adjective in ("small", "old")},
        {verb: VERBS[verb] for verb in ("see", "look for", "pick up")},
        names=("Anna",),
        pronouns=("she", "they"),
        places=("in the house",),
        numbers=(2, 20),
        hours=(3,),
    )
    pairs = [pair for pair in Drawer(few).draw(6000, seed=1) if len(pair.source) <= 8]
    unseen, known = tuple(pairs[:100]), tuple(pairs[100:])
    assert not {pair.source for pair in unseen} & {pair.source for pair in known}
    task = translation.Task.of(translation.Corpus(known, unseen, ()))
    config = replace(SMALL, batch_size=32, rate=0.008, warmup=50, steps=300)
    one = translation.Translator(task, config)
    one.trainer(every=config.steps, samples=0).train(steps=config.steps, progress=False)
    assert one.exact(unseen) > 0.5


def test_translations_come_back_in_the_order_of_the_sentences(learned):
    pairs = learned.task.corpus.train
    one_by_one = [learned.translate(pair.source)[0] for pair in pairs]
    assert learned.translate(*(pair.source for pair in pairs), batch_size=5) == one_by_one
    assert learned.translate() == []


def test_a_beam_of_two_finds_at_least_what_greedy_finds(learned):
    pairs = learned.task.corpus.train[:4]
    assert learned.translate(*(p.source for p in pairs), beam=2) == [p.target for p in pairs]


def test_unknown_words_are_no_error(learned):
    assert isinstance(learned.translate(["Quark", "und", "Quark"])[0], tuple)


def test_other_pieces_with_the_same_weights_translate_the_same(learned):
    class Slower:
        """PyTorch's layers, but attention of matrices."""

        class MultiHeadAttention(builtin.MultiHeadAttention):
            def forward(self, query, key, value, mask=None):
                weights = attention_maps.weights(self, query, key, mask, self.num_heads)
                values = builtin.split_heads(self.w_v(value), self.num_heads)
                return self.w_o(builtin.merge_heads(weights @ values))

        def __getattr__(self, name):
            return getattr(builtin, name)

    other = translation.Translator(learned.task, SMALL, Slower())
    other.model.load_state_dict(learned.model.state_dict())
    pairs = learned.task.corpus.train
    assert other.exact(pairs) == 1.0


def test_what_is_saved_translates_the_same(learned, tmp_path):
    learned.save(tmp_path)
    again = translation.Translator.load(tmp_path)
    sources = [pair.source for pair in learned.task.corpus.train]
    assert again.translate(*sources) == learned.translate(*sources)
    assert again.config == SMALL


def test_subwords_are_saved_too(task, tmp_path):
    source, target = (
        SubwordVocabulary.train((getattr(p, side) for p in task.corpus.train), 150) for side in ("source", "target")
    )
    one = translation.Translator(translation.Task(task.corpus, source, target), SMALL)
    one.save(tmp_path)
    sentence = task.corpus.test[0].source
    assert translation.Translator.load(tmp_path).translate(sentence) == one.translate(sentence)


def test_what_cannot_be_loaded_is_said_in_a_sentence(learned, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no translator\.json: train first"):
        translation.Translator.load(tmp_path)
    learned.save(tmp_path)
    (tmp_path / translation.WEIGHTS).write_bytes(b"not weights")
    with pytest.raises(ValueError, match=r"cannot be used .*train it again"):
        translation.Translator.load(tmp_path)
    learned.save(tmp_path)
    text = (tmp_path / translation.DESCRIPTION).read_text()
    (tmp_path / translation.DESCRIPTION).write_text(text.replace('"num_layers": 1', '"num_layers": 2'))
    with pytest.raises(ValueError, match="other parameters than the pieces have"):
        translation.Translator.load(tmp_path)


# ---------------------------------------------------------------------------------------------------------- recurrent


@pytest.mark.parametrize("attention", [False, True])
class TestRecurrent:
    def one(self, attention):
        torch.manual_seed(0)
        return recurrent.RecurrentTranslator(20, 23, width=12, attention=attention, pad_id=PAD).eval()

    def ids(self, *lengths, seed=0):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.full((len(lengths), max(lengths)), PAD)
        for row, length in zip(rows, lengths, strict=True):
            row[:length] = torch.randint(4, 20, (length,), generator=generator)
        return rows

    def test_padding_changes_nothing(self, attention):
        model = self.one(attention)
        source, target = self.ids(5, 3), self.ids(4, 4)
        wider = torch.nn.functional.pad(source, (0, 6), value=PAD)
        torch.testing.assert_close(model(source, target), model(wider, target))
        torch.testing.assert_close(model(source, target)[1:], model(source[1:, :3], target[1:]))

    def test_nobody_looks_ahead(self, attention):
        model = self.one(attention)
        source, target = self.ids(5, 3), self.ids(6, 6)
        other = target.clone()
        other[:, 4:] = 7
        torch.testing.assert_close(model(source, target)[:, :4], model(source, other)[:, :4])
        assert not torch.allclose(model(source, target)[:, 4], model(source, other)[:, 4])

    def test_the_source_matters_to_every_word(self, attention):
        model = self.one(attention)
        source, target = self.ids(5, 5), self.ids(4, 4)
        other = source.clone()
        other[:, 0] = (other[:, 0] + 1).clamp(4, 19)
        assert (model(source, target) - model(other, target)).abs().amax(-1).min() > 0

    def test_it_is_as_large_as_was_asked_for(self, attention):
        width = recurrent.width_for(600_000, 500, 400, attention, PAD)
        model = recurrent.RecurrentTranslator(500, 400, width, attention, PAD)
        assert sum(p.numel() for p in model.parameters()) == pytest.approx(600_000, rel=0.02)


def test_only_the_one_with_attention_looks_back_at_words():
    """Two sources that end in the same states, one of which has another word in the middle of its memory."""
    torch.manual_seed(0)
    for attention in (False, True):
        model = recurrent.RecurrentTranslator(20, 23, 12, attention, PAD).eval()
        source, target = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[BOS, 4, EOS]])
        memory = model.encode(source)
        changed = memory.clone()
        changed[:, 2] += 1
        differs = not torch.allclose(model.decode(target, memory, source), model.decode(target, changed, source))
        assert differs == attention == model.attends


# ------------------------------------------------------------------------------------------------------ attention maps


def test_recorded_weights_are_those_that_the_piece_used(task):
    one = translation.Translator(task, SMALL)
    source, target = translation.Batches(task, 8).epoch(0)[0]
    one.model.eval()
    with attention_maps.recording(one.model, SMALL.num_heads) as maps:
        one.model(source, target)
    assert sorted(maps) == [
        "decoder.layers.0.cross_attention",
        "decoder.layers.0.self_attention",
        "encoder.layers.0.self_attention",
    ]
    (cross,) = maps["decoder.layers.0.cross_attention"]
    assert cross.shape == (8, SMALL.num_heads, target.size(1), source.size(1))
    torch.testing.assert_close(cross.sum(-1), torch.ones(cross.shape[:-1]))
    assert (cross.masked_select((source == PAD)[:, None, None]) == 0).all()
    (own,) = maps["decoder.layers.0.self_attention"]
    assert (own.triu(1) == 0).all()


def test_recorded_weights_give_the_output_of_the_piece():
    torch.manual_seed(0)
    attention = builtin.MultiHeadAttention(12, 3)
    query, key = torch.randn(2, 4, 12), torch.randn(2, 5, 12)
    mask = torch.tensor([[True, True, False, True, True], [True] * 3 + [False] * 2])[:, None, None]
    weights = attention_maps.weights(attention, query, key, mask, 3)
    values = builtin.split_heads(attention.w_v(key), 3)
    torch.testing.assert_close(
        attention.w_o(builtin.merge_heads(weights @ values)), attention(query, key, key, mask), atol=1e-6, rtol=1e-5
    )


# -------------------------------------------------------------------------------------------------------- measurements


def test_the_share_of_right_source_words_is_counted_word_by_word(task, monkeypatch):
    """A model whose strongest source word is always the gold one scores 1, its heads and its mean alike."""
    one = translation.Translator(task, SMALL)
    pairs = task.corpus.test
    source, target = batch(pairs, task.source, task.target)
    gold = torch.zeros(len(pairs), SMALL.num_heads, target.size(1) - 1, source.size(1))
    for row, pair in enumerate(pairs):
        for i, j in pair.alignment:
            gold[row, :, j, i + 1] = 1.0

    class Recording:
        def __enter__(self):
            return {"decoder.layers.0.cross_attention": [gold]}

        def __exit__(self, *error):
            return None

    monkeypatch.setattr(attention_maps, "recording", lambda model, num_heads: Recording())
    rows = {row["head"]: row["share"] for row in translators.alignment(one, pairs)}
    assert rows["0"] == rows["1"] == rows["mean"] == 1.0
    assert 0.2 < rows["diagonal"] < 0.8


@pytest.mark.parametrize("kind", translators.KINDS)
def test_the_translators_are_alike_in_size(task, kind):
    one = translators.translator(kind, 0, task, SMALL)
    whole = translators.translator("transformer", 0, task, SMALL)
    sizes = [sum(p.numel() for p in t.model.parameters()) for t in (one, whole)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.06), "a step of two in the width is much of so small a model"


def test_a_measured_row_is_complete(task):
    one = translators.translator("gru", 0, task, SMALL)
    row = translators.measure(one, 4, task.corpus.test[:6], progress=False, validate=4)
    assert row["steps"] == 4
    assert row["seconds"] > 0
    assert row["tokens_per_second"] > 0
    assert 0 <= row["exact"] <= 1
    assert sum(n for *_, n in row["by_length"]) == 6
    assert len(row["reached"]) == len(translators.STATED)
