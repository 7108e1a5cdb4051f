"""Many contexts in one pass of a TabICL network.

A context of some hundred rows does not fill a GPU: most of its pass is waiting for kernels to start, and most of the
rest is the package preparing the rows on the CPU. Here the contexts that reach the network with the same number of
columns are stacked on the batch dimension, as many as memory holds, padded to the largest. The answers are those that
the package's estimators give one by one. What cannot be stacked is left to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from tabicl._model.tabicl import TabICL
from torch import Tensor

from crumb.devices import free_bytes
from crumb.pfn.base import ContextTask, Output
from crumb.pfn.forward import MOST_DENSE, forward, represent, supports
from crumb.pfn.preprocess import (
    Member,
    Recipe,
    Rowset,
    Scale,
    encode,
    members,
    normalised,
    standardised,
)

HELD_BYTES = 1 << 30  # of the tasks that are held at a time
TASK_BYTES = 1 << 20  # that a task counts for at least
MOST_ROWS = 60_000  # or columns, of all tables that are embedded together: attention kernels count them in 16 bits
MOST_PADDING = 0.25  # share of a stack that may be padding
FEWEST_ALIKE = (
    4  # tables with equally many rows that are not slowed down by the mask of unequal ones
)
LEAST_QUERIES = 1_000  # each piece of the queries costs the whole context again
SAFE_THRESHOLD = 6.0  # of outliers: up to it no cell is −100, which means "no cell" to the network
LEVELS = (
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
)  # the quantiles that the package answers with by default


@dataclass
class Prepared:
    """A task as the network will see it, and what it has answered so far."""

    rows: Rowset
    y: np.ndarray  # class codes, or scaled targets
    members: tuple[Member, ...]
    scale: Scale | None  # None: classification
    half: bool  # whether the package would run it in half precision
    sum: np.ndarray | None = None  # of the answers of the members
    refused: bool = False  # too large for the device
    _normalised: dict[str, Rowset] = field(default_factory=dict)

    def numbers(self, norm: str, recipe: Recipe) -> Rowset:
        """Ready for the network, or for ``standardised`` if the norm is ``"none"``."""
        if norm == "none":
            return self.rows
        if norm not in self._normalised:
            self._normalised[norm] = normalised(self.rows, norm, recipe)
        return self._normalised[norm]

    def add(self, start: int, answer: np.ndarray) -> None:
        """What a member says of the queries from ``start`` on; a network has more classes than a context."""
        if self.scale is not None:
            answer = self.scale.unscaled(answer)
        elif self.members[0].classes is not None:
            answer = answer[:, : self.members[0].classes.size]
        if self.sum is None:
            self.sum = np.zeros((len(self.rows.queries), *answer.shape[1:]), dtype=np.float32)
        self.sum[start : start + len(answer)] += answer


class Table(NamedTuple):
    """One table of a stack: a member's view of a context and of some of its queries."""

    task: Prepared
    member: Member
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return len(self.task.y)

    @property
    def queries(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Footprint:
    """Bytes of the activations that are alive together, for a row of a table: widths times what was measured."""

    cells: int  # while its cells are embedded
    row: int  # while the rows learn from each other
    query: int  # more for a query: its quantiles, sorted and interpolated

    @classmethod
    def of(cls, network: TabICL, columns: int, size: int) -> Footprint:
        tokens = columns + network.row_num_cls
        weights = (
            2 * network.row_nhead * tokens if tokens <= MOST_DENSE else 0
        )  # of attention that is written out
        width = network.embed_dim * network.row_num_cls
        quantiles = 0 if network.max_classes else 32 * network.num_quantiles
        return cls(size * tokens * (12 * network.embed_dim + weights), 4 * 18 * width, quantiles)

    def stack(self, tables: int, rows: int, queries: int) -> int:
        return tables * (self.row * (rows + queries) + self.query * queries)


class FusedPasses:
    """Answers tasks with one network in as few passes as memory allows."""

    def __init__(
        self, network: TabICL, estimator: Any, output: Output, device: torch.device, most_bytes: int
    ):
        self.network, self.estimator, self.output, self.device = network, estimator, output, device
        self.most_bytes = most_bytes
        self.recipe = recipe_of(estimator, network)
        self.half = torch.get_autocast_dtype(device.type)  # what the package's mixed precision uses

    def __call__(self, tasks: Sequence[ContextTask]) -> list[np.ndarray | None]:
        """An answer for each task; None where the package should give it."""
        budget = min(self.most_bytes, free_bytes(str(self.device)))
        prepared = [self._prepared(task) for task in tasks]
        groups: dict[tuple[int, bool], list[Table]] = {}
        for one in prepared:
            if one is not None:
                groups.setdefault((one.rows.context.shape[1], one.half), []).extend(
                    self._tables(one, budget)
                )
        for (columns, half), tables in groups.items():
            footprint = self._footprint(columns, half)
            for stack in stacks(tables, footprint, budget):
                self._run(stack, budget)
        return [None if one is None or one.refused else self._answer(one) for one in prepared]

    @torch.no_grad()
    def embed(self, task: ContextTask) -> np.ndarray:
        """The queries (q, C·E) as the network has them before rows learn from each other; the first member's view."""
        one = self._prepared(task)
        if one is None:  # nothing that the network could read
            return np.zeros(
                (len(task.queries), self.network.embed_dim * self.network.row_num_cls),
                dtype=np.float32,
            )
        one.members = one.members[:1]
        pieces = self._tables(one, min(self.most_bytes, free_bytes(str(self.device))))
        if one.refused:
            raise MemoryError(
                "There is not enough memory to embed the rows: use a smaller pool, or features=None."
            )
        return np.concatenate([self._represented(piece) for piece in pieces])

    def _represented(self, table: Table) -> np.ndarray:
        X, y, _ = self._stacked([table])
        rows = represent(self.network, X, y, self.half if table.task.half else torch.float32)
        return rows[0, table.rows :].float().cpu().numpy()

    def _prepared(self, task: ContextTask) -> Prepared | None:
        classes = int(task.y.max()) + 1 if self.recipe.classification else 0
        if classes > self.network.max_classes or not len(task.queries):
            return None
        rows = encode(task.X, task.queries)
        if rows is None:
            return None
        scale = None if self.recipe.classification else Scale.of(task.y)
        y = task.y.astype(np.int64) if scale is None else scale.scaled(task.y)
        ensemble = members(self.recipe, rows.context.shape[1], classes)
        return Prepared(rows, y, ensemble, scale, self._in_half_precision(task))

    def _in_half_precision(self, task: ContextTask) -> bool:
        """The package's own rule, which asks a fitted estimator for the size of its table."""
        self.estimator.device_ = self.device
        self.estimator.n_samples_in_, self.estimator.n_features_in_ = task.X.shape
        return bool(self.estimator._resolve_amp_fa3()[0])

    def _footprint(self, columns: int, half: bool) -> Footprint:
        return Footprint.of(self.network, columns, 2 if half else 4)

    def _tables(self, one: Prepared, budget: int) -> list[Table]:
        """All members of a task, its queries in pieces that fit; none if not even a few queries do."""
        footprint, queries = (
            self._footprint(one.rows.context.shape[1], one.half),
            len(one.rows.queries),
        )
        most = min(
            MOST_ROWS, budget // footprint.cells, budget // (footprint.row + footprint.query)
        ) - len(one.y)
        one.refused = most < min(queries, LEAST_QUERIES)
        if one.refused:
            return []
        cuts = np.linspace(0, queries, math.ceil(queries / most) + 1).astype(int).tolist()
        return [
            Table(one, member, start, stop)
            for member in one.members
            for start, stop in pairwise(cuts)
        ]

    def _run(self, stack: list[Table], budget: int) -> None:
        """One pass, or two of half the size where memory does not suffice after all."""
        stack = [table for table in stack if not table.task.refused]
        if not stack or self._fits(stack, budget):
            return
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(stack) == 1:
            stack[0].task.refused = True
            return
        half = len(stack) // 2
        self._run(stack[:half], budget // 2)
        self._run(stack[half:], budget // 2)

    def _fits(self, stack: list[Table], budget: int) -> bool:
        try:
            answers = self._pass(stack, budget)
        except torch.cuda.OutOfMemoryError:
            return False
        for table, answer in zip(stack, answers, strict=True):
            table.task.add(table.start, answer[: table.queries])
        return True

    @torch.no_grad()
    def _pass(self, stack: list[Table], budget: int) -> np.ndarray:
        first = stack[0].task
        X, y, lengths = self._stacked(stack)
        cells = self._footprint(X.shape[2], first.half).cells * X.shape[1]
        at_once = max(1, min(budget // cells, MOST_ROWS // max(X.shape[1:])))
        dtype = self.half if first.half else torch.float32
        raw = forward(self.network, X, y, dtype, lengths=lengths, at_once=at_once)
        answers = (
            self._probabilities(raw, stack) if self.recipe.classification else self._statistics(raw)
        )
        return answers.float().cpu().numpy()

    def _stacked(self, stack: list[Table]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X (B, t + q, d): contexts padded to t rows, queries to q rows. y (B, t), and the sizes where they differ."""
        most, asked = max(table.rows for table in stack), max(table.queries for table in stack)
        sizes = torch.tensor([table.rows for table in stack], device=self.device)
        X = self._numbers(stack, most, asked)
        y = np.zeros((len(stack), most), dtype=np.float32)
        for i, table in enumerate(stack):
            classes, labels = table.member.classes, table.task.y
            y[i, : table.rows] = labels if classes is None else classes[labels]
        alike = all(table.rows == most for table in stack)
        return X, torch.from_numpy(y).to(self.device), None if alike else sizes

    def _numbers(self, stack: list[Table], most: int, asked: int) -> Tensor:
        """Members of a task that differ in the order of columns only are moved to the device, and prepared, once."""
        views = {(id(table.task), table.start, table.member.norm): table for table in stack}
        plain = [key for key in views if key[2] == "none"]
        keys = plain + [key for key in views if key[2] != "none"]
        rows = np.zeros((len(keys), most + asked, stack[0].member.columns.size))
        for i, table in enumerate(views[key] for key in keys):
            numbers = table.task.numbers(table.member.norm, self.recipe)
            rows[i, : table.rows] = numbers.context
            rows[i, most : most + table.queries] = numbers.queries[table.start : table.stop]
        at = torch.device("cpu") if self.device.type == "mps" else self.device  # mps has no float64
        X = torch.from_numpy(rows).to(at)
        sizes = torch.tensor([views[key].rows for key in plain], device=at)
        ready = standardised(X[: len(plain)], most, sizes, self.recipe.outlier_threshold)
        X = torch.cat([ready, X[len(plain) :].float()]).to(self.device)
        place = {key: i for i, key in enumerate(keys)}
        view = torch.tensor(
            [place[id(table.task), table.start, table.member.norm] for table in stack]
        )
        columns = torch.from_numpy(np.stack([table.member.columns for table in stack]))
        every = torch.arange(X.shape[1], device=self.device)
        return X[
            view.to(self.device)[:, None, None], every[:, None], columns.to(self.device)[:, None]
        ]

    def _probabilities(self, logits: Tensor, stack: list[Table]) -> Tensor:
        """Logits (or probabilities, if these are averaged) with the classes of each member back in order."""
        order = np.full((len(stack), logits.shape[2]), -1)
        for i, table in enumerate(stack):
            classes = table.member.classes
            assert classes is not None
            order[i, : classes.size] = classes
        places = (
            torch.from_numpy(order).to(self.device)[:, None].expand_as(logits)
        )  # −1: not a class of the context
        if not self.estimator.average_logits:
            logits = logits.masked_fill(places < 0, -torch.inf)
            logits = (logits / self.estimator.softmax_temperature).softmax(-1)
        return logits.gather(2, places.clamp(min=0))

    def _statistics(self, quantiles: Tensor) -> Tensor:
        distribution = self.network.quantile_dist(quantiles)
        if self.output.kind == "mean":
            return distribution.quantiles.mean(dim=-1)
        levels = 0.5 if self.output.kind == "median" else list(self.output.quantiles) or LEVELS
        return distribution.icdf(torch.tensor(levels, device=self.device))

    def _answer(self, one: Prepared) -> np.ndarray:
        assert one.sum is not None
        mean = one.sum / len(one.members)
        if one.scale is not None:
            return mean
        if self.estimator.average_logits:
            mean = self.estimator.softmax(
                mean, axis=-1, temperature=self.estimator.softmax_temperature
            )
        return mean / mean.sum(axis=1, keepdims=True)


def can_fuse(network: TabICL, estimator: Any) -> bool:
    """Whether an estimator asks for nothing that only the package's own passes do."""
    return (
        supports(network)
        and not estimator.kv_cache
        and estimator.inference_config is None
        and estimator.offload_mode == "auto"
        and estimator.random_state
        is not None  # the package draws other members for every context then
        and estimator.outlier_threshold <= SAFE_THRESHOLD
    )


def recipe_of(estimator: Any, network: TabICL) -> Recipe:
    methods = estimator.norm_methods or ["none", "power"]
    classification = network.max_classes > 0
    embedded_once = classification and not network.col_feature_group
    return Recipe(
        classification=classification,
        n_estimators=estimator.n_estimators,
        norm_methods=(methods,) if isinstance(methods, str) else tuple(methods),
        feat_shuffle_method=estimator.feat_shuffle_method,
        class_shuffle_method=estimator.class_shuffle_method if classification else "none",
        outlier_threshold=estimator.outlier_threshold,
        random_state=estimator.random_state,
        embedded_once=(estimator.batch_size or estimator.n_estimators) if embedded_once else 0,
    )


def task_bytes(task: ContextTask) -> int:
    return TASK_BYTES + 8 * (task.X.size + task.queries.size)


def stacks(tables: list[Table], footprint: Footprint, budget: int) -> Iterator[list[Table]]:
    """Tables that go through the network together: of similar size, so that little is padding."""
    ordered = sorted(
        tables, key=lambda table: (_share(table), table.rows, table.queries), reverse=True
    )
    unlike: list[Table] = []
    for _, group in groupby(ordered, key=lambda table: (_share(table), table.rows)):
        alike = list(group)
        if len(alike) < FEWEST_ALIKE:
            unlike += alike
        else:
            yield from _filled(alike, footprint, budget)
    yield from _filled(unlike, footprint, budget)


def _share(table: Table) -> int:
    """A class of tables by their share of queries; within one it makes a fifth of the work at most."""
    return int(4 * math.log2(1 + table.queries / table.rows))


def _filled(tables: list[Table], footprint: Footprint, budget: int) -> Iterator[list[Table]]:
    stack: list[Table] = []
    used = rows = queries = 0
    for table in tables:
        used += table.rows + table.queries
        rows, queries = max(rows, table.rows), max(queries, table.queries)
        padded = (len(stack) + 1) * (rows + queries)
        fits = len(stack) < MOST_ROWS and footprint.stack(len(stack) + 1, rows, queries) <= budget
        if stack and not (fits and padded - used <= MOST_PADDING * padded):
            yield stack
            stack = []
            used, rows, queries = table.rows + table.queries, table.rows, table.queries
        stack.append(table)
    if stack:
        yield stack
