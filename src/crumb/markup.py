"""Short HTML for notebooks and reports: facts and tables. Everything is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd


def facts(title: str, about: Mapping[str, Any]) -> str:
    """A title, and a line for each fact that is known."""
    lines = (
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(shown(value))}</td></tr>"
        for name, value in about.items()
        if value is not None
    )
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"


def table(frame: pd.DataFrame, most: int = 10, index: bool = True) -> str:
    """The first rows of a table, and how many more there are."""
    cells = frame.head(most).map(shown).to_html(index=index, border=0)  # escapes
    more = len(frame) - most
    return cells + (f"<p>… and {more:,} more</p>" if more > 0 else "")


def shown(value: Any) -> str:
    if isinstance(value, float):  # numpy's too
        return "" if value != value else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
