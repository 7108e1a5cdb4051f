"""What every strategy gets (``Problem``) and gives (``Selection``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator

from crumb.herding.kernel import RandomFourierFeatures
from crumb.herding.search import Load, Search
from crumb.parallel import MapBlocks
from crumb.rng import generator
from crumb.selection.clustering import cluster
from crumb.selection.finder import Finder

if TYPE_CHECKING:
    from crumb.options import Options

REGISTRY: dict[str, type[Strategy]] = {}


@dataclass(frozen=True)
class Problem:
    """Queries in the selection space, who answers questions about the pool, and the options."""

    finder: Finder
    queries: np.ndarray  # (T, d)
    options: Options  # resolved
    map_blocks: MapBlocks = map
    progress: Callable[[int], object] = field(default=lambda chosen: None)

    @property
    def n(self) -> int:
        """The context size."""
        return self.options.context_size

    @property
    def n_clusters(self) -> int:
        return min(self.options.n_clusters, len(self.queries))

    @property
    def seed(self) -> int:
        return self.options.seed

    @cached_property
    def search(self) -> Search:
        """How stage 2 searches."""
        rows, (queries, columns) = self.finder.size, self.queries.shape
        return self.options.search(Load(rows, queries, self.n_clusters, self.n, columns))

    def rng(self, purpose: str) -> np.random.Generator:
        return generator(self.seed, purpose)

    def cluster(self) -> tuple[np.ndarray, np.ndarray]:
        """Stage 1: the cluster of each query (T,), and the centroids (K, d)."""
        return cluster(self.queries, self.n_clusters, self.seed)

    def features(self) -> RandomFourierFeatures:
        """The same Ω and b however often they are asked for."""
        d, sigma = self.queries.shape[1], self.options.bandwidth
        return RandomFourierFeatures.draw(d, self.search.rff_dim, sigma, self.rng("rff"))

    def tensor(self, points: np.ndarray) -> torch.Tensor:
        """Points of the selection space on the device; GPUs work in float32."""
        tensor = torch.from_numpy(np.ascontiguousarray(points))
        device = self.options.device
        return tensor if device == "cpu" else tensor.to(device, torch.float32)


@dataclass
class Selection:
    """The cluster of each query, and the pool rows that each cluster sees, most wanted first."""

    labels: np.ndarray  # (T,)
    centroids: np.ndarray  # (K, d)  where rows that were not planned for are routed
    contexts: list[np.ndarray]  # row numbers
    stop_reasons: list[str]
    mmd2: list[np.ndarray] | None = None  # traces, where the strategy watched them
    kernel: str | None = None  # the way that was taken
    facts: dict[str, Any] = field(default_factory=dict)  # what else the plan should say of it

    @classmethod
    def of_size_n(
        cls, labels: np.ndarray, centroids: np.ndarray, contexts: list[np.ndarray]
    ) -> Selection:
        """Contexts that ended because they have the context size."""
        return cls(labels, centroids, contexts, ["budget"] * len(contexts))


class Strategy(BaseEstimator, ABC):
    """Base of all strategies. Its parameters are those of ``__init__``, as in scikit-learn."""

    name: ClassVar[str]
    default_clusters: ClassVar[int | None] = None  # of its own; None: that of options.py
    drops_rows: ClassVar[bool] = True  # False: every context is the whole pool

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:  # without a name of its own it must not replace its parent
            REGISTRY[cls.name] = cls

    @abstractmethod
    def select(self, problem: Problem) -> Selection:
        """Give every query a cluster, and every cluster a context of ``problem.n`` pool rows."""


def top_up(own: np.ndarray, nearest: np.ndarray, n: int) -> np.ndarray:
    """``own`` rows, then the nearest other ones, until there are n."""
    others = nearest[~np.isin(nearest, own)]
    return np.concatenate([own, others[: n - len(own)]])
