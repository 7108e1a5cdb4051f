"""Rows as the network itself represents them: a part of the selection space that knows the labels.

TabICL's first two stages turn a row into a vector before rows attend to each other. In v2 and in
the embedded network they have seen the labels of a context. Every row of the pool and every query
is embedded as a query beside the same random context, so all are represented alike, labelled or
not. Rows that are close in this space are alike in what matters to the target
(docs/experiments/ideas).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA

from crumb.machine import progress_bar
from crumb.pfn.base import Backend, ContextTask, TargetScale
from crumb.pfn.models import checksum
from crumb.rng import generator
from crumb.table.encoder import Rows, take

CONTEXT = 1_000  # rows beside which all others are embedded
COMPONENTS = 32  # of hundreds of dimensions, which hold little more
SAMPLE = 10_000  # rows behind the principal components
PIECE = 10_000  # rows that are embedded at a time


class RowEmbedding:
    """Principal components of a network's row representations."""

    def __init__(
        self,
        backend: Backend,
        rows: Rows,
        y: np.ndarray,
        n_classes: int | None,
        seed: int,
        verbose: int = 0,
    ):
        rng = generator(seed, "embedding")
        chosen = np.sort(rng.choice(len(y), min(CONTEXT, len(y)), replace=False))
        mine = y[chosen]
        codes = np.unique(mine, return_inverse=True)[1]
        self.y = codes if n_classes else TargetScale.of(mine).scaled(mine)
        self.context, self.backend = take(rows, chosen), backend
        self.seed, self.verbose = seed, verbose
        sample = np.sort(rng.choice(len(y), min(SAMPLE, len(y)), replace=False))
        points = np.concatenate(list(self._pieces(take(rows, sample))))
        components = min(COMPONENTS, *points.shape)
        self.components = PCA(components, svd_solver="covariance_eigh").fit(points)

    def identity(self) -> tuple[int, str]:
        """What else than the pool the embeddings depend on."""
        assert self.backend.path is not None, "what has embeddings is a file"
        return self.seed, checksum(self.backend.path)

    def __call__(self, rows: Rows) -> np.ndarray:
        """(n, at most 32)"""
        with progress_bar(len(rows), "embedding", self.verbose) as advance:
            pieces = []
            for piece in self._pieces(rows):
                pieces.append(self.components.transform(piece))
                advance(len(piece))
        return np.concatenate(pieces)

    def _pieces(self, rows: Rows) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), PIECE):
            piece = take(rows, np.arange(start, min(start + PIECE, len(rows))))
            yield self.backend.embed(ContextTask.of(self.context, self.y, piece)).astype(np.float64)
