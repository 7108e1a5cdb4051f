"""Shapley values: ``crumb.explain`` beside shap on a plain PFN, with as many masked rows.

    python benchmarks/explain.py --out benchmarks/results/explain.json

One made table, 0.1's embedded network, which tabicl loads too. ``crumb`` is fit, plan and
explanation with the library's defaults; ``crumb, again`` is another explanation with the same plan.
``shap`` is its permutation explainer around the estimator of the network's package, on the whole
pool (``pool``) and on as many rows as a context has (``context``). It asks one query at a time, and
each time the network sees its training rows again. Only some queries are timed there (``timed``),
and their time is scaled up.

``relative_error`` is the standard error of a Shapley value beside the size of the values, both as
root mean squares, with ``background`` rows and with four times as many (for ten queries).
``cpu_seconds`` are those of all threads: on a busy machine, ``seconds`` says more about the others.
``influence`` is ``influential_rows`` for one query.

    python benchmarks/explain.py --backgrounds --out benchmarks/results/explain_background.json

How far are values with ten background rows from those with the whole context? First rows of the
contexts against random ones: to the network a context is a set, so a shuffled plan gives the same
answers. Twelve queries, contexts of 120 rows, root mean squares over four shuffles.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import common
import numpy as np
import shap
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from tabicl import TabICLClassifier

import crumb


def measured(way: str, work: Callable[[], Any], times: float = 1, **more: Any) -> common.Record:
    """Of the whole work, where ``times`` less was done."""
    cpu = time.process_time()
    result, seconds = common.timed(work)
    cpu = time.process_time() - cpu
    found = {"way": way, "seconds": times * seconds, "cpu_seconds": times * cpu, **more}
    if way == "crumb, again":
        found["relative_error"] = size(result.error_std) / size(result.values)
    return common.say({**found, "load": os.getloadavg()[0]})


def size(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values).mean()))


def run(options: argparse.Namespace) -> list[common.Record]:
    rows, queries, columns = options.rows, options.queries, options.columns
    informative = max(2, columns // 2)
    about: dict[str, Any] = {"n_informative": informative, "random_state": 0}
    X, y = make_classification(rows + queries, columns, **about)
    asked, pool, labels = X[:queries], X[queries:], y[queries:]
    clf = crumb.CrumbClassifier(model="embedded-0.1").fit(pool[:50], labels[:50])
    clf.predict(asked[:2])  # loads the network
    masked = 2 * columns * options.background * queries
    found: list[common.Record] = []

    def whole() -> None:
        clf.fit(pool, labels)
        crumb.explain(clf, asked, background=options.background, method="permutation")

    found.append(measured("crumb", whole, masked_rows=masked))
    plan = clf.plan(asked)
    contexts = {"contexts": plan.n_clusters, "context_size": int(plan.sizes.max())}
    for times in (1, 4):
        background = times * options.background
        about = {"background": background, "masked_rows": times * masked, **contexts}
        more: dict[str, Any] = {"plan": plan, "background": background, "method": "permutation"}
        explain = partial(crumb.explain, clf, asked if times == 1 else asked[:10], **more)
        scale = 1 if times == 1 else queries / len(asked[:10])
        found.append(measured("crumb, again", explain, scale, **about))
    found.append(measured("influence", lambda: crumb.influential_rows(clf, asked[:1], plan=plan)))
    sizes = {"shap, context": contexts["context_size"], "shap, pool": rows}
    for way, size in sizes.items():
        plain = TabICLClassifier(n_estimators=1, model_path=clf.backend_.path, device="cpu")
        plain.fit(pool[:size], labels[:size])
        masker = shap.maskers.Independent(pool[: options.background], options.background)
        explainer = shap.explainers.Permutation(plain.predict_proba, masker, seed=0)
        explainer(asked[:1, :], max_evals=2 * columns + 1)  # compiles
        some = asked[: options.timed]
        work = partial(explainer, some, max_evals=2 * columns + 1)
        more = {"timed": len(some), "context_size": size, "masked_rows": masked}
        found.append(measured(way, work, queries / len(some), **more))
    return found


def backgrounds() -> list[common.Record]:
    found = []
    for load, kind in ((load_diabetes, "Regressor"), (load_breast_cancer, "Classifier")):
        X, y = load(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y = X[order, :12], y[order]
        model = getattr(crumb, f"Crumb{kind}")(n_clusters=2, context_size=120)
        plan = model.fit(X[12:], y[12:]).plan(X[:12])
        about: dict[str, Any] = {"X": X[:12], "method": "permutation"}
        whole = crumb.explain(model, plan=plan, background=120, **about).values
        errors: dict[str, list[float]] = {"first rows": [], "random rows": []}
        for seed in range(4):
            rng = np.random.default_rng(seed)
            model.options_ = replace(model.options_, seed=seed)  # other orders of columns
            shuffled = replace(plan, contexts=[rng.permutation(one) for one in plan.contexts])
            for way, one in (("first rows", plan), ("random rows", shuffled)):
                values = crumb.explain(model, plan=one, background=10, **about).values
                errors[way].append(size(values - whole) / size(whole))
        means = {way: size(np.array(some)) for way, some in errors.items()}
        found.append(common.say({"table": load.__name__, **means}))
    return found


def main() -> None:
    sizes = {"rows": 5_000, "columns": 20, "queries": 100, "background": 10, "timed": 2}
    parser = common.parser(__doc__, **sizes)
    parser.add_argument("--backgrounds", action="store_true")
    options = parser.parse_args()
    np.random.seed(0)  # noqa: NPY002 (shap's own generator)
    common.write(options, backgrounds() if options.backgrounds else run(options))


if __name__ == "__main__":
    main()
