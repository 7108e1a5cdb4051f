"""``crumb explain``: what each column did to each prediction, and which training rows mattered."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

import crumb
from crumb.cli.console import print_json, print_table
from crumb.cli.tables import PICTURES, TABLES, check_output, fit_table, load_tables, write_table
from crumb.explanation import shap_package
from crumb.options import positive

SHOWN_COLUMNS = 15


def run(args: argparse.Namespace) -> None:
    shap_package()
    for path, kinds in ((args.out, TABLES), (args.influence, TABLES), (args.picture, PICTURES)):
        check_output(path, kinds, inputs=[args.train, args.test])
    tables = load_tables(args, args.test)
    started = time.perf_counter()
    queries = tables.X_test.head(positive("--first", args.first))
    model = fit_table(args, tables.X_train, tables.y_train)
    plan = model.plan(queries) if args.plan is None else crumb.Plan.load(args.plan)
    found = crumb.explain(model, queries, plan=plan, background=args.background)
    write_table(long_table(found, queries), args.out)
    if args.influence:
        write_table(_influence(model, queries, plan), args.influence)
    columns = _ranked(found)
    if args.picture:
        _draw(columns, args.picture)
    written = {"out": args.out, "influence": args.influence, "picture": args.picture}
    seconds = time.perf_counter() - started
    if args.json:
        print_json({"rows": len(queries), "columns": columns, **written, "seconds": seconds})
        return
    print_table(columns, limit=SHOWN_COLUMNS)
    print(f"{len(queries):,} rows explained in {seconds:.1f} s: {args.out}")


def long_table(found: Any, queries: pd.DataFrame) -> pd.DataFrame:
    """A line for each query, class (where there are classes) and column."""
    values, shape = found.values, found.values.shape
    texts = queries.astype(object).where(queries.notna(), "").to_numpy().astype(str)

    def spread(array: Any, *axes: int) -> np.ndarray:
        """Values of some axes, repeated along the others."""
        wanted = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        return np.broadcast_to(np.asarray(array).reshape(wanted), shape).ravel()

    table = {"row": spread(np.arange(shape[0]), 0)}
    if found.output_names is not None:
        table["class"] = spread(found.output_names, 2)
    table |= {"column": spread(found.feature_names, 1), "value": spread(texts, 0, 1)}
    table |= {"shapley": values.ravel(), "error": found.error_std.ravel()}
    return pd.DataFrame({**table, "base": spread(found.base_values, 0, 2)})


def _influence(model: Any, queries: pd.DataFrame, plan: crumb.Plan) -> pd.DataFrame:
    """The rows that mattered for every query, each after the number of its query."""
    each = (
        crumb.influential_rows(model, queries[i : i + 1], plan=plan) for i in range(len(queries))
    )
    joined = pd.concat(list(each), keys=range(len(queries)), names=["query", "row"])
    return joined.reset_index(allow_duplicates=True)


def _ranked(found: Any) -> list[dict[str, Any]]:
    """The columns, those first that move predictions most; over all classes."""
    sizes = np.abs(found.values).reshape(*found.values.shape[:2], -1).mean(axis=(0, 2))
    order = np.argsort(-sizes, kind="stable")
    return [{"column": found.feature_names[j], "mean_shapley": float(sizes[j])} for j in order]


def _draw(columns: list[dict[str, Any]], path: str) -> None:
    from crumb import picture

    shown = columns[:SHOWN_COLUMNS]
    figure = picture.new_figure(7, 1.2 + 0.3 * len(shown))
    axes = figure.subplots()
    names, sizes = zip(*(line.values() for line in shown), strict=True)
    axes.barh(range(len(shown)), sizes, color=picture.CONTEXT, height=0.65)
    axes.set(xlabel="mean absolute Shapley value", yticks=range(len(shown)), yticklabels=names)
    axes.set_title("How much each column moves the predictions")
    axes.invert_yaxis()
    picture.finish(figure, path)
