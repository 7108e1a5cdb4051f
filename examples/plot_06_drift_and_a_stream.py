"""
Drift and a stream
==================

``CrumbOnline`` answers queries one at a time with contexts that are ready. When the queries leave
the place that the plan was made for, it notices, and makes a new plan beside the old one.
"""

# %%
# A spiral of two classes. The queries start at its inner end and move outwards.
import matplotlib.pyplot as plt
import numpy as np

from crumb import CrumbClassifier, CrumbOnline


def spiral(turn, rng):
    label = rng.integers(2, size=len(turn))
    angle = 2.2 * turn + np.pi * label
    at = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return at + 0.18 * rng.normal(size=at.shape), label


rng = np.random.default_rng(0)
X, y = spiral(rng.uniform(0.5, 5, 6_000), rng)
turn = np.concatenate([np.full(300, 1.0), np.linspace(1, 4.5, 900)])
queries, labels = spiral(turn + rng.uniform(-0.4, 0.4, 1_200), rng)
clf = CrumbClassifier(n_clusters=5, context_size=120).fit(X, y)

# %%
# Two streams get the same queries in blocks of 60. One follows drift, one keeps its first plan.
scores = {}
for refresh in ("never", "drift"):
    right, stats = [], []
    with CrumbOnline(clf, queries[:200], refresh=refresh, recent=120, plan_ahead=False) as stream:
        for i in range(0, 1_200, 60):
            futures = stream.submit_many(queries[i : i + 60])
            stream.flush()
            answers = np.array([future.result().value.argmax() for future in futures])
            right.append((answers == labels[i : i + 60]).mean())
            stream.settle()  # wait for a refresh that is due: then every run is the same
            stats.append(stream.stats())
    scores[refresh] = right

# %%
# Grey lines: a new plan took over. A score above 1 (dotted) is more than chance explains.
asked = np.arange(60, 1_201, 60)
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(1.5, 1))
above.plot(asked, scores["drift"], "o-", label="follows drift", ms=4.5)
above.plot(asked, scores["never"], "s-", label="keeps its plan", ms=4.5)
below.plot(asked, [found.drift.score for found in stats], "D", ms=4, color="C2")
below.axhline(1, color="#6b7785", ls=":")
for at in asked[1:][np.diff([found.version for found in stats]) > 0]:
    above.axvline(at, color="#d4d9e0", lw=1, zorder=0)
above.set(ylabel="accuracy of a block", ylim=(0, 1.05), title="Queries move outwards from 300 on")
above.legend(loc="lower left")
below.set(xlabel="queries so far", ylabel="drift score, log scale", yscale="log")
plt.show()
