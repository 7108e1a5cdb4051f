"""How good a network is while it is made: the loss on held-out synthetic tables, kind by kind, and
on real ones.

The synthetic tables are the same for every run of a task on one kind of device, whatever a run is
trained on. The real ones are those of development, read from a file that ``python -m pretraining
tables`` writes; no step sees them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crumb.pfn.forward import forward
from pretraining.draw import Draw
from pretraining.network import TEMPERATURE
from pretraining.prior import Batch, Shape, sample
from pretraining.recipe import KINDS, SITUATIONS, Recipe
from pretraining.step import loss_of

SEED = 9_999_991  # of tables that no step draws
SHAPES = {
    "small": (Shape(32, 500, 10, 400, 4), Shape(16, 1_200, 28, 1_000, 4)),
    "smoke": (Shape(4, 48, 4, 36, 2), Shape(4, 90, 3, 70, 2)),
}
SHAPES["trial"] = SHAPES["small"]


def held_out(task: str, size: str, device: torch.device) -> dict[str, list[Batch]]:
    """Batches by kind of table."""
    return {
        name: [
            sample(task, shape, Draw(device, SEED, i, number), Recipe.only(name))
            for i, shape in enumerate(SHAPES[size])
        ]
        for number, name in enumerate((*KINDS, *SITUATIONS))
    }


@torch.no_grad()
def losses(network: Any, batches: dict[str, list[Batch]], dtype: torch.dtype) -> dict[str, float]:
    """The mean loss on every kind, and over the kinds."""
    by_kind = {
        name: float(torch.stack([loss_of(network, batch, dtype) for batch in some]).mean())
        for name, some in batches.items()
    }
    return {**by_kind, "mean": float(np.mean(list(by_kind.values())))}


@torch.no_grad()
def real(
    network: Any, path: Path, device: torch.device, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    """Log-loss, or the share of the variance that is left, of every prepared table of the network's
    task."""
    scores: dict[str, float] = {}
    with np.load(path) as file:
        for key in sorted({name.rsplit("/", 1)[0] for name in file.files}):
            task, table = key.split("/")
            if (task == "classification") == (network.max_classes > 0):
                X, y = (torch.from_numpy(file[f"{key}/{part}"]).to(device) for part in "Xy")
                scores[table] = _score(network, X, y, int(file[f"{key}/train"]), dtype)
    return scores


def _score(network: Any, X: Tensor, y: Tensor, train: int, dtype: torch.dtype) -> float:
    """Averaged over the draws of a table: X (seeds, n, d), y (seeds, n)."""
    answer = torch.cat(
        [forward(network, X[i : i + 1], y[i : i + 1, :train], dtype) for i in range(len(X))]
    )
    known, asked = y[:, :train], y[:, train:]
    if network.max_classes == 0:
        error = (answer.mean(-1) - asked).square().mean(1)
        return float((error / asked.var(1, correction=0)).mean())
    answer = answer[..., : int(known.max()) + 1] / TEMPERATURE
    return float(torch.nn.functional.cross_entropy(answer.flatten(0, 1), asked.long().flatten()))
