"""What one pass learns equals what a table in memory tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scale_tables import mixed, write

from crumb.options import Options
from crumb.scale import reader
from crumb.scale import source as sources
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import FilePool, read_whole
from crumb.scale.reader import Gather, Statistics, open_encoder
from crumb.scale.source import count_rows, open_source
from crumb.table import space as table_statistics
from crumb.table.encoder import TableEncoder
from crumb.table.space import Moments, learn_space, merged

VALUE = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 0.0, 3.0]),
    st.integers(-5, 5).map(float),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUE, min_size=1, max_size=40), st.lists(st.integers(0, 40), max_size=3))
def test_moments_in_pieces_are_those_of_the_whole(values, cuts):
    column = np.array(values)
    pieces = np.split(column, sorted(cut for cut in cuts if cut < len(column)))
    found = Moments.of([pieces[0]])
    for piece in pieces[1:]:
        found = found.merge(Moments.of([piece]))
    low, high = found.bounds()[0]
    bounded = np.clip(column[~np.isnan(column)], low, high)
    whole = found.bounded()
    assert whole.count[0] == len(bounded)
    if len(bounded):
        np.testing.assert_allclose(whole.mean[0], bounded.mean(), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            whole.squares[0] / len(bounded), bounded.var(), rtol=1e-9, atol=1e-6
        )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(3, 200),
    st.integers(0, 10_000),
    st.integers(1, 4),
    st.sampled_from([None, ["whole"], ["flag"]]),
)
@example(42, 1, 1, None)  # as many categories as indicators
def test_the_space_is_that_of_the_table_in_memory(tmp_path, rows, seed, files, categorical):
    frame = mixed(rows, seed)
    folder = write(tmp_path / f"{rows}-{seed}-{files}", frame, files=min(files, rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_ROWS", 32)
        source = count_rows(open_source(folder, "target"), LocalEngine(1))
        pool = FilePool(
            source, LocalEngine(1), Options.of(), classify=True, categorical_features=categorical
        )
    table, labels = read_whole(source)
    encoder = TableEncoder(categorical)
    space, points = learn_space(None, encoder.fit_transform(table), encoder, None, None)
    assert pool.encoder.kinds_ == encoder.kinds_
    numbers = [kind == "number" for kind in encoder.kinds_]
    np.testing.assert_allclose(pool.encoder.bounds_[numbers], encoder.bounds_[numbers])
    np.testing.assert_array_equal(pool.distinct_labels.shape, np.unique(labels).shape)
    queries = mixed(50, seed + 1).drop(columns="target")
    for these in (table, queries):
        mine = pool.reader.space.transform(pool.encoder.transform(these))
        theirs = space.transform(encoder.transform(these))
        # Constant columns are where rounding could decide; both leave them at 0.
        np.testing.assert_allclose(mine, theirs, atol=1e-9)
    np.testing.assert_allclose(pool.reference, points, atol=1e-9)


def test_rare_texts_are_forgotten_and_not_the_frequent_ones(monkeypatch):
    monkeypatch.setattr(table_statistics, "MOST_WORDS", 100)
    rng = np.random.default_rng(0)
    words = np.concatenate([np.repeat(["often", "oft"], 300), [f"w{i}" for i in range(1000)]])
    counts = Counter()
    for piece in np.array_split(rng.permutation(words), 30):
        counts = merged(counts, Counter(pd.Series(piece).value_counts().to_dict()))
    assert len(counts) <= 100
    assert {counts["often"], counts["oft"]} == {300}


def test_plain_numbers_are_read_without_a_frame(tmp_path, monkeypatch):
    """The same moments both ways, whatever the type, and with holes or infinite values."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "double": rng.normal(size=500) * 1e3 + 1e6,
            "single": rng.normal(size=500).astype(np.float32),
            "whole": rng.integers(-(2**40), 2**40, 500),
            "small": rng.integers(0, 200, 500).astype(np.uint8),
            "target": rng.integers(0, 2, 500),
        }
    )
    holes = frame.assign(
        single=frame["single"].where(frame.index != 300), double=frame["double"].replace(0, np.nan)
    )
    holes.loc[7, "double"] = -np.inf
    for number, table in enumerate((frame, holes)):
        monkeypatch.setattr(sources, "BLOCK_ROWS", 64)
        source = count_rows(
            open_source(write(tmp_path / str(number), table), "target"), LocalEngine(1)
        )
        gather = Gather(open_encoder(source, LocalEngine(1), None), True)
        wanted = np.arange(0)
        fast = [gather((shard, wanted)) for shard in source.shards]
        pool = FilePool(source, LocalEngine(1), Options.of(), classify=True)
        with monkeypatch.context() as patch:
            patch.setattr(reader, "plain_columns", lambda *args: None)
            slow = [gather((shard, wanted)) for shard in source.shards]
            other = FilePool(source, LocalEngine(1), Options.of(), classify=True)
            sketched = other.sketch.points  # computed here, without plain columns
        fast, slow = (reduce(Statistics.merge, parts).table.moments for parts in (fast, slow))
        for field in fields(fast):
            np.testing.assert_array_equal(getattr(fast, field.name), getattr(slow, field.name))
        np.testing.assert_array_equal(pool.sketch.points, sketched)
        finite = table["double"][np.isfinite(table["double"])]
        np.testing.assert_allclose(fast.mean[0], finite.mean(), rtol=1e-12)
        np.testing.assert_allclose(
            fast.squares[0], ((finite - finite.mean()) ** 2).sum(), rtol=1e-9
        )
        assert fast.below.tolist() == [number, 0, 0, 0]
