"""Clusters of queries, and the kernel means that do not change while contexts grow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from crumb.herding.kernel import Rbf, norms
from crumb.parallel import MapBlocks


@dataclass(frozen=True)
class Clusters:
    """T queries in K clusters, none of which is empty."""

    queries: Tensor  # (T, d)
    labels: Tensor  # (T,)  0 … K−1

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Tensor:
        """Queries of each cluster: (K,)."""
        return torch.bincount(self.labels)

    @cached_property
    def members(self) -> list[Tensor]:
        """The queries of each cluster: K × (|Cₖ|, d)."""
        order = torch.argsort(self.labels, stable=True)
        return list(self.queries[order].split(self.sizes.tolist()))


def cluster_sums(values: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Sum the rows of ``values`` (T, b) that have the same label: (K, b)."""
    if values.device.type == "cpu":
        return values.new_zeros(n_clusters, values.shape[1]).index_add_(0, labels, values)
    # index_add_ adds in a random order on a GPU; a product with the indicator matrix repeats.
    member = labels[None, :] == torch.arange(n_clusters, device=labels.device)[:, None]
    return member.to(values) @ values


def cross_terms(
    kernel: Rbf, points: Tensor, clusters: Clusters, map_blocks: MapBlocks = map
) -> Tensor:
    """Mean kernel value of each point to the queries of every cluster: (K, len(points))."""
    cross, size = clusters.queries.new_zeros(len(clusters), len(points)), norms(points)
    step = 1 << 10 if points.device.type == "cpu" else 1 << 14  # blocks of step × step values
    parts = list(zip(clusters.queries.split(step), clusters.labels.split(step), strict=True))

    def fill(start: int) -> None:
        rows = slice(start, start + step)
        for queries, labels in parts:
            values = kernel(queries, points[rows], size[rows])  # (step, step)
            cross[:, rows] += cluster_sums(values, labels, len(clusters))

    # Blocks write into one result: many small tensors between large ones would fragment memory.
    list(map_blocks(fill, range(0, len(points), step)))
    return cross.div_(clusters.sizes[:, None])


def means_within(kernel: Rbf, members: list[Tensor], map_blocks: MapBlocks = map) -> Tensor:
    """Mean kernel value among the queries of each cluster: (K,)."""
    means = map_blocks(lambda k: kernel.mean_within(members[k]), range(len(members)))
    return torch.stack(list(means))
