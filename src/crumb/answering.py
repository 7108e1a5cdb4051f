"""Which contexts answer a query, and how much each of them counts.

The context of a query's own cluster was chosen for it. Those of the next clusters may hold rows
that are as near: then they answer too, and the answers are mixed. What a pass costs is its context,
so a few more queries add little. How near the rows of a context come to a query decides, much more
than its centroid: in a large pool a context may end where the next one begins, and knows nothing of
what lies there (docs/defaults.md has the measurements).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from crumb.machine import torch_threads
from crumb.options import Options
from crumb.plan import Plan
from crumb.pool import Pool
from crumb.selection.base import nearest_centroids

NEIGHBOUR = 3  # the row of a context by whose distance it is judged
LEAST = 0.02  # a weight below it is 0, where that of the query's own context is 1
CELLS = 1 << 24  # distances held at once


def answering(
    plan: Plan, pool: Pool, points: np.ndarray, options: Options, own: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """The clusters whose contexts answer queries, their own first: labels and weights (T, m).

    A weight falls with the square of the distance to the centroid, and with the eighth power of
    that to the third nearest row. ``own``: these are the queries of the plan, whose clusters are
    known. No weights: m is 1.
    """
    if plan.contexts_per_query == 1:
        return (plan.labels if own else plan.route(points))[:, None], None
    labels, squares = nearest_centroids(points, plan.centroids, plan.contexts_per_query)
    weights = _fall(squares)
    weights[weights < LEAST] = 0.0
    with torch_threads(options.n_jobs):
        reach = _reach(plan, pool, points, options.device, labels, weights)
    weights *= np.square(np.square(np.square(_fall(reach))))
    weights[weights < LEAST] = 0.0
    return labels, weights / weights.sum(axis=1, keepdims=True)


def _fall(distances: np.ndarray) -> np.ndarray:
    """first / distance, and at most 1."""
    first = np.broadcast_to(distances[:, :1], distances.shape)
    return np.divide(first, distances, out=np.ones_like(distances), where=distances > first)


def _reach(
    plan: Plan, pool: Pool, points: np.ndarray, device: str, labels: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """How far the third nearest row of a context is from a query (T, m); 0 where nobody asks.

    Each distance is computed alone, so that it does not depend on what else is asked.
    """
    pool.hold(plan.contexts)  # all at once, where they are in files
    found, queries = np.zeros(labels.shape), _tensor(points, device)
    who, turn = np.nonzero(asked)
    order = np.argsort(labels[who, turn], kind="stable")
    who, turn = who[order], turn[order]
    which, counts = np.unique(labels[who, turn], return_counts=True)
    asking = queries[torch.from_numpy(who).to(queries.device)].split(counts.tolist())
    thirds = []
    for context, mine in zip(which, asking, strict=True):
        rows = _tensor(pool.points_of(plan.contexts[context]), device)
        thirds += [_third(part, rows) for part in mine.split(max(1, CELLS // len(rows)))]
    found[who, turn] = torch.cat(thirds).cpu().numpy()  # until here a GPU need not wait
    return found


def _third(points: Tensor, rows: Tensor) -> Tensor:
    """The distance of each point to its third nearest row."""
    far = torch.cdist(points, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return far.topk(min(NEIGHBOUR, len(rows)), largest=False).values[:, -1]


def _tensor(points: np.ndarray, device: str) -> Tensor:
    """Points on an NVIDIA GPU, in float32, or on the CPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(points))
    return tensor.to(device, torch.float32) if device.startswith("cuda") else tensor
