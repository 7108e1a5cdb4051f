"""The places that tables come from, by name."""

from __future__ import annotations

from pathlib import Path

from crumb.errors import InvalidInput
from experiments import folder, openml, synthetic
from experiments.dataset import Source


def collection(where: str) -> list[Source]:
    """All tables of ``synthetic``, ``openml`` (TabArena and Higgs), or a folder with index.json."""
    if where == "synthetic":
        return list(synthetic.sources())
    if where == "openml":
        return list(openml.sources())
    return list(folder.sources(Path(where)))


def chosen(sources: list[Source], names: list[str] | None) -> list[Source]:
    """The named tables, in the order of the names; all without names."""
    if names is None:
        return sources
    by_name = {source.name: source for source in sources}
    unknown = ", ".join(repr(name) for name in names if name not in by_name)
    if unknown:
        raise InvalidInput(
            f"There is no data set {unknown}: `python -m experiments datasets` lists them."
        )
    return [by_name[name] for name in dict.fromkeys(names)]
