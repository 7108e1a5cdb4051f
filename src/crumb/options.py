"""The numbers that can be chosen: clusters, context budget, kernel. Checked here, in one place."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from crumb.errors import InvalidInput
from crumb.herding.candidates import FIRST
from crumb.herding.cost import AT_ONCE, Load, affordable_values
from crumb.herding.greedy import EarlyStopping

# Measured: docs/defaults.md.
DEFAULT_CONTEXT = 1_000
WAYS = ("exact", "candidates", "rff")
RFF_BATCH = (
    10  # with 256 features as good as the exact kernel there, where the paper's 64 and 50 are not
)


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
    """How stage 2 measures similarity and searches: everything resolved, nothing left to choose."""

    ways: tuple[str, ...]  # of WAYS: the first that does not give up
    bandwidth: float
    rff_dim: int
    batch: int
    most_candidates: int = 0  # a cluster

    @property
    def name(self) -> str:
        return self.ways[0]


def resolve_context_size(context_size: str | float, n_pool: int, window: int | None = None) -> int:
    """The context budget n: a count, a share of N, or ``"auto"``; never more than N or the model's window."""
    if context_size == "auto":
        n = min(DEFAULT_CONTEXT, n_pool)
    elif isinstance(context_size, Integral) and not isinstance(context_size, bool):
        n = positive("context_size", context_size)
        if n > n_pool:
            warnings.warn(
                f"context_size={n} is larger than the pool: all {n_pool} rows are used.",
                stacklevel=5,
            )
            n = n_pool
    elif (
        isinstance(context_size, Real)
        and not isinstance(context_size, bool)
        and 0 < context_size <= 1
    ):
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
    kernel: str,
    rff_dim: int,
    herd_batch: str | int,
    bandwidth: float,
    load: Load | None = None,
    device: str = "cpu",
    affordable: int | None = None,
) -> Kernel:
    """``"auto"`` goes by the ``load`` and the kernel values that are ``affordable``; without a load, only mistakes are
    looked for."""
    if kernel not in ("auto", *WAYS):
        raise InvalidInput(
            f"Unknown kernel {kernel!r}: choose 'auto', {', '.join(map(repr, WAYS))}."
        )
    batch = herd_batch if herd_batch != "auto" else RFF_BATCH if kernel == "rff" else 1
    batch = positive("herd_batch", batch)
    ways: tuple[str, ...] = (kernel,)
    most = load.rows if load else 0
    if load and kernel == "auto":
        ways, most = _ways(load, device, batch, affordable or affordable_values(device))
    elif kernel == "candidates":  # made for one row at a time on a CPU; elsewhere the exact kernel
        ways = (kernel, "exact") if device == "cpu" and batch == 1 else ("exact",)
    if ways == ("rff",) and herd_batch == "auto":
        batch = RFF_BATCH
    return Kernel(ways, bandwidth, positive("rff_dim", rff_dim), batch, most)


def _ways(load: Load, device: str, batch: int, affordable: int) -> tuple[tuple[str, ...], int]:
    """What ``"auto"`` tries, and with how many candidates: the exact kernel wherever it can be afforded."""
    most = load.candidates_for(affordable)
    one_by_one = device == "cpu" and batch == 1
    if load.exact <= affordable:
        few = min(most, load.rows // 4)  # trying in vain may cost half as much as not trying
        worth_trying = one_by_one and load.exact > AT_ONCE and few >= FIRST * load.context_size
        return ("candidates", "exact") if worth_trying else ("exact",), few
    return (("candidates",) if one_by_one and most >= FIRST * load.context_size else ("rff",)), most


def resolve_early_stopping(early_stopping: bool | EarlyStopping) -> EarlyStopping | None:
    if isinstance(early_stopping, EarlyStopping):
        return early_stopping
    if isinstance(early_stopping, (bool, np.bool_)):
        return EarlyStopping() if early_stopping else None
    raise InvalidInput(
        f"early_stopping must be True, False or an EarlyStopping object, got {early_stopping!r}."
    )


def check_bandwidth(bandwidth: str | float) -> str | float:
    """``"median"``, a multiple of it such as ``"0.5 median"``, or σ itself, in the standardised space."""
    if isinstance(bandwidth, str) and median_factor(bandwidth) > 0:
        return bandwidth
    if (
        isinstance(bandwidth, Real)
        and not isinstance(bandwidth, bool)
        and 0 < bandwidth < float("inf")
    ):
        return float(bandwidth)
    raise InvalidInput(
        f"bandwidth must be 'median', a multiple like '0.5 median', or a positive number (σ), got {bandwidth!r}."
    )


def median_factor(bandwidth: str) -> float:
    """What the median is multiplied by; 0 where the text says nothing of the kind."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+|)\s*\*?\s*median", bandwidth.strip())
    return 0.0 if found is None else float(found[1] or 1.0)


def cache_bytes(megabytes: float) -> int:
    """``cache_size`` in bytes."""
    if (
        isinstance(megabytes, Real)
        and not isinstance(megabytes, bool)
        and 0 <= megabytes < float("inf")
    ):
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
