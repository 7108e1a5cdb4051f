"""What did not end well: counted, named, and explained in its own words."""

from __future__ import annotations

import pandas as pd

from experiments.report import figures
from experiments.report.blocks import Block, Table
from experiments.report.common import ENDINGS
from experiments.report.numbers import NOTHING, code, whole

NAME, TITLE = "failures", "Runs that timed out, failed or could not be made"
SHOWN = 300


def blocks(rows: pd.DataFrame) -> list[Block]:
    """Nothing where all runs ended well."""
    bad = rows[rows["status"] != "ok"].replace({"status": ENDINGS})
    if bad.empty:
        return []
    kinds = bad.groupby(["protocol", "status"])["dataset"].agg(["size", "nunique"]).reset_index()
    keys = ["protocol", "status", "dataset", "model", "method", "message"]
    counts = bad.groupby(keys).size().rename("runs").reset_index()
    every = counts[:SHOWN].replace({"model": {"": NOTHING}, "message": {"": NOTHING}})
    every = every.assign(
        dataset=every["dataset"].map(code), method=every["method"].map(figures.label)
    )
    every["runs"], more = every["runs"].map(whole), len(counts) - len(every)
    sizes = kinds.assign(size=kinds["size"].map(whole), nunique=kinds["nunique"].map(whole))
    titles = {"status": "how", "size": "runs", "nunique": "data sets"}
    return [
        "These runs are left out of ranks and means.",
        Table("How many", dict(sizes.rename(columns=titles))),
        Table("Every one of them", dict(every.rename(columns=titles)), long=len(every) > 12),
        f"And {more:,} lines more." if more else None,
    ]
