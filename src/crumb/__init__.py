"""CRUMB: small, distribution-matched contexts for tabular foundation models.

Nothing heavy is imported here: each public name is fetched from its module on first use, so that
``import crumb`` and ``crumb --help`` stay instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_STRATEGIES = ("KNN", "MICP", "MMD", "CentroidNN", "Full", "Uniform", "VoronoiUniform")
_HOME = {
    "CrumbClassifier": "crumb.estimator",
    "CrumbRegressor": "crumb.estimator",
    "CrumbOnline": "crumb.online",
    "EarlyStopping": "crumb.herding.greedy",
    "Plan": "crumb.plan",
    "load": "crumb.persistence",
    "paper_configuration": "crumb.options",
    "select_contexts": "crumb.plan",
    "CrumbError": "crumb.errors",
    **dict.fromkeys(_STRATEGIES, "crumb.selection"),
}

__all__ = ["KNN", "MICP", "MMD", "CentroidNN", "Full", "Uniform", "VoronoiUniform"]
__all__ += ["CrumbClassifier", "CrumbError", "CrumbOnline", "CrumbRegressor", "EarlyStopping"]
__all__ += ["Plan", "__version__", "load", "paper_configuration", "select_contexts"]

if TYPE_CHECKING:
    from crumb.errors import CrumbError
    from crumb.estimator import CrumbClassifier, CrumbRegressor
    from crumb.herding.greedy import EarlyStopping
    from crumb.online import CrumbOnline
    from crumb.options import paper_configuration
    from crumb.persistence import load
    from crumb.plan import Plan, select_contexts
    from crumb.selection import KNN, MICP, MMD, CentroidNN, Full, Uniform, VoronoiUniform


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'crumb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
