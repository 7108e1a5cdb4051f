"""A scratch folder for a download, in the folder that the file is for.

A process that is killed leaves its scratch folder behind, so the next one removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from crumb.errors import WeightsMissing

PREFIX = ".fetching-"
OLD = 86_400  # seconds: no download takes longer


@contextmanager
def scratch_folder(home: Path) -> Iterator[Path]:
    """Its name has the machine and the process that uses it."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        _tidy(home)
        prefix = f"{PREFIX}{socket.gethostname()}-{os.getpid()}-"
        made = TemporaryDirectory(dir=home, prefix=prefix)
    except OSError as error:
        raise WeightsMissing(
            f"The folder for weights, {home}, cannot be written ({error.strerror}): "
            f"change that, or set CRUMB_MODEL_DIR to another folder."
        ) from error
    with made as folder:
        yield Path(folder)


def _tidy(home: Path) -> None:
    for folder in home.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process may be removing it
            if time.time() - folder.stat().st_mtime > OLD or _left(folder):
                shutil.rmtree(folder)


def _left(folder: Path) -> bool:
    """Whether the process that made it, on this machine, is gone."""
    name = re.escape(f"{PREFIX}{socket.gethostname()}-")
    found = re.fullmatch(rf"{name}(\d+)-\w+", folder.name)
    if found is None or os.name != "posix":  # elsewhere the question would end the process
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        return False
    return False
