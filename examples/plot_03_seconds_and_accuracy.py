"""
Seconds against accuracy
========================

``n_clusters`` and ``context_size`` set what a prediction costs. ``budget`` sets both from seconds.
"""

# %%
# 20,000 training rows from 150 groups, each with a class of its own, and 300 queries. Only rows of
# the same group say much about a query.
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.metrics import log_loss

from crumb import CrumbClassifier

X, group = make_blobs(20_300, 6, centers=150, cluster_std=1.6, random_state=0)
y = np.random.default_rng(0).integers(3, size=150)[group]
pool, queries = slice(300, None), slice(0, 300)


def measured(**options):
    clf = CrumbClassifier(**options).fit(X[pool], y[pool])
    started = time.perf_counter()
    proba = clf.predict_proba(X[queries])
    return time.perf_counter() - started, log_loss(y[queries], proba)


# %%
# Contexts for clusters of queries beside one random context, each at several sizes.
measured(n_clusters=1, context_size=50)  # loads the network
clustered = {
    f"{k} × {n}": measured(n_clusters=k, context_size=n)
    for k, n in ((5, 100), (10, 150), (20, 200), (40, 200))
}
uniform = {f"{n:,}": measured(strategy="uniform", context_size=n) for n in (250, 1_000, 2_500)}
budget = {'budget="2s"': measured(budget="2s")}

# %%
# The left edge is fast, the lower edge is accurate.
figure, axes = plt.subplots()
names = ("CRUMB: clusters × rows", "one random context: rows", "CRUMB, by budget")
for found, style, name in zip((clustered, uniform, budget), ("o-", "s-", "D"), names, strict=True):
    seconds, losses = np.array(sorted(found.values())).T
    (line,) = axes.plot(seconds, losses, style, label=name, ms=7)
    offset = {"o-": (6, 6), "s-": (-26, -15), "D": (-20, -16)}[style]
    about = {"textcoords": "offset points", "fontsize": 8, "color": line.get_color()}
    for text, place in found.items():
        axes.annotate(text, place, offset, **about)
axes.set(xlabel="seconds of predict_proba", ylabel="log-loss (lower is better)")
axes.set_title("What more seconds buy")
axes.margins(x=0.12, y=0.12)
axes.legend()
plt.show()
