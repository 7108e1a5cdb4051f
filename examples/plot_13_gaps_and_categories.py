"""
Gaps and categories
===================

A table may hold numbers, categories, dates, bools and missing cells. CRUMB takes it as it is.
"""

# %%
# Invented flights: the airline and the hour decide most of the delay.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from crumb import CrumbRegressor

rng = np.random.default_rng(0)
rows = 6_000
airline = rng.choice(["Aquila", "Boreas", "Corvus", "Delphin"], rows, p=[0.4, 0.3, 0.2, 0.1])
when = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(365 * 24, size=rows), unit="h")
hour, day = when.hour.to_numpy(), when.day_of_year.to_numpy()
habit = pd.Series({"Aquila": 2, "Boreas": 9, "Corvus": 5, "Delphin": 15})[airline].to_numpy()
snow = (rng.random(rows) < 0.3) & ((day < 70) | (day > 330))
delay = habit * (0.5 + hour / 16) + 18 * snow + rng.normal(size=rows) * 2.5
table = pd.DataFrame({"airline": airline, "hour": hour, "date": when.normalize(), "snow": snow})
train, test = table[:5_500], table[5_500:]

# %%
# Cells are emptied at random in training table and queries alike.
errors = {}
for share in (0, 0.1, 0.2, 0.4, 0.6):
    holes = table.astype({"hour": float, "snow": object}).mask(rng.random(table.shape) < share)
    reg = CrumbRegressor(n_clusters=10, context_size=250).fit(holes[:5_500], delay[:5_500])
    found = reg.predict(holes[5_500:])
    errors[share] = np.abs(found - delay[5_500:]).mean()
    if share == 0:
        whole = found

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(1.5, 1))
for place, name in enumerate(("Aquila", "Boreas", "Corvus", "Delphin")):
    mine = (test["airline"] == name).to_numpy()
    left.scatter(delay[5_500:][mine], whole[mine], s=13, color=f"C{place}", alpha=0.75, label=name)
left.axline((0, 0), slope=1, color="#b9c0ca", lw=1.2, zorder=0)
left.set(xlabel="delay, minutes", ylabel="prediction", title="No gaps: 500 new flights")
left.legend(markerscale=1.5)
right.plot([100 * share for share in errors], list(errors.values()), "o-", color="C0")
right.axhline(np.abs(delay[5_500:] - delay[:5_500].mean()).mean(), color="#6b7785", ls=":")
right.text(0, np.abs(delay[5_500:] - delay[:5_500].mean()).mean() * 0.94, "the mean of all flights")
right.set(xlabel="empty cells, per cent", ylabel="mean absolute error, minutes", ylim=(0, None))
right.set_title("What gaps cost")
plt.show()
