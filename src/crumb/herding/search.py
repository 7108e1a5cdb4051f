"""How stage 2 searches, and what that costs before any of it is computed.

It takes the kernel itself over all rows or among candidates, or random features. Costs are counted
in kernel values. Measured: docs/performance.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from crumb.errors import InvalidInput, positive
from crumb.herding.neighbours import FIRST, PAIRS
from crumb.machine import resolve_jobs

WAYS = ("auto", "exact", "candidates", "rff")
RFF_BATCH = 10  # with 256 features as good as the exact kernel; the paper's 64 and 50 are not

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
# Kernel values that take as long as one random feature of a row, as a row's part in a round of
# them, and as one feature's part in that.
DRAWN, ROUND, FEATURE = 2.0, 1.0, 1 / 100
WORKSPACE_BYTES = 150_000_000  # blocks of kernel values and candidates, measured


@dataclass(frozen=True)
class Load:
    """The size of a planning problem. Its costs are in kernel values of 20 columns."""

    rows: int  # N
    queries: int  # T
    clusters: int  # K
    context_size: int  # n
    columns: int = USUAL_COLUMNS  # d of the selection space

    @property
    def weight(self) -> float:
        """What a kernel value costs."""
        usual = COLUMNS_OF_AN_EXPONENTIAL + USUAL_COLUMNS
        return (COLUMNS_OF_AN_EXPONENTIAL + self.columns) / usual

    def among(self, candidates: int) -> int:
        """Herding among that many candidates of each cluster, all compared with the rows chosen
        for it and with its queries."""
        return int(candidates * (self.clusters * self.context_size + self.queries) * self.weight)

    @property
    def exact(self) -> int:
        """Exact herding: every pool row is a candidate of every cluster."""
        return self.among(self.rows)

    @property
    def within(self) -> int:
        """Among the queries of each cluster. No choice depends on them: they turn a score into
        MMD². So they count as time, but do not decide how to search."""
        return int(self.queries**2 / (2 * self.clusters) * self.weight)

    @property
    def neighbours(self) -> int:
        """Finding the rows that are nearest to the queries."""
        asking = min(self.queries, self.clusters * self.context_size)
        return int(PAIR * min(PAIRS, self.rows * asking) * self.weight)

    def random_features(self, dim: int, batch: int) -> int:
        """D features of every row, then a product with all of them in each round."""
        rounds = self.clusters * -(-self.context_size // batch)
        return int(self.rows * (DRAWN * dim * self.weight + rounds * (ROUND + dim * FEATURE)))

    def candidates_for(self, values: int) -> int:
        """How many candidates a cluster may have for that many kernel values."""
        return max(0, values - self.neighbours) // self.among(1)

    def seconds(
        self, affordable: int, device: str, n_jobs: int | None, search: Search | None = None
    ) -> float:
        """What stage 2 takes at most, where choices cost at most ``affordable`` kernel values.

        ``search``: how it searches; exact and with random features it takes what it takes.
        """
        values = min(self.exact, affordable)
        if search is not None and search.ways[-1] == "exact":
            values = self.exact
        elif search is not None and search.name == "rff":
            values = self.random_features(search.rff_dim, search.batch)
        return (values + self.within) * _nanoseconds(device, n_jobs) * 1e-9

    def bytes(self, device: str) -> int:
        """What stage 2 takes at most: cross-terms and running sums, and room to work in."""
        return WORKSPACE_BYTES + self.rows * self.clusters * (16 if device == "cpu" else 8)


def affordable_values(device: str, n_jobs: int | None = None, seconds: float | None = None) -> int:
    """Kernel values that stage 2 may compute, within ``seconds`` if these are given."""
    usual = AFFORDABLE[_kind(device)]
    if seconds is None:
        return usual
    return min(usual, int(seconds * 1e9 / _nanoseconds(device, n_jobs)))


def _nanoseconds(device: str, n_jobs: int | None) -> float:
    return NANOSECONDS[_kind(device)] / (resolve_jobs(n_jobs) if device == "cpu" else 1)


def _kind(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return "triton" if device.startswith("cuda") and find_spec("triton") is not None else "gpu"


@dataclass(frozen=True)
class Search:
    """Everything resolved, nothing left to choose."""

    ways: tuple[str, ...]  # the first that does not give up is taken
    rff_dim: int
    batch: int  # rows chosen a round
    most_candidates: int  # a cluster

    @property
    def name(self) -> str:
        return self.ways[0]


def check_search(kernel: str, rff_dim: int, herd_batch: str | int) -> None:
    if kernel not in WAYS:
        known = ", ".join(map(repr, WAYS))
        raise InvalidInput(f"Unknown kernel {kernel!r}: choose {known}.")
    positive("rff_dim", rff_dim)
    if herd_batch != "auto":
        positive("herd_batch", herd_batch)


def resolve_search(
    kernel: str,
    rff_dim: int,
    herd_batch: str | int,
    load: Load,
    device: str = "cpu",
    affordable: int | None = None,
) -> Search:
    """``"auto"`` goes by the cost of each way and by the kernel values that are affordable."""
    one_by_one = device == "cpu" and herd_batch in ("auto", 1)  # what candidates are made for
    ways: tuple[str, ...] = (kernel,)
    most = load.rows
    if kernel == "auto":
        ways, most = _ways(load, one_by_one, affordable or affordable_values(device))
    elif kernel == "candidates":
        ways = (kernel, "exact") if one_by_one else ("exact",)
    usual = RFF_BATCH if ways == ("rff",) else 1
    return Search(ways, rff_dim, usual if herd_batch == "auto" else int(herd_batch), most)


def _ways(load: Load, one_by_one: bool, affordable: int) -> tuple[tuple[str, ...], int]:
    """What ``"auto"`` tries, and with how many candidates: the exact kernel if it is affordable."""
    most, least = load.candidates_for(affordable), FIRST * load.context_size
    if load.exact > affordable:
        return ("candidates",) if one_by_one and most >= least else ("rff",), most
    few = min(most, load.rows // 4)  # a vain attempt may cost half as much as none
    worth_trying = one_by_one and load.exact > AT_ONCE and few >= least
    return ("candidates", "exact") if worth_trying else ("exact",), few
