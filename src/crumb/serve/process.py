"""The process: a socket, uvicorn, an orderly end at SIGTERM, and what months of running need."""

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import signal
import socket
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import uvicorn

from crumb.errors import InvalidInput
from crumb.online import CrumbOnline, Observer
from crumb.online.child import Child, ChildBuilder
from crumb.serve.app import make_app
from crumb.serve.connection import Connection
from crumb.serve.limits import Limits
from crumb.serve.page import History
from crumb.serve.schema import Schema
from crumb.serve.service import Service
from crumb.serve.state import Journal, PlanArchive, Snapshots, has_snapshot, write_schema
from crumb.serve.watch import Metrics, event, log, where

KEEP_ALIVE = 30  # seconds between two requests
LAST_BYTES = 5  # seconds that a slow reader has for an answer that was written before the end
AT_ONCE = 16  # connections that are accepted in one turn of the loop
SPARE = 8 * AT_ONCE  # files: to close one for another takes a few turns
QUEUE = 4_096  # connections that wait to be accepted; beyond, clients try again after seconds
OWN_FILES = 128  # those of the service that are no connections
MOST_CONNECTIONS = 2_048
TRIM_EVERY = 15.0  # seconds
MOST_FILES = 65_536
ARENAS = 2
SWITCH = 0.0005  # seconds (Python: 0.005) that requests wait for a pass at each read and write
M_ARENA_MAX = -8  # of mallopt(3)


def bind(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to yet: that a port is taken shows before the long work."""
    if not 0 <= port < 2**16:
        raise InvalidInput(f"A port is a number from 0 to {2**16 - 1}, got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends at once (TCP_NODELAY) only where the protocol is named: else 40 ms are lost.
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        said = error.strerror or error
        raise InvalidInput(f"Cannot serve at {host}, port {port}: {said}.") from error
    return bound


def run_service(
    make_stream: Callable[[Sequence[Observer], Child], tuple[CrumbOnline, Schema]],
    bound: socket.socket,
    limits: Limits,
    options: Namespace,
) -> None:
    """Serve until SIGTERM; the last snapshot is written when everything accepted is answered.

    ``options``: those of ``crumb serve``.
    """
    few_arenas()
    sys.setswitchinterval(SWITCH)
    metrics, history, state = Metrics(), History(), options.state
    with contextlib.ExitStack() as stack:
        journal = None
        if state is not None and (options.train is not None or has_snapshot(state)):
            journal = Journal(state)  # nobody else uses the folder from here on
            stack.callback(journal.close)
        builder = ChildBuilder()
        stream, schema = make_stream([metrics, history], builder)
        if stream.options.refresh != "never":
            builder.warm()
        with contextlib.ExitStack() as unless_it_starts:
            unless_it_starts.callback(stream.close)
            service = Service(stream, schema, limits, options.name, journal)
            service.teacher.replay()
            unless_it_starts.pop_all()
        keep = None
        if journal is not None:
            snapshots = Snapshots(stream, state, metrics, journal)
            keep = snapshots.write
            write_schema(state, schema)
            if options.keep_plans:
                stream.observers.append(PlanArchive(stream, state))
            keep()
            stack.callback(keep)
        stack.callback(stream.close)
        stack.callback(service.close)
        for seconds, call in (
            (options.drift_every, lambda: stream.stats().accepted and stream.drift()),
            (TRIM_EVERY, trim),
            (options.snapshot_every, keep),
        ):
            if call is not None:
                stack.enter_context(repeated(seconds, call))
        app = make_app(service, metrics, history, learn=options.learn)
        gc.freeze()  # to search all of torch for garbage would stop every thread for 0.2 s
        _run(app, service, bound, options.grace, options.json)


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
        for bound in sockets or ():
            bound.listen(QUEUE)  # asyncio's own queue is as short as what it accepts at once
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


def _run(app: Any, service: Service, bound: socket.socket, grace: float, as_json: bool) -> None:
    """Serve until SIGTERM or Ctrl-C; returns when everything accepted is answered."""
    config = uvicorn.Config(
        app,
        http=partial(Connection, most=most_connections()),  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=LAST_BYTES,
        lifespan="off",
        ws="none",
    )

    def ready() -> None:
        stream, (host, port) = service.stream, bound.getsockname()[:2]
        event("ready", version=stream.version, contexts=stream.plan.n_clusters)
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        said = f"crumb: {service.name!r} answers at {url}"
        print(json.dumps({"name": service.name, "url": url}) if as_json else said, flush=True)

    try:
        Server(config, service, ready, grace).run(sockets=[bound])
    except KeyboardInterrupt:
        log.warning("interrupted")
        sys.exit(130)


@contextlib.contextmanager
def repeated(every: float, call: Callable[[], object]) -> Iterator[None]:
    """Calls something every ``every`` seconds (0: never) in a thread, until the block ends.

    The end waits for what is under way; nothing comes after it.
    """
    stop = threading.Event()

    def once() -> None:
        try:
            call()
        except Exception as error:  # the next time may go better
            event("a timer's work failed", logging.ERROR, **where(error))

    def run() -> None:
        while not stop.wait(every):
            once()

    thread = threading.Thread(target=run, name="crumb-timer", daemon=True)
    if every > 0:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join()


def most_connections() -> int:
    """How many may be open together without running out of files.

    Raises the limit on files as far as the system lets it: the usual 1,024 are few.
    """
    files = 1_024
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        if wanted > files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            files = wanted
    return max(8, min(MOST_CONNECTIONS, files - SPARE - OWN_FILES))


# Memory that is no longer used goes back to the system (Linux with glibc). A plan that was replaced
# leaves holes the size of its contexts in the allocator's arenas, of which every thread has one.
# Few arenas, and a trim now and then, keep the service as small as on its first day.


def few_arenas() -> None:
    """To be said before threads are started."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)


def trim() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
