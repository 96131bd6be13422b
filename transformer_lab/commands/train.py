"""Train a translator, and keep it where ``translate`` finds it."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

from transformer_lab import builtin, pieces, translation
from transformer_lab.data import CorpusError, multi30k, tatoeba
from transformer_lab.engine import CHECKPOINT, Trainer, TrainingFailed

#: Where a translator is kept unless one says otherwise.
FOLDER = Path("build/translator")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corpus",
        default="default",
        help="default (the course's own), a folder with Multi30k, or a file of Tatoeba pairs (.txt, .tsv, .gz, .zip)",
    )
    parser.add_argument(
        "--steps", type=_positive, help=f"stop after so many steps (default: {translation.GRADED.steps})"
    )
    parser.add_argument("--minutes", type=float, help="stop after so many minutes, if that is sooner")
    parser.add_argument("--pieces", default="builtin", help="builtin, solutions, notebooks, or a path of notebooks")
    parser.add_argument(
        "--subwords", type=_positive, metavar="N", help="N pieces of words for tokens, instead of words"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=_positive, help="processor threads (default: PyTorch's choice)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where to keep everything (default: {FOLDER})")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder")


def run(options: argparse.Namespace) -> int:
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        task = read_task(options.corpus, options.subwords)
        own = builtin if options.pieces == "builtin" else pieces.load(options.pieces)
    except (CorpusError, FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    checkpoint = options.folder / CHECKPOINT
    if checkpoint.exists() and not options.resume:
        print(
            f"{checkpoint} is there from another run: add --resume to go on with it, delete it, or give another --folder.",
            file=sys.stderr,
        )
        return 2
    steps: int = options.steps or translation.GRADED.steps or 2500
    config = replace(translation.GRADED, seed=options.seed, steps=steps)
    translator = translation.Translator(task, config, own)
    size = sum(p.numel() for p in translator.model.parameters())
    print(
        f"{len(task.corpus.train):,} pairs, {len(task.source)} and {len(task.target)} tokens, {size:,} parameters, "
        f"{torch.get_num_threads()} threads"
    )
    trainer = translator.trainer(options.folder)
    _tell_scores(trainer)
    if options.resume and not trainer.resume():
        print(f"There is no {checkpoint} to go on from: leave --resume out.", file=sys.stderr)
        return 2
    try:
        trainer.train(steps=steps, minutes=options.minutes)
    except TrainingFailed as error:
        print(error, file=sys.stderr)
        return 1
    translator.save(options.folder)
    if trainer.step >= steps:
        checkpoint.unlink()
    report(translator)
    print(
        f"Kept in {options.folder}; try: python -m transformer_lab translate '{' '.join(task.corpus.test[0].source)}'"
    )
    return 0


def read_task(corpus: str, subwords: int | None = None) -> translation.Task:
    """The corpus of that name or at that path, with its vocabularies.

    Raises ``CorpusError`` or ``FileNotFoundError`` with one sentence where it cannot be read.
    """
    if corpus == "default":
        return translation.Task.default(subwords=subwords)
    path = Path(corpus)
    if path.is_dir():
        found = multi30k(path)
    elif path.exists():
        found = tatoeba(path)
    else:
        raise FileNotFoundError(
            f"There is no corpus {corpus}: give default, a folder with Multi30k, or a file of pairs."
        )
    return translation.Task.of(found, min_count=2, subwords=subwords)


def _tell_scores(trainer: Trainer) -> None:
    """Let the trainer say, above its sample translations, how many validation sentences were exact."""
    measure, samples = trainer.evaluate, trainer.report
    assert measure is not None
    assert samples is not None
    scores: dict[str, float] = {}

    def evaluate(model: torch.nn.Module) -> dict[str, float]:
        scores.update(measure(model))
        return dict(scores)

    def tell(model: torch.nn.Module) -> str:
        return f"{100 * scores['exact']:.1f} % of the validation sentences exact{samples(model)}"

    trainer.evaluate, trainer.report = evaluate, tell


def report(translator: translation.Translator) -> None:
    """Say how well the test part is translated, and show what is wrong first."""
    pairs = translator.task.corpus.test
    theirs = translator.translate(*(pair.source for pair in pairs))
    right = sum(words == pair.target for words, pair in zip(theirs, pairs, strict=True))
    bleu = builtin.corpus_bleu(theirs, [pair.target for pair in pairs])
    print(f"Test part: {100 * right / len(pairs):.1f} % of {len(pairs)} sentences exact, BLEU {bleu:.1f}")
    wrong = [(pair, words) for words, pair in zip(theirs, pairs, strict=True) if words != pair.target]
    for pair, words in wrong[:3]:
        print(f"  {' '.join(pair.source)}\n  wanted: {' '.join(pair.target)}\n  got:    {' '.join(words)}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number
