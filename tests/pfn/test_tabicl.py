"""TabICL back-end: the answers of the package, from one network for all contexts."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from checkpoints import tabicl_v2_classifier, without_flags
from small_tables import QUANTILES, classes, frame, numbers, table, targets
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.tabicl import TabICL

import crumb.pfn.tabicl as module
from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint, InvalidInput

# What the packages say about a column of the tables used here, from any caller.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The following categorical columns have a cardinality above 40",
    "ignore:These columns look like free text",
    "ignore:n_quantiles",
)


def official(path: Path, n_estimators: int = 1, **options: Any) -> TabICLClassifier:
    return TabICLClassifier(
        model_path=path, n_estimators=n_estimators, random_state=0, device="cpu", **options
    )


def ours(path: Path, n_estimators: int = 1, **options: Any) -> CrumbClassifier:
    return CrumbClassifier(
        model=path, strategy="full", n_estimators=n_estimators, device="cpu", model_options=options
    )


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(ours, axis=0).max() > 1e-3, "answers that do not vary prove nothing"


@pytest.mark.parametrize("n_estimators", [1, 2, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
@pytest.mark.parametrize("checkpoint", ["tabicl_classifier", "tabicl_v1_classifier"])
def test_classifier_equals_the_package(
    checkpoint: str, kind: str, n_estimators: int, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(checkpoint)
    X, y, queries = table(kind, 80, 1), classes(80, 2), table(kind, 20, 3)
    assert_same(
        ours(path, n_estimators).fit(X, y).predict_proba(queries),
        official(path, n_estimators).fit(X, y).predict_proba(queries),
    )


@pytest.mark.parametrize("n_estimators", [1, 2, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_regressor_equals_the_package(kind: str, n_estimators: int, tabicl_regressor: Path) -> None:
    X, y, queries = table(kind, 80, 1), targets(80, 2), table(kind, 20, 3)
    crumb = CrumbRegressor(
        model=tabicl_regressor, strategy="full", n_estimators=n_estimators, device="cpu"
    ).fit(X, y)
    package = TabICLRegressor(
        model_path=tabicl_regressor, n_estimators=n_estimators, random_state=0, device="cpu"
    ).fit(X, y)
    for output in ("mean", "median"):
        assert_same(
            crumb.predict(queries, output_type=output), package.predict(queries, output_type=output)
        )
    assert_same(
        crumb.predict(queries, output_type="quantiles", quantiles=QUANTILES),
        package.predict(queries, output_type="quantiles", alphas=QUANTILES),
    )


@pytest.mark.parametrize("n_estimators", [1, 4])
def test_files_of_the_first_releases_still_work(
    n_estimators: int, tabicl_v1_classifier: Path, tmp_path: Path
) -> None:
    """The package no longer opens them, so the same weights in today's format are the measure."""
    old = without_flags(tabicl_v1_classifier, tmp_path / "old.ckpt")
    X, y, queries = numbers(80, 1), classes(80, 2), numbers(20, 3)
    with pytest.raises(RuntimeError, match="Missing key"):
        official(old).fit(X, y)
    assert_same(
        ours(old, n_estimators).fit(X, y).predict_proba(queries),
        official(tabicl_v1_classifier, n_estimators).fit(X, y).predict_proba(queries),
    )


def test_types_that_the_package_drops_are_encoded(tabicl_classifier: Path) -> None:
    X, queries = frame(60, 1)[["number"]], frame(15, 2)[["number"]]
    encoded_X, encoded_queries = X.copy(), queries.copy()
    for seed, (rows, encoded) in enumerate([(X, encoded_X), (queries, encoded_queries)]):
        rng = np.random.default_rng(seed)
        encoded["flag"] = rng.integers(0, 2, len(rows)).astype(float)
        encoded["day"] = rng.integers(10_000, 20_000, len(rows)).astype(float)
        rows["flag"] = encoded["flag"].astype(bool)
        rows["day"] = pd.Timestamp("1970-01-01") + pd.to_timedelta(encoded["day"], unit="D")
    y = classes(60, 3)
    assert_same(
        ours(tabicl_classifier).fit(X, y).predict_proba(queries),
        official(tabicl_classifier).fit(encoded_X, y).predict_proba(encoded_queries),
    )


def test_network_is_loaded_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tabicl_v2_classifier(tmp_path / "fresh.ckpt")
    counts = {"file": 0, "network": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(torch, "load", counted("file", torch.load))
    monkeypatch.setattr(TabICL, "__init__", counted("network", TabICL.__init__))
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(30, 3)
    for strategy in ("mmd", "uniform"):
        crumb = CrumbClassifier(
            model=path, strategy=strategy, n_clusters=5, context_size=20, device="cpu"
        )
        plan = crumb.fit(X, y).plan(queries)
        assert len({context.tobytes() for context in plan.contexts}) == 5
        crumb.predict_proba(queries)
    assert counts == {"file": 1, "network": 1}


def test_replaced_checkpoint_is_read_again(tmp_path: Path) -> None:
    path = tabicl_v2_classifier(tmp_path / "one.ckpt")
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    before = ours(path).fit(X, y).predict_proba(queries)
    tabicl_v2_classifier(path, seed=1)
    after = ours(path).fit(X, y).predict_proba(queries)
    assert not np.allclose(before, after)
    assert_same(after, official(path).fit(X, y).predict_proba(queries))


def test_more_classes_than_the_network_has(tabicl_classifier: Path) -> None:
    X, y, queries = numbers(90, 1), classes(90, 2, count=15), numbers(10, 3)
    assert_same(
        ours(tabicl_classifier).fit(X, y).predict_proba(queries),
        official(tabicl_classifier).fit(X, y).predict_proba(queries),
    )
    for options in ({"support_many_classes": False}, {"kv_cache": True}):
        with pytest.raises(InvalidInput, match=r"15 classes, but the model .* takes at most 10"):
            ours(tabicl_classifier, **options).fit(X, y)


@pytest.mark.parametrize(
    "options",
    [
        {"softmax_temperature": 0.3},
        {"norm_methods": "quantile"},
        {"outlier_threshold": 0.5},
        {"average_logits": False, "n_estimators": 3},
        {"kv_cache": "repr"},
    ],
)
def test_options_reach_the_package(options: dict[str, Any], tabicl_classifier: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    answer = ours(tabicl_classifier, **options).fit(X, y).predict_proba(queries)
    assert_same(
        answer,
        official(tabicl_classifier, **{"n_estimators": 1, **options})
        .fit(X, y)
        .predict_proba(queries),
    )
    if "kv_cache" not in options:  # the cache makes things faster, not different
        assert not np.allclose(
            answer, ours(tabicl_classifier).fit(X, y).predict_proba(queries), atol=1e-5
        )


@pytest.mark.parametrize("option", ["sofmax_temperature", "model_path", "checkpoint_version"])
def test_option_that_the_package_does_not_have(option: str, tabicl_classifier: Path) -> None:
    """Which network runs is for ``model`` to say, so the options that say it do not count."""
    with pytest.raises(
        InvalidInput, match=f"no option '{option}'; it has .*n_estimators.*softmax_temperature"
    ):
        ours(tabicl_classifier, **{option: 1}).fit(numbers(20, 1), classes(20, 2))


def test_estimator_of_the_package_as_model(tabicl_classifier: Path, tabicl_regressor: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    package = TabICLClassifier(
        model_path=str(tabicl_classifier), n_estimators=3, random_state=7, device="cpu"
    )
    crumb = CrumbClassifier(model=package, strategy="full").fit(X, y)
    assert isinstance(crumb.backend_, module.TabICLBackend)
    assert_same(crumb.predict_proba(queries), package.fit(X, y).predict_proba(queries))
    regressor = TabICLRegressor(model_path=tabicl_regressor, n_estimators=2, device="cpu")
    crumb = CrumbRegressor(model=regressor, strategy="full").fit(X, targets(60, 2))
    assert_same(
        crumb.predict(queries, output_type="median"),
        regressor.fit(X, targets(60, 2)).predict(queries, output_type="median"),
    )


def test_options_belong_on_the_estimator(tabicl_classifier: Path) -> None:
    crumb = CrumbClassifier(
        model=official(tabicl_classifier), model_options={"softmax_temperature": 0.5}, device="cpu"
    )
    with pytest.raises(InvalidInput, match="set them on the estimator itself"):
        crumb.fit(numbers(20, 1), classes(20, 2))


def test_estimator_with_unknown_weights() -> None:
    with pytest.raises(
        InvalidInput, match=r"no weights 'v9\.ckpt'; known are .*tabicl-classifier-v2"
    ):
        CrumbClassifier(model=TabICLClassifier(checkpoint_version="v9.ckpt")).fit(
            numbers(20, 1), classes(20, 2)
        )


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries the package was asked at a time."""
    seen: list[int] = []
    predict_proba = TabICLClassifier.predict_proba

    def counted(self: TabICLClassifier, X: Any) -> np.ndarray:
        seen.append(len(X))
        return predict_proba(self, X)

    monkeypatch.setattr(TabICLClassifier, "predict_proba", counted)
    return seen


@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_queries_in_pieces(
    kind: str, pieces: list[int], tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, queries = table(kind, 60, 1), classes(60, 2), table(kind, 130, 3)
    crumb = ours(tabicl_classifier, 2).fit(X, y)
    crumb.backend_.fuse = False
    whole = crumb.predict_proba(queries)
    assert pieces == [130]
    pieces.clear()
    monkeypatch.setattr(module, "PASS_BYTES", 0)
    monkeypatch.setattr(module, "LEAST_QUERIES", 50)
    assert_same(crumb.predict_proba(queries), whole)
    assert pieces == [50, 50, 30]


def test_large_passes_are_cut(
    pieces: list[int], tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of one pass gives the size: 16 numbers for each of 4 + 2 tokens a row."""
    monkeypatch.setattr(module, "LEAST_QUERIES", 1)
    monkeypatch.setattr(module, "PASS_BYTES", 4 * 16 * (4 + 2) * (60 + 25))
    crumb = ours(tabicl_classifier).fit(numbers(60, 1), classes(60, 2))
    crumb.backend_.fuse = False
    crumb.predict_proba(numbers(70, 3))
    assert pieces == [25, 25, 20]


@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_holes_in_a_query_do_not_depend_on_the_batch(kind: str, tabicl_classifier: Path) -> None:
    """A column that is missing in every row of a batch is missing values like any other."""
    X, y, queries = table(kind, 80, 1), classes(80, 2), table(kind, 20, 3)
    crumb = CrumbClassifier(
        model=tabicl_classifier, n_clusters=3, context_size=30, device="cpu"
    ).fit(X, y)
    plan = crumb.plan(queries)
    together = crumb.predict_proba(queries, plan=plan)
    holes = 0
    for i in range(len(queries)):
        row = queries[i : i + 1]
        holes += int(pd.isna(np.asarray(row, dtype=object)).any())
        np.testing.assert_allclose(crumb.predict_proba(row, plan=plan)[0], together[i], atol=1e-6)
    assert holes >= 5


def test_weights_that_do_not_fit_are_refused_at_fit(
    tabicl_classifier: Path, tmp_path: Path
) -> None:
    content = torch.load(tabicl_classifier, weights_only=True)
    X, y = numbers(20, 1), classes(20, 2)
    for name, change in {
        "wider": {"embed_dim": 32},
        "unknown": {"colour": "red"},
        "nonsense": {"embed_dim": "many"},
        "deeper": {"icl_num_blocks": 5},
    }.items():
        torch.save(
            {**content, "config": {**content["config"], **change}}, tmp_path / f"{name}.ckpt"
        )
        with pytest.raises(InvalidCheckpoint, match="do not fit the network"):
            ours(tmp_path / f"{name}.ckpt").fit(X, y)


def test_pickle_holds_no_network(tabicl_classifier: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    crumb = CrumbClassifier(
        model=tabicl_classifier, n_clusters=2, context_size=20, device="cpu"
    ).fit(X, y)
    answer = crumb.predict_proba(queries)
    content = pickle.dumps(crumb)
    assert len(content) < 30_000 < tabicl_classifier.stat().st_size
    np.testing.assert_array_equal(pickle.loads(content).predict_proba(queries), answer)


def test_pickle_finds_a_named_model_in_another_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, y, queries = numbers(30, 1), classes(30, 2), numbers(5, 3)
    crumb = CrumbClassifier(strategy="full", device="cpu").fit(X, y)
    answer = crumb.predict_proba(queries)
    crumb.backend_.path = tmp_path / "the other machine" / "classifier.ckpt"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(crumb)).predict_proba(queries), answer)


def test_pickle_without_its_checkpoint(tmp_path: Path) -> None:
    path = tabicl_v2_classifier(tmp_path / "gone.ckpt")
    content = pickle.dumps(ours(path).fit(numbers(30, 1), classes(30, 2)))
    path.unlink()
    with pytest.raises(InvalidCheckpoint, match=r"no checkpoint file at .*gone\.ckpt"):
        pickle.loads(content).predict_proba(numbers(5, 3))


def test_threads_do_not_disturb_each_other(tabicl_classifier: Path) -> None:
    """With a cache the package keeps the context inside the network, which all estimators share."""
    y, queries = classes(60, 2), numbers(10, 3)
    fitted = [ours(tabicl_classifier, kv_cache="kv").fit(numbers(60, seed), y) for seed in range(4)]
    alone = [crumb.predict_proba(queries) for crumb in fitted]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda i: fitted[i % 4].predict_proba(queries), range(24)))
    for i, answer in enumerate(together):
        np.testing.assert_array_equal(answer, alone[i % 4])
