"""online/state.py: a stream that goes on after a restart."""

from __future__ import annotations

import zipfile

import numpy as np
import pandas as pd
import pytest
from streams import ManualClock, cheap, queries, table

from crumb import CrumbClassifier
from crumb.errors import InvalidInput, PlanMismatch
from crumb.files import read_archive, write_archive
from crumb.online import CrumbOnline

X = queries()


def test_a_restart_answers_the_same(tmp_path) -> None:
    path, clock = tmp_path / "stream.crumb", ManualClock()
    with CrumbOnline(
        cheap("embedded"), X, timeout=60, recent=40, max_rows=210, b_min=7, clock=clock
    ) as stream:
        stream.learn(*table(20, seed=5))
        stream.refresh()
        stream.learn(*table(5, seed=6))
        futures = stream.submit_many(X)
        stream.flush()
        expected = [future.result().value for future in futures]
        drift = stream.drift()
        stream.save(path)
        saved = stream.stats()
        stream.refresh()  # what the restarted one is expected to come to
        later = stream.plan
    with CrumbOnline.load(path, clock=clock) as again:
        stats = again.stats()
        assert (stats.version, stats.pool_version) == (2, 2)
        assert stats.accepted == saved.accepted == len(X)
        assert stats.refreshes == 1
        assert again.options == stream.options
        assert again.drift() == drift
        futures = again.submit_many(X)
        again.flush()
        np.testing.assert_array_equal([future.result().value for future in futures], expected)
        assert {future.result().version for future in futures} == {2}
    with CrumbOnline.load(path, clock=clock) as again:
        assert again.refresh() == 3
        np.testing.assert_array_equal(again.plan.centroids, later.centroids)
        assert len(again.estimator.pool_.rows) == 210
        assert again.estimator.pool_.fingerprint == later.pool_fingerprint


def test_frames_and_text_labels(tmp_path) -> None:
    frame = pd.DataFrame(
        {"x": np.arange(60.0), "c": pd.Categorical(["a", "b"] * 30), "t": ["u", "v", None] * 20}
    )
    clf = CrumbClassifier(n_clusters=2, context_size=30, cache_size=0).fit(
        frame, ["no", "yes"] * 30
    )
    path = tmp_path / "stream.crumb"
    with CrumbOnline(clf, frame[:30], output="label", timeout=0) as stream:
        stream.learn(frame[:3], np.array(["perhaps", "no", "yes"], dtype=object))
        expected = [future.result(20).value for future in stream.submit_many(frame)]
        stream.save(path)
    with CrumbOnline.load(path, device="cpu") as again:
        assert [future.result(20).value for future in again.submit_many(frame)] == expected
        again.refresh()
        assert again.estimator.classes_.tolist() == ["no", "perhaps", "yes"]


def test_no_pickle_and_nothing_half_written(tmp_path) -> None:
    path = tmp_path / "stream.crumb"
    with CrumbOnline(cheap("embedded"), X) as stream:
        stream.save(path)
        stream.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["stream.crumb"]
    with zipfile.ZipFile(path) as archive:
        assert all(
            name.endswith((".json", ".npy", ".crumb", ".parquet")) for name in archive.namelist()
        )


def test_files_that_are_something_else(tmp_path) -> None:
    path = tmp_path / "stream.crumb"
    with CrumbOnline(cheap("embedded"), X) as stream:
        stream.save(path)
        stream.plan.save(tmp_path / "plan.crumb")
    with pytest.raises(PlanMismatch, match="not a 'crumb-online' file"):
        CrumbOnline.load(tmp_path / "plan.crumb")
    about, arrays, files = read_archive(path, "crumb-online", 1)
    about = {name: value for name, value in about.items() if name not in ("format", "version")}
    write_archive(path, "crumb-online", 1, about, {**arrays, "came": arrays["came"][1:]}, files)
    with pytest.raises(PlanMismatch, match="damaged"):
        CrumbOnline.load(path)
    del arrays["window"]
    write_archive(path, "crumb-online", 1, about, arrays, files)
    with pytest.raises(PlanMismatch, match="incomplete"):
        CrumbOnline.load(path)


def test_a_model_that_needs_pickle_is_refused(tmp_path) -> None:
    with CrumbOnline(cheap(), X) as stream, pytest.raises(InvalidInput, match="pickle"):
        stream.save(tmp_path / "stream.crumb")
