"""crumb plan."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from cli_tables import FAST, PNG, make_table, predict_args

from crumb import Plan, select_contexts


def plan_args(*more):
    return ["plan", "--train", "train.csv", "--test", "test.csv", *FAST, *more]


def test_plan_is_the_librarys_plan(crumb, folder):
    status, out, _ = crumb(*plan_args("--out", "plan.crumb", "--picture", "plan.png"))
    assert status == 0
    expected = select_contexts(
        pd.read_csv("train.csv"), pd.read_csv("test.csv"), context_size=60, n_clusters=3
    )
    found = Plan.load("plan.crumb")
    assert all(
        (one == other).all() for one, other in zip(found.contexts, expected.contexts, strict=True)
    )
    assert Path("plan.png").read_bytes().startswith(PNG)
    lines = out.splitlines()
    assert lines[0].split() == ["cluster", *expected.summary().columns]
    assert [line.split()[1] for line in lines[1:4]] == [
        str(n) for n in expected.summary()["queries"]
    ]
    assert lines[4:] == ["plan in plan.crumb", "picture in plan.png"]


def test_plan_as_json(crumb, folder):
    _, out, _ = crumb(*plan_args("--json"))
    answer = json.loads(out)
    assert [row["context"] for row in answer["summary"]] == [60, 60, 60]
    assert sum(row["queries"] for row in answer["summary"]) == 30
    assert answer["settings"]["strategy"] == "mmd"
    assert answer["out"] is None


def test_what_was_not_measured_is_null_in_json_and_a_dash_in_the_table(crumb, folder, monkeypatch):
    monkeypatch.setattr("crumb.evidence.EVIDENCE_VALUES", 0)
    _, out, _ = crumb(*plan_args("--strategy", "uniform", "--json"))
    assert [row["mmd2"] for row in json.loads(out)["summary"]] == [None] * 3
    _, out, _ = crumb(*plan_args("--strategy", "uniform"))
    assert out.splitlines()[1].split()[3] == "–"


def test_the_target_is_no_feature_and_guards_rare_classes(crumb, folder):
    train = make_table(200, 0)
    train["animal"] = "cat"
    train.loc[train["a"].nlargest(3).index, "animal"] = "yak"
    train.to_csv("train.csv", index=False)
    make_table(30, 1).query("a < 0").to_csv("test.csv", index=False)
    args = plan_args("--target", "animal", "--context-size", "10", "--out", "plan.crumb", "--json")
    _, out, _ = crumb(*args, "--min-per-class", "1")
    guarded = Plan.load("plan.crumb")
    assert sum(row["swapped"] for row in json.loads(out)["summary"]) > 0
    assert all((train["animal"].to_numpy()[context] == "yak").any() for context in guarded.contexts)
    # Were the target a feature, the saved plan would not belong to the table that predict makes.
    status, _, _ = crumb(*predict_args(), "--plan", "plan.crumb")
    assert status == 0
    _, out, _ = crumb(*args, "--min-per-class", "0")
    assert sum(row["swapped"] for row in json.loads(out)["summary"]) == 0


def test_predict_uses_a_saved_plan(crumb, folder):
    crumb(*plan_args("--target", "animal", "--out", "plan.crumb"))
    _, out, _ = crumb(*predict_args(), "--plan", "plan.crumb", "--json")
    answer = json.loads(out)
    assert (answer["contexts"], answer["context_size"]) == (3, 60)
    make_table(150, 5).to_csv("train.csv", index=False)
    Path("out.csv").unlink()
    status, _, err = crumb(*predict_args(), "--plan", "plan.crumb")
    assert status == 1
    assert "another pool" in err
    assert not Path("out.csv").exists()


def test_pictures_of_unknown_kinds_are_refused_before_the_work(crumb, folder):
    status, _, err = crumb(*plan_args("--train", "nowhere.csv", "--picture", "plan.doc"))
    assert status == 1
    assert "must end in .png, .pdf, .svg or .jpg" in err
