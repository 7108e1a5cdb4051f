"""The methods of the paper as keyword arguments of ``CrumbClassifier`` and ``CrumbRegressor``.

Everything that the protocols do not vary is the paper's: random features with D = 64 and batches of
50, the median bandwidth, no guard for rare classes. ``n_estimators`` is 1 for all; the paper says
nothing about it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from crumb import MICP, paper_configuration
from crumb.errors import InvalidInput
from experiments.protocol import Run

# The paper's factorial: {no clustering, clustering} × {uniform context, MMD context}.
CASES: dict[str, dict[str, Any]] = {
    "case A": {"strategy": "uniform", "n_clusters": 1},  # one random context for all: the baseline
    "case B": {"strategy": "uniform"},  # a random context for each cluster
    "case C": {"strategy": "mmd", "n_clusters": 1},  # one context matched to all queries
    "case D": {"strategy": "mmd"},  # a matched context for each cluster: CRUMB
}
METHODS: dict[str, dict[str, Any]] = {
    "full": {"strategy": "full"},
    "knn": {"strategy": "knn"},
    "crumb": {"strategy": "mmd"},  # the paper's configuration
    "crumb exact": {"strategy": "mmd", "kernel": "exact", "herd_batch": 1},
    "micp": {"strategy": "micp"},  # γ = 1
    "uniform": {"strategy": "uniform", "n_clusters": 1},
    "centroid": {"strategy": "centroid"},
    "voronoi": {"strategy": "voronoi"},
    **CASES,
}
_VARIANT = re.compile(r"(exact|rff D=(?P<D>\d+)) B=(?P<B>\d+)")
_OPTIONS = (
    "n_clusters", "kernel", "rff_dim", "herd_batch", "bandwidth", "early_stopping",
    "min_per_class", "n_estimators", "strategy", "context_size", "contexts_per_query", "features",
)  # fmt: skip


def estimator_settings(run: Run) -> dict[str, Any]:
    """The keyword arguments of a run, model and device aside."""
    kernel: dict[str, Any] = {}
    if run.kernel is not None:
        kernel = {"kernel": run.kernel, "rff_dim": run.D or 64, "herd_batch": run.B or 1}
    sizes = {"n_clusters": run.K, "context_size": run.n}
    settings = {**paper_configuration(), **sizes, **kernel, **method_settings(run.method)}
    if run.protocol == "large":  # the only experiment with early stopping
        settings["early_stopping"] = True
    if settings["strategy"] == "micp":
        # K' = ⌈γN/n⌉ with γ = 1, but "both CRUMB and MICP use K = 20 clusters" under drift.
        drift = run.protocol == "drift"
        settings["strategy"] = MICP(n_clusters=run.K) if drift else MICP(gamma=1.0)
    return {**settings, "random_state": run.seed}


def method_settings(method: str) -> dict[str, Any]:
    """What a name stands for: ``crumb``, ``rff D=64 B=50``, or ``crumb+kernel=exact``."""
    name, *changes = method.split("+")
    if variant := _VARIANT.fullmatch(name):
        features = {"kernel": "rff", "rff_dim": int(variant["D"])} if variant["D"] else {}
        batch = int(variant["B"])
        settings = {"strategy": "mmd", "kernel": "exact", "herd_batch": batch, **features}
    elif name in METHODS:
        settings = dict(METHODS[name])
    else:
        raise InvalidInput(
            f"Unknown method {name!r}: choose {', '.join(METHODS)}, 'exact B=1', 'rff D=64 B=50', "
            "or one of them with changed options, like crumb+n_clusters=50."
        )
    return settings | dict(_change(change) for change in changes)


def _change(text: str) -> tuple[str, Any]:
    option, equals, value = text.partition("=")
    if not equals or option not in _OPTIONS:
        known = ", ".join(_OPTIONS)
        raise InvalidInput(
            f"{text!r} is no option of a method: write one of {known} as option=value."
        )
    try:
        return option, json.loads(value.lower())  # numbers, true and false
    except ValueError:
        return option, value
