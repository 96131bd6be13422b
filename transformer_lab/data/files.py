"""Parallel text from files: two files line by line, or one with a tab in each line; plain, ``.gz``, or inside a ``.zip``.

    read_parallel("train.de.gz", "train.en.gz")
    read_tsv("deu-eng.zip/deu.txt", source=1, target=0)      # a path may lead into a zip
    multi30k("data/task1/raw")
    tatoeba("deu-eng.zip")

Every line is checked. What is wrong raises one :class:`CorpusError`, which says where and what to do.
"""

from __future__ import annotations

import gzip
import random
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from transformer_lab.data.corpus import default_corpus
from transformer_lab.data.pairs import Corpus, Pair
from transformer_lab.data.text import tokenise

Split = Callable[[str], Sequence[str]]


class CorpusError(ValueError):
    """A file that can't be used, with its name, the line and the reason in one sentence."""


def read_parallel(source: str | Path, target: str | Path, split: Split = tokenise) -> tuple[Pair, ...]:
    """Pairs from two files of which equal lines translate each other.

    Parameters
    ----------
    source, target
        The files: UTF-8, one sentence a line.
    split
        Makes words of a line. ``str.split`` keeps signs at their words, which is what subwords are for.

    Raises
    ------
    CorpusError
        A file can't be read, is not UTF-8, holds an empty line, or has more lines than the other.
    FileNotFoundError
        There is no such file.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        short, long = sorted(((len(sources), source), (len(targets), target)), key=lambda entry: entry[0])
        raise CorpusError(
            f"{long[1]}, line {short[0] + 1}: has no translation, because {short[1]} has {short[0]} lines "
            f"and {Path(long[1]).name} has {long[0]}."
        )
    return tuple(
        Pair(_words(source, number, left, split), _words(target, number, right, split))
        for number, (left, right) in enumerate(zip(sources, targets, strict=True), start=1)
    )


def read_tsv(path: str | Path, source: int = 0, target: int = 1, split: Split = tokenise) -> tuple[Pair, ...]:
    """Pairs from one file with a tab between the sentences of a line.

    Parameters
    ----------
    path
        The file: UTF-8, one pair a line; further columns are passed over.
    source, target
        Which column holds which side, counted from 0.
    split
        Makes words of a sentence, as in :func:`read_parallel`.

    Raises
    ------
    CorpusError
        The file can't be read or is not UTF-8, or a line has too few tabs or nothing on one side.
    FileNotFoundError
        There is no such file.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) <= max(source, target):
            raise CorpusError(
                f"{path}, line {number}: {max(source, target) + 1} columns with a tab between them were expected, "
                f"and there are {len(columns)}: {_shorten(line)!r}."
            )
        pairs.append(Pair(_words(path, number, columns[source], split), _words(path, number, columns[target], split)))
    return tuple(pairs)


def multi30k(
    folder: str | Path, source: str = "de", target: str = "en", test: str = "test_2016_flickr", split: Split = tokenise
) -> Corpus:
    """Multi30k as published: ``train``, ``val`` and ``test``, each in a file ``NAME.LANGUAGE`` or ``NAME.LANGUAGE.gz``.

    Get it from the repository multi30k/dataset, folder ``data/task1/raw``. Its terms allow research and education that is
    not commercial, and no redistribution.
    """
    train, validation, last = (
        read_parallel(_either(folder, f"{part}.{source}"), _either(folder, f"{part}.{target}"), split)
        for part in ("train", "val", test)
    )
    return Corpus(train, validation, last)


def tatoeba(
    path: str | Path, validation: int = 1_000, test: int = 1_000, seed: int = 0, split: Split = tokenise
) -> Corpus:
    """Sentence pairs of Tatoeba as manythings.org offers them: English, a tab, the other language; translated to English.

    Many sentences stand there with several translations; :func:`split_pairs` keeps these together.
    """
    return split_pairs(read_tsv(path, source=1, target=0, split=split), validation, test, seed)


def load_corpus(where: str | Path = "default", split: Split = tokenise) -> Corpus:
    """The corpus that a command line names: "default", a folder laid out as Multi30k, or a file laid out as Tatoeba's."""
    if where == "default":
        return default_corpus()
    path = Path(where)
    return multi30k(path, split=split) if path.is_dir() else tatoeba(path, split=split)


def split_pairs(pairs: Iterable[Pair], validation: int, test: int, seed: int = 0) -> Corpus:
    """Three parts of which no two share a sentence, on either side: what is tested has not been seen.

    Pairs that share a sentence are a family, and so are those that are linked by others. ``seed`` draws ``test`` families
    for the test part and ``validation`` for the validation part, each of which gives its first pair, so that no sentence
    counts twice; all other families are there to train on. The order of the pairs is kept, and a pair is taken once.

    ValueError where nothing would be left to train on.
    """
    unique = list(dict.fromkeys(pairs))
    families: dict[int, list[int]] = {}
    for index, family in enumerate(_families(unique)):
        families.setdefault(family, []).append(index)
    order = list(families.values())
    random.Random(seed).shuffle(order)
    if len(order) <= validation + test:
        raise ValueError(
            f"{len(unique)} pairs with {len(order)} that share no sentence can't give {test} to test, "
            f"{validation} to validate and some to train."
        )
    last = sorted(family[0] for family in order[:test])
    middle = sorted(family[0] for family in order[test : test + validation])
    first = sorted(index for family in order[test + validation :] for index in family)
    return Corpus(*(tuple(unique[index] for index in part) for part in (first, middle, last)))


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 file without their ends; plain, ``.gz``, or inside a ``.zip`` through which the path leads."""
    lines = _read(Path(path)).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines and not lines[-1]:
        lines.pop()  # what follows the last end of a line
    if not lines:
        raise CorpusError(f"{path}: the file is empty.")
    return [_decode(path, number, line.removesuffix(b"\r")) for number, line in enumerate(lines, start=1)]


# --------------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    archive = next((parent for parent in (path, *path.parents) if zipfile.is_zipfile(parent)), None)
    try:
        content = _read_member(archive, path) if archive else path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: the file is damaged, fetch it again ({error}).") from error
    return content


def _read_member(archive: Path, path: Path) -> bytes:
    """The file ``path`` of ``archive``; where ``path`` is the archive itself, its only file but those that say *about*."""
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if not name.endswith("/")]
        wanted = path.relative_to(archive).as_posix()
        if path == archive:
            texts = [name for name in names if not Path(name).name.startswith(("_", "."))]
            if len(texts) != 1:
                raise CorpusError(
                    f"{path}: which of its files is meant? Write {path}/NAME, NAME being one of {', '.join(names)}."
                )
            wanted = texts[0]
        if wanted not in names:
            raise FileNotFoundError(f"{archive} holds no file {wanted}, but {', '.join(names)}.")
        return opened.read(wanted)


def _either(folder: str | Path, name: str) -> Path:
    """``name`` or ``name.gz`` in ``folder``, which may lie inside a zip."""
    plain, packed = Path(folder, name), Path(folder, f"{name}.gz")
    for path in (plain, packed):
        if path.is_file():
            return path
        archive = next((parent for parent in path.parents if zipfile.is_zipfile(parent)), None)
        if archive:
            with zipfile.ZipFile(archive) as opened:
                if path.relative_to(archive).as_posix() in opened.namelist():
                    return path
    raise FileNotFoundError(f"There is neither {name} nor {name}.gz in {folder}.")


def _decode(path: str | Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}, line {number}: byte {error.start + 1} of the line, 0x{line[error.start]:02x}, is not UTF-8; "
            f"save the file in that encoding."
        ) from error


def _words(path: str | Path, number: int, text: str, split: Split) -> tuple[str, ...]:
    words = tuple(split(text))
    if not words:
        raise CorpusError(f"{path}, line {number}: a sentence is empty; take the line out on both sides.")
    return words


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _families(pairs: Sequence[Pair]) -> Iterator[int]:
    """For each pair the number of its family: pairs that share a sentence, or are linked by others that do."""
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[tuple[str, tuple[str, ...]], int] = {}
    for index, pair in enumerate(pairs):
        for sentence in (("source", pair.source), ("target", pair.target)):
            parent[root(index)] = root(first.setdefault(sentence, index))
    return map(root, range(len(pairs)))
