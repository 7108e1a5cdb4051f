"""Where a run took place: versions and hardware, recorded with every row."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ENVIRONMENT = ("crumb", "python", "torch", "tabicl", "sklearn", "device", "machine", "when")


def environment(device: str) -> dict[str, str | None]:
    """Everything but the time. ``device`` is resolved: ``"cpu"``, ``"cuda"``, …"""
    from crumb import __version__

    return {
        "crumb": __version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "tabicl": _version("tabicl"),
        "sklearn": _version("scikit-learn"),
        "device": device_name(device),
        "machine": machine(),
    }


def device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def machine() -> str:
    return f"{_processor()}, {os.cpu_count() or 1} cores"


def _processor() -> str:
    """The model of the CPU; Linux keeps it in a file, and others in ``platform``."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    """Also of a package that is only a folder on the path."""
    try:
        return version(package)
    except PackageNotFoundError:
        from importlib import import_module

        try:
            return getattr(import_module(package), "__version__", None)
        except ImportError:
            return None
