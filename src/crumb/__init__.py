"""CRUMB: tabular foundation models on training tables larger than they can take.

The rows to be predicted are grouped. Each group gets a small training context with the same
distribution, and the model runs once per group.

>>> from sklearn.datasets import load_iris
>>> from crumb import CrumbClassifier
>>> X, y = load_iris(return_X_y=True)
>>> clf = CrumbClassifier(n_clusters=3, context_size=60).fit(X[::2], y[::2])
>>> float(clf.score(X[1::2], y[1::2])) > 0.9
True
>>> clf.plan(X[1::2]).sizes.tolist()  # which context each row gets; plot() draws it
[60, 60, 60]

Where to look
-------------
CrumbClassifier, CrumbRegressor
    The estimators: ``fit``, ``predict``, ``predict_proba``, ``plan``, ``save``.
load
    Reads an estimator that ``save`` wrote.
Plan, select_contexts
    Which query gets which context, with an estimator or without a model.
explain, influential_rows
    What each column did to an answer (Shapley values), and which training rows mattered.
CrumbOnline
    A stream: queries come one at a time, and plans follow drift.
MMD, MICP, KNN, CentroidNN, VoronoiUniform, Uniform, Full
    Strategies with settings; a name such as ``strategy="micp"`` is usually enough.
EarlyStopping, paper_configuration
    When a context ends, and the paper's setting.
CrumbError
    The base of the errors that are raised on purpose.

``crumb --help`` shows the commands. The distribution is ``crumb-pfn``; the package ``crumb`` on
PyPI is another one.
"""

# Nothing heavy is imported here: each public name is fetched from its module on first use, so that
# ``import crumb`` and ``crumb --help`` stay instant.
from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_STRATEGIES = ("KNN", "MICP", "MMD", "CentroidNN", "Full", "Uniform", "VoronoiUniform")
_HOME = {
    "CrumbClassifier": "crumb.estimator",
    "CrumbRegressor": "crumb.estimator",
    "CrumbOnline": "crumb.online",
    "EarlyStopping": "crumb.herding.greedy",
    "Plan": "crumb.plan",
    "explain": "crumb.explanation",
    "influential_rows": "crumb.explanation",
    "load": "crumb.persistence",
    "paper_configuration": "crumb.options",
    "select_contexts": "crumb.plan",
    "CrumbError": "crumb.errors",
    **dict.fromkeys(_STRATEGIES, "crumb.selection"),
}

__all__ = ["KNN", "MICP", "MMD", "CentroidNN", "Full", "Uniform", "VoronoiUniform"]
__all__ += ["CrumbClassifier", "CrumbError", "CrumbOnline", "CrumbRegressor", "EarlyStopping"]
__all__ += ["Plan", "__version__", "explain", "influential_rows", "load", "paper_configuration"]
__all__ += ["select_contexts"]

if TYPE_CHECKING:
    from crumb.errors import CrumbError
    from crumb.estimator import CrumbClassifier, CrumbRegressor
    from crumb.explanation import explain, influential_rows
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


def _notice_namesake() -> None:
    """Files of the unrelated distribution ``crumb`` may lie among ours: it has the same name.

    ``importlib.metadata`` would take longer than everything else here.
    """
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")) and os.path.isdir(folder):
            for name in os.listdir(folder):
                if name.startswith("crumb-") and name.endswith("-info"):
                    import warnings

                    warnings.warn(
                        f"An unrelated package named crumb is installed too ({name}), with the "
                        "same import name as crumb-pfn: run pip uninstall crumb crumb-pfn, then "
                        "pip install crumb-pfn.",
                        stacklevel=3,
                    )


_notice_namesake()
