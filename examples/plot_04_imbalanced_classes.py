"""
Imbalanced classes
==================

One row in a hundred is positive. A small context may hold none of them, and then the model cannot
answer "positive" at all. ``min_per_class`` keeps some.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, precision_recall_curve

from crumb import CrumbClassifier

X, y = make_classification(
    14_000,
    10,
    n_informative=4,
    n_clusters_per_class=3,
    weights=[0.99],
    flip_y=0.002,
    random_state=1,
)
pool, queries = slice(2_000, None), slice(0, 2_000)
print(f"positive rows: {y[pool].mean():.1%} of the pool, {y[queries].sum()} of the queries")

# %%
# Contexts of 150 rows: at one per cent some have a single positive row, or none.
found = {}
for least in (0, 1, 10):
    clf = CrumbClassifier(n_clusters=20, context_size=150, min_per_class=least)
    plan = clf.fit(X[pool], y[pool]).plan(X[queries])
    rows = [int(y[pool][context].sum()) for context in plan.contexts]
    found[least] = clf.predict_proba(X[queries], plan=plan)[:, 1], rows

# %%
# Left: positive rows in each context. Right: what that does to precision and recall. Rows that are
# kept raise the probability of the rare class: look at the ranking, or calibrate, before you trust
# a threshold of one half.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
for place, (least, (proba, rows)) in enumerate(found.items()):
    jitter = np.linspace(-0.28, 0.28, len(rows))
    left.scatter(place + jitter, sorted(rows), s=26, color=f"C{place}", alpha=0.85)
    precision, recall, _ = precision_recall_curve(y[queries], proba)
    score = average_precision_score(y[queries], proba)
    right.plot(recall, precision, color=f"C{place}", lw=2)
    right.plot([], [], color=f"C{place}", lw=2, label=f"min_per_class={least}: AP {score:.2f}")
left.set(xticks=range(len(found)), xticklabels=[f"min_per_class={least}" for least in found])
left.set(ylabel="positive rows in a context", title="One dot is one context", ylim=(-1, None))
right.set(xlabel="recall", ylabel="precision", title="Finding the rare class", ylim=(0, 1.03))
right.legend(loc="upper right")
plt.show()
