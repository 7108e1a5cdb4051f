"""How many contexts, of how many rows, where the user leaves it open. docs/defaults.md has the
measurements.

A device sets how many rows all contexts may have together: fewer, where rows are wide. How they are
shared out matters little, from 200 contexts of 500 rows to 20 of 5,000. A cluster of five queries
is narrow enough for its context to be local, and contexts of 1,000 rows are safe where one rule
holds for the whole table. A pool that fits into one context is one context.
"""

from __future__ import annotations

from dataclasses import dataclass

QUERIES_A_CLUSTER = 5
FEWEST_CLUSTERS = 20  # that large contexts, which the user asked for, are never fewer than
USUAL_ROWS, LEAST_ROWS = 1_000, 500  # of a context; the least where queries are very many
USUAL_COLUMNS = 30  # of a table; a pass through wider ones takes longer in proportion


@dataclass(frozen=True)
class Room:
    """What a device does in the time that people wait for."""

    clusters: int  # K, at most; a fiftieth of the queries, where these are very many
    rows: int  # of all contexts together
    context: int  # rows of a context, at most
    pool: int  # rows of a pool that is one context


CPU = Room(clusters=100, rows=100_000, context=2_000, pool=2_000)
GPU = Room(clusters=500, rows=500_000, context=3_000, pool=5_000)


def choose(
    device: str,
    shape: tuple[int, int],
    queries: int,
    clusters: int | None = None,
    size: int | None = None,
    window: int | None = None,
) -> tuple[int, int]:
    """K and n for a pool of this shape; what the user has chosen stays.

    >>> choose("cpu", (100_000, 20), queries=1_000)
    (100, 1000)
    >>> choose("cuda", (100_000, 20), queries=1_000)
    (200, 2500)
    >>> choose("cpu", (1_500, 20), queries=1_000)
    (1, 1500)
    """
    room, (pool_rows, columns) = CPU if device == "cpu" else GPU, shape
    rows = int(room.rows * min(1.0, USUAL_COLUMNS / max(1, columns)))
    most = min(pool_rows, window or pool_rows)
    if clusters is None and size is None and most == pool_rows <= room.pool:
        return 1, pool_rows
    if clusters is None:
        room_for = max(FEWEST_CLUSTERS, rows // (size or USUAL_ROWS))
        limit = max(min(room.clusters, room_for), queries // 50 if size is None else 0)
        clusters = max(1, min(-(-queries // QUERIES_A_CLUSTER), limit))
    if size is None:
        size = min(max(rows // clusters, LEAST_ROWS), room.context, most)
    return clusters, size
