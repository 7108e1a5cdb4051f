"""What each part of CRUMB brings: protocols ``clusters``, ``retrieval``, ``factorial``, ``rff``."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from experiments import statistics
from experiments.report import blocks, comparisons, figures
from experiments.report.blocks import EFFECT, Block, Figure, Table, by_lines, effect, sweep, table
from experiments.report.numbers import code, fixed

SCALE = ["dataset", "model"]
RIVALS = ("centroid", "voronoi")
POINTS = {"accuracy": "accuracy points", "r2": "R² × 100"}
CASES = ["case A", "case B", "case C", "case D"]
EXACT = "exact, B = 1"
RHO = {"xlabel": "data sets, in order", "ylabel": "ρ", "ylim": (-1, 1), "xticks": [], "height": 2.5}
ABOUT_MMD = """Spearman's rank correlation of MMD² and score within each data set, each run against
the mean of its group, and where rows list clusters each cluster against its mean over the methods:
otherwise easy draws would pass for good matches. A negative one means that a better match scores
better. p is Wilcoxon's over data sets."""


def clusters(rows: pd.DataFrame) -> list[Block]:
    swept = with_share(statistics.ok_rows(rows)).dropna(subset=["K", "share"])
    methods = figures.in_order(swept["method"])
    return [
        block
        for method in sorted(methods, key=lambda name: name != blocks.CRUMB)  # the paper's first
        for part in [swept[swept["method"] == method]]
        for block in (
            *_sweep(part, "K", "share", "K", "n = {:g} N"),
            *_sweep(part, "share", "K", "n / N", "K = {:g}"),
        )
    ]


def with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """The context size as a share of the pool, as asked for where that is known."""
    return rows.assign(share=rows["p"].fillna((rows["n"] / rows["N"]).round(2)))


def normalised(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """A ``score`` from 0 (worst setting of a data set and model) to 1 (best), over seeds."""
    rows = rows.assign(_good=statistics.goodness(rows))
    means = rows.groupby([*SCALE, varied])["_good"].mean().groupby(level=SCALE).agg(["min", "max"])
    low, high = means.reindex(pd.MultiIndex.from_frame(rows[SCALE])).to_numpy(float).T
    width = np.where(high - low > 1e-12, high - low, np.nan)
    return rows.assign(score=(rows["_good"] - low) / width).dropna(subset="score")


def curve(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """For each setting mean ± SEM over seeds of the mean over data sets, and the selection time."""
    by_seed = normalised(rows, varied).groupby([varied, "seed"])["score"].mean()
    found = by_seed.groupby(level=varied).agg(["mean", "sem"])
    return found.assign(seconds=rows.groupby(varied)["plan_seconds"].mean())


def _sweep(rows: pd.DataFrame, varied: str, other: str, name: str, where: str) -> list[Block]:
    rows = sweep(rows, varied, other)
    if rows[varied].nunique() < 2:
        return []
    method = rows["method"].iloc[0]
    by = "" if method == blocks.CRUMB else f", {figures.label(method)}"
    at = where.format(rows[other].iloc[0]) + by
    place = " (the paper's Figure 6)" if varied == "K" else ""
    labels = {"xlabel": "selection time, s", "ylabel": "normalised score"}
    points = {str(model): curve(part, varied) for model, part in rows.groupby("model")}
    panels = [
        figures.panel(m, _points, each, name, **labels) for m, each in points.items() if len(each)
    ]
    caption = f"""Normalised score against the time of selection as {name} varies ({at}); bars are
        ± SEM over seeds{place}."""
    drawn = Figure(f"clusters-{varied.lower()}{'-'.join(by.lower().split(', '))}", caption, panels)
    return [table(f"{name} varied, {at}", _settings(rows, varied, other, name)), drawn]


def _points(points: pd.DataFrame, name: str, ax: figures.Axes) -> None:
    colour, sem = figures.look("crumb").colour, points["sem"].fillna(0)
    ax.errorbar(points["seconds"], points["mean"], sem, color=colour, marker="o", capsize=2.5)
    for value, point in points.iterrows():
        at, above = (point["seconds"], point["mean"] + sem[value]), (0, 5)
        ax.annotate(f"{name} = {value:g}", at, above, textcoords="offset points", ha="center")
    ax.margins(x=0.14, y=0.12)


def _settings(rows: pd.DataFrame, varied: str, other: str, name: str) -> dict[str, pd.Series]:
    """A line for each setting: its scores, ranks and costs."""
    costs = rows.groupby(varied)[["plan_seconds", "pass_seconds", "mmd2"]].mean()
    scores = statistics.score_table(rows, [*statistics.GROUP, other], columns=varied)
    shown = curve(rows, varied).reindex(costs.index)[["mean", "sem"]]
    cells = {
        name: costs.index.map("{:g}".format),
        "normalised score": shown.itertuples(index=False, name=None),
        "mean rank:3<": statistics.ranks(scores).mean().reindex(costs.index),
    }
    for metric in POINTS:
        means = statistics.per_dataset(rows, metric, varied).dropna().mean().reindex(costs.index)
        if means.notna().any():
            cells[f"{blocks.METRICS[metric]}:4>"] = means
    return {**cells, **costs}


def retrieval(rows: pd.DataFrame) -> list[Block]:
    named = rows.assign(kernel=rows["kernel"].replace("", "as set"))
    kernels = sorted({"exact", "rff", *named.loc[named["method"] == "crumb", "kernel"]})
    frame = pd.concat([advantages(named, kernel).assign(kernel=kernel) for kernel in kernels])
    groups = frame.groupby(["kernel", "metric", "rival", "model"])["lead"]
    lines = [
        (kernel, POINTS[metric], figures.label(rival), model, *effect(leads))
        for (kernel, metric, rival, model), leads in groups
    ]
    caption = "Advantage of herding over data sets, with Wilcoxon's p"
    return [
        by_lines(caption, f"Kernel | in | against | model | {EFFECT}", lines),
        *(_advantage_figure(kernel, part) for kernel, part in frame.groupby("kernel")),
        blocks.dataset_table(rows, "accuracy"),
        blocks.dataset_table(rows, "r2"),
    ]


def advantages(rows: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """For each (metric, rival, model, data set) herding's mean lead over shared seeds, × 100."""
    ours, found = (rows["method"] == "crumb") & (rows["kernel"] == kernel), []
    for metric, rival in product(POINTS, RIVALS):
        scores = blocks.scores_of(rows[ours | (rows["method"] == rival)], "retrieval", metric)
        pair = statistics.complete(scores, ["crumb", rival])
        leads = 100 * (pair["crumb"] - pair[rival]).groupby(level=["model", "dataset"]).mean()
        found.append(leads.rename("lead").reset_index().assign(metric=metric, rival=rival))
    return pd.concat(found, ignore_index=True)


def _advantage_figure(kernel: str, frame: pd.DataFrame) -> Figure:
    panels = []
    for metric, part in frame.groupby("metric"):
        leads = part.pivot(index="dataset", columns=["model", "rival"], values="lead")
        colours = figures.colours(leads.columns.get_level_values("rival"))
        leads.columns = [f"{figures.label(rival)}, {model}" for model, rival in leads.columns]
        shape = {"height": 1.0 + 0.3 * leads.shape[1], "xlabel": f"advantage, {POINTS[metric]}"}
        title, draw = f"Kernel {kernel}", partial(figures.spreads, dots=True)
        panels.append(figures.panel(title, draw, leads, colours, **shape))
    caption = f"""Advantage of herding (kernel {kernel}) on each data set: a dot is the mean over
        seeds, the line 5 to 95 %, the box the middle half, the diamond the mean. To the right of 0
        favours herding (the paper's {"Figure 8" if kernel == "rff" else "Figure 7"})."""
    return Figure(f"retrieval-{kernel.split()[0]}", caption, panels)


def factorial(rows: pd.DataFrame) -> list[Block]:
    four = rows[rows["method"].isin(CASES)]
    scores = blocks.scores_of(four, "factorial")
    lines = [
        (name, unit, *effect(each))
        for metric, unit in POINTS.items()
        for name, each in effects(rows, metric).items()
        if len(each)
    ]
    caption = "What each part adds, over data sets, with Wilcoxon's p"
    return [
        blocks.left_out(scores),
        blocks.rank_table(scores, "Ranks of the four cases", reference="case D"),
        blocks.rank_bars("factorial-ranks", scores, "The paper's Figure 9: mean ranks"),
        by_lines(caption, f"Effect | in | {EFFECT}", lines),
        comparisons.challengers(rows, "factorial", CASES, reference="case D"),
        blocks.metric_table(rows, four, "factorial"),
        blocks.rank_curves("factorial-sizes", scores, {"n": "context size n"}),
    ]


def effects(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """For each data set what clusters, herding and both add, in hundredths of the metric."""
    scores = statistics.complete(blocks.scores_of(rows, "factorial", metric), CASES)
    a, b, c, d = (100 * scores[case].groupby(level="dataset").mean() for case in CASES)
    parts = {
        "clusters alone (B − A)": b - a,
        "herding alone (C − A)": c - a,
        "both (D − A)": d - a,
        "interaction (D − C − B + A)": d - c - b + a,
    }
    return pd.DataFrame(parts)


def rff(rows: pd.DataFrame) -> list[Block]:
    rows = with_variants(rows)
    scores, good, gaps = (
        blocks.scores_of(rows, "rff"),
        statistics.ok_rows(rows),
        gaps_to_exact(rows),
    )
    summary = statistics.rank_summary(blocks.compared(scores))
    return [
        blocks.left_out(scores),
        blocks.rank_bars("rff-ranks", scores, "The paper's Figure 10: mean ranks"),
        _variants(good, summary, gaps),
        _halves(good),
        _maps(good, summary),
        *([_gap_figure(gaps)] if len(gaps) else []),
    ]


def with_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Methods by what they are: ``exact, B = 1``, ``D = 64, B = 50``."""
    kernel = ("D = " + rows["D"].map("{:g}".format)).where(rows["D"].notna(), "exact")
    herded = rows["B"].notna() & ~rows["method"].isin(RIVALS)
    named = kernel + ", B = " + rows["B"].map("{:g}".format)
    return rows.assign(method=rows["method"].mask(herded, named), kernel=kernel)


def gaps_to_exact(rows: pd.DataFrame) -> pd.DataFrame:
    """Groups × variants: accuracy or R² minus that of exact herding with B = 1, in hundredths."""
    scores = pd.concat([blocks.scores_of(rows, "rff", metric) for metric in POINTS])
    if EXACT not in scores:
        return pd.DataFrame()
    gaps = 100 * scores.drop(columns=EXACT).sub(scores[EXACT], axis=0).dropna(how="all")
    return gaps[sorted(gaps, key=_by_kernel)].round(statistics.DIGITS)


def _by_kernel(name: str) -> tuple[int, list[int]]:
    """Exact kernel first, then random features by D and B, then the others."""
    parts = [int(part.split("=")[1]) for part in name.split(",") if "=" in part]
    return (len(parts) or 3), parts


def _near(gaps: pd.DataFrame, limit: float) -> pd.Series:
    """Per cent of the runs whose gap is not larger."""
    return 100 * (gaps.abs() <= limit).sum() / gaps.notna().sum()


def _variants(rows: pd.DataFrame, summary: pd.DataFrame, gaps: pd.DataFrame) -> Table:
    costs = rows.groupby("method")[["plan_seconds", "seconds", "mmd2"]].mean().loc[summary.index]
    gaps = gaps.reindex(columns=summary.index)
    cells = {
        "Variant": summary.index.map(figures.label),
        "mean rank:3<": summary[["mean", "sem"]].itertuples(index=False, name=None),
        "gap, points:+2": zip(gaps.mean(), gaps.sem(), strict=True),
        **{f"% within ±{limit}:0": _near(gaps, limit) for limit in (1, 2, 5)},
        "plan_seconds": costs["plan_seconds"],
        "times faster:1": costs["plan_seconds"].get(EXACT, np.nan) / costs["plan_seconds"],
        **costs[["seconds", "mmd2"]],
    }
    about = "ranks, gaps to exact herding with B = 1 (accuracy or R² × 100), times, MMD²"
    return table(f"All variants: {about}", cells)


def _halves(rows: pd.DataFrame) -> Table:
    """Exact kernel against random features, and small batches against large ones."""
    herded, lines = rows.dropna(subset="B"), []
    kernels = herded["D"].isna().map({True: "exact kernel", False: "random features"})
    ends = {herded["B"].min(), 50.0 if (herded["B"] == 50).any() else herded["B"].max()}
    batches = herded["B"].map({end: f"B = {end:g}" for end in ends})
    for kinds in (kernels, batches):
        kept = herded.assign(kind=kinds).dropna(subset="kind")
        pair = sorted(kept["kind"].unique(), key=lambda kind: (len(kind), kind))
        if len(pair) == 2:
            scores = statistics.score_table(kept, statistics.group_keys("rff"), columns="kind")
            test = statistics.compare(-statistics.dataset_ranks(scores), *pair)
            accuracy = statistics.per_dataset(kept, "accuracy", "kind").reindex(columns=pair).mean()
            match = kept.groupby("kind")["mmd2"].mean()[pair]
            lines.append((*pair, *match, *accuracy, test.record, test.p))
    columns = """Runs | against | MMD²:e | MMD² of the others:e | accuracy:4 |
        accuracy of the others:4 | sets won / tied / lost | p:p"""
    caption = "Two kinds of runs over the same groups; Wilcoxon's p on mean ranks of data sets"
    return by_lines(caption, columns, lines)


def _maps(rows: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Kernels × batches: the mean in colour, and with its error in words."""
    variants, panels = rows.dropna(subset="B").drop_duplicates("method").set_index("method"), []
    found = {"Mean rank": summary[["mean", "sem"]]}
    for model, part in rows.groupby("model"):
        found[f"Seconds a run, {model}"] = part.groupby("method")["seconds"].agg(["mean", "std"])
    for title, each in found.items():
        each = variants[["kernel", "B"]].join(each.set_axis(["mean", "error"], axis=1), how="inner")
        grid = each.pivot(index="kernel", columns="B", values=["mean", "error"])
        grid = grid.loc[sorted(grid.index, key=lambda kernel: _by_kernel(f"{kernel}, B = 0"))]
        texts = grid["mean"].map(fixed) + "\n± " + grid["error"].map(fixed)
        content = (texts.rename(columns="B = {:g}".format), grid["mean"].to_numpy(), "YlGnBu")
        if len(grid):
            height = 0.6 + 0.55 * len(grid)
            panels.append(figures.panel(title, figures.cells, *content, height=height))
    caption = """Mean rank ± SEM, and seconds ± standard deviation, by kernel and
        batch; darker is worse (the paper's Figures 11 and 12)."""
    return Figure("rff-maps", caption, panels)


def _gap_figure(gaps: pd.DataFrame) -> Figure:
    colours, shape = figures.colours(gaps), {"height": 0.8 + 0.22 * gaps.shape[1]}
    caption = """Left: gap of each run to exact herding with B = 1 on the same draw (accuracy, or
        R² × 100): the line spans 5 to 95 % of the runs, the box the middle half, the diamond is the
        mean. Right: runs within ±1 % (the paper's Figure 13)."""
    gap = ("Gap to exact herding", figures.spreads, gaps, colours)
    near = ("Runs within ±1 %", figures.bars, _near(gaps, 1), colours)
    panels = [
        figures.panel(*gap, xlabel="points", **shape),
        figures.panel(*near, xlabel="% of runs", **shape),
    ]
    return Figure("rff-gaps", caption, panels)


def match_and_score(rows: pd.DataFrame) -> list[Block]:
    """Nothing where no rows measured MMD² of several methods on several data sets."""
    lines, panels = [], []
    for protocol in ("main", "retrieval", "factorial", "rff"):
        part = rows[rows["protocol"] == protocol]
        for unit, measure in (("runs", correlations), ("clusters", cluster_correlations)):
            found = measure(part, protocol)
            if len(found) > 1:
                ends = [f"{fixed(found.iloc[i], 2)} {code(found.index[i])}" for i in (0, -1)]
                lines.append((code(protocol), unit, *effect(found), *ends))
                colours = figures.colours(np.where(found < 0, "crumb", "uniform"))
                draw = partial(found.plot.bar, color=colours, width=0.8)
                panels.append(figures.panel(f"{protocol}, over {unit}", draw, **RHO))
    columns = f"Protocol | over | {EFFECT} | lowest | highest"
    measured = by_lines("Correlation ρ of MMD² and score over data sets", columns, lines)
    caption = "ρ of each data set, in order. Below the line a better match scores better."
    return [ABOUT_MMD, measured, Figure("mmd-correlations", caption, panels)] if lines else []


def correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """ρ for each data set, of differences from the mean of the group."""
    good = statistics.ok_rows(rows)
    good = good.assign(score=statistics.goodness(good)).dropna(subset=["mmd2", "score"])
    return _by_dataset(good, "mmd2", "score", statistics.group_keys(protocol))


def cluster_correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """The same over single clusters, which methods that cluster alike list in the same order."""
    good = statistics.ok_rows(rows).dropna(subset="cluster_mmd2")
    x, y, keys = "cluster_mmd2", "cluster_score", statistics.group_keys(protocol)
    number = good["cluster_mmd2"].map(lambda each: range(len(each)))
    same = good["cluster_queries"].map(str)  # clusters with other queries are other clusters
    long = good[[*keys, x, y]].assign(same=same, number=number).explode([x, y, "number"])
    return _by_dataset(long.astype({x: float, y: float}), x, y, [*keys, "same", "number"])


def _by_dataset(rows: pd.DataFrame, x: str, y: str, keys: list[str]) -> pd.Series:
    rows = rows.reset_index(drop=True)
    groups = rows.groupby(keys, dropna=False)
    centred = (rows[[x, y]] - groups[[x, y]].transform("mean")).round(statistics.DIGITS)
    parts = centred[groups[x].transform("size") > 1].groupby(rows["dataset"])
    found = {name: statistics.spearman(part[x], part[y]) for name, part in parts}
    return pd.Series(found, dtype=float).dropna().sort_values()
