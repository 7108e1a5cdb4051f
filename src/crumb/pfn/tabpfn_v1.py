"""TabPFN v1: the official weights of 2022, in a network of our own.

The package that came with them no longer imports. The network is small: a row is one token, context
rows see each other, queries see the context. So what it makes of a context can be kept, layer by
layer, and contexts of one shape are stacked. Rows are prepared and members are made as the original
does it (``transformer_predict`` in pfns 0.3.0), but for a whole stack at once and in float64.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, product
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crumb.errors import InvalidInput
from crumb.machine import free_bytes
from crumb.options import positive
from crumb.pfn.base import ContextTask, KeepingBackend, Output, Tasks
from crumb.pfn.contexts import Slice, halved, in_groups, tensor_bytes
from crumb.pfn.models import fitting, per_file, read_checkpoint

PREFIX = "module."  # of all names in the file, which a parallel run has written
LARGEST_SCORE, SMALLEST, OUTLIER = 100.0, 1e-6, 4.0
EXPONENTS, SEARCHES = (-8.0, 8.0), 30  # of the power transform: bounds, golden sections
CPU_BYTES = 256 << 20  # of a stack on a CPU, which is no faster with more
HELD_CELLS = 1 << 24  # of the tasks that wait for others to go with
MOST_QUERIES = 4_096  # that go together


class Layer(nn.TransformerEncoderLayer):
    """Torch's own weights; but what a context is to its queries is made apart, and can be kept."""

    def memory(self, rows: Tensor) -> Tensor:
        """Keys and values of a context: (B, n, E) → (2, B, heads, n, E / heads)."""
        return self._projected(rows, rows.shape[-1], None).permute(2, 0, 3, 1, 4)

    def look(self, rows: Tensor, memory: Tensor) -> Tensor:
        """Rows (B, n, E) that have looked at a context."""
        query = self._projected(rows, 0, rows.shape[-1])[:, :, 0].transpose(1, 2)
        seen = F.scaled_dot_product_attention(query, memory[0], memory[1])
        rows = self.norm1(rows + self.self_attn.out_proj(seen.transpose(1, 2).flatten(2)))
        return self.norm2(rows + self.linear2(F.gelu(self.linear1(rows))))

    def _projected(self, rows: Tensor, start: int, stop: int | None) -> Tensor:
        """(B, n, parts, heads, E / heads): the weights of queries, keys and values are one."""
        made = self.self_attn
        weight, bias = made.in_proj_weight[start:stop], made.in_proj_bias[start:stop]
        return F.linear(rows, weight, bias).unflatten(-1, (-1, made.num_heads, made.head_dim))


class Network(nn.Module):
    """Named as in the checkpoint."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        width, self.features = config["emsize"], config["num_features"]
        hidden, self.classes = width * config["nhid_factor"], config["max_num_classes"]
        layers = (Layer(width, config["nhead"], hidden) for _ in range(config["nlayers"]))
        self.encoder, self.y_encoder = nn.Linear(self.features, width), nn.Linear(1, width)
        self.transformer_encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.decoder = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, self.classes)
        )
        self.width, self.hidden = width, hidden

    @property
    def device(self) -> torch.device:
        return self.encoder.weight.device

    @property
    def layers(self) -> Any:
        return self.transformer_encoder["layers"]

    def remember(self, X: Tensor, y: Tensor) -> Iterator[Tensor]:
        """What queries look at, one layer after the other. X (B, n, d), y (B, n)."""
        rows = self.encoder(X) + self.y_encoder(y.unsqueeze(-1))
        for layer in self.layers:
            memory = layer.memory(rows)
            yield memory
            rows = layer.look(rows, memory)

    def answer(self, X: Tensor, memories: Iterable[Tensor]) -> Tensor:
        """Logits (B, q, classes) of queries X (B, q, d)."""
        rows = self.encoder(X)
        for layer, memory in zip(self.layers, memories, strict=False):
            rows = layer.look(rows, memory)
        return self.decoder(rows)


def _build(path: Path, device: str) -> Network:
    checkpoint = read_checkpoint(path)
    weights = {name.removeprefix(PREFIX): one for name, one in checkpoint.state_dict.items()}
    weights.pop("criterion.weight", None)  # of the loss
    with fitting(path):
        network = Network(checkpoint.config)
        network.load_state_dict(weights)
    return network.eval().requires_grad_(False).to(device)


shared_network = per_file(_build)


Step = Callable[[Tensor], Tensor]


def standard(X: Tensor) -> Step:
    mean, deviation = _moments(X)
    wide = deviation + SMALLEST
    return lambda rows: ((rows - mean) / wide).clamp(-LARGEST_SCORE, LARGEST_SCORE)


def powered(X: Tensor) -> Step:
    """Yeo and Johnson's transform of the exponent that is most likely, then z-scores."""
    low, high = (torch.full_like(X[:, :1], bound) for bound in EXPONENTS)
    for _ in range(SEARCHES):
        step = (5**0.5 - 1) / 2 * (high - low)
        left, right = high - step, low + step
        falls = _unlikely(X, left) > _unlikely(X, right)
        low, high = torch.where(falls, left, low), torch.where(falls, high, right)
    exponent = (low + high) / 2
    mean, deviation = _moments(_power(X, exponent), lost=0)
    deviation = torch.where(deviation > 0, deviation, 1)
    return lambda rows: (_power(rows, exponent) - mean) / deviation


def drawn_in(X: Tensor) -> Step:
    """Beyond four deviations, of what is within four of them, only the logarithm counts."""
    mean, deviation = _moments(X)
    far = (X - mean).abs() > OUTLIER * deviation
    mean, deviation = _moments(X.masked_fill(far, torch.nan))
    lower, upper = mean - OUTLIER * deviation, mean + OUTLIER * deviation

    def draw(rows: Tensor) -> Tensor:
        rows = torch.maximum(lower - rows.abs().log1p(), rows)
        return torch.minimum(upper + rows.abs().log1p(), rows)

    return draw


def prepared(X: Tensor, power: bool) -> Step:
    """What is done to rows, each step learned from contexts (B, n, d) after the one before it."""
    steps: list[Step] = []
    for learn in (standard, *([powered] if power else []), drawn_in):
        steps.append(learn(X))
        X = steps[-1](X)

    def prepare(rows: Tensor) -> Tensor:
        for step in steps:
            rows = step(rows)
        return rows.nan_to_num(0.0).float()

    return prepare


def _moments(X: Tensor, lost: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (B, 1, d) of the cells that are there."""
    count = (~X.isnan()).sum(dim=1, keepdim=True)
    mean = X.nansum(dim=1, keepdim=True) / count
    squares = (X - mean).square().nansum(dim=1, keepdim=True)
    return mean, (squares / (count - lost)).sqrt()


def _power(X: Tensor, exponent: Tensor) -> Tensor:
    exponent, size = torch.where(X >= 0, exponent, 2 - exponent), X.abs().log1p()
    straight = exponent.abs() < SMALLEST
    bent = (exponent * size).expm1() / torch.where(straight, 1, exponent)
    return X.sign() * torch.where(straight, size, bent)


def _unlikely(X: Tensor, exponent: Tensor) -> Tensor:
    """The negative log-likelihood of an exponent, up to constants."""
    spread = _moments(_power(X, exponent), lost=0)[1]
    return spread.log() - (exponent - 1) * (X.sign() * X.abs().log1p()).nanmean(1, keepdim=True)


class Member(NamedTuple):
    """One of the ensemble: by how much it shifts classes and columns, and whether it transforms."""

    classes: int
    columns: int
    power: bool


@lru_cache(maxsize=256)
def members(columns: int, classes: int, count: int, seed: int) -> tuple[Member, ...]:
    """The original's, in its order: fewer than ``count`` where there are no more."""
    generator = torch.Generator().manual_seed(seed)
    by_columns = torch.randperm(columns, generator=generator).tolist()
    by_classes = torch.randperm(classes, generator=generator).tolist()
    shifts = list(product(by_classes, by_columns))
    random.Random(seed).shuffle(shifts)
    found = (Member(*shifted, power) for shifted in shifts for power in (False, True))
    return tuple(islice(found, count))


class Remembered:
    """What the network has of contexts X (B, n, d), y (B, n), all with the same classes.

    ``keep``: queries come more than once.
    """

    def __init__(
        self, network: Network, ensemble: Sequence[Member], X: Tensor, y: Tensor, keep: bool
    ):
        varies = (X[:, :1] != X).any(dim=1)
        self.network, self.members, self.classes = network, ensemble, int(y.max()) + 1
        self.order = varies.int().argsort(dim=1, descending=True, stable=True)
        self.used = varies.sum(dim=1, keepdim=True).clamp(min=1)  # (B, 1)
        self.steps = {power: prepared(X, power) for power in {one.power for one in ensemble}}
        labels = torch.cat([(y + one.classes) % self.classes for one in ensemble]).float()
        memory = network.remember(self._rows(X), labels.to(network.device))
        self.memory = list(memory) if keep else memory

    def logits(self, X: Tensor) -> Tensor:
        """(B, q, classes) for queries (B, q, d), the mean of the members."""
        answers = self.network.answer(self._rows(X), self.memory)[..., : self.classes]
        each = zip(answers.unflatten(0, (len(self.members), -1)), self.members, strict=True)
        return torch.stack([answer.roll(-one.classes, -1) for answer, one in each]).mean(dim=0)

    def _rows(self, X: Tensor) -> Tensor:
        """(members · B, n, features) on the network's device."""
        views = {power: prepare(X) for power, prepare in self.steps.items()}
        rows = torch.cat([self._view(views[one.power], one.columns) for one in self.members])
        return rows.to(self.network.device)

    def _view(self, X: Tensor, shift: int) -> Tensor:
        """The columns that vary in a context, shifted, as large as if they were all there are."""
        place = torch.arange(X.shape[2], device=X.device)
        turned = torch.where(shift < self.used, (place + shift) % self.used, place)
        columns = self.order.gather(1, turned).unsqueeze(1).expand_as(X)
        scale = (place < self.used) * (self.network.features / self.used)
        padding = self.network.features - X.shape[2]
        return F.pad(X.gather(2, columns) * scale.unsqueeze(1), (0, padding))


@dataclass(frozen=True)
class Ensemble:
    """What ``model_options`` may say."""

    n_estimators: int
    device: str
    random_state: int
    softmax_temperature: float = 0.8

    def __post_init__(self) -> None:
        positive("n_estimators", self.n_estimators)
        positive("random_state", self.random_state, 0)
        given = self.softmax_temperature
        number = isinstance(given, Real) and not isinstance(given, bool)
        if not (number and 0 < given < float("inf")):
            said = f"softmax_temperature must be a positive number, got {given!r}."
            raise InvalidInput(said)


class TabPFNv1Backend(KeepingBackend):
    estimators: ClassVar = {"classification": Ensemble}
    reserved = frozenset({"device"})
    missing_is_a_value = False

    def open(self) -> None:
        super().open()
        self.estimator()  # options with wrong values are refused now
        self.max_columns = self.network.features

    @property
    def network(self) -> Network:
        return shared_network(self.path, self.settings.device)

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        run = partial(self._group, output=output)
        return in_groups(tasks, self._shape, run, lambda task: task.cells, HELD_CELLS)

    def _shape(self, task: ContextTask) -> Hashable:
        """What the tasks of a stack have in common; a context that is kept goes alone."""
        shape = len(task.y), task.columns, int(task.y.max()), len(task.asked).bit_length()
        return self.kept_under(task) or (task.key is None, *shape)

    def _group(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        """Answers to tasks of one shape, as many at a time as fit."""
        device, rows = self.settings.device, len(tasks[0].context)
        one = self.bytes(rows, max(len(task.asked) for task in tasks), 0)
        room = CPU_BYTES if device == "cpu" else self.settings.stack_bytes
        most = max(1, int(min(room, free_bytes(device)) // one))
        calls = (tasks[start : start + most] for start in range(0, len(tasks), most))
        alone = partial(self.predict_context, output=output)
        return [answer for call in calls for answer in halved(call, self._together, alone)]

    def _together(self, tasks: list[ContextTask]) -> list[np.ndarray]:
        most = max(len(task.asked) for task in tasks)
        most += -most % tasks[0].multiple
        with self.alone():
            remembered = self._remembered(tasks, keep=False)
            answers = self._proba(remembered, numbers([task.asked for task in tasks], most))
        return [answer[: len(task.asked)] for answer, task in zip(answers, tasks, strict=True)]

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        remembered, asked, least = self.fitted(task), len(task.asked), task.multiple
        parts = [task.asked[at : at + MOST_QUERIES] for at in range(0, asked, MOST_QUERIES)]
        sizes = [len(part) + -len(part) % least for part in parts]
        whole = (numbers([part], size) for part, size in zip(parts, sizes, strict=True))
        return np.concatenate([self._proba(remembered, rows)[0] for rows in whole])[:asked]

    def fitted(self, task: ContextTask) -> Remembered:
        make = partial(self._remembered, [task], keep=True)
        if (key := self.kept_under(task)) is None:
            return make()
        return self.contexts.get_or(key, make, self.size_of)

    def size_of(self, made: Remembered) -> int:
        return sum(map(tensor_bytes, made.memory))

    def kept_bytes(self, task: ContextTask) -> int:
        per_row = 8 * self.network.width * len(self.network.layers)
        return per_row * len(task.context) * int(self.estimator().n_estimators)

    def _remembered(self, tasks: Sequence[ContextTask], keep: bool) -> Remembered:
        X = numbers([task.context for task in tasks], len(tasks[0].context))
        y, ensemble = np.stack([task.y for task in tasks]), self.estimator()
        about = ensemble.n_estimators, ensemble.random_state
        made = members(X.shape[2], int(y.max()) + 1, *about)
        return Remembered(self.network, made, self._on_device(X), self._on_device(y), keep)

    def _proba(self, remembered: Remembered, queries: np.ndarray) -> np.ndarray:
        logits = remembered.logits(self._on_device(queries))
        return (logits / self.estimator().softmax_temperature).softmax(-1).cpu().numpy()

    def _on_device(self, cells: np.ndarray) -> Tensor:
        device = self.settings.device  # mps has no float64
        return torch.from_numpy(cells).to("cpu" if device == "mps" else device)

    def work(self, rows: int, queries: int, columns: int) -> float:
        """Floating-point operations of a pass."""
        net, all_rows = self.network, rows + queries
        layer = all_rows * net.width * (8 * net.width + 4 * net.hidden + 4 * rows)
        return float(self.settings.n_estimators * len(net.layers) * layer)

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        width = 6 * self.network.width + self.network.hidden
        return 4.0 * self.settings.n_estimators * width * (rows + queries)


def numbers(slices: Sequence[Slice], most: int) -> np.ndarray:
    """(B, most, d): NaN where a cell is missing. Where a slice is shorter, its last row repeats."""
    row = np.arange(most)
    found = [one.table.take(one.ids[np.minimum(row, len(one) - 1)]) for one in slices]
    rows = np.stack(found).astype(np.float64, copy=False)
    categories = rows[..., : slices[0].table.shape[1]]
    categories[categories < 0] = np.nan  # not in the pool
    return rows
