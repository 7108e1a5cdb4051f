"""A pool in files: one pass learns its space, one makes a plan, and contexts are read by number.

The pass of a plan answers the questions of strategies (``FileFinder``). Herding gets candidates
where the queries of a cluster lie (``Strata``) and the nearest rows of the queries
(``NearestRows``), as in memory. docs/scaling.md says how many, and what that costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.herding.greedy import bandwidth_rows
from crumb.herding.neighbours import FIRST, Candidates, asking, fraction_searched
from crumb.machine import quiet, resolve_jobs
from crumb.options import Options
from crumb.pool import HeldRows, Labelled, MoreColumns, Pool
from crumb.rng import generator
from crumb.scale.engine import Engine
from crumb.scale.reader import (
    Reader,
    Statistics,
    fetch_rows,
    gather,
    open_encoder,
    to_frame,
    to_labels,
)
from crumb.scale.rules import (
    Block,
    NearestRows,
    NumberedRows,
    RareClasses,
    RowsOfCells,
    Rule,
    Strata,
)
from crumb.scale.shortlist import Score, Shortlist, score_shards
from crumb.scale.source import Source
from crumb.selection import Problem, Strategy
from crumb.selection.base import Among, Finder, Held, Nearest, Question, TableFinder, support_rows
from crumb.table import space
from crumb.table.encoder import TableEncoder, first_columns, take
from crumb.table.means import WIDE, MeanTargets, learn_means

SKETCH_ROWS, SKETCH_CELLS = 100_000, 8_000_000  # rows, and cells, of the sketch
COVERED_CELLS = 50_000_000  # numbers of a pool whose points are held: 400 MB, twice that at first
HELD_CELLS = 10_000_000  # a table with fewer cells is read whole, as a table in memory
LEAST, MOST = 4, 64  # candidates that a cluster needs, and usually may have, as multiples of n
SHORTLIST_CELLS = 40_000_000  # clusters × candidates × columns that are kept: 320 MB
LEAST_OF_WORD = 20  # rows of a sample that a mean target is taken from
ENTRY_CELLS = 10  # columns that a candidate counts for at least: sorting it costs as much
KNN_ENTRIES = 20_000_000  # points × rows of a context
MOST_CENTROIDS = 2_000  # of the pool: every row is compared with each of them


def fits_in_memory(source: Source) -> bool:
    return source.rows * len(source.view.columns) <= HELD_CELLS


def read_whole(source: Source) -> tuple[pd.DataFrame, np.ndarray | None]:
    """The table as a data frame, and its target."""
    view = source.view
    blocks = (block for shard in source.shards for block in shard.blocks(view.columns))
    blocks = pa.concat_tables(blocks)
    labels = None if view.target is None else to_labels(blocks, view.target)
    return to_frame(blocks, view.features, view), labels


class FilePool(Pool):
    """What is known of a pool after one pass; the rows themselves stay where they are.

    ``classify``: whether labels are classes; None where there are none.
    """

    on_disk: ClassVar[bool] = True

    def __init__(
        self,
        source: Source,
        engine: Engine,
        options: Options,
        *,
        classify: bool | None,
        features: Any = None,
        categorical_features: Any = None,
        with_means: bool = True,
    ):
        _check(options.strategy, features)
        self.source, self.engine, view, seed = source, engine, source.view, options.seed
        opened = open_encoder(source, engine, categorical_features)
        # Rows whose numbers are known before the first pass, so that it can bring them along.
        bandwidth = bandwidth_rows(self.size, generator(seed, "bandwidth"))
        support, sketched = support_rows(self.size, seed), _sketch_rows(source, seed)
        plain = np.union1d(bandwidth, support)  # kept as rows
        auto = space.is_auto(features) and view.target is not None
        weighed = space.relevance_rows(self.size, len(view.features), seed)[: None if auto else 0]
        every = np.union1d(np.union1d(plain, sketched), weighed)
        found = gather(source, engine, opened, classify, every, options.verbose)
        whole = pa.concat_tables(found.sample)
        table, sketch = (whole.take(np.searchsorted(every, ids)) for ids in (plain, sketched))
        self.encoder = found.closed(opened)
        distinct = found.distinct_labels()
        classes = np.unique(distinct) if classify else None
        self.n_classes = None if classes is None else len(classes)
        means = None
        if with_means and len(weighed) and classes is not None and _has_wide(found.table):
            ids = np.sort(sketched)
            means = self._learn_means(whole.take(np.searchsorted(every, ids)), ids, classes)
        if space.is_auto(features):
            some = whole.take(np.searchsorted(every, weighed))
            features = self._weights(some, weighed, means, bool(classify), options)
        elif space.is_weights(features):
            features = space.checked_weights(features, len(view.features))
        if features is None or space.is_weights(features):
            self.space: space.Space = space.ColumnSpace(found.table, opened, features, means)
        else:
            self.space = _own_space(features, table, self.encoder, view.target)
        self.reader = Reader(self.encoder, self.space, view.target, classes, seed)
        self.sample = _held(table, plain, self.reader)
        points = self.sample_points = self.space.transform(self.sample.rows)
        self.some_points = points[np.searchsorted(plain, bandwidth)]
        self.reference = points[np.searchsorted(plain, support)]
        # Random rows, from which the limits of a pass are estimated.
        self.sketch = Block(sketched, self.reader, sketch, bool(classify))
        self.fingerprint = _fingerprint(found, self.encoder, points)
        self.distinct_labels = distinct if classify else self.sample.y
        self.held: Labelled | None = None  # the rows of the contexts that were asked for last
        self.facts = {"pool": {"rows": self.size, "on_disk": True, "covered": self.covered}}

    def _learn_means(
        self, table: pa.Table, ids: np.ndarray, classes: np.ndarray
    ) -> MeanTargets | None:
        """From a sample: words with few rows in it have a mean that says too much of these."""
        rows, labels = self._read(table)
        y = np.searchsorted(classes, labels)
        found = learn_means(rows, self.encoder, y, len(classes), LEAST_OF_WORD)
        if found is None:
            return None
        means, known = found
        self.means = MoreColumns(means.of, known.reshape(len(ids), -1), ids)
        return means

    def _weights(
        self,
        table: pa.Table,
        ids: np.ndarray,
        means: MeanTargets | None,
        classify: bool,
        options: Options,
    ) -> np.ndarray | None:
        if not len(table):
            return None
        rows, labels = self._read(table)
        of_rows = None
        if means is not None and self.means is not None:
            of_rows = self.means.of_pool(rows, ids)
            of_rows = of_rows.reshape(len(rows), len(means.columns), means.outputs)
        about = self.encoder, labels, classify, options.seed
        return space.column_weights(rows, *about, resolve_jobs(options.n_jobs), of_rows)

    def _read(self, table: pa.Table) -> tuple[Any, np.ndarray]:
        rows = self.encoder.transform(to_frame(table, self.encoder.columns_))
        target = self.source.view.target
        assert target is not None  # without one nothing is weighed
        return rows, to_labels(table, target)

    @property
    def size(self) -> int:
        return self.source.rows

    @property
    def covered(self) -> bool:
        """Whether the points of all rows fit into memory."""
        return self.size * self.shape[1] <= COVERED_CELLS

    def finder(self, options: Options) -> Finder:
        if not self.covered:
            return FileFinder(self, options)
        with_codes = self.n_classes is not None and options.min_per_class > 0
        read, shards = partial(self.reader.read_shard, with_codes), self.source.shards
        found = zip(*self.engine.map(read, shards, len(shards)), strict=True)
        points, codes = map(np.concatenate, found)
        known = self.known_centroids
        return TableFinder(points, codes if with_codes else None, options.seed, known)

    @property
    def guide_rows(self) -> HeldRows:
        """The rows of the sketch, in the order of the pool."""
        order = np.argsort(self.sketch.ids)
        return _held(self.sketch.table.take(order), self.sketch.ids[order], self.reader)

    def hold(self, contexts: Sequence[np.ndarray]) -> Labelled:
        """Read from the files unless they are here already."""
        ids = np.unique(np.concatenate(list(contexts)))
        if self.held is None or not np.isin(ids, self.held.ids).all():
            table = fetch_rows(self.engine, self.source, ids)
            held = _held(table, ids, self.reader)
            self.held = self.shown(held)
        return self.held

    def points_of(self, context: np.ndarray) -> np.ndarray:
        held = self.held
        assert held is not None
        rows = take(held.rows, held.places(context))
        return self.space.transform(first_columns(rows, len(self.encoder.columns_)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows of contexts: they can be read again."""
        return {**vars(self), "held": None}


def _has_wide(statistics: space.TableStatistics) -> bool:
    return any(len(counts) > WIDE for counts in statistics.counts)


def _own_space(features: Any, table: pa.Table, encoder: TableEncoder, target: Any) -> space.Space:
    labels = None if target is None else to_labels(table, target)
    rows = encoder.transform(to_frame(table, encoder.columns_))
    return space.learn_space(features, rows, encoder, labels, None)[0]


def _sketch_rows(source: Source, seed: int) -> np.ndarray:
    """In random order, so that the first ones are a sample as well."""
    count = min(source.rows, SKETCH_ROWS, max(1, SKETCH_CELLS // len(source.view.features)))
    return generator(seed, "sketch").choice(source.rows, count, replace=False)


def _held(table: pa.Table, ids: np.ndarray, reader: Reader) -> HeldRows:
    rows = reader.encoder.transform(to_frame(table, reader.encoder.columns_))
    y, n_classes = np.zeros(len(rows)), None
    if reader.classes is not None:
        y, n_classes = reader.codes(table), len(reader.classes)
    elif reader.target is not None:
        y = to_labels(table, reader.target).astype(np.float64)
    return HeldRows(rows, y, ids, n_classes, reader.token)


def _check(strategy: Strategy, features: Any) -> None:
    """What needs the pool in memory is refused before the files are read."""
    if not strategy.drops_rows:
        raise InvalidInput(
            f"strategy={strategy.name!r} needs the whole pool in memory, and this one is too large "
            "for that: choose another strategy, or read the table yourself and pass it."
        )
    if isinstance(features, str) and features == space.EMBEDDING:
        raise InvalidInput("features='embedding' needs the pool in memory: leave it out here.")


def _fingerprint(statistics: Statistics, encoder: TableEncoder, points: np.ndarray) -> str:
    """A checksum of the statistics, and of rows at known places: the order matters too."""
    moments = statistics.table.moments
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((statistics.table.rows, encoder.columns_, encoder.kinds_)).encode())
    for array in (moments.count, moments.mean, moments.squares, moments.low, moments.high, points):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    for counts in statistics.table.counts:
        digest.update(repr(sorted(counts.items())).encode())
    return digest.hexdigest()


class FileFinder(Finder):
    """For a pool whose points are too many for memory."""

    whole = False

    def __init__(self, pool: FilePool, options: Options):
        self.pool, self.size, self.reference = pool, pool.size, pool.reference
        self.seed, self.verbose, self.known = options.seed, options.verbose, pool.known_centroids
        self.min_per_class = options.min_per_class if pool.n_classes else 0

    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        found = self._pass([_rule(question) for question in questions], centroids)
        return [
            question
            if isinstance(question, list)
            else [self.held.numbers(rows) for rows in found.lists_of(number)]
            for number, question in enumerate(questions)
        ]

    def _pass(self, rules: Sequence[Rule], centroids: np.ndarray) -> Shortlist:
        """What the rules want, and what ``min_per_class`` may need, in one pass."""
        pool, with_codes = self.pool, self.min_per_class > 0
        if with_codes:
            strata = next((rule for rule in rules if isinstance(rule, Strata)), None)
            classes, m = pool.n_classes or 0, self.min_per_class
            rules = [*rules, RareClasses(centroids, classes, m, strata)]
        score = Score(pool.reader, rules, len(centroids), with_codes)
        found = score_shards(pool.engine, pool.source.shards, score, pool.sketch, self.verbose)
        kept = found.done()
        self.held = Held(kept.points, kept.codes, kept.ids)
        return found

    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        n, kernel = problem.n, problem.search.name
        asked = [] if kernel == "rff" else asking(labels, n, problem.seed)
        count = _count(problem, len(centroids), self.size)
        members = [problem.queries[labels == k] for k in range(len(centroids))]
        strata = Strata(centroids, members, count)
        # Where the queries reach much farther than the pool, nearly all rows are in one stratum.
        # Some random rows then fill the contexts up.
        rng = generator(problem.seed, "spare")
        spare = NumberedRows(rng.choice(self.size, min(n, self.size), replace=False))
        rules: list[Rule] = [strata, spare]
        facts: dict[str, Any] = {}
        if asked:
            every, sizes = np.concatenate(asked), list(map(len, asked))
            # "exact" searches all rows, others as many as take seconds.
            fraction = 1.0 if kernel == "exact" else fraction_searched(self.size, len(every))
            each = [each_of(neighbours_beside(count, n), size) for size in sizes]
            counts = np.repeat(each, sizes)
            rules.append(NearestRows(problem.queries[every], counts, fraction, roughly=True))
            facts["neighbours_among"] = round(fraction * self.size)
        candidates = _of_clusters(self._pass(rules, centroids), strata, asked, n)
        first = count if kernel == "exact" else None
        return {"candidates": candidates, "most": count, "available": count, "first": first}, facts

    def cluster_pool(self, n_clusters: int) -> np.ndarray:
        """By mini-batch k-means on the sketch."""
        from sklearn.cluster import MiniBatchKMeans

        sample, seed = self.pool.sketch.points, self.seed % 2**32
        n_clusters = min(n_clusters, MOST_CENTROIDS, len(sample))
        with quiet():
            means = MiniBatchKMeans(n_clusters, random_state=seed, n_init=1, batch_size=4_096)
            return np.unique(means.fit(sample).cluster_centers_, axis=0)


def _rule(question: Question) -> Rule:
    if isinstance(question, list):
        return NumberedRows(np.concatenate(question))
    if isinstance(question, Nearest):
        if len(question.points) * question.n > KNN_ENTRIES:
            raise InvalidInput(
                f"The nearest {question.n:,} rows of {len(question.points):,} points are too many "
                f"for a pool in files: ask for at most {max(1, KNN_ENTRIES // question.n):,} "
                "queries at a time, or lower context_size."
            )
        return NearestRows(question.points, question.n)
    return RowsOfCells(question.centroids, question.n, question.cells)


def _count(problem: Problem, clusters: int, size: int) -> int:
    """How many candidates of a cluster are kept by distance."""
    n, kernel = problem.n, problem.search.name
    room = SHORTLIST_CELLS // (clusters * max(problem.queries.shape[1], ENTRY_CELLS))
    if room < LEAST * n:
        raise InvalidInput(
            f"{clusters} contexts of {n:,} rows have no room among the candidates of "
            f"a pool in files: lower context_size to {room // LEAST:,}, or n_clusters."
        )
    if kernel == "rff":
        return min(room, size)
    room = 2 * room // 3  # neighbours come on top
    return min(room if kernel == "exact" else min(room, MOST * n), size)


def neighbours_beside(count: int, n: int) -> int:
    """How many neighbours of the queries join ``count`` candidates by distance: none at first."""
    return 0 if count <= FIRST * n else count // 2


def each_of(count: int, queries: int) -> int:
    """How many neighbours each query of a cluster has, for ``count`` candidates in all."""
    return max(1, count // queries)


def _of_clusters(found: Shortlist, strata: Strata, asked: list[np.ndarray], n: int) -> Candidates:
    """What herding gets of the rows that a pass has kept."""
    lists, counts, (spare,) = found.lists_of(0), found.counts_of(0), found.lists_of(1)
    near = iter(found.lists_of(2) if asked else ())
    neighbours = [list(islice(near, len(some))) for some in asked]

    def of_cluster(k: int, count: int) -> np.ndarray:
        rows = [strata.candidates(lists, counts, k, count)]
        beside = neighbours_beside(count, n)
        if asked and beside:
            rows += [some[: each_of(beside, len(asked[k]))] for some in neighbours[k]]
        together = np.unique(np.concatenate(rows))
        return together if len(together) >= n else np.union1d(together, spare)

    return lambda clusters, count: [of_cluster(k, count) for k in clusters]
