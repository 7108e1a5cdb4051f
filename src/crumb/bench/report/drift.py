"""Protocol ``drift``: the test window moves away from the pool (the paper's Table 3 and Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, paper, words
from crumb.bench.report.blocks import Block, Cell, Column, Figure, Panel, Section, Table, Text
from crumb.bench.report.common import left_out, line_with_band, rank_table, slug, what_was_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "drift", "Covariate drift"
PAIR = ("crumb", "micp")


def section(rows: pd.DataFrame) -> Section:
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text(
            "At τ = 0 the test window coincides with that of the pool along the first principal component, at τ = 1 "
            "the two are disjoint. The paper reports that CRUMB's lead over MICP grows from +4.9 to +17.1 accuracy "
            "points (it writes per cent). It speaks of sets with N ≥ 50,000, but two of its four, Anneal (898 rows) "
            "and Airfoil (1,503), are far smaller."
        ),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        blocks += [*_tables(rows), *_lead_figure(rows), _panels(rows)]
        blocks.append(rank_table(scores, "Ranks over all τ"))
    return Section(PROTOCOL, TITLE, blocks)


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: one line a (data set, model, seed, τ), as measured."""
    metric = statistics.RANKED_BY[task]
    scores = statistics.score_table(rows[rows["task"] == task], statistics.group_keys(PROTOCOL), metric)
    if not set(PAIR) <= set(scores.columns):
        return pd.DataFrame(columns=[*PAIR, "lead", "relative"])
    pair = scores[list(PAIR)].dropna().abs()
    better = pair["crumb"] - pair["micp"] if task == "classification" else pair["micp"] - pair["crumb"]
    return pair.assign(lead=better, relative=better / pair["micp"].where(pair["micp"] > 0))


def _by_tau(pair: pd.DataFrame, column: str) -> pd.DataFrame:
    groups = pair[column].groupby(level="tau")
    return pd.DataFrame({tau: vars(statistics.summarise(values)) for tau, values in groups}).T


def _tables(rows: pd.DataFrame) -> list[Block]:
    blocks: list[Block] = []
    for task, metric in (("classification", "Accuracy"), ("regression", "RMSE")):
        pair = paired(rows, task)
        if not pair.empty:
            blocks.append(_table(pair, metric, paper.DRIFT if task == "classification" else {}))
    return blocks


def _table(pair: pd.DataFrame, metric: str, published: Mapping[float, paper.Drift]) -> Table:
    sets = pair.index.get_level_values("dataset").nunique()
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    shown = (*PAIR, "lead") if metric == "Accuracy" or sets == 1 else ()
    parts = {name: _by_tau(pair, name) for name in (*shown, "relative")}
    columns = [Column("τ")]
    for name in shown:
        title = "lead" if name == "lead" else palette.label(name)
        columns += [Column(title), *([Column(f"paper {title}", paper=True)] if published else [])]
    columns += [Column("lead, % of MICP"), Column("p over runs")]
    lines: list[list[Cell | str]] = []
    for tau in parts["relative"].index:
        line: list[Cell | str] = [words.fixed(float(tau), 1)]
        theirs = published.get(round(float(tau), 3))
        for name in shown:
            best = name == _better(parts, tau, metric)
            mean, sem = parts[name].loc[tau, ["mean", "sem"]]
            line.append(Cell(words.plus_minus(mean, sem, sign=name == "lead"), best))
            if published:
                line.append(_published(theirs, name))
        p = statistics.wilcoxon(pair["lead"][pair.index.get_level_values("tau") == tau])
        lines.append([*line, words.percent(parts["relative"].loc[tau, "mean"], 1, sign=True), words.p_value(p)])
    beside = ", beside Table 3" if published else ""
    return Table(
        f"{metric} of CRUMB and MICP, mean ± SEM over {words.counted(sets, 'data set')}{beside}", columns, lines
    )


def _better(parts: Mapping[str, pd.DataFrame], tau: float, metric: str) -> str:
    crumb, micp = (parts[name].loc[tau, "mean"] for name in PAIR)
    return "crumb" if (crumb > micp) == (metric == "Accuracy") else "micp"


def _published(theirs: paper.Drift | None, name: str) -> str:
    if theirs is None:
        return words.NOTHING
    return words.plus_minus(getattr(theirs, name), getattr(theirs, f"{name}_sem"), sign=name == "lead")


def _lead_figure(rows: pd.DataFrame) -> list[Block]:
    panels = []
    for task, unit in (("classification", "accuracy points"), ("regression", "% of MICP's RMSE")):
        pair = paired(rows, task)
        if not pair.empty:
            panels.append(_lead_panel(pair, task, unit))
    if not panels:
        return []
    caption = "CRUMB's lead over MICP against drift: one thin line a data set, the mean of all in bold with ± SEM."
    return [Figure("drift-lead", caption, panels)]


def _lead_panel(pair: pd.DataFrame, task: str, unit: str) -> Panel:
    column = "lead" if task == "classification" else "relative"

    def draw(axes: Axes) -> None:
        for _, part in pair.groupby(level="dataset"):
            means = 100 * part[column].groupby(level="tau").mean()
            axes.plot(means.index, means, color=palette.MUTED, linewidth=0.9, alpha=0.7)
        all_sets = 100 * _by_tau(pair, column)
        line_with_band(axes, all_sets.index.to_numpy(float), all_sets, palette.look("crumb").light, "o")
        if task == "classification":
            taus = list(paper.DRIFT)
            leads = [100 * paper.DRIFT[tau].lead for tau in taus]
            axes.plot(taus, leads, color=palette.INK, marker="x", linestyle=":", linewidth=1.2)
            axes.annotate("paper", (taus[-1], leads[-1]), (-4, 5), textcoords="offset points", ha="right", fontsize=8.5)
        drawing.zero_line(axes)
        axes.set(xlabel="drift τ", ylabel=f"lead, {unit}")

    means = 100 * _by_tau(pair, column)["mean"]
    alt = f"Lead of CRUMB over MICP: {means.iloc[0]:.1f} {unit} at the smallest τ, {means.iloc[-1]:.1f} at the largest."
    return drawing.panel(slug("drift-lead", task), f"Lead over MICP, {task}", alt, draw)


def _panels(rows: pd.DataFrame) -> Figure:
    good = statistics.ok_rows(rows)
    panels = []
    methods: set[str] = set()
    several = good["model"].nunique() > 1
    for (dataset, model, task), part in good.groupby(["dataset", "model", "task"]):
        metric = statistics.RANKED_BY[task]
        methods |= set(part["method"])
        title = f"{dataset} · {model}" if several else str(dataset)
        panels.append(_panel(part, slug("drift", dataset, model), title, metric))
    caption = (
        "Accuracy, or RMSE for regression (lower is better), against drift, mean ± SEM over seeds (the paper's "
        "Figure 5, which shows CRUMB and MICP)."
    )
    return Figure("drift-panels", caption, panels, drawing.keys(palette.in_order(methods)))


def _panel(rows: pd.DataFrame, name: str, title: str, metric: str) -> Panel:
    methods = palette.in_order(rows["method"].unique())

    def draw(axes: Axes) -> None:
        for method in methods:
            by_tau = rows[rows["method"] == method].groupby("tau")[metric]
            frame = pd.DataFrame([vars(statistics.summarise(values)) for _, values in by_tau])
            taus = np.array(sorted(by_tau.groups))
            line_with_band(axes, taus, frame, palette.look(method).light, palette.look(method).marker)
        axes.set(xlabel="drift τ", ylabel="RMSE" if metric == "rmse" else metric)

    ends = rows[rows["method"].isin(PAIR)].groupby(["method", "tau"])[metric].mean()
    alt = f"{metric} against drift on {title}. " + "; ".join(
        f"{palette.label(m)} {ends[m].iloc[0]:.3g} to {ends[m].iloc[-1]:.3g}" for m in PAIR if m in ends.index.levels[0]
    )
    return drawing.panel(name, title, alt, draw, height=2.7)
