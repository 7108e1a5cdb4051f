"""What the benchmarks of the service share: a table, ``crumb serve`` on it, and a load generator.

The load generator costs little beside the server: HTTP/1.1 by hand, on asyncio.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd

from crumb import CrumbClassifier, Plan

sys.path.insert(0, str(Path(__file__).parents[1]))
import common

COLUMNS, TARGET = 10, "y"
TOLERANCE = 1e-5  # between an answer of the service and the same answer here


def table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three blobs a direction, so that there are clusters; the label needs two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS))
    X[:, :2] += rng.choice([-3.0, 0.0, 3.0], size=(rows, 2))
    return X, (X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0).astype(int)


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(COLUMNS)])


@dataclass(frozen=True)
class Training:
    """The training table in a file, and how the service plans."""

    path: Path
    clusters: int
    context_size: int

    @classmethod
    def write(cls, folder: Path, rows: int, clusters: int, context_size: int) -> Training:
        X, y = table(rows, 0)
        frame(X).assign(**{TARGET: y}).to_parquet(folder / "train.parquet")
        return cls(folder / "train.parquet", clusters, context_size)

    def words(self) -> list[Any]:
        """The command line of the service."""
        sizes = ["--n-clusters", self.clusters, "--context-size", self.context_size]
        return ["--train", self.path, "--target", TARGET, *sizes, "--log-level", "warning"]

    def fitted(self) -> CrumbClassifier:
        """The estimator that the service makes of the same file."""
        rows = pd.read_parquet(self.path)
        model = CrumbClassifier(n_clusters=self.clusters, context_size=self.context_size)
        return model.fit(rows.drop(columns=TARGET), rows[TARGET].to_numpy())

    def check(self, out: Outcome, queries: np.ndarray, state: Path) -> dict[str, Any]:
        """Every answer beside ``predict_proba`` with the frozen plan of its version, made here."""
        model = self.fitted()
        rows, versions, values = np.array(out.rows), np.array(out.versions), np.array(out.values)
        gaps = np.zeros(len(rows))
        for version in np.unique(versions):
            mine = versions == version
            asked, place = np.unique(rows[mine], return_inverse=True)
            plan = Plan.load(state / f"plan-{version}.crumb")
            wanted = model.predict_proba(frame(queries[asked]), plan=plan)[place]
            gaps[mine] = np.abs(values[mine] - wanted).max(axis=1)
        return {
            "versions": len(np.unique(versions)),
            "wrong_answers": int((gaps > TOLERANCE).sum()),
            "largest_difference": float(gaps.max(initial=0.0)),
        }


class Served:
    """A server that is ready when the constructor returns; ``command`` replaces ``crumb serve``."""

    def __init__(self, *words: Any, log: Path, command: list[Any] | None = None):
        command = command or [sys.executable, "-m", "crumb", "serve"]
        started = time.monotonic()
        with log.open("a") as file:
            self.process = subprocess.Popen(
                [*map(str, command), "--port", "0", "--json", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000")},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server did not start: {log.read_text()[-500:]}")
        self.seconds_to_ready = time.monotonic() - started
        self.url: str = json.loads(line)["url"]

    def memory(self) -> int:
        return common.resident_bytes(self.process.pid)

    def metrics(self) -> dict[str, float]:
        lines = httpx.get(self.url + "/metrics", timeout=30).text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line[:1] != "#")
        return {name: float(value) for name, value in pairs}

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(120)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Outcome:
    """What clients saw. Seconds count from when a request was due, not from when it left."""

    sent: int = 0
    rows: list[int] = field(default_factory=list)  # which query each answer belongs to
    versions: list[int] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0  # 503
    mixed_up: int = 0  # another id than was sent
    unreachable: int = 0  # nobody took the connection
    broken: int = 0  # a connection that ended without an answer
    other: dict[int, int] = field(default_factory=dict)  # other statuses

    @property
    def lost(self) -> int:
        """Requests of which nothing is known."""
        known = len(self.rows) + self.refused + self.broken + self.unreachable
        return self.sent - known - sum(self.other.values())

    def counts(self) -> dict[str, Any]:
        return {
            "requests": self.sent,
            "answers": len(self.rows),
            "refused_503": self.refused,
            "sent_and_cut_off": self.broken,
            "connection_refused": self.unreachable,
            "other_statuses": self.other,
            "without_any_reply": self.lost,
            "mixed_up_ids": self.mixed_up,
            "latency_ms": self.percentiles(),
        }

    def percentiles(self) -> dict[str, float]:
        if not self.seconds:
            return {}
        found = np.percentile(self.seconds, [50, 90, 99, 99.9])
        return {
            name: round(1000 * float(s), 1)
            for name, s in zip(("p50", "p90", "p99", "p99_9"), found, strict=True)
        }


def head(path: str, length: int) -> bytes:
    """Of a request with a body of JSON, or with none."""
    method = "POST" if length else "GET"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


class Connection:
    def __init__(self, host: str, port: int):
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.reader is not None and self.reader.at_eof():
            self.close()  # the server closes connections that were idle for long
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        assert self.reader is not None
        self.writer.write(head(path, len(body)) + body)
        try:
            answer = await self.reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            return int(answer[9:12]), await self.reader.readexactly(length)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Load:
    """Single rows as ``/v2/models/crumb/infer``, each with a number of its own as id."""

    def __init__(self, url: str, queries: np.ndarray):
        host, port = url.removeprefix("http://").split(":")
        self.host, self.port, self.queries = host, int(port), queries
        self.bodies = [json.dumps(row.tolist()) for row in queries]
        self.outcome = Outcome()
        self._idle: list[Connection] = []

    async def ask(self, due: float) -> None:
        """One request, and what became of it."""
        out = self.outcome
        number, out.sent = out.sent, out.sent + 1
        row = number % len(self.bodies)
        body = (
            f'{{"id":"{number}","inputs":[{{"name":"table","datatype":"FP64",'
            f'"shape":[1,{self.queries.shape[1]}],"data":{self.bodies[row]}}}]}}'
        )
        connection = self._idle.pop() if self._idle else Connection(self.host, self.port)
        try:
            status, content = await connection.post("/v2/models/crumb/infer", body.encode())
        except ConnectionRefusedError:
            out.unreachable += 1
            return
        except (OSError, asyncio.IncompleteReadError):
            out.broken += 1
            return
        self._idle.append(connection)
        if status == 200:
            self._take(json.loads(content), number, row, asyncio.get_running_loop().time() - due)
        elif status == 503:
            out.refused += 1
        else:
            out.other[status] = out.other.get(status, 0) + 1

    def _take(self, answer: dict[str, Any], number: int, row: int, seconds: float) -> None:
        out = self.outcome
        if answer["id"] != str(number):
            out.mixed_up += 1
        out.rows.append(row)
        out.versions.append(answer["parameters"]["plan_version"])
        out.values.append(answer["outputs"][1]["data"])
        out.seconds.append(seconds)

    async def closed(self, clients: int, seconds: float) -> float:
        """Each client asks again as soon as it is answered: answers a second."""
        loop = asyncio.get_running_loop()
        started, before = loop.time(), len(self.outcome.rows)

        async def one() -> None:
            while loop.time() < started + seconds:
                await self.ask(loop.time())

        await asyncio.gather(*(one() for _ in range(clients)))
        return (len(self.outcome.rows) - before) / (loop.time() - started)

    async def poisson(
        self,
        rate: float,
        seconds: float,
        seed: int = 0,
        each_second: Callable[[float], None] | None = None,
    ) -> float:
        """Requests come when they come, whether or not others are answered: answers a second."""
        loop, rng = asyncio.get_running_loop(), np.random.default_rng(seed)
        started, before, tasks = loop.time(), len(self.outcome.rows), set()
        due, told = started, started
        while due < started + seconds:
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            task = loop.create_task(self.ask(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if each_second is not None and loop.time() >= told + 1:
                told = loop.time()
                each_second(told - started)
            due += rng.exponential(1 / rate)
        if tasks:
            await asyncio.wait(tasks, timeout=60)
        return (len(self.outcome.rows) - before) / seconds

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
