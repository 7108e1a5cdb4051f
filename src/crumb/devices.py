"""Where the work runs: device and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from crumb.errors import InvalidInput

DEVICES = ("auto", "cpu", "cuda", "mps")


def resolve_device(device: str) -> str:
    """``"auto"`` takes a GPU that is there; a GPU that is asked for by name must be."""
    import torch

    if not isinstance(device, str) or device.partition(":")[0] not in DEVICES:
        raise InvalidInput(f"Unknown device {device!r}: choose one of {', '.join(DEVICES)}.")
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there[device.partition(":")[0]]:
        raise InvalidInput(f"The device {device!r} is not available on this machine: use device='cpu' or 'auto'.")
    return device


@contextmanager
def torch_threads(n_jobs: int | None) -> Iterator[None]:
    """Run with as many torch threads as ``n_jobs`` says (None: as torch pleases; −1: all cores)."""
    if n_jobs is None:
        yield
        return
    if not isinstance(n_jobs, int) or n_jobs == 0:
        raise InvalidInput(f"n_jobs must be a whole number other than 0, or None; got {n_jobs!r}.")
    import torch

    cores = os.cpu_count() or 1
    before = torch.get_num_threads()
    torch.set_num_threads(min(cores, n_jobs) if n_jobs > 0 else max(1, cores + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)
