"""The translator of chapter 9: how large it is, how it is trained, how it translates, and how well.

from transformer_lab import translation

translator = translation.Translator(translation.Task.default())      # PyTorch's own layers, or pieces= anybody's
translator.trainer().train(steps=translation.GRADED.steps)
translator.translate(["um", "halb", "vier", "holt", "sie", "die", "kleinen", "Kinder", "ab", "."])
"""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from transformer_lab import builtin, checkpoint, decoding, devices, distributed
from transformer_lab.data import (
    BOS,
    EOS,
    PAD,
    Corpus,
    Pair,
    SubwordVocabulary,
    Tokens,
    Vocabulary,
    default_corpus,
    detokenise,
    fresh_pairs,
    load_corpus,
    pad,
    tokenise,
)
from transformer_lab.engine import Trainer
from transformer_lab.token_batches import TokenBatches, divisible

#: Source and target ids of a batch, (B, S) and (B, T).
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Config:
    """The size of a translator and how it is trained.

    The learning rate rises to ``rate`` in ``warmup`` steps. Then it falls: to nothing at step ``steps``, along a cosine
    (Loshchilov & Hutter 2017), or, where ``steps`` is None, as 1/√step without end (the paper's section 5.3). ``smoothing``
    is that of the labels. A batch has ``batch_size`` sentences, or, where ``batch_tokens`` is given, so many tokens a side.
    With ``shared`` one table of embeddings serves source, target and output, for which both sides need one vocabulary.
    """

    d_model: int = 96
    num_heads: int = 4
    d_ff: int = 384
    num_layers: int = 2
    dropout: float = 0.0
    norm_first: bool = True
    max_len: int = 128
    batch_size: int = 64
    batch_tokens: int | None = None
    rate: float = 0.002
    warmup: int = 400
    steps: int | None = 4000
    smoothing: float = 0.0
    shared: bool = False
    seed: int = 0


#: What is handed in for points is a translator of this size, trained like this: under eight minutes on two processors.
GRADED = Config()
#: The same in under three minutes: it makes mistakes that can be looked at.
SHORT = Config(steps=1500)
#: For some ten thousand real sentences, such as Multi30k's, with 4,000 subwords: an hour on one processor or less. Small
#: batches pay there: the same tokens in three times as many steps bring a short training much further.
REAL = Config(
    d_model=128,
    num_heads=4,
    d_ff=256,
    num_layers=3,
    dropout=0.1,
    batch_tokens=800,
    rate=0.002,
    warmup=500,
    steps=14000,
    smoothing=0.1,
    shared=True,
)
#: The same for a GPU, with 6,000 subwords: 9 million parameters.
REAL_LARGE = replace(
    REAL, d_model=256, num_heads=8, d_ff=1024, num_layers=4, dropout=0.3, batch_tokens=8000, rate=0.001, steps=4000
)


@dataclass(frozen=True)
class Task:
    """What is to be translated: pairs in three parts, and a vocabulary for each side, built on the training part.

    ``fresh`` is whether every epoch has new sentences, which only a grammar can give. ``blanks`` is whether words are what
    stands between blanks, signs and all; else signs are words of their own.
    """

    corpus: Corpus
    source: Tokens
    target: Tokens
    fresh: bool = False
    blanks: bool = False

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        *,
        min_count: int = 1,
        subwords: int | None = None,
        joint: bool = False,
        fresh: bool = False,
        blanks: bool = False,
    ) -> Task:
        """A task whose tokens are the words that come ``min_count`` times in the training part, or ``subwords`` pieces.

        With ``joint`` both sides have one vocabulary, made of the sentences of both.
        """

        def vocabulary(sentences: Iterable[Sequence[str]]) -> Tokens:
            return SubwordVocabulary.train(sentences, subwords) if subwords else Vocabulary.build(sentences, min_count)

        sides = [[pair.source for pair in corpus.train], [pair.target for pair in corpus.train]]
        if joint:
            both = vocabulary(sides[0] + sides[1])
            return cls(corpus, both, both, fresh, blanks)
        source, target = map(vocabulary, sides)
        return cls(corpus, source, target, fresh, blanks)

    @classmethod
    def default(cls, *, subwords: int | None = None, fresh: bool = True) -> Task:
        """The course's own corpus, German to English."""
        return cls.of(default_corpus(), subwords=subwords, fresh=fresh)

    @classmethod
    def read(cls, corpus: str | Path, *, subwords: int | None = None, joint: bool = False) -> Task:
        """The corpus of that name or at that path, see :func:`~transformer_lab.data.load_corpus`, with its vocabularies.

        Real text that is cut into pieces of words is taken as it stands, between blanks; else signs are words of their own.

        Raises ``CorpusError`` or ``FileNotFoundError`` with one sentence where it cannot be read.
        """
        if corpus == "default":
            return cls.default(subwords=subwords)
        if not Path(corpus).exists():
            raise FileNotFoundError(
                f"There is no corpus {corpus}: give default, a folder with Multi30k, or a file of pairs."
            )
        if not subwords:
            return cls.of(load_corpus(corpus), min_count=2, joint=joint)
        return cls.of(load_corpus(corpus, str.split), subwords=subwords, joint=joint, blanks=True)

    def epoch(self, number: int) -> tuple[Pair, ...]:
        """The pairs of an epoch: the training part, and where ``fresh`` others of the same kind from the second on."""
        return fresh_pairs(number) if self.fresh and number else self.corpus.train

    def words(self, text: str) -> tuple[str, ...]:
        """The words of a text, as the corpus has them."""
        return tuple(text.split()) if self.blanks else tokenise(text)

    def text(self, words: Iterable[str]) -> str:
        """Words as the text that people read and that is scored."""
        return " ".join(words) if self.blanks else detokenise(words)


class Batches:
    """Batches of sentences of like length, drawn anew each epoch; equal seeds give equal batches.

    Sentences are shuffled, cut into pools of ``pool`` batches, sorted by length within a pool, and the batches shuffled:
    little padding, and still another mixture every time. A pair with a side of more than ``max_len`` tokens is left out.
    A batch has ``batch_size`` sentences, or with ``tokens`` as many as that budget holds (see
    :class:`~transformer_lab.token_batches.TokenBatches`). Of ``world`` processes the one numbered ``rank`` gets its share.
    """

    def __init__(
        self,
        task: Task,
        batch_size: int,
        seed: int = 0,
        pool: int = 50,
        max_len: int = 128,
        *,
        tokens: int | None = None,
        rank: int = 0,
        world: int = 1,
    ):
        self.task, self.batch_size, self.seed, self.pool, self.max_len = task, batch_size, seed, pool, max_len
        self.tokens, self.rank, self.world = tokens, rank, world
        self._kept: tuple[int, Sequence[Batch]] = (-1, [])
        self._encoded: list[tuple[list[int], list[int]]] | None = None

    def epoch(self, number: int) -> Sequence[Batch]:
        if self._kept[0] != number:
            self._kept = (number, self._draw(number))
        return self._kept[1]

    def _draw(self, number: int) -> Sequence[Batch]:
        ids = self._ids(number)
        if self.tokens is not None:
            shares = TokenBatches(ids, self.tokens, seed=self.seed, rank=self.rank, world=self.world, pool=self.pool)
            return shares.epoch(number)
        order = random.Random(f"{self.seed}/{number}")
        order.shuffle(ids)
        size = self.batch_size * self.pool
        batches = []
        for start in range(0, len(ids), size):
            alike = sorted(ids[start : start + size], key=lambda pair: (len(pair[1]), len(pair[0])))
            batches += [alike[i : i + self.batch_size] for i in range(0, len(alike), self.batch_size)]
        order.shuffle(batches)
        own = divisible(batches, self.world)[self.rank :: self.world]
        return [(pad([source for source, _ in rows]), pad([target for _, target in rows])) for rows in own]

    def _ids(self, number: int) -> list[tuple[list[int], list[int]]]:
        """The pairs of an epoch as ids; those that stay the same are encoded once."""
        if self._encoded is not None and not self.task.fresh:
            return list(self._encoded)
        source, target = self.task.source.encode, self.task.target.encode
        both = [(source(pair.source), target(pair.target)) for pair in self.task.epoch(number)]
        self._encoded = [pair for pair in both if max(map(len, pair)) <= self.max_len]
        return list(self._encoded)


#: What a saved translator consists of.
DESCRIPTION, WEIGHTS = "translator.json", "translator.safetensors"


class Translator:
    """A model between two vocabularies: built, trained, and asked for translations.

    Parameters
    ----------
    task
        What is translated.
    config
        Its size, and how it is trained.
    pieces
        The namespace that the parts of the model, its loss and its decoding are taken from; by default PyTorch's own.
    model
        Another model with the methods of ``Transformer``, such as a recurrent one; by default a new ``Transformer``.
    setting
        Device and number format, from :func:`transformer_lab.devices.choose`; by default a processor in float32.
    """

    def __init__(
        self,
        task: Task,
        config: Config = GRADED,
        pieces: Any = builtin,
        model: nn.Module | None = None,
        setting: devices.Setting = devices.PROCESSOR,
    ):
        self.task, self.config, self.pieces, self.setting = task, config, pieces, setting
        self.model: Any = (model if model is not None else build(config, task, self.pieces)).to(setting.device)
        self._foreign = model is not None
        self._decoder: Any = None

    @classmethod
    def load(
        cls, folder: str | Path, pieces: Any = builtin, setting: devices.Setting = devices.PROCESSOR
    ) -> Translator:
        """A translator that :meth:`save` has written, ready to translate.

        Raises
        ------
        FileNotFoundError
            There is none in ``folder``.
        ValueError
            What lies there is damaged, or belongs to other pieces.
        """
        description, stored = Path(folder, DESCRIPTION), Path(folder, WEIGHTS)
        for path in (description, stored):
            if not path.is_file():
                raise FileNotFoundError(f"{folder} holds no {path.name}: train first, python -m transformer_lab train.")
        try:
            content = json.loads(description.read_text(encoding="utf-8"))
            config = Config(**content["config"])
            source = _tokens(content["source"])
            target = source if config.shared else _tokens(content["target"])
            task = Task(Corpus((), (), ()), source, target, blanks=content.get("blanks", False))
            one = cls(task, config, pieces, setting=setting)
            weights = safetensors.torch.load_file(stored)
            wanted = dict(one.model.named_parameters())
            if {n: p.shape for n, p in wanted.items()} != {n: w.shape for n, w in weights.items()}:
                raise ValueError("other parameters than the pieces have")
            with torch.no_grad():
                for name, parameter in wanted.items():
                    parameter.copy_(weights[name])
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            raise ValueError(f"The translator in {folder} cannot be used ({error}); train it again.") from error
        one.model.eval()
        return one

    def save(self, folder: str | Path) -> Path:
        """Write the weights, the size and both vocabularies into ``folder``; returns it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: p.detach().cpu().contiguous() for name, p in self.model.named_parameters()}
        checkpoint.replace(folder / WEIGHTS, safetensors.torch.save(weights))
        content: dict[str, Any] = {"config": asdict(self.config), "blanks": self.task.blanks}
        content |= {side: _plain(getattr(self.task, side)) for side in ("source", "target")}
        checkpoint.replace(folder / DESCRIPTION, json.dumps(content, ensure_ascii=False).encode())
        return folder

    # ----------------------------------------------------------------------------------------------------- training

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch over its real target tokens, and how many there are, both on the model's device."""
        source, target = batch
        given, wanted = self.pieces.shift_targets(target)
        logits = model(source, given)
        mean = self.pieces.label_smoothed_cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), PAD, self.config.smoothing
        )
        return mean, (wanted != PAD).sum()

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 1, as :class:`Config` says."""
        config, noam_lr = self.config, self.pieces.noam_lr
        if config.steps is None:
            highest = noam_lr(config.warmup, config.d_model, config.warmup)
            return config.rate * noam_lr(step, config.d_model, config.warmup) / highest
        if step <= config.warmup:
            return config.rate * step / config.warmup
        done = (step - config.warmup) / max(1, config.steps - config.warmup)
        return config.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def trainer(
        self,
        folder: str | Path | None = None,
        *,
        every: int = 500,
        validate: int = 1000,
        samples: int = 2,
        score: Literal["exact", "bleu"] = "exact",
        ranks: distributed.Ranks = distributed.ALONE,
        **further: Any,
    ) -> Trainer:
        """A trainer for the model, with Adam.

        Parameters
        ----------
        folder
            Where it keeps its checkpoint; None keeps none.
        every, validate
            After so many steps it translates so many validation sentences.
        samples
            So many of these translations are shown.
        score
            By which weights are best: the share of sentences that are exact, or BLEU over words.
        ranks
            Which of several processes this is.
        further
            What else :class:`~transformer_lab.engine.Trainer` takes, such as ``parts`` and ``logs``.
        """
        held_out = self.task.corpus.validation[:validate]

        def evaluate(model: nn.Module) -> dict[str, float]:
            theirs = self.translate(*(pair.source for pair in held_out))
            found = {"exact": _share_exact(theirs, held_out)}
            if score == "bleu":
                found = {"bleu": builtin.corpus_bleu(theirs, [pair.target for pair in held_out])} | found
            return found

        def report(model: nn.Module) -> str:
            shown = held_out[:samples]
            theirs = self.translate(*(pair.source for pair in shown))
            return "".join(
                f"\n  {' '.join(pair.source)}\n  {'=' if words == pair.target else '≠'} {' '.join(words)}"
                for pair, words in zip(shown, theirs, strict=True)
            )

        config = self.config
        if ranks.world > 1:
            torch.manual_seed(ranks.seed(config.seed))  # every process drops out other units
        return Trainer(
            self.model,
            loss=self.loss,
            batches=Batches(
                self.task,
                config.batch_size,
                config.seed,
                max_len=config.max_len,
                tokens=config.batch_tokens,
                rank=ranks.rank,
                world=ranks.world,
            ),
            optimiser=devices.adam(self.model.parameters(), self.setting),
            schedule=self.rate,
            evaluate=evaluate,
            every=every,
            folder=folder,
            report=report if samples else None,
            setting=self.setting,
            ranks=ranks,
            **further,
        )

    # -------------------------------------------------------------------------------------------------- translating

    @torch.no_grad()
    def translate(
        self, *sentences: Iterable[str], beam: int = 1, length_penalty: float = 0.6, batch_size: int = 100
    ) -> list[tuple[str, ...]]:
        """The translation of each sentence, an iterable of words: greedy, or by beam search where ``beam`` is above 1.

        With PyTorch's pieces many sentences are decoded at once and with a cache of keys and values
        (:mod:`transformer_lab.decoding`); other pieces decode by their own ``greedy_decode`` and ``beam_search``.

        ValueError for a sentence that has more tokens than the model has positions.
        """
        self.model.eval()
        ids = [self.task.source.encode(words) for words in sentences]
        most = max(map(len, ids), default=0)
        if most > self.config.max_len:
            raise ValueError(
                f"A sentence has {most} tokens and the model positions for {self.config.max_len}: shorten it."
            )
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        found: dict[int, tuple[str, ...]] = {}
        search = self._search if self.pieces is builtin else self._search_by_pieces
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            source = pad([ids[index] for index in rows]).to(self.setting.device)
            decoded = search(source, beam, length_penalty)
            found |= {i: self.task.target.decode(row) for i, row in zip(rows, decoded, strict=True)}
        return [found[index] for index in range(len(ids))]

    def translate_texts(self, *texts: str, **how: Any) -> list[str]:
        """The translation of each text as text; ``how`` as in :meth:`translate`."""
        theirs = self.translate(*map(self.task.words, texts), **how)
        return [self.task.text(words) for words in theirs]

    def exact(self, pairs: Sequence[Pair]) -> float:
        """The share of ``pairs`` whose greedy translation is the right one, word for word."""
        return _share_exact(self.translate(*(pair.source for pair in pairs)), pairs)

    def _search(self, source: Tensor, beam: int, length_penalty: float) -> list[list[int]]:
        if self._decoder is None or self._decoder.model is not self.model:
            # A model that was handed in may have no keys at all: nothing to be told about.
            how = {"say": lambda text: None} if self._foreign else {}
            self._decoder = decoding.decoder_for(self.model, source, self.config.num_heads, **how)
        longest = self._longest(source)
        if beam == 1:
            return decoding.greedy_decode(self._decoder, source, BOS, EOS, PAD, longest).tolist()
        best, _ = decoding.beam_search(self._decoder, source, BOS, EOS, PAD, longest, beam, length_penalty)
        return best.tolist()

    def _search_by_pieces(self, source: Tensor, beam: int, length_penalty: float) -> list[list[int]]:
        if beam == 1:
            memory = self.model.encode(source)
            decoded = self.pieces.greedy_decode(
                lambda ids: self.model.decode(ids, memory, source), BOS, EOS, PAD, source.size(0), self._longest(source)
            )
            return decoded.tolist()
        return [self._beam_by_pieces(row[None, row != PAD], beam, length_penalty) for row in source]

    def _beam_by_pieces(self, source: Tensor, beam: int, length_penalty: float) -> list[int]:
        """One sentence (1, S), which is what a learner's ``beam_search`` is for."""
        memory = self.model.encode(source)

        def step(ids: Tensor) -> Tensor:
            rows = ids.size(0)
            return self.model.decode(ids, memory.expand(rows, -1, -1), source.expand(rows, -1))

        best, _ = self.pieces.beam_search(step, BOS, EOS, PAD, self._longest(source), beam, length_penalty)
        return torch.as_tensor(best).tolist()

    def _longest(self, source: Tensor) -> int:
        """How many tokens a translation may have: half as many again as the source and ten, as far as there are positions."""
        return min(source.size(1) + source.size(1) // 2 + 10, self.config.max_len)


def build(config: Config, task: Task, pieces: Any) -> nn.Module:
    """A new ``Transformer`` of the pieces, as large as ``config`` says, for the vocabularies of ``task``."""
    width, further = config.d_model, (config.d_model, config.dropout, config.norm_first)

    def attention() -> nn.Module:
        return pieces.MultiHeadAttention(width, config.num_heads)

    def feed_forward() -> nn.Module:
        return pieces.PositionwiseFeedForward(width, config.d_ff, config.dropout)

    def norm() -> nn.Module | None:
        return pieces.LayerNorm(width) if config.norm_first else None

    def embedding(tokens: Tokens) -> nn.Module:
        return pieces.TransformerEmbedding(len(tokens), width, config.max_len, config.dropout, PAD)

    if config.shared and task.source is not task.target:
        raise ValueError("One table of embeddings for both sides needs one vocabulary: Task.of(…, joint=True).")
    torch.manual_seed(config.seed)
    layers = range(config.num_layers)
    encoder = pieces.Encoder([pieces.EncoderLayer(attention(), feed_forward(), *further) for _ in layers], norm())
    decoder = pieces.Decoder(
        [pieces.DecoderLayer(attention(), attention(), feed_forward(), *further) for _ in layers], norm()
    )
    source_embed = embedding(task.source)
    target_embed = source_embed if config.shared else embedding(task.target)
    model = pieces.Transformer(source_embed, target_embed, encoder, decoder, PAD)
    table = model.source_embed.token.embedding.weight
    with torch.no_grad():  # as large as the target's, which the model has made to fit its output
        table.normal_(std=width**-0.5)[PAD] = 0.0
    return model


def _share_exact(theirs: Sequence[tuple[str, ...]], pairs: Sequence[Pair]) -> float:
    return sum(words == pair.target for words, pair in zip(theirs, pairs, strict=True)) / len(pairs)


def _plain(tokens: Tokens) -> dict[str, Any]:
    """A vocabulary as plain data."""
    if isinstance(tokens, SubwordVocabulary):
        return {"sentencepiece": base64.b64encode(tokens.model).decode("ascii")}
    if isinstance(tokens, Vocabulary):
        return {"words": list(tokens.words)}
    raise TypeError(f"A {type(tokens).__name__} cannot be saved.")


def _tokens(content: dict[str, Any]) -> Tokens:
    """The vocabulary that :func:`_plain` has written down."""
    if "sentencepiece" in content:
        return SubwordVocabulary(base64.b64decode(content["sentencepiece"], validate=True))
    return Vocabulary(content["words"])
