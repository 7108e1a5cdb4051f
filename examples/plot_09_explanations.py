"""
Explanations
============

Two questions about an answer: what did each column do to it, and which training rows mattered?
Needs shap: ``pip install 'crumb-pfn[explain]'``.
"""

# %%
# Invented bicycles: the model, the age and the kilometres decide the price; the colour does not.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from crumb import CrumbRegressor, explain, influential_rows

rng = np.random.default_rng(0)
rows = 3_000
new = {"Swift": 900, "Tour": 1_600, "Cargo": 2_600}
table = pd.DataFrame({"model": rng.choice(list(new), rows, p=[0.5, 0.3, 0.2])})
table["age"] = rng.gamma(2, 2, rows).round(1)
table["kilometres"] = (table["age"] * rng.gamma(4, 300, rows)).round()
table["colour"] = rng.choice(["red", "blue", "black"], rows)
price = table["model"].map(new) * 0.86 ** table["age"] - 0.01 * table["kilometres"]
price += rng.normal(size=rows) * 20
train, queries = slice(60, None), table[:60]
reg = CrumbRegressor(n_clusters=6, context_size=250).fit(table[train], price[train])
plan = reg.plan(queries)

# %%
# Shapley values of all queries; ``shap.plots`` takes them as they are. Cells that are masked come
# from rows of the query's own context.
found = explain(reg, queries, plan=plan, background=6)
sizes = np.abs(found.values).mean(axis=0)
shown = int(found.values[:, 0].argmax())  # the bicycle whose model says most

# %%
# For one query: each of the nearest rows of its context is left out once.
mattered = influential_rows(reg, queries[shown : shown + 1], plan=plan, candidates=25)
print(queries.iloc[shown].to_string())
print(mattered.head(5).round(1).to_string())

# %%
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
axes[0].barh(found.feature_names, sizes, color="C0")
axes[0].set(title="60 bicycles", xlabel="mean absolute Shapley value")
values, base = found.values[shown], found.base_values[shown]
starts = base + np.concatenate([[0], values.cumsum()[:-1]])
axes[1].barh(found.feature_names, values, left=starts, color=np.where(values > 0, "C1", "C2"))
axes[1].axvline(base, color="#6b7785", ls=":", lw=1.2)
axes[1].set(title="One of them, from its base value", xlabel="price")
size = 12 + 240 * mattered["influence"].abs() / mattered["influence"].abs().max()
axes[2].scatter(mattered["distance"], mattered["target"], s=size, color="C0", alpha=0.6)
axes[2].axhline(base + values.sum(), color="C1")
axes[2].set(title="Rows near it: dots by influence", xlabel="distance", ylabel="price")
for axis in axes[:2]:
    axis.invert_yaxis()
figure.tight_layout()
plt.show()
