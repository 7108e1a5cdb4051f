"""``CrumbOnline``: queries come one at a time, and answers go out in passes that queries share.

Any thread may submit. A query is encoded and routed by the thread that submits it, with the plan
that is current then, and that plan answers it whatever comes later. One thread owns the passes
and a second one makes new plans (``worker.py``).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from crumb.errors import StreamClosed
from crumb.online.child import Child
from crumb.online.drift import Drift
from crumb.online.memory import LabelledRows, PoolMemory, Recent, latest
from crumb.online.observer import Observer, Stats, tell
from crumb.online.state import StreamOptions, StreamState, first_state, read_state, write_state
from crumb.online.version import Answer, Built, PlanVersion, build, resolve_output
from crumb.online.worker import Clock, Pending, Refresher, Worker
from crumb.pfn import Output
from crumb.plan import Plan
from crumb.table.encoder import Rows
from crumb.table.row import Piece, Record

Observers: TypeAlias = "Observer | Sequence[Observer] | None"
Encoded: TypeAlias = tuple[list[Piece], np.ndarray]  # pieces, and a point for each row


class CrumbOnline:
    """Answers for a stream of queries with the contexts of a frozen plan.

    Answers are those of ``estimator.predict_proba(X, plan=stream.plan)`` (or ``predict``), whatever
    the order and the batches in which the rows come.

    Parameters
    ----------
    estimator : fitted CrumbClassifier or CrumbRegressor, or a StreamState
        A state is what ``snapshot`` gives.
    X : table or None, default=None
        Queries that the first plan is made for. None: a sample of the pool.
    plan : Plan or None, default=None
        A plan that was made for ``X``, instead of a new one.
    output : {"proba", "label", "mean", "median", "quantiles"} or None, default=None
        What an answer holds. None: probabilities, labels where the model has none, means for
        regression.
    quantiles : list of float or None, default=None
        Levels, for ``output="quantiles"``. None: 0.1, 0.2, … 0.9.
    b_min : int, default=32
        A cluster gets its pass when this many of its queries wait.
    timeout : float, default=0.1
        Seconds after which a query's cluster gets its pass, however few wait.
    max_pending : int, default=10_000
        Queries that may wait for an answer; more are refused with ``StreamFull``.
    refresh : {"never", "periodic", "drift"}, default="never"
        When a new plan is made for the recent queries: every ``refresh_every`` queries, or when a
        look after that many finds that they no longer resemble those behind the plan.
    refresh_every : int or None, default=None
        None: ``recent``, and a quarter of it between two looks for drift.
    recent : int, default=512
        The latest queries, for which the next plan is made. It should be many times the number of
        clusters: a context that is matched to few queries fits others less.
    significance : float, default=0.01
        Probability that a look finds drift where there is none.
    plan_ahead : bool, default=True
        Plan for what may come next too: neighbours of the queries in the pool, and a sample of it.
        False: for the queries alone, as in the paper.
    max_rows, max_age : int, float or None, default=None
        Rows of the pool, and seconds since they came, beyond which the oldest leave it at the next
        refresh.
    observer : Observer, list of them or None, default=None
        Is told about answers, passes, failures and refreshes.
    clock : Clock or None, default=None
        For tests: where the time comes from.
    builder : ChildBuilder or None, default=None
        Where new plans are computed. None: in the stream's own thread. A ``ChildBuilder``
        (``crumb.online.child``): in a process at low priority.
    window : int or None, default=None
        The name of ``recent`` in version 0.1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier
    >>> from crumb.online import CrumbOnline
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CrumbClassifier(context_size=60, n_clusters=3).fit(X[::2], y[::2])
    >>> with CrumbOnline(clf, X[1::2], timeout=0.01) as stream:
    ...     answer = stream.submit(X[1]).result()
    >>> answer.value.shape, answer.version
    ((3,), 1)
    """

    def __init__(
        self,
        estimator: Any,
        X: Any = None,
        *,
        plan: Plan | None = None,
        observer: Observers = None,
        clock: Clock | None = None,
        builder: Child | None = None,
        **options: Any,
    ):
        self._clock, self._builder = clock or Clock(), builder
        if isinstance(estimator, StreamState):
            state = estimator
        else:
            chosen = StreamOptions.of(options)
            state = first_state(estimator, X, plan, chosen, self._clock.date())
        self.options = state.options
        self.output: Output = resolve_output(
            state.version.estimator, self.options.output, self.options.quantiles
        )
        self.observers = [observer] if isinstance(observer, Observer) else list(observer or ())
        self._remember(state)
        self._start(state.counters)

    def _remember(self, state: StreamState) -> None:
        self._version = state.version
        self._retired: dict[int, PlanVersion] = {}  # replaced, and queries may still wait for them
        limits = self.options.max_rows, self.options.max_age
        self._memory = PoolMemory(state.pool, *limits, list(state.new))
        self._recent = Recent(self.options.recent)
        for rows in state.recent:
            self._recent.add(rows)
        self._recent.fresh = state.fresh
        self._drift: Drift | None = None
        self._building = threading.Lock()  # one new plan at a time

    def _start(self, counters: dict[str, int]) -> None:
        """Have the contexts ready, then start the threads."""
        self._version.prepare()
        self._worker = Worker(
            *(self.options, self.output, self._clock, self.observers),
            *(Counter(counters), self._free_retired),
        )
        self._changed = self._worker.changed  # guards what the threads share
        self._refresher = Refresher(self.options, self._drifted, self._renew, self._refresh_failed)

    # Queries in, answers out

    def submit(self, row: Any) -> Future[Answer]:
        """Ask for one row, from any thread.

        Parameters
        ----------
        row : sequence, Series, mapping of column names, or table of one row

        Returns
        -------
        future : Future of an Answer
            ``future.result()`` waits for it; ``future.cancel()`` frees the place.
        """
        return self._submit(lambda version: _pieces(version.estimator.encode_row(row)))[0]

    def submit_rows(self, rows: Sequence[Any]) -> list[Future[Answer]] | None:
        """``submit`` for plain rows, all or none, in microseconds each.

        Parameters
        ----------
        rows : list of rows of numbers and text

        Returns
        -------
        futures : list of Future, or None
            None: some are not plain, and ``submit_many`` has to make a table of them.
        """
        return self._submit(lambda version: version.read(rows))

    def submit_many(self, X: Any) -> list[Future[Answer]]:
        """Ask for each row of a table: all of them are accepted, or none is.

        Parameters
        ----------
        X : table

        Returns
        -------
        futures : list of Future, one a row
        """
        return self._submit(lambda version: _pieces(version.estimator.encode(X)))

    async def ask(self, row: Any) -> Answer:
        """``submit`` for asyncio. A task that is cancelled frees its place.

        Parameters
        ----------
        row : as for ``submit``

        Returns
        -------
        answer : Answer
        """
        return await asyncio.wrap_future(self.submit(row))

    def _submit(self, encode: Callable[[PlanVersion], Encoded | None]) -> Any:
        """A future for each row, or None where ``encode`` gives none."""
        accepted = False
        while not accepted:
            version = self._version
            self._worker.check_open()
            if (encoded := encode(version)) is None:
                return None
            pieces, points = encoded
            clusters, now = version.plan.route(points).tolist(), self._clock.now()
            places = ((piece, i) for piece in pieces for i in range(len(piece)))
            items = [
                Pending(version, (version.number, cluster), *place, now)
                for cluster, place in zip(clusters, places, strict=True)
            ]
            with self._changed:
                accepted = version is self._version  # else: once more, with the new plan
                if accepted:
                    self._worker.accept(items, now)
                    for piece in pieces:
                        self._recent.add(piece)
        self._refresher.saw(len(items))
        return [item.future for item in items]

    def check_room(self, rows: int) -> None:
        """Raise ``StreamFull`` where as many rows would be refused now.

        Parameters
        ----------
        rows : int
        """
        with self._changed:
            self._worker.buffers.check_room(rows)

    def flush(self, wait_for_answers: bool = True) -> None:
        """Answer now what waits now, however few there are.

        Parameters
        ----------
        wait_for_answers : bool, default=True
        """
        self._worker.flush(wait_for_answers)

    # Plans

    @property
    def current(self) -> PlanVersion:
        """What a query would be answered with now: a plan and the estimator that belongs to it."""
        return self._version

    @property
    def plan(self) -> Plan:
        """The plan that answers now."""
        return self._version.plan

    @property
    def estimator(self) -> Any:
        """The estimator that belongs to ``plan``: after rows were learned, one with a new pool."""
        return self._version.estimator

    @property
    def version(self) -> int:
        """The number of the plan: 1, and one more with every refresh."""
        return self._version.number

    def recent(self, count: int | None = None) -> Rows:
        """The latest queries, encoded, oldest first. Until queries come: rows of the pool.

        Parameters
        ----------
        count : int or None, default=None
            None: as many as the stream remembers.

        Returns
        -------
        rows : table
        """
        with self._changed:
            pieces, held = self._recent.pieces(), len(self._recent)
        return latest(pieces, held if count is None else min(count, held))

    def refresh(self) -> int:
        """Make a plan for the recent queries, with the pool as it is now.

        The old version answers until the new one is complete, and then those that wait for it.

        Returns
        -------
        version : int
            The number of the new plan.
        """
        try:
            return self._renew()
        except Exception as error:
            self._refresh_failed(error)
            raise

    def settle(self) -> None:
        """Wait until no automatic refresh is under way or due."""
        self._refresher.settle()

    def _renew(self) -> int:
        started = self._clock.now()
        with self._building:
            old = self._version
            upcoming = self._memory.upcoming(self._clock.date())
            pool = None if upcoming is None else upcoming.pool
            call = None if self._builder is None else self._builder.call
            asked = old.estimator, pool, self.recent(), self.options.plan_ahead
            built = build(*asked) if call is None else call(build, *asked)
            new = self._successor(old, built)
            new.prepare(self._refresher.stopped, call)
            if self._refresher.stopped():
                raise StreamClosed("The stream was closed before the new plan was complete.")
            with self._changed:
                if upcoming is not None:
                    self._memory.commit(upcoming)
                self._version, self._recent.fresh = new, 0
                self._retired[old.number] = old
                self._worker.counts["refreshes"] += 1
                self._worker.hurry()
        self._free_retired()
        tell(self.observers, "refreshed", new.number, self._clock.now() - started)
        return new.number

    def _successor(self, old: PlanVersion, built: Built) -> PlanVersion:
        estimator = old.estimator
        if built.estimator is not None:
            estimator = built.estimator
            estimator.backend_.share(old.estimator.backend_)
        numbers = old.number + 1, old.pool_number + (built.estimator is not None)
        return PlanVersion(*numbers, estimator, *built[1:], self._clock.date())

    def _free_retired(self) -> None:
        """Free what the back-end keeps for replaced plans that no query waits for any more."""
        with self._changed:
            if not self._retired:
                return
            awaited = self._worker.versions()
            gone = [self._retired.pop(number) for number in self._retired.keys() - awaited]
            used = self._version.keys.union(*(old.keys for old in self._retired.values()))
        for version in gone:
            version.estimator.backend_.forget(version.keys - used)

    def _refresh_failed(self, error: BaseException) -> None:
        with self._changed:
            self._worker.counts["refresh_failures"] += 1
        tell(self.observers, "refresh_failed", error)

    def drift(self) -> Drift:
        """Compare the queries since the plan was made with those behind it.

        Where none came since, all the recent queries.

        Returns
        -------
        drift : Drift
        """
        version = self._version
        points = version.estimator.encode(self.recent(self._recent.fresh or None))[1]
        found = version.baseline.compare(points, self.options.significance, version.number)
        with self._changed:
            self._drift = found
        tell(self.observers, "looked", found)
        return found

    def _drifted(self) -> bool:
        """Whether the refresh that is due is needed. Drift needs half of the queries to be new."""
        if self.options.refresh == "periodic":
            return True
        return 2 * self._recent.fresh >= self._recent.size and self.drift().found

    def learn(self, X: Any, y: Any) -> None:
        """Labelled rows for the pool; the next refresh uses them.

        Parameters
        ----------
        X : table of rows
        y : array of their labels
        """
        rows = self._version.estimator.rows_to_join(X)
        self.add_labelled(self.label([rows.copy()], y))  # the caller may write to X again

    def label(self, pieces: list[Piece], y: Any) -> LabelledRows:
        """Encoded rows with their labels: whatever is wrong with these is said here.

        Parameters
        ----------
        pieces : list of tables that ``rows_to_join`` of the estimator gave
        y : array of their labels

        Returns
        -------
        labelled : LabelledRows
        """
        rows = sum(map(len, pieces))
        labels = self._memory.labels(y, rows, regression=self._version.classes is None)
        return LabelledRows(pieces, labels, np.full(len(labels), self._clock.date()))

    def add_labelled(self, labelled: LabelledRows) -> int:
        """Rows that ``label`` checked, for the next refresh.

        Parameters
        ----------
        labelled : LabelledRows

        Returns
        -------
        waiting : int
            Rows that wait for the next refresh now.
        """
        with self._changed:
            self._memory.add(labelled)
            self._worker.counts["taught"] += len(labelled.y)
            return self._memory.waiting()

    # The stream as a whole

    def stats(self) -> Stats:
        """Where the stream stands.

        Returns
        -------
        stats : Stats
        """
        with self._changed:
            version, counts = self._version, self._worker.counts
            return Stats(
                **counts,
                pending=self._worker.buffers.pending,
                learned=self._memory.waiting(),
                refreshing=self._building.locked(),
                version=version.number,
                pool_version=version.pool_number,
                plan_age=self._clock.date() - version.made,
                drift=self._drift,
                fill=self._worker.buffers.fill(version.number),
            )

    def snapshot(self) -> StreamState:
        """Everything that a restart needs, as of one moment. Queries that wait are not in it.

        Returns
        -------
        state : StreamState
        """
        with self._changed:
            return StreamState(
                options=self.options,
                version=self._version,
                pool=self._memory.pool,
                recent=self._recent.pieces(),
                new=list(self._memory.new),
                fresh=self._recent.fresh,
                counters=dict(self._worker.counts),
            )

    def save(self, path: str | Path) -> None:
        """Write the stream to one file, without pickle; queries are answered meanwhile.

        Parameters
        ----------
        path : str or path
        """
        write_state(self.snapshot(), path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        observer: Observers = None,
        clock: Clock | None = None,
        builder: Child | None = None,
        **changes: Any,
    ) -> CrumbOnline:
        """A stream that continues a saved one.

        Parameters
        ----------
        path : str or path
        observer, clock, builder
            As for a new stream.
        **changes
            Parameters of the estimator that differ on this machine.

        Returns
        -------
        stream : CrumbOnline
        """
        return cls(read_state(path, changes), observer=observer, clock=clock, builder=builder)

    def stop_refreshes(self) -> None:
        """No new plans from here on. One that is under way is dropped where that is possible."""
        self._refresher.stop()
        if self._builder is not None:
            self._builder.close()

    def close(self, drain: bool = True) -> None:
        """Take no more queries. The end of a ``with`` block does the same.

        Parameters
        ----------
        drain : bool, default=True
            Answer the queries that wait. False: they fail with ``StreamClosed``.
        """
        self._worker.close(drain)
        self.stop_refreshes()
        self._refresher.close()
        self._free_retired()  # the last to wait for a version may have been refused
        self._worker.join()

    @property
    def closed(self) -> bool:
        """Whether the stream takes no more queries."""
        return self._worker.closed

    def __enter__(self) -> CrumbOnline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _pieces(encoded: tuple[Piece, np.ndarray]) -> Encoded:
    rows, points = encoded
    if not isinstance(rows, Record):
        rows = rows.copy()  # the caller may write to the row before it is answered
    return [rows], points
