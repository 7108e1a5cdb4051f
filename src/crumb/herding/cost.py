"""What stage 2 costs, before any of it is computed: kernel values, and the time that one takes.

Measured: docs/performance.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from crumb.herding.neighbours import PAIRS
from crumb.parallel import resolve_jobs

# Kernel values that are worth computing, unless a budget says otherwise: seconds on each device.
AFFORDABLE = {"cpu": 2_000_000_000, "gpu": 20_000_000_000, "triton": 200_000_000_000}
AT_ONCE = 200_000_000  # kernel values that take so little time that nothing need be saved
# Nanoseconds a kernel value of 20 columns, measured: one CPU core over the whole pool (half of
# that among candidates); an H200 with torch's own operations (about), and with gpu.py.
NANOSECONDS = {"cpu": 10.0, "gpu": 0.1, "triton": 0.01}

# A kernel value is an exponential and a product over the columns; the product of 67 columns
# takes as long as the exponential.
USUAL_COLUMNS, COLUMNS_OF_AN_EXPONENTIAL = 20, 67
PAIR = 0.15  # kernel values over the whole pool that take as long as the distance of two rows
WORKSPACE_BYTES = 150_000_000  # blocks of kernel values and candidates, measured


@dataclass(frozen=True)
class Load:
    """The size of a planning problem."""

    rows: int  # N
    queries: int  # T
    clusters: int  # K
    context_size: int  # n
    columns: int = USUAL_COLUMNS  # d of the selection space

    @property
    def weight(self) -> float:
        """What a kernel value costs, in kernel values of 20 columns."""
        usual = COLUMNS_OF_AN_EXPONENTIAL + USUAL_COLUMNS
        return (COLUMNS_OF_AN_EXPONENTIAL + self.columns) / usual

    def among(self, candidates: int) -> int:
        """Kernel values, as of 20 columns, of herding among that many candidates of each cluster:
        each of them to every chosen row and every query of its cluster."""
        each = self.clusters * self.context_size + self.queries
        return int(candidates * each * self.weight)

    @property
    def exact(self) -> int:
        """Kernel values of exact herding: every pool row is a candidate of every cluster."""
        return self.among(self.rows)

    @property
    def within(self) -> int:
        """Kernel values among the queries of each cluster. No choice depends on them: they turn a
        score into MMD². So they count as time, but do not decide how to search."""
        return int(self.queries**2 / (2 * self.clusters) * self.weight)

    @property
    def neighbours(self) -> int:
        """What it takes, in kernel values, to find the rows that are nearest to the queries."""
        asking = min(self.queries, self.clusters * self.context_size)
        return int(PAIR * min(PAIRS, self.rows * asking) * self.weight)

    def candidates_for(self, values: int) -> int:
        """How many candidates a cluster may have for that many kernel values."""
        left = int((values - self.neighbours) / self.weight)
        return max(0, left) // (self.clusters * self.context_size + self.queries)

    def seconds(self, affordable: int, device: str, n_jobs: int | None) -> float:
        """What stage 2 takes at most, where choices cost at most ``affordable`` kernel values."""
        values = min(self.exact, affordable) + self.within
        return values * nanoseconds(device, n_jobs) * 1e-9

    def bytes(self, device: str) -> int:
        """What stage 2 takes at most: cross-terms and running sums, and room to work in."""
        return WORKSPACE_BYTES + self.rows * self.clusters * (16 if device == "cpu" else 8)


def affordable_values(device: str, n_jobs: int | None = None, seconds: float | None = None) -> int:
    """Kernel values that stage 2 may compute, within ``seconds`` if these are given."""
    usual = AFFORDABLE[_kind(device)]
    if seconds is None:
        return usual
    return min(usual, int(seconds * 1e9 / nanoseconds(device, n_jobs)))


def nanoseconds(device: str, n_jobs: int | None) -> float:
    one = NANOSECONDS[_kind(device)]
    return one / resolve_jobs(n_jobs) if device == "cpu" else one


def _kind(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return "triton" if device.startswith("cuda") and find_spec("triton") is not None else "gpu"
