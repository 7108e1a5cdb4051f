"""The paper's experiments as lists of runs: how many there are, of what, and on which rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from crumb.errors import InvalidInput
from crumb.selection import MICP
from experiments.dataset import Dataset
from experiments.methods import METHODS, estimator_settings
from experiments.protocol import Overrides, Run, TableSize
from experiments.protocols import PROTOCOLS, VARIANTS, plan_runs, protocol_named
from experiments.split import drift_sizes, set_aside, split


@dataclass(frozen=True)
class Table:
    """A table of a size, for which nothing is ever loaded."""

    name: str
    rows: int | None
    task: str = "classification"
    columns: int | None = 5
    origin: str = "nowhere"
    problem: None = None

    def load(self) -> Dataset:
        raise NotImplementedError

    def fetch(self) -> None:
        raise NotImplementedError


BIG = Table("big", 150_000)


@pytest.mark.parametrize(
    ("protocol", "count"),
    [
        ("main", 5 * 10),
        ("consistency", 3 * 5 * 3 * 5 * 3),  # models × proportions × sizes × seeds × methods
        ("large", 3 * 5 * 3),
        ("drift", 3 * 11 * 10 * 5),
        ("clusters", 3 * (5 + 4) * 10),
        ("retrieval", 3 * 2 * 10 * 3),
        ("factorial", 3 * 3 * 10 * 4),
        ("rff", 3 * 18 * 10),
        ("complexity", (7 + 3) * 3 * 5),
    ],
)
def test_the_paper_s_settings_are_the_defaults(protocol: str, count: int) -> None:
    runs = plan_runs(PROTOCOLS[protocol], [BIG])
    assert len(runs) == len(set(runs)) == len({run.key for run in runs}) == count
    assert {run.drawn for run in runs} == {None}
    assert PROTOCOLS[protocol].timeout == (1_800 if protocol == "large" else 300)


def test_sizes_are_those_of_the_paper() -> None:
    (point,) = {(run.N, run.T, run.n, run.K) for run in plan_runs(PROTOCOLS["main"], [BIG])}
    assert point == (120_000, 200, 12_000, 20)  # the 120k that the paper gives for GiveMeSomeCredit
    (point,) = {(run.N, run.n) for run in plan_runs(PROTOCOLS["large"], [BIG])}
    assert point == (100_000, 10_000)
    (point,) = {(run.N, run.T, run.n, run.K) for run in plan_runs(PROTOCOLS["drift"], [BIG])}
    assert point == (19_999, 200, 2_000, 20)
    assert {run.N for run in plan_runs(PROTOCOLS["rff"], [BIG])} == {10_000}
    assert len(VARIANTS) == 18


def test_a_small_table_gives_what_it_has_and_no_run_twice() -> None:
    anneal = Table("anneal", 898)
    assert {(run.N, run.T, run.n) for run in plan_runs(PROTOCOLS["main"], [anneal])} == {
        (718, 180, 72)
    }
    assert {run.n for run in plan_runs(PROTOCOLS["factorial"], [anneal])} == {500, 718}
    assert {run.N for run in plan_runs(PROTOCOLS["consistency"], [anneal])} == {500, 718}


def test_changes_win() -> None:
    changes = Overrides(
        models=("embedded",), methods=("crumb", "uniform"), seeds=2, queries=50, max_rows=2_000
    )
    runs = plan_runs(PROTOCOLS["main"], [BIG, Table("small", 1_000)], changes)
    assert len(runs) == 2 * 2 * 2
    assert {(run.dataset, run.N, run.T, run.drawn) for run in runs} == {
        ("big", 2_000, 50, "max_rows=2000"),
        ("small", 800, 50, None),  # nothing was cut
    }
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4  # half a campaign is half of the seeds
    later = plan_runs(PROTOCOLS["main"], [BIG], replace(changes, first_seed=7))
    assert [run.seed for run in later] == [7, 7, 8, 8]
    drift = plan_runs(PROTOCOLS["drift"], [BIG], changes)
    assert max(run.N or 0 for run in drift) <= 2_000
    with pytest.raises(InvalidInput, match="Unknown method 'guess'"):
        plan_runs(PROTOCOLS["main"], [BIG], Overrides(methods=("guess",)))
    with pytest.raises(InvalidInput, match="Unknown protocol"):
        protocol_named("maim")


def test_only_what_a_model_can_do_is_run() -> None:
    numbers = Table("numbers", 5_000, "regression")
    runs = plan_runs(PROTOCOLS["rff"], [numbers])
    assert {run.model for run in runs} == {"tabpfn-v2", "tabicl-v2"}  # TabICLv1 knows no regression
    assert PROTOCOLS["consistency"].choose([numbers, BIG]) == [BIG]


def test_the_sets_that_a_protocol_is_for() -> None:
    sizes = [Table(f"t{rows}", rows) for rows in (500, 90_000, 80_000, 70_000, 60_000, 50_000)]
    assert [table.rows for table in PROTOCOLS["large"].choose(sizes)] == [
        90_000,
        80_000,
        70_000,
        60_000,
        50_000,
    ]
    assert [table.rows for table in PROTOCOLS["complexity"].choose(sizes)] == [90_000]
    named = [Table("anneal", 898), Table("higgs_18k", 18_000), Table("other", 100)]
    assert PROTOCOLS["drift"].choose(named) == named[:2]
    assert PROTOCOLS["drift"].choose(sizes) == sizes  # none of the paper's: any will do


def test_a_table_that_cannot_be_read_has_one_run_a_method_to_say_so() -> None:
    runs = plan_runs(
        PROTOCOLS["consistency"], [Table("torn", None)], Overrides(models=("embedded",), seeds=1)
    )
    assert [(run.method, run.N, run.n) for run in runs] == [
        ("crumb", None, None), ("micp", None, None), ("uniform", None, None),
    ]  # fmt: skip


def test_a_group_of_ranks_differs_in_the_method_alone() -> None:
    for name, protocol in PROTOCOLS.items():
        apart = ("method", "kernel", "D", "B") if name == "rff" else ("method",)
        groups = Counter(
            tuple(value for field, value in run.identity.items() if field not in apart)
            for run in plan_runs(protocol, [BIG])
        )
        assert set(groups.values()) == {len(protocol.methods)}


def test_methods_are_the_paper_s() -> None:
    def settings(method: str, protocol: str = "main", **more: int) -> dict:
        return estimator_settings(
            Run(protocol, "t", "classification", "embedded", method, 3, n=50, K=20, **more)
        )

    crumb = settings("crumb")
    assert (crumb["strategy"], crumb["n_clusters"], crumb["context_size"]) == ("mmd", 20, 50)
    assert (crumb["kernel"], crumb["rff_dim"], crumb["herd_batch"], crumb["min_per_class"]) == (
        "rff",
        64,
        50,
        0,
    )
    assert crumb["random_state"] == 3
    assert not crumb["early_stopping"]
    assert settings("crumb", "large")["early_stopping"]
    assert settings("micp")["strategy"].get_params() == MICP(gamma=1.0).get_params()
    assert settings("micp", "drift")["strategy"].n_clusters == 20
    cases = {name: settings(f"case {name}", "factorial") for name in "ABCD"}
    assert {name: (case["strategy"], case["n_clusters"]) for name, case in cases.items()} == {
        "A": ("uniform", 1), "B": ("uniform", 20), "C": ("mmd", 1), "D": ("mmd", 20),
    }  # fmt: skip
    exact = settings("exact B=10", "rff")
    assert (exact["kernel"], exact["herd_batch"]) == ("exact", 10)
    features = settings("rff D=256 B=1", "rff")
    assert (features["kernel"], features["rff_dim"], features["herd_batch"]) == ("rff", 256, 1)
    assert settings("crumb exact")["kernel"] == "exact"
    changed = settings("crumb+n_clusters=50+bandwidth=0.4+kernel=exact+early_stopping=true")
    assert (changed["n_clusters"], changed["bandwidth"], changed["kernel"]) == (50, 0.4, "exact")
    assert changed["early_stopping"] is True
    for wrong in ("crumb+colour=red", "crumb+kernel", "rff D=x B=1"):
        with pytest.raises(InvalidInput):
            settings(wrong)
    assert set(METHODS) >= {
        method for protocol in PROTOCOLS.values() for method in protocol.methods
    } - {*VARIANTS}


def table(rows: int, seed: int = 0) -> Dataset:
    X = pd.DataFrame(np.random.default_rng(seed).normal(size=(rows, 4)), columns=list("abcd"))
    X["e"] = np.where(X["a"] > 0, "up", "down")
    return Dataset("t", "regression", X, np.zeros(rows), "here")


def test_smaller_pools_are_parts_of_larger_ones_and_queries_are_in_none() -> None:
    data = table(300)

    def rows(N: int, T: int, seed: int, method: str = "full") -> tuple[set[int], set[int]]:
        found = split(Run("main", "t", "regression", "embedded", method, seed, N=N, T=T), data)
        return set(found.pool.tolist()), set(found.queries.tolist())

    large, many = rows(240, 60, 0)
    assert (len(large), len(many)) == (240, 60)
    assert not large & many
    small, few = rows(50, 20, 0, "crumb")
    assert small < large
    assert few < many
    assert rows(240, 60, 1) != (large, many)
    with pytest.raises(InvalidInput, match="has changed"):
        rows(250, 60, 0)


@pytest.mark.parametrize("rows", [60, 61, 898, 1_003])
@pytest.mark.parametrize("seed", [0, 1])
def test_drift_windows_move_and_the_pool_does_not(rows: int, seed: int) -> None:
    data = table(rows, seed)
    N, T = drift_sizes(TableSize(rows, 200))
    pools = []
    for tenth in range(11):
        run = Run("drift", "t", "regression", "embedded", "crumb", seed, N=N, T=T, tau=tenth / 10)
        found = split(run, data)
        order, quantile, _ = set_aside(run, data.X)
        place = np.empty(rows)
        place[order] = quantile
        assert (len(found.pool), len(found.queries)) == (N, T)
        assert not set(found.pool) & set(found.queries), (
            "a query in the pool would find itself in its context"
        )
        assert place[found.pool].max() < 0.5
        assert place[found.queries].min() >= tenth / 20
        assert place[found.queries].max() <= 0.5 + tenth / 20
        pools.append(found.pool.tolist())
    assert all(pool == pools[0] for pool in pools)
    assert 0.35 * rows <= N


def test_drift_follows_the_first_component() -> None:
    data = table(500)
    data.X["a"] = data.X["b"] = np.arange(500.0)  # two of six columns agree: that is PC1
    order, quantile, _ = set_aside(
        Run("drift", "t", "regression", "embedded", "crumb", 0, tau=0.0), data.X
    )
    assert abs(np.corrcoef(order, quantile)[0, 1]) > 0.95
