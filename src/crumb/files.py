"""Files that travel: a zip of JSON, arrays and Parquet. No pickle; written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from crumb.errors import PlanMismatch


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when complete; a failure leaves nothing behind."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(
            name, 0o666 & ~umask
        )  # mkstemp makes private files; this one is meant to be shared
        os.replace(name, path)
    except BaseException:  # Ctrl-C too must leave nothing half-written
        Path(name).unlink(missing_ok=True)
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
    text = json.dumps(
        {"format": kind, "version": version, **about}, indent=1, allow_nan=False, default=_plain
    )
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
    raise TypeError(f"{value!r} cannot be written to a file without pickle")


def read_archive(
    path: str | Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
    """What ``write_archive`` wrote, with a clear word when the file is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read("about.json"))
            if not isinstance(about, dict):
                raise ValueError("about.json is no dictionary")
            if about.get("format") != kind:
                raise PlanMismatch(
                    f"{path} is a {about.get('format')!r} file, not a {kind!r} file."
                )
            if about.get("version") != version:
                raise PlanMismatch(
                    f"{path} has version {about.get('version')} of its format; this release reads "
                    f"version {version}."
                )
            names = [name for name in archive.namelist() if name != "about.json"]
            content = {name: archive.read(name) for name in names}
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(data), allow_pickle=False)
            for name, data in content.items()
            if name.endswith(".npy")
        }
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, MemoryError) as error:
        if isinstance(error, PlanMismatch):
            raise
        raise PlanMismatch(
            f"{path} is not a complete {kind!r} file: it may be truncated."
        ) from error
    return (
        about,
        arrays,
        {name: data for name, data in content.items() if not name.endswith(".npy")},
    )
