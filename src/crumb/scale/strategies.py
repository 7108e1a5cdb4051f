"""The strategies on a pool that is not in memory: what each wants to be kept of it, and what it makes of that.

A ``Wish`` is made from the queries alone; its rules go to the workers. ``select`` gets the shortlist that they filled,
and answers in positions of that list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from crumb.errors import InvalidInput
from crumb.herding.candidates import Candidates, herd_candidates, neighbours_beside
from crumb.herding.clusters import Clusters
from crumb.herding.kernel import Rbf
from crumb.herding.neighbours import asking, each_of, fraction_searched
from crumb.quiet import quiet
from crumb.scale.closeness import Closeness, Distance, RffCross
from crumb.scale.rules import Anyone, Cells, Nearest, Numbered, Rule, Strata
from crumb.scale.shortlist import Shortlist
from crumb.selection import (
    KNN,
    MICP,
    MMD,
    CentroidNN,
    Full,
    Problem,
    Selection,
    Strategy,
    Uniform,
    VoronoiUniform,
)
from crumb.selection.base import top_up
from crumb.selection.clustering import cluster, nearest_centroid

LEAST, MOST = (
    4,
    64,
)  # candidates a cluster must have room for, and usually may have, as multiples of the budget
SHORTLIST_CELLS = (
    40_000_000  # numbers (clusters × candidates × columns) that candidates may take: 320 MB
)
ENTRY_CELLS = 10  # numbers that a candidate counts for at least: being sorted costs as much
KNN_ENTRIES = 20_000_000  # queries × rows of a context
MOST_PROMPTERS = 2_000  # of MICP: each row of the pool is held against every one of them
ROWS_PER_PROMPTER = 100  # of the sample that mini-batch k-means sees


@dataclass(frozen=True)
class Pass:
    """What a strategy may ask of the pool before the pass that scores it."""

    rows: int  # N
    sample: Callable[[int], np.ndarray]  # at most so many points, drawn from the whole pool


class Wish(ABC):
    labels: np.ndarray
    centroids: np.ndarray
    rules: list[Rule]

    @abstractmethod
    def select(self, problem: Problem, found: Shortlist) -> Selection:
        """Contexts by position in the shortlist, whose points are ``problem.pool``."""

    def _chosen(self, contexts: list[np.ndarray]) -> Selection:
        return Selection(self.labels, self.centroids, contexts, ["budget"] * len(contexts))


class MmdWish(Wish):
    """Candidates where the queries lie, and their neighbours; herded among with the exact kernel, in memory."""

    def __init__(self, problem: Problem, strategy: MMD, pool: Pass):
        self.labels, self.centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        self.kernel, self.n = problem.kernel.name, problem.n
        members = [problem.queries[self.labels == k] for k in range(len(self.centroids))]
        room = SHORTLIST_CELLS // (len(members) * max(problem.queries.shape[1], ENTRY_CELLS))
        if room < LEAST * problem.n:
            raise InvalidInput(
                f"{len(members)} contexts of {problem.n:,} rows have no room among the candidates of a pool on disk: "
                f"lower context_size to {room // LEAST:,}, or n_clusters."
            )
        self.count = min(room, pool.rows)
        self.asking: list[np.ndarray] = []  # queries whose neighbours are candidates
        self.facts: dict[str, Any] = {"scored_by": "rff"}
        if self.kernel == "rff":
            features = problem.features()
            measure: Closeness = RffCross(features.omega.numpy(), features.phase.numpy(), members)
            self.strata = Strata(measure, members, self.count)
        else:
            self.count = min(2 * room // 3, pool.rows)  # neighbours come besides
            if self.kernel != "exact":  # whoever asks for it gets all that there is room for
                self.count = min(self.count, MOST * problem.n)
            self.strata = Strata(Distance(self.centroids), members, self.count)
            self.asking = asking(self.labels, problem.n, problem.seed)
        # Where the queries reach much farther than the pool, nearly all rows are in one stratum: some more stand by.
        self.rules = [self.strata, Anyone(problem.n)]
        if self.asking:
            self.rules.append(self._neighbours(problem, pool))

    def _neighbours(self, problem: Problem, pool: Pass) -> Nearest:
        """With ``kernel="exact"`` every row is held against every query, otherwise as many as take seconds."""
        every, sizes = np.concatenate(self.asking), list(map(len, self.asking))
        share = 1.0 if self.kernel == "exact" else fraction_searched(pool.rows, len(every))
        self.facts = {"scored_by": "distance", "neighbours_among": round(share * pool.rows)}
        each = [each_of(neighbours_beside(self.count, problem.n), size) for size in sizes]
        groups = np.repeat(np.arange(len(sizes)), sizes)
        return Nearest(
            problem.queries[every], np.repeat(each, sizes), share, groups, all_of_them=False
        )

    def select(self, problem: Problem, found: Shortlist) -> Selection:
        herded, doubling = herd_candidates(
            Rbf(problem.kernel.bandwidth),
            torch.from_numpy(problem.pool),
            Clusters(torch.from_numpy(problem.queries), torch.from_numpy(self.labels)),
            problem.n,
            self.count,
            problem.seed,
            problem.map_blocks,
            problem.early_stopping,
            candidates=self._candidates(found),
            available=self.count,
            first=self.count if self.kernel == "exact" else None,
        )
        problem.progress(problem.n)
        return Selection(
            self.labels,
            self.centroids,
            contexts=[context.indices for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel="candidates",
            facts={"candidates": asdict(doubling), **self.facts},
        )

    def _candidates(self, found: Shortlist) -> Candidates:
        """As of a pool in memory, from what the pass has kept."""
        strata, (anyone,) = found.bins_of(0), found.bins_of(1)
        counts = found.counts[: self.strata.n_bins]
        near = iter(found.bins_of(2) if self.asking else ())
        neighbours = [list(islice(near, len(some))) for some in self.asking]

        def of_cluster(k: int, count: int) -> np.ndarray:
            rows, beside = (
                [self.strata.rows(strata, counts, k, count)],
                neighbours_beside(count, self.n),
            )
            if self.asking and beside:
                rows += [some[: each_of(beside, len(self.asking[k]))] for some in neighbours[k]]
            together = np.unique(np.concatenate(rows))
            return together if len(together) >= self.n else np.union1d(together, anyone)

        return lambda clusters, count: [of_cluster(k, count) for k in clusters]


class CentroidWish(Wish):
    def __init__(self, problem: Problem, strategy: CentroidNN, pool: Pass):
        self.labels, self.centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        self.rules = [Nearest(self.centroids, problem.n)]

    def select(self, problem: Problem, found: Shortlist) -> Selection:
        return self._chosen(found.bins_of(0))


class KnnWish(CentroidWish):
    def __init__(self, problem: Problem, strategy: KNN, pool: Pass):
        if len(problem.queries) * problem.n > KNN_ENTRIES:
            raise InvalidInput(
                f"strategy='knn' would keep {problem.n:,} rows for each of {len(problem.queries):,} queries: ask at "
                f"most {max(1, KNN_ENTRIES // problem.n):,} at a time of a pool on disk, or lower context_size."
            )
        self.labels, self.centroids = np.arange(len(problem.queries)), problem.queries
        self.rules = [Nearest(self.centroids, problem.n)]


class VoronoiWish(Wish):
    def __init__(self, problem: Problem, strategy: VoronoiUniform, pool: Pass):
        self.labels, self.centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        self.rules = [Cells(len(self.centroids), problem.n), Nearest(self.centroids, problem.n)]

    def select(self, problem: Problem, found: Shortlist) -> Selection:
        pairs = zip(found.bins_of(0), found.bins_of(1), strict=True)
        return self._chosen([top_up(own, nearest, problem.n) for own, nearest in pairs])


class MicpWish(VoronoiWish):
    """Mini-batch k-means on a sample in the place of k-means on the pool, with a limit on the prompters."""

    def __init__(self, problem: Problem, strategy: MICP, pool: Pass):
        prompters = min(strategy.prompters(pool.rows, problem.n), MOST_PROMPTERS)
        every = _mini_batch_centroids(
            pool.sample(prompters * ROWS_PER_PROMPTER), prompters, problem.seed
        )
        used, self.labels = np.unique(nearest_centroid(problem.queries, every), return_inverse=True)
        self.centroids = every[used]
        self.rules = [Cells(len(used), problem.n, every, used), Nearest(self.centroids, problem.n)]


class UniformWish(Wish):
    """The same draw as in memory: it needs nothing but the number of rows."""

    def __init__(self, problem: Problem, strategy: Uniform, pool: Pass):
        self.labels, self.centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        rng = problem.rng("uniform")
        self.drawn = [rng.choice(pool.rows, problem.n, replace=False) for _ in self.centroids]
        self.rules = [Numbered(np.concatenate(self.drawn))]

    def select(self, problem: Problem, found: Shortlist) -> Selection:
        ids = found.done().ids
        return self._chosen([np.searchsorted(ids, context) for context in self.drawn])


WISHES: dict[type[Strategy], Any] = {
    MMD: MmdWish,
    CentroidNN: CentroidWish,
    KNN: KnnWish,
    VoronoiUniform: VoronoiWish,
    MICP: MicpWish,
    Uniform: UniformWish,
}


def check_strategy(strategy: Strategy) -> None:
    """Whether a strategy can do without the whole pool; found out before the files are read."""
    if isinstance(strategy, Full):
        raise InvalidInput(
            "strategy='full' needs the whole pool in memory, and this one is too large for that: choose another "
            "strategy, or read the table yourself and pass it."
        )
    if type(strategy) not in WISHES:
        raise InvalidInput(
            f"The strategy {strategy!r} needs the pool in memory: read the table yourself and pass it."
        )


def make_wish(problem: Problem, strategy: Strategy, pool: Pass) -> Wish:
    return WISHES[type(strategy)](problem, strategy, pool)


def _mini_batch_centroids(sample: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    from sklearn.cluster import MiniBatchKMeans

    with quiet(category=UserWarning):
        means = MiniBatchKMeans(
            min(n_clusters, len(sample)), random_state=seed % 2**32, n_init=1, batch_size=4_096
        )
        return np.unique(means.fit(sample).cluster_centers_, axis=0)
