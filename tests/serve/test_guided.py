"""``crumb serve --guide``: clients send the columns of the table, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import serving
from serving import Server, frame_of, records

from crumb import CrumbOnline


def test_a_service_with_a_guide_answers_and_goes_on_from_its_snapshot(tmp_path) -> None:
    state = ("--state", tmp_path / "state", "--timeout", "0.02", "--learn")
    rows = records(5)
    with Server(*serving.train_words(tmp_path), "--guide", "trees", *state, *serving.SMALL) as one:
        inputs = one.http.get("/v2/models/crumb").json()["inputs"]
        assert [tensor["name"] for tensor in inputs] == ["a", "b", "old", "city"]
        answers = one.predict(rows).json()["predictions"]
        single = one.predict(rows[:1]).json()["predictions"]
        assert one.stop() == 0
    found = np.array([[a["probabilities"][name] for name in ("cat", "dog")] for a in answers])
    with CrumbOnline.load(tmp_path / "state" / "stream.crumb") as stream:
        assert stream.estimator.guide == "trees"
        assert stream.estimator.pool_.guide is not None
        expected = stream.estimator.predict_proba(frame_of(rows), plan=stream.plan)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert single[0]["probabilities"]["cat"] == pytest.approx(found[0, 0], abs=1e-5)
    with Server(*state, *serving.SMALL) as again:
        assert again.predict(rows).json()["predictions"] == answers
        assert again.stop() == 0
