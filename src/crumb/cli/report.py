"""``crumb report``: one HTML page on how well a table can be predicted, and at what cost."""

from __future__ import annotations

import argparse
import base64
import io
import time
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.base import clone

import crumb
from crumb import markup, picture
from crumb.cli.console import print_json, print_table
from crumb.cli.predict import ask, score, with_chances
from crumb.cli.tables import Tables, as_classes, check_output, fit_table, load_tables
from crumb.errors import BackendUnavailable, InvalidInput
from crumb.files import atomic_write
from crumb.machine import resolve_jobs
from crumb.rng import generator
from crumb.trees import Trees, lightgbm

WORST, NEAREST = 5, 5  # queries that are shown, and rows of the context of each
BINS = 10
NO_TREES = "<p class='note'>Boosted trees are left out: pip install 'crumb-pfn[guide]'.</p>"
LEAST = 1e-15  # a probability of 0 would be an infinite loss
STYLE = """body{font:15px/1.5 system-ui,sans-serif;color:#333a45;max-width:64em;margin:2em auto;
padding:0 1em}table{border-collapse:collapse;margin:.6em 0;font-size:13px;display:block;
overflow-x:auto}th,td{padding:.25em .7em;border-bottom:1px solid #e3e6eb;text-align:right}
img{max-width:100%}h2{margin-top:2em}p.note{color:#6b7785}"""


@dataclass
class Way:
    """One way to answer the queries."""

    name: str
    answers: pd.DataFrame  # a prediction and the probabilities
    seconds: float


def run(args: argparse.Namespace) -> None:
    check_output(args.out, (".html",), inputs=[args.train, args.test])
    tables = _known(args, load_tables(args, args.test))
    started = time.perf_counter()
    model = fit_table(args, tables.X_train, tables.y_train)
    costs = {"fit": time.perf_counter() - started}
    model.predict(tables.X_test.head(2))  # loads the network: no way should pay for it
    started = time.perf_counter()
    plan = model.plan(tables.X_test)
    planned = time.perf_counter()
    answers = ask(args, model, tables.X_test, plan)
    costs |= {"plan": planned - started, "passes": time.perf_counter() - planned}
    ways = [Way("CRUMB", answers, sum(costs.values())), *_others(args, model, tables)]
    scores = [_scores(model, tables.y_test, way) for way in ways]
    parts = {
        "Data at a glance": _data(args, model, tables),
        "Scores": markup.table(pd.DataFrame(scores), index=False) + ("" if ways[2:] else NO_TREES),
        "Calibration" if model.task == "classification" else "Residuals": _image(
            _draw(model, tables.y_test, answers)
        ),
        "Worst queries, and rows of their contexts": _worst(model, tables, answers, plan),
        "What it cost": _cost(model, plan, costs),
    }
    _write(args.out, f"{args.target} in {args.test}", parts)
    if args.json:
        print_json({"scores": scores, "seconds": costs, "out": args.out})
        return
    print_table(scores)
    print(f"the page is in {args.out}")


def _known(args: argparse.Namespace, tables: Tables) -> Tables:
    """Without test rows whose target is missing."""
    if tables.y_test is None:
        raise InvalidInput(
            f"{args.test} has no column {args.target!r}: a report compares predictions with it."
        )
    known = tables.y_test.notna()
    if known.sum() < 2:
        raise InvalidInput(f"{args.test} has fewer than two rows with the target {args.target!r}.")
    return tables._replace(X_test=tables.X_test[known], y_test=tables.y_test[known])


def _others(args: argparse.Namespace, model: Any, tables: Tables) -> list[Way]:
    """Uniform contexts, and a model of the whole pool where LightGBM is installed."""
    started = time.perf_counter()
    uniform = clone(model).set_params(strategy="uniform")
    y = tables.y_train
    uniform.fit(tables.X_train, as_classes(y) if model.task == "classification" else y)
    answers = ask(args, uniform, tables.X_test, uniform.plan(tables.X_test))
    found = [Way("uniform contexts", answers, time.perf_counter() - started)]
    try:
        lightgbm()
    except BackendUnavailable:
        return found
    started = time.perf_counter()
    answers = _trees(model, tables.X_test)
    return [*found, Way("trees and curves", answers, time.perf_counter() - started)]


def _trees(model: Any, queries: pd.DataFrame) -> pd.DataFrame:
    """What a guide learns from the whole pool; a tenth ends the training and weighs its kinds."""
    pool, options = model.pool_, model.options_
    categories, jobs = pool.encoder.categorical_indices, resolve_jobs(options.n_jobs)
    trees = Trees(pool.n_classes, categories, options.seed, jobs)
    stop = generator(options.seed, "report").permutation(pool.size)[: max(1, pool.size // 10)]
    table = trees.table(pool.rows)
    boosters = trees.fit(table, pool.y, stop)
    trees.weigh(pool.y[stop], trees.answers(boosters, table[stop]))
    found = trees.joined(trees.answers(boosters, trees.table(model.encode(queries)[0])))
    if model.task == "regression":
        return pd.DataFrame({"prediction": found})
    return with_chances(model, found)


def _losses(model: Any, truth: pd.Series, answers: pd.DataFrame) -> np.ndarray:
    """Of each query: the negative logarithm of its class's probability, or the absolute error."""
    if model.task == "regression":
        return np.abs(truth.to_numpy(dtype=float) - answers["prediction"].to_numpy())
    places = pd.Index(model.classes_).get_indexer(pd.Index(as_classes(truth)))
    chances = answers.iloc[:, 1:].to_numpy()[np.arange(len(truth)), places]
    return -np.log(np.clip(np.where(places < 0, 0, chances), LEAST, 1))


def _scores(model: Any, truth: pd.Series, way: Way) -> dict[str, Any]:
    mean = float(_losses(model, truth, way.answers).mean())
    name = "log_loss" if model.task == "classification" else "mae"
    return {"way": way.name, **score(model, truth, way.answers), name: mean, "seconds": way.seconds}


def _data(args: argparse.Namespace, model: Any, tables: Tables) -> str:
    train, test = tables.X_train, tables.X_test
    about = {
        "training rows": f"{len(train):,} ({args.train})",
        "test rows": f"{len(test):,} ({args.test})",
        "columns": train.shape[1],
        "task": model.task,
        "classes": model.pool_.n_classes,
    }
    columns = pd.DataFrame(
        {
            "kind": model.pool_.encoder.kinds_,
            "distinct": train.nunique().to_numpy(),
            "missing": [f"{share:.1%}" for share in train.isna().mean()],
            "missing in test": [f"{share:.1%}" for share in test.isna().mean()],
            "first": [markup.shown(value) for value in train.iloc[0]],
        },
        index=train.columns,
    )
    return markup.facts(f"target: {args.target}", about) + markup.table(columns, most=50)


def _draw(model: Any, truth: pd.Series, answers: pd.DataFrame) -> Figure:
    figure = picture.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    if model.task == "classification":
        chances = answers.iloc[:, 1:].to_numpy().max(axis=1)
        right_or_not = as_classes(truth) == answers["prediction"].to_numpy()
        bins = np.minimum((chances * BINS).astype(int), BINS - 1)
        means = pd.DataFrame({"said": chances, "was": right_or_not}).groupby(bins).mean()
        left.plot([0, 1], [0, 1], color=picture.LINES, linewidth=1)
        left.plot(means["said"], means["was"], "o-", color=picture.CONTEXT)
        left.set(xlabel="probability of the predicted class", ylabel="share that is right")
        left.set_title("calibration: on the line is best")
        right.hist(chances, BINS, range=(0, 1), color=picture.QUERIES)
        right.set(xlabel="probability of the predicted class", ylabel="queries")
        right.set_title("how sure the answers are")
    else:
        numbers, found = truth.to_numpy(dtype=float), answers["prediction"].to_numpy()
        left.scatter(numbers, found, s=8, color=picture.QUERIES, alpha=0.6)
        left.axline((numbers.mean(), numbers.mean()), slope=1, color=picture.LINES, linewidth=1)
        left.set(xlabel="target", ylabel="prediction", title="on the line is best")
        right.hist(numbers - found, 30, color=picture.QUERIES)
        right.set(xlabel="target less prediction", ylabel="queries", title="residuals")
    return picture.finish(figure, None)


def _image(figure: Figure) -> str:
    """Inside the page, which is then one file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    text = base64.b64encode(file.getvalue()).decode()
    return f"<img alt='' src='data:image/png;base64,{text}'>"


def _worst(model: Any, tables: Tables, answers: pd.DataFrame, plan: crumb.Plan) -> str:
    """The queries with the largest loss, each above the nearest rows of its context."""
    losses = _losses(model, tables.y_test, answers)
    shown = []
    for i in np.argsort(-losses, kind="stable")[:WORST]:
        query = tables.X_test.iloc[i : i + 1]
        near = crumb.influential_rows(model, query, plan=plan, candidates=NEAREST)
        truth, found = (
            markup.shown(part.iloc[i]) for part in (tables.y_test, answers["prediction"])
        )
        said = f"row {query.index[0]:,}: {truth}, predicted {found}, loss {losses[i]:.3g}"
        shown.append(
            f"<h3>{escape(said)}</h3>{markup.table(query, index=False)}{markup.table(near)}"
        )
    about = "Under each query: the nearest rows of its context. <i>influence</i> is what the "
    about += "answer loses when that row is left out."
    return f"<p>{about}</p>{''.join(shown)}"


def _cost(model: Any, plan: crumb.Plan, costs: dict[str, float]) -> str:
    about = {
        **{f"{name}, seconds": seconds for name, seconds in costs.items()},
        "contexts": plan.n_clusters,
        "rows of a context, at most": int(plan.sizes.max()),
        "model": model.backend_.name,
        "device": model.options_.device,
    }
    return markup.facts(repr(model), about) + markup.table(plan.summary())


def _write(path: str, title: str, parts: dict[str, str]) -> None:
    body = "".join(f"<h2>{escape(name)}</h2>{part}" for name, part in parts.items())
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
    page = f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{escape(title)}</h1>"
    with atomic_write(path) as file:
        file.write(f"{page}{body}</body></html>\n".encode())
