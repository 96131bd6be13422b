"""Parallel text from files: read whole or refused with file and line; parts that share no sentence."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_lab.data import (
    CorpusError,
    Pair,
    files,
    load_corpus,
    multi30k,
    read_parallel,
    read_tsv,
    split_pairs,
    tatoeba,
)

GERMAN = "Hallo, Anna!\nEin Mann geht.\nDrei Kühe.\n"
ENGLISH = "Hello, Anna!\nA man walks.\nThree cows.\n"
PAIRS = (
    Pair(("Hallo", ",", "Anna", "!"), ("Hello", ",", "Anna", "!")),
    Pair(("Ein", "Mann", "geht", "."), ("A", "man", "walks", ".")),
    Pair(("Drei", "Kühe", "."), ("Three", "cows", ".")),
)
TABS = "Hello, Anna!\tHallo, Anna!\tCC-BY\nA man walks.\tEin Mann geht.\nThree cows.\tDrei Kühe.\n"


def write(path: Path, text: str | bytes) -> Path:
    content = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def zipped(path: Path, files: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


# --------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_two_files_line_by_line(tmp_path, ending):
    source, target = write(tmp_path / f"a.de{ending}", GERMAN), write(tmp_path / f"a.en{ending}", ENGLISH)
    assert read_parallel(source, target) == PAIRS
    assert read_parallel(str(source), str(target)) == PAIRS
    whole = read_parallel(source, target, split=str.split)
    assert whole[0] == Pair(("Hallo,", "Anna!"), ("Hello,", "Anna!"))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.removesuffix("\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace(" ", "  "),
    ],
    ids=["no last end of line", "ends of Windows", "byte order mark", "two blanks"],
)
def test_what_editors_do_to_files_does_no_harm(tmp_path, change):
    pairs = read_parallel(write(tmp_path / "a.de", change(GERMAN)), write(tmp_path / "a.en", ENGLISH))
    assert pairs == PAIRS
    assert read_tsv(write(tmp_path / "a.tsv", change(TABS)), source=1, target=0) == PAIRS


def test_odd_characters_end_no_line(tmp_path):
    """Only a line feed does; what Unicode calls a separator stays inside."""
    source = write(tmp_path / "a.de", "eins\u2028zwei\x0bdrei\nvier\x85\n")
    pairs = read_parallel(source, write(tmp_path / "a.en", "one\ntwo\n"))
    assert [pair.source for pair in pairs] == [("eins", "zwei", "drei"), ("vier",)]


def test_one_file_with_tabs(tmp_path):
    path = write(tmp_path / "a.tsv.gz", TABS)
    assert read_tsv(path, source=1, target=0) == PAIRS
    assert read_tsv(path)[0] == Pair(PAIRS[0].target, PAIRS[0].source)


def test_a_path_leads_into_a_zip(tmp_path):
    archive = zipped(
        tmp_path / "all.zip",
        {"raw/a.de": GERMAN, "raw/a.en": ENGLISH, "a.de.gz": gzip.compress(GERMAN.encode()), "_about.txt": "x"},
    )
    assert read_parallel(archive / "raw/a.de", archive / "raw" / "a.en") == PAIRS
    assert read_parallel(archive / "a.de.gz", archive / "raw/a.en") == PAIRS
    with pytest.raises(CorpusError, match=r"which of its files.*raw/a.de, raw/a.en"):
        read_tsv(archive)
    with pytest.raises(FileNotFoundError, match=r"no file raw/a\.fr, but raw/a\.de"):
        read_tsv(archive / "raw/a.fr")


def test_the_only_text_of_a_zip_is_meant(tmp_path):
    archive = zipped(tmp_path / "deu-eng.zip", {"deu.txt": TABS, "_about.txt": "who made it"})
    assert read_tsv(archive, source=1, target=0) == PAIRS
    assert set(tatoeba(archive, validation=1, test=1).train) < set(PAIRS)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.lists(st.from_regex(r"\w+|[.,!?]", fullmatch=True), min_size=1)] * 2), min_size=1))
def test_what_is_written_is_read(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("pairs")
    left = write(folder / "a", "\n".join(" ".join(words) for words, _ in sentences))
    right = write(folder / "b", "\n".join(" ".join(words) for _, words in sentences))
    tabs = write(folder / "c", "\n".join("\t".join(map(" ".join, pair)) for pair in sentences))
    expected = tuple(Pair(tuple(source), tuple(target)) for source, target in sentences)
    assert read_parallel(left, right) == expected
    assert read_tsv(tabs) == expected


# -------------------------------------------------------------------------------------------------------------- refusing

BAD = {
    "Latin-1": ("a\nDrei K\xfche.\nc\n".encode("latin-1"), "a.de, line 2: byte 7 of the line, 0xfc, is not UTF-8"),
    "UTF-16": ("a\nb\nc\n".encode("utf-16"), "a.de, line 1: byte 1 of the line, 0xff, is not UTF-8"),
    "an empty line": ("a\n\nc\n", "a.de, line 2: a sentence is empty"),
    "only blanks": ("a\nb\n \t\n", "a.de, line 3: a sentence is empty"),
    "too few lines": ("a\nb\n", "a.en, line 3: has no translation, because .*a.de has 2 lines and a.en has 3"),
    "too many lines": ("a\nb\nc\nd\n", "a.de, line 4: has no translation, because .*a.en has 3 lines and a.de has 4"),
    "nothing": ("", "a.de: the file is empty"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, what):
    content, message = BAD[what]
    source, target = write(tmp_path / "a.de", content), write(tmp_path / "a.en", ENGLISH)
    with pytest.raises(CorpusError, match=message) as caught:
        read_parallel(source, target)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab", r"line 2: 2 columns with a tab between them were expected, and there are 1: 'no tab'"),
        ("x" * 500, r"and there are 1: 'x{59}…'"),
        ("left\t", r"line 2: a sentence is empty"),
        ("\tright", r"line 2: a sentence is empty"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path, line, message):
    with pytest.raises(CorpusError, match=message):
        read_tsv(write(tmp_path / "a.tsv", f"a\tb\n{line}\nc\td\n"))


@pytest.mark.parametrize("cut", [slice(0, 25), slice(2, None)], ids=["cut short", "no gzip"])
def test_a_damaged_file_is_named(tmp_path, cut):
    path = tmp_path / "a.de.gz"
    path.write_bytes(gzip.compress(GERMAN.encode())[cut])
    with pytest.raises(CorpusError, match=r"a\.de\.gz: the file is damaged"):
        read_parallel(path, write(tmp_path / "a.en", ENGLISH))


def test_a_damaged_file_in_a_zip_is_named(tmp_path):
    archive = zipped(tmp_path / "a.zip", {"a.tsv": TABS * 50})
    content = bytearray(archive.read_bytes())
    content[60] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(CorpusError, match=r"a\.zip.*damaged"):
        read_tsv(archive)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tsv(tmp_path / "a.tsv")


# ------------------------------------------------------------------------------------------------------ published layouts


def write_multi30k(folder: Path, ending: str) -> None:
    for part in ("train", "val", "test_2016_flickr"):
        write(folder / f"{part}.de{ending}", f"{part} eins\n")
        write(folder / f"{part}.en{ending}", f"{part} one\n")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_multi30k_as_published(tmp_path, ending):
    write_multi30k(tmp_path, ending)
    corpus = multi30k(tmp_path)
    assert corpus.train == (Pair(("train", "eins"), ("train", "one")),)
    assert corpus.validation == (Pair(("val", "eins"), ("val", "one")),)
    assert corpus.test == (Pair(("test_2016_flickr", "eins"), ("test_2016_flickr", "one")),)
    assert multi30k(tmp_path, source="en", target="de").train[0].source == ("train", "one")
    assert load_corpus(tmp_path) == corpus


def test_multi30k_in_a_zip(tmp_path):
    write_multi30k(tmp_path / "data", ".gz")
    archive = zipped(
        tmp_path / "m.zip", {f"dataset/raw/{path.name}": path.read_bytes() for path in (tmp_path / "data").iterdir()}
    )
    assert multi30k(archive / "dataset/raw") == multi30k(tmp_path / "data")


def test_a_missing_part_is_named(tmp_path):
    write_multi30k(tmp_path, ".gz")
    (tmp_path / "val.en.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither val\.en nor val\.en\.gz in"):
        multi30k(tmp_path)


def test_the_corpus_of_a_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "default_corpus", lambda: "the default")
    assert load_corpus() == load_corpus("default") == "the default"
    path = write(tmp_path / "pairs.txt", "".join(f"one{n}\teins{n}\n" for n in range(3000)))
    assert [len(part) for part in load_corpus(path)] == [1000, 1000, 1000]
    assert load_corpus(path, split=str.split).test[0].source[0].startswith("eins")


# ----------------------------------------------------------------------------------------------------------------- parts


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_no_two_parts_share_a_sentence(numbers, validation, test, seed):
    pairs = [Pair((f"de{left}",), (f"en{right}",)) for left, right in numbers]
    families = len(set(files._families(list(dict.fromkeys(pairs)))))
    if families <= validation + test:
        with pytest.raises(ValueError, match="share no sentence"):
            split_pairs(pairs, validation, test, seed)
        return
    corpus = split_pairs(pairs, validation, test, seed)
    assert (len(corpus.validation), len(corpus.test)) == (validation, test)
    assert corpus.train
    for side in ("source", "target"):
        sentences = [{getattr(pair, side) for pair in part} for part in corpus]
        assert sum(map(len, sentences)) == len(set.union(*sentences))
    for part in corpus:
        assert list(part) == sorted(part, key=pairs.index)
        assert len(set(part)) == len(part)
    assert corpus == split_pairs(pairs, validation, test, seed)


def test_translations_of_one_sentence_stay_together():
    """Hi. → Hallo. / Grüß Gott.; Hallo. ← Hello.: three pairs of one family, be it three links long."""
    family = [Pair(("Hallo",), ("Hi",)), Pair(("Grüß", "Gott"), ("Hi",)), Pair(("Hallo",), ("Hello",))]
    strangers = [Pair((f"s{n}",), (f"t{n}",)) for n in range(9)]
    for seed in range(20):
        corpus = split_pairs(family + strangers, 2, 2, seed)
        assert len(set(family) & set(corpus.train)) in (0, 3)
        assert len(set(family) & {*corpus.validation, *corpus.test}) <= 1
        assert len({*corpus.train} & set(strangers)) >= 5


def test_too_few_sentences_are_refused():
    with pytest.raises(ValueError, match="4 pairs with 2 that share no sentence"):
        split_pairs([Pair((a,), (b,)) for a, b in ("ax", "ay", "bz", "bw")], 1, 1)
