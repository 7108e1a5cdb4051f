"""Herding among few candidates: the exact kernel, at the price of an approximation. For CPUs, B = 1.

A context of n rows is chosen well from a few times n candidates, if these lie where the queries lie. So each cluster
draws candidates at the distances from its centroid at which its queries are (strata.py), and herds among these with the
exact kernel. That suffices where the cluster is one cloud of rows, and says nothing about the rows left out. So a tenth
of the clusters tries it with twice as many, and half as many again that are the nearest rows of each query
(neighbours.py), and again, until doubling them lowers the MMD² by less than ``ENOUGH``; all clusters then have as many.
What the last doubling brought is reported.

Shapes: K clusters, G of them in step, M candidates a cluster, n rows chosen, N pool rows, d columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from crumb.herding.greedy import Herded
from crumb.herding.kernel import Rbf, norms
from crumb.herding.neighbours import Neighbours
from crumb.herding.strata import all_inside, draw
from crumb.parallel import MapBlocks
from crumb.rng import generator

FIRST = 24  # candidates a cluster to begin with, as a multiple of the budget
ENOUGH = 0.02  # a doubling that lowers the MMD² by less was not needed
BLOCK = 1 << 13  # pool rows a block of the distances
GROUP = 5  # clusters that advance in step: threads wait for each other less over few and long operations …
GROUP_ROWS = 120_000  # … and these are long enough with so many candidates in all: more threads then have work
TRIAL = 10  # one in so many clusters tries more candidates, two at least

Candidates = Callable[
    [Sequence[int], int], list[np.ndarray]
]  # clusters, how many → rows of each, sorted


@dataclass(frozen=True)
class Doubling:
    """Candidates of each cluster, and the share by which twice as many lowered the MMD² of those that tried."""

    candidates: int  # drawn by distance; neighbours come besides
    gain: float | None  # None: nothing was tried

    @property
    def enough(self) -> bool:
        return self.gain is not None and self.gain < ENOUGH


def herd_candidates(
    kernel: Rbf,
    pool: Tensor,
    queries: Tensor,
    labels: Tensor,
    n: int,
    most: int,
    seed: int,
    map_blocks: MapBlocks = map,
    dtype: type = np.float32,
    candidates: Candidates | None = None,
    available: int | None = None,
    first: int | None = None,
) -> tuple[list[Herded], Doubling]:
    """Choose ``n`` ≤ N rows for each cluster of queries (labels 0 … K−1, all present), B = 1.

    Each cluster has 24n candidates, or twice as many and so on, but not more than ``most`` (24n at least). Running sums
    are kept in ``dtype``, of points relative to their cluster; all else is computed in float64. ``candidates`` gives so
    many rows for clusters (or fewer) where the pool itself is not at hand, ``available`` at most; ``first`` is how many
    to begin with.
    """
    herding = _Herding(kernel, pool, queries, labels, n, seed, dtype, map_blocks, candidates)
    whole = available is None
    available = len(pool) if available is None else available
    first = min(first or FIRST * n, available)
    every, count, gain = range(herding.n_clusters), first, None
    with threadpool_limits(1, "blas"):  # threads share the clusters, not the products
        found = herding(every, count)
        trial = _trial(found, seed)
        before = {k: found[k] for k in trial}
        while count < available:
            twice = min(2 * count, available)
            after = herding(trial, twice)
            gain = _gain(before, after)
            if gain < ENOUGH or twice > most:
                break
            before, count = after, twice
        if count > first:
            found = before | herding([k for k in every if k not in trial], count)
    # Of a whole pool nothing more is to be had.
    return [found[k] for k in every], Doubling(count, 0.0 if whole and count == len(pool) else gain)


def _trial(found: dict[int, Herded], seed: int) -> list[int]:
    """The clusters that try more candidates: drawn by their share in the mean MMD², which few clusters may dominate."""
    share = np.array([max(float(found[k].mmd2[-1]), 1e-300) for k in range(len(found))])
    size = max(min(2, len(found)), len(found) // TRIAL)
    return (
        generator(seed, "trial")
        .choice(len(found), size, replace=False, p=share / share.sum())
        .tolist()
    )


def _gain(before: dict[int, Herded], after: dict[int, Herded]) -> float:
    first, second = (
        sum(float(context.mmd2[-1]) for context in some.values()) for some in (before, after)
    )
    return max(0.0, 1 - second / first) if first > 0 else 0.0


class _Herding:
    def __init__(
        self,
        kernel: Rbf,
        pool: Tensor,
        queries: Tensor,
        labels: Tensor,
        n: int,
        seed: int,
        dtype: type,
        map_blocks: MapBlocks,
        candidates: Candidates | None,
    ):
        self.kernel, self.pool, self.n, self.dtype, self.map_blocks = (
            kernel,
            pool,
            n,
            dtype,
            map_blocks,
        )
        self.n_clusters = int(labels.max()) + 1
        members = [queries[labels == k].double() for k in range(self.n_clusters)]
        self.centroids = torch.stack([some.mean(0) for some in members])
        # Relative to its centroid no cluster is far from the origin, where squared distances would lose digits.
        self.members = [
            some - centroid for some, centroid in zip(members, self.centroids, strict=True)
        ]
        self.candidates = candidates or self._of_pool(queries, labels, seed)

    def _of_pool(self, queries: Tensor, labels: Tensor, seed: int) -> Candidates:
        # Rows are drawn as the first ones of a random order, so that twice as many candidates include those before.
        order = generator(seed, "candidates").permutation(len(self.pool))
        distance = self._distances()  # (K, N) squared, to the centroids
        near = Neighbours(
            self.pool.numpy(),
            queries.double().numpy(),
            labels.numpy(),
            self.n,
            seed,
            self.map_blocks,
        )

        def candidates(which: Sequence[int], count: int) -> list[np.ndarray]:
            if count == len(self.pool):
                return [np.arange(count)] * len(which)

            def strata(k: int) -> np.ndarray:
                return draw(distance[k], norms(self.members[k]).numpy(), count, order)

            found, neighbours = (
                list(self.map_blocks(strata, which)),
                neighbours_beside(count, self.n),
            )
            if not neighbours:
                return found
            # Where all rows as near as the queries were drawn, their neighbours are among them.
            more = [
                k
                for k in which
                if not all_inside(distance[k], norms(self.members[k]).numpy(), count)
            ]
            beside = dict(zip(more, near(more, neighbours), strict=True)) if more else {}
            return [
                np.union1d(rows, beside.get(k, rows[:0]))
                for k, rows in zip(which, found, strict=True)
            ]

        return candidates

    def _distances(self) -> np.ndarray:
        distance = torch.empty(self.n_clusters, len(self.pool), dtype=torch.float32)
        size = norms(self.centroids)[:, None]

        def fill(start: int) -> None:
            rows = self.pool[start : start + BLOCK].double()
            distance[:, start : start + BLOCK] = torch.addmm(
                size + norms(rows), self.centroids, rows.T, alpha=-2.0
            )

        list(self.map_blocks(fill, range(0, len(self.pool), BLOCK)))
        return distance.numpy()

    def __call__(self, which: Sequence[int], count: int) -> dict[int, Herded]:
        """The contexts of some clusters, from ``count`` candidates each."""
        rows = self.candidates(which, count)
        size = max(1, min(GROUP, GROUP_ROWS // count, len(which) // 2))

        def contexts(start: int) -> list[Herded]:
            return self.contexts(which[start : start + size], rows[start : start + size])

        return dict(
            zip(
                which,
                chain.from_iterable(self.map_blocks(contexts, range(0, len(which), size))),
                strict=True,
            )
        )

    def contexts(self, some: Sequence[int], rows: Sequence[np.ndarray]) -> list[Herded]:
        points = [
            self.pool[mine].double() - self.centroids[k] for k, mine in zip(some, rows, strict=True)
        ]
        cross = [
            self.kernel.row_means(x, self.members[k]).numpy()
            for k, x in zip(some, points, strict=True)
        ]
        scaled: list[np.ndarray] = [
            (x / self.kernel.sigma).numpy().astype(self.dtype) for x in points
        ]
        chosen = herd_among(_stacked(scaled), _stacked(cross, -np.inf).astype(self.dtype), self.n)
        return [
            Herded(
                mine[places], self.kernel.prefix_mmd2(x[places], self.members[k]).numpy(), "budget"
            )
            for k, mine, x, places in zip(some, rows, points, chosen, strict=True)
        ]


def neighbours_beside(drawn: int, n: int) -> int:
    """How many neighbours of the queries join so many candidates that are drawn by distance: none at first."""
    return 0 if drawn <= FIRST * n else drawn // 2


def _stacked(arrays: list[np.ndarray], filler: float = 0.0) -> np.ndarray:
    """Arrays of different lengths as one; what fills them up must never be chosen."""
    longest = max(map(len, arrays))
    if all(len(array) == longest for array in arrays):
        return np.stack(arrays)
    stack = np.full((len(arrays), longest, *arrays[0].shape[1:]), filler, dtype=arrays[0].dtype)
    for place, array in zip(stack, arrays, strict=True):
        place[: len(array)] = array
    return stack


def herd_among(points: np.ndarray, cross: np.ndarray, n: int) -> np.ndarray:
    """Herd n of the M candidates of each of G clusters, all in step.

    Points (G, M, d) in units of σ, their cross-terms (G, M) → places (G, n), in the order chosen. In numpy, which finds
    the least of some thousand numbers many times faster than torch and has the faster product here.
    """
    # With two more columns one product gives the exponent: x·y − ‖x‖²/2 − ‖y‖²/2.
    half = np.einsum("gmd,gmd->gm", points, points)[..., None] * points.dtype.type(-0.5)
    ones = np.ones_like(half)
    left = np.concatenate([points, half, ones], axis=2)  # (G, M, d + 2)
    right = np.ascontiguousarray(
        np.concatenate([points, ones, half], axis=2).swapaxes(1, 2)
    )  # (G, d + 2, M)
    pull, sums, score = -cross, np.zeros_like(cross), np.empty_like(cross)
    chosen, each = np.empty((len(points), n), dtype=np.int64), np.arange(len(points))
    for t in range(n):
        np.multiply(sums, points.dtype.type(1 / (t + 1)), out=score)
        score += pull
        chosen[:, t] = place = score.argmin(axis=1)
        np.matmul(left[each, place][:, None], right, out=score[:, None])
        sums += np.exp(score, out=score)
        pull[each, place] = np.inf
    return chosen
