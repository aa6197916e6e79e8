import numpy as np
import pytest

from halfseen import moments
from halfseen.duplicates import distinct_rows, row_keys

NAN = np.nan


def test_equal_rows_are_merged_and_weights_add_up():
    X = np.array([[1.0, NAN], [0.0, 2.0], [1.0, -NAN], [-0.0, 2.0], [5.0, 5.0], [1.0, NAN]])
    y = np.array([0, 1, 0, 1, 2, 1])
    weight = np.array([1.0, 2.0, 3.0, 4.0, 0.0, 1.0])
    rows, total = distinct_rows(row_keys(X), y, weight)
    found = {
        (str((X[row] + 0.0).tolist()), int(y[row])): w for row, w in zip(rows, total, strict=True)
    }
    assert found == {("[1.0, nan]", 0): 4.0, ("[0.0, 2.0]", 1): 6.0, ("[1.0, nan]", 1): 1.0}
    again, same = distinct_rows(row_keys(X[::-1]), y[::-1], weight[::-1])
    np.testing.assert_array_equal(X[::-1][again] + 0.0, X[rows] + 0.0)
    np.testing.assert_array_equal(same, total)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_agrees_with_numpy_on_many_rows_in_any_order(dtype, monkeypatch):
    monkeypatch.setattr(moments, "_ENTRIES_ON_CPU", 100)  # several parts
    random = np.random.default_rng(0)
    X = random.integers(0, 3, (500, 2, 2)).astype(dtype)
    X[random.random(X.shape) < 0.2] = NAN
    y = random.integers(0, 2, 500)
    rows, total = distinct_rows(row_keys(X), y, np.ones(500))
    flat = np.column_stack([np.nan_to_num(X.reshape(500, -1), nan=-1), y])
    expected, count = np.unique(flat, axis=0, return_counts=True)
    assert len(rows) == len(expected)
    ranked = np.lexsort(flat[rows].T[::-1])
    np.testing.assert_array_equal(flat[rows][ranked], expected)
    np.testing.assert_array_equal(total[ranked], count)
    order = random.permutation(500)
    again, _ = distinct_rows(row_keys(X[order]), y[order], np.ones(500))
    np.testing.assert_array_equal(X[order][again], X[rows])


def test_rows_that_differ_in_one_bit_are_distinct():
    X = np.tile(np.random.default_rng(0).random(64), (65, 1))
    X[np.arange(64), np.arange(64)] = np.nextafter(np.diag(X[:64]), 2)
    assert len(distinct_rows(row_keys(X), np.zeros(65, dtype=int), np.ones(65))[0]) == 65
