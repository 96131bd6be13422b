"""``python -m transformer_lab``: train and measure from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from transformer_lab.commands import bench, classify, compare, look, train, translate


def parser() -> argparse.ArgumentParser:
    """All commands with their options; what is parsed has ``run``."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_lab", description="Train and measure from the command line."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in (
        ("classify", classify),
        ("train", train),
        ("translate", translate),
        ("look", look),
        ("compare", compare),
        ("bench", bench),
    ):
        text = (command.__doc__ or "").strip()
        first = text.partition("\n")[0]
        parser_ = commands.add_parser(name, help=first[:1].lower() + first[1:].rstrip("."), description=text)
        command.add_arguments(parser_)
        parser_.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
