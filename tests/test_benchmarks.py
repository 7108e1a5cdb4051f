"""Benchmarks at least run: their small mode on a CPU. And the docs name only what is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def run(script: str, *words: Any) -> str:
    command = [sys.executable, BENCHMARKS / script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_every_script_can_be_imported() -> None:
    """One process for all: most of the time goes into importing torch."""
    folders = [BENCHMARKS, BENCHMARKS / "online"]
    names = [path.stem for folder in folders for path in folder.glob("*.py")]
    code = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]}\n"
    code += "\n".join(f"import {name}" for name in names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert len(names) > 10


def test_stage2(tmp_path: Path) -> None:
    out = tmp_path / "stage2.json"
    sizes = ("--rows", 3_000, "--queries", 60, "--clusters", 3, "--context-size", 40)
    run("stage2.py", *sizes, "--repeats", 1, "--skip", "coreax", "--out", out)
    found = {one["way"]: one for one in json.loads(out.read_text())["records"]}
    assert len(found) == 6
    for way in ("exact", "rff 64, batch 50"):
        assert found[way]["same_choices"] == 1.0
    assert found["exact"]["mmd2"] < found["rff 64, batch 50"]["mmd2"]


def test_whole(tmp_path: Path) -> None:
    out = tmp_path / "whole.json"
    sizes = ("--rows", 600, "--columns", 4, "--queries", 40, "--context-size", 60)
    run("whole.py", *sizes, "--repeats", 1, "--out", out)
    records = json.loads(out.read_text())["records"]
    assert [one["way"] for one in records] == ["crumb", "full"]
    for one in records:
        assert one["seconds"] > 0
        assert 0.5 < one["accuracy"] <= 1


def test_explain(tmp_path: Path) -> None:
    out = tmp_path / "explain.json"
    sizes = ("--rows", 300, "--columns", 4, "--queries", 4, "--background", 2, "--timed", 1)
    run("explain.py", *sizes, "--out", out)
    records = json.loads(out.read_text())["records"]
    found = {one["way"]: one for one in records}
    assert list(found)[:3] == ["crumb", "crumb, again", "influence"]
    assert [one["background"] for one in records[1:3]] == [2, 8]
    assert found["crumb"]["masked_rows"] == found["shap, pool"]["masked_rows"] == 64


def test_fused(tmp_path: Path) -> None:
    out = tmp_path / "fused.json"
    run("stage3.py", "fused", "--small", "--repeats", 1, "--out", out)
    records = json.loads(out.read_text())["records"]
    found = {(one["case"], one["way"]): one for one in records}
    assert len(found) == len(records) == 17
    for case, way in found:
        if way == "fused":
            assert found[case, way]["difference"] < 1e-5
            assert found[case, way]["network_seconds"] < found[case, way]["seconds"]


def test_mixed(tmp_path: Path) -> None:
    out = tmp_path / "mixed.json"
    run("stage3.py", "mixed", "--small", "--repeats", 1, "--out", out)
    records = json.loads(out.read_text())["records"]
    assert [(one["clusters"], one["rows"]) for one in records] == [(4, 1_000), (8, 500)]
    for one in records:
        assert 0 < one["prepare_seconds"] < one["package_prepare_seconds"]
        assert one["prepare_seconds"] < 0.1 * one["network_seconds"]


def test_powers(tmp_path: Path) -> None:
    out = tmp_path / "powers.json"
    run("stage3.py", "powers", "--small", "--repeats", 1, "--out", out)
    records = json.loads(out.read_text())["records"]
    found = {(one["mode"], one["way"]): one for one in records}
    for mode in ("stacked", "side by side"):
        package, stacks = found[mode, "package"], found[mode, "stacks"]
        assert 0 < stacks["prepare_seconds"] < package["prepare_seconds"]
        assert stacks["difference"] < 1e-5


def test_side(tmp_path: Path) -> None:
    out = tmp_path / "side.json"
    run("stage3.py", "side", "--small", "--repeats", 1, "--out", out)
    package, side, half = json.loads(out.read_text())["records"]
    assert package["difference"] == 0
    assert side["difference"] < 1e-5 < half["difference"] < 0.1


def test_online_drift(tmp_path: Path) -> None:
    out = tmp_path / "drift.json"
    sizes = ("--steps", 5, "--queries", 60, "--recent", 60, "--clusters", 3, "--context-size", 30)
    run("online/drift.py", *sizes, "--out", out)
    records = json.loads(out.read_text())["records"]
    assert [(one["way"], one["step"], one["tau"]) for one in records] == [
        (way, step, step / 4)
        for way in ("drift", "never", "drift alone", "never alone", "micp")
        for step in range(5)
    ]
    version = {one["way"]: one["version"] for one in records}
    assert version["never"] == version["never alone"] == version["micp"] == 1 < version["drift"]


def test_load_of_a_service(tmp_path: Path) -> None:
    """Every answer is checked in it; here only that it runs and finds nothing wrong."""
    out = tmp_path / "load.json"
    sizes = "--minutes 0.3 --seconds 1 --rows 300 --queries 200 --clusters 2 --context 30"
    more = "--clients 8 --timeouts --refresh-every 100"
    run("online/load.py", *sizes.split(), *more.split(), "--out", out)
    found = json.loads(out.read_text())["records"]["sustained"]
    assert found["answers"] == found["requests"] > 50
    assert found["versions"] > 1
    assert found["without_any_reply"] == found["sent_and_cut_off"] == 0
    assert found["wrong_answers"] == found["mixed_up_ids"] == found["exit_status"] == 0
    assert found["largest_difference"] < 1e-5


def test_the_embedded_networks_meet_their_targets() -> None:
    """By the results that are kept beside the script."""
    lines = run("embedded.py", "--targets", BENCHMARKS / "results" / "embedded.json").splitlines()
    assert len(lines) == 7
    assert all(line.startswith("met ") for line in lines)


def test_two_files_of_results_are_compared_table_by_table() -> None:
    files = [BENCHMARKS / "results" / f"{name}.json" for name in ("embedded", "lightgbm")]
    lines = run("embedded.py", "--versus", *files).splitlines()
    row = next(line for line in lines if "ours: embedded |" in line).split(" | ")
    assert (row[0], row[2]) == ("| 5,000", "theirs: lightgbm")
    ours, theirs = (
        pd.DataFrame(json.loads(path.read_text())["records"])
        .query(f"size == 5000 and method == '{method}'")
        .groupby("table")[["auc", "rmse"]]
        .mean()
        for path, method in zip(files, ("embedded", "lightgbm"), strict=True)
    )
    lead = (ours - theirs) * [1, -1]  # a larger AUC, a smaller RMSE
    wins, losses = (lead > 0).sum(), (lead < 0).sum()
    assert row[3].startswith(f"{wins['auc']}–{losses['auc']}, p = ")
    assert row[-1].startswith(f"{wins['rmse']}–{losses['rmse']}, p = ")


def write_tables(folder: Path) -> None:
    """Classes and a number that follow from a column with odd names, and one table too small."""
    rng, entries = np.random.default_rng(0), []
    for name, task, rows in (
        ("classes", "multiclass", 900),
        ("numbers", "regression", 800),
        ("small", "binary", 100),
    ):
        X = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["x [1]", "y:2"])
        X["kind"] = pd.Categorical(rng.choice(["p", "q", None], rows))
        signal = X["x [1]"] + (X["kind"] == "p")
        classes = pd.Categorical(np.digitize(signal, [-0.5, 1.0]).astype(str))
        table = X.assign(target=2 * signal if task == "regression" else classes)
        table.to_parquet(folder / f"{name}.parquet")
        about = {"name": name, "task": task, "n_rows": rows, "target": "target"}
        entries.append({**about, "file": f"{name}.parquet"})
    (folder / "index.json").write_text(json.dumps(entries))


def large_tables(folder: Path, out: Path, *words: Any) -> list[dict[str, Any]]:
    sizes = ("--least-rows", 500, "--queries", 60, "--threads", 1, "--seeds", 0)
    run("large_tables.py", "--data", folder, *sizes, "--out", out, *words)
    return json.loads(out.read_text())["records"]


def test_large_tables(tmp_path: Path) -> None:
    write_tables(tmp_path)
    out, other, both = (tmp_path / name for name in ("out.json", "other.json", "both.json"))
    busy = large_tables(tmp_path, out, "--methods", "lightgbm", "sklearn", "--busy")
    assert [(one["table"], one["method"]) for one in busy] == [
        (table, method) for table in ("numbers", "classes") for method in ("lightgbm", "sklearn")
    ]
    assert all(one.get("r2", one.get("accuracy")) > 0.9 for one in busy)
    done = large_tables(tmp_path, out, "--methods", "lightgbm")  # seconds are wanted now
    assert [one["busy"] for one in done] == [False, True, False, True]
    assert large_tables(tmp_path, out, "--methods", "lightgbm") == done  # nothing is done twice
    words = ("--methods", "default", "micp", "full", "--tables", "numbers")
    assert len(large_tables(tmp_path, other, *words)) == 3
    run("large_tables.py", "--merge", out, other, "--out", both)
    lines = run("large_tables.py", "--report", both).splitlines()
    assert any(line.startswith("| default | micp | 1 | ") for line in lines)
    assert any(line.startswith("| default | lightgbm | 1 | 1–0 | ") for line in lines)
    seconds = lines[lines.index("**Seconds of fit**") :]
    assert not any("sklearn" in line for line in seconds)  # a busy machine's
    content = json.loads(both.read_text())
    content["records"] += [{**one, "seed": 1, "rmse": 9.0} for one in content["records"]]
    other.write_text(json.dumps(content))
    assert run("large_tables.py", "--report", other, "--seeds", 0).splitlines() == lines
    assert run("large_tables.py", "--report", other).splitlines() != lines


def test_a_guide_beside_its_parts(tmp_path: Path) -> None:
    write_tables(tmp_path)
    out, kept = tmp_path / "out.json", tmp_path / "kept"
    words = ("--methods", "guide", "default", "guide-alone", "--tables", "numbers")
    guide, *parts = large_tables(tmp_path, out, *words, "--keep", kept)
    sizes = ("--data", tmp_path, "--least-rows", 500, "--queries", 60)
    lines = run("large_tables.py", *sizes, "--report", out, "--keep", kept).splitlines()
    cells = lines[-1].split(" | ")
    assert cells[:2] == ["| numbers", "1"]
    squares = [float(cell) for cell in cells[2:5]]
    assert squares == pytest.approx([one["rmse"] ** 2 for one in (guide, *parts)], rel=1e-3)


def test_small_pools_and_many_queries(tmp_path: Path) -> None:
    write_tables(tmp_path)
    words = ("--methods", "lightgbm", "--queries", 350, "--most-rows", 300)
    records = large_tables(tmp_path, tmp_path / "out.json", *words)
    assert [(one["rows"], one["answered"]) for one in records] == [(300, 320), (300, 350)]


@pytest.mark.parametrize("method", ["xgboost", "catboost"])
def test_large_tables_with_a_peer(tmp_path: Path, method: str) -> None:
    pytest.importorskip(method, reason="extra peers")
    write_tables(tmp_path)
    records = large_tables(tmp_path, tmp_path / "out.json", "--methods", method)
    assert [one["table"] for one in records] == ["numbers", "classes"]
    assert all(one.get("r2", one.get("accuracy")) > 0.9 for one in records)


def test_rivals(tmp_path: Path) -> None:
    write_tables(tmp_path)
    out = tmp_path / "out.json"
    sizes = ("--queries", 40, "--context-size", 60, "--most", 200, "--seeds", 1)
    run("rivals.py", "--data", tmp_path, "--tables", "classes", *sizes, "--out", out)
    (record,) = json.loads(out.read_text())["records"]
    assert set(record["shares"]) == {"herded", "knn", "uniform", "balanced"}
    for way in record["shares"].values():
        assert set(way) == {"as they are", "pool", "answers"}
    scores = {name: one["log_loss"] for name, one in record["boosting"].items()}
    assert set(scores) == {"herded", "uniform", "BoostPFN", "PFN-Boost", "trees"}
    assert max(scores.values()) < 0.6
    printed = run("rivals.py", "--report", out)
    assert printed.count("| mean |") == 5


def arena_records(table: str, rows: int, *errors: float) -> list[dict[str, Any]]:
    facts = {"table": table, "rows": rows, "columns": 3, "metric": "rmse", "predict_s": 0.5}
    ways = zip(("LightGBM", "CRUMB", "CatBoost", "RandomForest"), errors, strict=False)
    return [{**facts, "way": way, "error": error, "train_s": 2 * error} for way, error in ways]


def test_report_of_the_arena(tmp_path: Path) -> None:
    """Ranks are of finished tables, duels of those that both have finished."""
    records = arena_records("many", 4_000, 0.8, 0.4, 0.2, 0.6)
    records += arena_records("few", 100, 0.2, 0.1, 0.3, 0.4)
    records += arena_records("unfinished", 200, 0.1, 0.8)
    (tmp_path / "out.json").write_text(json.dumps({"records": records}))
    lines = run("arena.py", "--report", tmp_path / "out.json").splitlines()
    assert [line for line in lines if "tables" in line] == [
        "3 tables", "2 tables, one context", "1 tables, several contexts",
    ]  # fmt: skip
    assert [line for line in lines if line.startswith("| LightGBM")] == [
        "| LightGBM | 3.00 | 0 of 2 | 2–1 | 1.260 | 1 | 0.5 | 1 |",  # ∛(1 / 2 · 1 / 2 · 8)
        "| LightGBM | 2.00 | 0 of 1 | 1–1 | 2.000 | 1 | 4.25 | 1 |",
        "| LightGBM | 4.00 | 0 of 1 | 1–0 | 0.500 | 1 | 0.5 | 1 |",
    ]
    assert "| CatBoost | 2.00 | 1 of 2 | 1–1 | 0.816 | 1 | 1.17 | 1 |" in lines  # √(2 / 3)
    assert lines[-3:] == [
        "| few | 100 | 3 | rmse | 0.1 | 0.2 | 0.3 | 0.4 | 1 |",
        "| unfinished | 200 | 3 | rmse | 0.8 | 0.1 | nan | nan | 2 |",
        "| many | 4000 | 3 | rmse | 0.4 | 0.8 | 0.2 | 0.6 | 2 |",
    ]


def test_seconds_of_a_busy_machine_do_not_count_in_the_arena(tmp_path: Path) -> None:
    records = arena_records("quiet", 100, 0.2, 0.1, 0.3, 0.4)
    records += arena_records("noisy", 200, 0.1, 0.8, 0.2, 0.4)
    records[4]["busy"] = True  # LightGBM's
    (tmp_path / "out.json").write_text(json.dumps({"records": records}))
    printed = run("arena.py", "--report", tmp_path / "out.json")
    assert "| LightGBM | 1.50 | 1 of 2 | 1–1 | 2.000 | 1 | 0.5 | 1 |" in printed
    assert "| CatBoost | 2.50 | 0 of 2 | 1–1 | 1.155 | 1 | 2.17 | 1 |" in printed  # √(4 / 3)


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_scripts_and_results_that_exist(page: Path) -> None:
    named = set(re.findall(r"benchmarks/[\w/-]+\.(?:py|json)\b", page.read_text(encoding="utf-8")))
    missing = sorted(name for name in named if not (ROOT / name).is_file())
    assert not missing


def test_every_file_of_results_is_named_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    kept = {path.name for path in (BENCHMARKS / "results").iterdir()}
    assert not {name for name in kept if name not in text}
