"""Rivals of context selection: prior correction, BoostPFN, and boosting on the PFN's outputs.

    python benchmarks/rivals.py --out benchmarks/results/rivals.json
    python benchmarks/rivals.py --tables churn --seeds 1 --skip boosting
    python benchmarks/rivals.py --report benchmarks/results/rivals.json

Real tables of classes, most of them with a rare class; the embedded network. Two parts:

- *shares*: answers of contexts chosen in four ways, as they are, and corrected from the class
  shares of their context to those of the pool, or to those of the answers (DistPFN). "balanced"
  contexts are random and have equal shares of all classes: there the correction is due.
- *boosting*: BoostPFN and PFN-Boost beside CRUMB, on pools of at most ``--most`` rows: both need
  answers for the whole pool.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import LabelEncoder

from crumb import CrumbClassifier
from crumb.trees import Trees
from experiments import rivals
from experiments.metrics import scores as metrics

TABLES = (
    "GiveMeSomeCredit",
    "bank-marketing",
    "mammography",
    "polish_companies_bankruptcy",
    "coil2000_insurance_policies",
    "online_shoppers_intention",
    "churn",
    "page-blocks",
    "electricity",
    "covertype_20k",
)
WAYS: dict[str, dict[str, Any]] = {
    "herded": {"strategy": "mmd"},
    "knn": {"strategy": "knn"},
    "uniform": {"strategy": "uniform"},
}
CORRECTIONS = ("as they are", "pool", "answers")
BOOSTERS = ("herded", "uniform", "BoostPFN", "PFN-Boost", "trees")
FOLDS = 5


class Case:
    """A table, cut into pool and queries. Classes are codes."""

    def __init__(self, options: Any, name: str, seed: int):
        about = common.index(options.data)[name]
        table, target = common.read_table(options.data, about)
        y = LabelEncoder().fit_transform(target.astype(str))
        order = np.random.default_rng(seed).permutation(len(table))
        asked, pool = order[: options.queries], order[options.queries :]
        self.seed, self.classes = seed, int(y.max()) + 1
        self.X, self.y = table.iloc[asked].reset_index(drop=True), y[asked]
        self.X_pool, self.y_pool = table.iloc[pool].reset_index(drop=True), y[pool]
        self.size = options.context_size

    def model(self, **settings: Any) -> CrumbClassifier:
        return CrumbClassifier(context_size=self.size, random_state=self.seed, **settings)

    def cut(self, rows: int) -> None:
        self.X_pool, self.y_pool = self.X_pool[:rows], self.y_pool[:rows]

    def proba(self, model: CrumbClassifier, rows: pd.DataFrame, **how: Any) -> np.ndarray:
        found = np.zeros((len(rows), self.classes))
        found[:, model.classes_] = model.predict_proba(rows, **how)
        return found

    def scored(self, proba: np.ndarray, seconds: float) -> common.Record:
        found = metrics("classification", self.y, proba)
        return {name: found[name] for name in ("log_loss", "auc")} | {"seconds": round(seconds, 2)}


def shares(case: Case) -> common.Record:
    """Each way of choosing contexts, with each correction."""
    record = {}
    for way in (*WAYS, "balanced"):
        answer = partial(balanced if way == "balanced" else chosen, case, way)
        (proba, labels, contexts), seconds = common.timed(answer)
        pool = np.bincount(case.y_pool, minlength=case.classes) / len(case.y_pool)
        about = proba, labels, contexts, case.y_pool
        found = (proba, *(rivals.correct_contexts(*about, one) for one in (pool, None)))
        pairs = zip(CORRECTIONS, found, strict=True)
        record[way] = {name: case.scored(one, seconds) for name, one in pairs}
    return record


def chosen(case: Case, way: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    model = case.model(**WAYS[way]).fit(case.X_pool, case.y_pool)
    plan = model.plan(case.X)
    return case.proba(model, case.X, plan=plan), plan.route(plan.query_points), plan.contexts


def balanced(case: Case, _: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """One context of random rows, with equal numbers of all classes as far as the pool has them."""
    rng, y = np.random.default_rng(case.seed), case.y_pool
    order = rng.permutation(len(y))
    place = np.empty(len(y), dtype=int)  # of a row among the rows of its class
    for code in np.unique(y):
        place[order[y[order] == code]] = np.arange((y == code).sum())
    context = np.sort(order[np.argsort(place[order], kind="stable")][: case.size])
    answer = rivals.network(case.classes, random_state=case.seed)
    proba = answer(case.X_pool.iloc[context], y[context], case.X)
    return proba, np.zeros(len(case.X), dtype=int), [context]


def boosting(case: Case) -> common.Record:
    """The rivals that are no choice of contexts."""
    answers = {
        "herded": lambda: once(case, strategy="mmd"),
        "uniform": lambda: once(case, strategy="uniform"),
        "BoostPFN": lambda: rivals.boost_contexts(
            rivals.network(case.classes, random_state=case.seed),
            case.X_pool, case.y_pool, case.X, case.size, seed=case.seed,
        ),
        "PFN-Boost": lambda: boosted_outputs(case),
        "trees": lambda: boosted_outputs(case, use=False),
    }  # fmt: skip
    return {name: case.scored(*common.timed(answer)) for name, answer in answers.items()}


def once(case: Case, **settings: Any) -> np.ndarray:
    return case.proba(case.model(**settings).fit(case.X_pool, case.y_pool), case.X)


def boosted_outputs(case: Case, use: bool = True) -> np.ndarray:
    """PFN-Boost on out-of-fold answers of CRUMB; or the same trees alone."""
    X, y = case.X_pool, case.y_pool
    model = case.model(n_clusters=20).fit(X, y)
    start, queries = np.zeros((len(y), case.classes)), np.zeros((len(case.X), case.classes))
    if use:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=case.seed)
        for teach, held in folds.split(X, y):
            some = case.model(n_clusters=20).fit(X.iloc[teach], y[teach])
            start[held] = rivals.scores(case.proba(some, X.iloc[held]))
        queries = rivals.scores(case.proba(model, case.X))
    trees = Trees(case.classes, list(model.backend_.settings.categorical_indices))
    pool, asked = (trees.table(model.encode(rows)[0]) for rows in (X, case.X))
    return rivals.OutputBoosting().fit(pool, y, start).predict_proba(asked, queries)


def summary(records: list[common.Record]) -> str:
    """The tables of docs/rivals.md: means over seeds, and over tables at the end."""
    parts = []
    if "shares" in records[0]:
        columns = [(way, one) for way in (*WAYS, "balanced") for one in CORRECTIONS]
        parts += [table(records, "shares", columns, what) for what in ("log_loss", "auc")]
    some = [one for one in records if "boosting" in one]
    if some:
        columns = [(way,) for way in BOOSTERS]
        parts += [table(some, "boosting", columns, w) for w in ("log_loss", "auc", "seconds")]
    return "\n\n".join(parts)


def table(records: list[common.Record], part: str, columns: list[Any], what: str) -> str:
    names = list(dict.fromkeys(one["table"] for one in records))
    values = np.full((len(names), len(columns)), np.nan)
    for i, name in enumerate(names):
        for j, path in enumerate(columns):
            found = [one[part] for one in records if one["table"] == name]
            for step in (*path, what):
                found = [one[step] for one in found]
            values[i, j] = np.mean(found)
    lines = zip([*names, "mean"], [*values, values.mean(axis=0)], strict=True)
    digits = 1 if what == "seconds" else 3
    shown = [[name, *(f"{one:.{digits}f}" for one in line)] for name, line in lines]
    return f"{part}, {what}\n\n" + common.markdown(
        shown, ["table", *(", ".join(path) for path in columns)]
    )


def main() -> None:
    made = common.parser(__doc__, seeds=3, queries=300, context_size=300, most=8_000)
    common.add_data(made)
    made.add_argument("--tables", nargs="+", default=list(TABLES))
    made.add_argument("--skip", choices=("shares", "boosting"))
    options = common.asked(made, summary)
    records: list[common.Record] = []
    for seed in range(options.seeds):
        for name in options.tables:
            case, record = Case(options, name, seed), {"table": name, "seed": seed}
            if options.skip != "shares":
                record["shares"] = shares(case)
            if options.skip != "boosting" and seed == 0:
                case.cut(options.most)
                record["boosting"] = boosting(case)
            records.append(common.say(record))
            common.write(options, records)
    print(summary(records))


if __name__ == "__main__":
    main()
