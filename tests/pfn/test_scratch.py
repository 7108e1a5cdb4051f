"""Scratch folders of downloads: removed at the end, and those of killed processes by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from crumb.errors import WeightsMissing
from crumb.pfn import models
from crumb.pfn.models import card_for, fetch
from crumb.pfn.scratch import OLD, scratch_folder

HANGING = """
import sys, time
from pathlib import Path
from crumb.pfn.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as scratch:
    (scratch / "part").write_text("some of the weights")
    print("ready", flush=True)
    time.sleep(60)
"""


def folders(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def test_folder_is_there_while_it_is_used(tmp_path: Path) -> None:
    home = tmp_path / "new" / "models"
    with scratch_folder(home) as first, scratch_folder(home) as second:
        assert first != second
        assert folders(home) == sorted([first.name, second.name])
    assert folders(home) == []


@pytest.mark.skipif(os.name != "posix", reason="nobody can be asked whether a process runs")
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGING, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (theirs,) = folders(tmp_path)
    with scratch_folder(tmp_path) as ours:
        assert folders(tmp_path) == sorted([theirs, ours.name])  # it still runs
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert folders(tmp_path) == [theirs]
    with scratch_folder(tmp_path) as ours:
        assert folders(tmp_path) == [ours.name]


def test_folder_of_another_machine_is_removed_when_it_is_old(tmp_path: Path) -> None:
    young, old = tmp_path / ".fetching-elsewhere-999999-abc", tmp_path / ".fetching-abc"
    for folder in (young, old):
        folder.mkdir()
    past = time.time() - OLD - 60
    os.utime(old, (past, past))
    with scratch_folder(tmp_path):
        pass
    assert folders(tmp_path) == [young.name]


@pytest.mark.parametrize("source", ["hub", "index"])
def test_folder_that_cannot_be_written(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "models"
    home.write_text("a file where the folder should be")
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(home))
    monkeypatch.setattr(models, "_reachable", lambda endpoint: True)
    card = card_for("tabicl-v2" if source == "hub" else "tabpfn-v1", "classification")
    with pytest.raises(WeightsMissing) as caught:
        fetch(replace(card, file="absent.ckpt"))
    assert str(caught.value) == (
        f"The folder for weights, {home}, cannot be written (File exists): "
        f"change that, or set CRUMB_MODEL_DIR to another folder."
    )


def test_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*about: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / ".fetching-abc"))

    monkeypatch.setattr("crumb.pfn.scratch.TemporaryDirectory", refuse)
    with (
        pytest.raises(WeightsMissing, match=r"cannot be written \(Permission denied\): change"),
        scratch_folder(tmp_path),
    ):
        pass
