"""Words as ids and back, text as words and back, pairs as tensors."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lab.data import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Pair,
    SubwordVocabulary,
    Vocabulary,
    batch,
    default_corpus,
    detokenise,
    pad,
    tokenise,
)

SENTENCES = [pair.source for pair in default_corpus(300, 20, 10).train]
LETTERS = sorted({letter for sentence in SENTENCES for word in sentence for letter in word})
NEVER_SEEN = "żółw"


@pytest.fixture(scope="module")
def words():
    return Vocabulary.build(SENTENCES)


@pytest.fixture(scope="module")
def subwords():
    return SubwordVocabulary.train(SENTENCES, size=200)


def test_the_special_tokens_have_fixed_ids(words, subwords):
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert subwords.pieces[:4] == SPECIALS == ("<pad>", "<bos>", "<eos>", "<unk>")
    for vocabulary in (words, subwords):
        assert vocabulary.encode([]) == [1, 2]
        assert vocabulary.decode([1, 2]) == ()


# ----------------------------------------------------------------------------------------------------------------- words


def test_the_most_frequent_word_comes_first_and_equals_go_by_alphabet():
    vocabulary = Vocabulary.build([["b", "c", "a"], ["c", "b"], ["c", "d"]])
    assert vocabulary.words == ("c", "b", "a", "d")
    assert vocabulary.encode(["c", "d", "b"]) == [1, 4, 7, 5, 2]
    assert Vocabulary.build([["b", "c", "a"], ["c", "b"], ["c", "d"]], min_count=2).words == ("c", "b")
    assert len(vocabulary) == 8
    assert "c" in vocabulary
    assert "e" not in vocabulary


@given(st.lists(st.sampled_from([word for sentence in SENTENCES for word in sentence])))
def test_known_words_come_back(words):
    vocabulary = Vocabulary.build(SENTENCES)
    ids = vocabulary.encode(words)
    assert vocabulary.decode(ids) == tuple(words)
    assert len(ids) == len(words) + 2
    assert all(UNK < index < len(vocabulary) for index in ids[1:-1])


def test_order_and_repetition_of_the_sentences_decide_nothing():
    assert Vocabulary.build(reversed(SENTENCES)).words == Vocabulary.build(SENTENCES * 2).words


def test_unknown_words_are_marked(words):
    assert words.encode(["der", NEVER_SEEN])[2] == UNK
    assert words.decode(words.encode(["der", NEVER_SEEN])) == ("der", "<unk>")


@pytest.mark.parametrize("special", SPECIALS)
def test_a_text_cannot_bring_special_tokens_in(special, words, subwords):
    assert Vocabulary.build([[special, "a"]]).words == ("a",)
    assert words.encode([special]) == [BOS, UNK, EOS]
    assert not {PAD, BOS, EOS} & set(subwords.encode(["der", special])[1:-1])


@pytest.mark.parametrize("wrong", [["a", "b", "a"], ["a", ""], ["a", "<unk>"]])
def test_a_vocabulary_of_impossible_words_is_refused(wrong):
    with pytest.raises(ValueError, match="can't be a word"):
        Vocabulary(wrong)


@pytest.mark.parametrize("kind", ["words", "subwords"])
def test_decoding_stops_at_the_end_and_passes_over_padding(kind, request):
    vocabulary = request.getfixturevalue(kind)
    ids = vocabulary.encode(SENTENCES[0])
    assert vocabulary.decode([*ids, PAD, PAD]) == SENTENCES[0]
    assert vocabulary.decode([*ids, ids[1], EOS]) == SENTENCES[0]
    assert vocabulary.decode(ids[1:-1]) == SENTENCES[0]
    assert vocabulary.decode(torch.tensor(ids)) == SENTENCES[0]
    for strange in (-1, len(vocabulary)):
        with pytest.raises(IndexError, match=f"no id {strange} "):
            vocabulary.decode([BOS, strange])


def test_a_vocabulary_is_made_again_from_what_it_shows(words, subwords):
    again, pieces = Vocabulary(words.words), SubwordVocabulary(subwords.model)
    for sentence in SENTENCES[:20]:
        assert again.encode(sentence) == words.encode(sentence)
        assert pieces.encode(sentence) == subwords.encode(sentence)
    assert pickle.loads(pickle.dumps(words)).words == words.words
    assert repr(words).startswith(f"<Vocabulary of {len(words)}: <pad> <bos> <eos> <unk> .")


# -------------------------------------------------------------------------------------------------------------- subwords


@given(words=st.lists(st.text(st.sampled_from(LETTERS), min_size=1), max_size=8))
def test_any_words_of_known_letters_come_back_from_pieces(subwords, words):
    ids = subwords.encode(words)
    assert subwords.decode(ids) == tuple(words)
    assert UNK not in ids
    assert "".join(subwords.split(words)).split("▁")[1:] == words


def test_equal_sentences_give_equal_pieces(subwords):
    assert SubwordVocabulary.train(SENTENCES, size=200).model == subwords.model
    assert len(subwords) == 200


def test_letters_never_seen_are_unknown(subwords):
    ids = subwords.encode(["der", NEVER_SEEN])
    assert UNK in ids
    assert subwords.decode(ids)[0] == "der"


def test_text_is_taken_as_it_is():
    odd = ["ﬁne", "e\u0301t\u00e9", "½", "…", "Ａ", "\u00a0", "a\u00adb"]
    vocabulary = SubwordVocabulary.train([odd], size=30)
    assert vocabulary.decode(vocabulary.encode(odd)) == tuple(odd)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="No 10 pieces"):
        SubwordVocabulary.train(SENTENCES, size=10)
    with pytest.raises(ValueError, match="No 100000 pieces"):
        SubwordVocabulary.train(SENTENCES, size=100_000)
    with pytest.raises(ValueError, match="no sentences"):
        SubwordVocabulary.train([], size=100)


def test_sentencepiece_is_asked_for_only_where_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    Vocabulary.build(SENTENCES)
    with pytest.raises(ImportError, match="pip install sentencepiece"):
        SubwordVocabulary.train(SENTENCES, size=200)


# ------------------------------------------------------------------------------------------------------------------ text

TEXTS = {
    "It's twenty-five past three, Anna.": ("It's", "twenty-five", "past", "three", ",", "Anna", "."),
    "Er zahlt 3,50 Euro (und 1.000 mehr)!": ("Er", "zahlt", "3,50", "Euro", "(", "und", "1.000", "mehr", ")", "!"),
    "„Ja“, sagt sie: «Oui» ...": ("„", "Ja", "“", ",", "sagt", "sie", ":", "«", "Oui", "»", ".", ".", "."),
}


@pytest.mark.parametrize("text", TEXTS)
def test_words_and_signs_are_told_apart(text):
    assert tokenise(text) == TEXTS[text]


def test_signs_go_back_to_their_words():
    assert detokenise(tokenise("It's three, Anna (or four)!")) == "It's three, Anna (or four)!"
    assert detokenise(["Er", "sagt", ":", "«", "Oui", "»", "."]) == "Er sagt: «Oui»."
    assert detokenise(["Hello", "there."]) == "Hello there."
    assert detokenise([]) == ""


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(" .,;:!?()[]«»„“”'’-01")))
@settings(max_examples=300)
def test_the_words_of_a_text_put_together_are_the_same_words(text):
    words = tokenise(text)
    assert tokenise(detokenise(words)) == words
    assert "".join(words) == "".join(text.split())


# --------------------------------------------------------------------------------------------------------------- batches


@given(st.lists(st.lists(st.integers(4, 99)), min_size=1, max_size=5))
def test_padding_fills_up_to_the_longest_and_no_further(sequences):
    ids = pad(sequences)
    assert ids.dtype == torch.int64
    assert ids.shape == (len(sequences), max(map(len, sequences)))
    for row, sequence in zip(ids.tolist(), sequences, strict=True):
        assert row == sequence + [PAD] * (ids.shape[1] - len(sequence))


def test_a_batch_has_sources_and_targets(words):
    pairs = [Pair(("der", "Mann"), ("a", "b", "c")), Pair(("sie",), ("b",))]
    source, target = batch(pairs, words, Vocabulary(["a", "b", "c"]))
    der, mann, sie = words.encode(["der", "Mann", "sie"])[1:-1]
    assert source.tolist() == [[1, der, mann, 2], [1, sie, 2, 0]]
    assert target.tolist() == [[1, 4, 5, 6, 2], [1, 5, 2, 0, 0]]


def test_a_batch_of_pieces(subwords):
    pairs = [Pair(sentence, sentence) for sentence in SENTENCES[:7]]
    source, target = batch(pairs, subwords, subwords)
    assert torch.equal(source, target)
    assert [subwords.decode(row) for row in source] == [pair.source for pair in pairs]


def test_a_batch_of_nothing_is_refused(words):
    with pytest.raises(ValueError, match="at least one"):
        batch([], words, words)
