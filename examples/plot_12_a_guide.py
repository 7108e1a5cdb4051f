"""
A guide: trees beside the network
=================================

A small context does not know the rest of the table. A guide does: a model of the whole pool, whose
answers are one more column for the network.
"""

# %%
# Every shop has a level of its own, and the shops' numbers say nothing: a context of 250 rows sees
# a few rows of a few shops. Trees see all 6,000 rows, but are coarse in the smooth part.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

from crumb import CrumbRegressor

rng = np.random.default_rng(0)
shop = rng.integers(150, size=6_400)
level = rng.normal(size=150)
x = rng.uniform(-3, 3, size=(6_400, 3))
y = 3 * level[shop] + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=6_400)
X = np.column_stack([shop, x])
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=400, random_state=0)

# %%
# ``guide="trees"`` takes LightGBM, ``guide="auto"`` also decides how far to trust it. Here the
# guide is an estimator of scikit-learn.
trees = RandomForestRegressor(40, min_samples_leaf=3, random_state=0)
sizes = {"n_clusters": 12, "context_size": 250}
answers = {
    "CRUMB alone": CrumbRegressor(**sizes).fit(X_train, y_train).predict(X_test),
    "trees alone": trees.fit(X_train, y_train).predict(X_test),
}
guided = CrumbRegressor(guide=trees, **sizes).fit(X_train, y_train)
answers["CRUMB with the guide"] = guided.predict(X_test)

# %%
# The nearer to the line, the better.
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, sharey=True)
ends = [y_test.min(), y_test.max()]
for axis, (name, found), colour in zip(axes, answers.items(), ("C1", "C2", "C0"), strict=True):
    error = np.sqrt(np.mean((found - y_test) ** 2))
    axis.plot(ends, ends, color="#b9c0ca", lw=1.5)
    axis.scatter(y_test, found, s=9, color=colour, alpha=0.6, linewidth=0)
    axis.set(title=f"{name}: RMSE {error:.2f}", xlabel="target", aspect="equal")
axes[0].set_ylabel("prediction")
plt.show()
