"""What a training run leaves on disk: a readable ``progress.json`` and tensors in files of at most
16 MB."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.files import atomic_write
from pretraining.network import graft, grow

PART_BYTES = 16_000_000


SAME = ("task", "size", "variant")  # what a run has in common with the one it starts from
CAN_GROW = ("variant", "icl_num_blocks")
COUNTS = ("step", "tables", "cells", "seconds")


@dataclass
class Progress:
    """Where a run stands. ``log`` has one entry for every few seconds."""

    task: str
    size: str
    variant: str
    seed: int
    config: dict[str, Any]
    cooling: tuple[int, int] | None = None  # the step at which cooling begins, and its steps
    begun: int = 0  # the first step of this run, if it went out from another's network
    step: int = 0
    tables: int = 0
    cells: int = 0
    seconds: float = 0.0
    pieces: int = 0
    saves: int = 0
    devices: list[str] = field(default_factory=list)
    log: list[dict[str, float]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)


def save(folder: Path, progress: Progress, tensors: dict[str, Tensor]) -> None:
    """New parts beside the old, then the progress that names them, then the old parts go: never a
    mixture."""
    folder.mkdir(parents=True, exist_ok=True)
    old, progress.parts = progress.parts, []
    progress.saves += 1
    for number, part in enumerate(_split(tensors)):
        progress.parts.append(f"part-{progress.saves}-{number}.pt")
        with atomic_write(folder / progress.parts[-1]) as file:
            torch.save(part, file)
    with atomic_write(folder / "progress.json") as file:
        file.write(json.dumps(asdict(progress), indent=1).encode())
    for name in old:
        (folder / name).unlink(missing_ok=True)


def load(folder: Path) -> tuple[Progress, dict[str, Tensor]] | None:
    """The state in a folder, or nothing when there is none yet."""
    path = folder / "progress.json"
    if not path.exists():
        return None
    try:
        progress = Progress(**json.loads(path.read_text()))
        tensors: dict[str, Tensor] = {}
        for name in progress.parts:
            tensors |= torch.load(folder / name, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated, foreign, or a part is missing
        raise InvalidCheckpoint(
            f"The training state in {folder} cannot be read: start in a new folder."
        ) from error
    return progress, tensors


def export(path: Path, progress: Progress, weights: dict[str, Tensor]) -> None:
    """A checkpoint in tabicl's format, with a word on its training. Matrices in bfloat16: half the
    file, and less than the noise of the training."""
    kept = {}
    for name, weight in weights.items():
        large = weight.is_floating_point() and weight.numel() > 4096
        kept[name] = _copy(weight, torch.bfloat16 if large else weight.dtype)
    made = {name: getattr(progress, name) for name in (*SAME, "seed", "cooling", *COUNTS)}
    with atomic_write(path) as file:
        torch.save({"config": progress.config, "state_dict": kept, "training": made}, file)


def start(path: Path, progress: Progress) -> dict[str, Tensor]:
    """The weights of an exported network; the progress goes on from its step.

    A network of TabICL's own parts, or with fewer blocks, can begin a run of ours: what is new to
    it begins at zero.
    """
    wanted = progress.config
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        config, weights, made = content["config"], content["state_dict"], content.get("training")
        known = {**config, **{name: wanted[name] for name in CAN_GROW if name in wanted}} == wanted
        if known and "variant" not in config and "variant" in wanted:
            weights = graft(weights)
        if known and config["icl_num_blocks"] < wanted["icl_num_blocks"]:
            weights = grow(weights, wanted)
    except Exception as error:
        raise InvalidCheckpoint(f"{path} is no network that a run can start from.") from error
    if not known or config["icl_num_blocks"] > wanted["icl_num_blocks"]:
        raise InvalidInput(f"The network in {path} is of another task, size or variant.")
    for name in COUNTS if made else ():
        setattr(progress, name, made[name])
    progress.begun = progress.step
    return weights


def average(paths: list[Path], out: Path) -> None:
    """The mean of the weights of networks that went out from one: often better than each of them.

    What is said of the training is that of the first.
    """
    contents = [torch.load(path, map_location="cpu", weights_only=True) for path in paths]
    first = contents[0]
    if any(content["config"] != first["config"] for content in contents):
        raise InvalidInput("Only networks of one architecture have an average.")
    mean = {
        name: torch.stack([one["state_dict"][name].double() for one in contents])
        .mean(0)
        .to(w.dtype)
        for name, w in first["state_dict"].items()
    }
    with atomic_write(out) as file:
        torch.save({**first, "state_dict": mean}, file)


def _split(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{}]
    room = PART_BYTES
    for name, tensor in tensors.items():
        tensor = _copy(tensor, tensor.dtype)
        if tensor.nbytes > room and parts[-1]:
            parts.append({})
            room = PART_BYTES
        parts[-1][name] = tensor
        room -= tensor.nbytes
    return parts


def _copy(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A view would save the whole of what it looks at."""
    return tensor.detach().to("cpu", dtype, copy=True)
