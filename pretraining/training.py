"""The training loop: draw tables, learn from them, write down how it goes, stop when the minutes
are over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.machine import progress_bar, resolve_device
from crumb.pfn.forward import attention_block
from pretraining import state, validation
from pretraining.curriculum import CoolDown, Curriculum, curriculum
from pretraining.draw import Draw
from pretraining.network import build, configuration, fade
from pretraining.optimiser import Optimiser
from pretraining.prior import Batch, Shape, sample
from pretraining.recipe import RECIPES
from pretraining.state import Progress
from pretraining.step import EagerSteps, RecordedSteps, compiled_block
from pretraining.variants import CHOSEN, VARIANTS

LOG_SECONDS, SAVE_SECONDS = 10.0, 60.0


class Training:
    """A run in a folder: created there, or taken up where it was left."""

    def __init__(
        self,
        folder: Path,
        task: str,
        size: str = "small",
        variant: str = CHOSEN,
        seed: int = 0,
        device: str = "cpu",
        start: Path | None = None,
        compiled: bool = True,
    ):
        if seed < 0 or variant not in VARIANTS:
            raise InvalidInput(
                f"A run needs a seed from 0 on and a known variant, got {seed} and {variant!r}."
            )
        self.folder, self.device = folder, torch.device(resolve_device(device))
        self.variant = VARIANTS[variant]
        widths = {} if size == "smoke" else self.variant.widths
        config = configuration(task, size, widths, self.variant.parts)
        asked = Progress(task, size, variant, seed, config)
        kept = state.load(folder)
        self.progress = asked if kept is None else _same_run(kept[0], asked, folder)
        self.network = build(self.progress.config, seed)
        pace = fade(self.network, self.variant.fade) if self.variant.fade != 1 else None
        self.optimiser = Optimiser(self.network.to(self.device), pace)
        if kept is not None:
            self._load(kept[1])
        elif start is not None:
            self.network.load_state_dict(state.start(start, self.progress))
            self.optimiser.average.copy_(self.optimiser.values)
        self.curriculum = self._curriculum()
        self.shapes = self.curriculum.shapes(seed, self.network.row_num_cls)
        self.do_step = EagerSteps(self.network, self.optimiser, even=self.variant.even)
        if self.device.type == "cuda":
            # cuDNN's attention fails in the backward pass at these shapes.
            torch.backends.cuda.enable_cudnn_sdp(False)
            torch.backends.cuda.matmul.allow_tf32 = False  # the cells enter in float32
            block = compiled_block() if compiled else attention_block
            self.do_step = RecordedSteps(
                self.network, self.optimiser, block=block, even=self.variant.even
            )
        self._held_out: dict[str, list[Batch]] | None = None

    def _curriculum(self) -> Curriculum:
        progress, variant = self.progress, self.variant
        cooling = CoolDown(*progress.cooling) if progress.cooling else None
        return curriculum(progress.size, variant.rate, variant.batch, cooling, progress.begun)

    def _load(self, tensors: dict[str, Tensor]) -> None:
        try:
            self.network.load_state_dict(_named("w.", tensors))
            self.optimiser.load(_named("o.", tensors))
        except (RuntimeError, KeyError) as error:
            raise InvalidCheckpoint(
                f"The training state in {self.folder} is incomplete: start in a new folder."
            ) from error

    def _pace(self) -> float:
        """Seconds a step, of late: what a run began with may have had smaller batches."""
        now = {"step": self.progress.step, "seconds": self.progress.seconds}
        for before in reversed(self.progress.log):
            if before["step"] < now["step"] and before["seconds"] < now["seconds"]:
                return (now["seconds"] - before["seconds"]) / (now["step"] - before["step"])
        return self.progress.seconds / max(self.progress.step, 1) or 0.03

    def cool_down(
        self, folder: Path, minutes: float | None = None, steps: int | None = None
    ) -> None:
        """Branch off into another folder and end the run there, in these steps or in about that
        many minutes at the present pace."""
        if self.progress.cooling is not None:
            raise InvalidInput(
                "This run cools down already: resume it without asking for it again."
            )
        if state.load(folder) is not None:
            raise InvalidInput(f"There is a run in {folder} already: branch off into a new folder.")
        steps = steps or max(1, round(60 * (minutes or 1.0) / self._pace()))
        self.folder = folder
        self.progress.parts = []  # what was saved stays with the run that goes on
        self.progress.cooling = (self.progress.step, steps)
        self.curriculum = self._curriculum()
        self.save()

    @property
    def end(self) -> int | None:
        """The step after the last; None: open."""
        cooling = self.progress.cooling
        return None if cooling is None else cooling[0] + cooling[1]

    def run(self, minutes: float, steps: int | None = None, verbose: bool = False) -> Progress:
        """Train until the minutes or these steps are over or the run has cooled; the state is kept
        either way."""
        if self.progress.saves == 0:
            self.save()  # a folder that cannot be written to shows before the work, not after it
        self.progress.pieces += 1
        self.progress.devices.append(_name(self.device))
        ends = [self.end, None if steps is None else self.progress.step + steps]
        last = min((end for end in ends if end is not None), default=None)
        with (
            interrupts_wait() as interrupted,
            progress_bar(
                (last or 0) - self.progress.step, self.progress.task, verbose and last is not None
            ) as advance,
        ):
            self._run(minutes, last, advance, interrupted)
        return self.progress

    def _run(
        self,
        minutes: float,
        end: int | None,
        advance: Callable[[int], object],
        interrupted: Callable[[], bool],
    ) -> None:
        progress, losses = self.progress, []
        started = logged = saved = time.monotonic()
        before = progress.seconds
        for step, shape, batch in self.batches(progress.step, end):
            losses.append(self.do_step(shape, batch, self.curriculum.rate_at(step)))
            self.count(step, shape)
            advance(1)
            now = time.monotonic()
            progress.seconds = before + now - started
            last = progress.step == end or now - started > 60 * minutes or interrupted()
            keep = last or now - saved > SAVE_SECONDS
            if keep or now - logged > LOG_SECONDS:
                self._log(losses, (*["raw"] * last, *["average"] * keep))
                losses, logged = [], time.monotonic()
            if keep:
                self.save()
                saved = time.monotonic()
            if last:
                return

    def count(self, step: int, shape: Shape) -> None:
        """A step on tables of this shape is done."""
        self.progress.step = step + 1
        self.progress.tables += shape.tables
        self.progress.cells += shape.tables * shape.rows * shape.features

    def save(self) -> None:
        tensors = {f"w.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"o.{name}": tensor for name, tensor in self.optimiser.state().items()}
        state.save(self.folder, self.progress, tensors)

    def export(self, path: Path, averaged: bool = True) -> None:
        """The network as a checkpoint: the running average of its weights, or those of the last
        step."""
        weights = self.network.state_dict()
        weights = {**weights, **self.optimiser.averaged()} if averaged else weights
        state.export(path, self.progress, weights)

    def validation(self, averaged: bool = False) -> dict[str, float]:
        """The loss on held-out synthetic tables, kind by kind."""
        if self._held_out is None:
            self._held_out = validation.held_out(
                self.progress.task, self.progress.size, self.device
            )
        with self.weights(averaged):
            return validation.losses(self.network, self._held_out, self.do_step.dtype)

    @contextmanager
    def weights(self, averaged: bool) -> Iterator[None]:
        """The network with the running average of its weights, for a while."""
        if averaged:
            self.optimiser.swap()
        try:
            yield
        finally:
            if averaged:
                self.optimiser.swap()

    def prepare(self) -> None:
        """Compile and record what the steps to come need, before the clock starts."""
        cools, step = self.curriculum.cooling is not None, self.progress.step
        stages = zip(self.curriculum.stages, self.shapes, strict=True)
        shapes = [shape for stage, some in stages if cools or step >= stage.begin for shape in some]
        self.do_step.prepare(
            (shape, self._sample(shape, Draw(self.device, i))) for i, shape in enumerate(shapes)
        )

    def batches(self, first: int, end: int | None = None) -> Iterator[tuple[int, Shape, Batch]]:
        """Step, shape and tables from a step on. On a GPU the next tables are drawn while the last
        are learnt from."""
        stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        step = first
        ahead = None if step == end else self.tables(step, stream)
        while ahead is not None:
            shape, batch = ahead
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
            yield step, shape, batch
            step += 1
            ahead = None if step == end else self.tables(step, stream)

    def tables(self, step: int, stream: torch.cuda.Stream | None = None) -> tuple[Shape, Batch]:
        """What a step learns from; its number says all."""
        seed = self.progress.seed
        shape = self.curriculum.shape_at(step, seed, self.shapes)
        with torch.cuda.stream(stream):
            batch = self._sample(shape, Draw(self.device, seed, 3, step))
        if stream is not None:
            # The host runs ahead: this memory may not be reused before the step has read it.
            for tensor in (batch.X, batch.y, batch.weight):
                tensor.record_stream(torch.cuda.current_stream())
        return shape, batch

    def _sample(self, shape: Shape, draw: Draw) -> Batch:
        return sample(self.progress.task, shape, draw, RECIPES[self.variant.recipe])

    def _log(self, losses: list[Tensor], judged: tuple[str, ...]) -> None:
        """``judged``: the weights whose loss on held-out tables is written down as well."""
        progress = self.progress
        entry = {
            "step": progress.step,
            "tables": progress.tables,
            "seconds": round(progress.seconds, 1),
            "rate": float(f"{self.curriculum.rate_at(progress.step):.3g}"),
            "loss": round(float(torch.stack(losses).nanmean()), 5),
        }
        for weights in judged:
            found = self.validation(averaged=weights == "average")
            entry |= {f"{weights}_{name}": round(loss, 5) for name, loss in found.items()}
        progress.log.append(entry)


def _same_run(kept: Progress, asked: Progress, folder: Path) -> Progress:
    """A run goes on as it began."""
    names = ("task", "size", "variant", "seed", "config")
    differ = [name for name in names if getattr(kept, name) != getattr(asked, name)]
    if differ:
        found = ", ".join(f"{name} = {getattr(kept, name)}" for name in differ)
        raise InvalidInput(
            f"The state in {folder} is of another run ({found}): give the same, or another folder."
        )
    return kept


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


@contextmanager
def interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted, asked for between two steps, and raised at the end: a step is done whole or
    not at all."""
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
