"""The synthetic world: sound, seeded, varied, and prepared as tabicl prepares a table."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from crumb.pfn.tabicl_package import PreprocessingPipeline
from pretraining import columns, contexts, guide, targets, worlds
from pretraining.draw import Draw
from pretraining.functions import FUNCTIONS, _trees, rules, smooth, steps
from pretraining.graph import causal_graph, causes
from pretraining.prior import Shape, sample
from pretraining.recipe import KINDS, PLAIN, SITUATIONS, Recipe

TASKS = ("classification", "regression")


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    tables=st.integers(1, 6),
    rows=st.integers(20, 120),
    features=st.integers(1, 30),
    share=st.floats(0.3, 0.9),
    groups=st.integers(1, 3),
    recipe=st.sampled_from(
        [Recipe(), Recipe(smooth=1.0), *map(Recipe.only, (*KINDS, *SITUATIONS))]
    ),
)
def test_every_batch_is_sound(task, seed, tables, rows, features, share, groups, recipe):
    train = max(10, int(share * rows))
    batch = sample(task, Shape(tables, rows, features, train, groups), Draw("cpu", seed), recipe)
    assert batch.X.shape == (tables, rows, features)
    assert batch.y.shape == (tables, rows)
    assert batch.weight.shape == (tables, rows - train)
    assert torch.isfinite(batch.X).all()
    assert torch.isfinite(batch.y).all()
    assert batch.X.abs().max() <= 100
    assert (batch.weight >= 0).all()
    assert batch.weight.sum() == pytest.approx(1, abs=1e-4) or batch.weight.sum() == 0
    if task == "classification":
        for y, weight in zip(batch.y, batch.weight, strict=True):
            known = y[:train].unique()
            assert torch.equal(
                known, torch.arange(len(known)).float()
            )  # as a label encoder leaves them
            assert (y[train:][weight > 0] < len(known)).all()
            assert len(known) > 1 or not weight.any()
            assert len(known) <= 10


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_tables(task):
    shape = Shape(4, 50, 6, 30, groups=2)
    first, second = (sample(task, shape, Draw("cpu", 7, 3)) for _ in range(2))
    assert torch.equal(first.X, second.X)
    assert torch.equal(first.y, second.y)
    other = sample(task, shape, Draw("cpu", 7, 4))
    assert not torch.equal(first.X, other.X)


def test_tables_of_a_group_differ():
    batch = sample("classification", Shape(3, 60, 5, 40), Draw("cpu", 2))
    assert not torch.allclose(batch.X[0], batch.X[1])
    assert not torch.allclose(batch.X[1], batch.X[2])


def test_the_world_is_varied():
    """Over some draws: every number of classes, strong imbalance, integer codes, piles and long
    tails."""
    counts, rarest, codes, tails = set(), [], 0, 0
    for seed in range(60):
        batch = sample("classification", Shape(3, 200, 6, 150), Draw("cpu", seed))
        for X, y in zip(batch.X, batch.y, strict=True):
            shares = torch.bincount(y[:150].long()).float() / 150
            counts.add(len(shares))
            rarest.append(float(shares.min()))
            codes += sum(len(column.unique()) <= 12 for column in X.T)
            tails += int((X.abs() > 4).any())
    assert {2, 3, 4, 5} <= counts
    assert max(counts) >= 8
    assert min(rarest) < 0.03
    assert codes > 100
    assert tails > 10


@pytest.mark.parametrize("kind", [*KINDS, *SITUATIONS])
@pytest.mark.parametrize(("task", "skill"), [("classification", 0.1), ("regression", 0.3)])
def test_most_tables_can_be_learnt_from(task, skill, kind):
    """A forest beats a constant on the typical table; a prior of noise would teach nothing.

    Within one region of a pool there is less to be told apart.
    """
    gains = []
    for seed in range(16):
        batch = sample(task, Shape(1, 500, 8, 400), Draw("cpu", 100 + seed), Recipe.only(kind))
        X, y = batch.X[0].numpy(), batch.y[0].numpy()
        if not batch.weight.any():
            continue
        forest = RandomForestClassifier if task == "classification" else RandomForestRegressor
        model = forest(10, min_samples_leaf=3, random_state=0).fit(X[:400], y[:400])
        if task == "regression":
            gains.append(model.score(X[400:], y[400:]))
        else:
            usual = np.mean(y[400:] == np.bincount(y[:400].astype(int)).argmax())
            gains.append((model.score(X[400:], y[400:]) - usual) / max(1 - usual, 0.02))
    assert np.median(gains) > skill * (0.5 if kind == "near" else 1)


@pytest.mark.parametrize("function", [*FUNCTIONS, rules, smooth, steps], ids=lambda f: f.__name__)
def test_functions_are_standardised_seeded_and_differ_by_table(function):
    x = Draw("cpu", 0).normal(3, 200, 4)
    first, second = (function(x, 5, Draw("cpu", 11)) for _ in range(2))
    assert first.shape == (3, 200, 5)
    assert torch.equal(first, second)
    assert first.mean(1).abs().max() < 1e-3
    spread = first.std(1)
    assert ((spread < 1.1) & (spread >= 0)).all()
    assert spread.median() > 0.9
    same = function(x[:1].expand(3, -1, -1).contiguous(), 5, Draw("cpu", 11))
    assert not torch.allclose(same[0], same[1])  # one input, other parameters


def test_a_smooth_function_depends_on_every_input_a_little():
    """A small step of any one input changes every output, by a step that is as small."""
    x = torch.randn(3, 200, 6, generator=torch.Generator().manual_seed(0))
    before = smooth(x, 2, Draw("cpu", 5))
    for column in range(6):
        moved = x.clone()
        moved[:, 7, column] += 1e-2
        change = (smooth(moved, 2, Draw("cpu", 5)) - before).abs()[:, 7]
        assert (change > 0).all()
        assert (change < 0.3).all()


def test_trees_equal_a_walk_down_each_tree():
    """Against one tree, row by row, with the same draws."""
    x = Draw("cpu", 1).normal(2, 50, 3)
    count, depth = 4, 3
    values = _trees(x, count, depth, Draw("cpu", 9))
    draw = Draw("cpu", 9)
    nodes = 2**depth - 1
    feature = draw.skewed(3, draw.between(1, 3), 2, count * nodes)
    where = draw.integers(50, 2, count * nodes)
    leaves = draw.normal(2, count * 2**depth)
    if draw.chance(0.5):
        shrink = 1 - 0.7 * draw.uniform(2, 1, 1)
        leaves = leaves * shrink.expand(-1, count, 2**depth).cumprod(1).flatten(1)
    for table in range(2):
        for tree in range(count):
            for row in range(50):
                node = 0
                for _ in range(depth):
                    at = tree * nodes + node
                    f = feature[table, at]
                    node = 2 * node + 1 + int(x[table, row, f] > x[table, where[table, at], f])
                expected = leaves[table, tree * 2**depth + node - nodes]
                assert values[table, row, tree] == expected


@pytest.mark.parametrize("seed", range(8))
def test_graph_gives_as_many_variables_as_asked(seed):
    draw = Draw("cpu", seed)
    assert causal_graph(2, 30, 17, draw).shape[2] >= 17
    assert causes(2, 30, 3, draw).shape == (2, 30, 3)


def test_categories_are_codes_and_their_effects_follow_them():
    for seed in range(30):
        X = Draw("cpu", 1000 + seed).normal(2, 300, 6)
        stored, acting, chosen = columns.categories(X, Draw("cpu", seed))
        for table in range(2):
            for j in range(6):
                assert bool(chosen[table, 0, j]) != torch.equal(stored[table, :, j], X[table, :, j])
                if not chosen[table, 0, j]:
                    continue
                codes, effects = stored[table, :, j], acting[table, :, j]
                assert torch.equal(codes, codes.round())
                assert codes.min() >= 0
                for code in codes.unique():  # one category, one effect
                    assert effects[codes == code].std(correction=0) < 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_preparation_is_tabicls(seed):
    draw = Draw("cpu", seed)
    X = (
        torch.exp(1.5 * draw.normal(1, 120, 5)) * 3 + 7
    )  # heavy tails, so that outliers are pulled in
    ours = columns.as_the_package_sees(X, 80, draw)[0].numpy()
    pipeline = PreprocessingPipeline(normalization_method="none", outlier_threshold=4.0).fit(
        X[0, :80].double().numpy()
    )
    np.testing.assert_allclose(
        ours, pipeline.transform(X[0].double().numpy()), rtol=1e-3, atol=1e-3
    )


def test_missing_cells_are_filled_as_tabicl_fills_them():
    """Numbers with the mean of the training cells that are left, categories with −1."""
    filled = [0, 0]
    categorical = torch.tensor([False, True, False, True]).view(1, 1, 4)
    for seed in range(40):
        X = Draw("cpu", 50 + seed).normal(1, 400, 4)
        out = columns.gaps(X, categorical, 300, Draw("cpu", seed))
        for j in range(4):
            changed = out[0, :, j] != X[0, :, j]
            filled[j % 2] += int(changed.sum())
            left = X[0, :300, j][~changed[:300]]
            expected = torch.tensor(-1.0) if j % 2 else left.mean()
            torch.testing.assert_close(
                out[0, changed, j], expected.expand(int(changed.sum())), rtol=1e-4, atol=1e-5
            )
    assert min(filled) > 100


def test_useless_columns_are_noise_that_no_target_depends_on():
    seen = 0
    for seed in range(40):
        X = Draw("cpu", 900 + seed).normal(2, 300, 5)
        out, useless = columns.useless_and_doubled(X, Draw("cpu", seed))
        for table in range(2):
            for j in range(5):
                if useless[table, 0, j]:
                    seen += 1
                    together = torch.cat([out[table, :, j : j + 1], X[table]], dim=1)
                    assert torch.corrcoef(together.T)[0, 1:].abs().max() < 0.3
    assert seen > 20


def test_what_is_noise_does_not_act(monkeypatch):
    useless = torch.tensor([True, False, True]).view(1, 1, 3)
    monkeypatch.setattr(columns, "useless_and_doubled", lambda X, draw: (X, useless))
    world = worlds.make("plain", 2, 50, 3, Draw("cpu", 1))
    acting = world.effects.abs().sum((0, 1)) > 0
    assert acting.tolist() == [False, True, False]


def test_the_target_is_no_column():
    """A variable that is a target is not written down as well, or the table would contain its own
    answer."""
    draw = Draw("cpu", 3)
    variables = torch.arange(12.0).expand(3, 5, 12)
    X, hidden = worlds.observed(variables, 7, draw)
    for table in range(3):
        columns_of, others = set(X[table, 0].tolist()), hidden[table, 0].tolist()
        assert len(columns_of) == 7
        assert columns_of.isdisjoint(others)
        assert others == sorted(others)
        assert len(others) == 5


@pytest.mark.parametrize(("name", "last"), [("itself", 1.0), ("causes", 0.5)])
def test_the_target_can_be_any_variable_or_a_cause(name, last):
    recipe = Recipe(**{name: 1.0})
    for seed in range(5):
        draw = Draw("cpu", seed)
        world = worlds.make("plain", 3, 40, 9, draw)
        found = targets.signal(world, 1, draw, recipe)
        same = (world.variables == found).all(dim=1)  # (G, M)
        assert same.any(dim=1).all()
        assert (same.float().argmax(dim=1) <= last * world.variables.shape[2]).all()


def test_classes_that_only_queries_have_count_for_nothing():
    y = torch.tensor([[0, 2, 2, 0, 1, 2]])
    codes, usable = targets.as_codes(y, train=4, count=3)
    assert codes[0, :4].tolist() == [0, 1, 1, 0]
    assert usable[0, 4:].tolist() == [False, True]
    assert codes[0, 5] == 1


def test_contexts_are_near_their_queries_and_have_none_of_them():
    pool = Draw("cpu", 0).normal(3, 4_000, 5)
    y = (pool[..., 0] > 0).long()
    shares, spreads = [], []
    for seed in range(40):
        chosen = contexts.choose(pool, y, 300, 50, 2, Draw("cpu", seed))
        assert chosen.shape == (3, 350)
        for table in range(3):
            assert len(chosen[table].unique()) == 350
            rows = pool[table, chosen[table]]
            context, queries = rows[:300], rows[300:]
            spreads.append(
                float(
                    torch.cdist(queries, context).mean() / torch.cdist(queries, pool[table]).mean()
                )
            )
            labels = y[table, chosen[table]].float()
            shares.append(float(labels[:300].mean() - labels[300:].mean()))
    assert np.median(spreads) < 0.8
    assert (
        max(map(abs, shares)) > 0.2
    )  # now and then a class is rarer in the context than among the queries


def test_the_target_of_ratios_lies_in_a_crowd():
    """Most of a column is one spot after standardising; its order still says what it said."""
    crowded = 0
    for seed in range(20):
        X = Draw("cpu", 70 + seed).normal(2, 500, 4)
        stored, acting = columns.ratios(X, Draw("cpu", seed))
        assert torch.equal(acting, X)
        scaled = columns.as_the_package_sees(stored, 500, Draw("cpu", 0))
        crowded += int(
            ((scaled - scaled.median(1, keepdim=True).values).abs() < 0.05)
            .float()
            .mean(1)
            .gt(0.5)
            .sum()
        )
    assert crowded > 30


def test_guides_are_of_every_quality_and_do_not_know_the_row_itself():
    found = []
    for seed in range(60):
        draw = Draw("cpu", seed)
        world = worlds.make("plain", 2, 600, 6, draw)
        target = targets.numbers(world, draw)
        told = guide.predictions(world, target, 5, draw)
        assert told.shape == (2, 600, 1)
        pairs = zip(told[..., 0], target.y, strict=True)
        found += [float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in pairs]
    assert np.nanmax(found) > 0.95
    assert np.nanmin(found) < 0.2
    # A target of pure noise cannot be predicted: in-sample means would know something of it.
    draw = Draw("cpu", 3)
    world = worlds.make("plain", 8, 300, 6, draw)
    noise = targets.Target(draw.normal(8, 300), draw.normal(8, 300, 1), 0)
    told = guide.predictions(world, noise, 5, draw)[..., 0]
    assert (
        np.mean(
            [
                float(torch.corrcoef(torch.stack(pair))[0, 1])
                for pair in zip(told, noise.y, strict=True)
            ]
        )
        < 0.05
    )


def test_guides_of_many_classes_have_a_column_each():
    widths = set()
    for seed in range(30):
        draw = Draw("cpu", seed)
        world = worlds.make("plain", 2, 200, 12, draw)
        target = targets.classes(world, draw)
        told = guide.predictions(world, target, 11, draw)
        assert told.shape[2] in (1, target.classes)
        widths.add(told.shape[2])
        placed = guide.put_in(world.X, told, draw)
        changed = (placed != world.X).any(1).sum(1)
        assert (changed == told.shape[2]).all()
    assert len(widths) > 2


def test_plain_worlds_can_be_asked_for():
    assert PLAIN.weights() == [1.0, 0, 0, 0, 0, 0, 0]
    assert PLAIN.near == PLAIN.guide == 0
    assert Recipe.only("near").near == Recipe.only("near").plain == 1
