"""Opening a checkpoint file: safely, once, and with a clear word about what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import pickle
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


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint of tabicl or tabpfn; the file is opened without running any code in it."""
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        raise InvalidCheckpoint(f"There is no checkpoint file at {path}.")
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
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
            f"{path} is not a checkpoint of tabicl or tabpfn: its 'config' or 'state_dict' is not a dictionary."
        )
    if "embed_dim" in config and "icl_num_blocks" in config:
        family, max_classes = "tabicl", config.get("max_classes", 10)
    elif "emsize" in config:
        family, max_classes = "tabpfn", config.get("max_num_classes", 10)
    else:
        raise InvalidCheckpoint(f"{path} is a checkpoint, but its network is neither TabICL nor TabPFN.")
    task = "classification" if max_classes else "regression"
    return Checkpoint(path, family, task, int(max_classes), config, state_dict)


def _torch_file(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error) or "GLOBAL" in str(error):
            raise InvalidCheckpoint(
                f"{path} holds Python objects besides tensors and was not opened, since that could run code; "
                f"use a checkpoint with plain weights."
            ) from error
        raise InvalidCheckpoint(f"{path} is not a checkpoint file.") from error
    except (RuntimeError, EOFError, KeyError, ValueError, OSError, AttributeError) as error:
        raise InvalidCheckpoint(
            f"{path} cannot be read as a checkpoint; it may be truncated: download or copy it again."
        ) from error


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise InvalidCheckpoint(
            f"Reading {path} needs the package safetensors: pip install 'crumb-pfn[tabpfn]'."
        ) from error
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            content: dict[str, Any] = {key: json.loads(text) for key, text in (file.metadata() or {}).items()}
            content["state_dict"] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise InvalidCheckpoint(
            f"{path} cannot be read as a checkpoint; it may be truncated: download or copy it again."
        ) from error
    return content
