"""What is kept does not depend on how the pool was cut, and is what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.kernel import RandomFourierFeatures
from crumb.scale.closeness import Distance, ExactCross, RffCross
from crumb.scale.pool import Scouts
from crumb.scale.rules import Cells, Look, Nearest, RareClasses, Strata, quotas
from crumb.scale.scoring import random_numbers
from crumb.scale.shortlist import Shortlist
from crumb.strata import STRATA


def look_at(points, ids, codes, centroids):
    return Look(Scouts(points, codes), ids, random_numbers(ids, 5), centroids)


def looks(points, codes, centroids, cuts):
    for rows in np.split(np.arange(len(points)), sorted(cuts)):
        if len(rows):
            yield look_at(points[rows], rows, codes[rows], centroids)


def shortlisted(rules, points, codes, centroids, cuts):
    """Every piece a shard: each makes its own list, under the limits known when it starts."""
    whole = Shortlist(rules)
    for look in looks(points, codes, centroids, cuts):
        own = Shortlist(rules, whole.limits)
        own.look(look)
        whole.join(own.done())
    return whole


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 300), st.lists(st.integers(0, 300), max_size=5), st.integers(0, 100), st.booleans())
def test_pieces_join_to_the_whole(rows, cuts, seed, ties):
    rng = np.random.default_rng(seed)
    points, centroids = rng.normal(size=(rows, 2)), rng.normal(size=(3, 2))
    points = points.round() if ties else points  # many rows are equally near
    codes = rng.integers(0, 4, rows)
    members = [rng.normal(size=(8, 2)) * 0.5 + centroid for centroid in centroids]
    strata = Strata(Distance(centroids), members, 30)
    rules = [strata, Nearest(3, 4), Cells(3, 5), RareClasses(3, 4, 2)]
    one = shortlisted(rules, points, codes, centroids, [])
    many = shortlisted(rules, points, codes, centroids, cuts)
    for number in range(len(rules)):
        for first, second in zip(one.bins_of(number), many.bins_of(number), strict=True):
            np.testing.assert_array_equal(one.done().ids[first], many.done().ids[second])
    distance = ((points[None] - centroids[:, None]) ** 2).sum(2)
    ids = one.done().ids
    np.testing.assert_array_equal(one.done().points, points[ids])
    for k, places in enumerate(one.bins_of(1)):  # brute force, the first of equals
        np.testing.assert_allclose(np.sort(distance[k])[:4], distance[k][ids[places]])
    for k, places in enumerate(one.bins_of(2)):
        assert (distance.argmin(0)[ids[places]] == k).all()
        assert len(places) == min(5, (distance.argmin(0) == k).sum())
    for number, places in enumerate(one.bins_of(3)):
        k, code = divmod(number, 4)
        np.testing.assert_allclose(distance[k][ids[places]], np.sort(distance[k][codes == code])[:2])


def test_candidates_are_drawn_where_the_queries_lie():
    rng = np.random.default_rng(0)
    points, members = rng.normal(size=(20_000, 3)), rng.normal(size=(200, 3)) * 0.7 + 0.5
    centroid = members.mean(axis=0, keepdims=True)
    strata = Strata(Distance(centroid), [members], 1_000)
    found = shortlisted([strata], points, np.zeros(len(points), dtype=int), centroid, [5_000, 12_000])
    rows = strata.rows(found.bins_of(0), found.counts, 0, 1_000)
    distance = ((found.done().points[rows] - centroid) ** 2).sum(1)
    assert len(np.unique(rows)) == 1_000
    inside = np.searchsorted(strata.edges[0], distance)
    counts = np.bincount(inside, minlength=STRATA + 1)
    quota, lacking = quotas(found.counts[None, :STRATA], 1_000)
    np.testing.assert_array_equal(counts[:STRATA], np.minimum(quota[0], found.counts[:STRATA]))
    assert counts[STRATA] == 100 + lacking[0]  # a tenth from elsewhere
    fewer = strata.rows(found.bins_of(0), found.counts, 0, 500)
    assert np.isin(fewer, rows).mean() > 0.95  # twice as many include those before


def test_a_sample_foretells_limits_that_cost_no_candidate():
    rng = np.random.default_rng(1)
    points, members = rng.normal(size=(50_000, 3)), rng.normal(size=(300, 3))
    centroid = members.mean(axis=0, keepdims=True)
    codes = rng.integers(0, 2, len(points))
    rules = [Strata(Distance(centroid), [members], 2_000), Nearest(1, 50), RareClasses(1, 2, 3)]
    sample = rng.choice(len(points), 5_000, replace=False)
    look = look_at(points[sample], sample, codes[sample], centroid)
    limits = np.concatenate([rule.expected_limits(look, len(points)) for rule in rules])
    free, bound = Shortlist(rules), Shortlist(rules, limits)
    for block in looks(points, codes, centroid, range(1_000, 50_000, 1_000)):
        free.look(block)
        bound.look(block)
    assert np.isfinite(limits[:STRATA]).all()
    rows = [one.done().ids[rules[0].rows(one.bins_of(0), one.counts, 0, 2_000)] for one in (free, bound)]
    np.testing.assert_array_equal(*rows)
    for number in (1, 2):
        for first, second in zip(free.bins_of(number), bound.bins_of(number), strict=True):
            np.testing.assert_array_equal(free.done().ids[first], bound.done().ids[second])


def test_closeness_against_brute_force():
    rng = np.random.default_rng(2)
    members = [rng.normal(size=(size, 4)) + 3 * k for k, size in enumerate((30, 1, 7))]
    centroids = np.stack([some.mean(axis=0) for some in members])
    points = rng.normal(size=(500, 4)) * 3
    sigma = 1.5
    gaps = [((points[:, None] - some[None]) ** 2).sum(2) for some in members]
    cross = np.stack([np.exp(-gap / (2 * sigma**2)).mean(axis=1) for gap in gaps])
    exact, all_three = ExactCross(members, centroids, sigma), np.arange(3)
    np.testing.assert_allclose(exact(points, all_three), -cross, atol=1e-12)
    least = np.array([0.05, 0.2, 1e-4])
    exact.prune(least, np.zeros((1, 4)))  # no row of this sample is left out of the first cluster
    assert np.isinf(exact.radii).tolist() == [True, False, False]
    np.testing.assert_allclose(exact(points, all_three)[0], -cross[0], atol=1e-12)
    exact.prune(least, points)
    pruned = exact(points, all_three)
    wanted = cross >= least[:, None]
    assert (pruned > 0).any()  # some rows are left out, and none that is wanted
    np.testing.assert_allclose(pruned[wanted], -cross[wanted], atol=1e-12)
    assert (pruned[~wanted] > -least[:, None].repeat(500, 1)[~wanted]).all()
    features = RandomFourierFeatures.draw(4, 20_000, sigma, rng)
    rff = RffCross(features.omega.numpy(), features.phase.numpy(), members)
    np.testing.assert_allclose(rff(points, all_three), -cross, atol=0.04)
    np.testing.assert_allclose(
        Distance(centroids)(points, all_three), ((points[None] - centroids[:, None]) ** 2).sum(2)
    )


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 2])
def test_random_numbers_belong_to_rows(seed):
    drawn = random_numbers(np.arange(200_000), seed)
    assert (drawn >= 0).all()
    assert (drawn < 1).all()
    assert abs(np.histogram(drawn, 20)[0] / 10_000 - 1).max() < 0.05
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    np.testing.assert_array_equal(random_numbers(np.arange(5_000, 5_010), seed), drawn[5_000:5_010])
    assert abs(np.corrcoef(drawn, random_numbers(np.arange(200_000), seed + 1))[0, 1]) < 0.01
