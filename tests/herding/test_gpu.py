"""gpu_herding.py: the Triton kernels, interpreted on the CPU where there is no GPU, against herding in torch.

Triton decides when it is imported whether it compiles or interprets, so the interpreter runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from crumb import select_contexts
from crumb.selection.mmd import MOST_COLUMNS, runs_on

pytest.importorskip("triton", reason="Triton comes for Linux only")

INTERPRETED = """
import numpy as np, torch
import brute_force
from crumb.herding.gpu import cross_terms_on_gpu, herd_on_gpu
from crumb.herding.greedy import EarlyStopping, herd
from crumb.herding.kernel import Rbf, norms
from crumb.herding.objective import ExactObjective, cross_terms

def problem(rows, columns, queries, clusters, seed):
    rng = np.random.default_rng(seed)
    pool, asked = rng.normal(size=(rows, columns)), rng.normal(size=(queries, columns)) * 0.7
    labels = torch.from_numpy(np.concatenate([np.arange(clusters), rng.integers(clusters, size=queries - clusters)]))
    return Rbf(0.8 * columns**0.5), torch.from_numpy(pool), torch.from_numpy(asked), labels

for shape in [(300, 5, 40, 3), (129, 70, 90, 2), (128, 1, 5, 1), (260, 16, 70, 17), (140, 4, 90, 70)]:
    kernel, pool, queries, labels = problem(*shape, seed=shape[0])
    single = pool.float()
    cross = cross_terms_on_gpu(kernel, single.T.contiguous(), norms(single), queries.float(), labels, shape[3])
    exact = cross_terms(kernel, pool, queries, labels, shape[3])
    assert (cross - exact).abs().max() < 1e-6, shape
    ours = herd_on_gpu(kernel, single, queries.float(), labels, 9)
    theirs = herd(ExactObjective(kernel, pool, queries, labels, shape[3]), 9)
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.indices.tolist() == b.indices.tolist(), shape
        assert np.abs(a.mmd2 - b.mmd2).max() < 1e-6
        members = queries[labels == k].numpy()
        assert a.indices.tolist() == brute_force.greedy(pool.numpy(), members, 9, kernel.sigma)

kernel, pool, queries, labels = problem(40, 3, 30, 2, seed=1)
everything = herd_on_gpu(kernel, pool.float(), queries.float(), labels, 40)
assert all(sorted(context.indices.tolist()) == list(range(40)) for context in everything)

rule, done = EarlyStopping(every=2, warm_up=4, tolerance=0.5, patience=1), []
stopped = herd_on_gpu(kernel, pool.float(), queries.float(), labels, 30, rule, done.append)
expected = herd(ExactObjective(kernel, pool, queries, labels, 2), 30, early_stopping=rule)
assert [c.indices.tolist() for c in stopped] == [c.indices.tolist() for c in expected]
assert [c.stop_reason for c in stopped] == [c.stop_reason for c in expected] == ["converged"] * 2
assert sum(done) == 30
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


def test_only_a_gpu_and_not_too_many_columns() -> None:
    assert not runs_on(torch.zeros(3, 2))
    assert MOST_COLUMNS >= 1_000


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
