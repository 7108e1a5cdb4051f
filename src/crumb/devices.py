"""Where the work runs."""

from __future__ import annotations

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
