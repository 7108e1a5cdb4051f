"""Other selection spaces and other contexts than CRUMB's at the same n and K: what was tried (docs/experiments/ideas).

    python benchmarks/tried.py FOLDER --out tried.jsonl [--max-rows 5000] [--seeds 2] [--jobs 2] [--device cuda]
    python benchmarks/ideas.py tried.jsonl --base exact

FOLDER holds Parquet tables with an index.json, as for ``crumb bench``. Every method gets the same pool and queries: a
fifth of the table set aside, T = 200, n = 0.1N, K = 20, the embedded network, the exact kernel, the median bandwidth
of its own space. The row embeddings of ``features="embedding"`` were tried here first: ``embedding w`` weighs them w
times as much as the columns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.preprocessing import QuantileTransformer

from crumb import CrumbClassifier, CrumbRegressor
from crumb.bench.folder import sources
from crumb.bench.metrics import scores
from crumb.bench.protocol import Room, Run, share
from crumb.bench.split import split
from crumb.herding.kernel import median_bandwidth
from crumb.infer import infer
from crumb.pfn import Output
from crumb.planning import make_plan
from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import cluster
from crumb.selection.mmd import MMD
from crumb.table.embedding import RowEmbedding

CLUSTERS = 20
Spaces = tuple[np.ndarray, np.ndarray]  # pool and queries


class Trial:
    """A fitted estimator, its queries, and what several ideas need."""

    def __init__(self, model: Any, queries: Any):
        self.model, self.task = model, model.task
        self.rows, self.asked = model.encode(queries)
        self.pool, self.y = model.pool_.points, model.pool_.y

    @cached_property
    def forest(self) -> Any:
        """A quick supervised model."""
        kind = ExtraTreesClassifier if self.task == "classification" else ExtraTreesRegressor
        least = max(1, min(10, len(self.pool) // 200))
        forest = kind(
            100,
            min_samples_leaf=least,
            max_features=0.5,
            bootstrap=True,
            oob_score=True,
            random_state=0,
        )
        return forest.fit(self.pool, self.y)

    @cached_property
    def embedded(self) -> Spaces:
        embed = RowEmbedding(self.model.backend_, self.model.pool_, 0)
        return embed(self.model.pool_.rows), embed(self.rows)


def plain(trial: Trial) -> Spaces:
    return trial.pool, trial.asked


def importance(trial: Trial) -> Spaces:
    """Columns weighed by what a forest makes of them."""
    found = trial.forest.feature_importances_
    weights = np.sqrt(np.clip(found * len(found), 1e-3, None))
    return trial.pool * weights, trial.asked * weights


def prediction(trial: Trial, weight: float) -> Spaces:
    """Columns beside a forest's prediction: for rows of the pool, by the trees that have not seen them."""
    forest = trial.forest
    if trial.task == "classification":
        own = np.nan_to_num(forest.oob_decision_function_)
        never = own.sum(axis=1) == 0  # seen by all trees
        own[never] = forest.predict_proba(trial.pool)[never]
        return _beside(trial, own, forest.predict_proba(trial.asked), weight)
    return _beside(
        trial, forest.oob_prediction_[:, None], forest.predict(trial.asked)[:, None], weight
    )


def embedding(trial: Trial, weight: float | None) -> Spaces:
    """The network's row embeddings, alone or beside the columns."""
    return trial.embedded if weight is None else _beside(trial, *trial.embedded, weight)


def quantiles(trial: Trial) -> Spaces:
    """Columns by the rank of their values; indicators stay what they are."""
    numbers = len(trial.model.pool_.encoder.columns_) - len(trial.model.pool_.encoder.categorical_indices)
    if not numbers:
        return plain(trial)
    pool, asked = trial.pool.copy(), trial.asked.copy()
    ranks = QuantileTransformer(n_quantiles=min(1_000, len(pool)), random_state=0)
    pool[:, :numbers], asked[:, :numbers] = (
        ranks.fit_transform(pool[:, :numbers]),
        ranks.transform(asked[:, :numbers]),
    )
    spread = pool[:, :numbers].std(axis=0)
    spread[spread == 0] = 1.0
    pool[:, :numbers] /= spread
    asked[:, :numbers] /= spread
    return pool, asked


def _beside(trial: Trial, pool: np.ndarray, asked: np.ndarray, weight: float) -> Spaces:
    scale = weight * np.sqrt(trial.pool.var(axis=0).sum() / (pool.var(axis=0).sum() or 1.0))
    return np.hstack([trial.pool, scale * pool]), np.hstack([trial.asked, scale * asked])


class Union(Strategy):
    """The nearest row of every query of a cluster, then their second nearest, until there are n."""

    name = "union"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        contexts = []
        for k in range(len(centroids)):
            nearest = (
                cdist(problem.queries[labels == k], problem.pool)
                .argsort(axis=1)[:, : problem.n]
                .T.ravel()
            )
            first = np.sort(np.unique(nearest, return_index=True)[1])
            contexts.append(nearest[first][: problem.n])
        return Selection(labels, centroids, contexts, ["budget"] * len(contexts))


class Mixed(Strategy):
    """A matched part and a background of random rows."""

    name = "mixed"

    def __init__(self, matched: float = 0.8):
        self.matched = matched

    def select(self, problem: Problem) -> Selection:
        found = MMD().select(replace(problem, n=max(1, round(self.matched * problem.n))))
        rng, every = problem.rng("background"), np.arange(len(problem.pool))
        for k, context in enumerate(found.contexts):
            others = np.setdiff1d(every, context)
            more = rng.choice(others, min(problem.n - len(context), len(others)), replace=False)
            found.contexts[k] = np.concatenate([context, more])
        return replace(found, mmd2=None)


# Space, strategy, and factors of K and n.
METHODS: dict[str, tuple[Callable[[Trial], Spaces], Strategy, float, float]] = {
    "exact": (plain, MMD(), 1, 1),
    "importance": (importance, MMD(), 1, 1),
    "prediction 0.25": (partial(prediction, weight=0.25), MMD(), 1, 1),
    "prediction 0.5": (partial(prediction, weight=0.5), MMD(), 1, 1),
    "embedding": (partial(embedding, weight=None), MMD(), 1, 1),
    "embedding 2": (partial(embedding, weight=2.0), MMD(), 1, 1),
    "embedding 4": (partial(embedding, weight=4.0), MMD(), 1, 1),
    "embedding, union": (partial(embedding, weight=None), Union(), 1, 1),
    "quantiles": (quantiles, MMD(), 1, 1),
    "union": (plain, Union(), 1, 1),
    "mixed 0.8": (plain, Mixed(0.8), 1, 1),
    "K = 10, 2n": (plain, MMD(), 0.5, 2),
    "K = 40, n/2": (plain, MMD(), 2, 0.5),
    "K = 100, n/5": (plain, MMD(), 5, 0.2),
    "K = 200, n/10": (plain, MMD(), 10, 0.1),
    "K = 40, n": (plain, MMD(), 2, 1),
}


def run_table(job: tuple[str, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """All methods on one table with one seed."""
    warnings.simplefilter("ignore")
    name, seed = job
    source = next(table for table in sources(options.folder) if table.name == name)
    data = source.load()
    room = Room(len(data.y), 200, options.max_rows)
    N = room.pool()
    n = share(N, 0.1)
    run = Run("main", name, source.task, "embedded", "", seed, N=N, T=room.T, n=n, K=CLUSTERS)
    rows = split(run, data)
    kind = CrumbClassifier if source.task == "classification" else CrumbRegressor
    model = kind(
        device=options.device, cache_size=0, kernel="exact", min_per_class=0, random_state=seed
    )
    trial = Trial(model.fit(data.X.iloc[rows.pool], data.y[rows.pool]), data.X.iloc[rows.queries])
    found = []
    for method in options.methods:
        answers = _answers(trial, method, n, seed)
        if source.task == "classification":
            every = np.zeros((len(answers), data.n_classes or 0))
            every[:, model.classes_] = answers
            answers = every
        about = {
            "protocol": "main",
            "dataset": name,
            "task": source.task,
            "model": "embedded",
            "method": method,
        }
        sizes = {"seed": seed, "N": N, "T": run.T, "n": n, "K": CLUSTERS, "status": "ok"}
        found.append({**about, **sizes, **scores(source.task, data.y[rows.queries], answers)})
    return found


def _answers(trial: Trial, method: str, n: int, seed: int) -> np.ndarray:
    space, strategy, more_clusters, more_rows = METHODS[method]
    pool, asked = (np.ascontiguousarray(points) for points in space(trial))
    settings = replace(
        trial.model.options_,
        strategy=strategy,
        n_clusters=round(CLUSTERS * more_clusters),
        n=max(10, round(n * more_rows)),
        bandwidth=median_bandwidth(pool, np.random.default_rng([seed, 0])),
    )
    plan = make_plan(pool, asked, settings, "", evidence=False)
    output = Output("proba" if trial.task == "classification" else "mean")
    return infer(
        trial.model.backend_, trial.model.pool_, plan.contexts, plan.labels, trial.rows, output
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-rows", type=int, default=5_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--datasets", type=lambda text: text.split(","))
    parser.add_argument("--methods", type=lambda text: text.split(";"), default=list(METHODS))
    options = parser.parse_args()
    names = [
        table.name
        for table in sources(options.folder)
        if not options.datasets or table.name in options.datasets
    ]
    jobs = [(name, seed) for seed in range(options.seeds) for name in names]
    with (
        multiprocessing.get_context("spawn").Pool(options.jobs) as pool,
        options.out.open("w") as file,
    ):
        for rows in pool.imap_unordered(partial(run_table, options=options), jobs):
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()


if __name__ == "__main__":
    main()
