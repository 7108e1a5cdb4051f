"""Networks compared on prepared tables."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
import torch

from pretraining import judge
from pretraining.__main__ import main
from pretraining.training import Training


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Two small ones, and three tables of two classes."""
    folder = tmp_path_factory.mktemp("judged")
    paths = [folder / f"{seed}.ckpt" for seed in range(2)]
    for seed, path in enumerate(paths):
        Training(folder / str(seed), "classification", "smoke", seed=seed).export(path)
    rng = np.random.default_rng(0)
    arrays = {}
    for name in ("one", "two", "three"):
        X = rng.normal(size=(2, 60, 3)).astype(np.float32)
        arrays[f"classification/{name}/X"] = X
        arrays[f"classification/{name}/y"] = (X[..., 0] > 0).astype(np.float32)
        arrays[f"classification/{name}/train"] = np.array(40)
    np.savez(folder / "tables.npz", **arrays)
    return paths, folder / "tables.npz"


def test_a_network_is_level_with_itself_and_differs_from_another(networks, tmp_path, capsys):
    (first, second), tables = networks
    out = tmp_path / "judged.json"
    words = [first, first, second, "--tables", tables, "--out", out]
    assert main(["judge", *map(str, words)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[1] == "0: lower on 0 of 3, 1.0000 of the loss, p = 1"
    found = json.loads(out.read_text())
    assert set(found) == {"0", "1"}
    assert found["0"] != found["1"]
    wins = sum(found["1"][name] < found["0"][name] for name in found["0"])
    assert lines[2].startswith(f"1: lower on {wins} of 3,")


def test_scores_are_those_of_the_network(networks):
    (first, _), tables = networks
    scores = judge.scores(first, tables)
    assert set(scores) == {"one", "two", "three"}
    assert all(0 < score < 5 for score in scores.values())
    torch.manual_seed(1)
    assert judge.scores(first, tables) == scores


def test_the_test_is_wilcoxons():
    differences = np.random.default_rng(0).normal(0.3, 1, 40).tolist()
    old = {str(i): 1.0 for i in range(40)}
    new = {str(i): float(np.exp(d)) for i, d in enumerate(differences)}
    said = float(judge.against(new, old, "new").rsplit("= ", 1)[1])
    wanted = scipy.stats.wilcoxon(differences, method="asymptotic", correction=False).pvalue
    assert said == pytest.approx(wanted, rel=0.02)


def test_the_targets_of_one_table_count_once():
    old = {"a:x-9": 1.0, "a:y-9": 1.0, "b:x-9": 1.0}
    new = {"a:x-9": 0.5, "a:y-9": 0.5, "b:x-9": 2.0}
    assert judge.against(new, old, "new").startswith("new: lower on 1 of 2, 1.0000 of the loss")


def test_an_average_is_the_mean_of_the_weights_and_of_one_architecture(networks, tmp_path, capsys):
    (first, second), _ = networks
    out = tmp_path / "mean.ckpt"
    assert main(["average", str(first), str(second), "--out", str(out)]) == 0
    one, two, mean = (torch.load(path, weights_only=True) for path in (first, second, out))
    assert mean["config"] == one["config"]
    for name, weight in mean["state_dict"].items():
        expected = (one["state_dict"][name].double() + two["state_dict"][name].double()) / 2
        torch.testing.assert_close(weight, expected.to(weight.dtype))
    other = tmp_path / "other.ckpt"
    Training(tmp_path / "run", "regression", "smoke").export(other)
    capsys.readouterr()
    assert main(["average", str(first), str(other), "--out", str(tmp_path / "none.ckpt")]) == 1
    assert "one architecture" in capsys.readouterr().err
    assert not (tmp_path / "none.ckpt").exists()
