"""What a command says: tables and JSON on standard output, notes and errors on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from crumb.errors import CrumbError

# Errors that are about what the user gave or the machine has; any other is a fault of ours.
EXPECTED = (CrumbError, ValueError, TypeError, OSError, MemoryError)


def note(message: str) -> None:
    print(f"crumb: note: {one_line(message)}", file=sys.stderr)


def complain(error: BaseException) -> None:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:  # without "[Errno 2]"
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if not isinstance(error, EXPECTED):
        text = f"{type(error).__name__}: {text} (CRUMB_DEBUG=1 shows where)"
    print(f"crumb: error: {one_line(text) or type(error).__name__}", file=sys.stderr)


def one_line(text: str) -> str:
    return " ".join(text.split())


def print_json(content: Any) -> None:
    print(json.dumps(_plain(content), indent=1, allow_nan=False, ensure_ascii=False))


def print_table(rows: Sequence[Mapping[str, Any]], limit: int | None = None) -> None:
    """Columns under their names: numbers to the right, text to the left."""
    if not rows:
        return
    names = list(rows[0])
    cells = [[_cell(row[name]) for name in names] for row in rows[:limit]]
    widths = [max(len(line[i]) for line in [names, *cells]) for i in range(len(names))]
    right = [not isinstance(rows[0][name], str) for name in names]
    for line in [names, *cells]:
        pieces = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        )
        print("  ".join(pieces).rstrip())
    if len(rows) > len(cells):
        print(f"… and {len(rows) - len(cells):,} more")


def _cell(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < abs(value) < 0.01 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(value: Any) -> Any:
    """numpy values as Python's own; NaN and infinity, which JSON does not have, as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
