"""Small tables for tests that compare two ways of running the same network."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

QUANTILES = [0.05, 0.5, 0.9]


def numbers(rows: int, seed: int, columns: int = 4) -> np.ndarray:
    """Numbers with holes."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, columns))
    table[rng.random(table.shape) < 0.1] = np.nan
    return table


def frame(rows: int, seed: int) -> pd.DataFrame:
    """Columns of the types that the packages take as they are, with holes."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "number": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(size=rows)),
            "text": pd.Series(rng.choice(["red", "green", "blue", "?"], rows)).replace("?", np.nan),
            "category": pd.Categorical(
                rng.choice(["low", "high", None], rows), categories=["low", "high"]
            ),
            "whole": rng.integers(0, 50, rows),
            "code": [
                str(code) for code in rng.integers(10, 22, rows)
            ],  # text that looks like numbers
            "name": [f"n{code}" for code in rng.integers(0, 60, rows)],  # text with many values
        }
    )


def table(kind: str, rows: int, seed: int) -> np.ndarray | pd.DataFrame:
    return numbers(rows, seed) if kind == "numbers" else frame(rows, seed)


def classes(rows: int, seed: int, count: int = 3) -> np.ndarray:
    """Every class occurs, in an order of its own."""
    return np.random.default_rng(seed).permutation(np.arange(rows) % count)


def targets(rows: int, seed: int) -> np.ndarray:
    return 100 + 20 * np.random.default_rng(seed).normal(size=rows)


def stacked_labels(task: str, tables: int, train: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    if task == "regression":
        return torch.randn(tables, train, generator=generator)
    y = torch.randint(4, (tables, train), generator=generator).float()
    y[:, :4] = torch.arange(4)  # all classes are there
    return y


def stacked_cells(tables: int, rows: int, features: int) -> torch.Tensor:
    return torch.randn(tables, rows, features, generator=torch.Generator().manual_seed(3))
