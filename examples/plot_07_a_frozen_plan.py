"""
A frozen plan
=============

A plan can be kept. Later queries are routed to its contexts, whose keys and values stay in memory:
they cost only themselves, and each answer depends on its row alone.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from crumb import CrumbClassifier

X, y = make_classification(11_000, 12, n_informative=8, n_clusters_per_class=4, random_state=0)
pool, typical, new = slice(1_000, None), slice(0, 250), slice(250, 500)
clf = CrumbClassifier(n_clusters=10, context_size=400).fit(X[pool], y[pool])
clf.predict_proba(X[typical][:20])  # loads the network


def seconds(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# %%
# Planned for each call, then with a plan that is kept: its first call fills the cache.
every = seconds(lambda: clf.predict_proba(X[new]))
planning = seconds(lambda: clf.plan(X[typical]))
plan = clf.plan(X[typical])
first = seconds(lambda: clf.predict_proba(X[new], plan=plan))
later = np.median([seconds(lambda: clf.predict_proba(X[new], plan=plan)) for _ in range(3)])

# %%
# With the plan, a row alone gets the answer that it gets among others. Without it, it does not.
whole = clf.predict_proba(X[new], plan=plan)[:, 1]
alone = [clf.predict_proba(row[None], plan=plan)[0, 1] for row in X[new][:30]]
planned = clf.predict_proba(X[new])[:, 1]
parts = np.concatenate([clf.predict_proba(X[new][i : i + 10])[:, 1] for i in range(0, 30, 10)])
print(f"frozen: answers differ by {np.abs(whole[:30] - alone).max():.1e} at most")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), width_ratios=(1.25, 1))
names = "planned for the call", "making the plan", "frozen, first call", "frozen, later calls"
bars = left.barh(names, [every, planning, first, later], color=["C4", "C2", "C1", "C0"])
left.bar_label(bars, fmt="%.2f s", padding=4)
left.set(xlabel="seconds for 250 queries", title="What a call costs", xlim=(0, 1.18 * first))
left.invert_yaxis()
right.plot([0, 1], [0, 1], color="#d4d9e0", lw=1.5, zorder=0)
right.scatter(planned[:30], parts, s=26, color="C4", label="planned for the call, in tens")
right.scatter(whole[:30], alone, s=20, color="C0", label="frozen, row by row")
right.set(xlabel="probability, all 250 at once", ylabel="probability, in parts", aspect="equal")
right.set_title("Does an answer depend on the others?")
right.legend(fontsize=8.5, loc="upper left")
plt.show()
