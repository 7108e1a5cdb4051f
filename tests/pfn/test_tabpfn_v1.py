"""TabPFN v1: the network, what it does to rows, its members, and how contexts go through it."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from checkpoints import tabpfn_v1_classifier
from sklearn.datasets import load_wine
from sklearn.preprocessing import PowerTransformer
from small_tables import classes, frame, numbers, table, targets

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn import tabpfn_v1 as v1
from crumb.pfn.models import card_for, locate, read_checkpoint

CARD = card_for("tabpfn-v1", "classification")


def ours(model: Any, n_estimators: int = 1, **more: Any) -> CrumbClassifier:
    settings = {"strategy": "full", "device": "cpu", **more}
    return CrumbClassifier(model=model, n_estimators=n_estimators, **settings)


def clustered(model: Any, n_estimators: int = 1, **more: Any) -> CrumbClassifier:
    sizes = {"n_clusters": 6, "context_size": 40, "strategy": "uniform", **more}
    return ours(model, n_estimators, **sizes)


def assert_same(one: np.ndarray, other: np.ndarray, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    assert np.ptp(one, axis=0).max() > 1e-3, "answers that do not vary prove nothing"


def test_network_is_torchs_transformer_with_a_mask(tabpfn_v1: Path) -> None:
    network = v1.shared_network(tabpfn_v1, "cpu")
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(3, 25, 100, generator=generator)
    y = torch.randint(10, (3, 17), generator=generator).float()
    rows = network.encoder(X)
    rows[:, :17] += network.y_encoder(y.unsqueeze(-1))
    hidden = torch.zeros(25, 25, dtype=torch.bool)
    hidden[:, 17:] = True  # nobody sees the queries
    for layer in network.layers:
        theirs = torch.nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0, activation="gelu", batch_first=True
        )
        theirs.load_state_dict(layer.state_dict())
        rows = theirs(rows, src_mask=hidden)
    expected = network.decoder(rows[:, 17:])
    found = network.answer(X[:, 17:], network.remember(X[:, :17], y))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_power_transform_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 200, 5))
    X[..., 1], X[..., 2] = np.exp(X[..., 1]), X[..., 2] ** 3
    X[..., 3] = rng.integers(0, 3, (3, 200))
    X[rng.random(X.shape) < 0.1] = np.nan
    transform = v1.powered(torch.from_numpy(X[:, :150]))
    found = transform(torch.from_numpy(X)).numpy()
    for one, answer in zip(X, found, strict=True):
        np.testing.assert_allclose(
            answer, PowerTransformer().fit(one[:150]).transform(one), atol=2e-4
        )


def test_rows_are_prepared_as_the_formula_says() -> None:
    """A direct formula, one column at a time."""
    rng = np.random.default_rng(1)
    X = rng.standard_t(2, size=(1, 80, 3))
    X[0, :5, 1] = np.nan
    found = v1.prepared(torch.from_numpy(X[:, :60]), power=False)(torch.from_numpy(X))[0].numpy()
    for column, answer in zip(X[0].T, found.T, strict=True):
        z = (column - np.nanmean(column[:60])) / (np.nanstd(column[:60], ddof=1) + 1e-6)
        z = np.clip(z, -100, 100)
        near, context = z[:60].copy(), z[:60]
        near[np.abs(near - np.nanmean(context)) > 4 * np.nanstd(context, ddof=1)] = np.nan
        mean, width = np.nanmean(near), 4 * np.nanstd(near, ddof=1)
        z = np.maximum(-np.log1p(np.abs(z)) + mean - width, z)
        z = np.minimum(np.log1p(np.abs(z)) + mean + width, z)
        np.testing.assert_allclose(answer, np.nan_to_num(z), atol=1e-5)
    assert np.abs(found).max() > 4


def test_members_alternate_and_end_where_there_are_no_more() -> None:
    some = v1.members(7, 3, 8, 0)
    assert [one.power for one in some] == [False, True] * 4
    assert [one[:2] for one in some[::2]] == [one[:2] for one in some[1::2]]
    assert len(set(some)) == 8
    every = v1.members(2, 3, 100, 0)
    assert len(every) == len(set(every)) == 2 * 3 * 2
    assert v1.members(7, 3, 8, 1) != some


def test_columns_that_do_not_vary_do_not_count(tabpfn_v1: Path) -> None:
    network = v1.shared_network(tabpfn_v1, "cpu")
    rng, ensemble = np.random.default_rng(0), (v1.Member(1, 2, False), v1.Member(0, 1, True))
    X, y = torch.from_numpy(rng.normal(size=(2, 30, 4))), torch.arange(60).reshape(2, 30) % 3
    padded = torch.cat([X[..., :2], torch.full((2, 30, 1), 7.0), X[..., 2:]], dim=-1)
    plain = v1.Remembered(network, ensemble, X, y, keep=True).logits(X)
    found = v1.Remembered(network, ensemble, padded, y, keep=True).logits(padded)
    assert_same(found.numpy()[0], plain.numpy()[0], 1e-5)


@pytest.mark.parametrize("n_estimators", [1, 3])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_contexts_share_passes_and_answer_as_alone(
    kind: str, n_estimators: int, tabpfn_v1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crumb = clustered(tabpfn_v1, n_estimators).fit(table(kind, 300, 1), classes(300, 2))
    queries, passes, answer = table(kind, 90, 3), [], v1.Network.answer
    monkeypatch.setattr(
        v1.Network, "answer", lambda self, X, memory: passes.append(X) or answer(self, X, memory)
    )
    together = crumb.predict_proba(queries)
    stacks = len(passes)
    monkeypatch.setattr(v1, "CPU_BYTES", 0)
    assert_same(together, crumb.predict_proba(queries))
    assert stacks < len(passes) - stacks == 6


def test_classes_that_a_context_lacks(tabpfn_v1: Path) -> None:
    X, y = numbers(200, 1), np.repeat([0, 1, 2, 3], [150, 30, 15, 5])
    crumb = clustered(tabpfn_v1, 2, min_per_class=0, context_size=20).fit(X, y)
    plan = crumb.plan(queries := numbers(60, 3))
    assert len({len(np.unique(y[context])) for context in plan.contexts}) > 1
    proba = crumb.predict_proba(queries)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    context = plan.contexts[plan.labels[0]]
    alone = ours(tabpfn_v1, 2).fit(X[np.sort(context)], y[np.sort(context)])
    found = np.zeros((60, 4))
    found[:, alone.classes_] = alone.predict_proba(queries)
    assert_same(proba[plan.labels == plan.labels[0]], found[plan.labels == plan.labels[0]])


def test_categories_are_ranks_and_unknown_ones_are_missing(tabpfn_v1: Path) -> None:
    categories = ["text", "category", "code", "name"]
    X, queries = (frame(*about)[[*categories, "number", "whole"]] for about in ((80, 1), (20, 2)))
    coded, asked, y = X.copy(), queries.copy(), classes(80, 3)
    for name in categories:
        values = sorted(X[name].dropna().unique())
        ranks = {value: float(rank) for rank, value in enumerate(values)}
        coded[name] = X[name].astype(object).map(ranks).astype(float)
        asked[name] = queries[name].astype(object).map(ranks).astype(float)
    assert asked["name"].isna().any()
    found = ours(tabpfn_v1, 2).fit(X, y).predict_proba(queries)
    expected = ours(tabpfn_v1, 2).fit(coded.to_numpy(float), y).predict_proba(asked.to_numpy(float))
    assert_same(found, expected)


@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_frozen_plan_keeps_contexts_and_answers_row_by_row(kind: str, tabpfn_v1: Path) -> None:
    X, y, queries = table(kind, 300, 1), classes(300, 2), pd.DataFrame(table(kind, 50, 3))
    queries = queries if kind == "frame" else queries.to_numpy()
    keeping, plain = (clustered(tabpfn_v1, 2, cache_size=size).fit(X, y) for size in (50, 0))
    plan = keeping.plan(queries)
    answers = keeping.predict_proba(queries, plan=plan)
    assert len(keeping.backend_.contexts) == 6
    assert keeping.backend_.contexts.used > 0
    assert_same(plain.predict_proba(queries, plan=plan), answers)
    assert len(plain.backend_.contexts) == 0
    passing = plain.predict_proba(queries, plan=plan)
    for row in (0, 7):
        alone = queries[row : row + 1]
        np.testing.assert_array_equal(keeping.predict_proba(alone, plan=plan)[0], answers[row])
        np.testing.assert_array_equal(plain.predict_proba(alone, plan=plan)[0], passing[row])
    keeping.backend_.forget()
    assert keeping.backend_.contexts.used == 0


def test_kept_bytes_are_what_is_kept(tabpfn_v1: Path) -> None:
    X, y, queries = numbers(300, 1), classes(300, 2), numbers(10, 3)
    crumb = clustered(tabpfn_v1, 2, n_clusters=1).fit(X, y)
    crumb.predict_proba(queries, plan=crumb.plan(queries))
    assert crumb.backend_.contexts.used == 8 * 16 * 2 * 40 * 2  # width, layers, rows, members


def test_limits(tabpfn_v1: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has 101 columns, but the model .* at most 100"):
        ours(tabpfn_v1).fit(numbers(30, 1, columns=101), classes(30, 2))
    with pytest.raises(InvalidInput, match="101 columns with those of the guide"):
        ours(tabpfn_v1, guide="trees").fit(numbers(30, 1, columns=100), classes(30, 2, count=2))
    with pytest.raises(InvalidInput, match=r"has 11 classes, but the model .* at most 10"):
        ours(tabpfn_v1).fit(numbers(33, 1), classes(33, 2, count=11))
    proba = ours(tabpfn_v1).fit(numbers(60, 1, columns=100), classes(60, 2, count=10))
    assert proba.predict_proba(numbers(5, 3, columns=100)).shape == (5, 10)
    with pytest.raises(InvalidInput, match="'tabpfn-v1' does classification only"):
        CrumbRegressor(model="tabpfn-v1").fit(numbers(20, 1), targets(20, 2))
    with pytest.raises(InvalidInput, match="has no row embeddings"):
        ours(tabpfn_v1, features="embedding").fit(numbers(20, 1), classes(20, 2))


def test_options(tabpfn_v1: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(20, 3)
    sharp, flat = (
        ours(tabpfn_v1, model_options={"softmax_temperature": t}).fit(X, y).predict_proba(queries)
        for t in (0.4, 0.8)
    )
    squared = flat**2  # half the temperature, twice the logits
    assert_same(sharp, squared / squared.sum(axis=1, keepdims=True))
    with pytest.raises(InvalidInput, match="no option 'temperature'; it has n_estimators"):
        ours(tabpfn_v1, model_options={"temperature": 1.0}).fit(X, y)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("softmax_temperature", [0.0, -1.0, "hot", np.inf, np.nan, None, True]),
        ("n_estimators", [0, 2.5, "a", None, True]),
        ("random_state", [-1, 0.5, "a", None]),
    ],
)
def test_options_with_wrong_values(option: str, values: list[Any], tabpfn_v1: Path) -> None:
    for value in values:
        with pytest.raises(InvalidInput) as caught:
            ours(tabpfn_v1, model_options={option: value}).fit(numbers(20, 1), classes(20, 2))
        assert re.fullmatch(rf"{option} must be a .*, got {value!r}\.", str(caught.value))


def test_estimator_pickles_without_the_network(tabpfn_v1: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(20, 3)
    crumb = clustered(tabpfn_v1).fit(X, y)
    expected = crumb.predict_proba(queries, plan=crumb.plan(queries))
    written = pickle.dumps(crumb)
    assert len(written) < 40_000
    again = pickle.loads(written)
    np.testing.assert_array_equal(again.predict_proba(queries, plan=again.plan(queries)), expected)


def test_facts_and_checkpoints_that_do_not_fit(tabpfn_v1: Path, tmp_path: Path) -> None:
    found = read_checkpoint(tabpfn_v1)
    assert (found.family, found.task, found.max_classes) == ("tabpfn-v1", "classification", 10)
    X, y = numbers(20, 1), classes(20, 2)
    cut = tmp_path / "cut.cpkt"
    cut.write_bytes(tabpfn_v1.read_bytes()[:5_000])
    with pytest.raises(InvalidCheckpoint, match="truncated or another kind of file"):
        ours(cut).fit(X, y)
    weights, _, config = torch.load(tabpfn_v1, weights_only=True)
    torch.save((weights, None, {**config, "nlayers": 3}), tmp_path / "other.cpkt")
    with pytest.raises(InvalidCheckpoint, match="do not fit the network"):
        ours(tmp_path / "other.cpkt").fit(X, y)
    with pytest.raises(InvalidCheckpoint, match="There is no checkpoint file"):
        ours("nowhere.cpkt").fit(X, y)


def test_altered_weights_under_the_official_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    tabpfn_v1_classifier(tmp_path / CARD.file)
    with pytest.raises(InvalidCheckpoint) as caught:
        ours("tabpfn-v1").fit(numbers(20, 1), classes(20, 2))
    assert "checksum differs): delete it, then `crumb models --get tabpfn-v1`" in str(caught.value)


# By the original code (pfns 0.3.0), for the rows below.
ORIGINAL = {
    1: [[0.996139, 0.003849, 0.000012], [0.999622, 0.000360, 0.000019],
        [0.000139, 0.374081, 0.625780], [0.000014, 0.982457, 0.017529],
        [0.213988, 0.763290, 0.022722], [0.000051, 0.000163, 0.999786]],
    4: [[0.998524, 0.001467, 0.000008], [0.999802, 0.000188, 0.000010],
        [0.000307, 0.374517, 0.625176], [0.000039, 0.980549, 0.019412],
        [0.203240, 0.766264, 0.030496], [0.000027, 0.000121, 0.999852]],
}  # fmt: skip


@pytest.mark.weights
@pytest.mark.skipif(locate(CARD) is None, reason="no weights: crumb models --get tabpfn-v1")
@pytest.mark.parametrize("n_estimators", list(ORIGINAL))
def test_answers_of_the_original(n_estimators: int) -> None:
    X, y = load_wine(return_X_y=True)
    X[::7, 2], X[:, 4] = np.nan, 1.0
    crumb = ours("tabpfn-v1", n_estimators).fit(X[::2], y[::2])
    assert crumb.backend_.window == 1_000
    assert_same(crumb.predict_proba(X[1::30]), np.array(ORIGINAL[n_estimators]), 1e-5)
