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
from crumb.herding.neighbours import (
    Candidates,
    asking,
    each_of,
    fraction_searched,
    neighbours_beside,
)
from crumb.quiet import quiet
from crumb.rng import generator
from crumb.scale.closeness import Closeness, Distance, RffCross
from crumb.scale.reader import ReadPoints
from crumb.scale.rules import NearestRows, NumberedRows, RareClasses, RowsOfCells, Rule, Strata
from crumb.scale.shortlist import Score, Shortlist, score_shards
from crumb.selection.base import Problem
from crumb.selection.finder import Among, Finder, Held, Nearest, Numbered, Question

if TYPE_CHECKING:
    from crumb.options import Options
    from crumb.scale.pool import FilePool

LEAST, MOST = 4, 64  # candidates that a cluster needs, and usually may have, as multiples of n
SHORTLIST_CELLS = 40_000_000  # clusters × candidates × columns that are kept: 320 MB
ENTRY_CELLS = 10  # columns that a candidate counts for at least: sorting it costs as much
KNN_ENTRIES = 20_000_000  # points × rows of a context
MOST_CENTROIDS = 2_000  # of the pool: every row is compared with each of them
ROWS_PER_CENTROID = 100  # of the sample that mini-batch k-means sees


class FileFinder(Finder):
    """For a pool whose points are too many for memory."""

    whole = False

    def __init__(self, pool: FilePool, options: Options):
        self.pool, self.size, self.seed = pool, pool.size, options.seed
        self.min_per_class = options.min_per_class if pool.n_classes else 0
        self.reference = pool.reference

    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        found = self._pass([_rule(question) for question in questions], centroids)
        answers = []
        for number, question in enumerate(questions):
            if isinstance(question, Numbered):
                answers.append(question.lists)
            else:
                answers.append([self.held.numbers(rows) for rows in found.lists_of(number)])
        return answers

    def _pass(self, rules: Sequence[Rule], centroids: np.ndarray) -> Shortlist:
        """What the rules want, and what ``min_per_class`` may need, in one pass."""
        pool, with_codes = self.pool, self.min_per_class > 0
        if with_codes:
            strata = next((rule for rule in rules if isinstance(rule, Strata)), None)
            classes, m = pool.n_classes or 0, self.min_per_class
            rules = [*rules, RareClasses(centroids, classes, m, strata)]
        score = Score(pool.reader, rules, len(centroids), with_codes)
        found = score_shards(pool.engine, pool.source.shards, score, pool.sketch, pool.verbose)
        kept = found.done()
        self.held = Held(kept.points, kept.codes, kept.ids)
        return found

    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        kernel = problem.search.name
        among = FileCandidates(problem, labels, centroids, self.size)
        found = self._pass(among.rules, centroids)
        return Among(
            among.count,
            among.of_clusters(found),
            among.count,
            among.count if kernel == "exact" else None,
            among.facts,
        )

    def centroids(self, n_clusters: int) -> np.ndarray:
        """By mini-batch k-means on a sample."""
        from sklearn.cluster import MiniBatchKMeans

        n_clusters = min(n_clusters, MOST_CENTROIDS)
        fraction = min(1.0, n_clusters * ROWS_PER_CENTROID / self.size)
        sample, _ = self.pool.read_points(ReadPoints(self.pool.reader, fraction, False))
        n_clusters, seed = min(n_clusters, len(sample)), self.seed % 2**32
        with quiet(category=UserWarning):
            means = MiniBatchKMeans(n_clusters, random_state=seed, n_init=1, batch_size=4_096)
            return np.unique(means.fit(sample).cluster_centers_, axis=0)


def _rule(question: Question) -> Rule:
    if isinstance(question, Numbered):
        return NumberedRows(np.concatenate(question.lists))
    if isinstance(question, Nearest):
        if len(question.points) * question.n > KNN_ENTRIES:
            raise InvalidInput(
                f"The nearest {question.n:,} rows of {len(question.points):,} points are too many "
                f"for a pool in files: ask for at most {max(1, KNN_ENTRIES // question.n):,} "
                "queries at a time, or lower context_size."
            )
        return NearestRows(question.points, question.n)
    return RowsOfCells(question.centroids, question.n, question.cells)


class FileCandidates:
    """The candidates of clusters: what a pass should keep, and what herding gets of it."""

    def __init__(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray, size: int):
        self.problem, self.kernel, self.size = problem, problem.search.name, size
        self.n = problem.n
        members = [problem.queries[labels == k] for k in range(len(centroids))]
        room = SHORTLIST_CELLS // (len(members) * max(problem.queries.shape[1], ENTRY_CELLS))
        if room < LEAST * self.n:
            raise InvalidInput(
                f"{len(members)} contexts of {self.n:,} rows have no room among the candidates of "
                f"a pool in files: lower context_size to {room // LEAST:,}, or n_clusters."
            )
        self.asking: list[np.ndarray] = []  # queries whose neighbours are candidates
        self.facts: dict[str, Any] = {"scored_by": "rff"}
        measure: Closeness = Distance(centroids)
        if self.kernel == "rff":
            self.count = min(room, size)
            features = problem.features()
            measure = RffCross(features.omega.numpy(), features.phase.numpy(), members)
        else:
            self.asking = asking(labels, self.n, problem.seed)
            self.count = min(2 * room // 3, size)  # neighbours come on top
            if self.kernel != "exact":  # which takes as many as there is room for
                self.count = min(self.count, MOST * self.n)
        self.strata = Strata(measure, members, self.count)
        # Where the queries reach much farther than the pool, nearly all rows are in one stratum.
        # Some random rows then fill the contexts up.
        spare = generator(problem.seed, "spare").choice(size, min(self.n, size), replace=False)
        self.rules: list[Rule] = [self.strata, NumberedRows(spare)]
        if self.asking:
            self.rules.append(self._neighbours())

    def _neighbours(self) -> NearestRows:
        """Among all rows with ``kernel="exact"``, otherwise among as many as take seconds."""
        every, sizes = np.concatenate(self.asking), list(map(len, self.asking))
        exact = self.kernel == "exact"
        fraction = 1.0 if exact else fraction_searched(self.size, len(every))
        self.facts = {"scored_by": "distance", "neighbours_among": round(fraction * self.size)}
        each = [each_of(neighbours_beside(self.count, self.n), size) for size in sizes]
        groups, counts = np.repeat(np.arange(len(sizes)), sizes), np.repeat(each, sizes)
        queries = self.problem.queries[every]
        return NearestRows(queries, counts, fraction, groups, roughly=True)

    def of_clusters(self, found: Shortlist) -> Candidates:
        """From what the pass has kept."""
        strata, (spare,) = found.lists_of(0), found.lists_of(1)
        counts = found.counts_of(0)
        near = iter(found.lists_of(2) if self.asking else ())
        neighbours = [list(islice(near, len(some))) for some in self.asking]

        def of_cluster(k: int, count: int) -> np.ndarray:
            rows = [self.strata.candidates(strata, counts, k, count)]
            beside = neighbours_beside(count, self.n)
            if self.asking and beside:
                rows += [some[: each_of(beside, len(self.asking[k]))] for some in neighbours[k]]
            together = np.unique(np.concatenate(rows))
            return together if len(together) >= self.n else np.union1d(together, spare)

        return lambda clusters, count: [of_cluster(k, count) for k in clusters]
