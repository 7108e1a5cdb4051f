"""One page and a summary of what the runs gave: ``write_report``.

A function for each protocol turns its rows into blocks; two templates write blocks down.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from experiments import statistics
from experiments.report import ablations, comparisons, figures, paper
from experiments.report.blocks import ENDINGS, Block, names, table, what_was_run
from experiments.report.numbers import NOTHING, code, counted
from experiments.report.results import Results, read_results

SECTIONS = {
    "main": ("Main results", comparisons.main),
    "consistency": ("Consistency over models and context sizes", comparisons.consistency),
    "large": ("Large data sets and early stopping", comparisons.large),
    "drift": ("Covariate drift", comparisons.drift),
    "clusters": ("How many clusters, how many rows", ablations.clusters),
    "retrieval": ("Which rows for a cluster", ablations.retrieval),
    "factorial": ("Clustering or herding?", ablations.factorial),
    "rff": ("Random features and batches", ablations.rff),
    "complexity": ("Time against N and T", comparisons.complexity),
}
TITLE = "CRUMB: the paper's experiments, run again"
VERSIONS = ("crumb", "python", "torch", "tabicl", "sklearn")
NAMES = """**CRUMB** chooses rows as the library does by itself: by the exact kernel, one at a time.
**CRUMB, as in the paper** takes random features (D = 64) and batches of 50. n and K are those of
the protocol for both."""
NO_SCORE = "No run ended well: there is nothing to show."


class Section(NamedTuple):
    name: str
    title: str
    blocks: list[Block]


def write_report(results: Path, out: Path, models: Sequence[str] | None = None) -> list[Path]:
    """Write the page to ``out`` and the summary beside it (same stem, ``.md``); the paths of both.

    ``results`` is a file of JSON lines or a folder of them; protocols without rows do not appear.
    ``models``: the rows of these alone, since means over data sets are over all models.
    """
    if out.suffix.lower() != ".html":
        raise InvalidInput(f"{out} is no name of a page: give one that ends in .html.")
    found = read_results(results, models)
    texts = {"title": TITLE, "facts": _facts(found.rows), "footer": _footer(found)}
    sections, paths = build_sections(found.rows), [out, out.with_suffix(".md")]
    for path, template in zip(paths, ("page.html", "summary.md"), strict=True):
        with atomic_write(path) as file:
            page = TEMPLATES.get_template(template).render(sections=sections, **texts)
            file.write(page.encode())
    return paths


def build_sections(rows: pd.DataFrame) -> list[Section]:
    """The protocols that have rows, then what goes across them."""
    found = []
    for protocol, (title, build) in SECTIONS.items():
        part = rows[rows["protocol"] == protocol]
        if len(part):
            before = [paper.FINDINGS[protocol], *what_was_run(part, protocol)]
            scored = statistics.goodness(statistics.ok_rows(part)).notna().any()
            found.append((protocol, title, [*before, *(build(part) if scored else [NO_SCORE])]))
    found.append(("mmd", "MMD² and score", ablations.match_and_score(rows)))
    found.append(("failures", "Runs that failed or could not be made", failures(rows)))
    sections = [Section(name, title, list(filter(None, blocks))) for name, title, blocks in found]
    return [section for section in sections if section.blocks]


def failures(rows: pd.DataFrame) -> list[Block]:
    """What did not end well, counted, and in its own words; nothing where all ended well."""
    bad = rows[rows["status"] != "ok"]
    if bad.empty:
        return []
    bad = bad.assign(how=bad["status"].map(ENDINGS), dataset=bad["dataset"].map(code),
                     method=bad["method"].map(figures.label))  # fmt: skip
    kinds = bad.groupby(["protocol", "how"])["dataset"].agg(["size", "nunique"]).reset_index()
    keys = ["protocol", "how", "dataset", "model", "method", "message"]
    each = bad.groupby(keys).size().rename("runs:0").reset_index().replace("", NOTHING)
    counts = table("How many", kinds.rename(columns={"size": "runs:0", "nunique": "data sets:0"}))
    return [counts, table("Every one of them", each, long=len(each) > 12)]


def marked(text: str) -> Markup:
    """Escaped text with its marks as elements; inside code a star is a star."""
    pieces = re.split(r"`([^`]+)`", str(escape(text)))
    pieces[::2] = [re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", piece) for piece in pieces[::2]]
    pieces[1::2] = [f"<code>{piece}</code>" for piece in pieces[1::2]]
    return Markup("".join(pieces))


def as_markdown(text: str) -> str:
    """Names of data sets may hold anything; Markdown lets HTML through, and bars end a cell."""
    return " ".join(text.replace("<", "&lt;").replace("|", "\\|").split())


TEMPLATES = Environment(
    loader=PackageLoader("experiments.report"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"marked": marked, "md": as_markdown}


def _facts(rows: pd.DataFrame) -> list[str]:
    days, machines = rows["when"].str[:10], rows["device"] + " with " + rows["machine"]
    runs = f"{counted(len(rows), 'run')} of {counted(rows['dataset'].nunique(), 'data set')}"
    versions = [f"{name} {names(rows[name]).replace(', ', '/')}" for name in VERSIONS]
    first = f"{runs}, {names(days)}, models: {names(rows['model'])}."
    return [first, f"Run on {names(machines)}; {', '.join(versions)}.", NAMES]


def _footer(found: Results) -> str:
    strange = names(set(found.rows["protocol"]) - set(SECTIONS))
    made = f"Made by `python -m experiments report` from {counted(len(found.files), 'file')}."
    notes = {
        f"{counted(found.unreadable, 'line')} could not be read.": found.unreadable,
        f"{counted(found.repeated, 'run')} had a later row, which was taken.": found.repeated,
        f"Rows of unknown protocols are not shown: {strange}.": strange != NOTHING,
    }
    return " ".join([made, *(note for note, needed in notes.items() if needed)])
