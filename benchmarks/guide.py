"""Does a guide pay? CRUMB alone, with the guide's column, ``"auto"``, trees alone, plain means.

    python benchmarks/guide.py --out benchmarks/results/guide.json
    python benchmarks/guide.py --tables adult kin8nm --seeds 1
    python benchmarks/guide.py --report benchmarks/results/guide.json
    python benchmarks/guide.py --curves --seed 5 --out benchmarks/results/guide_curves.json

Real tables, the embedded network, LightGBM with early stopping. Log-loss or RMSE over the queries;
a difference is significant by the losses of single queries (paired, 1.96 standard errors, over
all seeds). K and n are smaller than the defaults, so that a table takes about a minute on a CPU.
--curves: what the curves of a guide bring beside its trees, without a network, on every table of at
least 5,000 rows. Pools have 60 % of the rows, at most 60,000; of the others, at most 40,000 are
queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import numpy as np
from scipy.stats import wilcoxon
from sklearn.preprocessing import LabelEncoder

from crumb import CrumbClassifier, CrumbRegressor
from crumb.guide import Guide, weigh
from crumb.mixing import loss, mixture

# Rows of the pool. The rules behind "auto" were chosen on other tables than those of the second
# half (docs/guide.md).
TABLES = {
    "adult": 15_000,
    "electricity": 15_000,
    "houses": 12_000,
    "kin8nm": 6_000,
    "pendigits": 4_000,
    "wine_quality": 5_000,
    "covertype_20k": 10_000,
    "higgs_18k": 12_000,
    # The second half
    "GiveMeSomeCredit": 20_000,
    "naval_propulsion": 8_000,
    "mozilla4": 10_000,
    "first-order-theorem-proving": 5_000,
    "pol": 8_000,
    "puma32H": 6_000,
    "eeg-eye-state": 10_000,
    "electrical_grid_stability": 8_000,
}
WAYS = ("alone", "guided", "trees", "mean", "auto")
LEAST_ROWS, MOST_ROWS, MOST_QUERIES = 5_000, 60_000, 40_000  # for --curves


def read(
    folder: Path, name: str, rows: int, queries: int, seed: int
) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Pool and queries of a table."""
    about = common.index(folder)[name]
    table, target = common.read_table(folder, about)
    order = np.random.default_rng(seed).permutation(len(table))[: rows + queries]
    table, target = table.iloc[order].reset_index(drop=True), target.iloc[order]
    regression = about["task"] == "regression"
    y = target.to_numpy(float) if regression else LabelEncoder().fit_transform(target.astype(str))
    known = np.ones(queries, bool) if regression else np.isin(y[:queries], y[queries:])
    asked = np.flatnonzero(known)  # queries of a class that the pool has
    return table[queries:], y[queries:], table.iloc[asked], y[asked]


def weighed(model: Any) -> Guide:
    """What "auto" makes of the guide of a model that is fitted: nothing is computed twice."""
    return weigh(model.pool_.guide, None, None, model.pool_, model.backend_, model.options_)


def run(folder: Path, name: str, options: Any, seed: int) -> common.Record:
    X_pool, y_pool, X, y = read(folder, name, TABLES[name], options.queries, seed)
    kind = CrumbRegressor if y.dtype.kind == "f" else CrumbClassifier
    settings = {"n_clusters": options.clusters, "context_size": options.context_size}
    models, seconds, found = {}, {}, {}
    for way, guide in (("alone", None), ("guided", "trees")):
        model = kind(**settings, guide=guide, random_state=seed)
        models[way], fitting = common.timed(lambda model=model: model.fit(X_pool, y_pool))
        predict = model.predict if kind is CrumbRegressor else model.predict_proba
        found[way], predicting = common.timed(lambda predict=predict: predict(X))
        seconds[way] = {"fit": round(fitting, 2), "predict": round(predicting, 2)}
    found["trees"] = models["guided"].pool_.guide.answers(models["guided"].encode(X)[0])
    found["mean"] = (found["alone"] + found["trees"]) / 2
    if kind is CrumbClassifier:
        y = np.searchsorted(models["alone"].classes_, y)
    guide, seconds["auto"] = common.timed(lambda: weighed(models["guided"]))
    network = found["guided" if guide.shown else "alone"]
    found["auto"] = mixture(network, found["trees"], guide.share)
    chosen = {"shown": guide.shown, "share": guide.share, **guide.facts}
    record = {"table": name, "seed": seed, "rows": len(X_pool), "auto": chosen, "seconds": seconds}
    return common.say({**record, "regression": kind is CrumbRegressor, **scores(y, found)})


def scores(y: np.ndarray, found: dict[str, np.ndarray]) -> common.Record:
    """Mean losses, and how those of "auto" differ from two others, query by query."""
    losses = {way: loss(y, found[way]) for way in WAYS}
    gaps = {way: losses["auto"] - losses[way] for way in ("alone", "trees")}
    moments = {way: [float(gap.mean()), float((gap**2).mean())] for way, gap in gaps.items()}
    means = {way: float(one.mean()) for way, one in losses.items()}
    return {"queries": len(y), "losses": means, "gaps": moments}


def verdict(some: list[common.Record], other: str) -> str:
    """Of "auto" against another way, over all queries of a table."""
    counts = np.array([one["queries"] for one in some])
    mean, square = np.average([one["gaps"][other] for one in some], axis=0, weights=counts)
    error = ((square - mean**2) / (counts.sum() - 1)) ** 0.5
    return "worse" if mean > 1.96 * error else "better" if mean < -1.96 * error else "level"


def summary(records: list[common.Record]) -> str:
    """A table: the scores of every way, and ``"auto"`` against the better of trees and CRUMB."""
    lines = []
    for name in dict.fromkeys(one["table"] for one in records):
        some = [one for one in records if one["table"] == name]
        counts = [one["queries"] for one in some]
        score = {
            way: float(np.average([one["losses"][way] for one in some], weights=counts))
            for way in WAYS
        }
        better = min(("alone", "trees"), key=lambda way, score=score: score[way])
        shown = [score[way] ** 0.5 if some[0]["regression"] else score[way] for way in WAYS]
        took = [f"{'guided' if o['auto']['shown'] else 'alone'} {o['auto']['share']}" for o in some]
        about = [name, some[0]["rows"], *(f"{one:.4g}" for one in shown), ", ".join(took)]
        lines.append([*about, verdict(some, better)])
    return common.markdown(lines, ["table", "rows", *WAYS, "auto takes", "auto is"])


def run_curves(folder: Path, about: common.Record, seed: int) -> common.Record:
    rows = min(MOST_ROWS, int(0.6 * about["n_rows"]))
    queries = min(MOST_QUERIES, about["n_rows"] - rows)
    X_pool, y_pool, X, y = read(folder, about["name"], rows, queries, seed)
    kind = CrumbRegressor if y.dtype.kind == "f" else CrumbClassifier
    model = kind(guide="trees", features=None, random_state=seed)
    model, seconds = common.timed(lambda: model.fit(X_pool, y_pool))
    if kind is CrumbClassifier:
        y = np.searchsorted(model.classes_, y)
    guide, asked = model.pool_.guide, model.encode(X)[0]
    (*trees, smooth), losses = guide.learner.shares, {}
    among = tuple(share / sum(trees) for share in trees)
    for way, shares in (("trees", (*among, 0.0)), ("with curves", (*trees, smooth))):
        guide.learner.shares = shares
        losses[way] = loss(y, guide.answers(asked))
    gap = losses["with curves"] - losses["trees"]
    about = {"table": about["name"], "seed": seed, "rows": len(X_pool), "queries": len(y)}
    about |= {way: float(one.mean()) for way, one in losses.items()}
    about |= {"errors": float(gap.mean() / (gap.std() / len(gap) ** 0.5 or 1.0))}
    return common.say({**about, "share": round(smooth, 3), "fit_seconds": round(seconds, 1)})


def summary_of_curves(records: list[common.Record]) -> str:
    ratios = np.array([one["with curves"] / one["trees"] for one in records])
    lines = [
        [
            one["table"],
            one["rows"],
            one["queries"],
            one["share"],
            f"{ratio:.4f}",
            f"{one['errors']:.1f}",
        ]
        for one, ratio in zip(records, ratios, strict=True)
    ]
    head = ["table", "rows", "queries", "share of curves", "ratio of losses", "standard errors"]
    wins, level = (ratios < 1).sum(), (ratios == 1).sum()
    said = f"lower on {wins}, equal on {level} of {len(ratios)}; median {np.median(ratios):.4f}, "
    said += f"p = {wilcoxon(np.log(ratios)).pvalue:.2g}"
    return f"{common.markdown(lines, head)}\n\n{said}"


def main() -> None:
    made = common.parser(__doc__, seeds=2, queries=400, clusters=16, context_size=400)
    common.add_data(made)
    made.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    made.add_argument("--curves", action="store_true", help="trees with and without curves")
    made.add_argument("--seed", type=int, default=0, help="of --curves")
    options = common.asked(
        made, lambda some: (summary_of_curves if "share" in some[0] else summary)(some)
    )
    records: list[common.Record] = []
    if options.curves:
        for about in common.index(options.data).values():
            if about["n_rows"] >= LEAST_ROWS:
                records.append(run_curves(options.data, about, options.seed))
                common.write(options, records)
        print(summary_of_curves(records))
        return
    for seed in range(options.seeds):
        for name in options.tables:
            records.append(run(options.data, name, options, seed))
            common.write(options, records)
    print(summary(records))


if __name__ == "__main__":
    main()
