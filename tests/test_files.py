"""files.py: written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import zipfile

import numpy as np
import pytest

from crumb.files import atomic_write, read_archive, write_archive


def write_and_fail(path, failure: BaseException) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        raise failure


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    for failure in (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises(type(failure)):
            write_and_fail(path, failure)
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out.bin"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_disk_that_fills_up_leaves_nothing(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(descriptor: int, mode: str):
        os.close(descriptor)
        return open("/dev/full", mode)

    monkeypatch.setattr("crumb.files.os.fdopen", on_a_full_disk)
    with pytest.raises(OSError, match="No space left"), atomic_write(tmp_path / "out.bin") as file:
        file.write(b"x" * 10_000_000)
    assert os.listdir(tmp_path) == []


def test_a_finished_file_has_ordinary_rights_and_folders_are_made(tmp_path) -> None:
    path = tmp_path / "a" / "b" / "out.bin"
    umask = os.umask(0o022)
    try:
        with atomic_write(path) as file:
            file.write(b"new")
    finally:
        os.umask(umask)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_folder_is_no_file(tmp_path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_write(tmp_path):
        pass


def test_archives_hold_arrays_text_and_files_and_never_pickle(tmp_path) -> None:
    path = tmp_path / "x.crumb"
    write_archive(path, "kind", 1, {"word": "ü"}, {"a": np.arange(3)}, {"f.txt": b"hi"})
    about, arrays, files = read_archive(path, "kind", 1)
    assert about["word"] == "ü"
    assert arrays["a"].tolist() == [0, 1, 2]
    assert files == {"f.txt": b"hi"}
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_archive(tmp_path / "y.crumb", "kind", 1, {}, {"a": np.array([object()])})
    assert not (tmp_path / "y.crumb").exists()


def test_what_is_packed_already_is_not_packed_again(tmp_path) -> None:
    """Parquet and archives in an archive: a second packing took most of the time of a snapshot."""
    content = b"0" * 100_000
    write_archive(tmp_path / "a", "thing", 1, {}, {"x": np.zeros(9)}, {"table.parquet": content})
    with zipfile.ZipFile(tmp_path / "a") as archive:
        kinds = {one.filename: one.compress_type for one in archive.infolist()}
    assert kinds["table.parquet"] == zipfile.ZIP_STORED
    assert kinds["x.npy"] == zipfile.ZIP_DEFLATED
    assert read_archive(tmp_path / "a", "thing", 1)[2] == {"table.parquet": content}
