"""Translate sentences with a translator that ``train`` has made."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transformer_lab.commands.train import FOLDER
from transformer_lab.data import UNK
from transformer_lab.translation import Translator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sentence", nargs="+", help="sentences, each in quotation marks")
    parser.add_argument(
        "--beam", type=int, default=1, help="how many hypotheses a beam search follows (default: 1, greedy)"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the translator is (default: {FOLDER})")


def run(options: argparse.Namespace) -> int:
    if options.beam < 1:
        print("A beam has at least one hypothesis: --beam 1.", file=sys.stderr)
        return 2
    try:
        translator = Translator.load(options.folder)
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for sentence in options.sentence:
        words = translator.task.words(sentence)
        unknown = [word for word in words if UNK in translator.task.source.encode([word])]
        if unknown:
            print(f"Not in the vocabulary: {', '.join(unknown)}.", file=sys.stderr)
        try:
            (translation,) = translator.translate(words, beam=options.beam)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        print(translator.task.text(translation))
    return 0
