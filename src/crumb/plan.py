"""The plan: which queries share which context, and the evidence for it. Plain arrays, no model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import PlanMismatch
from crumb.files import read_archive, write_archive
from crumb.selection.clustering import nearest_centroid

FORMAT = "crumb-plan"
VERSION = 1


@dataclass(eq=False)
class Plan:
    """Stages 1 and 2, finished: everything that stage 3 needs, and why it came out so.

    Attributes
    ----------
    labels : array (T,)
        The cluster of each query.
    contexts : list of K arrays
        Row indices into the pool, most wanted first.
    mmd2 : list of K arrays
        MMD² between the queries of a cluster and the first 1, 2, … rows of its context. Estimated
        from the random features with ``kernel="rff"``, exact otherwise; a single NaN where it was
        too costly to measure.
    stop_reasons : list of K strings
        Why each context has the size that it has.
    centroids : array (K, d)
        Where rows are routed that the plan has not seen.
    query_distance : array (T,)
        Distance of each query to the nearest row of its context, in the selection space.
    outside : array (T,) of bool
        Queries farther from the pool than 99 % of the pool's own rows are from each other.
    settings : dict
        What was chosen: strategy, kernel, bandwidth, budget, seed, …
    pool_fingerprint, pool_size
        Which pool the indices point into.
    """

    labels: np.ndarray
    contexts: list[np.ndarray]
    mmd2: list[np.ndarray]
    stop_reasons: list[str]
    centroids: np.ndarray
    query_distance: np.ndarray
    outside: np.ndarray
    swapped: np.ndarray  # rows that min_per_class swapped into each context
    pool_fingerprint: str
    pool_size: int
    settings: dict[str, Any] = field(default_factory=dict)
    # Points of the selection space, for drawing; they are not saved.
    pool_points: np.ndarray | None = field(default=None, repr=False, compare=False)
    query_points: np.ndarray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        n_clusters, n_queries = len(self.contexts), len(self.labels)
        whole = (
            len(self.mmd2)
            == len(self.stop_reasons)
            == len(self.centroids)
            == len(self.swapped)
            == n_clusters
            > 0
            and len(self.query_distance) == len(self.outside) == n_queries
            and _indices(self.labels, n_clusters)
            and all(_indices(context, self.pool_size) for context in self.contexts)
        )
        if not whole:
            raise PlanMismatch(
                "This plan contradicts itself: its labels, contexts and centroids do not fit "
                "together."
            )

    def __getstate__(self) -> dict[str, Any]:
        """The points kept for drawing are the pool: a pickled plan stays small without them."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("pool_points", "query_points")
        }

    @property
    def n_clusters(self) -> int:
        return len(self.contexts)

    @property
    def sizes(self) -> np.ndarray:
        """Rows in each context."""
        return np.array([len(context) for context in self.contexts])

    @property
    def final_mmd2(self) -> np.ndarray:
        """MMD² of each whole context."""
        return np.array([trace[-1] for trace in self.mmd2])

    def route(self, points: np.ndarray) -> np.ndarray:
        """The cluster of rows of the selection space, whether or not the plan was made for them."""
        return nearest_centroid(points, self.centroids)

    def check_pool(self, fingerprint: str) -> None:
        if fingerprint != self.pool_fingerprint:
            raise PlanMismatch(
                "This plan was made for another pool: its row numbers mean nothing here. Make a "
                "new one with plan(X)."
            )

    def summary(self) -> pd.DataFrame:
        """One row a cluster."""
        queries = np.bincount(self.labels, minlength=self.n_clusters)
        members = [self.labels == cluster for cluster in range(self.n_clusters)]
        nothing = np.array([np.nan])
        return pd.DataFrame(
            {
                "queries": queries,
                "context": self.sizes,
                "mmd2": self.final_mmd2,
                "stopped": self.stop_reasons,
                "swapped": self.swapped,
                "median_distance": [
                    np.median(self.query_distance[m] if m.any() else nothing) for m in members
                ],
                "outside": [int(self.outside[m].sum()) for m in members],
            },
            index=pd.RangeIndex(self.n_clusters, name="cluster"),
        )

    def plot(
        self, pool: Any = None, queries: Any = None, cluster: int | None = None, path: Any = None
    ) -> Any:
        """Draw pool, queries and the context of one cluster in two dimensions, and the MMD² traces.

        ``pool`` and ``queries`` are points of the selection space; without them only the traces are
        drawn.
        ``CrumbClassifier.plan`` attaches them, so ``clf.plan(X).plot()`` needs no argument.
        """
        from crumb.picture import draw_plan

        pool = self.pool_points if pool is None else pool
        queries = self.query_points if queries is None else queries
        return draw_plan(self, pool, queries, cluster, path)

    def attach(self, pool: np.ndarray, queries: np.ndarray) -> Plan:
        """Remember the points of the selection space for drawing; they are not saved."""
        self.pool_points, self.query_points = pool, queries
        return self

    def save(self, path: str | Path) -> None:
        """Write the plan to one file (arrays and JSON, no pickle), or nothing at all."""
        arrays = {
            "labels": self.labels,
            "sizes": self.sizes,
            "contexts": np.concatenate(self.contexts),
            "trace_sizes": np.array([len(trace) for trace in self.mmd2]),
            "mmd2": np.concatenate(self.mmd2),
            "centroids": self.centroids,
            "query_distance": self.query_distance,
            "outside": self.outside,
            "swapped": self.swapped,
        }
        about = {
            "stop_reasons": self.stop_reasons,
            "pool_fingerprint": self.pool_fingerprint,
            "pool_size": self.pool_size,
            "settings": self.settings,
        }
        write_archive(path, FORMAT, VERSION, about, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that ``save`` wrote."""
        about, arrays, _ = read_archive(path, FORMAT, VERSION)
        try:
            return cls(
                labels=arrays["labels"],
                contexts=_split(arrays["contexts"], arrays["sizes"]),
                mmd2=_split(arrays["mmd2"], arrays["trace_sizes"]),
                stop_reasons=list(about["stop_reasons"]),
                centroids=arrays["centroids"],
                query_distance=arrays["query_distance"],
                outside=arrays["outside"],
                swapped=arrays["swapped"],
                pool_fingerprint=about["pool_fingerprint"],
                pool_size=about["pool_size"],
                settings=about["settings"],
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PlanMismatch):
                raise
            raise PlanMismatch(f"{path} is incomplete or damaged ({error}).") from error


def _indices(values: np.ndarray, limit: int) -> bool:
    return (
        values.dtype.kind in "iu" and len(values) > 0 and values.min() >= 0 and values.max() < limit
    )


def _split(joined: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    return np.split(joined, np.cumsum(sizes)[:-1])
