"""What stages 2 and 3 cost, in kernel values, before any of them is computed."""

from __future__ import annotations

from dataclasses import dataclass

# Kernel values that take a few seconds: on two CPU cores 1 to 3 ns each, on an H200 0.01 ns (docs/performance.md).
SECONDS_WORTH = {"cpu": 2_000_000_000, "gpu": 200_000_000_000}
AT_ONCE = 200_000_000  # so few are computed at once, whatever could be saved


@dataclass(frozen=True)
class Load:
    """The size of a planning problem."""

    rows: int  # N
    queries: int  # T
    clusters: int  # K
    budget: int  # n

    def among(self, candidates: int) -> int:
        """Kernel values of herding among so many candidates a cluster: each of them to every chosen row and query of
        its cluster, and the queries of a cluster to each other."""
        return candidates * (self.clusters * self.budget + self.queries) + self.queries**2 // self.clusters

    @property
    def exact(self) -> int:
        """Kernel values of exact herding: every pool row is a candidate of every cluster."""
        return self.among(self.rows)

    def candidates_for(self, values: int) -> int:
        """How many candidates a cluster may have for so many kernel values."""
        return max(0, values - self.queries**2 // self.clusters) // (self.clusters * self.budget + self.queries)
