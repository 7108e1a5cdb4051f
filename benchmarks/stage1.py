"""Stage 1 for a million queries: k-means on all of them, and from a sample first.

    python benchmarks/stage1.py --out benchmarks/results/stage1.json

Beside it the canonical order of rows, by every column and by a weighted sum of the columns.
"""

from __future__ import annotations

from collections.abc import Callable

import common
import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans

from crumb.selection.base import cluster, nearest_centroid, value_order

CLUSTERS = 20


def centroid_ways(points: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    def sklearn(kind: type) -> np.ndarray:
        return kind(CLUSTERS, n_init=1, random_state=0).fit(points).cluster_centers_

    return {
        "all": lambda: sklearn(KMeans),
        "mini-batches": lambda: sklearn(MiniBatchKMeans),
        "sample first": lambda: cluster(points, CLUSTERS, 0)[1],
    }


def measure(kind: str, points: np.ndarray) -> list[common.Record]:
    records, least = [], 0.0
    found, seconds = common.in_turn(centroid_ways(points), 1)
    for way, centroids in found.items():
        inertia = float(((points - centroids[nearest_centroid(points, centroids)]) ** 2).sum())
        least = least or inertia
        record = {"points": kind, "way": way, "seconds": round(seconds[way][0], 2)}
        records.append(record | {"inertia": inertia, "inertia_ratio": round(inertia / least, 4)})
    orders = {"lexsort": lambda: np.lexsort(points.T), "value_order": lambda: value_order(points)}
    for way, (taken,) in common.in_turn(orders, 1)[1].items():
        records.append({"points": kind, "way": way, "seconds": round(taken, 2)})
    return [common.say(record) for record in records]


def main() -> None:
    options = common.parser(__doc__, queries=1_000_000).parse_args()
    cloud = np.random.default_rng(0).normal(size=(options.queries, 20))
    records = measure("gauss", cloud)
    records += measure("blobs", common.blobs(options.queries, 20, 40, cluster_std=3))
    common.write(options, records)


if __name__ == "__main__":
    main()
