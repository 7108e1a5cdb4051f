"""A pool that stays on disk: one pass to learn its space, one for every plan, and the rows of contexts by number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.evidence import support_rows
from crumb.herding.kernel import bandwidth_rows
from crumb.infer import HeldPool
from crumb.plan import Plan
from crumb.planning import (
    PlanSettings,
    finish_plan,
    make_plan,
    plan_settings,
    planning,
    select_contexts,
)
from crumb.progress import progress_bar
from crumb.rng import generator, row_numbers
from crumb.scale.engine import Engine, resolve_engine
from crumb.scale.frames import kinds_of, to_frame, to_labels, with_categories
from crumb.scale.look import RowNumbers
from crumb.scale.rows import fetch_rows
from crumb.scale.rules import Everything, RareClasses, Rule, Strata
from crumb.scale.scoring import Reader, Score
from crumb.scale.shortlist import Shortlist
from crumb.scale.source import Shard, Source, count_rows, open_source
from crumb.scale.statistics import Gather, Statistics, joined
from crumb.scale.strategies import Pass, check_strategy, make_wish
from crumb.scale.streamed_space import SampledSpace, StreamedSpace, encoder_from
from crumb.selection import resolve_strategy
from crumb.selection.clustering import value_order
from crumb.table.encoder import TableEncoder, to_rows
from crumb.table.space import SelectionSpace

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


@dataclass
class DiskPool:
    """What is known of a pool after one pass; the rows themselves stay where they are."""

    source: Source
    engine: Engine
    reader: Reader
    encoder: TableEncoder
    sample: HeldPool  # rows of the files that stand for all
    bandwidth_points: np.ndarray
    reference: (
        np.ndarray
    )  # points against which queries are held to see whether the pool reaches them
    scouts: Scouts
    fingerprint: str
    verbose: int
    held: HeldPool | None = field(default=None)  # the rows of the contexts that were asked for last

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.reader.space.columns

    def plan(self, queries: np.ndarray, settings: PlanSettings, evidence: bool = True) -> Plan:
        """Stages 1 and 2: one pass over the files, and herding among what it kept."""
        covered = self.rows * self.shape[1] <= COVERED_CELLS
        plan = (self._plan_all if covered else self._plan_some)(queries, settings, evidence)
        plan.settings["pool"] = {"rows": self.rows, "on_disk": True, "covered": covered}
        return plan

    def _plan_all(self, queries: np.ndarray, settings: PlanSettings, evidence: bool) -> Plan:
        """Every row is a candidate: the plan is that of a pool in memory."""
        guard = self._guards(settings)
        kept = self._score([Everything()], queries[:1], guard).done()
        return make_plan(kept.points, queries, settings, self.fingerprint, kept.codes, evidence)

    def _plan_some(self, queries: np.ndarray, settings: PlanSettings, evidence: bool) -> Plan:
        by_value, guard = value_order(queries), self._guards(settings)
        with planning(self.rows, queries[by_value], _on_cpu(settings)) as problem:
            wish = make_wish(problem, settings.strategy, Pass(self.rows, self._some_points))
            rules = list(wish.rules)
            if guard:
                classes = len(self.reader.classes)  # type: ignore[arg-type]
                strata = next((rule for rule in rules if isinstance(rule, Strata)), None)
                rules.append(
                    RareClasses(len(wish.centroids), classes, settings.min_per_class, strata)
                )
            found = self._score(rules, wish.centroids, guard)
            kept = found.done()
            problem = replace(problem, pool=kept.points)
            selection = wish.select(problem, found)
            plan = finish_plan(
                problem,
                selection,
                by_value,
                settings,
                self.fingerprint,
                kept.codes,
                evidence,
                self.reference,
            )
        plan.contexts = [kept.ids[context] for context in plan.contexts]
        plan.pool_size = self.rows
        return plan

    def _guards(self, settings: PlanSettings) -> bool:
        return self.reader.classes is not None and settings.min_per_class > 0

    def hold(self, contexts: Sequence[np.ndarray]) -> HeldPool:
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
        return np.concatenate([rule.expected_limits(look, self.rows) for rule in score.rules])

    def _some_points(self, most: int) -> np.ndarray:
        """At most so many points, drawn by the rows' own random numbers."""
        share = min(1.0, most / self.rows)
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
        yield np.empty((0, self.reader.space.columns))
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
) -> tuple[DiskPool, Statistics]:
    """One pass over a counted source. ``classify``: whether labels are classes; None: there are none."""
    view = source.view
    first = TableEncoder(categorical_features)
    first.columns_ = list(view.features)
    first.kinds_ = kinds_of(view, first)
    first.bounds_ = np.tile(
        [-np.inf, np.inf], (len(view.features), 1)
    )  # infinite values are counted, not moved
    of_bandwidth = bandwidth_rows(source.rows, generator(seed, "bandwidth"))
    of_support = support_rows(source.rows, seed)
    of_scouts = _scout_rows(source.rows, len(view.features), seed)
    of_sample = np.union1d(of_bandwidth, of_support)
    wanted = np.union1d(of_sample, of_scouts)
    statistics = _gather(source, engine, Gather(first, bool(classify)), wanted, verbose)
    encoder = encoder_from(first.kinds_, view.features, statistics, categorical_features)
    whole = pa.concat_tables([rows for _, rows in statistics.sample])
    table = whole.take(pa.array(np.searchsorted(wanted, of_sample)))
    rows = encoder.transform(to_frame(table, view.features))
    space: Any = StreamedSpace(statistics, first.kinds_)
    if features is not None:
        own = SelectionSpace(features)
        if own.embedded:
            raise InvalidInput(
                "features='embedding' needs the pool in memory: leave it out for a table in files."
            )
        labels = None if view.target is None else to_labels(table, view.target)
        space = SampledSpace(own, own.fit_transform(rows, encoder, labels))
    classes = np.unique(statistics.distinct_labels()) if classify else None
    reader = Reader(encoder, space, classes, seed)
    points = space.transform(rows)
    scouts = whole.take(pa.array(np.searchsorted(wanted, of_scouts)))
    pool = DiskPool(
        source,
        engine,
        reader,
        encoder,
        _held(table, of_sample, source, reader),
        points[np.searchsorted(of_sample, of_bandwidth)],
        points[np.searchsorted(of_sample, of_support)],
        Scouts(
            reader.points(scouts),
            None if classes is None else reader.codes(scouts, str(view.target)),
        ),
        _fingerprint(statistics, encoder, points),
        verbose,
    )
    return pool, statistics


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


def _held(table: pa.Table, ids: np.ndarray, source: Source, reader: Reader) -> HeldPool:
    rows = reader.encoder.transform(to_frame(table, source.view.features))
    target, classes = source.view.target, reader.classes
    if target is None:
        return HeldPool(rows, np.zeros(len(rows)), None, reader.token, ids=ids)
    if classes is None:
        return HeldPool(
            rows, to_labels(table, target).astype(np.float64), None, reader.token, ids=ids
        )
    return HeldPool(rows, reader.codes(table, target), len(classes), reader.token, ids=ids)


def _fingerprint(statistics: Statistics, encoder: TableEncoder, points: np.ndarray) -> str:
    """A checksum of what was learnt of the content, and of the rows at known places: another order is another pool."""
    moments = statistics.moments
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((statistics.rows, encoder.columns_, encoder.kinds_)).encode())
    for array in (moments.count, moments.mean, moments.squares, moments.low, moments.high, points):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    for counts in statistics.counts:
        digest.update(repr(sorted(counts.items())).encode())
    return digest.hexdigest()


def _on_cpu(settings: PlanSettings) -> PlanSettings:
    """Candidates are herded on the CPU: passes over files, not herding, are what takes time here."""
    kernel = settings.kernel if settings.kernel != "auto" else "candidates"
    return replace(settings, device="cpu", kernel=kernel, herd_batch=1)


def plan_files(
    table: Any,
    queries: Any,
    target: str | None,
    where: Any,
    columns: Sequence[str] | None,
    engine: Any,
    features: Any,
    categorical_features: Any,
    options: dict[str, Any],
) -> Plan:
    """``select_contexts`` for a pool in files; ``options`` are those of ``plan_settings``."""
    engine = resolve_engine(engine, options["n_jobs"])
    source = count_rows(open_source(table, target, where, columns), engine)
    if fits_in_memory(source):
        frame, labels = read_whole(source)
        own = {"features": features, "categorical_features": categorical_features}
        plan = select_contexts(frame, queries, y_pool=labels, **own, **options)
        plan.settings["pool"] = {"rows": source.rows, "on_disk": False, "covered": True}
        return plan
    check_strategy(resolve_strategy(options["strategy"]))
    pool, statistics = learn_pool(
        source,
        engine,
        seed=options["random_state"],
        classify=None if target is None else True,
        features=features,
        categorical_features=categorical_features,
        verbose=options["verbose"],
    )
    statistics.check_labels()
    settings = plan_settings(pool.bandwidth_points, rows=pool.rows, **options)
    points = pool.reader.space.transform(pool.encoder.transform(to_rows(queries)))
    return pool.plan(points, settings)
