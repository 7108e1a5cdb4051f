"""The questions of strategies, answered by one pass over the files of a pool.

Herding gets candidates where the queries of a cluster lie (``Strata``) and the nearest rows of the
queries (``NearestRows``), as in memory. docs/scaling.md says how many, and what that costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.errors import InvalidInput
from crumb.herding.neighbours import FIRST, Candidates, asking, fraction_searched
from crumb.machine import quiet
from crumb.rng import generator
from crumb.scale.rules import NearestRows, NumberedRows, RareClasses, RowsOfCells, Rule, Strata
from crumb.scale.shortlist import Score, Shortlist, score_shards
from crumb.selection.base import Among, Finder, Held, Nearest, Problem, Question

if TYPE_CHECKING:
    from crumb.options import Options
    from crumb.scale.pool import FilePool

LEAST, MOST = 4, 64  # candidates that a cluster needs, and usually may have, as multiples of n
SHORTLIST_CELLS = 40_000_000  # clusters × candidates × columns that are kept: 320 MB
ENTRY_CELLS = 10  # columns that a candidate counts for at least: sorting it costs as much
KNN_ENTRIES = 20_000_000  # points × rows of a context
MOST_CENTROIDS = 2_000  # of the pool: every row is compared with each of them


class FileFinder(Finder):
    """For a pool whose points are too many for memory."""

    whole = False

    def __init__(self, pool: FilePool, options: Options):
        self.pool, self.size, self.reference = pool, pool.size, pool.reference
        self.seed, self.verbose, self.known = options.seed, options.verbose, pool.known_centroids
        self.min_per_class = options.min_per_class if pool.n_classes else 0

    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        found = self._pass([_rule(question) for question in questions], centroids)
        return [
            question
            if isinstance(question, list)
            else [self.held.numbers(rows) for rows in found.lists_of(number)]
            for number, question in enumerate(questions)
        ]

    def _pass(self, rules: Sequence[Rule], centroids: np.ndarray) -> Shortlist:
        """What the rules want, and what ``min_per_class`` may need, in one pass."""
        pool, with_codes = self.pool, self.min_per_class > 0
        if with_codes:
            strata = next((rule for rule in rules if isinstance(rule, Strata)), None)
            classes, m = pool.n_classes or 0, self.min_per_class
            rules = [*rules, RareClasses(centroids, classes, m, strata)]
        score = Score(pool.reader, rules, len(centroids), with_codes)
        found = score_shards(pool.engine, pool.source.shards, score, pool.sketch, self.verbose)
        kept = found.done()
        self.held = Held(kept.points, kept.codes, kept.ids)
        return found

    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        n, kernel = problem.n, problem.search.name
        asked = [] if kernel == "rff" else asking(labels, n, problem.seed)
        count = _count(problem, len(centroids), self.size)
        members = [problem.queries[labels == k] for k in range(len(centroids))]
        strata = Strata(centroids, members, count)
        # Where the queries reach much farther than the pool, nearly all rows are in one stratum.
        # Some random rows then fill the contexts up.
        rng = generator(problem.seed, "spare")
        spare = NumberedRows(rng.choice(self.size, min(n, self.size), replace=False))
        rules: list[Rule] = [strata, spare]
        facts: dict[str, Any] = {}
        if asked:
            every, sizes = np.concatenate(asked), list(map(len, asked))
            # "exact" searches all rows, others as many as take seconds.
            fraction = 1.0 if kernel == "exact" else fraction_searched(self.size, len(every))
            each = [each_of(neighbours_beside(count, n), size) for size in sizes]
            counts = np.repeat(each, sizes)
            rules.append(NearestRows(problem.queries[every], counts, fraction, roughly=True))
            facts["neighbours_among"] = round(fraction * self.size)
        candidates = _of_clusters(self._pass(rules, centroids), strata, asked, n)
        first = count if kernel == "exact" else None
        return {"candidates": candidates, "most": count, "available": count, "first": first}, facts

    def cluster_pool(self, n_clusters: int) -> np.ndarray:
        """By mini-batch k-means on the sketch."""
        from sklearn.cluster import MiniBatchKMeans

        sample, seed = self.pool.sketch.points, self.seed % 2**32
        n_clusters = min(n_clusters, MOST_CENTROIDS, len(sample))
        with quiet():
            means = MiniBatchKMeans(n_clusters, random_state=seed, n_init=1, batch_size=4_096)
            return np.unique(means.fit(sample).cluster_centers_, axis=0)


def _rule(question: Question) -> Rule:
    if isinstance(question, list):
        return NumberedRows(np.concatenate(question))
    if isinstance(question, Nearest):
        if len(question.points) * question.n > KNN_ENTRIES:
            raise InvalidInput(
                f"The nearest {question.n:,} rows of {len(question.points):,} points are too many "
                f"for a pool in files: ask for at most {max(1, KNN_ENTRIES // question.n):,} "
                "queries at a time, or lower context_size."
            )
        return NearestRows(question.points, question.n)
    return RowsOfCells(question.centroids, question.n, question.cells)


def _count(problem: Problem, clusters: int, size: int) -> int:
    """How many candidates of a cluster are kept by distance."""
    n, kernel = problem.n, problem.search.name
    room = SHORTLIST_CELLS // (clusters * max(problem.queries.shape[1], ENTRY_CELLS))
    if room < LEAST * n:
        raise InvalidInput(
            f"{clusters} contexts of {n:,} rows have no room among the candidates of "
            f"a pool in files: lower context_size to {room // LEAST:,}, or n_clusters."
        )
    if kernel == "rff":
        return min(room, size)
    room = 2 * room // 3  # neighbours come on top
    return min(room if kernel == "exact" else min(room, MOST * n), size)


def neighbours_beside(count: int, n: int) -> int:
    """How many neighbours of the queries join ``count`` candidates by distance: none at first."""
    return 0 if count <= FIRST * n else count // 2


def each_of(count: int, queries: int) -> int:
    """How many neighbours each query of a cluster has, for ``count`` candidates in all."""
    return max(1, count // queries)


def _of_clusters(found: Shortlist, strata: Strata, asked: list[np.ndarray], n: int) -> Candidates:
    """What herding gets of the rows that a pass has kept."""
    lists, counts, (spare,) = found.lists_of(0), found.counts_of(0), found.lists_of(1)
    near = iter(found.lists_of(2) if asked else ())
    neighbours = [list(islice(near, len(some))) for some in asked]

    def of_cluster(k: int, count: int) -> np.ndarray:
        rows = [strata.candidates(lists, counts, k, count)]
        beside = neighbours_beside(count, n)
        if asked and beside:
            rows += [some[: each_of(beside, len(asked[k]))] for some in neighbours[k]]
        together = np.unique(np.concatenate(rows))
        return together if len(together) >= n else np.union1d(together, spare)

    return lambda clusters, count: [of_cluster(k, count) for k in clusters]
