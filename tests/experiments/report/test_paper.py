"""The paper's numbers, checked against themselves: a slip in copying would not add up."""

from __future__ import annotations

import pytest

from experiments.report import SECTIONS, paper


@pytest.mark.parametrize("ranks", [paper.MAIN_RANKS, paper.CONSISTENCY_RANKS])
def test_mean_ranks_sum_as_ranks_do(ranks):
    count = len(ranks)
    assert sum(rank[0] for rank in ranks.values()) == pytest.approx(
        count * (count + 1) / 2, abs=1e-9
    )


def test_leads_are_differences():
    for one in paper.DRIFT.values():
        crumb, micp, lead = (one[name][0] for name in ("crumb", "micp", "lead"))
        assert lead == pytest.approx(crumb - micp, abs=0.0011)


def test_the_order_is_that_of_the_ranks():
    means = [rank[0] for rank in paper.MAIN_RANKS.values()]
    assert means == sorted(means)


def test_every_protocol_has_a_scope():
    assert set(paper.SCOPES) == set(paper.FINDINGS) == set(SECTIONS)
    assert paper.SCOPES["drift"]["Data sets"].startswith("4: Anneal")
    assert paper.SCOPES["factorial"]["Clusters K"] == "20 (B, D)"
