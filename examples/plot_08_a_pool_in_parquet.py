"""
A pool in Parquet
=================

``fit`` takes a folder of Parquet files in the place of a table. Small tables are read whole; one
that is too large stays in its files, and only the rows that contexts need are fetched.
"""

# %%
# Twelve monthly files of trips. Demand follows the hour, the weather and the season.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from crumb import CrumbRegressor


def trips(month, rows, rng):
    warmth = 11 - 10 * np.cos(2 * np.pi * (month - 0.5) / 12) + 4 * rng.normal(size=rows)
    hour, rain = rng.integers(24, size=rows), rng.random(rows) < 0.25
    rush = np.exp(-((hour - 8) ** 2) / 6) + 1.3 * np.exp(-((hour - 18) ** 2) / 9)
    trips = (20 + 3 * warmth.clip(0)) * (0.3 + rush) * np.where(rain, 0.5, 1)
    table = {"month": month, "hour": hour, "warmth": warmth, "rain": rain}
    return pd.DataFrame({**table, "trips": rng.poisson(trips)})


rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
for month in range(1, 13):
    trips(month, 8_000, rng).to_parquet(folder / f"month-{month:02}.parquet")

# %%
# The name of the target's column is enough. ``where=`` would leave out rows before they are read.
reg = CrumbRegressor(n_clusters=8, context_size=400).fit(folder, "trips")
tomorrow = trips(7, 240, rng).drop(columns="trips")
tomorrow["hour"] = np.arange(240) % 24
plan = reg.plan(tomorrow)
print(plan.settings["pool"])

# %%
# Queries of July get rows of July, and a few of its neighbours: the row numbers say which file.
low, middle, high = reg.predict(tomorrow, quantiles=[0.1, 0.5, 0.9], plan=plan).T
months = np.concatenate(plan.contexts) // 8_000 + 1
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), width_ratios=(1, 1.35))
counts = np.bincount(months, minlength=13)[1:]
left.bar(range(1, 13), counts, color=np.where(np.arange(1, 13) == 7, "#e6730f", "#9fb3cc"))
left.set(xlabel="month (one file each)", ylabel="rows in contexts", xticks=range(1, 13))
left.set_title("Where the contexts come from")
spread = np.stack([middle - low, high - middle])
for name, wet, shift in (("dry", False, 0.13), ("rain", True, -0.13)):
    some = (tomorrow["rain"] == wet).to_numpy()
    hour = tomorrow["hour"][some] + shift
    right.errorbar(hour, middle[some], spread[:, some], fmt="o", ms=3, lw=0.7, label=name)
right.set(xlabel="hour", ylabel="trips: median, 10 % to 90 %", title="A day in July")
right.legend(loc="upper left")
plt.show()
