"""scikit-learn's own estimator checks, on the embedded network.

CRUMB chooses clusters and contexts for the batch of queries that it is given, so a row's answer
depends on the rows beside it. The check that forbids this is declared for the estimators as they
are, and passes with ``plan_at="fit"``.
"""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from crumb import CrumbClassifier, CrumbRegressor

TRANSDUCTIVE = "contexts are chosen for the batch of queries, unless plan_at='fit'"
BY_NATURE = {"check_methods_subset_invariance": TRANSDUCTIVE}

# Half of the pool: contexts must drop rows for the checks to mean anything.
SMALL = {"context_size": 0.5, "n_clusters": 3, "device": "cpu"}
AT_FIT = {**SMALL, "plan_at": "fit"}


@parametrize_with_checks(
    [CrumbClassifier(**SMALL), CrumbRegressor(**SMALL)],
    expected_failed_checks=lambda estimator: BY_NATURE,
)
def test_the_estimators_pass_what_can_be_passed(estimator, check) -> None:
    check(estimator)


@parametrize_with_checks([CrumbClassifier(**AT_FIT), CrumbRegressor(**AT_FIT)])
def test_with_a_plan_made_at_fit_every_check_passes(estimator, check) -> None:
    check(estimator)


def test_the_declared_checks_do_fail() -> None:
    """A declaration that is no longer needed would hide a regression."""
    from sklearn.utils.estimator_checks import check_methods_subset_invariance

    with pytest.raises(AssertionError):
        check_methods_subset_invariance(
            "CrumbRegressor", CrumbRegressor(context_size=5, n_clusters=3)
        )
