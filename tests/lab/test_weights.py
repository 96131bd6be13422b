"""Weights as a file: what is written is read again, and every damaged, foreign or hostile file gets a sentence."""

import io
import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transformer_lab import classifier, weights
from transformer_lab.weights import WeightsError

KIND = "classifier"
FIRST = "embed.token.embedding.weight"


def fresh(seed=0):
    torch.manual_seed(seed)
    return classifier.build(classifier.GRADED)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a file that is as it must be."""
    return weights.save(fresh(), KIND, tmp_path_factory.mktemp("good")).read_bytes()


@pytest.fixture(scope="module")
def tensors(good):
    return weights.parse(good, KIND)


def refused(data, *words, kind=KIND):
    """The sentence with which ``data`` is refused, which says ``words``."""
    with pytest.raises(WeightsError) as caught:
        weights.parse(data, kind)
    sentence = str(caught.value)
    assert sentence.endswith((".", "?"))
    assert len(sentence) < 700
    assert sentence.isprintable()
    for word in words:
        assert word in sentence, sentence
    return sentence


def raw(contents, numbers=b"", announced=None):
    """A safetensors file by hand."""
    head = contents if isinstance(contents, bytes) else json.dumps(contents).encode()
    return struct.pack("<Q", len(head) if announced is None else announced) + head + numbers


def taken_apart(data):
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


# ------------------------------------------------------------------------------------------------- write and read again


def test_what_is_saved_is_read_again(tmp_path):
    model = fresh(1)
    path = weights.save(model, KIND, tmp_path)
    assert path == tmp_path / "classifier.safetensors"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    found = weights.read(path, KIND)
    assert list(found) == list(weights.specification(KIND))
    for name, parameter in model.named_parameters():
        assert torch.equal(found[name], parameter)
    other = weights.load(fresh(2), path, KIND)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert all(parameter.requires_grad for parameter in other.parameters())


def test_the_specification_is_the_model_and_asking_draws_no_random_number():
    torch.manual_seed(3)
    before = torch.rand(1)
    torch.manual_seed(3)
    weights._specification.cache_clear()
    assert weights.specification(KIND) == {
        n: tuple(p.shape) for n, p in classifier.build(classifier.GRADED).named_parameters()
    }
    torch.manual_seed(3)
    weights._specification.cache_clear()
    weights.specification(KIND)
    assert torch.rand(1) == before
    assert not any("encoding" in name for name in weights.specification(KIND)), "the table of positions is no parameter"


def test_an_unknown_kind_is_a_sentence():
    with pytest.raises(ValueError, match="no weights of kind 'poet'; there are: classifier"):
        weights.specification("poet")


def test_a_model_in_another_precision_is_saved_in_float32(tmp_path):
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        found = weights.read(weights.save(fresh().to(dtype), KIND, tmp_path), KIND)
        assert {tensor.dtype for tensor in found.values()} == {torch.float32}


def test_saving_replaces_and_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = weights.save(fresh(1), KIND, tmp_path)
    weights.save(fresh(2), KIND, tmp_path)
    kept = path.read_bytes()
    assert kept == weights.save(fresh(2), KIND, tmp_path / ".").read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        weights.save(fresh(3), KIND, tmp_path)
    assert path.read_bytes() == kept
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_saving_says_what_would_be_refused(tmp_path):
    def saying(model):
        with pytest.raises(WeightsError) as caught:
            weights.save(model, KIND, tmp_path)
        assert not list(tmp_path.iterdir())
        return str(caught.value)

    assert "missing: `embed.token" in saying(nn.Linear(2, 3))
    model = fresh()
    model.extra = nn.Linear(2, 2)
    assert saying(model).endswith("not expected: `extra.bias`, `extra.weight`.")
    model = fresh()
    model.head = nn.Linear(2, 32, bias=True)
    assert "`head.weight` has the shape (32, 2), expected (2, 32). Is it transposed?" in saying(model)
    model = fresh()
    with torch.no_grad():
        model.head.bias[1] = float("nan")
    assert "not finite" in saying(model)
    assert "`head.bias`" in saying(model)


def test_a_parameter_under_two_names_is_saved_once(tmp_path):
    model = fresh()
    model.readout = model.head
    found = weights.read(weights.save(model, KIND, tmp_path), KIND)
    assert list(found) == list(weights.specification(KIND))


def test_buffers_and_frozen_parameters_are_no_obstacle(tmp_path):
    model = fresh().requires_grad_(False)
    model.register_buffer("counter", torch.zeros(3))
    weights.save(model, KIND, tmp_path)


def test_loading_into_another_model_leaves_it_as_it_is(tmp_path):
    path = weights.save(fresh(), KIND, tmp_path)
    model = nn.Linear(2, 2)
    before = model.weight.clone()
    with pytest.raises(WeightsError, match="The model does not hold"):
        weights.load(model, path, KIND)
    assert torch.equal(model.weight, before)


# ------------------------------------------------------------------------------------------------------ damaged, foreign


def test_empty_short_and_cut_off_files(good):
    assert refused(b"") == "classifier.safetensors is empty."
    refused(b"\0", "not a safetensors file")
    refused(good[:8], "not a safetensors file")
    for size in (9, 100, 1000, len(good) // 2, len(good) - 1):
        refused(good[:size], "damaged or cut off")
    refused(good + b"\0", "damaged or cut off")


def test_a_lying_length_of_the_contents(good):
    for announced in (len(good), 10**8, 2**40, 2**63, 2**64 - 1):
        refused(struct.pack("<Q", announced) + good[8:], "damaged or cut off")
    for announced in (0, 1, 2, 100):
        refused(struct.pack("<Q", announced) + good[8:], "damaged")


def test_contents_that_are_no_contents():
    for head in (
        b"{",
        b"{]",
        b'{"a": NaN}',
        b'{"a": }',
        b"{}}",
        b'{"\xff": 1}',
        b'{"a":' * 5000,
        b'{"a":' + b"[" * 100_000,
    ):
        refused(raw(head), "damaged")
    refused(raw(b'{"a": 1' + b"0" * 5000 + b"}"), "damaged")


def test_a_name_that_stands_twice(good):
    contents, numbers = taken_apart(good)
    head = json.dumps(contents)[:-1] + f', "{FIRST}": {json.dumps(contents[FIRST])}}}'
    refused(raw(head.encode(), numbers), "twice", FIRST)
    many = "{" + ",".join(f'"{i}":0' for i in range(90_000)) + ',"0":1}'
    began = time.perf_counter()
    refused(raw(many.encode()), "twice")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "offsets", [[0, 0], [0, 2**63], [-1, 5], [4, 0], [0], "all", None, [0.0, 1152.0], [4, 1156], [10**30, 10**30]]
)
def test_offsets_that_do_not_fit(good, offsets):
    contents, numbers = taken_apart(good)
    contents[FIRST]["data_offsets"] = offsets
    refused(raw(contents, numbers), "damaged")


def test_tensors_that_share_their_bytes(good):
    contents, numbers = taken_apart(good)
    same_size = [n for n, about in contents.items() if n != "__metadata__" and about["shape"] == [32]]
    contents[same_size[0]]["data_offsets"] = contents[same_size[1]]["data_offsets"]
    refused(raw(contents, numbers), "damaged")


@pytest.mark.parametrize(
    "about", [None, 3, [], {}, {"shape": "wide"}, {"shape": [True, 32]}, {"shape": [9.0, 32.0]}, {"shape": [[9]]}]
)
def test_tensors_of_which_something_strange_is_said(good, about):
    contents, numbers = taken_apart(good)
    contents[FIRST] = about
    refused(raw(contents, numbers), "damaged", FIRST)


def test_names_that_are_missing_or_extra(tensors):
    some = {name: tensor for name, tensor in tensors.items() if "layers.1" not in name}
    refused(safetensors.torch.save(some), "missing: `encoder.layers.1", "and 13 more")
    refused(
        safetensors.torch.save({**tensors, "odd\n\x1b[31m{name}é": torch.ones(2)}),
        "not expected",
        r"\n\x1b[31m{name}\xe9",
    )
    refused(safetensors.torch.save({**tensors, "x" * 100_000: torch.ones(2)}), "not expected")
    refused(safetensors.torch.save({f"module.{name}": tensor for name, tensor in tensors.items()}), "module.")


def test_shapes_and_dtypes(tensors):
    turned = {n: (t.T.contiguous() if t.dim() > 1 else t) for n, t in tensors.items()}
    refused(safetensors.torch.save(turned), "Is it transposed?")
    wider = {**tensors, "head.weight": torch.zeros(3, 32)}
    refused(safetensors.torch.save(wider), "`head.weight` has the shape (3, 32), expected (2, 32).")
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool):
        other = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        refused(safetensors.torch.save(other), "dtype", "'F32'")
    refused(raw({**{n: {"shape": list(t.shape), "dtype": "F32" * 99} for n, t in tensors.items()}}), "dtype")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite(tensors, value):
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    changed["head.bias"][0] = value
    refused(safetensors.torch.save(changed), "not finite", "`head.bias`")


def test_more_metadata_and_another_order_are_welcome(tensors):
    data = safetensors.torch.save(dict(reversed(tensors.items())), metadata={"who": "ö" * 1000, "n": "1"})
    found = weights.parse(data, KIND)
    assert list(found) == list(tensors)
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


class Bomb:
    opened = False

    def __reduce__(self):
        return setattr, (Bomb, "opened", True)


def test_pickles_and_archives_are_never_opened(tmp_path):
    for protocol in range(6):
        refused(pickle.dumps(Bomb(), protocol), "not a safetensors file")
    refused(pickle.dumps(Bomb(), 4), "a pickle, which is never opened")
    saved = io.BytesIO()
    torch.save({"weight": torch.ones(2), "bomb": Bomb()}, saved)
    refused(saved.getvalue(), "zip archive")
    arrays = io.BytesIO()
    np.savez(arrays, a=np.ones(3))
    refused(arrays.getvalue(), "zip archive")
    one = io.BytesIO()
    np.save(one, np.ones(3))
    refused(one.getvalue(), "array of NumPy")
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("classifier.safetensors", b"{}")
    refused(zipped.getvalue(), "zip archive")
    refused(b"<!DOCTYPE html><title>Sign in</title>", "not a safetensors file")
    assert not Bomb.opened


# ----------------------------------------------------------------------------------------------------- files of any kind


def unreadable(path, *words):
    with pytest.raises(WeightsError) as caught:
        weights.read(path, KIND)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_is_no_regular_file(tmp_path, good):
    real, path = tmp_path / "real", tmp_path / "classifier.safetensors"
    real.write_bytes(good)
    unreadable(path, "There is no file")
    path.symlink_to(real)
    unreadable(path, "not a regular file")
    path.unlink()
    path.symlink_to("/nowhere")
    unreadable(path, "not a regular file")
    path.unlink()
    os.mkfifo(path)
    unreadable(path, "not a regular file")
    path.unlink()
    path.mkdir()
    unreadable(path, "not a regular file")
    unreadable("/dev/zero", "not a regular file")
    unreadable(real / "below", "cannot be read")


def test_a_pipe_put_in_place_of_the_file_meanwhile_is_not_waited_for(tmp_path, monkeypatch, good):
    path = tmp_path / "classifier.safetensors"
    path.write_bytes(good)
    looked = path.lstat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(type(path), "lstat", lambda self: looked)
    unreadable(path, "not a regular file")


def test_a_huge_sparse_file_is_not_read(tmp_path):
    path = tmp_path / "classifier.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    unreadable(path, "MB are read")
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "classifier.safetensors"
    path.write_bytes(b"x" * 10)
    monkeypatch.setattr(os, "read", lambda descriptor, count: b"x" * min(count, 7))
    with pytest.raises(WeightsError, match="up to"):
        weights.read_bytes(path, 100)


def test_a_header_of_a_hundred_megabytes_costs_nothing(tmp_path):
    path = tmp_path / "classifier.safetensors"
    path.write_bytes(raw(b'{"a": "' + b"x" * 100, announced=10**8))
    with path.open("ab") as file:
        file.truncate(weights.max_bytes(KIND))
    unreadable(path, "damaged or cut off")


# --------------------------------------------------------------------------------------------------------- any bytes


def valid_or_refused(data):
    sentence, found = "", {}
    try:
        found = weights.parse(data, KIND)
    except WeightsError as error:
        sentence = str(error)
    assert sentence.isprintable()
    assert len(sentence) < 1000
    if sentence:
        return False
    assert {name: tuple(t.shape) for name, t in found.items()} == weights.specification(KIND)
    assert all(t.dtype == torch.float32 and t.isfinite().all() for t in found.values())
    return True


@settings(max_examples=150)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    assert not valid_or_refused(data)
    assert not valid_or_refused(raw(b"{" + data))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150)
@given(data=st.data())
def test_a_good_file_with_changes_is_valid_or_refused(good, data):
    contents, numbers = taken_apart(good)
    what = data.draw(st.sampled_from(("bytes", "contents", "cut", "insert")))
    if what == "contents":
        name = data.draw(st.sampled_from(list(contents)))
        field = data.draw(st.sampled_from(("whole", "shape", "dtype", "data_offsets", "other")))
        if field == "whole" or name == "__metadata__":
            contents[name] = data.draw(json_values)
        else:
            contents[name][field] = data.draw(json_values | st.lists(st.integers(0, 10**5), min_size=2, max_size=2))
        changed = raw(contents, numbers)
    else:
        changed, head = bytearray(good), len(good) - len(numbers)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, head + 50) | st.integers(0, len(good) - 1))
            if what == "bytes":
                changed[min(place, len(changed) - 1)] = data.draw(st.integers(0, 255))
            elif what == "insert":
                changed[place:place] = data.draw(st.binary(min_size=1, max_size=9))
            else:
                del changed[place : place + data.draw(st.integers(1, 5000))]
                changed = changed or bytearray(b"\0")
    valid_or_refused(bytes(changed))
