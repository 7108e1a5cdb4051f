"""What every strategy gets (``Problem``) and gives (``Selection``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors

from crumb.herding.greedy import EarlyStopping
from crumb.herding.kernel import RandomFourierFeatures, Rbf
from crumb.herding.search import Search
from crumb.parallel import MapBlocks
from crumb.rng import generator

REGISTRY: dict[str, type[Strategy]] = {}


@dataclass(frozen=True)
class Problem:
    """Pool and queries in the selection space, and everything that has been decided about them."""

    pool: np.ndarray  # (N, d)
    queries: np.ndarray  # (T, d)
    n: int  # context budget
    n_clusters: int
    kernel: Search
    early_stopping: EarlyStopping | None = None
    seed: int = 0
    device: str = "cpu"
    map_blocks: MapBlocks = map
    progress: Callable[[int], object] = field(default=lambda chosen: None)

    def rng(self, purpose: str) -> np.random.Generator:
        return generator(self.seed, purpose)

    def similarity(self) -> Rbf | RandomFourierFeatures:
        """The kernel of stage 2."""
        return self.features() if self.kernel.name == "rff" else Rbf(self.kernel.bandwidth)

    def features(self) -> RandomFourierFeatures:
        """The same Ω and b however often they are asked for."""
        d = self.queries.shape[1]
        return RandomFourierFeatures.draw(
            d, self.kernel.rff_dim, self.kernel.bandwidth, self.rng("rff")
        )

    def tensor(self, rows: np.ndarray) -> torch.Tensor:
        """Rows of the selection space on the device; GPUs work in float32."""
        tensor = torch.from_numpy(np.ascontiguousarray(rows))
        return tensor if self.device == "cpu" else tensor.to(self.device, torch.float32)


@dataclass
class Selection:
    """Which cluster each query belongs to and which pool rows each cluster sees, most wanted first."""

    labels: np.ndarray  # (T,)
    centroids: np.ndarray  # (K, d)  where rows that were not planned for are routed
    contexts: list[np.ndarray]
    stop_reasons: list[str]
    mmd2: list[np.ndarray] | None = None  # traces, where the strategy watched them
    kernel: str | None = None  # the way that was taken
    facts: dict[str, Any] = field(default_factory=dict)  # what else the plan should say of it


class Strategy(BaseEstimator, ABC):
    """Base of all strategies. Its parameters are those of ``__init__``, as in scikit-learn."""

    name: ClassVar[str]
    default_clusters: ClassVar[int | None] = None  # of its own; None: that of options.py
    drops_rows: ClassVar[bool] = True  # False: every context is the whole pool

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if (
            "name" in cls.__dict__
        ):  # a subclass without a name of its own must not replace its parent
            REGISTRY[cls.name] = cls

    @abstractmethod
    def select(self, problem: Problem) -> Selection:
        """Give every query a cluster and every cluster a context of ``problem.n`` pool rows."""


def nearest_rows(pool: np.ndarray, points: np.ndarray, n: int) -> np.ndarray:
    """The n pool rows nearest to each point, nearest first: (len(points), n)."""
    search = NearestNeighbors(n_neighbors=min(n, len(pool)), algorithm="brute").fit(pool)
    return search.kneighbors(np.asarray(points, dtype=pool.dtype), return_distance=False)


def top_up(own: np.ndarray, nearest: np.ndarray, n: int) -> np.ndarray:
    """``own`` rows, then the nearest other ones, until there are n."""
    others = nearest[~np.isin(nearest, own)]
    return np.concatenate([own, others[: n - len(own)]])
