"""Look inside a translator: what every head attends to for a sentence, as a page to explore."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_lab import attention_page, builtin, pieces
from transformer_lab.commands.train import FOLDER
from transformer_lab.data import UNK, tokenise
from transformer_lab.translation import Translator

#: Where the page is written unless one says otherwise.
OUT = Path("build/look")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sentence", help="a sentence in quotation marks")
    parser.add_argument("--target", help="a translation to be read out, in quotation marks, instead of the model's own")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the translator is (default: {FOLDER})")
    parser.add_argument("--pieces", default="builtin", help="builtin, solutions, notebooks, or a path of notebooks")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where to write (default: {OUT})")
    parser.add_argument("--image", action="store_true", help="write the maps as images too (needs matplotlib)")


def run(options: argparse.Namespace) -> int:
    try:
        own = builtin if options.pieces == "builtin" else pieces.load(options.pieces)
        translator = Translator.load(options.folder, own)
        words = tokenise(options.sentence)
        _tell_unknown(translator, words)
        target = tokenise(options.target) if options.target is not None else None
        maps = attention_page.look(translator, words, target)
        written = [attention_page.write(maps, options.out / "attention.html")]
        if options.image:
            written += _images(maps, options.out)
    except (ValueError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(maps.translation)
    for path in written:
        print(f"Wrote {path}" + ("; open it in a browser." if path.suffix == ".html" else "."))
    return 0


def _tell_unknown(translator: Translator, words: Sequence[str]) -> None:
    unknown = [word for word in words if UNK in translator.task.source.encode([word])]
    if unknown:
        print(f"Not in the vocabulary: {', '.join(unknown)}.", file=sys.stderr)


def _images(maps: attention_page.Maps, folder: Path) -> list[Path]:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("Images need matplotlib: pip install matplotlib, or leave --image out.") from error
    matplotlib.use("agg")  # no window is opened, so that none need be there
    from transformer_lab import plots

    plots.style()
    paths = []
    for kind in attention_page.KINDS:
        path = folder / f"attention-{kind}.png"
        attention_page.draw(maps, kind).savefig(path, dpi=150)
        paths.append(path)
    return paths
