"""Measure a Transformer against recurrent translators, like for like; what is in results/ already is kept."""

from __future__ import annotations

import argparse

from transformer_lab.measurements import translators, translators_warmup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds", type=int, default=len(translators.SEEDS), help="runs of each kind (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="so many at a time, each on one processor thread (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    translators.run(seeds=range(options.seeds), jobs=max(1, options.jobs))
    translators_warmup.run()
    print(translators.table())
    return 0
