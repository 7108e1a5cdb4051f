"""What stage 2 costs, counted before any of it is computed: kernel values, and what one takes. docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from crumb.herding.neighbours import PAIRS
from crumb.parallel import resolve_jobs

# Kernel values that are worth computing, unless a budget says otherwise: seconds on either.
AFFORDABLE = {"cpu": 2_000_000_000, "gpu": 20_000_000_000, "triton": 200_000_000_000}
AT_ONCE = 200_000_000  # so few are computed at once, whatever could be saved
# Nanoseconds a kernel value of 20 columns, measured: one CPU core over the whole pool (among candidates half of that);
# an H200 with torch's own operations (about), and with gpu_herding.py.
NANOSECONDS = {"cpu": 10.0, "gpu": 0.1, "triton": 0.01}

# A kernel value is an exponential and a product over the columns, which weigh as much at about 67 of them.
USUAL_COLUMNS, COLUMNS_OF_AN_EXPONENTIAL = 20, 67
PAIR = 0.15  # kernel values over the whole pool that take as long as the distance of a row from a query
WORKSPACE_BYTES = 150_000_000  # blocks of kernel values and candidates, measured


@dataclass(frozen=True)
class Load:
    """The size of a planning problem."""

    rows: int  # N
    queries: int  # T
    clusters: int  # K
    budget: int  # n
    columns: int = USUAL_COLUMNS  # d of the selection space

    @property
    def weight(self) -> float:
        """What a kernel value costs, in kernel values of 20 columns."""
        return (COLUMNS_OF_AN_EXPONENTIAL + self.columns) / (
            COLUMNS_OF_AN_EXPONENTIAL + USUAL_COLUMNS
        )

    def among(self, candidates: int) -> int:
        """Kernel values, as of 20 columns, of herding among so many candidates a cluster: each of them to every chosen
        row and query of its cluster, and the queries of a cluster to each other."""
        values = (
            candidates * (self.clusters * self.budget + self.queries)
            + self.queries**2 // self.clusters
        )
        return int(values * self.weight)

    @property
    def exact(self) -> int:
        """Kernel values of exact herding: every pool row is a candidate of every cluster."""
        return self.among(self.rows)

    @property
    def neighbours(self) -> int:
        """What it takes, in kernel values, to find the rows that are nearest to the queries."""
        asking = min(self.queries, self.clusters * self.budget)
        return int(PAIR * min(PAIRS, self.rows * asking) * self.weight)

    def candidates_for(self, values: int) -> int:
        """How many candidates a cluster may have for so many kernel values."""
        left = int((values - self.neighbours) / self.weight) - self.queries**2 // self.clusters
        return max(0, left) // (self.clusters * self.budget + self.queries)

    def seconds(self, affordable: int, device: str, n_jobs: int | None) -> float:
        """What stage 2 takes at most, where no more than so many kernel values are computed."""
        return min(self.exact, affordable) * nanoseconds(device, n_jobs) * 1e-9

    def bytes(self, device: str) -> int:
        """What stage 2 takes at most: cross-terms and running sums of all clusters, and room to work in."""
        return WORKSPACE_BYTES + self.rows * self.clusters * (16 if device == "cpu" else 8)


def affordable_values(device: str, n_jobs: int | None = None, seconds: float | None = None) -> int:
    """Kernel values that stage 2 may compute, within so many seconds if these are given."""
    usual = AFFORDABLE[_kind(device)]
    return (
        usual if seconds is None else min(usual, int(seconds * 1e9 / nanoseconds(device, n_jobs)))
    )


def nanoseconds(device: str, n_jobs: int | None) -> float:
    one = NANOSECONDS[_kind(device)]
    return one / resolve_jobs(n_jobs) if device == "cpu" else one


def _kind(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return "triton" if device.startswith("cuda") and find_spec("triton") is not None else "gpu"
