"""Which table shapes are seen when, and how fast is learnt: short tables first, then long ones beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pretraining.prior import Shape

MOST_ROWS = 60_000  # tables × rows of a batch: attention kernels count the rows of a batch in 16 bits
TABLES_A_GROUP = 16


@dataclass(frozen=True)
class Stage:
    """A family of shapes: rows and features spread evenly on a log scale, the share of labelled rows evenly."""

    begin: float  # when it joins, as a share of all steps
    rows: tuple[int, int]
    features: tuple[int, int]
    train: tuple[float, float]
    cells: int  # of a batch, counting the summary tokens of a row as cells
    shapes: int  # how many shapes are drawn; each is recorded once as a CUDA graph

    def draw(self, rng: np.random.Generator, tokens: int) -> list[Shape]:
        """A Latin hypercube: however few shapes there are, both ends of every range are among them."""
        places = [(rng.permutation(self.shapes) + rng.random(self.shapes)) / self.shapes for _ in range(3)]
        return [self._shape(rows, features, train, tokens) for rows, features, train in zip(*places, strict=True)]

    def _shape(self, rows_at: float, features_at: float, train_at: float, tokens: int) -> Shape:
        rows, features = _log_whole(rows_at, *self.rows), _log_whole(features_at, *self.features)
        train = round(rows * (self.train[0] + train_at * (self.train[1] - self.train[0])))
        tables = max(2, min(self.cells // (rows * (features + tokens)), MOST_ROWS // rows, 256))
        groups = max(1, min(3, tables // TABLES_A_GROUP))
        return Shape(tables, rows, features, min(max(train, 10), rows - 5), groups)


@dataclass(frozen=True)
class Curriculum:
    stages: tuple[Stage, ...]
    steps: int
    rate: float = 2e-3
    warm_up: int = 300

    def shapes(self, seed: int, tokens: int) -> list[list[Shape]]:
        """The shapes of every stage."""
        rng = np.random.default_rng((seed, 1))
        return [stage.draw(rng, tokens) for stage in self.stages]

    def shape_at(self, step: int, seed: int, shapes: list[list[Shape]]) -> Shape:
        """Stages that have begun take turns at random."""
        rng = np.random.default_rng((seed, 2, step))
        begun = [family for stage, family in zip(self.stages, shapes, strict=True) if step >= stage.begin * self.steps]
        family = begun[int(rng.integers(len(begun)))]
        return family[int(rng.integers(len(family)))]

    def rate_at(self, step: int) -> float:
        """Learning rate: a short rise, then half a cosine down to a hundredth."""
        done = min(step / self.steps, 1.0)
        return self.rate * min(1.0, (step + 1) / self.warm_up) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def curriculum(size: str, steps: int, continued: bool = False) -> Curriculum:
    """The schedule of a run. One that continues from trained weights sees all lengths at once, at half the rate."""
    schedule = _from_scratch(size, steps)
    if not continued:
        return schedule
    stages = tuple(replace(stage, begin=0.0) for stage in schedule.stages)
    return replace(schedule, stages=stages, rate=schedule.rate / 2)


def _from_scratch(size: str, steps: int) -> Curriculum:
    if size == "smoke":
        return Curriculum(
            (
                Stage(0.0, (24, 48), (2, 5), (0.4, 0.8), 2_000, shapes=3),
                Stage(0.5, (64, 96), (2, 4), (0.7, 0.9), 2_000, shapes=2),
            ),
            steps,
            warm_up=5,
        )
    return Curriculum(
        (
            Stage(0.0, (100, 1_500), (1, 100), (0.3, 0.9), 600_000, shapes=40),
            Stage(0.6, (1_500, 10_000), (2, 100), (0.7, 0.95), 900_000, shapes=20),
        ),
        steps,
    )


def _log_whole(place: float, low: int, high: int) -> int:
    """The whole number at a place between 0 and 1 on the log scale from ``low`` to ``high``."""
    return min(high, int(math.exp(math.log(low) + place * math.log((high + 1) / low))))
