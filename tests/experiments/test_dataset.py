"""Where benchmark tables come from: folders, OpenML, made ones. All give the same ``Dataset``."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from experiment_tables import make_folder

from crumb.errors import InvalidInput
from experiments import openml, synthetic
from experiments.dataset import DatasetMissing, with_target
from experiments.protocols import PROTOCOLS, plan_runs
from experiments.sources import chosen, collection

REAL = Path(os.environ.get("CRUMB_DATASETS", Path(__file__).parents[3] / "shared" / "datasets"))


def test_a_folder_says_what_it_holds_without_loading_it(tmp_path: Path) -> None:
    kinds, prices, torn, untold, gone = collection(str(make_folder(tmp_path)))
    assert (kinds.task, kinds.rows, kinds.columns, kinds.problem) == (
        "classification",
        119,
        3,
        None,
    )
    assert (prices.task, prices.rows, prices.columns, prices.problem) == (
        "regression",
        120,
        3,
        None,
    )
    assert torn.rows is None
    assert "torn.parquet cannot be read as Parquet" in str(torn.problem)
    assert untold.problem == "The table untold has no column 'answer', which should be its target."
    assert "is not there" in str(gone.problem)


def test_a_folder_is_loaded_as_codes_and_numbers(tmp_path: Path) -> None:
    kinds, prices, torn, untold, gone = collection(str(make_folder(tmp_path)))
    classes = pickle.loads(pickle.dumps(kinds)).load()  # a source travels to worker processes
    assert (len(classes.X), list(classes.X.columns), classes.n_classes) == (119, ["a", "b", "c"], 2)
    assert set(classes.y) == {0, 1}
    numbers = prices.load()
    assert numbers.y.dtype == np.float64
    assert numbers.n_classes is None
    for broken in (torn, untold):
        with pytest.raises(InvalidInput):
            broken.load()
    with pytest.raises(DatasetMissing):
        gone.load()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "must be a list"),
        ('[{"name": "a"}]', "entry 1: a table needs"),
        ('[{"name": "a", "file": "a", "target": "y", "task": "ranking"}]', "the task must be"),
        ('[{"name": "a", "file": "a", "target": "y", "task": "binary"}, '
         '{"name": "a", "file": "b", "target": "y", "task": "binary"}]', "a more than once"),
    ],
)  # fmt: skip
def test_a_wrong_index_is_refused_in_a_sentence(tmp_path: Path, index: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=r"needs an index\.json"):
        collection(str(tmp_path))
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(InvalidInput, match=message):
        collection(str(tmp_path))


def test_rows_without_a_finite_target_are_left_out() -> None:
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, np.inf, np.nan, 2.0]})
    assert with_target("t", "regression", table, "y", "").X["x"].tolist() == [1.0, 4.0]
    with pytest.raises(InvalidInput, match="no row with a target"):
        with_target("t", "regression", table.assign(y=np.nan), "y", "")
    with pytest.raises(InvalidInput, match="no column besides"):
        with_target("t", "regression", table[["y"]], "y", "")


def test_tables_are_chosen_by_name() -> None:
    sources = collection("synthetic")
    assert [source.name for source in chosen(sources, ["waves", "board", "waves"])] == [
        "waves",
        "board",
    ]
    with pytest.raises(InvalidInput, match="no data set 'tides'"):
        chosen(sources, ["tides"])


def test_made_tables_are_the_same_every_time() -> None:
    sources = synthetic.sources()
    assert {source.task for source in sources} == {"classification", "regression"}
    for source in sources:
        first, second = source.load(), source.load()
        pd.testing.assert_frame_equal(first.X, second.X)
        np.testing.assert_array_equal(first.y, second.y)
        assert first.X.shape == (source.rows, source.columns)
        assert source.problem is None
        if source.task == "classification":
            assert np.bincount(first.y).min() > 50


def test_tabarena_is_complete() -> None:
    tasks = [entry.task for entry in openml.TABARENA]
    assert (tasks.count("classification"), tasks.count("regression")) == (38, 13)
    assert (
        len({entry.name for entry in openml.TABARENA})
        == len({entry.openml_id for entry in openml.TABARENA})
        == 51
    )
    assert len(openml.sources()) == 52  # and Higgs


def test_openml_is_asked_once_and_its_table_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUMB_DATA_DIR", str(tmp_path / "kept"))
    asked = []
    table = pd.DataFrame({"x": range(30), "scaled-sound-pressure": np.linspace(0, 1, 30)})

    def get_dataset(number: int, download_data: bool) -> SimpleNamespace:
        asked.append(number)
        return SimpleNamespace(get_data=lambda: (table, None, None, list(table.columns)))

    airfoil = openml.sources()[0]
    monkeypatch.setattr(openml, "find_spec", lambda name: None)
    assert "not installed" in str(airfoil.problem)
    assert airfoil.rows == 1_503
    with pytest.raises(DatasetMissing, match="not installed"):
        airfoil.load()
    monkeypatch.setattr(openml, "find_spec", lambda name: object())
    monkeypatch.setitem(
        sys.modules, "openml", SimpleNamespace(datasets=SimpleNamespace(get_dataset=get_dataset))
    )
    assert airfoil.problem == "not fetched yet"
    assert len(airfoil.load().y) == len(airfoil.load().y) == 30
    assert asked == [46904]
    assert (openml.sources()[0].rows, openml.sources()[0].problem) == (30, None)


def test_what_openml_does_not_give_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUMB_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(openml, "find_spec", lambda name: object())

    def refuse(number: int, download_data: bool) -> SimpleNamespace:
        if number == 46904:
            raise ConnectionError("no\nroute")
        return SimpleNamespace(get_data=lambda: (pd.DataFrame({"x": [1]}), None, None, ["x"]))

    monkeypatch.setitem(
        sys.modules, "openml", SimpleNamespace(datasets=SimpleNamespace(get_dataset=refuse))
    )
    with pytest.raises(DatasetMissing, match="no route"):
        openml.sources()[0].load()
    with pytest.raises(DatasetMissing, match="lacks 'ResourceApproved'"):
        openml.sources()[1].load()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.datasets
@pytest.mark.skipif(
    not (REAL / "index.json").exists(), reason="no folder of real tables (set CRUMB_DATASETS)"
)
def test_every_table_of_the_real_folder_can_be_planned_for() -> None:
    sources = collection(str(REAL))
    assert [source.problem for source in sources if source.problem] == []
    said = {entry["name"]: entry for entry in json.loads((REAL / "index.json").read_text())}
    for source in sources:
        assert source.columns == said[source.name]["n_features"]
    for protocol in PROTOCOLS.values():
        assert plan_runs(protocol, protocol.choose(sources))
    airfoil = chosen(sources, ["airfoil_self_noise"])[0].load()
    assert airfoil.X.shape == (1_503, 5)
