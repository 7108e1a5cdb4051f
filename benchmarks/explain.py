"""Shapley values: ``crumb.explain`` beside shap on a plain PFN, with as many masked rows.

    python benchmarks/explain.py --out benchmarks/results/explain.json

One made table, the embedded network. ``crumb`` is fit, plan and explanation with the library's
defaults; ``crumb, again`` is a second explanation with the same plan. ``shap`` is its permutation
explainer around the estimator of the network's package, on the whole pool (``pool``) and on as many
rows as a context has (``context``). It asks one query at a time, and each time the network sees its
training rows again. Only some queries are timed there (``timed``), and their time is scaled up.

``cpu_seconds`` are those of all threads: on a busy machine, ``seconds`` says more about the others.
``influence`` is ``influential_rows`` for one query.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import shap
from sklearn.datasets import make_classification
from tabicl import TabICLClassifier

import crumb


def measured(way: str, work: Callable[[], Any], times: float = 1, **more: Any) -> common.Record:
    """Of the whole work, where ``times`` less was done."""
    cpu = time.process_time()
    _, seconds = common.timed(work)
    cpu = time.process_time() - cpu
    found = {"way": way, "seconds": times * seconds, "cpu_seconds": times * cpu, **more}
    return common.say({**found, "load": os.getloadavg()[0]})


def run(options: argparse.Namespace) -> list[common.Record]:
    rows, queries, columns = options.rows, options.queries, options.columns
    informative = max(2, columns // 2)
    about: dict[str, Any] = {"n_informative": informative, "random_state": 0}
    X, y = make_classification(rows + queries, columns, **about)
    asked, pool, labels = X[:queries], X[queries:], y[queries:]
    clf = crumb.CrumbClassifier().fit(pool[:50], labels[:50])
    clf.predict(asked[:2])  # loads the network
    masked = 2 * columns * options.background * queries
    found: list[common.Record] = []

    def whole() -> None:
        clf.fit(pool, labels)
        crumb.explain(clf, asked, background=options.background, method="permutation")

    found.append(measured("crumb", whole, masked_rows=masked))
    plan = clf.plan(asked)
    again: dict[str, Any] = {"plan": plan, "background": options.background}
    contexts = {"contexts": plan.n_clusters, "context_size": int(plan.sizes.max())}
    explain = lambda: crumb.explain(clf, asked, method="permutation", **again)  # noqa: E731
    found.append(measured("crumb, again", explain, masked_rows=masked, **contexts))
    found.append(measured("influence", lambda: crumb.influential_rows(clf, asked[:1], plan=plan)))
    sizes = {"shap, context": contexts["context_size"], "shap, pool": rows}
    for way, size in sizes.items():
        plain = TabICLClassifier(n_estimators=1, model_path=clf.backend_.path, device="cpu")
        plain.fit(pool[:size], labels[:size])
        masker = shap.maskers.Independent(pool[: options.background], options.background)
        explainer = shap.explainers.Permutation(plain.predict_proba, masker, seed=0)
        explainer(asked[:1, :], max_evals=2 * columns + 1)  # compiles
        some = asked[: options.timed]
        work = lambda: explainer(some, max_evals=2 * columns + 1)  # noqa: B023, E731
        more = {"timed": len(some), "context_size": size, "masked_rows": masked}
        found.append(measured(way, work, queries / len(some), **more))
    return found


def main() -> None:
    sizes = {"rows": 5_000, "columns": 20, "queries": 100, "background": 10, "timed": 2}
    options = common.parser(__doc__, **sizes).parse_args()
    np.random.seed(0)  # noqa: NPY002 (shap's own generator)
    common.write(options, run(options))


if __name__ == "__main__":
    main()
