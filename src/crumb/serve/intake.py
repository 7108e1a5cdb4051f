"""From requests to the stream: plain rows go straight in, the others as a table.

A plain row is read in some tens of microseconds. A table takes milliseconds whatever its size,
and seconds where the model itself makes the points (``--features embedding``): a thread does it,
since all clients wait for the event loop.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice

from crumb.online import Answer, CrumbOnline
from crumb.serve.schema import Record, Schema
from crumb.serve.turns import Turns

Futures = list[Future[Answer]]
FEW = 100  # rows that are read in some milliseconds


class Intake:
    def __init__(self, stream: CrumbOnline, schema: Schema):
        self._stream, self._schema = stream, schema
        self._tables: Turns[Sequence[Record], Futures] = Turns(
            "crumb-intake", self._submit, _cancel
        )
        self.close = self._tables.close

    @property
    def rows(self) -> int:
        """Rows that wait here."""
        return sum(map(len, self._tables.waiting))

    async def answers(self, records: Sequence[Record]) -> list[Answer]:
        """Answers to checked records. A task that is cancelled frees its places in the stream."""
        futures = None
        if len(records) <= FEW:
            futures = self._stream.submit_rows([self._schema.row(record) for record in records])
        if futures is None:
            # Before the rows are encoded: a service that is full must be quick to say so.
            self._stream.check_room(self.rows + len(records))
            futures = await self._tables(records)
        try:
            return await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            _cancel(futures)

    def _submit(self, turn: list[Sequence[Record]]) -> list[Futures]:
        self._stream.check_room(len(turn[0]))
        records = [record for table in turn for record in table]
        names = self._stream.estimator.pool_.columns
        futures = iter(self._stream.submit_many(self._schema.table(records, names)))
        return [list(islice(futures, len(table))) for table in turn]


def _cancel(futures: Iterable[Future[Answer]]) -> None:
    for future in futures:
        future.cancel()
