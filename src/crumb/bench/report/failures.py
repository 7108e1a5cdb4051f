"""What did not end well: counted, named and explained in its own words."""

from __future__ import annotations

import pandas as pd

from crumb.bench.report import palette, words
from crumb.bench.report.blocks import Block, Cell, Column, Section, Table, Text

TITLE = "Runs that timed out, failed or could not be made"
SHOWN = 300
MEANING = {"timeout": "timed out", "error": "failed", "missing": "not run"}


def section(rows: pd.DataFrame) -> Section | None:
    bad = rows[rows["status"] != "ok"]
    if bad.empty:
        return None
    parts = ["protocol", "status", "dataset", "model", "method", "message"]
    counts = bad.groupby(parts, dropna=False, sort=True).size()
    lines: list[list[Cell | str]] = [
        [
            str(protocol),
            MEANING.get(status, str(status)),
            words.code(dataset),
            str(model or words.NOTHING),
            palette.label(str(method)),
            f"{count:,}",
            str(message or words.NOTHING),
        ]
        for (protocol, status, dataset, model, method, message), count in counts.head(SHOWN).items()
    ]
    texts = ("Protocol", "How", "Data set", "Model", "Method")
    columns = [*(Column(name, number=False) for name in texts), Column("runs"), Column("Message", number=False)]
    blocks: list[Block] = [Text("These runs are left out of ranks and means.")]
    blocks += [_by_kind(bad), Table("Every one of them", columns, lines, long=len(lines) > 12)]
    if len(counts) > SHOWN:
        blocks.append(Text(f"And {len(counts) - SHOWN:,} lines more."))
    return Section("failures", TITLE, blocks)


def _by_kind(bad: pd.DataFrame) -> Table:
    counts = bad.groupby(["protocol", "status"]).agg(runs=("method", "size"), sets=("dataset", "nunique"))
    lines: list[list[Cell | str]] = [
        [str(protocol), MEANING.get(status, str(status)), f"{line['runs']:,}", f"{line['sets']:,}"]
        for (protocol, status), line in counts.iterrows()
    ]
    columns = [Column("Protocol", number=False), Column("How", number=False), Column("runs"), Column("data sets")]
    return Table("How many", columns, lines)
