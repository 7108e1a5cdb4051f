"""``crumb serve`` against its targets, on a made table and on a mixed one (dates, text, holes).

    python benchmarks/online/targets.py --out targets.json

Rows a second in requests of 1, 10 and 100 rows; latency at half of the capacity, beside refreshes
and without; ``/learn`` with 16 clients, and at 200 requests a second alone and beside predictions;
how long SIGTERM takes. The load comes from this process: on few cores, only ratios within one run
say something. Two controls run beside ``/learn`` and the predictions: ``control``, a request that
does nothing, and ``disk``, a block that is written and synced. ``/learn`` needs both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
from service import Connection, Served, common, frame, table

LEARNERS = 16
LESSONS = 200  # requests of /learn a second
CONTROLS = 50  # controls a second


def made(rows: int, seed: int) -> pd.DataFrame:
    X, y = table(rows, seed)
    return frame(X).assign(y=y)


def mixed(rows: int, seed: int) -> pd.DataFrame:
    """29 columns: 15 of numbers, 10 of text, 2 of dates, 2 of truth values; some holes."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"n{i}": rng.normal(size=rows) for i in range(15)}
    for i in range(10):
        columns[f"c{i}"] = rng.choice([f"v{j}" for j in range(4 + 3 * i)], rows)
    for i in range(2):
        days = rng.integers(0, 1_000, rows).astype("timedelta64[D]")
        columns[f"d{i}"] = np.datetime64("2020-01-01") + days
        columns[f"b{i}"] = rng.random(rows) < 0.5
    found = pd.DataFrame(columns)
    found["y"] = ((found.n0 * found.n1 + (found.c0 == "v1")) > 0).astype(int)
    found.loc[::7, "n3"] = np.nan
    return found


TABLES = {"made": made, "mixed": mixed}


def as_records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    features = rows.drop(columns="y")
    return json.loads(features.to_json(orient="records", date_format="iso"))


@dataclass
class Seen:
    """A request: when it was due, when it was answered, and how."""

    due: float
    done: float
    status: int

    @property
    def seconds(self) -> float:
        return self.done - self.due


class Clients:
    """Send bodies in turn over kept connections."""

    def __init__(self, url: str, path: str, bodies: list[bytes]):
        self.host, port = url.removeprefix("http://").split(":")
        self.port, self.path, self.bodies = int(port), path, bodies
        self.seen: list[Seen] = []
        self.broken: list[str] = []
        self._idle: list[Connection] = []
        self._next = 0

    async def ask(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        body = self.bodies[self._next % len(self.bodies)]
        self._next += 1
        connection = self._idle.pop() if self._idle else Connection(self.host, self.port)
        try:
            status, _ = await connection.post(self.path, body)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.broken.append(type(error).__name__)
            return
        self._idle.append(connection)
        self.seen.append(Seen(due, loop.time(), status))

    async def closed(self, clients: int, seconds: float) -> float:
        """Each asks again as soon as it is answered: requests a second."""
        loop, before = asyncio.get_running_loop(), len(self.seen)
        started = loop.time()

        async def one() -> None:
            while loop.time() < started + seconds:
                await self.ask(loop.time())

        await asyncio.gather(*(one() for _ in range(clients)))
        return (len(self.seen) - before) / (loop.time() - started)

    async def poisson(self, rate: float, seconds: float) -> list[Seen]:
        """Requests come when they come."""
        loop, rng = asyncio.get_running_loop(), np.random.default_rng(0)
        before, tasks = len(self.seen), set()
        due = loop.time()
        end = due + seconds
        while due < end:
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            task = loop.create_task(self.ask(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += rng.exponential(1 / rate)
        await asyncio.gather(*tasks)
        return self.seen[before:]

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


class Disk(Clients):
    """Writes a block of a file that does not grow, and waits until it is on disk."""

    def __init__(self, folder: Path):
        super().__init__(":0", "", [])
        self._file = os.open(folder / "block", os.O_RDWR | os.O_CREAT)
        self._sync()

    async def ask(self, due: float) -> None:
        await asyncio.to_thread(self._sync)
        self.seen.append(Seen(due, asyncio.get_running_loop().time(), 200))

    def _sync(self) -> None:
        os.pwrite(self._file, bytes(4_096), 0)
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def percentiles(seen: list[Seen]) -> dict[str, Any]:
    if not seen:
        return {"requests": 0}
    p50, p99 = np.percentile([one.seconds for one in seen], [50, 99])
    wrong = sum(one.status != 200 for one in seen)
    return {
        "requests": len(seen),
        "p50_ms": round(1000 * float(p50), 1),
        "p99_ms": round(1000 * float(p99), 1),
        "not_200": wrong,
    }


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, kind: str):
        self.options, self.folder = options, folder
        TABLES[kind](options.rows, 0).to_parquet(folder / "train.parquet")
        self.queries = TABLES[kind](5_000, 1)
        self.records = as_records(self.queries)

    def served(self, *words: Any) -> Served:
        options = self.options
        sizes = ["--n-clusters", options.clusters, "--context-size", options.context]
        train = ["--train", self.folder / "train.parquet", "--target", "y", *sizes]
        state = tempfile.mkdtemp(dir=self.folder)
        quiet = ["--log-level", "warning", "--drift-every", 0]
        return Served(*train, "--state", state, *quiet, *words, log=self.folder / "log")

    def bodies(self, rows: int) -> list[bytes]:
        starts = range(0, min(len(self.records), 500 * rows) - rows + 1, rows)
        pieces = (self.records[start : start + rows] for start in starts)
        return [json.dumps({"records": piece}).encode() for piece in pieces]

    def lessons(self) -> list[bytes]:
        labels = self.queries["y"].tolist()
        pairs = zip(self.records, labels, strict=True)
        return [json.dumps({"records": [row], "labels": [y]}).encode() for row, y in pairs]

    def measure(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with self.served("--learn") as server:
            found["seconds_to_ready"] = round(server.seconds_to_ready, 1)
            asyncio.run(self._calm(server, found))
        half = found["capacity"]["1 row"] / 2
        every = int(half * self.options.seconds * 2)
        with self.served("--refresh", "periodic", "--refresh-every", every) as server:
            asyncio.run(self._refreshing(server, half, found))
            end = time.monotonic() + 60
            while not server.metrics()["crumb_refreshing"] and time.monotonic() < end:
                httpx.post(f"{server.url}/predict", content=self.bodies(100)[0], headers=JSON)
            started = time.monotonic()
            status = server.stop()
            seconds = round(time.monotonic() - started, 2)
            found["sigterm_in_a_refresh"] = {"seconds": seconds, "exit_status": status}
        return found

    async def _calm(self, server: Served, found: dict[str, Any]) -> None:
        seconds, capacity = self.options.seconds, {}
        for rows, clients in ((1, 128), (10, 32), (100, 8), (1, 128)):  # 1 row twice: warm, then so
            load = Clients(server.url, "/predict", self.bodies(rows))
            rate = await load.closed(clients, seconds)
            word = "row" if rows == 1 else "rows"
            capacity[f"{rows} {word}"] = round(rows * rate, 1)
            load.close()
        found["capacity"] = capacity  # rows a second
        await self._learning(server, capacity["1 row"] / 2, found)

    async def _learning(self, server: Served, half: float, found: dict[str, Any]) -> None:
        seconds, load = self.options.seconds, Clients(server.url, "/predict", self.bodies(1))
        lessons = Clients(server.url, "/learn", self.lessons())
        rate = await lessons.closed(LEARNERS, seconds)
        found["learn"] = {"per_s": round(rate, 1), **percentiles(lessons.seen)}
        found["learn_at_rate"] = percentiles(await lessons.poisson(LESSONS, seconds))
        control, disk = Clients(server.url, "/v2/health/live", [b""]), Disk(self.folder)
        # All at once: a moment in which the machine stands still is seen by every one of them.
        seen = await asyncio.gather(
            lessons.poisson(LESSONS, seconds),
            control.poisson(CONTROLS, seconds),
            disk.poisson(CONTROLS, seconds),
            load.poisson(half, seconds),
        )
        names = "learn_beside_half_load", "control", "disk", "half_load_beside_learn"
        found |= dict(zip(names, map(percentiles, seen), strict=True))
        for clients in (load, lessons, control, disk):
            clients.close()

    async def _refreshing(self, server: Served, rate: float, found: dict[str, Any]) -> None:
        """Requests that met a refresh, and those that did not, of one run."""
        load, stop, moments = Clients(server.url, "/predict", self.bodies(1)), False, []

        async def look() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
                while not stop:
                    text = (await http.get("/metrics")).text
                    if "crumb_refreshing 1.0" in text:
                        moments.append(asyncio.get_running_loop().time())
                    await asyncio.sleep(0.5)

        await load.closed(64, 5)  # warm
        watching = asyncio.ensure_future(look())
        seen = await load.poisson(rate, 6 * self.options.seconds)
        stop = True
        await watching
        load.close()
        times = np.array(moments)

        def met(one: Seen) -> bool:
            return bool(((times > one.due - 0.5) & (times < one.done + 0.5)).any())

        calm, busy = [[one for one in seen if met(one) is which] for which in (False, True)]
        found["half_load"] = {"rate": round(rate, 1), **percentiles(calm)}
        found["half_load_in_refreshes"] = percentiles(busy)
        if calm and busy:
            ratio = found["half_load_in_refreshes"]["p99_ms"] / found["half_load"]["p99_ms"]
            found["half_load_in_refreshes"]["p99_times"] = round(ratio, 2)
        found["broken"] = load.broken
        found["refreshes"] = int(server.metrics()["crumb_refreshes_total"])


JSON = {"Content-Type": "application/json"}


def main() -> None:
    parser = common.parser(__doc__, rows=20_000, clusters=20, context=500)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    options = parser.parse_args()
    found = {}
    for kind in options.tables:
        with tempfile.TemporaryDirectory() as name:
            found[kind] = Bench(options, Path(name), kind).measure()
        common.say({kind: found[kind]})
    common.write(options, found)


if __name__ == "__main__":
    main()
