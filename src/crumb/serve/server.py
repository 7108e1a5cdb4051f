"""The process: a socket, uvicorn, and an orderly end at SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from crumb.errors import InvalidInput
from crumb.serve.logs import event
from crumb.serve.service import Service

LAST_BYTES = 5.0  # seconds that a slow reader has for an answer that was written before the end
BACKLOG = 2_048


def bind(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to yet: that a port is taken shows before the long work."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        said = error.strerror or error
        raise InvalidInput(f"Cannot serve at {host}, port {port}: {said}.") from error
    return bound


def many_files() -> None:
    """As many connections as the system lets this process have: the usual 1,024 files are few."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


class Server(uvicorn.Server):
    """uvicorn that answers what it accepted before it goes, and goes with 0."""

    def __init__(
        self, config: uvicorn.Config, service: Service, ready: Callable[[], None], grace: float
    ):
        super().__init__(config)
        self._service, self._ready, self._grace = service, ready, grace
        self._leaving: asyncio.Task[None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signal again at the end: the exit status would be a crash's."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends it at once
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._leave)
        yield

    def _leave(self) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._drain())
        else:  # asked twice: at once
            self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        event("draining", active=self._service.active)
        await self._service.drain()
        await asyncio.sleep(self._grace)  # so that load balancers see that it is no longer ready
        self.should_exit = True


def run(
    app: Any, service: Service, bound: socket.socket, grace: float = 0.0, as_json: bool = False
) -> None:
    """Serve until SIGTERM or Ctrl-C; returns when everything accepted is answered."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(LAST_BYTES),
        lifespan="off",
        ws="none",
    )

    def ready() -> None:
        stream = service.stream
        event("ready", version=stream.version, contexts=stream.plan.n_clusters)
        said = f"crumb: {service.name!r} answers at {url(bound)}"
        if as_json:
            said = json.dumps({"name": service.name, "url": url(bound)})
        print(said, flush=True)

    try:
        Server(config, service, ready, grace).run(sockets=[bound])
    except KeyboardInterrupt:
        logging.getLogger("crumb.serve").warning("interrupted")
        sys.exit(130)


def url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
