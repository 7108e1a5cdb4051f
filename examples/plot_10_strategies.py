"""
Comparing strategies
====================

Seven ways to choose contexts, three tables, one network. The same rows of context go further when
they are chosen for the queries.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_blobs, make_classification
from sklearn.metrics import log_loss

from crumb import CrumbClassifier

rng = np.random.default_rng(0)
blobs, group = make_blobs(1_500, 5, centers=60, cluster_std=1.8, random_state=0)
tables = {
    "digits": load_digits(return_X_y=True),
    "60 groups, 3 classes": (blobs, rng.integers(3, size=60)[group]),
    "8 clusters, 2 classes": make_classification(
        1_500, 8, n_informative=5, n_clusters_per_class=4, random_state=2
    ),
}
strategies = ("full", "mmd", "micp", "voronoi", "centroid", "knn", "uniform")

# %%
# Contexts of 150 rows for 50 queries. ``full`` has all rows, ``knn`` a context for every query,
# and ``uniform`` one random context for all.
losses = np.zeros((len(strategies), len(tables)))
for column, (X, y) in enumerate(tables.values()):
    order = rng.permutation(len(X))
    queries, pool = order[:50], order[50:]
    for row, strategy in enumerate(strategies):
        clusters = 1 if strategy in ("uniform", "full") else 8
        clf = CrumbClassifier(strategy=strategy, n_clusters=clusters, context_size=150)
        proba = clf.fit(X[pool], y[pool]).predict_proba(X[queries])
        losses[row, column] = log_loss(y[queries], proba, labels=clf.classes_)

# %%
# Each table has its own scale, so a dot is a loss relative to the best one on that table.
relative = losses / losses.min(axis=0)
figure, axes = plt.subplots(1, len(tables), figsize=(10, 3.6), sharey=True)
for axis, name, found in zip(axes, tables, relative.T, strict=True):
    colours = ["#e6730f" if strategy == "mmd" else "#9fb3cc" for strategy in strategies]
    axis.hlines(range(len(found)), 1, found, color=colours, lw=2)
    axis.scatter(found, range(len(found)), s=60, color=colours, zorder=2)
    axis.set(title=name, xlabel="log-loss ÷ the best", yticks=range(len(found)))
    axis.set_yticklabels(["mmd (CRUMB)" if s == "mmd" else s for s in strategies])
axes[0].invert_yaxis()
plt.show()
