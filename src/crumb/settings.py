"""The numbers that can be chosen: clusters, context budget, kernel. Checked here, in one place."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from crumb.errors import InvalidInput
from crumb.herding import EarlyStopping

# Measured: docs/defaults.md.
DEFAULT_CONTEXT = 1_000
RFF_BATCH = 10  # with 256 features as good as the exact kernel there, where the paper's 64 and 50 are not
# Exact herding costs one kernel value for each (pool row, cluster, chosen row).
EXACT_KERNEL_VALUES = {"cpu": 2_000_000_000, "gpu": 100_000_000_000}


def paper_configuration() -> dict[str, Any]:
    """The paper's setting, as keyword arguments: ``CrumbClassifier(**paper_configuration())``."""
    return {
        "strategy": "mmd",
        "n_clusters": 20,
        "context_size": 0.1,
        "kernel": "rff",
        "rff_dim": 64,
        "herd_batch": 50,
        "bandwidth": "median",
        "early_stopping": False,
        "min_per_class": 0,
    }


@dataclass(frozen=True)
class Kernel:
    """How stage 2 measures similarity: everything resolved, nothing left to choose."""

    name: str  # "exact" or "rff"
    bandwidth: float
    rff_dim: int
    batch: int
    certify: bool = False  # whether to try exact herding among candidates first (candidates.py)


def resolve_context_size(context_size: str | float, n_pool: int, window: int | None = None) -> int:
    """The context budget n: a count, a share of N, or ``"auto"``; never more than N or the model's window."""
    if context_size == "auto":
        n = min(DEFAULT_CONTEXT, n_pool)
    elif isinstance(context_size, Integral) and not isinstance(context_size, bool):
        n = positive("context_size", context_size)
        if n > n_pool:
            warnings.warn(f"context_size={n} is larger than the pool: all {n_pool} rows are used.", stacklevel=5)
            n = n_pool
    elif isinstance(context_size, Real) and not isinstance(context_size, bool) and 0 < context_size <= 1:
        n = max(1, round(float(context_size) * n_pool))
    else:
        raise InvalidInput(
            f"context_size must be a row count of at least 1, a share of the pool in (0, 1], or 'auto'; "
            f"got {context_size!r}."
        )
    if window is not None and n > window:
        warnings.warn(
            f"context_size gives {n} rows, more than the {window} that the model was made for: {window} are used.",
            stacklevel=5,
        )
        n = window
    return n


def resolve_kernel(
    kernel: str, rff_dim: int, herd_batch: str | int, bandwidth: float, cost: float, device: str = "cpu"
) -> Kernel:
    """``cost`` is the number of kernel values that exact herding would need; ``"auto"`` goes by it."""
    certify = kernel in ("auto", "certified") and device == "cpu" and herd_batch in ("auto", 1)
    if kernel == "auto":
        kernel = "exact" if cost <= EXACT_KERNEL_VALUES["cpu" if device == "cpu" else "gpu"] else "rff"
    elif kernel == "certified":
        kernel = "exact"
    elif kernel not in ("exact", "rff"):
        raise InvalidInput(f"Unknown kernel {kernel!r}: choose 'auto', 'exact', 'certified' or 'rff'.")
    if herd_batch == "auto":
        herd_batch = 1 if kernel == "exact" else RFF_BATCH
    return Kernel(kernel, bandwidth, positive("rff_dim", rff_dim), positive("herd_batch", herd_batch), certify)


def resolve_early_stopping(early_stopping: bool | EarlyStopping) -> EarlyStopping | None:
    if isinstance(early_stopping, EarlyStopping):
        return early_stopping
    if isinstance(early_stopping, (bool, np.bool_)):
        return EarlyStopping() if early_stopping else None
    raise InvalidInput(f"early_stopping must be True, False or an EarlyStopping object, got {early_stopping!r}.")


def check_bandwidth(bandwidth: str | float) -> str | float:
    """``"median"`` or σ itself, in the standardised space."""
    if bandwidth == "median":
        return bandwidth
    if isinstance(bandwidth, Real) and not isinstance(bandwidth, bool) and 0 < bandwidth < float("inf"):
        return float(bandwidth)
    raise InvalidInput(f"bandwidth must be 'median' or a positive number (σ), got {bandwidth!r}.")


def cache_bytes(megabytes: float) -> int:
    """``cache_size`` in bytes."""
    if isinstance(megabytes, Real) and not isinstance(megabytes, bool) and 0 <= megabytes < float("inf"):
        return int(megabytes * 1e6)
    raise InvalidInput(f"cache_size must be a number of megabytes, 0 or more, got {megabytes!r}.")


def positive(name: str, value: Any) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise InvalidInput(f"{name} must be a whole number of at least 1, got {value!r}.")


def non_negative(name: str, value: Any) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise InvalidInput(f"{name} must be a whole number of at least 0, got {value!r}.")
