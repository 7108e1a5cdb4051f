"""``crumb serve`` when things go wrong: what clients saw, what was lost, when it was ready again.

    python benchmarks/online/faults.py --out benchmarks/results/online_faults.json

Two faults are built into the service: ``faults.py --sabotage refresh …`` runs ``crumb serve`` with
new plans that fail, and ``--sabotage memory …`` one whose passes of cluster 0 run out of memory for
as long as the file named by CRUMB_FAULT exists.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service import Load, Outcome, Served, Training, common, head, table

from crumb import CrumbOnline
from crumb.online import child, version

Seen = dict[str, Any]


class Bench:
    """One training table and one set of queries; each fault has a folder of its own."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.state, self.log = options, folder / "state", folder / "log"
        self.training = Training.write(folder, options.rows, options.clusters, options.context)
        self.queries, _ = table(5_000, 1)
        self.kept = ["--state", self.state, "--keep-plans"]

    def served(self, *words: Any, sabotage: str = "") -> Served:
        command = [sys.executable, __file__, "--sabotage", sabotage] if sabotage else None
        return Served(*self.training.words(), *words, log=self.log, command=command)

    def under_load(
        self, server: Served, meanwhile: Callable[[], Any] = lambda: None
    ) -> tuple[Outcome, Any]:
        """Do something while queries come: what clients saw, and what it gave."""
        load, options = Load(server.url, self.queries), self.options

        async def go() -> Any:
            await load.poisson(options.rate, 2.0)  # warm
            traffic = asyncio.ensure_future(load.poisson(options.rate, options.seconds))
            await asyncio.sleep(options.seconds / 4)
            found = await asyncio.to_thread(meanwhile)
            await traffic
            load.close()
            return found

        found = asyncio.run(go())
        return load.outcome, found

    def checked(self, out: Outcome) -> Seen:
        return {**out.counts(), **self.training.check(out, self.queries, self.state)}

    def snapshot(self) -> CrumbOnline:
        return CrumbOnline.load(self.state / "stream.crumb")


def killed(bench: Bench) -> Seen:
    """kill −9 under load, then a start from the snapshot."""
    kept = [*bench.kept, "--snapshot-every", 1]
    with bench.served(*kept, "--refresh", "periodic", "--refresh-every", 500) as server:
        kill = lambda: server.process.send_signal(signal.SIGKILL)  # noqa: E731
        out, _ = bench.under_load(server, kill)
    before = bench.checked(out)
    with bench.snapshot() as saved:
        saved_version = saved.version
    with Served(*kept, log=bench.log) as again:
        after, _ = bench.under_load(again)
        ready, status = again.seconds_to_ready, again.stop()
    return {
        "before": before,
        "snapshot_version": saved_version,
        "first_version_after": min(after.versions),
        "seconds_from_start_to_ready": round(ready, 2),
        "after": bench.checked(after),
        "exit_status": status,
    }


def failed_refresh(bench: Bench) -> Seen:
    """Every new plan fails: the old one goes on answering."""
    words = ["--refresh", "periodic", "--refresh-every", 200, *bench.kept]
    with bench.served(*words, sabotage="refresh") as server:
        out, _ = bench.under_load(server)
        failures, status = server.metrics()["crumb_refresh_failures_total"], server.stop()
    return {**bench.checked(out), "refresh_failures": failures, "exit_status": status}


def out_of_memory(bench: Bench) -> Seen:
    """Passes of one context run out of memory for a while; the others do not."""
    fault = bench.state.with_name("fault")
    os.environ["CRUMB_FAULT"] = str(fault)

    def a_while() -> None:
        fault.touch()
        time.sleep(bench.options.seconds / 4)
        fault.unlink()

    with bench.served(*bench.kept, sabotage="memory") as server:
        out, _ = bench.under_load(server, a_while)
        after, _ = bench.under_load(server)
        status = server.stop()
    return {**bench.checked(out), "afterwards": after.counts(), "exit_status": status}


def slow_clients(bench: Bench) -> Seen:
    """Clients that send a byte a second hold connections; the others are answered as before."""
    options = bench.options
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, options.slow + 500)), hard))
    with bench.served("--deadline", options.seconds / 2) as server:
        before, _ = bench.under_load(server)
        load = Load(server.url, bench.queries)

        async def go() -> list[str]:
            crawlers = [asyncio.ensure_future(crawl(load)) for _ in range(options.slow)]
            await asyncio.sleep(1)
            await load.poisson(options.rate, options.seconds)
            load.close()
            return await asyncio.gather(*crawlers)

        replies = asyncio.run(go())
        memory, status = server.memory(), server.stop()
    return {
        "slow": options.slow,
        "replies_to_slow": {reply: replies.count(reply) for reply in set(replies)},
        "others_without_slow": before.counts(),
        "others_beside_slow": load.outcome.counts(),
        "memory_mb": round(memory / 1e6, 1),
        "exit_status": status,
    }


async def crawl(load: Load) -> str:
    """Send a body byte by byte; the status of the reply, or what happened to the connection."""
    try:
        reader, writer = await asyncio.open_connection(load.host, load.port)
        writer.write(head("/predict", 5_000))
        answer = asyncio.ensure_future(reader.read(100))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait({answer}, timeout=1)
        writer.close()
        return answer.result()[9:12].decode() or "closed"
    except OSError as error:
        return type(error).__name__


def full_disk(bench: Bench) -> Seen:
    """No file of the service may grow beyond 4 kB for a while: snapshots fail."""
    with bench.served("--state", bench.state, "--snapshot-every", 0.5) as server:
        pid = server.process.pid
        whole = resource.prlimit(pid, resource.RLIMIT_FSIZE)

        def a_while() -> Seen:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4_096, whole[1]))
            time.sleep(bench.options.seconds / 2)
            failed = server.metrics()['crumb_snapshots_total{outcome="failed"}']
            with bench.snapshot() as saved:  # the last good snapshot can be read
                accepted = saved.stats().accepted
            resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)
            return {"failed_snapshots": failed, "queries_in_the_old_snapshot": accepted}

        out, found = bench.under_load(server, a_while)
        time.sleep(2)
        written = server.metrics()['crumb_snapshots_total{outcome="written"}']
        status = server.stop()
    with bench.snapshot() as saved:
        answered = saved.stats().answered
    return {
        **out.counts(),
        **found,
        "written_snapshots": written,
        "answers_in_the_last_snapshot": answered,
        "leftovers": [path.name for path in bench.state.glob("*.part")],
        "exit_status": status,
    }


def break_refreshes() -> None:
    def failing(*_: Any) -> Any:
        raise MemoryError("no room for another plan")

    child.ChildBuilder.call = failing  # type: ignore[method-assign]


def break_passes() -> None:
    answer = version.PlanVersion.answer

    def failing(self: Any, cluster: int, *words: Any, **more: Any) -> Any:
        if cluster == 0 and os.path.exists(os.environ["CRUMB_FAULT"]):
            raise MemoryError("this context runs out of memory")
        return answer(self, cluster, *words, **more)

    version.PlanVersion.answer = failing  # type: ignore[method-assign]


SABOTAGE = {"refresh": break_refreshes, "memory": break_passes}
FAULTS: dict[str, Callable[[Bench], Seen]] = {
    "kill_9": killed,
    "failed_refresh": failed_refresh,
    "out_of_memory": out_of_memory,
    "slow_clients": slow_clients,
    "full_disk": full_disk,
}


def main() -> None:
    parser = common.parser(__doc__, rows=20_000, clusters=20, context=500, slow=1_000)
    parser.add_argument("--rate", type=float, default=50.0, help="queries a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part")
    parser.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    options = parser.parse_args()
    found: Seen = {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = FAULTS[name](Bench(options, Path(folder)))
        common.say({name: found[name]})
    common.write(options, found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sabotage"]:
        from crumb.cli import main as crumb

        SABOTAGE[sys.argv[2]]()
        raise SystemExit(crumb(["serve", *sys.argv[3:]]))
    main()
