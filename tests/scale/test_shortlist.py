"""What is kept does not depend on how the pool was cut, and is what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.rng import row_numbers
from crumb.scale import shortlist
from crumb.scale.rules import (
    NEAREST,
    STRATA,
    Block,
    NearestRows,
    NumberedRows,
    RareClasses,
    RowsOfCells,
    Strata,
    quotas,
)
from crumb.scale.shortlist import Shortlist


class Rows:
    """What a block asks of a reader, for points and classes in memory."""

    seed = 5

    def __init__(self):
        self.computed = []

    def points(self, table, rows=None):
        self.computed.append(len(table[0]) if rows is None else len(rows))
        return table[0] if rows is None else table[0][rows]

    def codes(self, table, rows=None):
        return table[1] if rows is None else table[1][rows]


def block_of(points, ids, codes):
    return Block(ids, Rows(), (points, codes), codes is not None)


def blocks(points, codes, cuts):
    for rows in np.split(np.arange(len(points)), sorted(cuts)):
        if len(rows):
            yield block_of(points[rows], rows, codes[rows])


def shortlisted(rules, points, codes, cuts, late=1):
    """Every piece is a shard with a list of its own, under the limits known some pieces before."""
    whole = Shortlist(rules)
    known = [whole.limits.copy()] * late
    for block in blocks(points, codes, cuts):
        own = Shortlist(rules, known[-late])
        own.add(block)
        whole.join(own.done())
        known.append(whole.limits.copy())
    return whole


@settings(max_examples=40, deadline=None)
@given(
    st.integers(5, 300),
    st.lists(st.integers(0, 300), max_size=5),
    st.integers(0, 100),
    st.booleans(),
    st.sampled_from([8, 40, 1 << 20]),
    st.integers(1, 3),
)
def test_pieces_join_to_the_whole(rows, cuts, seed, ties, room, late):
    """Whatever the pieces, however often they are sorted, however late limits become known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlist, "ROOM", room)
        check_pieces(rows, cuts, seed, ties, late)


def check_pieces(rows, cuts, seed, ties, late):
    rng = np.random.default_rng(seed)
    points, centroids = rng.normal(size=(rows, 2)), rng.normal(size=(3, 2))
    points = points.round() if ties else points  # many rows are equally near
    codes = rng.integers(0, 4, rows)
    members = [rng.normal(size=(8, 2)) * 0.5 + centroid for centroid in centroids]
    strata = Strata(centroids, members, 30)
    cells = RowsOfCells(centroids, 5, np.arange(3))
    wanted = [strata, NearestRows(centroids, 4), cells, RareClasses(centroids, 4, 2)]
    one = shortlisted(wanted, points, codes, [])
    many = shortlisted(wanted, points, codes, cuts, late)
    for k in range(3):
        for count in (30, 15):
            chosen = [
                strata.candidates(found.lists_of(0), found.counts_of(0), k, count)
                for found in (one, many)
            ]
            np.testing.assert_array_equal(one.done().ids[chosen[0]], many.done().ids[chosen[1]])
    for number in range(1, len(wanted)):
        for first, second in zip(one.lists_of(number), many.lists_of(number), strict=True):
            np.testing.assert_array_equal(one.done().ids[first], many.done().ids[second])
    distance = ((points[None] - centroids[:, None]) ** 2).sum(2)
    ids = one.done().ids
    np.testing.assert_array_equal(one.done().points, points[ids])
    for k, places in enumerate(one.lists_of(1)):  # brute force, the first of equals
        np.testing.assert_allclose(np.sort(distance[k])[:4], distance[k][ids[places]])
    for k, places in enumerate(one.lists_of(2)):
        assert (distance.argmin(0)[ids[places]] == k).all()
        assert len(places) == min(5, (distance.argmin(0) == k).sum())
    for number, places in enumerate(one.lists_of(3)):
        k, code = divmod(number, 4)
        np.testing.assert_allclose(
            distance[k][ids[places]], np.sort(distance[k][codes == code])[:2]
        )


def test_candidates_are_drawn_where_the_queries_lie():
    rng = np.random.default_rng(0)
    points, members = rng.normal(size=(20_000, 3)), rng.normal(size=(200, 3)) * 0.7 + 0.5
    centroid = members.mean(axis=0, keepdims=True)
    strata = Strata(centroid, [members], 1_000)
    found = shortlisted([strata], points, np.zeros(len(points), dtype=int), [5_000, 12_000])
    rows = strata.candidates(found.lists_of(0), found.counts_of(0), 0, 1_000)
    distance = ((found.done().points[rows] - centroid) ** 2).sum(1)
    assert len(np.unique(rows)) == 1_000
    inside = np.searchsorted(strata.edges[0], distance)
    counts = np.bincount(inside, minlength=STRATA + 1)
    quota = quotas(found.counts[None], 1_000)[0]
    np.testing.assert_array_equal(counts[:STRATA], np.minimum(quota, found.counts)[:STRATA])
    assert counts[STRATA] == 100 + quota[NEAREST]  # a tenth from elsewhere
    fewer = strata.candidates(found.lists_of(0), found.counts_of(0), 0, 500)
    assert np.isin(fewer, rows).mean() > 0.95  # twice as many include those before


def test_a_sample_foretells_limits_that_cost_no_candidate():
    rng = np.random.default_rng(1)
    points, members = rng.normal(size=(50_000, 3)), rng.normal(size=(300, 3))
    centroid = members.mean(axis=0, keepdims=True)
    codes = rng.integers(0, 2, len(points))
    wanted = [
        Strata(centroid, [members], 2_000),
        NearestRows(centroid, 50),
        RareClasses(centroid, 2, 3),
    ]
    sample = rng.choice(len(points), 5_000, replace=False)
    sketch = block_of(points[sample], sample, codes[sample])
    limits = np.concatenate([rule.expected_limits(sketch, len(points)) for rule in wanted])
    free, bound = Shortlist(wanted), Shortlist(wanted, limits)
    for block in blocks(points, codes, range(1_000, 50_000, 1_000)):
        free.add(block)
        bound.add(block)
    assert np.isfinite(limits[:STRATA]).all()
    rows = [
        one.done().ids[wanted[0].candidates(one.lists_of(0), one.counts_of(0), 0, 2_000)]
        for one in (free, bound)
    ]
    np.testing.assert_array_equal(*rows)
    for number in (1, 2):
        for first, second in zip(free.lists_of(number), bound.lists_of(number), strict=True):
            np.testing.assert_array_equal(free.done().ids[first], bound.done().ids[second])


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("spread", [0.1, 20.0])
def test_the_nearest_rows_of_groups(share, spread):
    rng = np.random.default_rng(7)
    points, groups = rng.normal(size=(4_000, 3)) * 4, np.repeat([0, 1, 2], [3, 2, 5])
    asking = rng.normal(size=(3, 3))[groups] * 4 + rng.normal(size=(10, 3)) * spread
    rule = NearestRows(asking, rng.integers(1, 40, 10), share)
    roughly = NearestRows(asking, rule.most, share, roughly=True)
    drawn = np.flatnonzero(row_numbers(np.arange(4_000), 5, "rows") < share)
    sample = block_of(points[:500], np.arange(500), None)
    rough = roughly.expected_limits(sample, 4_000)
    assert (rough <= rule.expected_limits(sample, 4_000)).all()
    for limits in (None, rule.expected_limits(sample, 4_000), rough):
        found = Shortlist([rule], limits)
        for block in blocks(points, np.zeros(4_000, dtype=int), [10, 700, 2_500]):
            found.add(block)
        for query, count, places in zip(asking, rule.most, found.lists_of(0), strict=True):
            distance = ((points[drawn] - query) ** 2).sum(axis=1)
            np.testing.assert_array_equal(
                found.done().ids[places], drawn[np.argsort(distance)[:count]]
            )


def test_a_class_that_is_common_among_the_candidates_is_not_watched():
    rng = np.random.default_rng(3)
    points, members = rng.normal(size=(20_000, 3)), rng.normal(size=(200, 3)) * 0.7
    centroid = members.mean(axis=0, keepdims=True)
    near = ((points - centroid) ** 2).sum(axis=1) < 1.0
    # Class 0 near the queries, class 1 also far away, class 2 nearly nowhere.
    codes = np.where(near, 0, 1)
    codes[rng.choice(20_000, 40, replace=False)] = 2
    strata = Strata(centroid, [members], 1_000)
    rule = RareClasses(centroid, 3, 2, strata)
    limits = rule.expected_limits(block_of(points[:5_000], np.arange(5_000), codes[:5_000]), 20_000)
    assert np.isneginf(limits).tolist() == [True, True, False]
    watched = Shortlist([strata, rule], np.concatenate([np.full(strata.n_lists, np.inf), limits]))
    for block in blocks(points, codes, [7_000]):
        watched.add(block)
    kept = watched.done()
    distance = ((points - centroid) ** 2).sum(axis=1)
    found = [kept.ids[places] for places in watched.lists_of(1)]
    assert [len(ids) for ids in found] == [0, 0, 2]
    rare = np.flatnonzero(codes == 2)
    assert set(found[2]) == set(rare[np.argsort(distance[rare])[:2]])
    assert (kept.codes == 0).sum() > 100  # what is not watched is there anyway


def test_only_rows_that_can_be_drawn_are_computed():
    rng = np.random.default_rng(4)
    points, members = rng.normal(size=(20_000, 3)), rng.normal(size=(200, 3)) * 0.7
    centroid, ids = members.mean(axis=0, keepdims=True), np.arange(20_000)
    strata = Strata(centroid, [members], 1_000)
    limits = strata.expected_limits(block_of(points, ids, None), 20_000)
    bound, free, block = (
        Shortlist([strata], limits),
        Shortlist([strata]),
        block_of(points, ids, None),
    )
    bound.add(block)
    assert 1_000 < sum(block.reader.computed) < 10_000
    free.add(block_of(points, ids, None))
    rows = [
        one.done().ids[strata.candidates(one.lists_of(0), one.counts_of(0), 0, 1_000)]
        for one in (bound, free)
    ]
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("columns", [16, 54])
@pytest.mark.parametrize("seed", range(6))
def test_limits_of_a_cluster_change_nothing_for_another(seed, columns):
    """Rows on the edge of a stratum: products for few clusters or rows round differently."""
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(2, columns)) * 100
    points = np.concatenate([np.repeat(queries, 1_000, axis=0), rng.normal(size=(3, columns))])
    ids, strata = np.arange(len(points)), Strata(queries, [queries[:1], queries[1:]], 50)
    found = []
    for reach in (np.inf, 1e-3, 0.3):
        limits = np.full((2, strata.n_lists // 2), 0.9)
        limits[1] = reach
        limits[:, NEAREST] = -np.inf
        entries = strata.entries(block_of(points, ids, None), limits.ravel())
        bins, keys, rows = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        mine = bins < strata.n_lists // 2
        order = np.lexsort((rows[mine], bins[mine]))
        found.append([part[mine][order] for part in (bins, keys, rows)])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_classes_without_a_row_in_a_block():
    points, centroid = np.random.default_rng(0).normal(size=(20, 2)), np.zeros((1, 2))
    rule = RareClasses(centroid, 2, 1)
    block = block_of(points, np.arange(20), np.zeros(20, dtype=int))
    (bins, keys, rows), *_ = [
        one for one in rule.entries(block, np.array([1.0, np.inf])) if len(one[0])
    ]
    distance = (points**2).sum(axis=1)
    assert set(rows) == set(np.flatnonzero(distance < 1.0))
    assert (bins == 0).all()
    np.testing.assert_allclose(keys, distance[rows])


def test_a_rare_row_far_from_the_origin_is_not_lost():
    """Single precision there is coarser than the distance between rows."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = (rng.normal(size=(200, 3)) * 0.1 + [223.0, 0.0, 0.0]).astype(np.float32)
        codes = np.zeros(200, dtype=int)
        codes[57] = 1
        rule = RareClasses(np.array([[223.0, 0.01, 0.02]]), 2, 1)
        block = block_of(points, np.arange(200), codes)
        found = Shortlist([rule], rule.expected_limits(block, 200))
        found.add(block)
        assert [len(places) for places in found.lists_of(0)] == [1, 1]


def test_rows_by_number():
    points, ids = np.random.default_rng(0).normal(size=(500, 2)), np.array([320, 7, 99, 499])
    found = shortlisted([NumberedRows(ids)], points, np.zeros(500, dtype=int), [100, 320])
    assert found.done().ids[found.lists_of(0)[0]].tolist() == sorted(ids)


def test_some_points_of_a_block():
    points = np.random.default_rng(5).normal(size=(50, 2))
    block = block_of(points, np.arange(50), None)
    for rows in ([3, 5, 20], [5, 20], [20, 21], [], list(range(50)), [49]):
        np.testing.assert_array_equal(block.some_points(np.array(rows, dtype=int)), points[rows])
