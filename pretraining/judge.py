"""Networks compared on the development tables: how often each is better than the first, and by how
much."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from crumb.files import atomic_write
from pretraining import validation
from pretraining.network import build


def scores(path: Path, tables: Path, device: str = "cpu") -> dict[str, float]:
    """The loss of an exported network on every table of its task."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    network = build(content["config"])
    network.load_state_dict({name: w.float() for name, w in content["state_dict"].items()})
    return validation.real(network.to(device).eval(), tables, torch.device(device))


def compare(
    paths: list[Path], tables: Path, device: str, out: Path | None
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for path in paths:
        found[path.stem] = scores(path, tables, device)
        print(against(found[path.stem], found[paths[0].stem], path.stem), flush=True)
        if out is not None:
            with atomic_write(out) as file:
                file.write(json.dumps(found, indent=1).encode())
    return found


def against(new: dict[str, float], old: dict[str, float], name: str) -> str:
    """One line: the tables on which the loss is lower, its mean ratio, and Wilcoxon's p. The tasks
    ``table:target`` of one table count once."""
    by_table: dict[str, list[float]] = {}
    for task in old:
        by_table.setdefault(task.split(":")[0], []).append(math.log(new[task] / old[task]))
    ratios = [sum(some) / len(some) for some in by_table.values()]
    wins, mean = sum(ratio < 0 for ratio in ratios), math.exp(sum(ratios) / len(ratios))
    p = _wilcoxon(ratios) if any(ratios) else 1.0
    return f"{name}: lower on {wins} of {len(ratios)}, {mean:.4f} of the loss, p = {p:.2g}"


def _wilcoxon(differences: list[float]) -> float:
    """Two-sided signed-rank test by its normal limit, so that it needs no scipy."""
    kept = sorted((d for d in differences if d), key=abs)
    n = len(kept)
    above = sum(rank for rank, d in enumerate(kept, 1) if d > 0)
    z = (above - n * (n + 1) / 4) / math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    return math.erfc(abs(z) / math.sqrt(2))
