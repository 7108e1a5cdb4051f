"""Files that travel: a zip of JSON, arrays and Parquet. No pickle; written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import secrets
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from crumb.errors import CrumbError, InvalidFile, InvalidInput

# A file may unpack to this, and to this many times its size. Arrays that would shrink more are
# stored as they are.
UNPACKED_BYTES, MOST_TIMES = 256_000_000, 100
Result = TypeVar("Result")


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
            _add(archive, f"{name}.npy", buffer.getvalue())
        for name, content in (files or {}).items():  # Parquet and archives: packed already
            archive.writestr(name, content, zipfile.ZIP_STORED)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    large = len(content) > UNPACKED_BYTES // 10
    stored = large and MOST_TIMES * len(zlib.compress(content, 1)) < len(content)
    archive.writestr(name, content, zipfile.ZIP_STORED if stored else None)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def read_archive(
    path: str | Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
    """What ``write_archive`` wrote, with a clear word when the file is something else."""
    with open(path, "rb") as file, reading(path, kind):
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check_unpacked(path, sum(one.file_size for one in members), os.path.getsize(path))
            files = {one.filename: archive.read(one) for one in members}
        about = dict(json.loads(files.pop("about.json")))
        found, release = about.get("format"), about.get("version")
        if found != kind:
            raise InvalidFile(f"{path} is a {found!r} file, not a {kind!r} file.")
        if release != version:
            said = f"{path} has version {release} of its format"
            raise InvalidFile(f"{said}; this release reads version {version}.")
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(files.pop(name)), allow_pickle=False)
            for name in list(files)
            if name.endswith(".npy")
        }
    return about, arrays, files


def packed(write: Callable[[Path], None]) -> bytes:
    """What a function writes to the file that it is given."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "part")
        return (Path(folder) / "part").read_bytes()


def unpacked(content: bytes, read: Callable[[Path], Result]) -> Result:
    """What a function reads from a file with this content."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "part"
        file.write_bytes(content)
        return read(file)


def check_unpacked(what: str | Path, unpacked: int, packed: int) -> None:
    """Refuse a file that claims to hold far more than its own size, before it is unpacked."""
    if unpacked > UNPACKED_BYTES + MOST_TIMES * packed:
        raise InvalidFile(
            f"{what} would unpack to {unpacked / 1e6:,.0f} MB, much more than such a file holds: "
            f"it is damaged, or made to fill the memory."
        )


@contextmanager
def reading(path: str | Path, kind: str) -> Iterator[None]:
    """A damaged file can break a reader in any way: it is said in one way, with its name."""
    try:
        yield
    except CrumbError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except KeyError as error:
        raise InvalidFile(f"{path} is incomplete: it has no {error}.") from error
    except Exception as error:
        raise InvalidFile(
            f"{path} is not a complete {kind!r} file: it is damaged, truncated, or something else "
            f"than what CRUMB saves."
        ) from error
