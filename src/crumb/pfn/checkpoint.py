"""Opening a checkpoint file: safely, once, and with a clear sentence if something is wrong."""

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
from crumb.pfn.registry import FAMILIES, USUAL_FORMAT


@dataclass(frozen=True)
class Checkpoint:
    """Weights, and the configuration of the network that they belong to."""

    path: Path
    family: str  # the back-end that runs it
    task: str  # "classification" or "regression"
    max_classes: int
    config: dict[str, Any]
    state_dict: dict[str, Any]


# Path, time of change and size: a file that was replaced is another file.
FileKey = tuple[Path, int, int]


def file_key(path: str | os.PathLike[str]) -> FileKey:
    """What tells one state of a checkpoint file from another."""
    # Links are not followed: the files of the hub's cache that they lead to have no ending.
    path = Path(path).expanduser().absolute()
    if not path.is_file():
        raise InvalidCheckpoint(f"There is no checkpoint file at {path}.")
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint of any family, without running any code in the file."""
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
    for family in FAMILIES:
        found = family.read(content)
        if found is not None and isinstance(found.max_classes, int):
            task = "classification" if found.max_classes > 0 else "regression"
            config, weights = found.config, found.state_dict
            return Checkpoint(path, family.name, task, found.max_classes, config, weights)
    raise InvalidCheckpoint(f"{path} is {_what_is_wrong(content)}.")


def _what_is_wrong(content: Any) -> str:
    known = " or ".join(family.title for family in FAMILIES)
    if not isinstance(content, dict) or not set(USUAL_FORMAT) <= content.keys():
        return f"not a checkpoint of {known}: it has no 'config' and 'state_dict'"
    if not all(isinstance(content[key], dict) for key in USUAL_FORMAT):
        return f"not a checkpoint of {known}: 'config' or 'state_dict' is no dictionary"
    return f"a checkpoint, but its network is none that CRUMB knows: {known}"


def _torch_file(path: Path) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that are refused below anyway
            # Mapped, not read: the weights take no memory of their own once the network has them.
            mapped = zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # an arbitrary file can break the reader in any way
        if "GLOBAL" in str(error):
            raise InvalidCheckpoint(
                f"{path} holds Python objects besides tensors and was not opened, "
                f"since that could run code; use a checkpoint with plain weights."
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
            metadata = (file.metadata() or {}).items()
            content: dict[str, Any] = {key: json.loads(text) for key, text in metadata}
            content["state_dict"] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise _unreadable(path) from error
    return content


def _unreadable(path: Path) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"{path} cannot be read as a checkpoint: it is truncated or another kind of file; "
        f"download or copy it again."
    )
