"""State on disk: kill −9 and restart, a disk that is full, refreshes under traffic."""

from __future__ import annotations

import errno
import json
import resource
import signal
import threading

import httpx
import numpy as np
import pytest
import serving
from serving import Server, eventually, frame_of, records

from crumb import CrumbOnline
from crumb.errors import InvalidInput, PlanMismatch
from crumb.serve.schema import Schema
from crumb.serve.state import Snapshots, restore, write_schema
from crumb.serve.watch import Metrics


def probabilities(answer: dict) -> np.ndarray:
    return np.array([list(each["probabilities"].values()) for each in answer["predictions"]])


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="needs prlimit (Linux) to fill the disk of a process"
)
def test_a_killed_service_goes_on_from_its_snapshot(tmp_path):
    """Under traffic with refreshes: a full disk, kill −9, a restart, and the same plan."""
    words = [
        "--state",
        tmp_path / "state",
        "--snapshot-every",
        "0.2",
        "--timeout",
        "0.02",
        "--learn",
        *serving.FAST,
    ]
    refresh = ["--refresh", "periodic", "--refresh-every", "60", "--window", "60"]
    with Server(*serving.train_words(tmp_path), *words, *refresh) as server:
        seen, stop = {}, threading.Event()

        def ask() -> None:
            http, i = httpx.Client(base_url=server.url, timeout=60), 0
            while not stop.is_set():
                rows = records(5, seed=(i := i + 1))
                try:
                    answer = http.post("/predict", json={"records": rows})
                except httpx.TransportError:
                    return  # killed
                assert answer.status_code == 200, answer.text
                seen.setdefault(answer.json()["plan_version"], (rows, probabilities(answer.json())))

        traffic = threading.Thread(target=ask)
        traffic.start()
        eventually(lambda: server.metric("crumb_refreshes_total") >= 2, 90)
        eventually(lambda: server.metric('crumb_snapshots_total{outcome="written"}') >= 2)
        pid = server.process.pid
        whole = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1_000, whole[1]))
        eventually(lambda: server.metric('crumb_snapshots_total{outcome="failed"}') >= 1)
        assert server.predict(records(2)).status_code == 200  # it goes on
        with CrumbOnline.load(tmp_path / "state" / "stream.crumb") as stream:
            assert stream.stats().accepted > 0  # the last good one is there and whole
        assert not list((tmp_path / "state").glob("*.part"))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)
        written = server.metric('crumb_snapshots_total{outcome="written"}')
        eventually(lambda: server.metric('crumb_snapshots_total{outcome="written"}') > written)
        learned = server.http.post("/learn", json={"records": records(2), "labels": ["cat", "dog"]})
        assert learned.status_code == 200
        server.process.kill()  # at once: what was acknowledged is on disk
        traffic.join()
        stop.set()
        assert server.stop() == -signal.SIGKILL
        failed = server.events("snapshot failed, the last one stays")
        assert failed[0]["errno"] == errno.EFBIG
    assert len(seen) >= 3

    # The same plan, and answers to the rows that it had answered.
    with CrumbOnline.load(tmp_path / "state" / "stream.crumb") as stream:
        version, estimator, plan = stream.version, stream.estimator, stream.plan
    with Server(*words) as again:  # neither --train nor --target
        assert again.http.get("/live").json()["taught"] == 2
        probe = records(20, seed=77)
        answer = again.predict(probe).json()
        assert answer["plan_version"] == version
        wanted = estimator.predict_proba(frame_of(probe), plan=plan)
        np.testing.assert_allclose(probabilities(answer), wanted, atol=1e-5)
        if version in seen:
            rows, then = seen[version]
            np.testing.assert_allclose(probabilities(again.predict(rows).json()), then, atol=1e-5)
        assert again.stop() == 0


class Refusing:
    """A stream whose disk is full."""

    def stats(self):
        return CrumbOnlineStats()

    def save(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")


class CrumbOnlineStats:
    accepted = answered = version = taught = 1


def test_a_failure_is_counted_and_not_raised(tmp_path, caplog):
    metrics = Metrics()
    assert not Snapshots(Refusing(), tmp_path, metrics).write()
    assert metrics.registry.get_sample_value("crumb_snapshots_total", {"outcome": "failed"}) == 1


def test_what_has_not_changed_is_not_written_again(tmp_path):
    from streams import cheap, queries

    with CrumbOnline(cheap("embedded"), queries(), timeout=0) as stream:
        metrics = Metrics()
        snapshots = Snapshots(stream, tmp_path, metrics)
        assert snapshots.write()
        assert snapshots.write()
        assert (
            metrics.registry.get_sample_value("crumb_snapshots_total", {"outcome": "written"}) == 1
        )
        stream.submit(queries()[0]).result()
        assert snapshots.write()
        assert (
            metrics.registry.get_sample_value("crumb_snapshots_total", {"outcome": "written"}) == 2
        )
        # A snapshot of the library's has no columns beside it: they are those of the pool.
        restored, schema = restore(tmp_path, metrics, allow_missing=False)
        restored.close()
        assert schema == Schema.of(stream.estimator.pool_.rows)
        write_schema(tmp_path, schema)
        assert json.loads((tmp_path / "columns.json").read_text())["named"] is False
        (tmp_path / "columns.json").write_text("{}")
        with pytest.raises(PlanMismatch, match="damaged"):
            restore(tmp_path, metrics, allow_missing=False)


def test_a_folder_without_a_snapshot(tmp_path):
    with pytest.raises(InvalidInput, match="no snapshot"):
        restore(tmp_path, Metrics(), allow_missing=False)
