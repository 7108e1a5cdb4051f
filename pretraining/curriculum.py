"""Which table shapes are seen when, and how fast is learnt.

A run may go on for as long as there is GPU time: after a short rise the rate stays where it is, and
longer tables join in as it goes. A run that is to end branches off and cools down: the rate falls
to nothing, on tables of all lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pretraining.prior import Shape

MOST_ROWS = 60_000  # tables × rows of a batch: attention kernels count them in 16 bits
TABLES_A_GROUP = 16


@dataclass(frozen=True)
class Stage:
    """A family of shapes: rows and features spread evenly on a log scale, the share of labelled
    rows evenly."""

    begin: int  # the step at which it joins
    weight: float  # of its turns, beside those of the other stages
    rows: tuple[int, int]
    features: tuple[int, int]
    train: tuple[float, float]
    cells: int  # of a batch, counting the summary tokens of a row as cells
    shapes: int  # how many shapes are drawn; each is recorded once as a CUDA graph

    def draw(self, rng: np.random.Generator, tokens: int) -> list[Shape]:
        """A Latin hypercube: even a few shapes have both ends of every range among them."""
        places = [
            (rng.permutation(self.shapes) + rng.random(self.shapes)) / self.shapes for _ in range(3)
        ]
        return [
            self._shape(rows, features, train, tokens)
            for rows, features, train in zip(*places, strict=True)
        ]

    def _shape(self, rows_at: float, features_at: float, train_at: float, tokens: int) -> Shape:
        rows, features = _log_whole(rows_at, *self.rows), _log_whole(features_at, *self.features)
        train = round(rows * (self.train[0] + train_at * (self.train[1] - self.train[0])))
        tables = max(2, min(self.cells // (rows * (features + tokens)), MOST_ROWS // rows, 256))
        groups = max(1, min(3, tables // TABLES_A_GROUP))
        return Shape(tables, rows, features, min(max(train, 10), rows - 5), groups)


@dataclass(frozen=True)
class CoolDown:
    """The end of a run: from a step on, over this many steps."""

    begin: int
    steps: int


@dataclass(frozen=True)
class Curriculum:
    stages: tuple[Stage, ...]
    rate: float = 2e-3
    warm_up: int = 300
    cooling: CoolDown | None = None
    begun: int = 0  # the first step of the run

    def shapes(self, seed: int, tokens: int) -> list[list[Shape]]:
        """The shapes of every stage."""
        rng = np.random.default_rng((seed, 1))
        return [stage.draw(rng, tokens) for stage in self.stages]

    def shape_at(self, step: int, seed: int, shapes: list[list[Shape]]) -> Shape:
        """Stages that have begun take turns at random."""
        rng = np.random.default_rng((seed, 2, step))
        cools = self.cooling is not None and step >= self.cooling.begin
        weights = np.array([stage.weight * (cools or step >= stage.begin) for stage in self.stages])
        family = shapes[int(rng.choice(len(shapes), p=weights / weights.sum()))]
        return family[int(rng.integers(len(family)))]

    def rate_at(self, step: int) -> float:
        """Learning rate: a short rise, a plateau, and down with the root of the time when the run
        cools."""
        rate = self.rate * min(1.0, (step - self.begun + 1) / self.warm_up)
        if self.cooling is None or step < self.cooling.begin:
            return rate
        return rate * max(0.0, 1 - math.sqrt((step - self.cooling.begin) / self.cooling.steps))


def curriculum(
    size: str,
    rate: float = 2e-3,
    batch: float = 1.0,
    cooling: CoolDown | None = None,
    begun: int = 0,
) -> Curriculum:
    """The schedule of a size; ``trial`` is that of ``small`` with few shapes, of all lengths from
    the start: for comparisons and short runs."""
    stages = tuple(replace(stage, cells=int(stage.cells * batch)) for stage in _STAGES[size])
    return Curriculum(stages, rate, _WARM_UP[size], cooling, begun)


_WARM_UP = {"smoke": 5, "trial": 100, "small": 300}
_STAGES = {
    "smoke": (
        Stage(0, 1.0, (24, 48), (2, 5), (0.4, 0.8), 2_000, shapes=3),
        Stage(60, 1.0, (64, 96), (2, 4), (0.7, 0.9), 2_000, shapes=2),
    ),
    "trial": (
        Stage(0, 1.0, (200, 2_000), (2, 130), (0.4, 0.9), 600_000, shapes=12),
        Stage(0, 0.5, (1_500, 8_000), (2, 80), (0.7, 0.95), 900_000, shapes=5),
        Stage(0, 0.2, (8_000, 17_000), (2, 40), (0.85, 0.97), 1_200_000, shapes=3),
    ),
    "small": (
        Stage(0, 1.0, (200, 2_000), (2, 130), (0.4, 0.9), 600_000, shapes=28),
        Stage(3_000, 0.5, (1_500, 8_000), (2, 80), (0.7, 0.95), 900_000, shapes=12),
        Stage(40_000, 0.2, (8_000, 17_000), (2, 40), (0.85, 0.97), 1_200_000, shapes=6),
    ),
}


def _log_whole(place: float, low: int, high: int) -> int:
    """The whole number at a place between 0 and 1 on the log scale from ``low`` to ``high``."""
    return min(high, int(math.exp(math.log(low) + place * math.log((high + 1) / low))))
