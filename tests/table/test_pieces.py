"""online/rows.py: single rows as tables, tables below each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from crumb.errors import InvalidInput
from crumb.table.pieces import gather, one_row, stack


def test_a_row_may_be_a_sequence_a_series_or_a_mapping() -> None:
    for row in ([1, 2], (1, 2), np.array([1, 2]), pd.Series([1, 2]), np.array([[1, 2]])):
        np.testing.assert_array_equal(np.asarray(one_row(row, None), dtype=float), [[1.0, 2.0]])
    named = one_row({"b": "x", "a": 1}, ["a", "b"])
    assert named.columns.tolist() == ["a", "b"]
    assert named.iloc[0].tolist() == [1, "x"]
    assert one_row(pd.Series({"b": 2, "a": 1}), ["a", "b"]).iloc[0].tolist() == [1, 2]


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no value for 'b' and names 'c'"):
        one_row({"a": 1, "c": 2}, ["a", "b"])
    with pytest.raises(InvalidInput, match="no names"):
        one_row({"a": 1}, None)
    with pytest.raises(InvalidInput, match="got 2"):
        one_row(np.zeros((2, 3)), None)
    with pytest.raises(InvalidInput, match="A row is"):
        one_row(3, None)


def test_categories_of_single_rows_stay_categories() -> None:
    whole = pd.DataFrame(
        {
            "c": pd.Categorical(["b", None, "a", "b"]),
            "t": ["x", np.nan, "y", "x"],
            "n": [1, 2, 3, 4],
        }
    )
    pieces = [
        pd.DataFrame({"c": pd.Categorical([c]), "t": pd.Series([t], dtype=object), "n": [n]})
        for c, t, n in whole.itertuples(index=False)
    ]
    joined = stack(pieces)
    assert isinstance(joined["c"].dtype, pd.CategoricalDtype)
    assert joined["c"].astype(object).where(joined["c"].notna(), None).tolist() == [
        "b",
        None,
        "a",
        "b",
    ]
    pd.testing.assert_frame_equal(joined[["t", "n"]], whole[["t", "n"]].astype({"t": object}))


def test_rows_are_gathered_in_order() -> None:
    first, second = np.arange(6).reshape(3, 2), np.arange(10, 14).reshape(2, 2)
    got = gather([(first, 2), (first, 0), (second, 1), (first, 1)])
    np.testing.assert_array_equal(got, [[4, 5], [0, 1], [12, 13], [2, 3]])
