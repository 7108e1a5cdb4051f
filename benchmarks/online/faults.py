"""crumb serve when things go wrong: what clients saw, what was lost, how long until it was ready again.

python benchmarks/online/faults.py --out benchmarks/results/online_faults.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from client import Load, Outcome
from load import checked, words
from served import Served, table, write_train

from crumb import CrumbOnline
from crumb.files import atomic_write

SABOTAGE = Path(__file__).with_name("sabotage.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--context", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0, help="queries a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each part")
    parser.add_argument("--slow", type=int, default=1_000, help="slow clients")
    parser.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"settings": {k: v for k, v in vars(options).items() if k != "out"}}
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            result[name] = FAULTS[name](options, Path(folder))
        print(name, json.dumps(result[name], indent=1), flush=True)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(result, indent=1).encode())


def prepared(options: argparse.Namespace, folder: Path) -> tuple[list[Any], np.ndarray]:
    write_train(folder / "train.parquet", options.rows)
    return words(folder / "train.parquet", options), table(5_000, 1)[0]


def seen(out: Outcome) -> dict[str, Any]:
    lost = (
        out.sent
        - len(out.rows)
        - out.refused
        - out.broken
        - out.unreachable
        - sum(out.other.values())
    )
    return {
        "requests": out.sent,
        "answers": len(out.rows),
        "refused_503": out.refused,
        "sent_and_cut_off": out.broken,
        "connection_refused": out.unreachable,
        "other_statuses": out.other,
        "without_any_reply": lost,
        "mixed_up_ids": out.mixed_up,
        "latency_ms": out.percentiles(),
    }


def under_load(
    server: Served, queries: np.ndarray, options: argparse.Namespace, meanwhile: Callable[[], Any]
) -> Any:
    """Run something in a thread while queries come; what clients saw, and what the something gave."""
    load = Load(server.url, queries)

    async def go() -> Any:
        await load.poisson(options.rate, 2.0)  # warm
        traffic = asyncio.ensure_future(load.poisson(options.rate, options.seconds))
        await asyncio.sleep(options.seconds / 4)
        found = await asyncio.to_thread(meanwhile)
        await traffic
        load.close()
        return found

    return load.outcome, asyncio.run(go())


def killed(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """kill −9 under load, then a start from the snapshot."""
    chosen, queries = prepared(options, folder)
    state = ["--state", folder / "state", "--snapshot-every", 1, "--keep-plans"]
    refresh = ["--refresh", "periodic", "--refresh-every", 500]
    with Served(*chosen, *state, *refresh, log=folder / "log") as server:
        out, _ = under_load(
            server, queries, options, lambda: server.process.send_signal(signal.SIGKILL)
        )
    answers = checked(out, folder / "train.parquet", queries, options, folder / "state")
    with CrumbOnline.load(folder / "state" / "stream.crumb") as stream:
        version = stream.version
    with Served(*state, log=folder / "log") as again:
        after, _ = under_load(again, queries, options, lambda: None)
        after_check = checked(after, folder / "train.parquet", queries, options, folder / "state")
        ready, status = again.seconds_to_ready, again.stop()
    return {
        "before": {**seen(out), **answers},
        "snapshot_version": version,
        "first_version_after": min(after.versions),
        "seconds_from_start_to_ready": round(ready, 2),
        "after": {**seen(after), **after_check},
        "exit_status": status,
    }


def failed_refresh(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every new plan fails: the old one goes on answering."""
    chosen, queries = prepared(options, folder)
    more = [
        "--refresh",
        "periodic",
        "--refresh-every",
        200,
        "--state",
        folder / "state",
        "--keep-plans",
    ]
    with Served(
        *chosen, *more, log=folder / "log", command=[sys.executable, SABOTAGE, "refresh"]
    ) as server:
        out, _ = under_load(server, queries, options, lambda: None)
        failures, status = server.metrics()["crumb_refresh_failures_total"], server.stop()
    answers = checked(out, folder / "train.parquet", queries, options, folder / "state")
    return {**seen(out), **answers, "refresh_failures": failures, "exit_status": status}


def out_of_memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Passes of one context run out of memory for a while: its queries get 503, the others their answers."""
    chosen, queries = prepared(options, folder)
    fault = folder / "fault"
    os.environ["CRUMB_FAULT"] = str(fault)
    more = ["--state", folder / "state", "--keep-plans"]

    def a_while() -> None:
        fault.touch()
        time.sleep(options.seconds / 4)
        fault.unlink()

    with Served(
        *chosen, *more, log=folder / "log", command=[sys.executable, SABOTAGE, "memory"]
    ) as server:
        out, _ = under_load(server, queries, options, a_while)
        after, _ = under_load(server, queries, options, lambda: None)
        status = server.stop()
    answers = checked(out, folder / "train.parquet", queries, options, folder / "state")
    return {**seen(out), **answers, "afterwards": seen(after), "exit_status": status}


def slow_clients(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Clients that send a byte a second hold connections; the others are answered as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, options.slow + 500)), hard))
    chosen, queries = prepared(options, folder)
    with Served(*chosen, "--deadline", options.seconds / 2, log=folder / "log") as server:
        before, _ = under_load(server, queries, options, lambda: None)
        load = Load(server.url, queries)
        replies: dict[str, int] = {}

        async def crawl() -> None:
            head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
            try:
                reader, writer = await asyncio.open_connection(load.host, load.port)
                writer.write(head)
                answer = asyncio.ensure_future(reader.read(100))
                while not answer.done():
                    writer.write(b" ")
                    await asyncio.wait({answer}, timeout=1)
                said = answer.result()[9:12].decode() or "closed"
                writer.close()
            except OSError as error:
                said = type(error).__name__
            replies[said] = replies.get(said, 0) + 1

        async def go() -> None:
            crawlers = [asyncio.ensure_future(crawl()) for _ in range(options.slow)]
            await asyncio.sleep(1)
            await load.poisson(options.rate, options.seconds)
            await asyncio.gather(*crawlers)
            load.close()

        asyncio.run(go())
        memory, status = server.memory(), server.stop()
    return {
        "slow": options.slow,
        "replies_to_slow": replies,
        "others_without_slow": seen(before),
        "others_beside_slow": seen(load.outcome),
        "memory_mb": round(memory / 1e6, 1),
        "exit_status": status,
    }


def full_disk(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """No file of the service may grow beyond 4 kB for a while: snapshots fail as on a full disk."""
    chosen, queries = prepared(options, folder)
    state = ["--state", folder / "state", "--snapshot-every", 0.5]
    with Served(*chosen, *state, log=folder / "log") as server:
        pid = server.process.pid
        whole = resource.prlimit(pid, resource.RLIMIT_FSIZE)

        def a_while() -> dict[str, Any]:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4_096, whole[1]))
            time.sleep(options.seconds / 2)
            failed = server.metrics()['crumb_snapshots_total{outcome="failed"}']
            with CrumbOnline.load(folder / "state" / "stream.crumb") as stream:
                accepted = stream.stats().accepted  # the last good snapshot can be read
            resource.prlimit(pid, resource.RLIMIT_FSIZE, whole)
            return {"failed_snapshots": failed, "queries_in_the_old_snapshot": accepted}

        out, found = under_load(server, queries, options, a_while)
        time.sleep(2)
        written = server.metrics()['crumb_snapshots_total{outcome="written"}']
        status = server.stop()
    with CrumbOnline.load(folder / "state" / "stream.crumb") as stream:
        answered = stream.stats().answered
    left = [path.name for path in (folder / "state").iterdir() if path.name.endswith(".part")]
    return {
        **seen(out),
        **found,
        "written_snapshots": written,
        "answers_in_the_last_snapshot": answered,
        "leftovers": left,
        "exit_status": status,
    }


FAULTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "kill_9": killed,
    "failed_refresh": failed_refresh,
    "out_of_memory": out_of_memory,
    "slow_clients": slow_clients,
    "full_disk": full_disk,
}

if __name__ == "__main__":
    main()
