"""What the benchmarks share: timing, memory, tables, networks and results.

Ways that are compared run in turn, so that a busy machine slows down all of them. Results are JSON:
the settings, the environment, and one record a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import make_blobs

from crumb.files import atomic_write
from pretraining.network import V2_ARCHITECTURE

Record = dict[str, Any]
Result = TypeVar("Result")
DATA = Path(os.environ.get("CRUMB_DATASETS", "../shared/datasets"))  # the folder of real tables
PACKAGES = ("crumb-pfn", "numpy", "pandas", "scipy", "scikit-learn", "torch", "tabicl")


# The command line, and results


def parser(doc: str | None, **counts: int) -> argparse.ArgumentParser:
    """The docstring is the help; each of ``counts`` is an option with its default."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in counts.items():
        made.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    made.add_argument("--out", type=Path, help="where the results go, as JSON")
    return made


def add_data(made: argparse.ArgumentParser, required: bool = False) -> None:
    made.add_argument(
        "--data",
        type=Path,
        default=None if required else DATA,
        help="folder of Parquet files with an index.json",
    )


def asked(
    made: argparse.ArgumentParser, summary: Callable[[list[Record]], str]
) -> argparse.Namespace:
    """The options. ``--report`` prints the summary of results that are there, and that is all."""
    made.add_argument("--report", type=Path, help="print the summary of results that are there")
    options = made.parse_args()
    if options.report is not None:
        print(summary(json.loads(options.report.read_text())["records"]))
        raise SystemExit
    return options


def say(record: Record) -> Record:
    """Print a record as soon as it is there."""
    short = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in record.items()}
    print(json.dumps(short, default=str), flush=True)
    return record


def markdown(rows: Iterable[Collection[Any]], head: Collection[str]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def write(options: argparse.Namespace, records: Any, device: str = "cpu") -> None:
    """The results, where ``--out`` asks for them."""
    if options.out is None:
        return
    # Not where things were on this machine.
    settings = {name: value for name, value in vars(options).items() if not isinstance(value, Path)}
    content = {"settings": settings, "environment": environment(device), "records": records}
    with atomic_write(options.out) as file:
        file.write((json.dumps(content, indent=1, default=str) + "\n").encode())


def environment(device: str = "cpu") -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found |= {"cores": str(os.cpu_count()), "device": device}
    found |= {name: installed(name) for name in PACKAGES}
    if device.startswith("cuda"):
        found["device"] = torch.cuda.get_device_name(device)
    return found


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a bare copy on the path
        return "unknown"


# Time and memory


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What the work gives, and its seconds. A GPU is waited for."""
    _finish()
    started = time.perf_counter()
    result = work()
    _finish()
    return result, time.perf_counter() - started


def processor_timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What the work gives, and the seconds of all cores: what a busy machine changes least."""
    started = time.process_time()
    return work(), time.process_time() - started


def _finish() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def in_turn(
    ways: Mapping[str, Callable[[], Result]], repeats: int, once: Collection[str] = ()
) -> tuple[dict[str, Result], dict[str, list[float]]]:
    """The last result and all seconds of every way; those named in ``once`` run once."""
    results: dict[str, Result] = {}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats):
        for name, way in ways.items():
            if repeat == 0 or name not in once:
                results[name], taken = timed(way)
                seconds[name].append(taken)
    return results, seconds


class PeakMemory:
    """The most memory that was resident while the block ran, from /proc (Linux).

    Of this process, or of it and everything that it started (``family``).
    """

    def __init__(self, family: bool = False, every: float = 0.01):
        self.family, self.every, self.over = family, every, threading.Event()

    def __enter__(self) -> PeakMemory:
        self.start = self.peak = self._now()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.peak = max(self.peak, self._now())

    def _watch(self) -> None:
        while not self.over.wait(self.every):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        return sum(map(resident_bytes, family(os.getpid()) if self.family else [os.getpid()]))


def resident_bytes(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def family(root: int) -> set[int]:
    """A process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:  # it has just ended
            continue
        if stat:
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, more = {root}, {root}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found


def in_own_process(work: Callable[..., Result], *words: Any) -> Result:
    """Run ``work``, a function of the script, where nothing ran before."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *words).result()


# Tables


def standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def blobs(rows: int, columns: int, centres: int, seed: int = 0, **more: Any) -> np.ndarray:
    return make_blobs(rows, columns, centers=centres, random_state=seed, **more)[0]


GROUPS, GROUP_COLUMNS, TARGET = 200, 20, "target"
NAMES = [f"x{j:02d}" for j in range(GROUP_COLUMNS)]


def grouped_rows(part: int, count: int) -> pd.DataFrame:
    """Rows of 200 Gaussian groups of different widths, with a target; part by part the same."""
    rng = np.random.default_rng(7)
    weights = rng.dirichlet(np.full(GROUPS, 2.0))
    centres = rng.normal(scale=2.0, size=(GROUPS, GROUP_COLUMNS))
    widths = rng.uniform(0.5, 1.5, GROUPS)
    rng = np.random.default_rng([11, part])
    group = rng.choice(GROUPS, count, p=weights)
    points = rng.standard_normal((count, GROUP_COLUMNS)) * widths[group, None] + centres[group]
    label = (group % 3 + (points[:, 0] > 0)) % 3
    return pd.DataFrame(points, columns=NAMES).assign(**{TARGET: label.astype(np.int8)})


def grouped_queries(count: int) -> pd.DataFrame:
    """Rows of the same kind that are in no part, without a target."""
    return grouped_rows(1 << 30, count)[NAMES]


def write_grouped(folder: Path, rows: int) -> Path:
    """The table in Parquet under ``folder``, a million rows a file; an existing one is kept."""
    target, part_rows = folder / f"rows-{rows}", 1_000_000
    if target.exists():
        return target
    unfinished = folder / f"unfinished-{rows}"
    unfinished.mkdir(parents=True, exist_ok=True)
    for part, start in enumerate(range(0, rows, part_rows)):
        grouped_rows(part, min(part_rows, rows - start)).to_parquet(
            unfinished / f"part-{part:05d}.parquet", row_group_size=250_000, index=False
        )
    return unfinished.rename(target)


def index(folder: Path) -> dict[str, Record]:
    """What the folder's index.json says of each table: name, file, task, target, …"""
    return {entry["name"]: entry for entry in json.loads((folder / "index.json").read_text())}


def read_table(folder: Path, about: Record) -> tuple[pd.DataFrame, pd.Series]:
    """Features and target, of the rows that have a target."""
    table = pd.read_parquet(folder / about["file"])
    table = table[table[about["target"]].notna()].reset_index(drop=True)
    return table.drop(columns=about["target"]), table[about["target"]]


# Networks

OFFICIAL_SIZE: dict[str, Any] = {
    **V2_ARCHITECTURE,
    "max_classes": 10,
    "num_quantiles": 999,
    "embed_dim": 128,
    "col_num_blocks": 3,
    "col_nhead": 8,
    "col_num_inds": 128,
    "row_num_blocks": 3,
    "row_nhead": 8,
    "row_num_cls": 4,
    "icl_num_blocks": 12,
    "icl_nhead": 8,
    "ff_factor": 2,
    "bias_free_ln": False,
    "zero_init": False,  # otherwise a network without training answers a constant
}


def write_network(folder: str | Path, **changes: Any) -> Path:
    """A TabICLv2 network of the official size with random weights, which cost the same."""
    from tabicl._model.tabicl import TabICL

    torch.manual_seed(0)
    config = {**OFFICIAL_SIZE, **changes}
    path = Path(folder) / "network.ckpt"
    torch.save({"config": config, "state_dict": TabICL(**config).state_dict()}, path)
    return path


# The package's own defaults, unless said otherwise: they give files of the released sizes.
TABPFN_SIZES: dict[str, dict[str, Any]] = {
    "v2": {"emsize": 192, "nlayers": 12, "nhead": 6, "features_per_group": 2},
    "v2.5": {},
    "v2.6": {},
    "v3": {},
    "v3.5": {},
}
TABPFN_V1 = {"emsize": 512, "nhead": 4, "nlayers": 12, "nhid_factor": 2, "dropout": 0.0}
TABPFN_V1 |= {"num_features": 100, "max_num_classes": 10}


def official_sizes(folder: str | Path) -> dict[str, str]:
    """Classifiers of the official sizes, as far as they are known, with random weights."""
    from crumb.pfn.tabpfn_v1 import Network

    folder = Path(folder)
    weights = {f"module.{name}": one for name, one in Network(TABPFN_V1).state_dict().items()}
    torch.save((weights, None, TABPFN_V1), folder / "tabpfn-v1.cpkt")
    made = {"tabicl-v2": str(write_network(folder)), "tabpfn-v1": str(folder / "tabpfn-v1.cpkt")}
    return made | {f"tabpfn-{one}": str(_tabpfn(folder, one)) for one in TABPFN_SIZES}


def _tabpfn(folder: Path, version: str) -> Path:
    from tabpfn.architectures import ARCHITECTURES
    from tabpfn.constants import ModelVersion
    from tabpfn.inference_config import InferenceConfig

    name = "tabpfn_" + version.replace(".", "_")
    heads = {"max_num_classes": 10} | ({"num_buckets": 5_000} if version == "v3.5" else {})
    config = ARCHITECTURES[name].parse_config({**TABPFN_SIZES[version], **heads})[0]
    how = asdict(InferenceConfig.get_default("multiclass", ModelVersion.V2_5))
    about = {"architecture_name": name, "config": asdict(config), "inference_config": how}
    about["state_dict"] = ARCHITECTURES[name].get_architecture(config).state_dict()
    torch.save(about, folder / f"{name}.ckpt")
    return folder / f"{name}.ckpt"
