"""Variants compared: each learns for the same seconds, from the same seed.

A run is a process of its own. Several are alive at a time, so that some prepare while another
learns. A lock makes sure that only one learns or is judged. Preparing is not counted, but it takes
some of the GPU from the run that learns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from crumb.files import atomic_write
from pretraining import validation
from pretraining.training import Training
from pretraining.turns import alone

JUDGED = 3  # times in a run that the held-out tables are looked at
WAIT = 0.2  # seconds


def one(
    run: str, size: str, seconds: float, device: str, tables: Path | None, lock: Path
) -> dict[str, Any]:
    """One run."""
    variant, task, seed = named(run)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), task, size, variant, seed, device)
        training.prepare()
        training.validation()
        ready = time.monotonic()
        with alone(lock):
            waited = time.monotonic() - ready
            curve = _trained(training, seconds, tables)
    progress = training.progress
    return {
        "run": run,
        "parameters": sum(p.numel() for p in training.network.parameters()),
        "steps": progress.step,
        "tables": progress.tables,
        "seconds": round(progress.seconds, 2),
        "ready_after": round(ready - began, 1),
        "waited": round(waited, 1),
        "curve": curve,
        "final": curve[-1],
    }


def _trained(training: Training, seconds: float, tables: Path | None) -> list[dict[str, Any]]:
    """Steps for this long, judged at equal distances; the judging does not count."""
    progress = training.progress
    curve: list[dict[str, Any]] = []
    losses: list[torch.Tensor] = []
    started, paused = time.monotonic(), 0.0
    for step, shape, batch in training.batches(0):
        losses.append(training.do_step(shape, batch, training.curriculum.rate_at(step)))
        training.count(step, shape)
        if step % 10 == 9:
            losses[-1].item()  # the host runs ahead: wait, so that the clock is the GPU's
        progress.seconds = time.monotonic() - started - paused
        if progress.seconds < seconds * (len(curve) + 1) / JUDGED:
            continue
        losses[-1].item()
        progress.seconds = time.monotonic() - started - paused
        pause = time.monotonic()
        loss = float(torch.stack(losses).nanmean())
        curve.append(
            {"seconds": round(progress.seconds, 2), "step": progress.step, "loss": round(loss, 5)}
        )
        curve[-1] |= judged(training, tables if len(curve) == JUDGED else None)
        losses = []
        paused += time.monotonic() - pause
        if len(curve) == JUDGED:
            break
    return curve


def judged(training: Training, tables: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for averaged, name in ((False, "raw"), (True, "average")):
        held_out = training.validation(averaged)
        with training.weights(averaged):
            real = validation.real(training.network, tables, training.device) if tables else {}
        found[name] = {key: round(value, 5) for key, value in {**held_out, **real}.items()}
    return found


def many(
    runs: list[str], jobs: int, minutes: float, out: Path, arguments: list[str]
) -> dict[str, Any]:
    """All runs, some at a time; what is done when the minutes are over is kept."""
    deadline = time.monotonic() + 60 * minutes
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        alive: dict[str, subprocess.Popen[bytes]] = {}
        waiting = list(runs)
        try:
            while (waiting or alive) and time.monotonic() < deadline:
                while waiting and len(alive) < jobs:
                    run = waiting.pop(0)
                    alive[run] = _started(run, Path(folder), arguments)
                for run in [run for run, process in alive.items() if process.poll() is not None]:
                    results[run] = _result(run, alive.pop(run).returncode, Path(folder))
                    _write(out, results)
                time.sleep(WAIT)
        finally:
            for run, process in alive.items():
                process.kill()
                process.wait()
                results[run] = {"run": run, "error": "the minutes were over"}
            for run in waiting:
                results[run] = {"run": run, "error": "not started"}
            _write(out, results)
    return results


def _file(run: str, folder: Path) -> Path:
    return folder / (run.replace("/", "-") + ".json")


def _started(run: str, folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    print(f"{time.strftime('%H:%M:%S')} {run} starts", flush=True)
    command = [sys.executable, "-m", "pretraining", "ablate", run, "--one", *arguments]
    files = ["--out", str(_file(run, folder)), "--lock", str(folder / "lock")]
    return subprocess.Popen([*command, *files])


def _result(run: str, code: int, folder: Path) -> dict[str, Any]:
    path = _file(run, folder)
    found: dict[str, Any] = {"run": run, "error": f"exit status {code}"}
    if path.exists():
        found = json.loads(path.read_text())
    said = found.get("error") or f"{found['steps']} steps, mean {found['final']['average']['mean']}"
    print(f"{time.strftime('%H:%M:%S')} {run}: {said}", flush=True)
    return found


def _write(out: Path, results: dict[str, Any]) -> None:
    with atomic_write(out) as file:
        file.write(json.dumps(results, indent=1).encode())


def named(run: str) -> tuple[str, str, int]:
    """``variant/task@seed``; the task is classification and the seed 0 unless it says so."""
    rest, _, seed = run.partition("@")
    variant, _, task = rest.partition("/")
    return variant, task or "classification", int(seed or 0)


def table(results: dict[str, Any]) -> str:
    """The final losses of the averaged weights, a line a run."""
    lines = []
    for task in ("classification", "regression"):
        done = [r for r in results.values() if "final" in r and named(r["run"])[1] == task]
        if not done:
            continue
        names = list(done[0]["final"]["average"])
        head = ["ms/step", "steps", "raw mean", *names]
        lines.append(f"{task:24}" + " ".join(f"{name[:11]:>11}" for name in head))
        for result in done:
            final = result["final"]
            numbers = [
                1e3 * result["seconds"] / result["steps"],
                result["steps"],
                final["raw"]["mean"],
            ]
            numbers += [final["average"][name] for name in names]
            lines.append(f"{result['run']:24}" + " ".join(f"{number:11.4f}" for number in numbers))
    failed = [f"{r['run']}: {r['error']}" for r in results.values() if "error" in r]
    return "\n".join(lines + failed)
