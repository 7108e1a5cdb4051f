"""How much answers depend on the batch, and what it costs that they do not (``plan_at="fit"``).

    python benchmarks/batches.py --out benchmarks/results/batches.json
    python benchmarks/batches.py --tables houses --seeds 1
    python benchmarks/batches.py --report benchmarks/results/batches.json

Real tables, the embedded network, five parts (``--parts`` names some of them). Seconds are those of
the processor, of all cores together, so that other work on the machine hardly counts:

- *moves*: some rows are predicted at once, as two halves and one by one, with K = 20 and with K a
  tenth of the queries of a call. How far do answers move, how many labels flip, and how good are
  they?
- *defaults*: the same rows at once and as two halves, with today's default.
- *ways*: more queries, answered by plans made at predict and at fit, and by MICP, with different
  numbers of contexts. Seconds are those of fit, and of one prediction or two of the same queries.
- *noise*: permutation importance of a column of noise, which should be 0, with both kinds of plans
  (the first seed).
- *folds*: ``cross_val_score`` on some rows of the pool, and what a model of these rows then gets on
  the first queries, at once and in small batches, with both kinds of plans.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import processor_timed
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import LabelEncoder

from crumb import MICP, CrumbClassifier, CrumbRegressor
from crumb.mixing import loss

TABLES = (
    "eeg-eye-state",
    "electricity",
    "bank-marketing",
    "SDSS17_ugriz",
    "customer_satisfaction_in_airline_7feat",
    "houses",
    "diamonds",
    "physiochemical_protein",
)
ALONE = 20  # rows that are also predicted one by one
REPEATS = 5  # of a permutation
FOLDS, FOLDED = 3, 6_000  # of cross_val_score, and the rows of the pool that it gets
SMALL = 20  # rows of a small batch
Answers = Callable[[Any], np.ndarray]


class Case:
    """A table, cut into pool and queries. Targets of regression have deviation 1 in the pool."""

    def __init__(self, folder: Path, name: str, queries: int, seed: int):
        about = common.index(folder)[name]
        table, target = common.read_table(folder, about)
        order = np.random.default_rng(seed).permutation(len(table))
        asked, pool = order[:queries], order[queries:]
        self.regression, self.seed = about["task"] == "regression", seed
        if self.regression:
            y = target.to_numpy(float)
            y = (y - y[pool].mean()) / y[pool].std()
        else:
            y = LabelEncoder().fit_transform(target.astype(str))
        self.X_pool, self.y_pool = table.iloc[pool].reset_index(drop=True), y[pool]
        self.X, self.y = table.iloc[asked].reset_index(drop=True), y[asked]

    def model(self, **settings: Any) -> Any:
        made = CrumbRegressor if self.regression else CrumbClassifier
        return made(random_state=self.seed, **settings)

    def answers(self, model: Any) -> Answers:
        return model.predict if self.regression else model.predict_proba

    def score(self, answers: np.ndarray, rows: slice = slice(None)) -> float:
        """Log-loss, or RMSE in deviations of the target."""
        mean = float(loss(self.y[rows], answers).mean())
        return mean**0.5 if self.regression else mean


def moved(before: np.ndarray, after: np.ndarray) -> common.Record:
    """How far answers are from those of another batch: the mean over rows, and the most."""
    far = np.abs(after - before).reshape(len(before), -1).max(axis=1)
    found = {"mean": float(far.mean()), "most": float(far.max())}
    if before.ndim == 2:
        found["flips"] = float((before.argmax(axis=1) != after.argmax(axis=1)).mean())
    return found


def moves(case: Case, options: Any) -> common.Record:
    """The first queries at once, in halves and one by one."""
    X = case.X[: options.batch]
    model = case.model(n_clusters=20, context_size=options.context_size)
    predict, half = case.answers(model.fit(case.X_pool, case.y_pool)), options.batch // 2
    parts = X[:half], X[half:]
    found = {"once": predict(X), "halves": np.concatenate([predict(part) for part in parts])}
    found["alone"] = np.concatenate([predict(X[i : i + 1]) for i in range(ALONE)])
    model.set_params(n_clusters=half // 10).fit(case.X_pool, case.y_pool)
    found["halves, a tenth"] = np.concatenate([predict(part) for part in parts])
    once = found.pop("once")
    record: common.Record = {"once": {"score": case.score(once, slice(options.batch))}}
    for way, other in found.items():
        rows = len(other)
        scores = {"of_once": once[:rows], "score": other}
        scores = {name: case.score(some, slice(rows)) for name, some in scores.items()}
        record[way] = {"rows": rows, **moved(once[:rows], other), **scores}
    return record


def defaults(case: Case, options: Any) -> common.Record:
    """The first queries at once and in halves, with nothing chosen."""
    X, half = case.X[: options.batch], options.batch // 2
    predict = case.answers(case.model().fit(case.X_pool, case.y_pool))
    once, halves = predict(X), np.concatenate([predict(X[:half]), predict(X[half:])])
    rows = slice(options.batch)
    scores = {"of_once": case.score(once, rows), "score": case.score(halves, rows)}
    return {"halves": {**moved(once, halves), **scores}}


def ways(case: Case, options: Any) -> common.Record:
    """Plans made at predict and at fit, and MICP."""
    record: common.Record = {}
    tried = [
        *((f"predict {k}", {"n_clusters": k}) for k in options.clusters),
        *((f"fit {k}", {"n_clusters": k, "plan_at": "fit"}) for k in options.clusters),
        *((f"micp {k}", {"strategy": MICP(n_clusters=k)}) for k in options.clusters),
    ]
    for way, settings in tried:
        model = case.model(**settings, context_size=options.small_context)
        _, fitting = processor_timed(lambda model=model: model.fit(case.X_pool, case.y_pool))
        predict = case.answers(model)
        answers, first = processor_timed(lambda predict=predict: predict(case.X))
        seconds = {"fit": round(fitting, 2), "predict": round(first, 2)}
        if model.plan_ is not None:  # contexts are kept
            again = processor_timed(lambda predict=predict: predict(case.X))[1]
            seconds["again"] = round(again, 2)
        record[way] = {"score": case.score(answers), "seconds": seconds}
        common.say({"way": way, **record[way]})
    return record


def noise(case: Case, options: Any) -> common.Record:
    """Importance of a column of noise: how much the loss grows when it is permuted."""
    rng, record = np.random.default_rng(case.seed), {}
    pool, X = (
        table.assign(noise=rng.normal(size=len(table)))
        for table in (case.X_pool, case.X[: options.batch])
    )
    shuffled = [X.assign(noise=rng.permutation(X["noise"])) for _ in range(REPEATS)]
    for way in AT:
        model = case.model(n_clusters=20, context_size=options.small_context, plan_at=way)
        predict = case.answers(model.fit(pool, case.y_pool))
        base, first = processor_timed(lambda predict=predict: predict(X))
        others, taken = processor_timed(lambda predict=predict: [predict(one) for one in shuffled])
        rows = slice(options.batch)
        gains = [case.score(other, rows) - case.score(base, rows) for other in others]
        relative = np.array(gains) / case.score(base, rows)
        spread = {"mean": float(relative.mean()), "deviation": float(relative.std(ddof=1))}
        seconds = {"first": round(first, 2), "each": round(taken / REPEATS, 2)}
        record[way] = {**spread, "seconds": seconds}
    return record


def folds(case: Case, options: Any) -> common.Record:
    """What cross_val_score says, and what then comes of it."""
    pool, y, record = case.X_pool[:FOLDED], case.y_pool[:FOLDED], {}
    scorer = "neg_root_mean_squared_error" if case.regression else "neg_log_loss"
    asked = {"cv": FOLDS, "scoring": scorer, "error_score": "raise"}
    X, rows = case.X[: options.batch], slice(options.batch)
    batches = [X[i : i + SMALL] for i in range(0, len(X), SMALL)]
    for way in AT:
        model = case.model(plan_at=way)
        said, folding = processor_timed(lambda m=model: cross_val_score(m, pool, y, **asked))
        _, fitting = processor_timed(lambda m=model: m.fit(pool, y))
        predict = case.answers(model)
        once, first = processor_timed(lambda p=predict: p(X))
        small, taken = processor_timed(lambda p=predict: [p(batch) for batch in batches])
        scores = {"said": -float(said.mean()), "once": case.score(once, rows)}
        seconds = {"said": folding, "fit": fitting, "once": first, "small": taken}
        seconds = {name: round(one, 2) for name, one in seconds.items()}
        scores["small"] = case.score(np.concatenate(small), rows)
        record[way] = {**scores, "seconds": seconds}
    return record


SECONDS = ("fit", "predict", "again")
FOLDED_AT = ("said", "once", "small")
MOVES, AT = ("halves", "halves, a tenth", "alone"), ("predict", "fit")
PARTS = {"moves": moves, "defaults": defaults, "ways": ways, "noise": noise, "folds": folds}


def mean_of(records: list[common.Record], path: str) -> float:
    """Over those records that have it."""
    found: list[Any] = list(records)
    for name in path.split("/"):
        found = [one[name] for one in found if name in one]
    return float(np.mean(found)) if found else float("nan")


def summary(records: list[common.Record]) -> str:
    """The tables of docs/batches.md: means over seeds, and over tables at the end."""
    parts = {name: list(some) for one in records for name, some in one.items() if name in PARTS}
    tried, names = parts.get("ways", []), dict.fromkeys(one["table"] for one in records)
    some = {name: [one for one in records if one["table"] == name] for name in names}

    def table(part: str, paths: list[str], last: str) -> str:
        values = np.array([[mean_of(some[n], f"{part}/{one}") for one in paths] for n in names])
        end = np.nanmean(values, axis=0)
        if last == "ratio":  # the geometric mean, in multiples of the first column
            end = np.exp(np.log(values / values[:, :1]).mean(axis=0))
        lines = zip([*names, last], [*values, end], strict=True)
        shown = [[name, *(f"{one:.3g}" for one in line)] for name, line in lines]
        return common.markdown(shown, ["table", *(one.replace("/", " ") for one in paths)])

    shown = [
        ("defaults", [f"halves/{what}" for what in ("flips", "mean", "of_once", "score")], "mean"),
        ("moves", [f"{way}/{what}" for way in MOVES for what in ("flips", "mean")], "mean"),
        ("moves", [f"{way}/{what}" for way in MOVES for what in ("of_once", "score")], "mean"),
        ("ways", [f"{way}/score" for way in tried], "ratio"),
        *(("ways", [f"{way}/seconds/{when}" for way in tried], "mean") for when in SECONDS),
        ("noise", [f"{way}/{what}" for way in AT for what in ("mean", "deviation")], "mean"),
        ("noise", [f"{way}/seconds/{when}" for way in AT for when in ("first", "each")], "mean"),
        ("folds", [f"{way}/{when}" for way in AT for when in FOLDED_AT], "mean"),
        ("folds", [f"{way}/seconds/{when}" for way in AT for when in FOLDED_AT], "mean"),
    ]
    return "\n\n".join(table(*one) for one in shown if one[0] in parts)


def main() -> None:
    made = common.parser(
        __doc__, seeds=3, queries=1_000, batch=200, context_size=1_000, small_context=500
    )
    common.add_data(made)
    made.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    made.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    made.add_argument("--clusters", nargs="+", type=int, default=[20, 100])
    options = common.asked(made, summary)
    records: list[common.Record] = []
    for seed in range(options.seeds):
        for name in options.tables:
            case = Case(options.data, name, options.queries, seed)
            record = {"table": name, "seed": seed, "pool": len(case.X_pool)}
            parts = {
                part: PARTS[part](case, options)
                for part in options.parts
                if part != "noise" or seed == 0
            }
            records.append(common.say({**record, "regression": case.regression, **parts}))
            common.write(options, records)
    print(summary(records))


if __name__ == "__main__":
    main()
