"""Which method is best? Protocols ``main``, ``consistency`` and ``large``."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from experiments import statistics
from experiments.report import blocks, figures, paper
from experiments.report.blocks import CRUMB, Block, Figure, Table, by_lines, scores_of, table
from experiments.report.numbers import NOTHING, code, fixed, p_value, whole

UNITS = {"classification": "accuracy points", "regression": "% of RMSE"}
TESTS = """p is Wilcoxon's signed-rank test of paired ranks against CRUMB with Bonferroni's
correction, over groups as in the paper, and over mean ranks of the data sets: seeds of one data set
are not independent."""
MEDALS = {"best": "#e3b31c", "second": "#b9bfc8", "third": "#c98a54"}
PAIR = ("crumb", "micp")


def main(rows: pd.DataFrame) -> list[Block]:
    five = rows[rows["method"].isin(paper.MAIN_RANKS)]  # a sixth would change the ranks of the five
    scores, caption = scores_of(five, "main"), "Ranks by accuracy or RMSE, beside Table 1"
    if scores.empty:
        return ["None of the paper's five methods ended well: there is nothing to rank."]
    return [
        blocks.left_out(scores),
        blocks.rank_table(scores, caption, published=paper.MAIN_RANKS),
        TESTS,
        blocks.rank_bars("main-ranks", scores, "Mean ranks"),
        _challengers(rows),
        blocks.metric_table(rows, five, "main"),
        _times(rows),
        _lead_figure(rows),
        _losses(rows),
        *blocks.ranks_by_model(five, "main"),
        *blocks.dataset_tables(rows),
    ]


def _challengers(rows: pd.DataFrame) -> Table:
    """Methods that the paper does not have, each alone against CRUMB, by mean ranks of sets."""
    scores = scores_of(rows, "main")
    others = [method for method in scores if method not in paper.MAIN_RANKS and CRUMB in scores]
    lines = []
    for name in others:
        ranks = statistics.dataset_ranks(scores[[name, CRUMB]])
        test = statistics.compare(-ranks, name, CRUMB, len(others))
        leads = dataset_leads(rows, name, CRUMB).groupby("task")["lead"].mean()
        lines.append((code(name), *leads.reindex([*UNITS]), test.record, test.p, test.p_adjusted))
    columns = (
        f"Method | {':+2 | '.join(UNITS.values())}:+2 | sets won / tied / lost | p:p | p adj.:p"
    )
    return by_lines("Other methods against CRUMB, over data sets", columns, lines)


def _times(rows: pd.DataFrame) -> Table:
    shared = statistics.shared_rows(rows, "main")
    means = blocks.mean_costs(shared, ["method"], "contexts", "context_mean")
    means = means.loc[figures.in_order(means.index)]
    means.insert(4, "paper passes, s:s", means.index.map(paper.MAIN_PASS_SECONDS))
    caption = "Mean time of a run and its passes, over groups that all methods finished"
    return table(caption, {"Method": means.index.map(figures.label), **means})


def dataset_leads(rows: pd.DataFrame, method: str = CRUMB, other: str = "uniform") -> pd.DataFrame:
    """A line for each data set: the lead in accuracy points, or per cent of the other's RMSE."""
    found = []
    for task, part in rows.groupby("task"):
        pair = statistics.complete(scores_of(part, "main"), [method, other])
        pair = pair.groupby(level="dataset").mean()
        scale = pair[other].abs() if task == "regression" else 1
        lead = (100 * (pair[method] - pair[other]) / scale).round(statistics.DIGITS)
        found.append(pd.DataFrame({"lead": lead, "task": task}))
    return pd.concat(found).sort_values("lead", ascending=False)


def _losses(rows: pd.DataFrame) -> Table:
    """What tells the sets on which CRUMB loses to uniform from the others."""
    gains = dataset_leads(rows, "full")["lead"]
    facts = dataset_leads(rows).assign(N=rows.groupby("dataset")["N"].median(), gain=gains)
    lines = []
    for name, lost in (("CRUMB loses", True), ("elsewhere", False)):
        part = facts[(facts["lead"] < 0) == lost]
        counts = [str(len(part)), *(str((part["task"] == task).sum()) for task in UNITS)]
        lines.append((name, *counts, whole(part["N"].median()), fixed(part["gain"].median(), 2)))
    rho = [fixed(statistics.spearman(facts[name], facts["lead"]), 2) for name in ("N", "gain")]
    lines.append(("rank correlation with the lead", *[NOTHING] * 3, *rho))
    caption = "Where CRUMB loses to uniform, and what the full context gains over uniform there"
    columns = "sets | number | classification | regression | median N | median gain of full"
    return by_lines(caption, columns, lines if len(facts) else [])


def _lead_figure(rows: pd.DataFrame) -> Figure:
    panels = []
    for task, part in dataset_leads(rows).groupby("task"):
        leads, unit = part["lead"], f"CRUMB − uniform, {UNITS[task]}"
        colours = figures.colours(np.where(leads > 0, CRUMB, "uniform"))
        shape = {"height": 0.8 + 0.17 * len(part), "xlabel": unit}
        title = f"{task.capitalize()} sets"
        panels.append(figures.panel(title, figures.bars, leads, colours, **shape))
    caption = "CRUMB's lead over uniform, mean over seeds; bars to the left are losses."
    return Figure("main-leads", caption, panels)


def consistency(rows: pd.DataFrame) -> list[Block]:
    scores, caption = scores_of(rows, "consistency"), "Ranks by accuracy, beside Table 2"
    # Small data sets fall short of the size asked for, but belong to it.
    asked = pd.cut(rows["N"], [0, 500, 1_000, np.inf], labels=[500, 1_000, 2_000]).astype(float)
    levels = {"p": "proportion n / N", "N": "rows of the pool N, at most"}
    by_size = scores_of(rows.assign(N=asked), "consistency")
    return [
        blocks.left_out(scores),
        blocks.rank_table(scores, caption, published=paper.CONSISTENCY_RANKS),
        _medals(scores),
        blocks.rank_curves("consistency-curves", by_size, levels),
        *blocks.ranks_by_model(rows, "consistency"),
        blocks.metric_table(rows, rows, "consistency"),
        *blocks.dataset_tables(rows),
    ]


def medals(means: pd.DataFrame) -> np.ndarray:
    """0 for the best mean rank of a line, 1 for the second, 2 for the rest; equal ranks share."""
    places = means.round(statistics.DIGITS).rank(axis=1, method="min").to_numpy(int) - 1
    return np.minimum(places, len(MEDALS) - 1)


def _medals(scores: pd.DataFrame) -> Figure:
    means = statistics.ranks(blocks.compared(scores)).groupby(level=["model", "dataset"]).mean()
    panels = []
    for model, part in means.groupby(level="model"):
        texts = part.droplevel("model").map("{:.2f}".format).rename(columns=figures.label)
        colours, height = ListedColormap([*MEDALS.values()]), 0.8 + 0.2 * len(part)
        content = (texts, medals(part), colours, len(MEDALS) - 1)
        panels.append(figures.panel(str(model), figures.cells, *content, height=height))
    caption = """Mean rank of each method on each data set, over proportions, sizes and seeds (the
        paper's Figure 3). Gold is the best of the methods there; equal ranks share a colour."""
    legend = [figures.Look(name, colour) for name, colour in MEDALS.items()]
    return Figure("consistency-medals", caption, panels, legend)


def large(rows: pd.DataFrame) -> list[Block]:
    scores, good = scores_of(rows, "large"), statistics.ok_rows(rows)
    return [
        blocks.left_out(scores),
        _wins_and_sizes(good, scores),
        _costs(good, scores),
        blocks.rank_table(scores, "Ranks by accuracy or RMSE"),
        *blocks.dataset_tables(rows),
    ]


def wins_by_model(scores: pd.DataFrame) -> pd.DataFrame:
    """Models × methods, ties shared."""
    parts = blocks.compared(scores).groupby(level="model")
    return pd.DataFrame({model: statistics.wins(part) for model, part in parts}).T


def against_micp(scores: pd.DataFrame) -> dict[str, float]:
    """Wilcoxon's p of CRUMB against MICP for each model."""
    parts = statistics.complete(scores, PAIR).groupby(level="model")
    return {model: statistics.compare(part, *PAIR).p for model, part in parts}


def _wins_and_sizes(rows: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    won, tests = wins_by_model(scores), against_micp(scores)
    named = won.rename({model: f"{model}\np = {p_value(p)}" for model, p in tests.items()})
    pairs = rows[rows["method"].isin(PAIR) & (rows["task"] == "classification")]
    columns = {"size": ("context_mean", "mean"), "accuracy": ("accuracy", "median")}
    points = pairs.groupby(["dataset", "model", "method"]).agg(**columns)
    labels = {"xlabel": "mean rows of a context", "ylabel": "median accuracy", "xscale": "log"}
    bars = {"color": figures.colours(won), "legend": False, "rot": 0, "width": 0.8}
    panels = [
        figures.panel("(a) Wins", partial(named.plot.bar, **bars), ylabel="wins"),
        figures.panel("(b) Accuracy against context size", _sizes, points, **labels),
    ]
    caption = """(a) Wins over data sets and seeds, ties shared; p: CRUMB against MICP, Wilcoxon.
        (b) Median accuracy against mean context size of CRUMB and MICP; a line joins the two on one
        data set and model (the paper's Figure 4)."""
    return Figure("large-wins-and-sizes", caption, panels, figures.keys(won))


def _sizes(points: pd.DataFrame, ax: Axes) -> None:
    for _, pair in points.groupby(level=["dataset", "model"]):
        ax.plot(pair["size"], pair["accuracy"], color=figures.MUTED, linewidth=0.9)
    for method, part in points.groupby(level="method"):
        _, colour, marker = figures.look(method)
        ax.scatter(part["size"], part["accuracy"], s=34, color=colour, marker=marker, zorder=2)


def _costs(rows: pd.DataFrame, scores: pd.DataFrame) -> Table:
    keys = ["model", "method"]
    means = blocks.mean_costs(rows, keys, "context_mean")
    cells = {
        "Model": means.index.get_level_values("model"),
        "Method": means.index.get_level_values("method").map(figures.label),
        "wins:1": wins_by_model(scores).stack().reindex(means.index),
        "median accuracy": rows.groupby(keys)["accuracy"].median(),
        "context_mean": means.pop("context_mean"),
    }
    return table("Wins, context sizes and wall-clock", {**cells, **means})
