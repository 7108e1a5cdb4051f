"""One page and a summary of what the runs gave: ``write_report``.

One module a protocol turns its rows into a section of blocks; ``page`` and ``markdown`` write blocks down.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pandas as pd

from crumb.bench.report import (
    clusters,
    complexity,
    consistency,
    drift,
    factorial,
    failures,
    large,
    learned,
    main,
    retrieval,
    rff,
    words,
)
from crumb.bench.report.blocks import Section
from crumb.bench.report.markdown import to_markdown
from crumb.bench.report.page import to_html
from crumb.bench.report.results import Results, read_results
from crumb.errors import InvalidInput
from crumb.files import atomic_write

SECTIONS: tuple[ModuleType, ...] = (
    main,
    consistency,
    large,
    drift,
    clusters,
    retrieval,
    factorial,
    rff,
    complexity,
)
TITLE = "CRUMB: the paper's experiments, run again"


def write_report(results: Path, out: Path) -> list[Path]:
    """Write the page to ``out`` and the summary beside it (same stem, ``.md``); the paths of both.

    ``results`` is a file of JSON lines or a folder of them; protocols without rows do not appear.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(f"{out} is no name of a page: give one that ends in .html.")
    found = read_results(Path(results))
    sections, facts, footer = build_sections(found.rows), _facts(found), _footer(found)
    paths = [out, out.with_suffix(".md")]
    for path, text in zip(
        paths, (to_html(TITLE, facts, sections, footer), to_markdown(TITLE, facts, sections, footer)), strict=True
    ):
        with atomic_write(path) as file:
            file.write(text.encode())
    return paths


def build_sections(rows: pd.DataFrame) -> list[Section]:
    sections = [learned.section(rows)]
    for module in SECTIONS:
        part = rows[rows["protocol"] == module.PROTOCOL]
        if len(part):
            sections.append(module.section(part))
    failed = failures.section(rows)
    return [*sections, failed] if failed else sections


def _facts(found: Results) -> list[str]:
    rows = found.rows
    days = sorted({when[:10] for when in rows["when"] if when})
    when = f" between {days[0]} and {days[-1]}" if len(days) > 1 else f" on {days[0]}" if days else ""
    runs = f"{words.counted(len(rows), 'run')} of {words.counted(rows['dataset'].nunique(), 'data set')}"
    return [f"{runs}{when}, models: {_all(rows['model'])}.", f"Run on {_machines(rows)}; {_versions(rows)}."]


def _all(values: pd.Series) -> str:
    return ", ".join(sorted({value for value in values if value})) or "not named"


def _machines(rows: pd.DataFrame) -> str:
    pairs = {(device, machine) for device, machine in zip(rows["device"], rows["machine"], strict=True)}
    named = sorted(" with ".join(part for part in pair if part) for pair in pairs)
    return "; ".join(name for name in named if name) or "an unnamed machine"


def _versions(rows: pd.DataFrame) -> str:
    names = ("crumb", "python", "torch", "tabicl", "sklearn")
    found = [(name, "/".join(sorted({value for value in rows[name] if value}))) for name in names]
    return ", ".join(f"{name} {value}" for name, value in found if value) or "versions not recorded"


def _footer(found: Results) -> str:
    notes = [f"Made by `crumb bench report` from {words.counted(len(found.files), 'file')}."]
    if found.unreadable:
        notes.append(f"{words.counted(found.unreadable, 'line')} could not be read.")
    if found.repeated:
        notes.append(f"{words.counted(found.repeated, 'run')} had a later row, which was taken.")
    known = {module.PROTOCOL for module in SECTIONS}
    strange = sorted(set(found.rows["protocol"]) - known)
    if strange:
        notes.append(f"No section knows the {'protocol' if len(strange) == 1 else 'protocols'} {', '.join(strange)}.")
    return " ".join(notes)
