"""Context-selection strategies: one file each, one signature, one registry.

A new strategy is a new file here: a subclass of ``Strategy`` with a ``name`` and a ``select``
method. It asks the pool through ``problem.finder`` (``finder.py``), in memory and in files alike.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from crumb.errors import InvalidInput
from crumb.selection.base import REGISTRY, Problem, Selection, Strategy

for _module in pkgutil.iter_modules(__path__):  # fills the registry
    import_module(f"{__name__}.{_module.name}")

from crumb.selection.centroid import CentroidNN  # noqa: E402
from crumb.selection.full import Full  # noqa: E402
from crumb.selection.knn import KNN  # noqa: E402
from crumb.selection.micp import MICP  # noqa: E402
from crumb.selection.mmd import MMD  # noqa: E402
from crumb.selection.uniform import Uniform  # noqa: E402
from crumb.selection.voronoi import VoronoiUniform  # noqa: E402

__all__ = [
    "KNN",
    "MICP",
    "MMD",
    "CentroidNN",
    "Full",
    "Problem",
    "Selection",
    "Strategy",
    "Uniform",
    "VoronoiUniform",
    "resolve_strategy",
]


def resolve_strategy(strategy: str | Strategy) -> Strategy:
    """A strategy from its name, or the configured object itself."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, str) and strategy in REGISTRY:
        return REGISTRY[strategy]()
    known = ", ".join(repr(name) for name in sorted(REGISTRY))
    raise InvalidInput(
        f"Unknown strategy {strategy!r}: choose one of {known}, or pass a strategy object."
    )
