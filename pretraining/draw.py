"""Random numbers for the prior: host-side for the structure of a batch, device-side for its
contents.

Both streams come from one seed, so a step of the training can be drawn again from its number alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")


class Draw:
    """One seeded source. Nothing here waits for the device."""

    def __init__(self, device: torch.device | str, *seed: int):
        self.device = torch.device(device)
        self.host = np.random.default_rng(seed)
        self.generator = torch.Generator(self.device).manual_seed(int(self.host.integers(2**62)))

    # -- on the host: decisions that all tables of a group share

    def chance(self, probability: float) -> bool:
        return bool(self.host.random() < probability)

    def between(self, low: float, high: float) -> float:
        return float(self.host.uniform(low, high))

    def log_between(self, low: float, high: float) -> float:
        return math.exp(self.host.uniform(math.log(low), math.log(high)))

    def uniform_or(self, low: float, high: float) -> float:
        """Between the two, and now and then one of them."""
        return self.one_of((low, high, self.between(low, high)), (1, 1, 4))

    def whole(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return int(self.host.integers(low, high + 1))

    def one_of(self, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        if weights is None:
            return options[int(self.host.integers(len(options)))]
        return options[int(self.host.choice(len(options), p=np.asarray(weights) / np.sum(weights)))]

    # -- on the device: everything that differs from table to table

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device, generator=self.generator)

    def integers(self, end: int, *shape: int) -> Tensor:
        return torch.randint(end, shape, device=self.device, generator=self.generator)

    def gumbel(self, *shape: int) -> Tensor:
        return -torch.log(-torch.log(self.uniform(*shape).clamp(1e-6, 1 - 1e-6)))

    def subset(self, tables: int, population: int, size: int) -> Tensor:
        """(tables, size) distinct indices below ``population``, in random order."""
        return self.uniform(tables, population).argsort(1)[:, :size]

    def skewed(self, end: int, exponent: float, tables: int, *shape: int) -> Tensor:
        """Indices below ``end``; in every table some come up far more often than others."""
        order = self.uniform(tables, end).argsort(1)
        place = (self.uniform(tables, *shape) ** exponent * end).long().clamp_max(end - 1)
        return order.gather(1, place.flatten(1)).view(tables, *shape)
