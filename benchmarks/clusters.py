"""Stage 1 for a million queries: k-means on all of them against k-means from a sample, and the canonical order of rows.

python benchmarks/clusters.py --out benchmarks/results/clusters.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.datasets import make_blobs

from crumb.files import atomic_write
from crumb.selection.clustering import _k_means, nearest_centroid, value_order


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records = []
    for kind in ("gauss", "blobs"):
        if kind == "gauss":
            points = np.random.default_rng(0).normal(size=(options.queries, 20))
        else:
            points = make_blobs(options.queries, 20, centers=40, cluster_std=3, random_state=0)[0]
        ways: dict[str, Callable[[], np.ndarray]] = {
            "all": lambda p=points: KMeans(20, n_init=1, random_state=0).fit(p).cluster_centers_,
            "mini-batches": lambda p=points: (
                MiniBatchKMeans(20, n_init=1, random_state=0).fit(p).cluster_centers_
            ),
            "sample first": lambda p=points: _k_means(p, 20, 0),
        }
        for name, way in ways.items():
            centroids, seconds = timed(way)
            inertia = float(((points - centroids[nearest_centroid(points, centroids)]) ** 2).sum())
            records.append(
                {"points": kind, "way": name, "seconds": round(seconds, 2), "inertia": inertia}
            )
        for name, order in (
            ("lexsort", lambda p=points: np.lexsort(p.T)),
            ("value_order", lambda p=points: value_order(p)),
        ):
            records.append({"points": kind, "way": name, "seconds": round(timed(order)[1], 2)})
    for record in records:
        if "inertia" in record:
            whole = next(
                r for r in records if r["points"] == record["points"] and r["way"] == "all"
            )
            record["inertia_ratio"] = round(record["inertia"] / whole["inertia"], 4)
        print(record)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(records, indent=1).encode())


if __name__ == "__main__":
    main()
