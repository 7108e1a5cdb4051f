"""budget.py: seconds or gigabytes in the place of K and n."""

from __future__ import annotations

import pickle
import time
import warnings
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

from crumb import CrumbClassifier, CrumbRegressor, load
from crumb.budget import (
    LADDER,
    Budget,
    Clock,
    PassCost,
    Rung,
    choose,
    highest,
    parse_budget,
    rungs,
    slowness,
    timed,
)
from crumb.errors import InvalidInput
from crumb.herding.search import Load
from crumb.infer import infer
from crumb.options import Options
from crumb.pfn import BackendSettings, Output, resolve_backend
from crumb.pool import HeldRows
from crumb.selection.base import TableFinder, clustering_values

X, Y = make_classification(3_000, 8, n_informative=5, random_state=0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("30s", Budget(30.0)),
        ("2min", Budget(120.0)),
        ("4GB", Budget(None, 4.0)),
        ("500MB", Budget(None, 0.5)),
        ("30s 4GB", Budget(30.0, 4.0)),
        ("0.5gb, 1e2S", Budget(100.0, 0.5)),
        (12, Budget(12.0)),
        (1.5, Budget(1.5)),
        (np.float64(30), Budget(30.0)),
    ],
)
def test_budgets_are_read(given, expected) -> None:
    assert parse_budget(given) == expected
    assert Options.of(budget=given).budget == expected


def test_without_a_budget_there_is_none() -> None:
    assert Options.of(budget=None).budget is None


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "s",
        "5",
        "-3s",
        "4 apples",
        "nans",
        "1e999s",
        "0s",
        True,
        0,
        [3],
        "1.2.3s",
        "x 30s",
        "30s x",
    ],
)
def test_what_is_no_budget_is_refused(wrong) -> None:
    with pytest.raises(InvalidInput, match="budget must be like '30s'"):
        CrumbClassifier(budget=wrong).fit(X, Y)


def ladder(queries=1_000, pool=10**6, window=None, clusters=None, rows=None):
    return rungs(queries, pool, window, clusters, rows, lambda k, n: (k * n / 1e4, n / 1e4, k, 0.0))


def test_the_default_is_on_the_ladder() -> None:
    assert any((rung.clusters, rung.rows) == (20, 1_000) for rung in ladder())


@given(st.floats(0.02, 1e4), st.floats(0.01, 10))
def test_the_highest_rung_that_fits_is_taken(seconds: float, gigabytes: float) -> None:
    budget = Budget(seconds, gigabytes)
    chosen = highest(ladder(), budget)
    assert chosen.fits(budget)
    above = [rung for rung in ladder() if rung.rows > chosen.rows]
    assert not any(rung.fits(budget) for rung in above)


def test_what_does_not_fit_at_all_is_said() -> None:
    with pytest.warns(
        UserWarning,
        match=r"the cheapest, 2 of 100 rows, should take 0.0 s and 0.01 GB. 2 of 100 rows are cut",
    ):
        assert highest(ladder(), Budget(1e-9)).rows == LADDER[0]


def test_what_the_user_has_fixed_stays() -> None:
    assert {rung.clusters for rung in ladder(clusters=7)} == {7}
    assert {rung.rows for rung in ladder(rows=321)} == {321}
    assert [rung.rows for rung in ladder(pool=450)][-2:] == [
        400,
        450,
    ]  # once: more contexts would be the same
    assert [rung.rows for rung in ladder(window=450)][-2:] == [450, 450]
    assert max(rung.clusters for rung in ladder(queries=9)) == 9


class Trials:
    """A machine whose passes take what ``seconds`` says of their rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds) -> None:
        self.now, self.seconds, self.ran = 0.0, seconds, []
        monkeypatch.setattr("crumb.budget.time.perf_counter", lambda: self.now)

    def run(self, rows: int) -> None:
        self.ran.append(rows)
        self.now += self.seconds(rows)


def test_two_sizes_tell_what_any_other_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Trials(monkeypatch, lambda rows: 3.0 + 0.01 * rows)
    each, per_work = timed(machine.run, float, until=5.0)
    assert (each, per_work) == pytest.approx((3.0, 0.01))
    assert machine.ran == [50, 50, 400]  # the first one warms up; there is no time for more


@pytest.mark.parametrize("slow_pass", range(1, 7))
def test_a_fixed_cost_of_passes_is_found_beside_other_work(monkeypatch, slow_pass) -> None:
    """One pass of six takes ten times as long: it is not taken for what passes take."""

    def seconds(rows: int) -> float:
        return (0.12 + 2e-4 * rows) * (10 if len(machine.ran) - 1 == slow_pass else 1)

    machine = Trials(monkeypatch, seconds)
    each, per_work = timed(machine.run, float)
    assert (each, per_work) == pytest.approx((0.12, 2e-4))
    assert machine.ran == [50, *(50, 400) * 3]


@pytest.mark.parametrize("slow", [0.5, 1.5, 2.0])
def test_noise_of_the_larger_pass_leaves_the_fixed_cost(monkeypatch, slow) -> None:
    """Where there is time for one pass of each size alone."""
    machine = Trials(
        monkeypatch, lambda rows: (0.12 + 2e-4 * rows) * (slow if rows == 400 else 1.0)
    )
    each, _ = timed(machine.run, float, until=0.0)
    assert each == pytest.approx(0.12, rel=0.4)


def test_noise_never_makes_passes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Trials(monkeypatch, lambda rows: 2.0 if rows == 50 else 1.0)
    each, per_work = timed(machine.run, float)  # the larger pass was the faster one
    assert per_work == pytest.approx(1 / 400)
    assert each >= 0


def backend(model, task="classification"):
    return resolve_backend(model, task, BackendSettings(1, {}, "cpu", 0, None))


@pytest.mark.parametrize("model", ["embedded", LogisticRegression()])
def test_more_rows_queries_and_columns_are_more_work(model) -> None:
    one = backend(model)
    for count in (one.work, one.bytes):
        assert count(200, 50, 10) < count(400, 50, 10) < count(400, 100, 10) <= count(400, 100, 20)
    cost = PassCost(one, 10, each=0.1, per_work=1e-6)
    assert cost.seconds(2, 500, 100) == pytest.approx(2 * (0.1 + 1e-6 * one.work(500, 50, 10)))


def test_attention_makes_large_contexts_dearer_than_their_rows() -> None:
    one = backend("embedded")
    assert one.work(8_000, 50, 10) > 8 * one.work(1_000, 50, 10)


def settings(**more):
    chosen = {"bandwidth": 1.0, "device": "cpu", "n_jobs": 2}
    pool = SimpleNamespace(size=50_000, some_points=np.zeros((50_000, 3)), facts={})
    return Options.of(**{**chosen, **more}).resolve(pool)


def test_herding_counts_too() -> None:
    """Stage 2 over many rows leaves less for the passes."""
    cost = PassCost(backend("embedded"), 10, each=0.0, per_work=1e-10)
    few, many = (
        choose(settings(budget=Budget(5.0)), cost, 1_000, (rows, 20), None)
        for rows in (5_000, 5_000_000)
    )
    assert few.context_size > many.context_size
    assert many.affordable == int(0.3 * 5.0 / (10e-9 / 2))
    without = choose(
        settings(budget=Budget(5.0), strategy="centroid"), cost, 1_000, (5_000_000, 20), None
    )
    assert without.context_size > many.context_size


def test_what_measuring_took_is_part_of_the_budget() -> None:
    cost = PassCost(backend("embedded"), 10, each=0.0, per_work=4e-11)
    whole, rest = (
        choose(settings(budget=Budget(5.0)), cost, 1_000, (5_000, 20), None, spent)
        for spent in (0.0, 4.0)
    )
    assert rest.context_size < whole.context_size
    assert 4.0 < rest.facts["budget"]["expected_seconds"] <= 5.0


def test_gigabytes_bound_the_rows() -> None:
    cost = PassCost(backend("embedded"), 100, each=0.0, per_work=0.0)
    chosen = choose(settings(budget=Budget(None, 0.4)), cost, 1_000, (50_000, 20), None)
    assert chosen.context_size < LADDER[-1]
    assert chosen.facts["budget"]["expected_gigabytes"] <= 0.4
    assert chosen.facts["budget"]["expected_seconds"] >= 0


def test_every_query_is_a_pass_of_knn() -> None:
    cost = PassCost(backend("embedded"), 10, each=1.0, per_work=0.0)
    with pytest.warns(UserWarning, match="300 of 100 rows"):
        chosen = choose(
            settings(budget=Budget(100.0), strategy="knn"), cost, 300, (50_000, 20), None
        )
    assert chosen.facts["budget"]["expected_seconds"] == 300
    with pytest.warns(UserWarning, match="1,000 of 100 rows"):
        choose(settings(budget=Budget(100.0), strategy="knn"), cost, 1_000, (50_000, 20), None)


def test_predictions_within_a_budget() -> None:
    model = CrumbClassifier(model=LogisticRegression(), budget="60s", device="cpu").fit(
        X[:2_500], Y[:2_500]
    )
    plan = model.plan(X[2_500:])
    about = plan.settings["budget"]
    assert about["seconds"] == 60.0
    assert about["gigabytes"] is None
    assert 0 < about["expected_seconds"] <= 60
    assert (
        plan.settings["context_size"] == plan.sizes.max() == 2_500
    )  # all rows: more would still fit
    assert model.predict_proba(X[2_500:], plan=plan).shape == (500, 2)
    assert (model.predict(X[2_500:], plan=plan) == Y[2_500:]).mean() > 0.7


def test_the_embedded_network_within_a_budget(tmp_path) -> None:
    model = CrumbClassifier(budget="1s", device="cpu", n_jobs=1).fit(X[:2_500], Y[:2_500])
    first = model.plan(X[2_500:2_600])
    assert first.n_clusters * 50 == pytest.approx(first.sizes.max(), rel=0.5)
    again = pickle.loads(pickle.dumps(model))
    assert again._pass_cost is None  # another machine has its own times
    assert again.plan(X[2_500:2_600]).settings["budget"]["seconds"] == 1.0
    model.save(tmp_path / "model.crumb")
    assert load(tmp_path / "model.crumb").plan(X[2_500:2_600]).settings["budget"]["seconds"] == 1.0


def test_a_budget_needs_something_to_choose() -> None:
    for chosen in ({"n_clusters": 3, "context_size": 100}, {"strategy": "full"}):
        with pytest.raises(InvalidInput, match="leave at least one of them 'auto'"):
            CrumbClassifier(budget="3s", **chosen).fit(X, Y)
    one = CrumbRegressor(
        model=DecisionTreeRegressor(), budget="9s", n_clusters=3, device="cpu"
    ).fit(X, X[:, 0])
    assert one.plan(X[:50]).n_clusters == 3


def test_rungs_know_what_fits() -> None:
    rung = Rung(1, 1, 2.0, 3.0, 1, 0.0)
    assert rung.fits(Budget(2.0, 3.0))
    assert not rung.fits(Budget(1.9, None))
    assert not rung.fits(Budget(None, 2.9))


def linear_cost(each=0.0, per_row=0.01) -> PassCost:
    """Of a back-end whose work is its rows and queries."""
    return PassCost(backend(LogisticRegression()), 10, each, per_row)


class Time:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_in_time_no_context_is_cut() -> None:
    now = Time()
    clock = Clock(101.0, linear_cost(), now)
    clock.start([(900, 100)] * 10)  # 10 s each
    for _ in range(10):
        assert clock.rows(900, 100) == 900
        now.now += 10.0


@given(slow=st.floats(1.0, 8.0), passes=st.integers(2, 40), lost=st.floats(0.0, 0.5))
def test_passes_that_are_slower_than_expected_end_in_time_all_the_same(slow, passes, lost) -> None:
    """At most late by what the smallest contexts take, and by the first passes before it showed."""
    now, cost, whole = Time(), linear_cost(), 20.0  # seconds of a pass of 1,900 rows
    until = passes * whole
    clock = Clock(until, cost, now)
    now.now = lost * until  # planning took longer than expected
    clock.start([(1_900, 100)] * passes)
    for _ in range(passes):
        now.now += slow * cost.one(clock.rows(1_900, 100), 100)
    least = slow * cost.one(LADDER[0], 100)
    assert now.now <= until + slow * whole + passes * least * (slow > 5)
    if slow == 1.0 and not lost:
        assert now.now == pytest.approx(until)


class Sleepy(DecisionTreeRegressor):
    """Takes a time that is known."""

    pace: ClassVar[float] = 5e-4  # seconds a row
    sizes: ClassVar[list[int]] = []

    def fit(self, X, y, **more):
        self.sizes.append(len(X))
        time.sleep(self.pace * len(X))
        return super().fit(X, y, **more)


def test_a_machine_that_gets_busy_halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping takes no processor, so other work on this machine hardly matters."""
    given = {"n_clusters": 12, "budget": "3s", "device": "cpu", "n_jobs": 1}
    model = CrumbRegressor(model=Sleepy(), strategy="centroid", **given).fit(
        X[:2_500], X[:2_500, 0]
    )
    make_plan = model.pool_.plan

    def busy(*given, **named):
        plan = make_plan(*given, **named)
        monkeypatch.setattr(Sleepy, "pace", 4e-3)
        Sleepy.sizes.clear()
        return plan

    monkeypatch.setattr(model.pool_, "plan", busy)
    started = time.perf_counter()
    answers = model.predict(X[2_500:])
    seconds = time.perf_counter() - started
    assert np.isfinite(answers).all()
    assert len(Sleepy.sizes) == 12
    assert Sleepy.sizes[-1] == LADDER[0] < Sleepy.sizes[0]
    promised = 4e-3 * 12 * Sleepy.sizes[0]  # what it would have taken without looking at the clock
    assert Sleepy.sizes.count(LADDER[0]) >= 9
    assert seconds < promised


def test_prices_of_strategies() -> None:
    cost = linear_cost(each=1.0, per_row=0.0)

    def expected(strategy, budget=1e9, **more):
        options = settings(budget=Budget(budget), strategy=strategy, **more)
        return choose(options, cost, 300, (50_000, 20), None).facts["budget"]["expected_seconds"]

    assert expected("centroid", n_clusters=20) == pytest.approx(20, abs=1)
    # One pass for each query, or for each of N/n clusters of the pool, which are found first.
    pool = clustering_values(50_000, 100) * 10e-9
    assert expected("micp", context_size=500) == pytest.approx(100 + pool)
    assert expected("micp", context_size=50) == pytest.approx(300 + 10 * pool)
    # Small contexts mean many clusters of the pool: they are not the cheapest ones.
    with pytest.warns(UserWarning, match="of 20,000 rows"):
        assert expected("micp", 1e-3) < 5
    with pytest.warns(UserWarning, match="No contexts fit into the budget"):
        assert expected("knn", 100.0, context_size=500) == pytest.approx(300)


def test_where_nothing_fits_what_can_be_cut_to_fit_is_taken() -> None:
    """Clusters of the pool cannot be cut, rows of a context can."""
    cost, large = PassCost(backend("embedded"), 10, each=0.01, per_work=1e-11), (200_000, 10)
    with pytest.warns(UserWarning, match="No contexts fit") as warned:
        chosen = choose(settings(budget=Budget(4.0), strategy="micp"), cost, 500, large, None)
    contexts = -(-large[0] // chosen.context_size)
    planning = clustering_values(large[0], contexts) * 10e-9 * Load(*large, 1, 1, 10).weight
    assert planning + cost.seconds(contexts, LADDER[0], 500) < 4.0
    assert chosen.facts["budget"]["expected_seconds"] > 4.0
    said = str(warned[0].message)  # the number of contexts, not K
    assert "the cheapest, 100 of 2,000 rows, should take 57.3 s" in said
    assert f" {contexts} of {chosen.context_size:,} rows are cut as time runs out, to 3.9 s" in said


def test_gigabytes_that_do_not_suffice_cut_nothing() -> None:
    cost = PassCost(backend("embedded"), 100, each=0.0, per_work=0.0)
    with pytest.warns(UserWarning, match=r"s and 0\.\d\d GB\. Give more"):
        choose(settings(budget=Budget(None, 0.001)), cost, 1_000, (50_000, 20), None)


def test_micp_ends_in_time_although_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sleepy, "pace", 2e-3)
    model = CrumbRegressor(
        model=Sleepy(), strategy="micp", budget="3s", device="cpu", n_jobs=1
    ).fit(X[:2_500], X[:2_500, 0])
    Sleepy.sizes.clear()
    with pytest.warns(UserWarning, match="No contexts fit into the budget"):
        model.predict(X[2_500:])  # 5 s for all of its rows
    assert 2e-3 * sum(Sleepy.sizes) < 3.5


@pytest.mark.parametrize(
    ("y", "rows", "expected"),
    [
        (np.arange(1_000) == 900, X[:1_000], 100),  # the first hundred have one label
        (np.arange(1_000) % 2, np.maximum(np.arange(1_000), 150)[:, None], 200),  # and one value
    ],
)
def test_contexts_whose_first_rows_teach_nothing_are_cut_too(y, rows, expected) -> None:
    y, asked = y.astype(int), backend(Sleepy(), "regression")
    pool, clock = HeldRows(rows, y, np.arange(len(y)), None, b""), Clock(0.0, linear_cost())
    Sleepy.sizes.clear()
    everything, one = [np.arange(len(y))], np.zeros(1, dtype=int)
    infer(asked, pool, everything, one, rows[:1], Output("mean"), clock=clock)
    assert Sleepy.sizes == [expected]


@pytest.mark.parametrize("budget", [None, "3s"])
def test_micp_clusters_the_pool_once(budget, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, cluster_pool = [], TableFinder.cluster_pool

    def counted(finder, n_clusters):
        seen.append(n_clusters)
        return cluster_pool(finder, n_clusters)

    monkeypatch.setattr(TableFinder, "cluster_pool", counted)
    monkeypatch.setattr(Sleepy, "pace", 2e-3 if budget else 0.0)
    given = {"budget": budget, "device": "cpu", "n_jobs": 1}
    model = CrumbRegressor(model=Sleepy(), strategy="micp", **given).fit(X[:2_500], X[:2_500, 0])
    assert len(seen) == 1  # not when the first queries come
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No contexts fit")
        for rows in (X[2_500:], X[2_500:2_600], X[2_500:]):
            model.predict(rows)
    assert len(seen) == 1
    model.fit(X[:2_000], X[:2_000, 0])
    assert len(seen) == 2


def test_columns_of_a_guide_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(options, cost, *more):
        seen.append(cost.columns)
        return choose(options, cost, *more)

    monkeypatch.setattr("crumb.estimator.choose", look)
    three = np.digitize(X[:, 0], [-1.0, 1.0])
    for guide in (None, LogisticRegression()):
        model = CrumbClassifier(
            model=LogisticRegression(), budget="30s", device="cpu", n_jobs=1, guide=guide
        ).fit(X[:500], three[:500])
        model.plan(X[500:520])
        model.plan(X[500:520])  # measured again
    assert seen == [8, 8, 11, 11]


def test_random_features_and_the_exact_kernel_cost_what_they_cost() -> None:
    cost = linear_cost(per_row=0.0)

    def expected(rows, **more):
        options = settings(budget=Budget(1.0), context_size=1_000, n_clusters="auto", **more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = choose(options, cost, 300, (rows, 20), None)
        return chosen.facts["budget"]["expected_seconds"]

    assert expected(10**7, kernel="rff") > 5 * expected(10**6, kernel="rff") > 1
    assert expected(10**6, kernel="rff", rff_dim=1_024) > 1.5 * expected(10**6, kernel="rff")
    assert expected(10**7, kernel="exact") > 5 * expected(10**6, kernel="exact") > 1


def test_a_busy_machine_plans_less() -> None:
    cost = PassCost(backend("embedded"), 10, each=0.0, per_work=1e-10)
    usual, busy = (
        choose(settings(budget=Budget(5.0)), cost, 1_000, (500_000, 20), None, 0.0, slow)
        for slow in (1.0, 4.0)
    )
    assert busy.affordable == usual.affordable // 4
    assert busy.context_size <= usual.context_size
    assert slowness("cpu", 1) >= 1.0


def test_the_pace_is_measured_again_before_every_prediction() -> None:
    model = CrumbRegressor(model=Sleepy(), budget="3s", device="cpu", n_jobs=1, n_clusters=3)
    model.fit(X[:2_500], X[:2_500, 0])
    first = model.plan(X[2_500:2_600]).settings["context_size"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sleepy, "pace", 4e-3)
        assert model.plan(X[2_500:2_600]).settings["context_size"] < first
