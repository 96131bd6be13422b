"""Words as numbers and back: one id for each word, or for each piece of a word.

Both kinds of vocabulary offer the same: ``encode``, ``decode``, ``len``, and the four special tokens with their fixed ids.
Build them on the training part only: a word of the test part that training never saw has to be unknown.

    vocabulary = Vocabulary.build(pair.source for pair in corpus.train)
    ids = vocabulary.encode(["die", "Frau", "."])           # [1, …, 2]: <bos> … <eos>
    vocabulary.decode(ids)                                  # ("die", "Frau", ".")
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)


class Tokens(Protocol):
    """What both vocabularies offer."""

    def encode(self, words: Iterable[str]) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...


class Vocabulary:
    """One id for each word: the four special tokens, then ``words`` in their order.

    Parameters
    ----------
    words
        The words that have an id, without the special tokens.

    Raises
    ------
    ValueError
        A word stands there twice, is empty, or is the name of a special token.
    """

    def __init__(self, words: Iterable[str]):
        self.words = tuple(words)
        self._texts = SPECIALS + self.words
        self._ids = {text: index for index, text in enumerate(self._texts)}
        if len(self._ids) < len(self._texts) or "" in self._ids:
            wrong = next(word for word, count in Counter(self._texts).items() if count > 1 or not word)
            raise ValueError(f"{wrong!r} can't be a word of a vocabulary: it is empty or stands there already.")

    @classmethod
    def build(cls, sentences: Iterable[Iterable[str]], min_count: int = 1) -> Vocabulary:
        """The words that come at least ``min_count`` times, the most frequent first, equally frequent ones by alphabet."""
        counts = Counter(word for sentence in sentences for word in sentence)
        frequent = [word for word, count in counts.items() if count >= min_count and word not in SPECIALS]
        return cls(sorted(frequent, key=lambda word: (-counts[word], word)))

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of ``words`` between those of ``<bos>`` and ``<eos>``; a word that has none gets that of ``<unk>``.

        A word spelt like a special token is a word like others, and unknown.
        """
        known = self._ids
        return [BOS, *(UNK if (index := known.get(word, UNK)) < UNK else index for word in words), EOS]

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words up to the first ``<eos>``, without ``<bos>`` and ``<pad>``; IndexError for an id that there is not."""
        return tuple(self._texts[index] for index in _content(ids, len(self)))

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, word: str) -> bool:
        return self._ids.get(word, UNK) > UNK

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self)}: {' '.join(self._texts[:12])}{' …' if len(self) > 12 else ''}>"


class SubwordVocabulary:
    """One id for each piece of a word, found by byte-pair encoding, so that hardly anything is unknown.

    sentencepiece does the work (Kudo & Richardson 2018). A piece that begins a word begins with ``▁``. Texts are taken as
    they are, nothing is normalised; words are what stands between blanks.

    Parameters
    ----------
    model
        What :meth:`train` has made and ``.model`` holds: bytes of sentencepiece's own format.

    Raises
    ------
    ImportError
        sentencepiece is not installed.
    """

    def __init__(self, model: bytes):
        self.model = model
        self._processor = _sentencepiece().SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, sentences: Iterable[Iterable[str]], size: int) -> SubwordVocabulary:
        """Find ``size`` pieces, special tokens and all single characters included; equal sentences find equal pieces.

        Raises
        ------
        ValueError
            There are no sentences, or ``size`` is less than their characters need or more than they have pieces.
        """
        texts = [" ".join(words) for words in sentences]
        if not texts:
            raise ValueError("There is nothing to learn pieces from: no sentences.")
        model = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter(texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=size,
                character_coverage=1.0,
                normalization_rule_name="identity",
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                pad_piece=SPECIALS[PAD],
                bos_piece=SPECIALS[BOS],
                eos_piece=SPECIALS[EOS],
                unk_piece=SPECIALS[UNK],
                num_threads=1,
                max_sentence_length=1 << 20,
                minloglevel=2,
            )
        except RuntimeError as error:  # its message names the source line, and what it would have wanted
            raise ValueError(f"No {size} pieces can be made of these sentences ({error}).") from error
        return cls(model.getvalue())

    @property
    def pieces(self) -> tuple[str, ...]:
        """All pieces in the order of their ids, special tokens first."""
        return tuple(self._processor.id_to_piece(index) for index in range(len(self)))

    def split(self, words: Iterable[str]) -> list[str]:
        """The pieces of ``words``, to be looked at."""
        return self._processor.encode(" ".join(words), out_type=str)

    def encode(self, words: Iterable[str]) -> list[int]:
        """The ids of the pieces between those of ``<bos>`` and ``<eos>``; a character never seen gets that of ``<unk>``."""
        return [BOS, *self._processor.encode(" ".join(words), out_type=int), EOS]

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words up to the first ``<eos>``, without ``<bos>`` and ``<pad>``; IndexError for an id that there is not."""
        pieces = [self._processor.id_to_piece(index) for index in _content(ids, len(self))]
        return tuple(word for word in "".join(pieces).split("▁") if word)

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def __repr__(self) -> str:
        return f"<SubwordVocabulary of {len(self)}>"


def _content(ids: Iterable[int], size: int) -> list[int]:
    """What lies between ``<bos>`` and the first ``<eos>``; ``ids`` may be a tensor."""
    content: list[int] = []
    for index in map(int, ids):
        if not 0 <= index < size:
            raise IndexError(f"There is no id {index} in a vocabulary of {size}.")
        if index == EOS:
            break
        if index not in (PAD, BOS):
            content.append(index)
    return content


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError("Subwords are found by sentencepiece, which is missing: pip install sentencepiece") from error
    return sentencepiece
