"""The probes that stand in for parts of a translator, and asking a piece for one of its methods."""

import numpy as np
import torch
from torch import nn

from autograder.checks import ch09_translation as ch09
from autograder.student import LocalStudent, Probe

RNG = np.random.default_rng(9)


def test_a_prefixes_probe_says_what_the_oracle_says():
    table = RNG.normal(size=(2, 64, 7)).astype(np.float32)
    ids = RNG.integers(7, size=(3, 4))
    got, calls = LocalStudent({"ask": lambda step, ids: step(ids)}).run(
        "ask", Probe("prefixes", "step", table), ids, want=("output", "calls")
    )
    assert got.shape == (3, 4, 7)
    for row, prefix in enumerate(ids.tolist()):
        for place in range(4):
            np.testing.assert_allclose(got[row, place], ch09.following(table, row, prefix[: place + 1]), rtol=1e-6)
    np.testing.assert_array_equal(calls["step"][0][0], ids)


def test_a_crossing_probe_says_what_the_oracle_says():
    arrays = ch09._square(RNG, 5, 3)
    x, memory = (RNG.normal(size=(2, length, 5)).astype(np.float32) for length in (3, 4))
    mask, memory_mask = np.tri(3, dtype=bool)[None, None], np.array([1, 0, 1, 1], bool).reshape(1, 1, 1, 4)
    student = LocalStudent({"ask": lambda layer, *rest: layer(*rest)})
    for masks in ((mask, memory_mask), (None, None)):
        got = student.run("ask", Probe("crossing", "layer", *arrays), x, memory, *masks)
        np.testing.assert_allclose(got, ch09._cross(arrays, x, memory, *masks), atol=1e-5)


def test_a_tokens_probe_has_its_table_where_the_courses_embedding_has_it():
    table, places = RNG.normal(size=(9, 4)).astype(np.float32), RNG.normal(size=(6, 4)).astype(np.float32)

    class Holder(nn.Module):
        def __init__(self, embed):
            super().__init__()
            self.embed = embed

        def forward(self, ids):
            return self.embed(ids)

        def twice(self, ids):
            return 2 * self.embed(ids)

    student, init = LocalStudent({"Holder": Holder, "torch": torch}), (Probe("tokens", "embed", table, places),)
    ids = np.array([[1, 2, 3]])
    names = student.run("Holder", init=init, want="state_names")
    assert names == ["embed.token.embedding.weight"]
    np.testing.assert_allclose(student.run("Holder", ids, init=init), table[ids] + places[:3], atol=1e-6)
    twice = student.run("Holder", ids, init=init, method="twice")
    np.testing.assert_allclose(twice, 2 * (table[ids] + places[:3]), atol=1e-6)
