"""
Regression with quantiles
=========================

``CrumbRegressor`` answers with a whole distribution: where the data scatter, the fan opens.
"""

# %%
# Noise that grows with x, and a pool that is dense on the left.
import matplotlib.pyplot as plt
import numpy as np

from crumb import CrumbRegressor

rng = np.random.default_rng(0)
x = np.sort(10 * rng.beta(1.2, 1.6, 5_000))
y = np.sin(x) + 0.4 * x + rng.normal(size=len(x)) * (0.08 + 0.12 * x)
grid = np.linspace(0.05, 9.8, 200)

reg = CrumbRegressor(n_clusters=25, context_size=400).fit(x[:, None], y)
levels = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]
bands = reg.predict(grid[:, None], quantiles=levels)

# %%
# How honest are the bands? Each level should hold that share of new targets.
new = rng.uniform(0.05, 9.8, 400)
target = np.sin(new) + 0.4 * new + rng.normal(size=400) * (0.08 + 0.12 * new)
below = (target[:, None] <= reg.predict(new[:, None], quantiles=levels)).mean(axis=0)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(2.1, 1))
some = rng.choice(len(x), 900, replace=False)
left.scatter(x[some], y[some], s=4, color="#b9c0ca", label="900 of 5,000 pool rows")
names = ("96 %", "80 %", "50 %")
for i, (name, strength) in enumerate(zip(names, (0.16, 0.28, 0.45), strict=True)):
    left.fill_between(grid, bands[:, i], bands[:, -1 - i], color="C1", alpha=strength, lw=0)
    left.fill_between([], [], [], color="C1", alpha=0.2 + 0.25 * i, label=f"{name} band")
left.plot(grid, bands[:, 3], color="C0", lw=2, label="median")
left.set(xlabel="x", ylabel="y", title="A fan of quantiles")
left.legend(loc="upper left", fontsize=8.5)
right.plot([0, 1], [0, 1], color="#b9c0ca", lw=1.2)
right.plot(levels, below, marker="o", color="C1")
right.set(xlabel="level asked for", ylabel="share of targets below", title="Calibration")
right.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
plt.show()
