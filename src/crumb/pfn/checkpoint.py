"""Opening a checkpoint file: safely, once, and with a clear word about what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from crumb.errors import InvalidCheckpoint


@dataclass(frozen=True)
class Checkpoint:
    """Weights and the configuration of the network that they belong to."""

    path: Path
    family: str  # "tabicl" or "tabpfn"
    task: str  # "classification" or "regression"
    max_classes: int
    config: dict[str, Any]
    state_dict: dict[str, Any]


FileKey = tuple[
    Path, int, int
]  # path, time of change, size: a file that was replaced is another file


def file_key(path: str | os.PathLike[str]) -> FileKey:
    """What tells one state of a checkpoint file from another."""
    # Links are not followed: the names of the files in the hub's cache that they lead to have no ending.
    path = Path(path).expanduser().absolute()
    if not path.is_file():
        raise InvalidCheckpoint(f"There is no checkpoint file at {path}.")
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint of tabicl or tabpfn; the file is opened without running any code in it."""
    return _read(*file_key(path))


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with file_key(path)[0].open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@lru_cache(maxsize=2)
def _read(path: Path, _modified: int, _size: int) -> Checkpoint:
    content = _safetensors(path) if path.suffix == ".safetensors" else _torch_file(path)
    if not isinstance(content, dict) or not {"config", "state_dict"} <= content.keys():
        raise InvalidCheckpoint(
            f"{path} is not a checkpoint of tabicl or tabpfn: it has no 'config' and 'state_dict'."
        )
    config, state_dict = content["config"], content["state_dict"]
    if not isinstance(config, dict) or not isinstance(state_dict, dict):
        raise InvalidCheckpoint(
            f"{path} is not a checkpoint of tabicl or tabpfn: 'config' or 'state_dict' is no dictionary."
        )
    if any(str(name).startswith("icl_predictor.") for name in state_dict):
        family, max_classes = "tabicl", config.get("max_classes", 10)
    elif "emsize" in config:
        family, max_classes = "tabpfn", config.get("max_num_classes", 10)
    else:
        family, max_classes = "unknown", None
    if not isinstance(max_classes, int):
        raise InvalidCheckpoint(
            f"{path} is a checkpoint, but its network is none that CRUMB knows: TabICL, or TabPFN up to 2.6."
        )
    task = "classification" if max_classes > 0 else "regression"
    return Checkpoint(path, family, task, max_classes, config, state_dict)


def _torch_file(path: Path) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that are refused below anyway
            # Mapped, not read: the weights take no memory of their own once the network has them.
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except Exception as error:  # an arbitrary file can break the reader in any way
        if "GLOBAL" in str(error):
            raise InvalidCheckpoint(
                f"{path} holds Python objects besides tensors and was not opened, since that could run code; "
                f"use a checkpoint with plain weights."
            ) from error
        raise _unreadable(path) from error


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise InvalidCheckpoint(
            f"Reading {path} needs the package safetensors: pip install 'crumb-pfn[tabpfn]'."
        ) from error
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            content: dict[str, Any] = {
                key: json.loads(text) for key, text in (file.metadata() or {}).items()
            }
            content["state_dict"] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise _unreadable(path) from error
    return content


def _unreadable(path: Path) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path} cannot be read as a checkpoint: it is truncated or another kind of file; download or copy it again."
    )
