"""A small table for the tests of the command line, and the words that most of them type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

FAST = ["--context-size", "60", "--n-clusters", "3"]
FASTEST = ["--context-size", "60", "--n-clusters", "1"]  # where the contexts do not matter
PNG = b"\x89PNG"


def make_table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows))
    city = rng.choice(["Rome", "Oslo", "Lima"], rows)
    animal = np.where(a + (city == "Rome") > 0, "cat", "dog")
    return pd.DataFrame({"a": a, "b": b, "city": city, "animal": animal, "price": 3 * b + a})


def predict_args(target="animal", out="out.csv", train="train.csv", test="test.csv"):
    return ["predict", "--train", train, "--test", test, "--target", target, "--out", out]


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))
