"""cli/options.py: what is typed reaches the estimator."""

from __future__ import annotations

import sys

from cli_tables import predict_args

from crumb import CrumbClassifier
from crumb.cli import build_parser
from crumb.cli.options import ENGINE, MODEL, RUNNING, SELECTION, parameters
from crumb.options import paper_configuration


def parsed(*argv):
    return build_parser().parse_args([*predict_args(), *argv])


def test_options_that_are_not_given_are_left_to_the_estimator():
    assert parameters(parsed()) == {"verbose": 0}


def test_every_option_reaches_its_parameter():
    argv = (
        "--strategy uniform --model tabicl-v2 --n-clusters none --context-size 0.25 --kernel rff "
        "--rff-dim 32 --herd-batch auto --bandwidth 2.5 --early-stopping --min-per-class 2 "
        "--n-estimators 4 --device cpu --random-state 7 --n-jobs 2 --categorical-features a,city "
        "--budget 30s --plan-at fit --features embedding --guide trees --engine ray"
    )
    chosen = parameters(parsed(*argv.split()))
    assert chosen == {
        "strategy": "uniform", "model": "tabicl-v2", "n_clusters": None, "context_size": 0.25,
        "kernel": "rff", "rff_dim": 32, "herd_batch": "auto", "bandwidth": 2.5,
        "early_stopping": True, "min_per_class": 2, "n_estimators": 4, "device": "cpu",
        "random_state": 7, "n_jobs": 2, "categorical_features": ["a", "city"], "budget": "30s",
        "plan_at": "fit", "features": "embedding", "guide": "trees", "engine": "ray", "verbose": 0,
    }  # fmt: skip
    assert set(chosen) <= set(CrumbClassifier().get_params())


def test_counts_stay_counts_and_shares_stay_shares():
    assert isinstance(parameters(parsed("--context-size", "1"))["context_size"], int)
    assert isinstance(parameters(parsed("--context-size", "1.0"))["context_size"], float)


def test_paper_is_a_base_that_options_change():
    chosen = parameters(parsed("--paper", "--n-clusters", "5"))
    assert chosen == {**paper_configuration(), "n_clusters": 5, "verbose": 0}


def test_progress_bars_show_on_a_terminal_unless_quiet(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert parameters(parsed())["verbose"] == 1
    assert parameters(parsed("--quiet"))["verbose"] == 0


def test_every_option_of_the_tables_is_a_parameter_of_the_estimators():
    flags = {**SELECTION, **RUNNING, **MODEL, **ENGINE}
    assert {flag[2:].replace("-", "_") for flag in flags} <= set(CrumbClassifier().get_params())
