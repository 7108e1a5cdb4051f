"""The first section: what the runs say to the questions that they were made for. All of it is computed from rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import complexity, drift, main, mmd, palette, paper, words
from crumb.bench.report.blocks import Block, Bullets, Heading, Section, Text
from crumb.bench.report.common import CRUMB, compared

TITLE = "What the runs say"
CLEAR = 0.05


def section(rows: pd.DataFrame) -> Section:
    questions = {
        "Does the paper's order hold?": order(_of(rows, "main")),
        "On which sets does CRUMB lose to uniform?": losses(_of(rows, "main")),
        "Does the lead over MICP grow with drift?": drift_lead(_of(rows, "drift")),
        "Does a lower MMD² mean a better score?": match_and_score(rows),
        "Where does the time go, and from which N is CRUMB faster than full context?": time(rows),
        "Does another way beat CRUMB at the same n and K?": challengers(_of(rows, "main")),
    }
    blocks: list[Block] = []
    for question, answers in questions.items():
        if answers:
            blocks.append(Heading(question))
            blocks += [Text(answers[0])] if len(answers) == 1 else [Bullets(answers)]
    return Section("learned", TITLE, blocks or [Text("These rows answer none of the questions.")])


def _of(rows: pd.DataFrame, protocol: str) -> pd.DataFrame:
    return rows[rows["protocol"] == protocol]


def order(rows: pd.DataFrame) -> list[str]:
    scores = compared(statistics.score_table(rows, statistics.group_keys("main")))
    known = [method for method in paper.MAIN_ORDER if method in scores]
    if len(known) < 2 or statistics.complete(scores[known]).empty:
        return []
    scores = scores[known]
    summary = statistics.rank_summary(scores)
    found = [method for method in summary.index if method in known]
    ranked = ", ".join(f"{palette.label(m)} {summary.loc[m, 'mean']:.2f}" for m in found)
    verdict = "**Yes**, by mean rank" if found == known else "**Not entirely**, by mean rank"
    groups = len(statistics.complete(scores))
    published = ", ".join(palette.label(m) for m in known)
    answers = [f"{verdict} over {words.counted(groups, 'group')}: {ranked} (the paper's order: {published})."]
    if CRUMB in scores:
        over_sets = {one.other: one for one in statistics.dataset_comparisons(scores, CRUMB)}
        answers += [
            _verdict(one, over_sets[one.other].p_adjusted) for one in statistics.rank_comparisons(scores, CRUMB)
        ]
    return answers


def _verdict(one: statistics.Comparison, p_sets: float) -> str:
    ahead = "ahead of" if one.difference > 0 else "behind" if one.difference < 0 else "level with"
    clear = "clearly" if p_sets < CLEAR else "not clearly"
    return (
        f"CRUMB is {clear} {ahead} {palette.label(one.other)}: better in {one.won}, equal in {one.tied}, worse in "
        f"{one.lost} groups; adjusted p = {words.p_value(one.p_adjusted)} over groups, {words.p_value(p_sets)} over "
        "data sets."
    )


def losses(rows: pd.DataFrame) -> list[str]:
    leads = main.dataset_leads(rows)
    if leads.empty:
        return []
    lost = leads[leads["lead"] < 0]
    if lost.empty:
        return [f"On **none of {len(leads)}**, in the mean over seeds."]
    named = words.listing([f"{words.code(name)} ({_lead(line)})" for name, line in lost.iterrows()])
    return [f"On **{len(lost)} of {len(leads)}**, in the mean over seeds: {named}.", *_in_common(rows, leads)]


def _lead(line: pd.Series) -> str:
    return f"{words.fixed(line['lead'], 2, sign=True)} {'points' if line['task'] == 'classification' else '% RMSE'}"


def _in_common(rows: pd.DataFrame, leads: pd.DataFrame) -> list[str]:
    """What the rows know of the losing sets: size, task, and how much any context gains there."""
    lost = leads["lead"] < 0
    sizes = rows.groupby("dataset")["N"].median().reindex(leads.index)
    answers = [
        f"Median pool: {words.whole(sizes[lost].median())} rows where it loses, {words.whole(sizes[~lost].median())} "
        f"elsewhere (rank correlation of N and lead: {words.fixed(statistics.spearman(sizes, leads['lead']), 2)})."
    ]
    tasks = leads.groupby("task")["lead"].agg(lambda part: f"{(part < 0).sum()} of {len(part)}")
    answers.append("By task: " + ", ".join(f"{task} {count}" for task, count in tasks.items()) + ".")
    room = main.dataset_leads(rows, "full", "uniform")["lead"].reindex(leads.index)
    if room.notna().sum() > 2:
        answers.append(
            "What the full context gains over uniform there, the room for any selection: "
            f"{words.fixed(float(room[lost].median()), 2)} in the median where CRUMB loses, "
            f"{words.fixed(float(room[~lost].median()), 2)} elsewhere (rank correlation with CRUMB's lead: "
            f"{words.fixed(statistics.spearman(room, leads['lead']), 2)})."
        )
    return answers


def drift_lead(rows: pd.DataFrame) -> list[str]:
    answers = []
    for task, unit, column in (
        ("classification", "accuracy points", "lead"),
        ("regression", "% of MICP's RMSE", "relative"),
    ):
        pair = drift.paired(rows, task)
        if pair.empty or pair.index.get_level_values("tau").nunique() < 2:
            continue
        answers.append(_drift_answer(pair, column, task, unit))
    if answers:
        theirs = paper.DRIFT
        answers.append(
            f"The paper: {100 * theirs[0.0].lead:+.1f} points at τ = 0, {100 * theirs[1.0].lead:+.1f} at τ = 1."
        )
    return answers


def _drift_answer(pair: pd.DataFrame, column: str, task: str, unit: str) -> str:
    """First and last τ, and the slope of each series tested against nought."""
    means = 100 * pair[column].groupby(level="tau").mean()
    series = pair[column].groupby(level=["dataset", "model", "seed"])
    slopes = [
        np.polyfit(part.index.get_level_values("tau").to_numpy(float), 100 * part.to_numpy(float), 1)[0]
        for _, part in series
        if len(part) > 1
    ]
    p = statistics.wilcoxon(slopes)
    slope = float(np.mean(slopes)) if slopes else float("nan")
    grows = (
        "**It grows**"
        if slope > 0 and p < CLEAR
        else "**It shrinks**"
        if slope < 0 and p < CLEAR
        else "**No clear trend**"
    )
    steps = np.diff(means.to_numpy())
    steady = f"rising in {int((steps > 0).sum())} of {len(steps)} steps of τ"
    return (
        f"{task.capitalize()}: {grows}, from {words.fixed(means.iloc[0], 1, True)} {unit} at τ = {means.index[0]:g} to "
        f"{words.fixed(means.iloc[-1], 1, True)} at τ = {means.index[-1]:g}, {steady}; mean slope "
        f"{words.fixed(slope, 1, True)} for each unit of τ, p = {words.p_value(p)} over {len(slopes)} series (data "
        "set, model, seed)."
    )


def match_and_score(rows: pd.DataFrame) -> list[str]:
    answers = []
    asked = [("rff", "over the clusters", mmd.cluster_correlations)]
    asked += [(name, "over the runs", mmd.correlations) for name in ("rff", "main", "retrieval", "factorial")]
    for protocol, what, correlate in asked:
        found = correlate(_of(rows, protocol), protocol)
        if len(found) < 2:
            continue
        p = statistics.wilcoxon(found)
        median = float(found.median())
        verdict = (
            "**Yes**"
            if median < 0 and p < CLEAR
            else "**No, the reverse**"
            if median > 0 and p < CLEAR
            else "**Not clearly**"
        )
        answers.append(
            f"{verdict}, {what} of {words.code(protocol)}: the rank correlation of MMD² and score is "
            f"{words.fixed(median, 2)} in the median over {len(found)} data sets and negative, as hoped for, on "
            f"{(found < 0).sum()} (p = {words.p_value(p)}; from {words.fixed(found.min(), 2)} on "
            f"{words.code(found.index[0])} to {words.fixed(found.max(), 2)} on {words.code(found.index[-1])})."
        )
    return [*answers, *_precision(_of(rows, "rff"))] if answers else _precision(_of(rows, "rff"))


def _precision(rows: pd.DataFrame) -> list[str]:
    """Exact against random features, and small batches against large ones, with their MMD²."""
    good = statistics.ok_rows(rows)
    herded = good[good["B"].notna()]
    answers = []
    exact = herded["D"].isna()
    if exact.any() and (~exact).any():
        answers.append(_halves(herded, exact, "Exact kernel", "random features"))
    batches = sorted(herded["B"].unique())
    wide = 50.0 if 50.0 in batches else batches[-1] if len(batches) > 1 else None
    if wide and batches[0] != wide:
        kept = herded[herded["B"].isin([batches[0], wide])]
        answers.append(_halves(kept, kept["B"] == batches[0], f"B = {batches[0]:g}", f"B = {wide:g}"))
    return [answer for answer in answers if answer]


def _halves(rows: pd.DataFrame, first: pd.Series, name: str, other: str) -> str:
    """Two kinds of runs over the same groups: mean MMD² of each, and the test of their scores."""
    kinds = rows.assign(kind=np.where(first, name, other))
    ranked = statistics.score_table(kinds, statistics.group_keys("rff"), columns="kind")
    if not {name, other} <= set(ranked.columns):
        return ""
    placed = statistics.ranks(ranked).groupby(level="dataset").mean()
    one = statistics.compare(-placed, name, other)
    matched = kinds.groupby("kind")["mmd2"].mean()
    scores = kinds.groupby(["kind", "dataset"])["accuracy"].mean().groupby(level=0).mean()
    return (
        f"{name} against {other}: MMD² {words.small(matched[name])} and {words.small(matched[other])}, mean accuracy "
        f"{words.fixed(scores[name], 4)} and {words.fixed(scores[other], 4)}; {name} is better on {one.won}, equal on "
        f"{one.tied}, worse on {one.lost} data sets (p = {words.p_value(one.p)})."
    )


def time(rows: pd.DataFrame) -> list[str]:
    good = statistics.ok_rows(rows)
    timed = _of(good, "complexity")
    answers = complexity.break_even_sentences(timed) if len(timed) else []
    for protocol in ("complexity", "main", "large"):
        part = statistics.shared_rows(_of(good, protocol), protocol)
        if len(part) == 0 or part["seconds"].notna().sum() == 0:
            continue
        means = part.groupby("method")[["plan_seconds", "pass_seconds", "seconds"]].mean()
        shares = [
            f"{palette.label(method)} {words.seconds(means.loc[method, 'seconds'])} s "
            f"({words.percent(means.loc[method, 'plan_seconds'] / means.loc[method, 'seconds'])} selection)"
            for method in palette.in_order(means.index)
            if means.loc[method, "seconds"] > 0
        ]
        answers.append(f"Mean run in {words.code(protocol)}: {', '.join(shares)}.")
    return answers


def challengers(rows: pd.DataFrame) -> list[str]:
    """Methods that the paper does not have, tested against CRUMB over data sets."""
    answers = []
    for one in main.challengers(rows):
        sure = one.p_adjusted < CLEAR
        verdict = "does not differ clearly" if not sure else "**wins**" if one.difference > 0 else "**loses**"
        answers.append(
            f"{words.code(one.method)} {verdict}: better on {one.won}, equal on {one.tied}, worse on {one.lost} of "
            f"{one.groups} data sets, {words.fixed(main.mean_lead(rows, one.method), 2, True)} accuracy points in the "
            f"mean; p = {words.p_value(one.p)}, adjusted {words.p_value(one.p_adjusted)}."
        )
    return answers
