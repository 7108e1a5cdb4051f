"""TabPFN contexts that share a pass against one at a time, with random weights, which do not change the cost.

    python benchmarks/shared_passes.py                    # a middling network on the CPU
    python benchmarks/shared_passes.py --device cuda --embedding 192 --layers 12 --heads 6 --contexts 100

The two take turns, so that a busy machine slows down both. Fitting of the package's preprocessing is part of a pass.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tabpfn.architectures import tabpfn_v2

from crumb.pfn.base import BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import read_checkpoint
from crumb.pfn.tabpfn import TabPFNBackend


class Shared(TabPFNBackend):
    batched = True


class Alone(TabPFNBackend):
    batched = False


def write_network(path: Path, options: argparse.Namespace) -> Path:
    config = tabpfn_v2.TabPFNV2Config(
        emsize=options.embedding,
        nlayers=options.layers,
        nhead=options.heads,
        features_per_group=2,
        max_num_classes=10,
        seed=42,
    )
    torch.manual_seed(0)
    network = tabpfn_v2.get_architecture(config)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim >= 2:
                weight.normal_(std=0.05)  # some are zero in a new network
    torch.save({"config": asdict(config), "state_dict": network.state_dict()}, path)
    return path


def draw_tasks(options: argparse.Namespace) -> list[ContextTask]:
    rng = np.random.default_rng(0)
    shape = options.contexts, options.rows + options.queries, options.features
    return [
        ContextTask(table[: options.rows], np.arange(options.rows) % 3, table[options.rows :])
        for table in rng.normal(size=shape)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--members", type=int, default=1)
    for name, value in {"embedding": 96, "layers": 6, "heads": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in {
        "contexts": 16,
        "rows": 300,
        "queries": 50,
        "features": 10,
        "repeats": 3,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    tasks = draw_tasks(options)
    settings = BackendSettings(options.members, {}, options.device, 0, options.threads)
    fastest: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = read_checkpoint(write_network(Path(folder) / "network.ckpt", options))
        backends = [
            kind(kind.__name__.lower(), checkpoint, None, settings) for kind in (Alone, Shared)
        ]
        answers = {
            one.name: list(one.predict_contexts(tasks, Output("proba"))) for one in backends
        }  # and a warm-up
        for _ in range(options.repeats):
            for one in backends:
                started = time.perf_counter()
                list(one.predict_contexts(tasks, Output("proba")))
                fastest[one.name] = min(
                    time.perf_counter() - started, fastest.get(one.name, np.inf)
                )
    apart = np.abs(np.stack(answers["alone"]) - np.stack(answers["shared"])).max()
    for name, seconds in fastest.items():
        print(
            f"{name}: {seconds:.2f} s for {len(tasks)} contexts, {1000 * seconds / len(tasks):.1f} ms each"
        )
    print(
        f"{fastest['alone'] / fastest['shared']:.2f} times as fast together; probabilities differ by {apart:.1e}"
    )


if __name__ == "__main__":
    main()
