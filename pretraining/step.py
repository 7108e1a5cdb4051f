"""One step of the training: loss and gradients of a batch, then the optimiser. On a GPU, recorded
once per shape.

At these widths a step is some 2,000 kernels of a few microseconds; launched one by one they keep
the host busy for many times longer than the GPU. A recorded step is launched as one. The tables of
the next step are drawn meanwhile, on a stream of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from crumb.pfn.forward import Block, attention_block, forward
from crumb.pfn.tabicl_package import TabICL
from pretraining.network import TEMPERATURE
from pretraining.optimiser import Optimiser
from pretraining.prior import Batch, Shape


def loss_of(
    network: TabICL,
    batch: Batch,
    dtype: torch.dtype,
    block: Block = attention_block,
    even: float = 0.0,
) -> Tensor:
    """Cross-entropy, or the pinball loss averaged over the quantiles, of the queries of a batch.

    ``even``: the mean over tables of the logarithm of their loss and this much. An error of a tenth
    then counts alike where a table can be told almost exactly and where it is mostly noise.
    """
    losses = _query_losses(network, batch, dtype, block) * batch.weight
    if not even:
        return losses.sum()
    weight = batch.weight.sum(1)  # (B,)
    return (weight * torch.log(losses.sum(1) / weight.clamp_min(1e-12) + even)).sum()


def _query_losses(network: TabICL, batch: Batch, dtype: torch.dtype, block: Block) -> Tensor:
    """(B, n − t)"""
    train = batch.y.shape[1] - batch.weight.shape[1]
    answer = forward(network, batch.X, batch.y[:, :train], dtype, block)
    y = batch.y[:, train:]
    if network.max_classes > 0:
        return F.cross_entropy((answer / TEMPERATURE).mT, y.long(), reduction="none")
    level = torch.linspace(0, 1, network.num_quantiles + 2, device=y.device)[1:-1]
    error = y.unsqueeze(-1) - answer
    return torch.maximum(level * error, (level - 1) * error).mean(-1)


def compiled_block(backend: str | Callable[..., object] = "inductor") -> Block:
    """``attention_block`` with its many small operations fused, for tables of any shape.

    One compilation takes ten seconds, so every kind of call should need one only.
    """
    import torch._dynamo.config as compiler
    import torch.fx.experimental._config as shapes

    # Few are needed. Past the limit the compiler would fall back without a word.
    compiler.recompile_limit = 64
    shapes.use_duck_shape = False  # two sizes that are equal once need not be equal for good
    return torch.compile(attention_block, dynamic=True, backend=backend)


class EagerSteps:
    """Steps launched kernel by kernel: on a CPU, and as the reference for the recorded ones."""

    def __init__(
        self,
        network: TabICL,
        optimiser: Optimiser,
        dtype: torch.dtype = torch.float32,
        block: Block = attention_block,
        even: float = 0.0,
    ):
        self.network, self.optimiser, self.dtype, self.block = network, optimiser, dtype, block
        self.even = even

    def __call__(self, shape: Shape, batch: Batch, rate: float) -> Tensor:
        self.optimiser.rate.fill_(rate)
        loss = self._backward(batch)
        self.optimiser.step()
        return loss

    def prepare(self, batches: Iterable[tuple[Shape, Batch]]) -> None:
        """Nothing is recorded here."""

    def _backward(self, batch: Batch) -> Tensor:
        self.optimiser.gradients.zero_()
        loss = loss_of(self.network, batch, self.dtype, self.block, self.even)
        loss.backward()
        return loss.detach()


class RecordedSteps(EagerSteps):
    """Steps replayed from CUDA graphs: one for each shape, one for the optimiser, in memory that
    they share."""

    def __init__(
        self,
        network: TabICL,
        optimiser: Optimiser,
        dtype: torch.dtype = torch.bfloat16,
        block: Block = attention_block,
        even: float = 0.0,
    ):
        super().__init__(network, optimiser, dtype, block, even)
        self.pool = torch.cuda.graph_pool_handle()
        self.recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Batch, Tensor]] = {}
        self.update: torch.cuda.CUDAGraph | None = None

    def __call__(self, shape: Shape, batch: Batch, rate: float) -> Tensor:
        if shape not in self.recorded:
            self._record(shape, batch)
        graph, slot, loss = self.recorded[shape]
        for name in ("X", "y", "weight"):
            getattr(slot, name).copy_(getattr(batch, name))
        graph.replay()
        self.optimiser.rate.fill_(rate)
        if self.update is None:
            self.update = self._record_update()
        else:
            self.update.replay()
        return loss.clone()

    def prepare(self, batches: Iterable[tuple[Shape, Batch]]) -> None:
        """Compile and record everything beforehand; nothing is learnt."""
        began = time.monotonic()
        for shape, batch in batches:
            self._record(shape, batch)
            print(f"{time.monotonic() - began:5.0f} s: {shape}", flush=True)
        with self.optimiser.unchanged():
            self.optimiser.rate.zero_()
            self.update = self._record_update()

    def _record(self, shape: Shape, batch: Batch) -> None:
        slot = Batch(batch.X.clone(), batch.y.clone(), batch.weight.clone())
        self._apart(lambda: self._backward(slot))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            loss = self._backward(slot)
        self.recorded[shape] = graph, slot, loss

    def _record_update(self) -> torch.cuda.CUDAGraph:
        """The update is done once on the way, so that nothing is set up during the recording."""
        self._apart(self.optimiser.step)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.optimiser.step()
        return graph

    @staticmethod
    def _apart(work: Callable[[], object]) -> None:
        """Run on another stream, as the recording will: libraries set up their workspaces per
        stream."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
