"""What did not end well: counted, named, and explained in its own words."""

from __future__ import annotations

import pandas as pd

from experiments.report import figures
from experiments.report.blocks import Block, Table
from experiments.report.common import ENDINGS
from experiments.report.numbers import NOTHING, code, whole

TITLE = "Runs that timed out, failed or could not be made"
SHOWN = 300


def blocks(rows: pd.DataFrame) -> list[Block]:
    """Nothing where all runs ended well."""
    bad = rows[rows["status"] != "ok"].replace({"status": ENDINGS})
    if bad.empty:
        return []
    kinds = bad.groupby(["protocol", "status"])["dataset"].agg(["size", "nunique"])
    counts = bad.groupby(["protocol", "status", "dataset", "model", "method", "message"]).size()
    columns = [list(each) for each in zip(*counts.index[:SHOWN], strict=True)]
    protocols, endings, datasets, models, methods, messages = columns
    every = {
        "Protocol": protocols,
        "How": endings,
        "Data set": [code(name) for name in datasets],
        "Model": [model or NOTHING for model in models],
        "Method": [figures.label(method) for method in methods],
        "runs": [whole(count) for count in counts[:SHOWN]],
        "Message": [message or NOTHING for message in messages],
    }
    how_many = {
        "Protocol": [protocol for protocol, _ in kinds.index],
        "How": [ending for _, ending in kinds.index],
        "runs": [whole(count) for count in kinds["size"]],
        "data sets": [whole(count) for count in kinds["nunique"]],
    }
    more = len(counts) - SHOWN
    return [
        "These runs are left out of ranks and means.",
        Table("How many", how_many),
        Table("Every one of them", every, long=len(protocols) > 12),
        *([f"And {more:,} lines more."] if more > 0 else []),
    ]
