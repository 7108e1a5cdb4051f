"""The paper's published numbers, each with the table or figure it stands in. What is only drawn there is not here.

*CRUMB: Efficient Prior Fitted Network Inference via Distributionally Matched Context Batching.* Tables and figures are
numbered in the order in which they appear.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    mean: float
    sem: float
    p_adjusted: str | None = None  # against CRUMB, as printed


# Table 1: TabICL-v2, 51 data sets, 10 seeds, n = 0.1 N.
MAIN_RANKS = {
    "full": Rank(2.202, 0.098, "~10⁻¹⁹"),
    "knn": Rank(2.782, 0.107, "0.106"),
    "crumb": Rank(2.975, 0.096),
    "micp": Rank(3.304, 0.105, "~10⁻⁴"),
    "uniform": Rank(3.737, 0.105, "~10⁻¹⁸"),
}
MAIN_ORDER = ("full", "knn", "crumb", "micp", "uniform")
# Section "Main Results", outcome: average PFN inference time.
MAIN_PASS_SECONDS = {"crumb": 35.0, "knn": 361.0}

# Table 2: 38 classification sets, three models, five proportions, five seeds.
CONSISTENCY_RANKS = {
    "crumb": Rank(1.809, 0.027),
    "micp": Rank(2.022, 0.023, "~10⁻⁸"),
    "uniform": Rank(2.169, 0.026, "~10⁻⁹"),
}


@dataclass(frozen=True)
class Drift:
    crumb: float
    crumb_sem: float
    micp: float
    micp_sem: float
    lead: float
    lead_sem: float


# Table 3: accuracy under drift, three classification sets, three models, ten seeds.
DRIFT = {
    0.0: Drift(0.794, 0.029, 0.746, 0.033, 0.049, 0.006),
    0.5: Drift(0.788, 0.019, 0.663, 0.031, 0.125, 0.015),
    1.0: Drift(0.699, 0.014, 0.528, 0.031, 0.171, 0.021),
}

# Table 5: how the cost grows with N at a fixed n, and the number of passes.
COMPLEXITY = {
    "full": ("–", "O(N²)", "1"),
    "uniform": ("O(1)", "O(1)", "1"),
    "knn": ("O(N)", "O(1)", "T"),
    "micp": ("O(N²), O(N) with K′ capped", "O(1)", "K*"),
    "crumb": ("O(N)", "O(1)", "K"),
}

# Appendix "RFF and Batching Ablation": B = 50, D = 64 against exact herding.
RFF_POINTS, RFF_SPEED_UP = 0.2, 10.0
RFF_DEFAULT = (64, 50)  # Table 4

THREE_MODELS = "TabPFNv2, TabICLv1, TabICLv2"


@dataclass(frozen=True)
class Scope:
    """What the paper ran, in the words of the table "what was run"; None where it does not say."""

    place: str
    datasets: str
    models: str
    seeds: str
    pool: str | None
    queries: str | None
    budget: str
    clusters: str


SCOPES = {
    "main": Scope("Table 1", "51 of TabArena", "TabICLv2", "10", None, "200", "0.1 N", "20"),
    "consistency": Scope(
        "Table 2, Figure 3",
        "38 of TabArena (classification)",
        THREE_MODELS,
        "5",
        "500, 1,000, 2,000 at most",
        None,
        "0.05, 0.1, 0.2, 0.5, 0.8 N",
        "20",
    ),
    "large": Scope(
        "Figure 4",
        "5 largest of TabArena",
        THREE_MODELS,
        "5",
        "57k to 100k",
        None,
        "at most 0.1 N, early stopping",
        "20",
    ),
    "drift": Scope(
        "Table 3, Figure 5",
        "4: Anneal, Amazon Employee Access, Airfoil Self Noise, Higgs",
        THREE_MODELS,
        "10",
        "about 25,000",
        "200",
        "min(0.1 N, 10,000)",
        "20",
    ),
    "clusters": Scope("Figure 6", "TabArena", THREE_MODELS, "10", None, None, "0.1 N", "1, 5, 10, 20, 30"),
    "retrieval": Scope("Figures 7 and 8", "TabArena", "not named there", "10", "10,000 at most", None, "500", "20"),
    "factorial": Scope(
        "Figure 9", "51 of TabArena", THREE_MODELS, "10", "10,000 at most", None, "500, 1,000, 2,000", "20 (B, D)"
    ),
    "rff": Scope("Figures 10 to 13", "51 of TabArena", THREE_MODELS, "10", None, None, "500", "20"),
    "complexity": Scope("Table 5", "an analysis, nothing measured", "–", "–", None, None, "fixed", "fixed"),
}
