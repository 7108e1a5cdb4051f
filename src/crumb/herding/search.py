"""How stage 2 searches, and what that costs before any of it is computed.

It takes the kernel itself over all rows or among candidates, or random features. Costs are counted
in kernel values. Measured: docs/performance.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from crumb.herding.candidates import GROUP_ROWS
from crumb.herding.greedy import SINGLE_CELLS
from crumb.herding.neighbours import PAIRS, PAIRS_A_ROW
from crumb.machine import resolve_jobs

WAYS = ("auto", "exact", "candidates", "rff")
RFF_BATCH = 10  # with 256 features as good as the exact kernel; the paper's 64 and 50 are not

# Kernel values that are worth computing, unless a budget says otherwise: seconds on each device.
AFFORDABLE = {"cpu": 2_000_000_000, "gpu": 20_000_000_000, "triton": 200_000_000_000}
# The same for each row and query of the passes: about a third of their time on a CPU, and about as
# long as they take where categories make points wide. So a cluster may have as many candidates,
# however many clusters and queries there are. Large contexts need more of them.
VALUES_A_ROW, MOST_A_ROW = 12_000, 50_000
LEAST = 4  # candidates, as a multiple of n: with fewer, random features serve better
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
    def passes(self) -> int:
        """Rows and queries that the passes of the model see."""
        return self.clusters * self.context_size + self.queries

    @property
    def weight(self) -> float:
        """What a kernel value costs."""
        usual = COLUMNS_OF_AN_EXPONENTIAL + USUAL_COLUMNS
        return (COLUMNS_OF_AN_EXPONENTIAL + self.columns) / usual

    def among(self, candidates: int) -> int:
        """Herding among that many candidates of each cluster, all compared with the rows chosen
        for it and with its queries."""
        return int(candidates * self.passes * self.weight)

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
        worth = max(PAIRS, PAIRS_A_ROW * self.passes)
        return int(PAIR * min(worth, self.rows * asking) * self.weight)

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
        if search is not None and search.name == "exact":
            values = self.exact
        elif search is not None and search.name == "rff":
            values = self.random_features(search.rff_dim, search.batch)
        return (values + self.within) * _nanoseconds(device, n_jobs) * 1e-9

    def bytes(self, device: str, n_jobs: int | None, search: Search) -> int:
        """What stage 2 takes at most, with room to work in."""
        cell = 8 if device == "cpu" else 4
        if search.name == "rff":  # the features, and which rows are taken
            feature = 4 if self.rows * search.rff_dim > SINGLE_CELLS else cell
            held = self.rows * (search.rff_dim * feature + self.clusters)
        elif search.name == "candidates":  # the points of a group, three times, for each thread
            group = max(GROUP_ROWS, 2 * search.most_candidates)
            candidates = min(resolve_jobs(n_jobs) * group, self.clusters * self.rows)
            held = candidates * (self.columns + 3) * 16
        else:  # cross-terms and running sums
            held = 2 * cell * self.rows * self.clusters
        return WORKSPACE_BYTES + held


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

    name: str  # the way that is taken
    rff_dim: int
    batch: int  # rows chosen a round
    most_candidates: int  # a cluster


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
    way, most = kernel, load.rows
    if kernel == "auto":
        way, most = _way(load, one_by_one, affordable or _usual(load, device))
    elif kernel == "candidates" and not one_by_one:
        way = "exact"
    usual = RFF_BATCH if way == "rff" else 1
    return Search(way, rff_dim, usual if herd_batch == "auto" else int(herd_batch), most)


def _usual(load: Load, device: str) -> int:
    """Kernel values that are affordable without a budget."""
    values = affordable_values(device)
    if device != "cpu":
        return values
    candidates = max(VALUES_A_ROW, min(LEAST * load.context_size, MOST_A_ROW))
    return max(values, int(candidates * load.passes * load.weight) + load.neighbours)


def _way(load: Load, one_by_one: bool, affordable: int) -> tuple[str, int]:
    """What ``"auto"`` takes, and with how many candidates at most."""
    if load.exact <= (min(AT_ONCE, affordable) if one_by_one else affordable):
        return "exact", load.rows
    most = min(load.rows, load.candidates_for(affordable))
    enough = most >= min(LEAST * load.context_size, load.rows)
    return "candidates" if one_by_one and enough else "rff", most
