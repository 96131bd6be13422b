"""Decoding with a cache says what decoding without one says, token for token, for whatever model."""

from __future__ import annotations

import math
import types

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_lab import builtin, decoding, pieces, translation
from transformer_lab.data import BOS, EOS, PAD
from transformer_lab.decoding import (
    CachedDecoder,
    CannotCache,
    KeyValueCache,
    PlainDecoder,
    attend_with_cache,
    decoder_for,
    stable_topk,
)


def model(seed=0, vocabulary=9, parts=builtin, dtype=torch.float64, **sizes):
    """A model with random weights, and vectors of tokens so short that not the last token alone decides the next one."""
    sizes = {
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 12,
        "num_layers": 2,
        "max_len": 24,
        "norm_first": True,
        "seed": seed,
    } | sizes
    task = types.SimpleNamespace(source=range(11), target=range(vocabulary))
    one = translation.build(translation.Config(**sizes), task, parts).to(dtype)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in one.named_parameters():
            noise = torch.randn(parameter.shape, generator=draw, dtype=dtype)
            parameter.copy_(0.15 * noise if "embed" in name else parameter + 0.2 * noise)
    return one.eval()


def sources(rows, length, seed=0):
    """Random sentences (rows, length), padded behind by different amounts."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 11, (rows, length), generator=draw)
    real = torch.randint(1, length + 1, (rows, 1), generator=draw)
    return ids.masked_fill(torch.arange(length) >= real, PAD)


@torch.no_grad()
def plain_greedy(one, source, max_len, eos=EOS):
    memory = one.encode(source)
    return builtin.greedy_decode(lambda ids: one.decode(ids, memory, source), BOS, eos, PAD, len(source), max_len)


@torch.no_grad()
def plain_beam(one, source, max_len, beam, penalty, eos=EOS):
    """Sentence by sentence: a list of ids, and of scores."""
    found = []
    for row in source.split(1):
        memory = one.encode(row)

        def step(ids, memory=memory, row=row):
            return one.decode(ids, memory.expand(len(ids), -1, -1), row.expand(len(ids), -1))

        found.append(builtin.beam_search(step, BOS, eos, PAD, max_len, beam, penalty))
    return [ids.tolist() for ids, _ in found], torch.tensor([score for _, score in found], dtype=torch.float64)


def some_end(one, source, seed):
    """An id at which some sentences end on the way, where the model says more than one."""
    said = plain_greedy(one, source, 20, eos=-1)[:, 1:].unique()
    said = said[said != PAD].tolist() or [EOS]
    return said[seed % len(said)]


SIZES = {
    "num_heads": st.sampled_from([1, 2, 4]),
    "num_layers": st.integers(1, 3),
    "norm_first": st.booleans(),
    "vocabulary": st.integers(4, 14),
    "seed": st.integers(0, 10_000),
}


@settings(max_examples=30)
@given(st.fixed_dictionaries(SIZES), st.integers(1, 7), st.integers(1, 9), st.integers(1, 20))
def test_greedy_with_a_cache_is_greedy_without(sizes, rows, length, max_len):
    one, source = model(**sizes), sources(rows, length, sizes["seed"])
    eos = some_end(one, source, sizes["seed"])
    wanted = plain_greedy(one, source, max_len, eos)
    for decoder in (CachedDecoder(one), PlainDecoder(one)):
        found = decoding.greedy_decode(decoder, source, BOS, eos, PAD, max_len)
        assert found.tolist() == wanted.tolist()


@settings(max_examples=15)
@given(
    st.fixed_dictionaries(SIZES), st.integers(1, 5), st.integers(1, 9), st.integers(1, 14), st.integers(1, 6),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
)  # fmt: skip
def test_a_batched_beam_is_the_beam_of_each_sentence(sizes, rows, length, max_len, beam, penalty):
    one, source = model(**sizes), sources(rows, length, sizes["seed"])
    eos = some_end(one, source, sizes["seed"])
    wanted, scores = plain_beam(one, source, max_len, beam, penalty, eos)
    for decoder in (CachedDecoder(one), PlainDecoder(one)):
        ids, found = decoding.beam_search(decoder, source, BOS, eos, PAD, max_len, beam, penalty)
        assert [row[: len(own)] for row, own in zip(ids.tolist(), wanted, strict=True)] == wanted
        assert all((row[len(own) :] == PAD).all() for row, own in zip(ids, wanted, strict=True))
        assert ids.size(1) == max(map(len, wanted))
        torch.testing.assert_close(found.double(), scores)


@settings(max_examples=20)
@given(
    st.fixed_dictionaries(SIZES),
    st.integers(1, 4),
    st.integers(1, 6),
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
)
def test_any_prefix_may_be_filled_in_at_once(sizes, rows, length, steps):
    """Prefill: several new positions in one step, at the beginning and later; padding in the middle is hidden."""
    one, source = model(**sizes), sources(rows, length, sizes["seed"])
    assume(sum(steps) <= 24)
    ids = torch.randint(0, sizes["vocabulary"], (rows, sum(steps)), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = BOS
    decoder = CachedDecoder(one)
    with torch.no_grad():
        wanted = one(source, ids)
        decoder.start(source)
        end = 0
        for step in steps:
            end += step
            torch.testing.assert_close(decoder.step(ids[:, :end]), wanted[:, end - 1])


@pytest.fixture(scope="module")
def ending():
    """A model of which some sentences end early, some late and some never, and sources for it."""
    one, source = model(seed=46, vocabulary=4), sources(24, 7, 46)
    ends = (plain_greedy(one, source, 20) == EOS).any(1)
    lengths = (plain_greedy(one, source, 20) != PAD).sum(1)
    assert int(ends.sum()) == 22
    assert len(lengths.unique()) > 3
    return one, source


def test_sentences_that_have_ended_leave_the_batch(ending):
    one, source = ending
    sizes = []

    class Watched(CachedDecoder):
        def step(self, ids):
            sizes.append(ids.size(0))
            return super().step(ids)

    found = decoding.greedy_decode(Watched(one), source, BOS, EOS, PAD, 20)
    assert found.tolist() == plain_greedy(one, source, 20).tolist()
    assert sizes[0] == 24 >= 2 * sizes[-1]
    wanted, _ = plain_beam(one, source, 20, 1, 0.6)  # a wider beam has nearly always something left to follow
    sizes.clear()
    ids, _ = decoding.beam_search(Watched(one), source, BOS, EOS, PAD, 20, 1, 0.6)
    assert [row[: len(own)] for row, own in zip(ids.tolist(), wanted, strict=True)] == wanted
    assert sizes[0] == 24 >= 2 * sizes[-1]


def test_every_position_is_computed_once(ending):
    one, source = ending
    seen = []
    hook = one.decoder.layers[0].feed_forward.register_forward_hook(
        lambda module, inputs, output: seen.append(output.size(1))
    )
    ids = decoding.greedy_decode(CachedDecoder(one), source, BOS, EOS, PAD, 20)
    hook.remove()
    assert seen == [1] * (ids.size(1) - 1)


def test_the_model_stays_as_it_is_and_its_weights_may_change(ending):
    one, source = model(seed=5), ending[1]
    decoder = CachedDecoder(one)
    names, attention = list(one.state_dict()), one.decoder.layers[0].self_attention
    first = decoding.greedy_decode(decoder, source, BOS, EOS, PAD, 12)
    assert list(one.state_dict()) == names
    assert one.decoder.layers[0].self_attention is attention
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.mul_(-0.7)
    second = decoding.greedy_decode(decoder, source, BOS, EOS, PAD, 12)
    assert second.tolist() == plain_greedy(one, source, 12).tolist() != first.tolist()


def test_a_cache_holds_what_it_was_given():
    torch.manual_seed(0)
    cache = KeyValueCache()
    keys, values = torch.randn(2, 3, 2, 50, 4)
    for start, end in ((0, 3), (3, 4), (4, 40), (40, 50)):
        got = cache.append(keys[..., start:end, :], values[..., start:end, :])
        torch.testing.assert_close(got, (keys[..., :end, :], values[..., :end, :]), rtol=0, atol=0)
    rows = torch.tensor([2, 2, 0, 1])
    cache.reorder(rows)
    more = torch.randn(2, 4, 2, 1, 4)
    got = cache.append(*more)
    torch.testing.assert_close(got[0], torch.cat([keys[rows], more[0]], 2), rtol=0, atol=0)
    torch.testing.assert_close(got[1], torch.cat([values[rows], more[1]], 2), rtol=0, atol=0)


def test_attention_with_a_cache_is_the_last_rows_of_the_whole():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 6, 4, dtype=torch.float64)
    causal = builtin.causal_mask(6)
    whole = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    cache = KeyValueCache()
    parts = [
        attend_with_cache(*(x[..., a:b, :] for x in (q, k, v)), cache, causal[a:b, :b])
        for a, b in ((0, 3), (3, 4), (4, 6))
    ]
    torch.testing.assert_close(torch.cat(parts, 2), whole)


@given(
    st.lists(st.tuples(*[st.sampled_from([-math.inf, -1.0, 0.0, 0.5])] * 8), min_size=1, max_size=4), st.integers(1, 8)
)
def test_the_best_are_those_of_a_stable_sort(rows, k):
    values = torch.tensor(rows)
    wanted, order = values.sort(dim=1, descending=True, stable=True)
    top, places = stable_topk(values, k)
    assert top.tolist() == wanted[:, :k].tolist()
    assert places.tolist() == order[:, :k].tolist()


# ------------------------------------------------------------------------------------------------- other people's pieces


@pytest.fixture(scope="module")
def written():
    """The pieces of the course's own notebooks for everything with attention, norms and layers."""
    names: dict = {}
    for chapter in ("04_multi_head", "06_norm_and_residual", "07_masking_and_decoder"):
        names |= {n: v for n, v in vars(pieces.load(f"solutions/{chapter}.md")).items() if isinstance(v, type)}
    assert "DecoderLayer" in names
    return types.SimpleNamespace(**{n: v for n, v in vars(builtin).items() if not n.startswith("_")} | names)


@pytest.mark.parametrize("norm_first", [False, True])
def test_written_pieces_are_cached_too(written, norm_first):
    one, source = model(parts=written, norm_first=norm_first), sources(6, 7)
    said: list[str] = []
    decoder = decoder_for(one, source, say=said.append)
    assert isinstance(decoder, CachedDecoder)
    assert not said
    found = decoding.greedy_decode(decoder, source, BOS, EOS, PAD, 16)
    assert found.tolist() == plain_greedy(one, source, 16).tolist()


class Unscaled(builtin.MultiHeadAttention):
    """All the names, and other numbers: scores are not divided by √K."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query * math.sqrt(self.w_q.out_features // self.num_heads), key, value, mask)


class Renamed(nn.Module):
    """An attention whose matrices have other names."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = builtin.MultiHeadAttention(d_model, num_heads)

    def forward(self, *inputs):
        return self.inner(*inputs)


class Headless(builtin.MultiHeadAttention):
    """An attention that calls its number of heads otherwise."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.h = num_heads
        del self.num_heads

    def forward(self, *inputs):
        self.num_heads = self.h
        try:
            return super().forward(*inputs)
        finally:
            del self.num_heads


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (Unscaled, r"with it the logits differ by \d"),
        (Renamed, "self_attention of a DecoderLayer has no linear w_q"),
        (Headless, "Headless has no attribute num_heads"),
    ],
)
def test_what_cannot_be_cached_is_decoded_without_and_says_why(attention, said):
    parts = types.SimpleNamespace(**vars(builtin) | {"MultiHeadAttention": attention})
    one, source = model(parts=parts), sources(5, 7)
    sentences: list[str] = []
    decoder = decoder_for(one, source, say=sentences.append)
    assert isinstance(decoder, PlainDecoder)
    with pytest.raises(CannotCache, match=said) as caught:
        CachedDecoder(one).check(source)
    assert sentences == [f"{caught.value} Every step computes the whole sentence again."]
    found = decoding.greedy_decode(decoder, source, BOS, EOS, PAD, 12)
    assert found.tolist() == plain_greedy(one, source, 12).tolist()


def test_the_number_of_heads_can_be_said():
    parts = types.SimpleNamespace(**vars(builtin) | {"MultiHeadAttention": Headless})
    one, source = model(parts=parts), sources(5, 7)
    decoder = decoder_for(one, source, num_heads=2)
    assert isinstance(decoder, CachedDecoder)
    assert decoding.greedy_decode(decoder, source, BOS, EOS, PAD, 12).tolist() == plain_greedy(one, source, 12).tolist()


def test_a_model_without_layers_to_look_into_is_decoded_without(capsys):
    one = model()
    one.decoder = nn.Identity()
    assert isinstance(decoder_for(one, sources(2, 3)), PlainDecoder)
    assert "No cache of keys and values: 'Identity' object has no attribute 'layers'" in capsys.readouterr().err


def test_the_longest_allowed_is_not_exceeded_in_single_precision():
    one, source = model(dtype=torch.float32), sources(4, 5)
    for max_len in (1, 2, 24):
        assert decoding.greedy_decode(CachedDecoder(one), source, BOS, EOS, PAD, max_len).size(1) <= max_len
        ids, scores = decoding.beam_search(CachedDecoder(one), source, BOS, EOS, PAD, max_len, 3, 0.6)
        assert ids.size(1) <= max_len
        assert scores.isneginf().all() if max_len == 1 else scores.isfinite().all()
