"""One page and a summary of what the runs gave: ``write_report``.

One module for each protocol turns its rows into blocks; two templates write blocks down.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from experiments.report import (
    clusters,
    complexity,
    consistency,
    drift,
    factorial,
    failures,
    large,
    main,
    mmd,
    retrieval,
    rff,
)
from experiments.report.blocks import Section
from experiments.report.common import names, what_was_run
from experiments.report.numbers import NOTHING, counted
from experiments.report.results import Results, read_results

PROTOCOLS = (main, consistency, large, drift, clusters, retrieval, factorial, rff, complexity)
ACROSS = (mmd, failures)
TITLE = "CRUMB: the paper's experiments, run again"
VERSIONS = ("crumb", "python", "torch", "tabicl", "sklearn")


def write_report(results: Path, out: Path) -> list[Path]:
    """Write the page to ``out`` and the summary beside it (same stem, ``.md``); the paths of both.

    ``results`` is a file of JSON lines or a folder of them; protocols without rows do not appear.
    """
    if out.suffix.lower() != ".html":
        raise InvalidInput(f"{out} is no name of a page: give one that ends in .html.")
    found = read_results(results)
    content = {
        "title": TITLE,
        "facts": _facts(found.rows),
        "sections": build_sections(found.rows),
        "footer": _footer(found),
    }
    paths = [out, out.with_suffix(".md")]
    for path, template in zip(paths, ("page.html", "summary.md"), strict=True):
        with atomic_write(path) as file:
            file.write(_templates().get_template(template).render(content).encode())
    return paths


def build_sections(rows: pd.DataFrame) -> list[Section]:
    """The protocols that have rows, then what goes across them."""
    sections = []
    for module in PROTOCOLS:
        part = rows[rows["protocol"] == module.PROTOCOL]
        if len(part):
            blocks = [module.ABOUT, *what_was_run(part, module.PROTOCOL), *module.blocks(part)]
            sections.append(Section(module.PROTOCOL, module.TITLE, blocks))
    sections += [Section(module.NAME, module.TITLE, module.blocks(rows)) for module in ACROSS]
    return [section for section in sections if section.blocks]


def marked(text: str) -> Markup:
    """Escaped text with its marks as elements; inside code a star is a star."""
    pieces = re.split(r"`([^`]+)`", str(escape(text)))
    strong, emphasis = (r"\*\*(.+?)\*\*", r"<strong>\1</strong>"), (r"\*(.+?)\*", r"<em>\1</em>")
    pieces[::2] = [re.sub(*emphasis, re.sub(*strong, piece)) for piece in pieces[::2]]
    pieces[1::2] = [f"<code>{piece}</code>" for piece in pieces[1::2]]
    return Markup("".join(pieces))


def as_markdown(text: str) -> str:
    """Names of data sets may hold anything; Markdown lets HTML through, and bars end a cell."""
    return " ".join(text.replace("<", "&lt;").replace("|", "\\|").split())


def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("experiments.report"),
        autoescape=lambda name: str(name).endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"marked": marked, "md": as_markdown, "kind": lambda one: type(one).__name__}
    found.globals["shapes"] = dict(zip("osv^DPX", "●■▼▲◆✚✖", strict=True))
    return found


def _facts(rows: pd.DataFrame) -> list[str]:
    days = names(when[:10] for when in rows["when"])
    runs = f"{counted(len(rows), 'run')} of {counted(rows['dataset'].nunique(), 'data set')}"
    machines = names(rows["device"] + " with " + rows["machine"])
    versions = [f"{name} {names(rows[name]).replace(', ', '/')}" for name in VERSIONS]
    return [
        f"{runs}, {days}, models: {names(rows['model'])}.",
        f"Run on {machines}; {', '.join(versions)}.",
    ]


def _footer(found: Results) -> str:
    notes = [f"Made by `python -m experiments report` from {counted(len(found.files), 'file')}."]
    if found.unreadable:
        notes.append(f"{counted(found.unreadable, 'line')} could not be read.")
    if found.repeated:
        notes.append(f"{counted(found.repeated, 'run')} had a later row, which was taken.")
    strange = names(set(found.rows["protocol"]) - {module.PROTOCOL for module in PROTOCOLS})
    if strange != NOTHING:
        notes.append(f"Rows of unknown protocols are not shown: {strange}.")
    return " ".join(notes)
