"""
Why a context was chosen
========================

A plan keeps the evidence: where each context lies, and how close its distribution came to that of
its queries.
"""

# %%
# A training table in two dimensions, and queries from three places in it.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from crumb import CrumbClassifier

X, y = make_moons(4_000, noise=0.18, random_state=0)
rng = np.random.default_rng(0)
places = np.array([[-0.9, 0.4], [0.5, 0.2], [1.7, -0.2]])
queries = np.concatenate([place + 0.13 * rng.normal(size=(40, 2)) for place in places])
clf = CrumbClassifier(n_clusters=3, context_size=150).fit(X, y)
plan = clf.plan(queries)
print(plan.summary()[["queries", "context", "mmd2", "stopped"]])

# %%
# Left: the rows of each context surround its queries. Right: MMD² falls with every row that is
# added. The blue one rises again: between the moons the pool has few rows, and once they are taken
# the next ones lie around the queries instead of among them. ``early_stopping`` can end a context
# there. Random rows stay far above.
random = CrumbClassifier(strategy="uniform", n_clusters=3, context_size=150).fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1.25, 1))
left.scatter(*X.T, s=3, color="#d4d9e0", label="pool")
for cluster, context in enumerate(plan.contexts):
    colour = f"C{cluster}"
    left.scatter(*X[context].T, s=16, color=colour, alpha=0.75, label=f"context {cluster}")
    left.scatter(*queries[plan.labels == cluster].T, s=14, marker="x", color="#111111", lw=0.9)
    right.plot(np.arange(1, 151), plan.mmd2[cluster], color=colour)
for trace in random.plan(queries).mmd2:
    right.plot(np.arange(1, len(trace) + 1), trace, color="#b9c0ca", lw=1)
left.scatter([], [], marker="x", color="#111111", label="queries")
left.set(title="Each context lies where its queries are", xticks=[], yticks=[])
left.legend(loc="lower left", fontsize=8, markerscale=1.3)
right.set(yscale="log", xlabel="rows in the context", ylabel="MMD² to the queries")
right.set_title("Colour: herded one row at a time. Grey: random rows")
plt.show()
