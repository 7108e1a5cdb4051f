"""Where a run took place: versions and hardware, recorded with every row."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import crumb

ENVIRONMENT = ("crumb", "python", "torch", "tabicl", "sklearn", "device", "machine", "when")


def environment(device: str) -> dict[str, str | None]:
    """Everything but the time. ``device`` is resolved: ``"cpu"``, ``"cuda"``, …"""
    return {
        "crumb": crumb.__version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "tabicl": _version("tabicl"),
        "sklearn": _version("scikit-learn"),
        "device": device_name(device),
        "machine": f"{_processor()}, {os.cpu_count() or 1} cores",
    }


def device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def _processor() -> str:
    """The model of the CPU; on Linux it stands in a file."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
