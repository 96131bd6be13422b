"""Comparing with what is right: every difference is found, and said in one sentence that a learner understands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autograder.compare import CheckFailed, equal, expect, measuring, require_pair, require_within
from transformer_lab.driver import Opaque

finite = st.floats(-1e3, 1e3, allow_nan=False, width=32)
arrays = hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=finite)


def message(got, want, **options) -> str:
    with pytest.raises(CheckFailed) as failure:
        expect(got, want, "the result", **options)
    return str(failure.value)


@given(arrays)
def test_an_array_equals_itself_in_either_precision(array):
    expect(array, array.astype(np.float64), "the result")
    expect(array.astype(np.float64), array, "the result")
    assert equal(array, array.copy(), 0.0)


@given(arrays, st.data())
def test_one_changed_entry_is_found_and_named(array, data):
    index = tuple(data.draw(st.integers(0, side - 1)) for side in array.shape)
    changed = array.astype(np.float64).copy()
    changed[index] += 1 + np.abs(array).max()
    text = message(changed, array)
    assert f"index {index}" in text
    assert f"{array.astype(float)[index]:.5g}" in text
    assert not equal(changed, array.astype(np.float64), 1e-3)


@given(arrays)
def test_a_share_of_nan_is_said(array):
    broken = array.copy()
    broken[(0,) * array.ndim] = np.nan
    assert "NaN" in message(broken, array)


def test_shapes_and_dtypes_are_said():
    want = np.zeros((2, 3))
    assert "shape (3, 2), expected (2, 3)" in message(np.zeros((3, 2)), want)
    assert "dtype float64, expected float32" in message(want, want, dtype="float32")
    assert "dtype int64" in message(np.zeros((2, 3), dtype=np.int64), want)
    assert "dtype float64, expected bool" in message(want, want > 0)


def test_half_precision_is_said():
    want = np.linspace(0, 1, 30)
    assert "dtype float16 is too coarse" in message(want.astype(np.float16), want)
    assert "half precision?" in message(want.astype(np.float16).astype(np.float32), want)
    assert "half precision?" not in message(want + 0.1, want)
    assert "half precision?" not in message(want * np.nan_to_num(np.inf), want)


def test_booleans_are_shown_as_such():
    text = message(np.array([True, True]), np.array([True, False]), tolerance=0)
    assert "got True, expected False" in text


@pytest.mark.parametrize(
    ("got", "word"),
    [(None, "None"), (Opaque("numpy.ndarray"), "numpy.ndarray"), ([1, 2], "2 values"), (3.0, "float"), ("x", "str")],
)
def test_what_is_no_tensor_is_said(got, word):
    text = message(got, np.zeros(2))
    assert word in text
    assert "torch.Tensor" in text


def test_infinities_compare_by_sign():
    inf = np.array([np.inf, -np.inf, 0.0])
    expect(inf, inf, "the result")
    assert "index (1,)" in message(np.array([np.inf, np.inf, 0.0]), inf)


def test_a_pair_is_a_pair():
    assert require_pair([1, 2], "`f`") == [1, 2]
    for other in (None, [1], [1, 2, 3], np.zeros((2, 2))):
        with pytest.raises(CheckFailed, match="expected a pair"):
            require_pair(other, "`f`")


def test_measuring_tells_how_far_from_its_limit_each_comparison_was():
    want = np.array([1.0, 4.0, np.inf])
    with measuring() as margins:
        expect(np.array([1.0, 4.0, np.inf]), want, "the same")
        expect(np.array([1.0, 4.0001, np.inf]), want, "a quarter", tolerance=1e-4)
        for got in ([1.0, 4.0012, np.inf], [1.0, 4.0, -np.inf], [1.0, np.nan, np.inf], [1.5, 4.0, np.nan]):
            message(np.array(got), want, tolerance=1e-4)
        message(np.array([1]), np.array([2]), tolerance=0)
        message(np.array([1.0]), want)
        require_within(0.5, 2.0, "too much")
        with pytest.raises(CheckFailed, match="too much"):
            require_within(2.0, 2.0, "too much")
        with pytest.raises(CheckFailed, match="too much"):
            require_within(np.nan, 2.0, "too much")
    ratios = [round(ratio, 9) for _, ratio in margins]
    assert ratios[:8] == [0, 0.25, 3, np.inf, np.inf, np.inf, np.inf, 0.25]
    assert ratios[8] == 1
    assert np.isnan(ratios[9])
    assert margins[1][0] == "a quarter"


def test_nothing_is_measured_otherwise():
    with measuring() as margins:
        pass
    expect(np.zeros(2), np.zeros(2), "the result")
    require_within(0.5, 2.0, "too much")
    assert margins == []
