"""Context-selection strategies: one signature, one registry.

A new strategy is a new file here: a subclass of ``Strategy`` with a ``name`` and a ``select``
method. It asks the pool through ``problem.finder`` (``base.py``), in memory and in files alike.
"""

import pkgutil
from importlib import import_module

from crumb.selection.base import Problem, Selection, Strategy, resolve_strategy
from crumb.selection.strategies import KNN, MICP, MMD, CentroidNN, Full, Uniform, VoronoiUniform

for _module in pkgutil.iter_modules(__path__):  # fills the registry
    import_module(f"{__name__}.{_module.name}")

__all__ = ["KNN", "MICP", "MMD", "CentroidNN", "Full", "Uniform", "VoronoiUniform"]
__all__ += ["Problem", "Selection", "Strategy", "resolve_strategy"]
