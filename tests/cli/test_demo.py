"""``crumb demo``: an honest table, and a picture of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from crumb.cli import demo, main
from crumb.cli.demo import DARKEST, QUERIES, SIDE, TILTS, tilted_digits

NAMES = ["uniform", "micp", "mmd", "full"]


@pytest.fixture(scope="module", autouse=True)
def compared_once():
    """The comparison takes seconds: tests that show the same one share it."""
    compare, known = demo.compare, {}

    def remembered(digits, context, verbose):
        asked = (len(digits.X_pool), context)
        if asked not in known:
            known[asked] = compare(digits, context, verbose)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "compare", remembered)
        yield


def test_the_table_has_the_rows_asked_for_and_repeats():
    digits, again = tilted_digits(700), tilted_digits(700)
    assert digits.X_pool.shape == (700, SIDE * SIDE)
    assert digits.X_queries.shape == (QUERIES, SIDE * SIDE)
    assert set(digits.y_pool) == set(range(10))
    np.testing.assert_array_equal(digits.X_pool, again.X_pool)
    assert digits.X_pool.min() == 0
    assert digits.X_pool.max() == DARKEST


def test_no_query_is_a_tilted_copy_of_a_pool_row():
    """The whole pool holds every tilt of every image that is not asked about, and none that is."""
    images, _ = load_digits(return_X_y=True)
    digits = tilted_digits((len(images) - QUERIES) * len(TILTS))
    upright = {row.tobytes() for row in images}
    in_pool = {row.tobytes() for row in digits.X_pool} & upright
    in_queries = {row.tobytes() for row in digits.X_queries} & upright
    assert len(in_pool) == len(images) - QUERIES
    assert len(in_queries) > QUERIES / len(TILTS) / 2
    assert not in_pool & in_queries


@pytest.mark.parametrize("rows", [99, 10_480, -1])
def test_rows_out_of_range_are_refused(rows, capsys, tmp_path):
    assert main(["demo", "--rows", str(rows), "--out", str(tmp_path / "demo.png")]) == 1
    assert "--rows must be between 100 and 10,479" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_demo_compares_the_strategies_and_draws_them(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--rows", "300", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    lines = {line["strategy"]: line for line in answer["strategies"]}
    assert list(lines) == NAMES
    assert {name: lines[name]["rows"] for name in NAMES} == {
        "uniform": 60,
        "micp": 60,
        "mmd": 60,
        "full": 300,
    }
    assert lines["mmd"]["contexts"] == 20
    for line in lines.values():
        assert 0.5 < line["accuracy"] <= 1
        assert line["accuracy"] < line["roc_auc"] <= 1
        assert line["passes_s"] > 0
    assert Path("crumb-demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_says_what_came_out_and_where_to_go(capsys, tmp_path):
    assert main(["demo", "--rows", "300", "--out", str(tmp_path / "demo.pdf")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "300 pool rows" in lines[0]
    assert [line.split()[0] for line in lines[2:6]] == NAMES
    assert "demo.pdf" in lines[-2]
    assert lines[-1].startswith("  crumb predict --train")
    assert (tmp_path / "demo.pdf").read_bytes().startswith(b"%PDF")
