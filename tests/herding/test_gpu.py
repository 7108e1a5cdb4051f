"""gpu.py: the Triton kernels, interpreted on the CPU where there is no GPU, against brute force.

Triton decides when it is imported whether it compiles or interprets, so the interpreter runs in a
process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from crumb import select_contexts
from crumb.selection.strategies import runs_on

pytest.importorskip("triton", reason="Triton comes for Linux only")

INTERPRETED = """
import numpy as np, torch
import brute_force
from crumb.herding.gpu import GpuObjective
from crumb.herding.greedy import EarlyStopping, herd
from crumb.herding.greedy import Rbf
from crumb.herding.greedy import Clusters, ExactObjective

def problem(rows, columns, queries, clusters, seed):
    rng = np.random.default_rng(seed)
    pool, asked = rng.normal(size=(rows, columns)), rng.normal(size=(queries, columns)) * 0.7
    labels = np.concatenate([np.arange(clusters), rng.integers(clusters, size=queries - clusters)])
    pool, asked, labels = map(torch.from_numpy, (pool, asked, labels))
    return Rbf(0.8 * columns**0.5), pool, Clusters(asked, labels)

def on_gpu(kernel, pool, clusters):
    return GpuObjective(kernel, pool.float(), Clusters(clusters.queries.float(), clusters.labels))

shapes = [(300, 5, 40, 3), (129, 70, 90, 2), (128, 1, 5, 1), (260, 16, 70, 17), (140, 4, 90, 70),
          (130, 1100, 12, 2)]
for shape in shapes:
    kernel, pool, clusters = problem(*shape, seed=shape[0])
    queries, labels = clusters.queries, clusters.labels
    width = on_gpu(kernel, pool, clusters).by_column.shape[0]  # few: each has kernels of its own
    assert width in (16, 128, 1152), shape
    exact = ExactObjective(kernel, pool, clusters).cross
    assert (on_gpu(kernel, pool, clusters).cross - exact).abs().max() < 1e-6, shape
    ours = herd(on_gpu(kernel, pool, clusters), 9)
    theirs = herd(ExactObjective(kernel, pool, clusters), 9)
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.indices.tolist() == b.indices.tolist(), shape
        assert np.abs(a.mmd2 - b.mmd2).max() < 1e-6
        members = queries[labels == k].numpy()
        assert a.indices.tolist() == brute_force.greedy(pool.numpy(), members, 9, kernel.sigma)

task = problem(40, 3, 30, 2, seed=1)
everything = herd(on_gpu(*task), 40)
assert all(sorted(context.indices.tolist()) == list(range(40)) for context in everything)

# Clusters that converge leave the loop one by one, and the others choose as before.
class Counted(GpuObjective):
    rows = checks = 0
    def choose(self, count, t):
        self.rows += self.n_clusters
        return super().choose(count, t)
    def mmd2(self, chosen):
        self.checks += 1
        return super().mmd2(chosen)

kernel, pool, clusters = problem(150, 3, 200, 40, seed=3)
rule = EarlyStopping(every=4, warm_up=4, tolerance=0.3, patience=1)
ours = Counted(kernel, pool.float(), Clusters(clusters.queries.float(), clusters.labels))
stopped = herd(ours, 60, early_stopping=rule)
expected = herd(ExactObjective(kernel, pool, clusters), 60, early_stopping=rule)
assert [c.indices.tolist() for c in stopped] == [c.indices.tolist() for c in expected]
assert [c.stop_reason for c in stopped] == [c.stop_reason for c in expected]
sizes = [len(c.indices) for c in stopped]
assert len(set(sizes)) > 2 and max(sizes) < 60, sizes
assert ours.rows == sum(sizes) and ours.checks == max(sizes) / 4
print("all the same")
"""


def test_interpreted_kernels_make_the_choices_of_the_brute_force() -> None:
    folder = os.path.dirname(os.path.dirname(__file__))
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
    }
    run = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == "all the same", run.stderr


def test_only_on_a_gpu() -> None:
    assert not runs_on(torch.zeros(3, 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_compiled_kernels_choose_as_well_as_torch() -> None:
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(20_000, 12)), rng.normal(size=(400, 12))
    gpu, cpu = (
        select_contexts(pool, queries, context_size=200, kernel="exact", device=device)
        for device in ("cuda", "cpu")
    )
    mmd2 = [np.mean([trace[-1] for trace in plan.mmd2]) for plan in (gpu, cpu)]
    assert mmd2[0] == pytest.approx(mmd2[1], rel=0.02)
    assert (
        np.mean(
            [
                a[:20].tolist() == b[:20].tolist()
                for a, b in zip(gpu.contexts, cpu.contexts, strict=True)
            ]
        )
        > 0.9
    )
