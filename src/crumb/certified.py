"""Exact herding at the price of an approximation: herd among few candidates, and prove that no other row could win.

**Candidates.** A row far from a cluster of queries is never chosen for it. So each cluster begins with the rows of
largest cross-term, and only candidates carry a running sum.

**The proof.** Let φ(x) = κ(x, ·), μₖ the mean of φ over the queries of cluster k, and W = Σ φ(chosen) − (t + 1) μₖ. The
next choice is the row with the least ⟨φ(x), W⟩. The cross-terms of a row with *all* K clusters are known: they are its
inner products with μ₁ … μ_K, and those of W are sums of them. With P the projection on their span,

    ⟨φ(x), W⟩  ≥  ⟨Pφ(x), PW⟩ − ‖φ(x) − Pφ(x)‖ · ‖W − PW‖,

and every term on the right is known without one new kernel value. After every few choices all rows are held against
them: W has moved within known limits, so two matrix products bound the score of a row at each of the choices. A row
that is not excluded becomes a candidate, with its true running sum; had it been the better choice, the choices since
the last verification are taken back and made again. So each choice is that of exact herding over the whole pool.

Where the queries of a cluster lie close together, few rows remain; where they do not, the bound excludes little, and
``TooManyCandidates`` says so early.

Shapes: K clusters, N pool rows, T queries, M candidates a cluster, h choices between two verifications, d columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from crumb.herding.greedy import Herded
from crumb.herding.kernel import Rbf, norms
from crumb.herding.objective import cross_terms
from crumb.parallel import MapBlocks

FIRST = 4  # candidates a cluster to begin with, as a multiple of the context budget
MOST = 0.2  # share of the pool above which herding over the whole pool is as fast
WINDOW = 32  # choices between two verifications, at most
PILOT_ROWS, PILOT_BUDGET = (
    8_000,
    200,
)  # pool rows, and rows chosen from them, to see whether it is worth while
MOST_QUERIES = 20_000  # above which the means among the clusters (T² kernel values) cost too much
MOST_CELLS = 40_000_000  # K × N, above which the cross-terms take too much memory
BLOCK = 1 << 12  # pool rows a block of the bound: what is kept of them stays in a CPU's cache
LEAST_EIGENVALUE = (
    1e-4  # of the means' Gram matrix, as a share of the largest; directions below are left out
)


@dataclass(frozen=True)
class Certificate:
    """How it was shown that the choices are those of exact herding over the whole pool."""

    verifications: int  # how often all other rows were held against the choices
    redone: int  # how often choices of a cluster had to be taken back and made again
    candidates: int  # rows of all clusters together that carried a running sum


class TooManyCandidates(Exception):
    """The bound excludes too few rows for this to be worth while."""


def herd_certified(
    kernel: Rbf,
    pool: Tensor,
    queries: Tensor,
    labels: Tensor,
    n: int,
    map_blocks: MapBlocks = map,
    most: float = MOST,
) -> tuple[list[Herded], Certificate]:
    """Choose ``n`` ≤ N rows for each cluster of queries (labels 0 … K−1, all present) by exact herding, B = 1.

    Which of several equal rows is chosen is left open. Raises ``TooManyCandidates`` when more than the share ``most``
    of the pool would have to be candidates.
    """
    herding = _Herding(kernel, pool, queries, labels, n, map_blocks, most)
    while (t := herding.clusters[0].t) < n:
        until = min(n, t + min(max(1, t), WINDOW))
        waiting = herding.clusters
        while waiting:  # those whose choices did not hold make them again, with more candidates
            list(map_blocks(partial(_advance, waiting, until), range(len(waiting))))
            waiting = herding.verify()
    contexts = [Herded(cluster.rows, cluster.mmd2, "budget") for cluster in herding.clusters]
    candidates = sum(len(cluster.ids) for cluster in herding.clusters)
    return contexts, Certificate(herding.verifications, herding.redone, candidates)


def _advance(clusters: list[_Cluster], until: int, which: int) -> None:
    clusters[which].advance(until)


def worth_while(
    kernel: Rbf, pool: Tensor, queries: Tensor, labels: Tensor, n: int, seed: int
) -> bool:
    """Whether few rows would be candidates, judged by a sample of the pool."""
    if pool.dtype != torch.float64 or len(pool) < max(2 * PILOT_ROWS, 10 * FIRST * n):
        return False  # in single precision nothing is proven; small pools are fast anyway
    if len(queries) > MOST_QUERIES or (int(labels.max()) + 1) * len(pool) > MOST_CELLS:
        return False
    sample = torch.from_numpy(
        np.random.default_rng(seed).choice(len(pool), PILOT_ROWS, replace=False)
    )
    try:
        herd_certified(kernel, pool[sample], queries, labels, min(n, PILOT_BUDGET))
    except TooManyCandidates:
        return False
    return True


@dataclass(frozen=True)
class _Window:
    """What W was at each of the last choices of a cluster."""

    score: Tensor  # (h,)   ⟨φ(chosen), W⟩
    along: Tensor  # (h, K) ⟨μⱼ, W⟩
    squared: Tensor  # (h,)   ‖W‖²


class _Cluster:
    """The candidates of one cluster and what has been chosen from them."""

    def __init__(
        self,
        kernel: Rbf,
        pool: Tensor,
        queries: Tensor,
        n: int,
        cross: Tensor,
        means: Tensor,
        k: int,
    ):
        self.kernel, self.pool, self.queries, self.cross, self.means, self.k = (
            kernel,
            pool,
            queries,
            cross,
            means,
            k,
        )
        self.rows, self.mmd2 = np.empty(n, dtype=np.int64), np.empty(n)
        self.t, self.cross_sum, self.gram_sum = (
            0,
            0.0,
            0.0,
        )  # rows so far, Σ of their cross-terms, Σ κ among them
        self.along = pool.new_zeros(len(cross))  # (K,) Σ of their cross-terms with every cluster
        self.ids = torch.empty(0, dtype=torch.long)  # (M,) pool rows
        self.sums = pool.new_empty(0)  # (M,) Σ κ of each candidate to the chosen rows
        self.pull = pool.new_empty(0)  # (M,) minus its cross-term; +∞ once it is chosen

    def extend(self, rows: Tensor) -> None:
        """Pool rows join the candidates, which stay in the order of the pool."""
        points = self.pool[rows]
        pull = -self.kernel.row_means(points, self.queries)
        sums = self.kernel.row_means(points, self.pool[self.rows[: self.t]]) * self.t
        self.ids, order = torch.cat([self.ids, rows]).sort()
        self.pull, self.sums = (
            torch.cat([self.pull, pull])[order],
            torch.cat([self.sums, sums])[order],
        )
        self.points = self.pool[self.ids]
        self.norms = norms(self.points)

    def advance(self, until: int) -> None:
        """Choose rows until there are ``until``."""
        self.before = (
            self.t,
            self.cross_sum,
            self.gram_sum,
            self.along,
            self.ids,
            self.sums.clone(),
            self.pull.clone(),
        )
        within, score, squared, places = float(self.means[self.k]), [], [], []
        for t in range(self.t, until):
            values = torch.add(self.pull, self.sums, alpha=1 / (t + 1))
            place = int(values.argmin())
            score.append((t + 1) * float(values[place]))
            squared.append(self.gram_sum - 2 * (t + 1) * self.cross_sum + (t + 1) ** 2 * within)
            self.cross_sum -= float(self.pull[place])
            self.gram_sum += 2 * float(self.sums[place]) + 1
            self.mmd2[t] = within - 2 * self.cross_sum / (t + 1) + self.gram_sum / (t + 1) ** 2
            self.sums += self.kernel(self.points[place, None], self.points, self.norms)[0]
            self.pull[place] = torch.inf
            places.append(place)
        self.rows[self.t : until] = self.ids[places].numpy()
        cross = self.cross[:, self.ids[places]].T  # (h, K)
        sums = torch.cat([self.along[None], cross]).cumsum(0)  # (h + 1, K)
        sizes = torch.arange(self.t + 1, until + 1, dtype=sums.dtype)
        along = sums[:-1] - torch.outer(sizes, self.means)
        self.window = _Window(sums.new_tensor(score), along, sums.new_tensor(squared))
        self.along, self.t = sums[-1], until

    def holds_against(self, rows: Tensor) -> bool:
        """Whether none of these pool rows was the better choice at one of the last choices."""
        start, points = self.before[0], self.pool[rows]
        earlier = self.kernel.row_means(points, self.pool[self.rows[:start]]) * start
        since = self.kernel(points, self.pool[self.rows[start : self.t]])  # (m, h)
        sums = torch.cat([earlier[:, None], since[:, :-1]], 1).cumsum(1)
        sizes = torch.arange(start + 1, self.t + 1, dtype=sums.dtype)
        scores = sums - torch.outer(self.kernel.row_means(points, self.queries), sizes)
        return bool((scores >= self.window.score).all())

    def go_back(self) -> None:
        """To before the last choices; candidates that have joined since get the running sums of then."""
        joined = self.ids[~torch.isin(self.ids, self.before[4])]
        self.t, self.cross_sum, self.gram_sum, self.along, self.ids, self.sums, self.pull = (
            self.before
        )
        self.extend(joined)


class _Herding:
    def __init__(
        self,
        kernel: Rbf,
        pool: Tensor,
        queries: Tensor,
        labels: Tensor,
        n: int,
        map_blocks: MapBlocks,
        most: float,
    ):
        self.pool, self.map_blocks = pool, map_blocks
        members = [queries[labels == k] for k in range(int(labels.max()) + 1)]
        self.most = int(most * len(pool) * len(members))
        # What rounding may have done to a mean of kernel values: squared distances are differences of squared norms.
        size = max(float(norms(pool).max()), float(norms(queries).max()))
        self.rounding = 32 * torch.finfo(pool.dtype).eps * (1 + size / kernel.sigma**2)
        self.cross = cross_terms(kernel, pool, queries, labels, len(members), map_blocks)  # (K, N)
        own = cross_terms(kernel, queries, queries, labels, len(members), map_blocks)  # (K, T)
        means = torch.stack(
            [own[:, labels == k].mean(1) for k in range(len(members))]
        )  # (K, K) ⟨μⱼ, μₖ⟩
        self.inverse = torch.linalg.pinv(means, rtol=LEAST_EIGENVALUE, hermitian=True)
        self.coordinates, self.around = self._projected()
        self.verifications = self.redone = 0
        self.is_candidate = torch.zeros(len(members), len(pool), dtype=torch.bool)
        self.clusters = [
            _Cluster(kernel, pool, some, n, self.cross, means[k], k)
            for k, some in enumerate(members)
        ]
        first = min(FIRST * n, len(pool))
        self._extend(
            list(map_blocks(lambda k: self.cross[k].topk(first).indices, range(len(members))))
        )

    def _projected(self) -> tuple[Tensor, Tensor]:
        """Coordinates of Pφ(x) in μ₁ … μ_K (K, N); ‖φ(x) − Pφ(x)‖, rounded up, and Σ |coordinates| (2, N)."""
        coordinates = torch.empty_like(self.cross)
        around = self.cross.new_empty(2, len(self.pool))

        def fill(start: int) -> None:
            rows = slice(start, start + BLOCK)
            cross = self.cross[:, rows]
            coordinates[:, rows] = self.inverse @ cross
            size = coordinates[:, rows].abs().sum(0)
            rest = 1 - (cross * coordinates[:, rows]).sum(0) + 2 * self.rounding * size
            around[0, rows], around[1, rows] = rest.clamp_min(0).sqrt(), size

        list(self.map_blocks(fill, range(0, len(self.pool), BLOCK)))
        return coordinates, around

    def verify(self) -> list[_Cluster]:
        """Hold every other row against the last choices; those that are not excluded join.

        The clusters that had to take their last choices back.
        """
        found = self._not_excluded(*self.limits())
        self.verifications += 1
        if not len(found):
            return []
        more = [found[found[:, 0] == k, 1] for k in range(len(self.clusters))]
        held = list(
            self.map_blocks(lambda k: self.clusters[k].holds_against(more[k]), range(len(more)))
        )
        self._extend(more)
        failed = [cluster for cluster, holds in zip(self.clusters, held, strict=True) if not holds]
        for cluster in failed:
            cluster.go_back()
        self.redone += len(failed)
        return failed

    def limits(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of W over the last choices of each cluster: least and largest ⟨μⱼ, W⟩ (K, K); ‖W − PW‖ and the error of those
        products (K, 2); the largest score (K,)."""
        size = self.clusters[0].t + 1  # W is a sum of so many terms, and so is its error
        windows = [cluster.window for cluster in self.clusters]
        low = torch.stack([window.along.min(0).values for window in windows])
        high = torch.stack([window.along.max(0).values for window in windows])
        weights = [window.along @ self.inverse for window in windows]
        slack = [2 * self.rounding * size * (weight.abs().sum(1).max() + 1) for weight in weights]
        unseen = [
            ((window.squared - (weight * window.along).sum(1)).max() + error).clamp_min(0).sqrt()
            for window, weight, error in zip(windows, weights, slack, strict=True)
        ]
        score = [window.score.max() + error for window, error in zip(windows, slack, strict=True)]
        reach = torch.stack(
            [torch.stack(unseen), torch.full_like(low[:, 0], 2 * self.rounding * size)], 1
        )
        return low, high, reach, torch.stack(score)

    def bound(self, rows: slice, low: Tensor, high: Tensor, reach: Tensor) -> Tensor:
        """(K, b) below the score of each row of a block at every one of the last choices."""
        coordinates = self.coordinates[:, rows]
        seen = low @ coordinates.clamp_min(0) + high @ coordinates.clamp_max(0)
        return torch.addmm(seen, reach, self.around[:, rows], alpha=-1.0)

    def _not_excluded(self, low: Tensor, high: Tensor, reach: Tensor, score: Tensor) -> Tensor:
        """(…, 2) clusters and rows that may have been the better choice."""

        def of_block(start: int) -> Tensor:
            rows = slice(start, start + BLOCK)
            possible = (self.bound(rows, low, high, reach) < score[:, None]) & ~self.is_candidate[
                :, rows
            ]
            return possible.nonzero() + torch.tensor([0, start])

        return torch.cat(list(self.map_blocks(of_block, range(0, len(self.pool), BLOCK))))

    def _extend(self, more: list[Tensor]) -> None:
        if (
            sum(
                len(cluster.ids) + len(rows)
                for cluster, rows in zip(self.clusters, more, strict=True)
            )
            > self.most
        ):
            raise TooManyCandidates
        list(self.map_blocks(lambda k: self.clusters[k].extend(more[k]), range(len(more))))
        for k, rows in enumerate(more):
            self.is_candidate[k, rows] = True
