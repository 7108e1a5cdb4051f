"""The results file: no finished run is lost or there twice, whatever happened to the writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crumb.errors import InvalidInput
from experiments.protocol import Run, key_of
from experiments.store import Store, read_rows


def row(seed: int, status: str = "ok", **more: Any) -> dict[str, Any]:
    return {
        **Run("main", "t", "regression", "embedded", "crumb", seed).identity,
        "status": status,
        **more,
    }


def write(path: Path, *rows: dict[str, Any]) -> None:
    with Store(path, resume=path.exists()) as store:
        for one in rows:
            store.append(one)


def test_rows_come_back_and_numbers_that_are_none_are_null(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.jsonl"
    write(path, row(0, rmse=float("nan"), cluster_mmd2=[0.5, float("inf")]), row(1, "timeout"))
    first, second = read_rows(path)
    assert (first["rmse"], first["cluster_mmd2"], second["status"]) == (
        None,
        [0.5, None],
        "timeout",
    )


def test_an_existing_file_is_not_touched_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, row(0))
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="already holds results: --resume"):
        Store(path)
    assert path.read_bytes() == before
    with pytest.raises(IsADirectoryError):
        Store(tmp_path)


@pytest.mark.parametrize(
    "torn", [b'{"protocol": "main", "da', b'{"protocol": "main", "status": "ok"}', b"\xff\xfe"]
)
def test_a_half_written_line_is_ignored_and_cut(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "results.jsonl"
    write(path, row(0), row(1))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert len(read_rows(path)) == 2
    with Store(path, resume=True) as store:
        assert len(store.done) == 2
        store.append(row(2))
    assert path.read_bytes().startswith(whole)
    assert [one["seed"] for one in read_rows(path)] == [0, 1, 2]


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, row(0), row(0), row(1))
    write(path, row(1), row(2))
    assert [one["seed"] for one in read_rows(path)] == [0, 1, 2]


def test_what_was_missing_is_tried_again_and_failures_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write(path, row(0), row(1, "error"), row(2, "timeout"), row(3, "missing"))
    planned = [key_of(row(seed)) for seed in range(4)]
    with Store(path, resume=True, retry_failed=True, planned=planned[:1]) as store:
        assert len(store.done) == 4  # what is not going to be run stays as it is
    assert len(read_rows(path)) == 4
    with Store(path, resume=True, planned=planned) as store:
        assert len(store.done) == 3
    assert [one["seed"] for one in read_rows(path)] == [0, 1, 2]
    with Store(path, resume=True, retry_failed=True, planned=planned) as store:
        assert len(store.done) == 1
        store.append(row(1))
    assert [(one["seed"], one["status"]) for one in read_rows(path)] == [(0, "ok"), (1, "ok")]


def test_another_file_is_not_taken_for_results(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nof the day\n")
    with pytest.raises(InvalidInput, match="line 1 is not a row"):
        Store(path, resume=True)
    assert path.read_text() == "my notes\nof the day\n"
    path.write_text(json.dumps(row(0)) + "\n[1]\n")
    with pytest.raises(InvalidInput, match="line 2"):
        read_rows(path)


def test_two_campaigns_do_not_share_a_file(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "results.jsonl"
    with Store(path) as store:
        store.append(row(0))
        with pytest.raises(InvalidInput, match="Another"):
            Store(path, resume=True)
        store.append(row(1))
    assert len(read_rows(path)) == 2


def test_nothing_is_left_of_a_campaign_that_did_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "results.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []
