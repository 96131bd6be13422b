"""Measure what makes training and decoding fast on this machine, one change at a time."""

from __future__ import annotations

import argparse
import sys

import torch

from transformer_lab import results
from transformer_lab.measurements import bench


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", choices=sorted(bench.PLANS), help="of the model (default: base on a CUDA device, else small)"
    )
    parser.add_argument("--pieces", default="builtin", help="builtin, solutions, notebooks, or a path of notebooks")
    parser.add_argument("--device", choices=("cuda", "mps", "cpu"), help="instead of the fastest there is")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="instead of the best for the device"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="whether torch.compile has a row (default: on a CUDA device)",
    )
    parser.add_argument("--threads", type=int, help="processor threads (default: PyTorch's choice)")
    parser.add_argument("--dry", action="store_true", help="print only, and write nothing into results/")


def run(options: argparse.Namespace) -> int:
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        rows = bench.run(
            options.size,
            device=options.device,
            dtype=options.dtype,
            name=options.pieces,
            compiled=options.compile,
            folder=None if options.dry else results.FOLDER,
            command=_command(options),
            say=lambda text: print(text, file=sys.stderr),
        )
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    show(bench.lines(rows))
    return 0


def show(lines: list[tuple[str, ...]]) -> None:
    """Print the table, with rich where it is installed and in plain columns where not."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(bench.HEADS, *lines, strict=True)]
        for line in (bench.HEADS, *lines):
            first, *others = (text.rjust(width) for text, width in zip(line, widths, strict=True))
            print("  ".join([first.strip().ljust(widths[0]), *others]))
        return
    table = Table(*bench.HEADS[:1])
    for head in bench.HEADS[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console = Console()
    console.print(table) if console.is_terminal else Console(width=180).print(table)


def _command(options: argparse.Namespace) -> str:
    """What one types to measure the same again."""
    words = [bench.COMMAND]
    words += [
        f"--{name} {value}" for name in ("size", "device", "dtype", "threads") if (value := getattr(options, name))
    ]
    words += [f"--pieces {options.pieces}"] if options.pieces != "builtin" else []
    words += [] if options.compile is None else ["--compile" if options.compile else "--no-compile"]
    return " ".join(words)
