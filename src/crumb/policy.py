"""How many contexts, of how many rows, where the user leaves it open. docs/defaults.md has the
measurements.

A cluster of five queries is narrow enough for its context to be local. More contexts of fewer rows
beat fewer contexts of more rows for the same time, down to 500 rows. A device sets how many rows
all contexts may have together: fewer, where rows are wide. A pool that fits into one context is
one context.
"""

from __future__ import annotations

from dataclasses import dataclass

QUERIES_A_CLUSTER = 5
FEWEST_CLUSTERS = 20  # that large contexts, which the user asked for, are never fewer than
LEAST_ROWS = 500  # of a context
USUAL_COLUMNS = 30  # of a table; a pass through wider ones takes longer in proportion


@dataclass(frozen=True)
class Room:
    """What a device does in the time that people wait for."""

    clusters: int  # K, at most; a fiftieth of the queries, where these are very many
    rows: int  # of all contexts together
    context: int  # rows of a context, at most
    pool: int  # rows of a pool that is one context


CPU = Room(clusters=200, rows=100_000, context=2_000, pool=2_000)
GPU = Room(clusters=1_000, rows=1_000_000, context=3_000, pool=5_000)


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
    (200, 500)
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
        room_for = max(FEWEST_CLUSTERS, rows // (size or LEAST_ROWS))
        limit = max(min(room.clusters, room_for), queries // 50 if size is None else 0)
        clusters = max(1, min(-(-queries // QUERIES_A_CLUSTER), limit))
    if size is None:  # few contexts may be larger, within half of the room: it brings little
        size = min(max(rows // (2 * clusters), LEAST_ROWS), room.context, most)
    return clusters, size
