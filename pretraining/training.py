"""The training loop: draw tables, learn from them, write down how it goes, stop when the minutes are over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from crumb.devices import resolve_device
from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.checkpoint import checksum, read_checkpoint
from pretraining import STEPS, state
from pretraining.curriculum import Curriculum, curriculum
from pretraining.draw import Draw
from pretraining.network import build, configuration
from pretraining.optimiser import Optimiser
from pretraining.prior import Batch, Shape, sample
from pretraining.state import Progress
from pretraining.step import EagerSteps, RecordedSteps, compiled_block, loss_of
from crumb.progress import progress_bar

LOG_SECONDS, SAVE_SECONDS = 10.0, 120.0
VALIDATION_SHAPES, VALIDATION_SEED = 8, 9_999_991  # of every stage; tables that no step draws


class Training:
    """A run in a folder: created there, with fresh weights or those of a checkpoint, or taken up where it was left."""

    def __init__(
        self,
        folder: Path,
        task: str,
        size: str = "small",
        steps: int = STEPS,
        seed: int = 0,
        device: str = "cpu",
        start: Path | None = None,
    ):
        if steps < 1 or seed < 0:
            raise InvalidInput(f"A run needs at least one step and a seed from 0 on, got {steps} and {seed}.")
        self.folder, self.device = folder, torch.device(resolve_device(device))
        asked = Progress(task, size, seed, steps, configuration(task, size), checksum(start) if start else None)
        kept = state.load(folder)
        self.progress = asked if kept is None else _same_run(kept[0], asked, folder)
        self.network = build(self.progress.config, seed)
        if kept is None and start is not None:
            self.network.load_state_dict(_weights_of(start, asked))
        self.optimiser = Optimiser(self.network.to(self.device).parameters())
        if kept is not None:
            self._load(kept[1])
        self.curriculum: Curriculum = curriculum(size, steps, continued=self.progress.start is not None)
        self.shapes = self.curriculum.shapes(seed, self.network.row_num_cls)
        self.do_step = EagerSteps(self.network, self.optimiser)
        if self.device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(False)  # it fails in the backward pass at these shapes
            torch.backends.cuda.matmul.allow_tf32 = False  # the cells enter in float32
            self.do_step = RecordedSteps(self.network, self.optimiser, block=compiled_block())

    def _load(self, tensors: dict[str, Tensor]) -> None:
        try:
            self.network.load_state_dict(_named("w.", tensors))
            self.optimiser.load(_named("o.", tensors))
        except (RuntimeError, KeyError) as error:
            raise InvalidCheckpoint(
                f"The training state in {self.folder} is incomplete: start in a new folder."
            ) from error

    def run(self, minutes: float, verbose: bool = False) -> Progress:
        """Train until the schedule or the minutes are over, whichever is first; the state is kept either way."""
        if self.progress.step == 0:
            self.save()  # a folder that cannot be written to shows before the work, not after it
        self.progress.pieces += 1
        self.progress.devices.append(_name(self.device))
        with (
            interrupts_wait() as interrupted,
            progress_bar(self.progress.steps - self.progress.step, self.progress.task, verbose) as advance,
        ):
            self._run(minutes, advance, interrupted)
        return self.progress

    def _run(self, minutes: float, advance: Callable[[int], object], interrupted: Callable[[], bool]) -> None:
        progress, losses = self.progress, []
        started = logged = saved = time.monotonic()
        before = progress.seconds
        for step, shape, batch in self._batches(progress.step):
            losses.append(self.do_step(shape, batch, self.curriculum.rate_at(step)))
            progress.step = step + 1
            progress.tables += shape.tables
            progress.cells += shape.tables * shape.rows * shape.features
            advance(1)
            now = time.monotonic()
            progress.seconds = before + now - started
            last = progress.step == progress.steps or now - started > 60 * minutes or interrupted()
            keep = last or now - saved > SAVE_SECONDS
            if keep or now - logged > LOG_SECONDS:
                self._log(losses, validate=keep)
                losses, logged = [], time.monotonic()
            if keep:
                self.save()
                saved = time.monotonic()
            if last:
                return

    def save(self) -> None:
        tensors = {f"w.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"o.{name}": tensor for name, tensor in self.optimiser.state().items()}
        state.save(self.folder, self.progress, tensors)

    def export(self, path: Path) -> None:
        state.export(path, self.progress.config, self.network.state_dict())

    @torch.no_grad()
    def validation(self) -> list[float]:
        """The loss on held-out synthetic tables, stage by stage."""
        losses = []
        for number, shapes in enumerate(self.shapes):
            total = 0.0
            for i, shape in enumerate(shapes[:VALIDATION_SHAPES]):
                batch = sample(self.progress.task, shape, Draw(self.device, VALIDATION_SEED, number, i))
                total += float(loss_of(self.network, batch, self.do_step.dtype)) / len(shapes[:VALIDATION_SHAPES])
            losses.append(total)
        return losses

    def _batches(self, first: int) -> Iterator[tuple[int, Shape, Batch]]:
        """Step, shape and tables from a step on. On a GPU the next tables are drawn while the last are learnt from."""
        stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        ahead = self._tables(first, stream) if first < self.progress.steps else None
        for step in range(first, self.progress.steps):
            assert ahead is not None
            shape, batch = ahead
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
            yield step, shape, batch
            if step + 1 < self.progress.steps:
                ahead = self._tables(step + 1, stream)

    def _tables(self, step: int, stream: torch.cuda.Stream | None) -> tuple[Shape, Batch]:
        seed = self.progress.seed
        shape = self.curriculum.shape_at(step, seed, self.shapes)
        with torch.cuda.stream(stream):
            batch = sample(self.progress.task, shape, Draw(self.device, seed, 3, step))
        if stream is not None:  # the host runs ahead: this memory may not be reused before the step has read it
            for tensor in (batch.X, batch.y, batch.weight):
                tensor.record_stream(torch.cuda.current_stream())
        return shape, batch

    def _log(self, losses: list[Tensor], validate: bool) -> None:
        progress = self.progress
        entry = {
            "step": progress.step,
            "tables": progress.tables,
            "seconds": round(progress.seconds, 1),
            "rate": float(f"{self.curriculum.rate_at(progress.step):.3g}"),
            "loss": round(float(torch.stack(losses).nanmean()), 5),
        }
        if validate:
            for number, loss in enumerate(self.validation()):
                entry[f"validation_{number}"] = round(loss, 5)
        progress.log.append(entry)


def _same_run(kept: Progress, asked: Progress, folder: Path) -> Progress:
    """A run goes on as it began; where it started from need not be said again."""
    names = ("task", "size", "seed", "steps", "start") if asked.start else ("task", "size", "seed", "steps")
    differ = [name for name in names if getattr(kept, name) != getattr(asked, name)]
    if differ:
        found = ", ".join(f"{name} = {getattr(kept, name)}" for name in differ)
        raise InvalidInput(f"The state in {folder} is of another run ({found}): give the same, or another folder.")
    return kept


def _weights_of(path: Path, asked: Progress) -> dict[str, Tensor]:
    checkpoint = read_checkpoint(path)
    if checkpoint.config != asked.config:
        raise InvalidCheckpoint(f"{path} is not a {asked.size} network for {asked.task}: start from one that is.")
    return checkpoint.state_dict


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


@contextmanager
def interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted, asked for between two steps, and raised at the end: a step is done whole or not at all."""
    seen: list[int] = []
    try:
        before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    except ValueError:  # not the main thread, which alone gets signals
        yield lambda: False
        return
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
