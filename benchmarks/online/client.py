"""A load generator that costs little beside the server: HTTP/1.1 by hand, on asyncio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Outcome:
    """What clients saw. Seconds count from the moment at which a request was due, not from that at which it left."""

    sent: int = 0
    rows: list[int] = field(default_factory=list)  # which query each answer belongs to
    versions: list[int] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0  # 503
    mixed_up: int = 0  # another id than was sent
    unreachable: int = 0  # nobody took the connection
    broken: int = 0  # a connection that ended without an answer
    other: dict[int, int] = field(default_factory=dict)

    def percentiles(self) -> dict[str, float]:
        if not self.seconds:
            return {}
        found = np.percentile(self.seconds, [50, 90, 99, 99.9])
        return {
            name: round(1000 * float(s), 1)
            for name, s in zip(("p50", "p90", "p99", "p99_9"), found, strict=True)
        }


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
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
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
