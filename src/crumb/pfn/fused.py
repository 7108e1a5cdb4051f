"""Many contexts in one pass of a TabICL network.

A context of a few hundred rows does not fill a GPU. Most of its pass is waiting for kernels to
start, and most of the rest is the package preparing rows on the CPU. Here the contexts that reach
the network with the same number of columns are stacked on the batch dimension, as many as memory
holds, padded to the largest. The answers are those that the package's estimators give one by one.
What cannot be stacked is left to them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crumb.machine import free_bytes
from crumb.pfn import preprocess
from crumb.pfn.base import ContextTask, Output
from crumb.pfn.contexts import Slice, bounded, halved
from crumb.pfn.forward import MOST_DENSE, attention_block, forward, keys_of, represent, supports
from crumb.pfn.preprocess import Columns, Member, Rowset
from crumb.pfn.tabicl_package import TabICL

HELD_BYTES = 1 << 30  # of the tasks that are held at a time
TASK_BYTES = 1 << 16  # that a task counts for at least
BLOCK_CELLS = 1 << 24  # of contexts that are looked at together: about 1 GiB
# Rows, or columns, of all tables that are embedded together: kernels count them in 16 bits.
MOST_ROWS = 60_000
MOST_PADDING = 0.25  # share of a stack that may be padding
FEWEST_ALIKE = 4  # tables with equally many rows that go without the mask, which is slower
LEAST_QUERIES = 1_000  # each piece of the queries costs the whole context again
SAFE_THRESHOLD = 6.0  # of outliers: up to it no cell is −100, which means "no cell" to the network
LEVELS = tuple(i / 10 for i in range(1, 10))  # the quantiles that the package gives by default


@dataclass
class Prepared:
    """A task as the network will see it, and what it has answered so far."""

    context: Slice
    asked: Slice
    kept: Columns
    numbers: dict[str, Rowset]  # for each norm method that is left to the package
    y: np.ndarray  # class codes, or scaled targets
    members: tuple[Member, ...]
    dtype: torch.dtype  # the precision in which the package would run it
    views: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # what passes share
    sum: np.ndarray | None = None  # of the answers of the members
    refused: bool = False  # too large for the device

    @property
    def columns(self) -> int:
        return self.members[0].columns.size

    @property
    def kind(self) -> Hashable:
        """What tasks of one stack have in common."""
        return self.columns, self.dtype, self.context.table.shape

    @property
    def queries(self) -> int:
        return len(self.asked)

    def add(self, start: int, answer: np.ndarray) -> None:
        """A member's answer to the queries from ``start`` on."""
        if classes := self.members[0].classes.size:  # a network has more than a context
            answer = answer[:, :classes]
        if self.sum is None:
            self.sum = np.zeros((self.queries, *answer.shape[1:]), dtype=np.float32)
        self.sum[start : start + len(answer)] += answer


class Table(NamedTuple):
    """One table of a stack: a context and some of its queries, as a member sees them."""

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

    @property
    def view(self) -> tuple[int, int, str]:
        """What members that differ in the order of columns only have in common."""
        return id(self.task), self.start, self.member.norm

    @property
    def how(self) -> str:
        """The norm method that a whole stack is normalised by; "": the package has done it."""
        norm = self.member.norm
        return "" if norm in self.task.numbers else norm


@dataclass(frozen=True)
class Footprint:
    """Bytes of the activations of a table's row: widths of the network times what was measured."""

    cells: int  # while its cells are embedded
    row: int  # while the rows learn from each other
    query: int  # more for a query: its quantiles, sorted and interpolated

    @classmethod
    def of(cls, network: TabICL, columns: int, dtype: torch.dtype) -> Footprint:
        tokens = columns + network.row_num_cls
        dense = 2 * network.row_nhead * tokens if tokens <= MOST_DENSE else 0  # attention weights
        width = network.embed_dim * network.row_num_cls
        quantiles = 0 if network.max_classes else 32 * network.num_quantiles
        cells = dtype.itemsize * tokens * (12 * network.embed_dim + dense)
        return cls(cells, 4 * 18 * width, quantiles)

    def stack(self, tables: int, rows: int, queries: int) -> int:
        return tables * (self.row * (rows + queries) + self.query * queries)


class FusedPasses:
    """Answers tasks with one network in as few passes as memory allows, or each in its own."""

    apart = False

    def __init__(
        self, network: TabICL, estimator: Any, output: Output, device: torch.device, most_bytes: int
    ):
        self.network, self.estimator, self.output, self.device = network, estimator, output, device
        self.most_bytes = most_bytes
        self.at = torch.device("cpu") if device.type == "mps" else device  # mps has no float64
        self.ensemble = preprocess.ensemble_of(estimator, network)

    def __call__(self, tasks: Sequence[ContextTask]) -> list[np.ndarray | None]:
        """An answer for each task; None where the package should give it."""
        if self.estimator.n_estimators > 1 and not self.network.col_feature_group:
            return [None] * len(tasks)  # members of v1 share one embedding of the columns
        budget, prepared = self._budget(), self._prepared(tasks)
        groups: dict[Hashable, list[Table]] = {}
        for one in prepared:
            if one is not None:
                groups.setdefault(one.kind, []).extend(self._tables(one, budget))
        for tables in filter(None, groups.values()):
            columns, dtype = tables[0].task.columns, tables[0].task.dtype
            footprint = Footprint.of(self.network, columns, dtype)
            alone = ([table] for table in tables)
            for stack in alone if self.apart else stacks(tables, footprint, budget):
                self._run(stack, budget)
        return [None if one is None or one.refused else self._answer(one) for one in prepared]

    @torch.inference_mode()
    def embed(self, task: ContextTask) -> np.ndarray:
        """The queries (q, C·E) before rows learn from each other, as the first member sees them."""
        (one,) = self._prepared([task], most_members=1)
        if one is None:  # nothing that the network could read
            width = self.network.embed_dim * self.network.row_num_cls
            return np.zeros((len(task.asked), width), dtype=np.float32)
        pieces = self._tables(one, self._budget())
        if one.refused:
            raise MemoryError(
                "There is not enough memory to embed the rows: "
                "use a smaller pool, or features=None."
            )
        answers = []
        for piece in pieces:
            X, y, _ = self._stacked([piece])
            rows = represent(self.network, X, y, keys_of(y), one.dtype, attention_block)
            answers.append(rows[0, piece.rows :].float().cpu().numpy())
        return np.concatenate(answers)

    @property
    def transforms(self) -> bool:
        """Whether transformers of the package may have a part in it.

        They have one in "power" where a column hardly varies.
        """
        norms = self.ensemble["norm_methods"]
        return norms[: self.estimator.n_estimators] != ("none",)

    def bytes(self, task: ContextTask) -> int:
        """Memory of a pass for one task, about."""
        footprint = Footprint.of(self.network, task.columns, torch.float32)
        return footprint.cells * (len(task.y) + min(len(task.asked), LEAST_QUERIES))

    def _budget(self) -> int:
        return min(self.most_bytes, free_bytes(str(self.device)))

    def _prepared(
        self, tasks: Sequence[ContextTask], most_members: int | None = None
    ) -> list[Prepared | None]:
        """What the package would make of each task; None where it should do so itself."""
        found: dict[int, Columns | None] = {}
        groups: dict[Hashable, list[int]] = {}
        for i, task in enumerate(tasks):
            if len(task.asked) and self._classes(task) <= self.network.max_classes:
                groups.setdefault(task.context.table.shape, []).append(i)
        for group in groups.values():
            group.sort(key=lambda i: len(tasks[i].y))
            for some in bounded(group, lambda i: tasks[i].context.cells, BLOCK_CELLS):
                kept = preprocess.columns_of([tasks[i].context for i in some], self.at)
                found.update(zip(some, kept, strict=True))
        return [self._as_seen(task, found.get(i), most_members) for i, task in enumerate(tasks)]

    def _classes(self, task: ContextTask) -> int:
        return int(task.y.max()) + 1 if self.network.max_classes > 0 else 0

    def _as_seen(
        self, task: ContextTask, kept: Columns | None, most_members: int | None
    ) -> Prepared | None:
        if kept is None or not task.asked.table.finite:
            return None
        y = task.y.astype(np.int64 if self.network.max_classes > 0 else np.float32)
        shape = kept.kept.size, self._classes(task)
        ensemble = preprocess.members(*shape, **self.ensemble)[:most_members]
        norms = {member.norm for member in ensemble if not kept.stacked(member.norm)}
        rows = preprocess.rowset(task.context, task.asked, kept) if norms else None
        numbers = {norm: rows.normalised(norm, self.ensemble) for norm in norms} if rows else {}
        half = self.estimator.in_half_precision(self.device, (len(task.y), task.columns))
        dtype = torch.get_autocast_dtype(self.device.type) if half else torch.float32
        return Prepared(task.context, task.asked, kept, numbers, y, ensemble, dtype)

    def _tables(self, one: Prepared, budget: int) -> list[Table]:
        """All members of a task, its queries in pieces that fit; none if too few would fit."""
        footprint = Footprint.of(self.network, one.columns, one.dtype)
        most = min(budget // footprint.cells, budget // (footprint.row + footprint.query))
        most, queries = min(MOST_ROWS, most) - len(one.y), one.queries
        one.refused = most < min(queries, LEAST_QUERIES)
        if one.refused:
            return []
        cuts = np.linspace(0, queries, math.ceil(queries / most) + 1).astype(int).tolist()
        return [Table(one, member, *cut) for member in one.members for cut in pairwise(cuts)]

    def _run(self, stack: list[Table], budget: int) -> None:
        """One pass, or several smaller ones where memory does not suffice after all."""
        each = budget // len(stack)
        answers = halved(
            stack,
            run=lambda some: list(self._pass(some, each * len(some))),
            alone=lambda table: self._alone(table, each),
        )
        for table, answer in zip(stack, answers, strict=True):
            if answer is None:
                table.task.refused = True
            else:
                table.task.add(table.start, answer[: table.queries])

    def _alone(self, table: Table, budget: int) -> np.ndarray | None:
        with suppress(torch.OutOfMemoryError):
            return self._pass([table], budget)[0]
        return None

    @torch.inference_mode()
    def _pass(self, stack: list[Table], budget: int) -> np.ndarray:
        (X, y, lengths), dtype = self._stacked(stack), stack[0].task.dtype
        cells = Footprint.of(self.network, X.shape[2], dtype).cells * X.shape[1]
        at_once = max(1, min(budget // cells, MOST_ROWS // max(X.shape[1:])))
        raw = forward(self.network, X, y, dtype, lengths=lengths, at_once=at_once)
        classify = self.network.max_classes > 0
        answers = self._probabilities(raw, stack) if classify else self._statistics(raw)
        return answers.float().cpu().numpy()

    def _stacked(self, stack: list[Table]) -> tuple[Tensor, Tensor, Tensor | None]:
        """X (B, t + q, d) and y (B, t): contexts padded to t rows, queries to q rows.

        And the sizes (B,) of the contexts, where they differ.
        """
        most, asked = max(table.rows for table in stack), max(table.queries for table in stack)
        sizes = torch.tensor([table.rows for table in stack], device=self.device)
        y = np.zeros((len(stack), most), dtype=np.float32)
        for i, table in enumerate(stack):
            classes, labels = table.member.classes, table.task.y
            y[i, : table.rows] = classes[labels] if classes.size else labels
        alike = all(table.rows == most for table in stack)
        X = self._numbers(stack, most, asked)
        return X, torch.from_numpy(y).to(self.device), None if alike else sizes

    def _numbers(self, stack: list[Table], most: int, asked: int) -> Tensor:
        """X (B, t + q, d). Members that differ in the order of columns only are prepared once."""
        views = {table.view: table for table in stack}
        kinds: dict[str, list[Table]] = {}
        for table in views.values():
            kinds.setdefault(table.how, []).append(table)
        parts = [self._normalised(how, some, most, asked) for how, some in kinds.items()]
        X = torch.cat([part.to(self.device) for part in parts])
        place = {table.view: i for i, table in enumerate(chain(*kinds.values()))}
        view = torch.tensor([place[table.view] for table in stack], device=self.device)
        columns = torch.from_numpy(np.stack([table.member.columns for table in stack]))
        every = torch.arange(X.shape[1], device=self.device)
        return X[view[:, None, None], every[:, None], columns.to(self.device)[:, None]]

    def _normalised(self, how: str, tables: list[Table], most: int, asked: int) -> Tensor:
        """Tables (B, t + q, d) that are normalised in one way."""
        if not how:
            return _packages_own(tables, most, asked)
        if not self.apart:
            return self._together(how, tables, most, asked)
        (table,) = tables  # other members of its task have passes of their own
        views, key = table.task.views, (table.start, how)
        if key not in views:
            views[key] = self._together(how, tables, most, asked)
        return views[key]

    def _together(self, norm: str, tables: list[Table], most: int, asked: int) -> Tensor:
        """Tables whose norm method is done for whole stacks."""
        contexts = [table.task.context for table in tables]
        queries = [table.task.asked[table.start : table.stop] for table in tables]
        kept = [table.task.kept for table in tables]
        X = preprocess.encoded(contexts, queries, kept, most, asked, self.at)
        sizes = preprocess.sizes_of(contexts, self.at)
        return preprocess.NORMS[norm](X, most, sizes, self.estimator.outlier_threshold)

    def _probabilities(self, logits: Tensor, stack: list[Table]) -> Tensor:
        """Logits (or probabilities, if these are averaged), classes back in their order."""
        order = np.full((len(stack), logits.shape[2]), -1)  # −1: not a class of the context
        for row, table in zip(order, stack, strict=True):
            row[: table.member.classes.size] = table.member.classes
        places = torch.from_numpy(order).to(self.device)[:, None].expand_as(logits)
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
        if self.network.max_classes == 0:
            return mean
        if self.estimator.average_logits:
            temperature = self.estimator.softmax_temperature
            mean = self.estimator.softmax(mean, axis=-1, temperature=temperature)
        return mean / mean.sum(axis=1, keepdims=True)


def _packages_own(tables: list[Table], most: int, asked: int) -> Tensor:
    """Tables that the package has normalised."""
    rows = np.zeros((len(tables), most + asked, tables[0].member.columns.size), np.float32)
    for i, table in enumerate(tables):
        numbers = table.task.numbers[table.member.norm]
        rows[i, : table.rows] = numbers.context
        rows[i, most : most + table.queries] = numbers.queries[table.start : table.stop]
    return torch.from_numpy(rows)


def can_fuse(network: TabICL, estimator: Any) -> bool:
    """Whether an estimator asks for nothing that only the package's own passes do."""
    return (
        supports(network)
        and not estimator.kv_cache
        and estimator.inference_config is None
        and estimator.offload_mode == "auto"
        and estimator.random_state is not None  # without one, each context has other members
        and estimator.outlier_threshold <= SAFE_THRESHOLD
    )


def task_bytes(task: ContextTask) -> int:
    return TASK_BYTES + 8 * task.cells


def stacks(tables: list[Table], footprint: Footprint, budget: int) -> Iterator[list[Table]]:
    """Tables that go through the network together: of similar size, so that little is padding."""

    def shape(table: Table) -> tuple[int, int]:
        """Rows, after a class of the share of queries; one class differs by a fifth of the work."""
        return int(4 * math.log2(1 + table.queries / table.rows)), table.rows

    ordered = sorted(tables, key=lambda table: (*shape(table), table.queries), reverse=True)
    unlike: list[Table] = []
    for _, group in groupby(ordered, key=shape):
        alike = list(group)
        if len(alike) < FEWEST_ALIKE:
            unlike += alike
        else:
            yield from _filled(alike, footprint, budget)
    yield from _filled(unlike, footprint, budget)


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
