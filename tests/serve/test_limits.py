"""Too much, too long, not allowed, gone: what a service does with clients that cannot be served."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
import serving
from serving import Server, eventually, records

from crumb.errors import InvalidInput
from crumb.serve.limits import Limits

TOKEN = "sesame-äß"
# Nothing is ever due by itself: rows wait until somebody gives up or the service drains.
WAITING = ("--timeout", "600", "--b-min", "1000", "--max-pending", "8", "--deadline", "2")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    words = [*serving.train_words(folder), *WAITING, "--max-bytes", "3000", *serving.SMALL]
    with Server(*words, token=TOKEN) as server:
        yield server
        assert server.stop() == 0


def waiting(server: Server) -> int:
    return server.http.get("/live").json()["pending"]


def raw(
    server: Server, body: bytes, length: int | None = None, path: str = "/predict"
) -> socket.socket:
    """A request on a socket of its own, by hand."""
    address = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((address[0], int(address[1])), timeout=30)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    head += (
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length or len(body)}\r\n\r\n".encode()
    )
    connection.sendall(head + body)
    return connection


def body(rows: int) -> bytes:
    return json.dumps({"records": records(rows)}).encode()


def test_the_token_is_asked_for(server):
    anybody = httpx.Client(base_url=server.url)
    closed = ("/v2", "/live", "/metrics", "/docs", "/openapi.json", "/v2/models/crumb", "/nowhere")
    basic = {"Authorization": f"Basic {TOKEN}".encode()}
    for headers in ({}, {"Authorization": "Bearer wrong"}, basic):
        for path in closed:
            answer = anybody.get(path, headers=headers)
            assert (answer.status_code, "error" in answer.json()) == (401, True)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        asked = anybody.post("/predict", headers=headers, json={"records": []})
        assert asked.status_code == 401
    for path in ("/", "/v2/health/live", "/v2/health/ready"):
        assert anybody.get(path).status_code == 200
    assert server.http.get("/v2").status_code == 200


def test_the_description_names_the_token(server):
    described = server.http.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert "Bearer $CRUMB_TOKEN" in server.http.get("/docs").text


def test_the_deadline(server):
    started = time.monotonic()
    answer = server.predict(records(2), deadline=0.3)
    assert (answer.status_code, answer.json()["error"]) == (
        504,
        "There was no answer within 0.3 seconds.",
    )
    assert 0.2 < time.monotonic() - started < 2
    eventually(lambda: waiting(server) == 0)


def test_a_full_service_refuses_with_retry_after(server):
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: answers.append(server.predict(records(4), deadline=2)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: waiting(server) == 8)
    refused = server.predict(records(1))
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert "try again when some are answered" in refused.json()["error"]
    assert server.http.get("/v2/health/ready").status_code == 200  # busy is not broken
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [504, 504]
    eventually(lambda: waiting(server) == 0)


def test_more_rows_than_can_ever_wait_are_too_many(server):
    assert server.predict(records(9)).status_code == 413


@pytest.mark.parametrize("declared", [True, False])
def test_large_bodies_are_refused_while_they_are_read(server, declared):
    large = b'{"records": "' + b"x" * 100_000
    content = large if declared else iter([large[i : i + 1000] for i in range(0, len(large), 1000)])
    answer = server.http.post("/predict", content=content, headers=serving.JSON)
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "The body is larger than 3,000 bytes.",
    )


def test_a_declared_length_is_believed_at_once(server):
    """The answer comes though the body never does."""
    started = time.monotonic()
    with raw(server, b"", length=10**12) as connection:
        assert b" 413 " in connection.recv(4096)
    assert time.monotonic() - started < 3


def test_a_body_that_does_not_arrive(server):
    with raw(server, b'{"rec', length=100) as connection:
        assert b" 408 " in connection.recv(4096)


def test_clients_that_leave_free_their_places(server):
    before = server.metric('crumb_rows_total{outcome="cancelled"}')
    connections = [raw(server, body(4)) for _ in range(2)]
    eventually(lambda: server.metric("crumb_queue_rows") == 8)
    for connection in connections:
        connection.close()
    eventually(lambda: waiting(server) == 0)
    assert server.metric('crumb_rows_total{outcome="cancelled"}') == before + 8
    assert server.metric('crumb_errors_total{reason="disconnected"}') >= 2


def test_slow_clients_do_not_keep_others_waiting(server):
    """200 send a byte now and then; health, metrics and refusals go on."""

    async def crawl() -> float:
        host, port = server.url.removeprefix("http://").split(":")
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 1000\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        writers = []
        for _ in range(200):
            writers.append((await asyncio.open_connection(host, int(port)))[1])
            writers[-1].write(head)
        slowest = 0.0
        async with httpx.AsyncClient(base_url=server.url, headers=server.http.headers.raw) as http:
            for _ in range(10):
                for writer in writers:
                    writer.write(b" ")
                started = time.monotonic()
                assert (await http.get("/v2/health/ready")).status_code == 200
                assert (await http.post("/predict", json={"records": []})).status_code == 422
                slowest = max(slowest, time.monotonic() - started)
                await asyncio.sleep(0.02)
        for writer in writers:
            writer.close()
        return slowest

    assert asyncio.run(crawl()) < 3
    assert server.predict(records(1), deadline=0.1).status_code == 504


def test_sigterm_answers_what_was_accepted_and_refuses_the_rest(tmp_path):
    words = [*serving.train_words(tmp_path), *WAITING, "--deadline", "60", "--grace", "1"]
    with Server(*words, "--state", tmp_path / "state", *serving.SMALL) as server:
        answers: list[httpx.Response] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.predict(records(2))))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: waiting(server) == 8)
        slow = raw(server, b'{"rec', length=100)  # never accepted
        second = httpx.Client(base_url=server.url)
        assert second.get("/v2/health/ready").status_code == 200
        server.process.terminate()
        eventually(lambda: second.get("/v2/health/ready").status_code == 503)
        assert second.get("/v2/health/live").status_code == 200
        refused = second.post("/predict", json={"records": records(1)})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 4
        assert b" 503 " in slow.recv(4096)
        slow.close()
        assert server.wait(30) == 0
        second.close()
        assert server.stop() == 0
        assert server.events("draining")[0]["active"] == 4
        # The last snapshot came after the last answer.
        from crumb import CrumbOnline

        with CrumbOnline.load(tmp_path / "state" / "stream.crumb") as stream:
            assert stream.stats().answered == 8


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc (Linux)")
def test_sigterm_drops_a_refresh(tmp_path):
    """However long it would take: its process is stopped and would never end by itself."""
    words = ["--refresh", "periodic", "--refresh-every", "1", "--timeout", "0", *serving.SMALL]
    with Server(*serving.train_words(tmp_path), *words) as server:
        pid = server.process.pid
        found = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        (child,) = " ".join(found).split()
        os.kill(int(child), signal.SIGSTOP)
        assert server.predict(records(3)).status_code == 200
        eventually(lambda: server.metric("crumb_refreshing ") == 1)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 5


def test_limits_are_checked():
    for wrong in (
        {"max_rows": 0},
        {"max_bytes": 0},
        {"deadline": 0},
        {"deadline": float("nan")},
        {"token": " "},
    ):
        with pytest.raises(InvalidInput):
            Limits(**wrong)
    assert Limits().admits(b"")
    assert Limits(token="ä").admits("bearer ä".encode())
    assert not Limits(token="a").admits(b"Bearer b")
    assert not Limits(token="a").admits(b"a")
