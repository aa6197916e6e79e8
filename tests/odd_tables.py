"""Odd tables for tests: columns of every kind under names of every kind."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
from hypothesis import strategies as st

COLUMNS = {
    "numbers": [1.5, np.nan, -3.0, 2.0],
    "whole": [1, 2, 3, 3],
    "Int64": pd.array([1, None, 3, 4], dtype="Int64"),
    "huge": [1e300, -1e300, np.nan, 1e-300],
    "1e30": [1e30, np.nan, 1e-30, 0.0],
    "infinite": [np.inf, 1.0, 2.0, -np.inf],
    "largest ints": [2**63 - 1, -(2**63), 0, 1],
    "beyond ints": [2**70, 1, 2, None],
    "unsigned": np.array([0, 255, 3, 4], dtype=np.uint8),
    "half": np.array([1, 65504, np.nan, 4], dtype=np.float16),
    "text": ["a", None, "b", "a"],
    "numbers as text": ["1", "2.5", None, "1e3"],
    "huge as text": ["1e999", "2", None, "3"],
    "spaces": ["", " ", "a ", None],
    "markup": ["<script>", "a=b", "x,\"y\"\n", "é\x00"],
    "truth": [True, False, True, None],
    "bool": [True, False, True, True],
    "truth as text": ["True", "false", None, "TRUE"],
    "dates": pd.to_datetime(["2024-01-01", None, "1800-01-01", "2262-01-01"]),
    "dates with zone": pd.to_datetime(["2024-01-01", None, "1990-01-01", "2000-01-01"], utc=True),
    "far dates": np.array(["0001-01-01", "9999-12-31", "NaT", "1970-01-01"], dtype="M8[s]"),
    "dates as text": ["2024-12-31", "2024-02-30", None, "1999-01-01"],
    "date objects": [datetime.date(2020, 1, 1), None, datetime.date.min, datetime.date.max],
    "times": [datetime.time(1), datetime.time(2), None, datetime.time(3)],
    "durations": pd.to_timedelta([1, None, 3, 4], unit="s"),
    "periods": pd.period_range("2020", periods=4, freq="D"),
    "intervals": pd.interval_range(0, 4),
    "categories": pd.Categorical(["x", None, "y", "x"]),
    "categories of numbers": pd.Categorical([1, None, 2, 1]),
    "decimals": [decimal.Decimal("1.5"), None, decimal.Decimal("2"), decimal.Decimal("NaN")],
    "complex": [1j, 2.0, np.nan, 3],
    "bytes": [b"a", None, b"b", b"a"],
    "lists": [[1], [2], None, [1]],
    "mixed": [1, "a", None, 2.5],
    "empty": [None, None, None, None],
    "NaN": [np.nan] * 4,
    "constant": [7.0] * 4,
    "one value": [None, None, 3.0, None],
}  # fmt: skip
NAMES = ("a", "b", "c", "<script>", "", "ü", 0, 1.5, None, ("x", "y"), "a=b", "target")


@st.composite
def tables(draw, kinds=None):
    """Draw a table of some rows, and the kinds of its columns."""
    n_rows = draw(st.sampled_from((8, 12, 4, 4, 1, 0)))
    odd_names = draw(st.booleans())
    if kinds is None:
        kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), max_size=4))
    places = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 4, n_rows)
    columns = [pd.Series(COLUMNS[kind])[places].reset_index(drop=True) for kind in kinds]
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n_rows))
    if odd_names:
        frame.columns = draw(
            st.lists(st.sampled_from(NAMES), min_size=len(kinds), max_size=len(kinds))
        )
    else:
        frame.columns = [f"column {place}" for place in range(len(kinds))]
    form = draw(st.sampled_from(("frame", "frame", "frame", "array", "polars", "arrow")))
    try:
        if form == "array":
            return frame.to_numpy(), kinds
        if form == "arrow":
            return pyarrow.Table.from_pandas(frame), kinds
        return (pl.from_pandas(frame) if form == "polars" else frame), kinds
    except Exception:  # what these libraries have no place for
        return frame, kinds
