"""What a class gets: one zip with the stubs and the package that their cells use, and nothing of grading.

    README.txt  notebooks/NN_name/NN_name.ipynb …  transformer_lab/ …

It works unpacked and, on a hosted notebook service, as it is: the first cell of a notebook looks for ``transformer_lab``
in folders and in the zip alike.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from autograder import release
from transformer_lab.cells import read_notebook

PACKAGE = Path(__file__).resolve().parent.parent / "transformer_lab"
README = Path(__file__).parent / "templates" / "bundle.txt"

#: PyTorch's own layers behind the names of the pieces: where a piece is such a layer and little more, they look alike. And a
#: translator without attention that has the methods of ``Transformer``.
_LOOK_LIKE_ANSWERS = ("transformer_lab/builtin.py", "transformer_lab/recurrent.py")


def write_bundle(output: Path, notebooks: Path, solutions: str | Path | Iterable[Path]) -> list[str]:
    """Write the bundle and return the names of the files in it.

    Parameters
    ----------
    output
        The zip to write. The same content gives the same bytes, whenever and wherever it is written.
    notebooks
        The stubs that :func:`autograder.release.build_stubs` made of ``solutions``; what else lies there is left out.
    solutions
        The sources: a folder, one file, or several files.

    Raises
    ------
    LeakError
        A file would show a solution or a hidden test. Nothing is written.
    ValueError, FileNotFoundError
        A stub is missing or holds somebody's work, or a source cannot be used.
    """
    sources = {path.stem: release.convert_source(path) for path in release.source_files(solutions)}
    files: dict[str, bytes] = {}
    titles = []
    for name, source in sources.items():
        path = notebooks / name / f"{name}.ipynb"
        if not path.is_file():
            raise FileNotFoundError(f"There is no stub {path}: run `make notebooks`.")
        if release.has_own_work(path):
            raise ValueError(f"{path} is no stub as it was released: someone has worked in it.")
        release.check_stub(read_notebook(path), source)
        files[f"notebooks/{name}/{path.name}"] = path.read_bytes()
        heading = re.search(r"^# +(.+)$", source.cells[0].source, re.MULTILINE)
        titles.append(f"    {name:<{max(map(len, sources))}}  {heading[1] if heading else ''}".rstrip())
    for path in PACKAGE.rglob("*"):
        place = path.relative_to(PACKAGE.parent)
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in place.parts):
            files[place.as_posix()] = path.read_bytes()
    files["README.txt"] = README.read_text(encoding="utf-8").replace("{notebooks}", "\n".join(titles)).encode()
    refuse_leaks(files, [release.regions(source) for source in sources.values()])
    _write_zip(output, files)
    return sorted(files)


def refuse_leaks(files: dict[str, bytes], parts: list[release.Regions]) -> None:
    """Raise ``LeakError`` where a file beside the stubs, which are checked already, shows an answer or a hidden test."""
    answers = [text for part in parts for text in part.solutions]
    secrets = {line.strip() for part in parts for text in part.hidden for line in text.split("\n") if line.strip()}
    for name, content in files.items():
        if name.endswith(".ipynb"):
            continue
        text = content.decode(errors="replace")  # data may stand beside the code
        hidden = next((line for line in sorted(secrets) if line in text), "")
        if hidden:
            raise release.LeakError(f"{name} shows the line {hidden!r} of a hidden test.")
        shown = name not in _LOOK_LIKE_ANSWERS and release.repeats(answers, text)
        if shown:
            raise release.LeakError(f"{name} repeats a solution: {shown!r}.")


def _write_zip(output: Path, files: dict[str, bytes]) -> None:
    """Stored and not compressed, because what a compressor makes of the same bytes depends on its version."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, files[name])
    partial.replace(output)
