"""serve/connection.py under uvicorn, around an application of a few lines."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from functools import partial

import pytest
import uvicorn

from crumb.serve import connection
from crumb.serve.connection import Connection

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


class App:
    """Reads the body unless the path is /refused."""

    def __init__(self) -> None:
        self.received, self.largest, self.gone = 0, 0, 0

    async def __call__(self, scope, receive, send) -> None:
        more = scope["path"] != "/refused"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            self.received += len(message["body"])
            more = message["more_body"]
        close = [] if scope["path"] != "/refused" else [(b"connection", b"close")]
        size = 10_000_000 if scope["path"] == "/large" else 2
        headers = [(b"content-length", str(size).encode()), *close]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size})


@contextlib.asynccontextmanager
async def serving(app: App, most: int = 100):
    config = uvicorn.Config(
        app, port=0, http=partial(Connection, most=most), log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1], server
    server.should_exit = True
    await task


async def answer(reader: asyncio.StreamReader) -> int | None:
    """The status, or None for a connection that ended without one."""
    try:
        line = await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return None
    return int(line[9:12]) if line else None


async def ask(port: int, body: bytes = b"", path: bytes = b"/") -> int | None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path, len(body))
    writer.write(head + body)
    status = await answer(reader)
    writer.close()
    return status


def test_bodies_of_any_form_arrive_whole():
    app = App()

    async def go() -> None:
        async with serving(app) as (port, _):
            assert await ask(port, b"x" * 3_000_000) == 200
            assert app.received == 3_000_000
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):  # on one connection, in chunks of a decent size
                writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
                writer.write(b"3e8\r\n" + b"y" * 1000 + b"\r\n")
                await writer.drain()
                for _ in range(2_000):
                    writer.write(b"64\r\n" + b"y" * 100 + b"\r\n")
                writer.write(b"0\r\n\r\n")
                assert await answer(reader) == 200
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
            assert app.received == 3_000_000 + 2 * 201_000
            # Two requests in one packet.
            one = HEAD + b"Content-Length: 1\r\n\r\nz"
            writer.write(one + one)
            for _ in range(2):
                assert await answer(reader) == 200
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
            writer.close()

    asyncio.run(go())


def test_a_body_in_single_bytes_is_refused():
    app = App()

    async def go() -> None:
        async with serving(app) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 5_000)
            assert await answer(reader) == 400
            writer.close()
            assert await ask(port) == 200

    asyncio.run(go())
    assert app.received < 2_000
    assert app.gone == 1


def test_a_refused_body_is_thrown_away_and_the_client_reads_why():
    async def go() -> tuple[int, float, float]:
        async with serving(App()) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000")
            writer.write(b"\r\n\r\n")
            sent, started, slowest = 0, time.monotonic(), 0.0
            with contextlib.suppress(ConnectionError):
                while sent < 1_000_000_000 and time.monotonic() < started + 10:
                    writer.write(b"x" * 100_000)
                    await writer.drain()
                    sent += 100_000
                    if sent % 10_000_000 == 0:
                        before = time.monotonic()
                        assert await ask(port) == 200
                        slowest = max(slowest, time.monotonic() - before)
            seconds = time.monotonic() - started
            # One that stops sending, as httpx does, reads the answer.
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /refused HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"
            )
            writer.write(b"x" * 300_000)
            await writer.drain()
            assert await answer(reader) == 200
            assert (await reader.read()).endswith(b"xx")  # and the end
            return sent, seconds, slowest

    sent, seconds, slowest = asyncio.run(go())
    assert sent < 50_000_000  # what the kernels' buffers hold
    assert seconds < 5
    assert slowest < 1


class Faults(App):
    """Takes its time to refuse, and remembers what goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals, self.faults = 0, []

    async def __call__(self, scope, receive, send) -> None:
        self.refusals += 1

        async def late(message) -> None:
            if message["type"] == "http.response.body":
                time.sleep(0.03)  # the client goes, and the loop does not know yet
            await send(message)

        try:
            await super().__call__(scope, receive, late)
        except OSError as error:
            self.faults.append(error)


def leave(client: socket.socket) -> None:
    client.recv(10_000)  # closing with something unread would end the connection at once
    client.close()


def test_a_client_that_is_gone_when_it_is_refused_is_no_fault():
    async def scenario() -> None:
        app = Faults()
        async with serving(app) as (port, _):
            for _ in range(10):
                with socket.create_connection(("127.0.0.1", port)) as client:
                    head = HEAD.replace(b"/ ", b"/refused ", 1)
                    client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
                    threading.Timer(0.01, leave, [client]).start()
                    await asyncio.sleep(0.06)
        assert app.refusals == 10
        assert not app.faults

    asyncio.run(scenario())


def test_heads_must_come_in_time(monkeypatch):
    monkeypatch.setattr(connection, "HEAD", 0.5)

    async def go() -> None:
        async with serving(App()) as (port, server):
            silent = await asyncio.open_connection("127.0.0.1", port)
            half = await asyncio.open_connection("127.0.0.1", port)
            again = await asyncio.open_connection("127.0.0.1", port)
            again[1].write(HEAD + b"Content-Length: 0\r\n\r\n")
            assert await answer(again[0]) == 200
            await again[0].readuntil(b"\r\n\r\n")
            await again[0].readexactly(2)
            started = time.monotonic()
            while server.server_state.connections and time.monotonic() < started + 5:
                for _, writer in (half, again):  # a byte now and then does not help
                    with contextlib.suppress(ConnectionError):
                        writer.write(b"P" if writer is half[1] else b"\r\n")
                await asyncio.sleep(0.1)
            assert time.monotonic() - started < 3
            for reader, _ in (silent, half, again):
                assert await answer(reader) in (None, 400)

    asyncio.run(go())


def test_the_oldest_that_waits_makes_room():
    async def go() -> None:
        async with serving(App(), most=5) as (port, server):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            await asyncio.sleep(0.1)
            assert await ask(port) == 200  # the first one went for it
            assert await answer(idle[0][0]) is None
            busy = []
            for _ in range(8):
                busy.append(await asyncio.open_connection("127.0.0.1", port))
                busy[-1][1].write(HEAD + b"Content-Length: 10\r\n\r\n")
                await asyncio.sleep(0.05)
            # Five are at work: no more find room.
            assert [await answer(reader) for reader, _ in busy[5:]] == [503] * 3
            await asyncio.sleep(0.1)
            assert len(server.server_state.connections) <= 8  # the refused ones linger
            for reader, writer in busy[:5]:
                writer.write(b"x" * 10)
                assert await answer(reader) == 200

    asyncio.run(go())


def test_many_that_come_together_make_room_for_each_other():
    async def go() -> None:
        async with serving(App(), most=5) as (port, server):
            opening = (asyncio.open_connection("127.0.0.1", port) for _ in range(40))
            idle = await asyncio.gather(*opening)
            await asyncio.sleep(0.2)
            assert len(server.server_state.connections) == 5
            assert await ask(port) == 200
            for _, writer in idle:
                writer.close()

    asyncio.run(go())


def test_clients_that_do_not_read_are_cut_off(monkeypatch):
    monkeypatch.setattr(connection, "UNREAD", 0.5)

    async def go() -> None:
        async with serving(App()) as (port, server):
            for ending in (b"", b"Connection: close\r\n"):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
                writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n" + ending + b"\r\n")
                await asyncio.sleep(0.2)
                assert len(server.server_state.connections) == 1
                started = time.monotonic()
                while server.server_state.connections:
                    assert time.monotonic() < started + 5
                    await asyncio.sleep(0.05)

    asyncio.run(go())


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01" * 100, b"x" * 40_000])
def test_what_is_no_http(rubbish):
    async def go() -> None:
        async with serving(App()) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            assert await answer(reader) == 400
            assert await ask(port) == 200

    asyncio.run(go())


def test_two_lengths_of_a_body_are_refused():
    """What one of them hides is no second request, whatever a proxy makes of it."""
    app = App()

    async def go() -> None:
        async with serving(app) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lengths = b"Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            writer.write(HEAD + lengths + b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n")
            everything = await asyncio.wait_for(reader.read(), 10)
            assert everything.startswith(b"HTTP/1.1 400")
            assert everything.count(b"HTTP/1.1") == 1
            writer.close()

    asyncio.run(go())
