"""How stage 2 searches: the kernel itself over all rows or among candidates, or random features."""

from __future__ import annotations

from dataclasses import dataclass

from crumb.checks import positive
from crumb.errors import InvalidInput
from crumb.herding.candidates import FIRST
from crumb.herding.cost import AT_ONCE, Load, affordable_values

WAYS = ("exact", "candidates", "rff")
RFF_BATCH = 10  # with 256 features as good as the exact kernel; the paper's 64 and 50 are not


@dataclass(frozen=True)
class Search:
    """Everything resolved, nothing left to choose."""

    ways: tuple[str, ...]  # the first that does not give up is taken
    bandwidth: float  # σ of the kernel
    rff_dim: int
    batch: int  # rows chosen a round
    most_candidates: int = 0  # a cluster

    @property
    def name(self) -> str:
        return self.ways[0]


def check_search(kernel: str, rff_dim: int, herd_batch: str | int) -> None:
    if kernel not in ("auto", *WAYS):
        known = ", ".join(map(repr, WAYS))
        raise InvalidInput(f"Unknown kernel {kernel!r}: choose 'auto', {known}.")
    positive("rff_dim", rff_dim)
    if herd_batch != "auto":
        positive("herd_batch", herd_batch)


def resolve_search(
    kernel: str,
    rff_dim: int,
    herd_batch: str | int,
    bandwidth: float,
    load: Load,
    device: str = "cpu",
    affordable: int | None = None,
) -> Search:
    """``"auto"`` goes by the cost of each way and by the kernel values that are affordable."""
    check_search(kernel, rff_dim, herd_batch)
    batch = int(herd_batch) if herd_batch != "auto" else RFF_BATCH if kernel == "rff" else 1
    ways: tuple[str, ...] = (kernel,)
    most = load.rows
    if kernel == "auto":
        ways, most = _ways(load, device, batch, affordable or affordable_values(device))
    elif kernel == "candidates":  # made for one row at a time on a CPU; elsewhere the exact kernel
        ways = (kernel, "exact") if device == "cpu" and batch == 1 else ("exact",)
    if ways == ("rff",) and herd_batch == "auto":
        batch = RFF_BATCH
    return Search(ways, bandwidth, rff_dim, batch, most)


def _ways(load: Load, device: str, batch: int, affordable: int) -> tuple[tuple[str, ...], int]:
    """What ``"auto"`` tries, and with how many candidates: the exact kernel if it is affordable."""
    most = load.candidates_for(affordable)
    one_by_one = device == "cpu" and batch == 1
    if load.exact <= affordable:
        few = min(most, load.rows // 4)  # a vain attempt may cost half as much as none
        worth_trying = one_by_one and load.exact > AT_ONCE and few >= FIRST * load.context_size
        return ("candidates", "exact") if worth_trying else ("exact",), few
    return (("candidates",) if one_by_one and most >= FIRST * load.context_size else ("rff",)), most
