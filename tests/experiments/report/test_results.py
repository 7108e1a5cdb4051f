"""Rows from files: every column there, the last of equal runs, torn lines counted."""

from __future__ import annotations

import gzip
import json

import experiment_rows
import numpy as np
import pytest

from crumb.errors import InvalidInput
from experiments.report.results import as_frame, read_results


def test_columns_of_the_schema_are_there_with_their_types():
    rows = as_frame(
        [
            {
                "protocol": "main",
                "dataset": "a",
                "method": "crumb",
                "status": "ok",
                "N": 5,
                "kernel": None,
            }
        ]
    )
    assert rows.loc[0, "N"] == 5.0
    assert np.isnan(rows.loc[0, "tau"])
    assert rows.loc[0, "kernel"] == ""
    assert rows.loc[0, "device"] == ""


def test_the_last_row_of_a_run_counts(tmp_path):
    rows = experiment_rows.Maker(1, 0, 1).factorial()
    again = {**rows[0], "accuracy": 0.123}
    found = read_results(experiment_rows.write_rows(tmp_path / "a.jsonl", [*rows, again]))
    assert (len(found.rows), found.repeated) == (len(rows), 1)
    assert 0.123 in set(found.rows["accuracy"])
    assert rows[0]["accuracy"] != 0.123


def test_rows_of_one_model_alone(tmp_path):
    rows = experiment_rows.Maker(2, 0, 1).large()
    file = experiment_rows.write_rows(tmp_path / "a.jsonl", rows)
    found = read_results(file, ["tabicl-v2"]).rows
    assert set(found["model"]) == {"tabicl-v2"}
    assert len(found) == len(rows) / 2
    with pytest.raises(InvalidInput, match="no rows of tabpfn-v1"):
        read_results(file, ["tabpfn-v1"])


def test_runs_on_two_devices_are_two_runs(tmp_path):
    row = experiment_rows.Maker(1, 0, 1).factorial()[0]
    found = read_results(
        experiment_rows.write_rows(tmp_path / "a.jsonl", [row, {**row, "device": "NVIDIA H200"}])
    )
    assert len(found.rows) == 2


def test_what_is_no_row_is_counted_and_left_out(tmp_path):
    row = experiment_rows.Maker(1, 0, 1).factorial()[0]
    (tmp_path / "deep").mkdir()
    lines = [json.dumps(row), "", "[1]", '{"protocol": "main"}', json.dumps(row)[:30]]
    (tmp_path / "deep" / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "notes.txt").write_text("no rows")
    found = read_results(tmp_path)
    assert (len(found.rows), found.unreadable, found.files) == (1, 3, ["a.jsonl"])


def test_packed_rows_are_read_too(tmp_path):
    rows = experiment_rows.Maker(1, 0, 1).factorial()
    plain = experiment_rows.write_rows(tmp_path / "a.jsonl", rows)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert len(read_results(tmp_path / "packed").rows) == len(read_results(plain).rows) == len(rows)
