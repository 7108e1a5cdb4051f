"""A pool that stays on disk: one pass to learn its space, one for every plan, and the rows of contexts by number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.evidence import support_rows
from crumb.herding.kernel import bandwidth_rows
from crumb.options import Options
from crumb.plan import Plan
from crumb.planning import finish_plan, make_plan, planning, table_pool
from crumb.pool import HeldRows, Pool
from crumb.progress import progress_bar
from crumb.rng import generator, row_numbers
from crumb.scale.engine import Engine
from crumb.scale.frames import kinds_of, to_frame, to_labels, with_categories
from crumb.scale.look import RowNumbers
from crumb.scale.rows import fetch_rows
from crumb.scale.rules import Everything, RareClasses, Rule, Strata
from crumb.scale.scoring import Reader, Score
from crumb.scale.shortlist import Shortlist
from crumb.scale.source import Shard, Source, View, count_rows, open_source
from crumb.scale.statistics import Gather, Statistics, joined
from crumb.scale.strategies import Pass, check_strategy, make_wish
from crumb.selection.clustering import value_order
from crumb.table.encoder import TableEncoder
from crumb.table.space import ColumnSpace, Space, learn_space

SCOUTS, SCOUT_CELLS = 100_000, 8_000_000  # rows, and cells, of the table
COVERED_CELLS = (
    50_000_000  # numbers of a pool whose points are all held: 400 MB, and as much again meanwhile
)
HELD_CELLS = 10_000_000  # a table with fewer cells is read whole: the answer is then that of the table in memory


def fits_in_memory(source: Source) -> bool:
    return source.rows * len(source.view.with_target()) <= HELD_CELLS


def read_whole(source: Source) -> tuple[pd.DataFrame, np.ndarray | None]:
    """The table as a data frame, and its target."""
    view = source.view
    blocks = pa.concat_tables(
        [block for shard in source.shards for block in shard.blocks(view.with_target())]
    )
    labels = None if view.target is None else to_labels(blocks, view.target)
    return with_categories(to_frame(blocks, view.features), view.dictionaries), labels


@dataclass(frozen=True)
class Scouts:
    """Random rows that tell beforehand how many the whole pool has where; ``Rows`` as the rules see them."""

    of_points: np.ndarray
    of_codes: np.ndarray | None

    def points(self, rows: RowNumbers) -> np.ndarray:
        return self.of_points if rows is None else self.of_points[rows]

    def codes(self, rows: RowNumbers) -> np.ndarray | None:
        return self.of_codes if self.of_codes is None or rows is None else self.of_codes[rows]


@dataclass(eq=False)
class FilePool(Pool):
    """What is known of a pool after one pass; the rows themselves stay where they are."""

    on_disk: ClassVar[bool] = True
    source: Source
    engine: Engine
    reader: Reader
    sampled: HeldRows  # rows of the files that stand for all
    bandwidth_points: np.ndarray
    reference: np.ndarray  # points that tell whether the pool reaches a query
    scouts: Scouts
    fingerprint: str
    distinct_labels: np.ndarray  # one label of each class; the sample's labels for regression
    verbose: int
    facts: dict[str, Any] = field(default_factory=dict)
    held: HeldRows | None = field(default=None)  # the rows of the contexts that were asked last

    @classmethod
    def learn(
        cls,
        source: Source,
        engine: Engine,
        options: Options,
        *,
        classify: bool | None,
        features: Any = None,
        categorical_features: Any = None,
    ) -> FilePool:
        """One pass over a counted source. ``classify``: whether labels are classes; None: none."""
        check_strategy(options.strategy)
        return learn_pool(
            source,
            engine,
            seed=options.seed,
            classify=classify,
            features=features,
            categorical_features=categorical_features,
            verbose=options.verbose,
        )

    @property
    def size(self) -> int:
        return self.source.rows

    @property
    def encoder(self) -> TableEncoder:  # type: ignore[override]
        return self.reader.encoder

    @property
    def space(self) -> Space:  # type: ignore[override]
        return self.reader.space

    @property
    def n_classes(self) -> int | None:  # type: ignore[override]
        return None if self.reader.classes is None else len(self.reader.classes)

    @property
    def some_points(self) -> np.ndarray:
        return self.bandwidth_points

    @property
    def sample(self) -> HeldRows:
        return self.sampled

    def plan(self, queries: np.ndarray, options: Options, evidence: bool = True) -> Plan:
        """Stages 1 and 2: one pass over the files, and herding among what it kept."""
        covered = self.size * self.shape[1] <= COVERED_CELLS
        plan = (self._plan_all if covered else self._plan_some)(queries, options, evidence)
        plan.settings["pool"] = {"rows": self.size, "on_disk": True, "covered": covered}
        return plan

    def _plan_all(self, queries: np.ndarray, options: Options, evidence: bool) -> Plan:
        """Every row is a candidate: the plan is that of a pool in memory."""
        kept = self._score([Everything()], queries[:1], self._guards(options)).done()
        return make_plan(kept.points, queries, options, self.fingerprint, kept.codes, evidence)

    def _plan_some(self, queries: np.ndarray, options: Options, evidence: bool) -> Plan:
        by_value, guard = value_order(queries), self._guards(options)
        with planning(self.size, queries[by_value], _on_cpu(options)) as problem:
            wish = make_wish(problem, options.strategy, Pass(self.size, self._some_points))
            rules = list(wish.rules)
            if guard:
                strata = next((rule for rule in rules if isinstance(rule, Strata)), None)
                clusters, classes = len(wish.centroids), self.n_classes or 0
                rules.append(RareClasses(clusters, classes, options.min_per_class, strata))
            found = self._score(rules, wish.centroids, guard)
            kept = found.done()
            problem = replace(problem, pool=kept.points)
            selection = wish.select(problem, found)
            plan = finish_plan(
                problem,
                selection,
                by_value,
                options,
                self.fingerprint,
                kept.codes,
                evidence,
                self.reference,
            )
        plan.contexts = [kept.ids[context] for context in plan.contexts]
        plan.pool_size = self.size
        return plan

    def _guards(self, options: Options) -> bool:
        return self.reader.classes is not None and options.min_per_class > 0

    def hold(self, contexts: Sequence[np.ndarray]) -> HeldRows:
        """The rows of some contexts, read from the files unless they are here already."""
        ids = np.unique(np.concatenate(list(contexts)))
        if self.held is None or not np.isin(ids, self.held.ids).all():
            table = fetch_rows(self.engine, self.source, ids, self.source.view.with_target())
            self.held = _held(table, ids, self.source, self.reader)
        return self.held

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows that are held: they can be read again."""
        return {**vars(self), "held": None}

    def _score(self, rules: Sequence[Rule], centroids: np.ndarray, with_codes: bool) -> Shortlist:
        score = Score(self.reader, rules, centroids, with_codes)
        found = Shortlist(rules, self._expected(score))
        shards = self.source.shards
        # The generator runs as tasks are started: late shards know the limits that early ones have set.
        tasks = ((shard, found.limits.copy()) for shard in shards)
        with progress_bar(len(shards), "scoring", self.verbose) as advance:
            for kept in self.engine.map(score, tasks, len(shards)):
                found.join(kept)
                advance(1)
        return found

    def _expected(self, score: Score) -> np.ndarray:
        """What the sample tells of the limits, rule by rule."""
        look = score.look(self.scouts, np.arange(len(self.scouts.of_points)))
        return np.concatenate([rule.expected_limits(look, self.size) for rule in score.rules])

    def _some_points(self, most: int) -> np.ndarray:
        """At most so many points, drawn by the rows' own random numbers."""
        share = min(1.0, most / self.size)
        draw = Draw(self.reader, share)
        return np.concatenate(
            list(self.engine.map(draw, self.source.shards, len(self.source.shards)))
        )


@dataclass(frozen=True)
class Draw:
    """A random share of the points of a shard."""

    reader: Reader
    share: float

    def __call__(self, shard: Shard) -> np.ndarray:
        return np.concatenate(list(self._points(shard)))

    def _points(self, shard: Shard) -> Iterator[np.ndarray]:
        yield np.empty((0, self.reader.space.width))
        first = shard.first
        for block in shard.blocks(shard.view.features):
            drawn = (
                row_numbers(np.arange(first, first + len(block)), self.reader.seed, "some points")
                < self.share
            )
            first += len(block)
            if drawn.any():
                yield self.reader.points(block.filter(pa.array(drawn)))


def learn_pool(
    source: Source,
    engine: Engine,
    *,
    seed: int,
    classify: bool | None,
    features: Any = None,
    categorical_features: Any = None,
    verbose: int = 0,
) -> FilePool:
    view = source.view
    first = open_encoder(view, categorical_features)
    of_bandwidth = bandwidth_rows(source.rows, generator(seed, "bandwidth"))
    of_support = support_rows(source.rows, seed)
    of_scouts = _scout_rows(source.rows, len(view.features), seed)
    of_sample = np.union1d(of_bandwidth, of_support)
    wanted = np.union1d(of_sample, of_scouts)
    statistics = _gather(source, engine, Gather(first, bool(classify)), wanted, verbose)
    statistics.check_labels()
    encoder = _closed(first, statistics)
    whole = pa.concat_tables([rows for _, rows in statistics.sample])
    table = whole.take(pa.array(np.searchsorted(wanted, of_sample)))
    rows = encoder.transform(to_frame(table, view.features))
    labels = None if view.target is None else to_labels(table, view.target)
    space: Space = ColumnSpace(statistics.table, first)
    if features is not None:
        if isinstance(features, str):
            raise InvalidInput(
                "features='embedding' needs the pool in memory: leave it out for a table in files."
            )
        space, _ = learn_space(features, rows, encoder, labels, None)
    classes = np.unique(statistics.distinct_labels()) if classify else None
    reader = Reader(encoder, space, classes, seed)
    points = space.transform(rows)
    scouts = whole.take(pa.array(np.searchsorted(wanted, of_scouts)))
    scouted = None if classes is None else reader.codes(scouts, str(view.target))
    held = _held(table, of_sample, source, reader)
    return FilePool(
        source,
        engine,
        reader,
        held,
        points[np.searchsorted(of_sample, of_bandwidth)],
        points[np.searchsorted(of_sample, of_support)],
        Scouts(reader.points(scouts), scouted),
        _fingerprint(statistics, encoder, points),
        statistics.distinct_labels() if classify else held.y,
        verbose,
    )


def open_encoder(view: View, categorical_features: Any) -> TableEncoder:
    """An encoder of which only the kinds are known: infinite values are counted, not moved."""
    encoder = TableEncoder(categorical_features)
    encoder.columns_ = list(view.features)
    encoder.kinds_ = kinds_of(view, encoder)
    encoder.bounds_ = np.tile([-np.inf, np.inf], (len(view.features), 1))
    return encoder


def _closed(encoder: TableEncoder, statistics: Statistics) -> TableEncoder:
    """What ``TableEncoder.fit_transform`` would have remembered of the whole table."""
    kinds = [
        "empty" if not present and kind != "category" else kind
        for kind, present in zip(encoder.kinds_, statistics.present.tolist(), strict=True)
    ]
    bounds = np.full((len(kinds), 2), np.nan)
    bounds[encoder.numeric_indices] = statistics.table.moments.bounds()
    return TableEncoder.learned(encoder.columns_, kinds, bounds)


def _scout_rows(rows: int, columns: int, seed: int) -> np.ndarray:
    """In random order, so that the first ones are a sample as well."""
    return generator(seed, "scouts").choice(
        rows, min(rows, SCOUTS, max(1, SCOUT_CELLS // columns)), replace=False
    )


def _gather(
    source: Source, engine: Engine, gather: Gather, wanted: np.ndarray, verbose: int
) -> Statistics:
    shards = source.shards
    tasks = (
        (shard, wanted[(wanted >= shard.first) & (wanted < shard.first + shard.rows)])
        for shard in shards
    )

    def parts() -> Iterator[Statistics]:
        with progress_bar(len(shards), "reading", verbose) as advance:
            for part in engine.map(gather, tasks, len(shards)):
                yield part
                advance(1)

    return joined(parts())


def _held(table: pa.Table, ids: np.ndarray, source: Source, reader: Reader) -> HeldRows:
    rows = reader.encoder.transform(to_frame(table, source.view.features))
    target, classes = source.view.target, reader.classes
    if target is None:
        return HeldRows(rows, np.zeros(len(rows)), ids, None, reader.token)
    if classes is None:
        y = to_labels(table, target).astype(np.float64)
        return HeldRows(rows, y, ids, None, reader.token)
    return HeldRows(rows, reader.codes(table, target), ids, len(classes), reader.token)


def _fingerprint(statistics: Statistics, encoder: TableEncoder, points: np.ndarray) -> str:
    """A checksum of what was learnt of the content, and of the rows at known places: another order is another pool."""
    moments = statistics.table.moments
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((statistics.table.rows, encoder.columns_, encoder.kinds_)).encode())
    for array in (moments.count, moments.mean, moments.squares, moments.low, moments.high, points):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    for counts in statistics.table.counts:
        digest.update(repr(sorted(counts.items())).encode())
    return digest.hexdigest()


def _on_cpu(options: Options) -> Options:
    """Candidates are herded on the CPU: reading the files takes the time here, not herding."""
    kernel = options.asked["kernel"]
    kernel = "candidates" if kernel == "auto" else kernel
    asked = {**options.asked, "kernel": kernel, "herd_batch": 1}
    return replace(options, device="cpu", asked=asked)


def open_pool(
    table: Any,
    target: str | None,
    where: Any,
    columns: Sequence[str] | None,
    engine: Engine,
    options: Options,
    **more: Any,
) -> Pool:
    """A pool in files, or in memory where it is small."""
    source = count_rows(open_source(table, target, where, columns), engine)
    if not fits_in_memory(source):
        return FilePool.learn(source, engine, options, **more)
    frame, labels = read_whole(source)
    pool = table_pool(frame, labels, more["features"], more["categorical_features"])
    pool.facts["pool"] = {"rows": source.rows, "on_disk": False, "covered": True}
    return pool
