"""Which rows are worth herding among? MMD² of contexts from few candidates, as a multiple of exact herding's.

    python benchmarks/candidates.py --out benchmarks/results/candidates.json

Three made tables: many Gaussian groups, one cloud, and blobs that lie apart, each of which is a cluster of queries.
Candidates are drawn by their distance from the centroid, or are the nearest rows of each query, or half and half.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import make_blobs

from crumb.files import atomic_write
from crumb.herding.greedy import herd
from crumb.herding.kernel import Rbf
from crumb.herding.neighbours import PoolCandidates, rows_at_distances
from crumb.herding.objective import CandidateObjective
from crumb.selection.clustering import cluster

sys.path.insert(0, str(Path(__file__).parent / "scale"))
import generate

QUERIES, CLUSTERS = 1_000, 20


def table(kind: str, rows: int, columns: int) -> np.ndarray:
    """Rows and queries, standardised; the queries come first."""
    if kind == "groups":
        parts = [generate.queries(QUERIES)]
        parts += [
            generate.rows(p, min(1_000_000, rows - p * 1_000_000))
            for p in range(-(-rows // 1_000_000))
        ]
        points = np.concatenate([np.column_stack(list(part.values())[:columns]) for part in parts])
    elif kind == "cloud":
        points = np.random.default_rng(0).normal(size=(QUERIES + rows, columns))
    else:
        points, _ = make_blobs(QUERIES + rows, columns, centers=CLUSTERS, random_state=0)
    return (points - points.mean(axis=0)) / points.std(axis=0)


def compare(kind: str, rows: int, columns: int, n: int, clusters: list[int]) -> dict[str, object]:
    points = table(kind, rows, columns)
    queries, pool = points[:QUERIES], points[QUERIES:].astype(np.float32)
    labels, _ = cluster(queries, CLUSTERS, 0)
    sigma = float(np.median(pdist(pool[:2_000])))
    near, order = (
        PoolCandidates(pool, queries, labels, n, 0).neighbours,
        np.random.default_rng(0).permutation(rows),
    )
    found: dict[str, list[float]] = {}
    for k in clusters:
        mine = queries[labels == k]
        gaps = pool - mine.mean(axis=0).astype(np.float32)
        distance = np.einsum("ij,ij->i", gaps, gaps)
        of_queries = ((mine - mine.mean(axis=0)) ** 2).sum(axis=1)
        cross = np.concatenate(
            [mean_kernel(pool[i : i + 50_000], mine, sigma) for i in range(0, rows, 50_000)]
        )
        ways = {"exact": np.arange(rows)}
        for times in (24, 48, 96):
            count = times * n
            drawn = rows_at_distances(distance, of_queries, count, order)
            ways[f"by distance, {times}n"] = drawn
            ways[f"neighbours, {times}n"] = near([k], count)[0]
            half = rows_at_distances(distance, of_queries, count // 2, order)
            ways[f"half and half, {times}n"] = np.union1d(half, near([k], count // 2)[0])
        for way, candidates in ways.items():
            points = torch.from_numpy(gaps[candidates].astype(np.float64))
            terms = torch.from_numpy(cross[candidates])
            objective = CandidateObjective(
                Rbf(sigma), [points], [terms], torch.zeros(1), np.float32
            )
            (context,) = herd(objective, n)
            found.setdefault(way, []).append(mmd2(pool[candidates[context.indices]], mine, sigma))
    means = {way: float(np.mean(values)) for way, values in found.items()}
    ratios = {way: round(value / means["exact"], 3) for way, value in means.items()}
    return {
        "table": kind,
        "rows": rows,
        "columns": columns,
        "n": n,
        "clusters": clusters,
        "mmd2_ratio": ratios,
    }


def mean_kernel(some: np.ndarray, others: np.ndarray, sigma: float) -> np.ndarray:
    return np.exp(-0.5 / sigma**2 * cdist(some, others, "sqeuclidean")).mean(axis=1)


def mmd2(context: np.ndarray, queries: np.ndarray, sigma: float) -> float:
    pairs = ((context, context), (queries, queries), (context, queries))
    own, of_queries, cross = (mean_kernel(some, others, sigma).mean() for some, others in pairs)
    return float(own + of_queries - 2 * cross)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables",
        nargs="+",
        default=[
            "groups:1000000x20",
            "groups:3000000x6",
            "cloud:1000000x20",
            "cloud:1000000x4",
            "blobs:200000x20",
        ],
    )
    parser.add_argument("--context-size", type=int, default=500)
    parser.add_argument("--clusters", type=int, nargs="+", default=[0, 7, 13])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = []
    for word in options.tables:
        kind, shape = word.split(":")
        rows, columns = map(int, shape.split("x"))
        found.append(compare(kind, rows, columns, options.context_size, options.clusters))
        print(json.dumps(found[-1]), flush=True)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
