"""The paper's published numbers, each with the table or figure it stands in.

*CRUMB: Efficient Prior Fitted Network Inference via Distributionally Matched Context Batching.*
Tables and figures are numbered in the order in which they appear. What is only drawn is not here.
"""

from csv import DictReader
from pathlib import Path

Rank = tuple[float, float, str]  # mean, SEM, and the adjusted p against CRUMB as printed
# Table 1: TabICL-v2, 51 data sets, 10 seeds, n = 0.1 N. In the order of the paper.
MAIN_RANKS = {
    "full": (2.202, 0.098, "~10⁻¹⁹"),
    "knn": (2.782, 0.107, "0.106"),
    "crumb": (2.975, 0.096, "–"),
    "micp": (3.304, 0.105, "~10⁻⁴"),
    "uniform": (3.737, 0.105, "~10⁻¹⁸"),
}
# Section "Main Results", outcome: average PFN inference time.
MAIN_PASS_SECONDS = {"crumb": 35.0, "knn": 361.0}
# Table 2: 38 classification sets, three models, five proportions, five seeds.
CONSISTENCY_RANKS = {
    "crumb": (1.809, 0.027, "–"),
    "micp": (2.022, 0.023, "~10⁻⁸"),
    "uniform": (2.169, 0.026, "~10⁻⁹"),
}
# Table 3: mean and SEM of accuracy under drift, three classification sets, three models, ten seeds.
DRIFT = {
    0.0: {"crumb": (0.794, 0.029), "micp": (0.746, 0.033), "lead": (0.049, 0.006)},
    0.5: {"crumb": (0.788, 0.019), "micp": (0.663, 0.031), "lead": (0.125, 0.015)},
    1.0: {"crumb": (0.699, 0.014), "micp": (0.528, 0.031), "lead": (0.171, 0.021)},
}
# Table 5: how selection and passes grow with N at a fixed n, and the number of passes.
COMPLEXITY = {
    "full": ("–", "O(N²)", "1"),
    "uniform": ("O(1)", "O(1)", "1"),
    "knn": ("O(N)", "O(1)", "T"),
    "micp": ("O(N²), O(N) with K′ capped", "O(1)", "K*"),
    "crumb": ("O(N)", "O(1)", "K"),
}
# What it finds, protocol by protocol, and where it is silent or contradicts itself.
FINDINGS = {
    "main": """The paper ranks full context, kNN, CRUMB, MICP and uniform in this order; it finds
        CRUMB close to kNN (p = 0.106) and better than MICP and uniform (p < 0.001).""",
    "consistency": """The paper finds CRUMB first over all three models and five proportions, MICP
        second, uniform last. Groups here are (data set, model, proportion, size, seed): runs on
        pools of different sizes are no comparison, though the caption of Table 2 joins them.""",
    "large": """The paper: with early stopping CRUMB wins more often than MICP, significantly
        (p < 0.01) with TabPFNv2 and TabICLv1, and gets there with smaller contexts.""",
    "drift": """At τ = 0 the queries come from the interval of the pool along the first principal
        component, at τ = 1 the two are disjoint. The paper reports that CRUMB's lead over MICP
        grows from +4.9 to +17.1 accuracy points (it writes per cent). It speaks of sets with
        N ≥ 50,000, but two of its four, Anneal (898 rows) and Airfoil (1,503), are far smaller.""",
    "clusters": """The paper: K = 1 is worst, and gains become small above K = 10. Its ablation of n
        is announced, not shown. It does not define its normalised score. Here the scores of a data
        set and model are scaled so that, in the mean over seeds, the worst setting has 0 and the
        best 1; sets on which no setting differs are left out.""",
    "retrieval": """Clusters of queries are the same, the rows of each differ. The paper finds a
        positive mean advantage of herding over both alternatives on every model, for classification
        and regression, exact and with random features.""",
    "factorial": """A: uniform rows, no clusters. B: clusters, uniform rows for each. C: herded
        rows, no clusters. D: both, which is CRUMB, as in the paper. The paper finds D best, A and B
        alike, and C only a little better.""",
    "rff": """The paper: most variants perform alike, Centroid-NN and Voronoi-Uniform rank worse,
        and D = 64, B = 50 is within 0.2 points of exact herding and about 10 times faster.""",
    "complexity": """The paper analyses how costs grow and measures none of it. Time here is
        wall-clock, mean over seeds.""",
}
# What it ran: for each protocol the place in the paper and its settings.
with Path(__file__).with_name("scopes.csv").open(encoding="utf-8") as file:
    SCOPES = {row["protocol"]: row for row in DictReader(file, delimiter="|")}
