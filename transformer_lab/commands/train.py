"""Train a translator, and keep it where ``translate`` finds it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from transformer_lab import builtin, devices, distributed, pieces, scores, translation
from transformer_lab.data import CorpusError
from transformer_lab.distributed import Ranks
from transformer_lab.engine import CHECKPOINT, Trainer, TrainingFailed
from transformer_lab.logs import CsvLog, TensorBoardLog

#: Where a translator is kept unless one says otherwise.
FOLDER = Path("build/translator")
#: The rows of a run's history.
HISTORY = "history.csv"


class Size(NamedTuple):
    """A configuration, and into how many pieces of words the text is cut for it; None: whole words."""

    config: translation.Config
    subwords: int | None


def sizes() -> dict[str, Size]:
    """The configurations that have names."""
    return {
        "graded": Size(translation.GRADED, None),
        "short": Size(translation.SHORT, None),
        "real": Size(translation.REAL, 4000),
        "large": Size(translation.REAL_LARGE, 6000),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--corpus",
        default="default",
        help="default (the course's own), a folder with Multi30k, or a file of Tatoeba pairs (.txt, .tsv, .gz, .zip)",
    )
    parser.add_argument(
        "--size", choices=list(sizes()), help="of the model (default: graded for the course's corpus, else real)"
    )
    parser.add_argument("--steps", type=_positive, help="stop after so many steps (default: as the size says)")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes, if that is sooner")
    parser.add_argument("--pieces", default="builtin", help="builtin, solutions, notebooks, or a path of notebooks")
    parser.add_argument(
        "--subwords", type=_positive, metavar="N", help="N pieces of words for tokens (default: as the size says)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=devices.DEVICES, help="instead of the fastest there is")
    parser.add_argument("--dtype", choices=list(devices.FORMATS), help="instead of the best for the device")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile")
    parser.add_argument(
        "--parts", type=_positive, default=1, help="compute a batch in so many parts, for less memory (default: 1)"
    )
    parser.add_argument("--threads", type=_positive, help="processor threads (default: PyTorch's choice)")
    parser.add_argument("--every", type=_positive, default=500, help="steps between two evaluations (default: 500)")
    parser.add_argument("--tensorboard", action="store_true", help="write the history for TensorBoard too")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where to keep everything (default: {FOLDER})")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the folder")


def run(options: argparse.Namespace) -> int:
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        setting = devices.choose(devices.look(), options.device, options.dtype)
        with distributed.group(setting.device) as ranks:
            return _run(options, setting, ranks)
    except (CorpusError, FileNotFoundError, ImportError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def _run(options: argparse.Namespace, setting: devices.Setting, ranks: Ranks) -> int:
    def say(text: str) -> None:
        if ranks.first:
            print(text, flush=True)

    grammar = options.corpus == "default"
    size = sizes()[options.size or ("graded" if grammar else "real")]
    task = translation.Task.read(options.corpus, subwords=options.subwords or size.subwords, joint=size.config.shared)
    own = builtin if options.pieces == "builtin" else pieces.load(options.pieces)
    checkpoint = options.folder / CHECKPOINT
    if checkpoint.exists() and not options.resume:
        raise ValueError(
            f"{checkpoint} is there from another run: add --resume to go on with it, delete it, or give another --folder."
        )
    steps: int = options.steps or size.config.steps or 2500
    config = replace(size.config, seed=options.seed, steps=steps)
    translator = translation.Translator(task, config, own, setting=setting)
    count = sum(p.numel() for p in translator.model.parameters())
    say(f"{len(task.corpus.train):,} pairs, {len(task.source)} and {len(task.target)} tokens, {count:,} parameters")
    say(setting.sentence + (f" {ranks.world} processes." if ranks.world > 1 else ""))
    logs: list[CsvLog | TensorBoardLog] = [CsvLog(options.folder / HISTORY)] if ranks.first else []
    if options.tensorboard and ranks.first:
        logs.append(TensorBoardLog(options.folder / "tensorboard"))
    trainer = translator.trainer(
        options.folder,
        every=options.every,
        score="exact" if grammar else "bleu",
        ranks=ranks,
        parts=options.parts,
        compiled=options.compile,
        logs=logs,
    )
    _tell_scores(trainer)
    if options.resume and not trainer.resume():
        raise ValueError(f"There is no {checkpoint} to go on from: leave --resume out.")
    try:
        trainer.train(steps=steps, minutes=options.minutes)
    except TrainingFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for log in logs:
            _close(log)
    if not ranks.first:
        return 0
    try:
        translator.save(options.folder)
    except OSError as error:
        again = "go on from the last checkpoint with --resume" if checkpoint.exists() else "train again"
        print(
            f"The translator could not be written to {options.folder} ({error.strerror or error}): make room there, then "
            f"{again}.",
            file=sys.stderr,
        )
        return 1
    if trainer.stopped:
        say(f"Go on with: --resume --folder {options.folder}")
        return 130
    if trainer.step >= steps:
        checkpoint.unlink(missing_ok=True)
    report(translator, real=not grammar)
    example = task.text(task.corpus.test[0].source)
    print(f"Kept in {options.folder}; try: python -m transformer_lab translate '{example}'")
    return 0


def _close(log: CsvLog | TensorBoardLog) -> None:
    try:
        log.close()
    except OSError as error:
        print(f"The last rows of the history could not be written ({error.strerror or error}).", file=sys.stderr)


def _tell_scores(trainer: Trainer) -> None:
    """Let the trainer say, above its sample translations, how good the validation sentences were."""
    measure, samples = trainer.evaluate, trainer.report
    assert measure is not None
    assert samples is not None
    found: dict[str, float] = {}

    def evaluate(model: torch.nn.Module) -> Mapping[str, float]:
        found.update(measure(model))
        return dict(found)

    def tell(model: torch.nn.Module) -> str:
        bleu = f", BLEU over words {found['bleu']:.1f}" if "bleu" in found else ""
        return f"{100 * found['exact']:.1f} % of the validation sentences exact{bleu}{samples(model)}"

    trainer.evaluate, trainer.report = evaluate, tell


def report(translator: translation.Translator, real: bool) -> None:
    """Say how well the test part is translated: of a grammar's sentences, which have one right translation each, how many
    are exact and what is wrong first; of real ones the scores that others publish."""
    pairs = translator.task.corpus.test
    theirs = translator.translate(*(pair.source for pair in pairs))
    if real:
        text = translator.task.text
        print(f"Test part, {len(pairs)} sentences, greedy:")
        try:
            print(scores.score([text(words) for words in theirs], [text(pair.target) for pair in pairs]))
        except ImportError as error:
            print(error)
        return
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
