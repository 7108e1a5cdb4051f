"""Methods against each other: ``main``, ``consistency``, ``large``, ``drift``, ``complexity``."""

from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap

from experiments import statistics
from experiments.report import blocks, figures, paper
from experiments.report.blocks import CRUMB, Block, Figure, Table, by_lines, scores_of, sweep, table
from experiments.report.numbers import NOTHING, code, counted, fixed, p_value, whole

UNITS = {"classification": "accuracy points", "regression": "% of RMSE"}
OURS = figures.label(CRUMB)
TESTS = f"""p is Wilcoxon's signed-rank test of paired ranks against {OURS}, with Bonferroni's
correction, over groups as in the paper, and over mean ranks of the data sets: seeds of one data set
are not independent."""
MEDALS = ListedColormap(["#e3b31c", "#b9bfc8", "#c98a54"])  # gold, silver, bronze
PAIR = (CRUMB, "micp")
DRIFT_UNITS = {"classification": "accuracy points", "regression": "% of MICP's RMSE"}
WHERE = ["model", "device"]
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


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
        challengers(rows, "main", paper.MAIN_RANKS),
        blocks.metric_table(rows, five, "main"),
        _times(rows),
        _lead_figure(rows),
        _losses(rows),
        *blocks.ranks_by_model(five, "main"),
        blocks.dataset_table(rows, "accuracy"),
        blocks.dataset_table(rows, "rmse"),
    ]


def challengers(rows: pd.DataFrame, protocol: str, known: Collection[str],
                reference: str = CRUMB) -> Table:  # fmt: skip
    """Methods that the paper does not have, each alone against CRUMB, by mean ranks of sets."""
    scores = scores_of(rows, protocol)
    others = [method for method in scores if method not in known and reference in scores]
    lines = []
    for name in others:
        ranks = statistics.dataset_ranks(scores[[name, reference]])
        test = statistics.compare(-ranks, name, reference, len(others))
        leads = dataset_leads(rows, name, reference, protocol).groupby("task")["lead"].mean()
        shown = figures.label(name) if name in figures.METHODS else code(name)
        lines.append((shown, *leads.reindex([*UNITS]), test.record, test.p, test.p_adjusted))
    units = " | ".join(f"{unit}:+2" for unit in UNITS.values())
    columns = f"Method | {units} | sets won / tied / lost | p:p | p adj.:p"
    caption = f"Other methods against {figures.label(reference)}, over data sets"
    return by_lines(caption, columns, lines)


def _times(rows: pd.DataFrame) -> Table:
    shared = statistics.shared_rows(rows, "main")
    means = blocks.mean_costs(shared, ["method"], "contexts", "context_mean")
    means = means.loc[figures.in_order(means.index)]
    means.insert(4, "paper passes, s:s", means.index.map(paper.MAIN_PASS_SECONDS))
    caption = "Mean time of a run and its passes, over groups that all methods finished"
    return table(caption, {"Method": means.index.map(figures.label), **means})


def dataset_leads(rows: pd.DataFrame, method: str = CRUMB, other: str = "uniform",
                  protocol: str = "main") -> pd.DataFrame:  # fmt: skip
    """A line for each data set: the lead in accuracy points, or per cent of the other's RMSE."""
    found = []
    for task, part in rows.groupby("task"):
        pair = statistics.complete(scores_of(part, protocol), [method, other])
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
    for name, lost in (("it loses", True), ("elsewhere", False)):
        part = facts[(facts["lead"] < 0) == lost]
        counts = [str(len(part)), *(str((part["task"] == task).sum()) for task in UNITS)]
        lines.append((name, *counts, whole(part["N"].median()), fixed(part["gain"].median(), 2)))
    rho = [fixed(statistics.spearman(facts[name], facts["lead"]), 2) for name in ("N", "gain")]
    lines.append(("rank correlation with the lead", *[NOTHING] * 3, *rho))
    caption = f"{OURS}: where it loses to uniform, and what the full context gains there"
    columns = "sets | number | classification | regression | median N | median gain of full"
    return by_lines(caption, columns, lines if len(facts) else [])


def _lead_figure(rows: pd.DataFrame) -> Figure:
    panels = []
    for task, part in dataset_leads(rows).groupby("task"):
        unit, colours = UNITS[task], figures.colours(np.where(part["lead"] > 0, CRUMB, "uniform"))
        shape = {"height": 0.8 + 0.17 * len(part), "xlabel": f"lead over uniform, {unit}"}
        title = f"{task.capitalize()} sets"
        panels.append(figures.panel(title, figures.bars, part["lead"], colours, **shape))
    caption = f"{OURS}: its lead over uniform, mean over seeds; bars to the left are losses."
    return Figure("main-leads", caption, panels)


def consistency(rows: pd.DataFrame) -> list[Block]:
    three = rows[rows["method"].isin(paper.CONSISTENCY_RANKS)]
    scores, caption = scores_of(three, "consistency"), "Ranks by accuracy, beside Table 2"
    # Small data sets fall short of the size asked for, but belong to it.
    asked = pd.cut(three["N"], [0, 500, 1_000, np.inf], labels=[500, 1_000, 2_000]).astype(float)
    levels = {"p": "proportion n / N", "N": "rows of the pool N, at most"}
    by_size = scores_of(three.assign(N=asked), "consistency")
    return [
        blocks.left_out(scores),
        blocks.rank_table(scores, caption, published=paper.CONSISTENCY_RANKS),
        challengers(rows, "consistency", paper.CONSISTENCY_RANKS),
        _medals(scores),
        blocks.rank_curves("consistency-curves", by_size, levels),
        *blocks.ranks_by_model(three, "consistency"),
        blocks.metric_table(rows, three, "consistency"),
        blocks.dataset_table(rows, "accuracy"),
    ]


def medals(means: pd.DataFrame) -> np.ndarray:
    """0 for the best mean rank of a line, 1 for the second, 2 for the rest; equal ranks share."""
    places = means.round(statistics.DIGITS).rank(axis=1, method="min").to_numpy(int) - 1
    return np.minimum(places, MEDALS.N - 1)


def _medals(scores: pd.DataFrame) -> Figure:
    means = statistics.ranks(blocks.compared(scores)).groupby(level=["model", "dataset"]).mean()
    panels = []
    for model, part in means.groupby(level="model"):
        texts = part.droplevel("model").map("{:.2f}".format).rename(columns=figures.label)
        content, height = (texts, medals(part), MEDALS, MEDALS.N - 1), 0.8 + 0.2 * len(part)
        panels.append(figures.panel(str(model), figures.cells, *content, height=height))
    caption = """Mean rank of each method on each data set, over proportions, sizes and seeds (the
        paper's Figure 3). Gold is the best of the methods there; equal ranks share a colour."""
    return Figure("consistency-medals", caption, panels)


def large(rows: pd.DataFrame) -> list[Block]:
    three = rows[rows["method"].isin(paper.CONSISTENCY_RANKS)]  # the same as on small sets
    scores, good = scores_of(three, "large"), statistics.ok_rows(rows)
    return [
        blocks.left_out(scores),
        _wins_and_sizes(good, scores),
        _costs(good, scores),
        blocks.rank_table(scores, "Ranks by accuracy or RMSE"),
        challengers(rows, "large", paper.CONSISTENCY_RANKS),
        blocks.dataset_table(rows, "accuracy"),
        blocks.dataset_table(rows, "rmse"),
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
    titles = {model: f"{model}\np = {p_value(p)}" for model, p in tests.items()}
    pairs = rows[rows["method"].isin(PAIR) & (rows["task"] == "classification")]
    columns = {"size": ("context_mean", "mean"), "accuracy": ("accuracy", "median")}
    points = pairs.groupby(["dataset", "model", "method"]).agg(**columns)
    labels = {"xlabel": "mean rows of a context", "ylabel": "median accuracy", "xscale": "log"}
    bars = won.rename(titles).rename(columns=figures.label).plot.bar
    wins = partial(bars, color=figures.colours(won), legend=False, rot=0)
    panels = [
        figures.panel("(a) Wins", wins, ylabel="wins", legend=True),
        figures.panel("(b) Accuracy against context size", _sizes, points, **labels),
    ]
    caption = f"""(a) Wins over data sets and seeds, ties shared; p: {OURS}, against MICP, Wilcoxon.
        (b) Median accuracy against mean context size of both; a line joins the two on one data set
        and model (the paper's Figure 4)."""
    return Figure("large-wins-and-sizes", caption, panels)


def _sizes(points: pd.DataFrame, ax: figures.Axes) -> None:
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


def drift(rows: pd.DataFrame) -> list[Block]:
    scores = scores_of(rows, "drift")
    pairs = {task: pair for task in DRIFT_UNITS if len(pair := paired(rows, task))}
    return [
        blocks.left_out(scores),
        *(_lead_table(pair, task) for task, pair in pairs.items()),
        _slope_table(pairs),
        _drift_figure(pairs),
        _score_figure(statistics.ok_rows(rows)),
        blocks.rank_table(scores, "Ranks over all τ"),
    ]


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: a line for each (data set, model, seed, τ)."""
    pair = statistics.complete(scores_of(rows[rows["task"] == task], "drift"), PAIR)
    lead = pair["crumb"] - pair["micp"]  # of −RMSE where that ranks: higher is better
    relative = lead / pair["micp"].abs().where(pair["micp"] != 0)
    points = 100 * (lead if task == "classification" else relative)  # in ``DRIFT_UNITS``
    return pair.abs().assign(lead=lead, relative=relative, points=points)


def _lead_table(pair: pd.DataFrame, task: str) -> Table:
    published = paper.DRIFT if task == "classification" else {}
    sets, by_tau = pair.index.get_level_values("dataset").nunique(), pair.groupby(level="tau")
    taus = [round(float(tau), 3) for tau in by_tau.groups]
    cells: dict[str, Any] = {"τ": [f"{tau:g}" for tau in taus]}
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    for name in [*PAIR, "lead"] if published or sets == 1 else []:
        lead = "lead:+3" if name == "lead" else ""
        means = by_tau[name].agg(["mean", "sem"]).itertuples(index=False, name=None)
        cells[lead or figures.label(name)] = means
        if published:
            theirs = [published.get(tau, {}).get(name, NOTHING) for tau in taus]
            cells[f"paper {lead or name.upper()}"] = theirs
    cells["lead, % of MICP:+1"] = 100 * by_tau["relative"].mean()
    cells["p over runs:p"] = by_tau["lead"].agg(statistics.wilcoxon)
    metric = blocks.METRICS[statistics.RANKED_BY[task]]
    beside = f"{counted(sets, 'data set')}{', beside Table 3' if published else ''}"
    return table(f"{metric} of {OURS}, and of MICP, mean ± SEM over {beside}", cells)


def slopes(points: pd.Series) -> pd.Series:
    """Points for each unit of τ: the slope of each (data set, model, seed)."""
    series = [each.dropna() for _, each in points.unstack("tau").iterrows()]
    fits = [np.polyfit(each.index, each, 1)[0] for each in series if len(each) > 1]
    return pd.Series(fits, dtype=float)


def _slope_table(pairs: dict[str, pd.DataFrame]) -> Table:
    lines: list[tuple[Any, ...]] = []
    for task, pair in pairs.items():
        means = pair["points"].groupby(level="tau").mean()
        if len(found := slopes(pair["points"])):
            lines.append((task, DRIFT_UNITS[task], *means.iloc[[0, -1]], *blocks.effect(found)))
    theirs = [100 * paper.DRIFT[tau]["lead"][0] for tau in (0.0, 1.0)]
    lines += [("paper", DRIFT_UNITS["classification"], *theirs, *[NOTHING] * 4)] if lines else []
    title = "The lead over MICP at both ends of τ, and the slopes of all series (set, model, seed)"
    columns = f"Task | in | first τ:+2 | last τ:+2 | {blocks.EFFECT.replace('sets', 'series')}"
    return by_lines(title, columns.replace("+2", "+1"), lines)


def _drift_figure(pairs: dict[str, pd.DataFrame]) -> Figure:
    panels = []
    for task, pair in pairs.items():
        title, labels = f"Lead over MICP, {task}", {"ylabel": f"lead, {DRIFT_UNITS[task]}"}
        panels.append(figures.panel(title, _leads, pair.reset_index(), task, **labels))
    caption = f"""{OURS}: its lead over MICP against drift. A thin line for each data set, the mean
        of all in bold with ± SEM; dotted: the paper's numbers."""
    return Figure("drift-lead", caption, panels)


def _leads(leads: pd.DataFrame, task: str, ax: figures.Axes) -> None:
    each = leads.pivot_table(index="tau", columns="dataset", values="points")
    ax.plot(each.index, each, color=figures.MUTED, linewidth=0.9, alpha=0.7)
    figures.curves(leads.assign(method="crumb"), "tau", "points", ax=ax)
    if task == "classification":
        theirs = [100 * one["lead"][0] for one in paper.DRIFT.values()]
        ax.plot([*paper.DRIFT], theirs, color=figures.INK, marker="x", linestyle=":")
    ax.axhline(0, color=figures.MUTED)
    ax.set_xlabel("drift τ")


def _score_figure(rows: pd.DataFrame) -> Figure:
    panels = []
    for (dataset, model, task), part in rows.groupby(["dataset", "model", "task"]):
        metric, title = statistics.RANKED_BY[task], f"{dataset} · {model}"
        labels = {"xlabel": "drift τ", "ylabel": blocks.METRICS[metric], "legend": True}
        panels.append(figures.panel(title, figures.curves, part, "tau", metric, **labels))
    caption = """Accuracy, or RMSE for regression (lower is better), against drift, mean ± SEM over
        seeds (the paper's Figure 5, which shows CRUMB and MICP)."""
    return Figure("drift-panels", caption, panels)


def complexity(rows: pd.DataFrame) -> list[Block]:
    good = statistics.ok_rows(rows)
    means = blocks.mean_costs(good, [*WHERE, "N", "T", "method"]).reset_index()
    means.insert(0, "Method", means.pop("method").map(figures.label))
    means = means.rename(columns={"N": "N:0", "T": "T:0"})
    return [
        _growth_table(good),
        _break_even_table(good),
        _time_figure(good, "N", "T", "rows of the pool, N"),
        _time_figure(good, "T", "N", "queries, T"),
        table("All mean times", means, long=True),
    ]


def growth(rows: pd.DataFrame, varied: str, cost: str) -> float:
    """The exponent a of time ~ N^a, from the largest sizes; NaN where there are fewer than two."""
    means = rows.groupby(varied)[cost].mean()
    means = means[means > 0].tail(TAIL)
    logs = np.log(means.index.to_numpy(float)), np.log(means)
    return float(np.polyfit(*logs, 1)[0]) if len(means) > 1 else np.nan


def break_even(rows: pd.DataFrame) -> tuple[float, bool]:
    """The N above which CRUMB stays faster than the full context; between sizes log-linear.

    (first N, True) if it is faster throughout, (last N, False) if not even at the largest size.
    """
    times = rows.groupby(["N", "method"])["seconds"].mean().unstack("method")
    times = statistics.complete(times, ["crumb", "full"])
    if times.empty:
        return float("nan"), False
    gap = np.log(times["crumb"] / times["full"])
    slower = np.flatnonzero(gap >= 0)
    last = gap.iloc[slower[-1] : slower[-1] + 2] if len(slower) else gap[:1]
    if len(slower) and len(last) > 1:
        return float(np.exp(np.interp(0, -last, np.log(last.index)))), True
    return float(last.index[0]), not len(slower)


def _growth_table(rows: pd.DataFrame) -> Table:
    lines = []
    for (model, device, method), part in rows.groupby([*WHERE, "method"]):
        by_n, by_t = sweep(part, "N", "T"), sweep(part, "T", "N")
        selection, passes = (growth(by_n, "N", cost) for cost in ("plan_seconds", "pass_seconds"))
        ends = growth(by_t, "T", "seconds"), by_n["contexts"].mean()
        theirs = paper.COMPLEXITY.get(method, (NOTHING,) * 3)
        beside = (selection, theirs[0], passes, theirs[1], *ends, theirs[2])
        lines.append((figures.label(method), model, device, *beside))
    columns = """Method | model | device | selection, power of N:2 | paper selection |
        passes, power of N:2 | paper passes | all, power of T:2 | contexts | paper number"""
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return by_lines(caption, columns, lines)


def _break_even_table(rows: pd.DataFrame) -> Table:
    lines = []
    for where, part in sweep(rows, "N", "T").groupby(WHERE):
        at, seen = break_even(part)
        said = whole(float(f"{at:.2g}")) if seen else f"> {whole(at)}" if at > 0 else NOTHING
        lines.append((*where, part["N"].min(), part["N"].max(), said))
    columns = "Model | device | smallest N timed:0 | largest N timed:0 | it is faster from N ≈"
    return by_lines(f"{OURS}: where it overtakes the full context", columns, lines)


def _time_figure(rows: pd.DataFrame, varied: str, other: str, what: str) -> Figure:
    labels = {"xscale": "log", "yscale": "log", "xlabel": varied, "ylabel": "seconds"}
    panels = []
    for where, part in rows.groupby(WHERE):
        for cost, name in blocks.COSTS.items():
            timed = sweep(part, varied, other).query(f"{cost} > 0")
            title = ", ".join([name.split(",")[0].capitalize(), *where])
            if timed[varied].nunique() > 1:
                panels.append(
                    figures.panel(title, figures.curves, timed, varied, cost, **labels, legend=True)
                )
    caption = f"Seconds of selection, passes and both against {what}; both axes are logarithmic."
    return Figure(f"complexity-{varied.lower()}", caption, panels)
