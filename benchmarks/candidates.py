"""Which rows are worth herding among? MMD² from few candidates, as a multiple of exact herding's.

    python benchmarks/candidates.py --out benchmarks/results/candidates.json

Three kinds of made tables: many Gaussian groups, one cloud, and blobs that lie apart, each of which
is a cluster of queries. ``--clusters`` of 50 queries and, with 100 of them, of ten.
"""

from __future__ import annotations

import common
import numpy as np
import torch
from scipy.spatial.distance import cdist, pdist

from crumb.herding.candidates import CandidateObjective
from crumb.herding.greedy import Rbf, herd
from crumb.herding.neighbours import PoolCandidates
from crumb.selection.base import cluster

QUERIES, BLOBS = 1_000, 20
SOME = (0, 7, 13)  # clusters that are compared
TIMES = (4, 8, 12, 24, 48)
TABLES = ("groups:200000x20", "cloud:200000x20", "cloud:200000x4", "blobs:200000x20")


def table(kind: str, rows: int, columns: int) -> np.ndarray:
    """Queries and then rows, standardised."""
    if kind == "groups":
        starts = range(0, rows, 1_000_000)
        parts = [common.grouped_queries(QUERIES)]
        parts += [common.grouped_rows(i, min(1_000_000, rows - s)) for i, s in enumerate(starts)]
        points = np.concatenate([part[common.NAMES[:columns]].to_numpy() for part in parts])
    elif kind == "cloud":
        points = np.random.default_rng(0).normal(size=(QUERIES + rows, columns))
    else:
        points = common.blobs(QUERIES + rows, columns, BLOBS)
    return common.standardised(points)


class Cluster:
    """One cluster of queries, and the pool as it sees it."""

    def __init__(self, pool: np.ndarray, queries: np.ndarray, sigma: float):
        self.pool, self.queries, self.sigma = pool, queries, sigma
        self.gaps = pool - queries.mean(axis=0).astype(np.float32)
        parts = [pool[i : i + 50_000] for i in range(0, len(pool), 50_000)]
        self.cross = np.concatenate([mean_kernel(part, queries, sigma) for part in parts])

    def mmd2(self, candidates: np.ndarray, n: int) -> float:
        """Of the context that is herded among the candidates."""
        points = torch.from_numpy(self.gaps[candidates].astype(np.float64))
        cross = torch.from_numpy(self.cross[candidates])
        objective = CandidateObjective(
            Rbf(self.sigma), [points], [cross], torch.zeros(1), np.float32
        )
        (context,) = herd(objective, n)
        chosen = self.pool[candidates[context.indices]]
        pairs = ((chosen, chosen), (self.queries, self.queries), (chosen, self.queries))
        own, of_queries, cross = (mean_kernel(a, b, self.sigma).mean() for a, b in pairs)
        return float(own + of_queries - 2 * cross)


def mean_kernel(some: np.ndarray, others: np.ndarray, sigma: float) -> np.ndarray:
    return np.exp(-0.5 / sigma**2 * cdist(some, others, "sqeuclidean")).mean(axis=1)


def compare(kind: str, rows: int, columns: int, n: int, clusters: int) -> common.Record:
    points = table(kind, rows, columns)
    queries, pool = points[:QUERIES], points[QUERIES:].astype(np.float32)
    labels, _ = cluster(queries, clusters, 0)
    sigma = float(np.median(pdist(pool[:2_000])))
    near = PoolCandidates(pool, queries, labels, n, 0)
    counts = {"exact": rows} | {f"{times}n": times * n for times in TIMES}
    found: dict[str, list[float]] = {}
    for k in SOME:
        one = Cluster(pool, queries[labels == k], sigma)
        for way, count in counts.items():
            found.setdefault(way, []).append(one.mmd2(near([k], count)[0], n))
    exact = np.mean(found["exact"])
    ratios = {way: round(float(np.mean(values) / exact), 3) for way, values in found.items()}
    facts = {"table": kind, "rows": rows, "columns": columns, "n": n, "clusters": clusters}
    return common.say(facts | {"mmd2_ratio": ratios})


def main() -> None:
    parser = common.parser(__doc__, context_size=500)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="kind:rowsxcolumns")
    parser.add_argument("--clusters", type=int, nargs="+", default=[20, 100])
    options = parser.parse_args()
    records = []
    for word in options.tables:
        kind, shape = word.split(":")
        rows, columns = map(int, shape.split("x"))
        size = rows, columns, options.context_size
        records += [compare(kind, *size, clusters) for clusters in options.clusters]
    common.write(options, records)


if __name__ == "__main__":
    main()
