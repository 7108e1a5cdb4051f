"""Files that travel: a zip of JSON, arrays and Parquet. No pickle; written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from crumb.errors import InvalidInput, PlanMismatch


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when complete; a failure leaves nothing behind."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f".{path.name}.{secrets.token_hex(6)}.part"
    # Opened by us, not by tempfile, whose files are private: the process's umask applies as usual.
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:  # Ctrl-C too must leave nothing half-written
        name.unlink(missing_ok=True)
        raise


def write_archive(
    path: str | Path,
    kind: str,
    version: int,
    about: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write ``about.json``, one ``.npy`` an array and the given files into one zip."""
    about = {"format": kind, "version": version, **about}
    try:
        text = json.dumps(about, indent=1, allow_nan=False, default=_plain)
    except TypeError as error:
        said = f"These settings cannot be written to a file without pickle: {error}."
        raise InvalidInput(said) from error
    with (
        atomic_write(path) as target,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        archive.writestr("about.json", text)
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())
        for name, content in (files or {}).items():
            archive.writestr(name, content)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def read_archive(
    path: str | Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
    """What ``write_archive`` wrote, with a clear word when the file is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        about = dict(json.loads(files.pop("about.json")))
        found, release = about.get("format"), about.get("version")
        if found != kind:
            raise PlanMismatch(f"{path} is a {found!r} file, not a {kind!r} file.")
        if release != version:
            said = f"{path} has version {release} of its format"
            raise PlanMismatch(f"{said}; this release reads version {version}.")
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(files.pop(name)), allow_pickle=False)
            for name in list(files)
            if name.endswith(".npy")
        }
    except PlanMismatch:
        raise
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError, MemoryError) as error:
        said = f"{path} is not a complete {kind!r} file: it may be truncated."
        raise PlanMismatch(said) from error
    return about, arrays, files
