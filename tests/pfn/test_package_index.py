"""Weights out of a source distribution, by the real pip from a folder that serves as its index."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from crumb.errors import InvalidCheckpoint, WeightsMissing
from crumb.pfn.models import ModelCard, card_for, fetch

PROJECT = """\
[build-system]
requires = ["hatchling==1.18.0"]
build-backend = "hatchling.build"
backend-path = []
[project]
name = "tiny"
version = "1.0"
"""


def distribution(folder: Path, weights: bytes, file: str = "weights.cpkt") -> Path:
    """As PyPI has it: with a script that a build would run."""
    path = folder / "tiny-1.0.tar.gz"
    ran = f"open({str(folder / 'ran')!r}, 'w')"
    content = {"pyproject.toml": PROJECT.replace("backend-path = []\n", "").encode(),
               "setup.py": ran.encode(), f"models/{file}": weights}  # fmt: skip
    with tarfile.open(path, "w:gz") as archive:
        for name, text in content.items():
            entry = tarfile.TarInfo(f"tiny-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return path


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where weights go. The only index is the folder ``tmp_path``."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "own"))
    return tmp_path / "own"


@pytest.fixture
def card(tmp_path: Path, tabpfn_v1: Path) -> ModelCard:
    weights = tabpfn_v1.read_bytes()
    digest = hashlib.sha256(distribution(tmp_path, weights).read_bytes()).hexdigest()
    return replace(
        card_for("tabpfn-v1", "classification"),
        file="weights.cpkt",
        repository="tiny==1.0",
        sha256=hashlib.sha256(weights).hexdigest(),
        revision=f"sha256:{digest}",
    )


def refusal(card: ModelCard, own: Path) -> str:
    with pytest.raises(WeightsMissing) as caught:
        fetch(card)
    assert not own.exists() or list(own.iterdir()) == []
    sentence = str(caught.value)
    assert "'tabpfn-v1' (weights.cpkt) are not on this machine" in sentence
    assert f"put it in {own}" in sentence
    assert "\n" not in sentence
    return sentence


def test_only_the_checkpoint_is_kept_and_nothing_is_built(
    card: ModelCard, own: Path, tmp_path: Path, tabpfn_v1: Path
) -> None:
    assert fetch(card) == own / "weights.cpkt"
    assert [path.name for path in own.iterdir()] == ["weights.cpkt"]
    assert (own / "weights.cpkt").read_bytes() == tabpfn_v1.read_bytes()
    assert not (tmp_path / "ran").exists()
    (tmp_path / "tiny-1.0.tar.gz").unlink()
    assert fetch(card) == own / "weights.cpkt"  # found, not fetched


def test_altered_archive(card: ModelCard, own: Path, tmp_path: Path) -> None:
    distribution(tmp_path, b"other weights")
    assert "DO NOT MATCH THE HASHES" in refusal(card, own)


def test_altered_checkpoint_in_the_archive(card: ModelCard, own: Path) -> None:
    with pytest.raises(InvalidCheckpoint, match="its checksum differs"):
        fetch(replace(card, sha256="0" * 64))
    assert list(own.iterdir()) == []


def test_truncated_archive(card: ModelCard, own: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny-1.0.tar.gz"
    path.write_bytes(path.read_bytes()[:300])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    refusal(replace(card, revision=f"sha256:{digest}"), own)


def test_archive_without_the_file(card: ModelCard, own: Path) -> None:
    with pytest.raises(WeightsMissing, match=r"tiny-1\.0\.tar\.gz has no absent\.cpkt"):
        fetch(replace(card, file="absent.cpkt"))
    assert list(own.iterdir()) == []


def test_no_network(card: ModelCard, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens there
    start = time.perf_counter()
    said = "(No matching distribution found for tiny==1.0; pip's index may be out of reach)"
    assert said in refusal(card, own)
    assert time.perf_counter() - start < 30


FULL = """
import resource, sys
from dataclasses import replace
from crumb.errors import WeightsMissing
from crumb.pfn.models import card_for, fetch
file, repository, sha256, revision, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))  # of files of pip, too
known = {"file": file, "repository": repository, "sha256": sha256, "revision": revision}
try:
    fetch(replace(card_for("tabpfn-v1", "classification"), **known))
except WeightsMissing as error:
    print(error)
"""


@pytest.mark.parametrize("share", [0.5, 1.05])  # the archive does not fit; its file does not
def test_disk_that_is_full(card: ModelCard, own: Path, tmp_path: Path, share: float) -> None:
    limit = int(share * (tmp_path / "tiny-1.0.tar.gz").stat().st_size)
    about = card.file, str(card.repository), str(card.sha256), str(card.revision), str(limit)
    done = subprocess.run(
        [sys.executable, "-c", FULL, *about], capture_output=True, text=True, timeout=120
    )
    assert "File too large" in done.stdout, done.stderr
    assert "needs about three times the room of the file" in done.stdout
    assert ".fetching-" not in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert list(own.iterdir()) == []
