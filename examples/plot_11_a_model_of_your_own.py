"""
A model of your own
===================

Any scikit-learn estimator can take the place of the network. With a logistic regression as the
model, CRUMB fits a straight line wherever queries are, and together they bend.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crumb import CrumbClassifier

X, y = make_circles(3_000, noise=0.16, factor=0.5, random_state=0)
X[:, 0] *= 1.4
linear = make_pipeline(StandardScaler(), LogisticRegression())
models = {
    "logistic regression": linear,
    "the same, local: CRUMB": CrumbClassifier(model=linear, n_clusters=40, context_size=200),
    "the embedded network": CrumbClassifier(n_clusters=12, context_size=500),
}

# %%
# The queries are a grid over the plane. A network that comes as a checkpoint is a back-end: a
# class with one method, which the page "Adding a back-end" shows in full.
across, up = np.meshgrid(np.linspace(-2.2, 2.2, 60), np.linspace(-1.6, 1.6, 44))
grid = np.column_stack([across.ravel(), up.ravel()])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.1), sharey=True)
some = np.random.default_rng(0).choice(len(X), 500, replace=False)
levels = np.linspace(0, 1, 21)
for axis, (name, model) in zip(axes, models.items(), strict=True):
    proba = model.fit(X, y).predict_proba(grid)[:, 1].reshape(across.shape)
    filled = axis.contourf(across, up, proba, levels, cmap="PuOr_r", alpha=0.6)
    axis.contour(across, up, proba, [0.5], colors="#111111", linewidths=1)
    colours = np.where(y[some] == 1, "#b35806", "#542788")
    axis.scatter(*X[some].T, s=6, color=colours, edgecolor="white", linewidth=0.2)
    axis.set(title=name, xticks=[], yticks=[], xlim=(-2.2, 2.2), ylim=(-1.6, 1.6))
bar = figure.colorbar(filled, ax=axes, ticks=[0, 0.5, 1], shrink=0.9, pad=0.01)
bar.set_label("probability of the inner class")
bar.outline.set_visible(False)
plt.show()
