"""Where the work runs."""

from __future__ import annotations

import gc

from crumb.errors import InvalidInput

UNKNOWN = 1 << 62  # bytes: nobody says how many are free

DEVICES = ("auto", "cpu", "cuda", "mps")


def resolve_device(device: str) -> str:
    """``"auto"`` takes a GPU that is there; a GPU that is asked for by name must be."""
    import torch

    if not isinstance(device, str) or device.partition(":")[0] not in DEVICES:
        raise InvalidInput(f"Unknown device {device!r}: choose one of {', '.join(DEVICES)}.")
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        return "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there[device.partition(":")[0]]:
        raise InvalidInput(
            f"The device {device!r} is not available on this machine: use device='cpu' or 'auto'."
        )
    return device


def out_of_memory(error: BaseException) -> bool:
    """Whether this is what it looks like when memory runs out, of the machine or of a GPU."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(
        error
    )  # torch on a CPU


def collect_garbage(device: str) -> None:
    """Free memory: errors refer in circles to what filled it."""
    import torch

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def free_bytes(device: str) -> int:
    """What may be taken of the memory of a CUDA GPU, some left over; elsewhere nobody knows."""
    import torch

    if not device.startswith("cuda"):
        return UNKNOWN
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(
        device
    )  # kept by torch for the next ones
    return int(0.8 * (torch.cuda.mem_get_info(device)[0] + idle))
