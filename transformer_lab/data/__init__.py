"""Sentences in two languages, and what turns them into tensors.

    from transformer_lab.data import Vocabulary, batch, default_corpus

    train, validation, test = default_corpus()
    german = Vocabulary.build(pair.source for pair in train)
    english = Vocabulary.build(pair.target for pair in train)
    source_ids, target_ids = batch(train[:64], german, english)          # (64, S) and (64, T)

``default_corpus`` needs no download: a grammar makes its sentences, and knows which words translate which. ``multi30k``,
``tatoeba``, ``read_parallel`` and ``read_tsv`` read real text from files.
"""

from transformer_lab.data.batches import batch, pad
from transformer_lab.data.corpus import default_corpus, fresh_pairs, further_pairs
from transformer_lab.data.files import CorpusError, load_corpus, multi30k, read_parallel, read_tsv, split_pairs, tatoeba
from transformer_lab.data.pairs import Corpus, Pair
from transformer_lab.data.text import detokenise, tokenise
from transformer_lab.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, SubwordVocabulary, Tokens, Vocabulary

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Corpus",
    "CorpusError",
    "Pair",
    "SubwordVocabulary",
    "Tokens",
    "Vocabulary",
    "batch",
    "default_corpus",
    "detokenise",
    "fresh_pairs",
    "further_pairs",
    "load_corpus",
    "multi30k",
    "pad",
    "read_parallel",
    "read_tsv",
    "split_pairs",
    "tatoeba",
    "tokenise",
]
