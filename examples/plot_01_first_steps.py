"""
First steps
===========

Fit, predict, and look at the answers that the model is least sure of.
"""

# %%
# ``fit`` holds the table; there is no training. ``predict_proba`` groups the 450 queries, picks a
# context of 300 training rows for each group, and runs the embedded network once per group.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from crumb import CrumbClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
clf = CrumbClassifier(n_clusters=10, context_size=300).fit(X_train, y_train)
proba = clf.predict_proba(X_test)
print(f"accuracy: {np.mean(proba.argmax(axis=1) == y_test):.3f}")

# %%
# The plan says which context each query gets. One row is a cluster of queries.
print(clf.plan(X_test).summary().head())

# %%
# The eight answers with the lowest confidence. Blue is the true digit.
hardest = proba.max(axis=1).argsort()[:8]
figure, axes = plt.subplots(2, 8, figsize=(10, 2.7), height_ratios=(1.3, 1))
for (above, below), query in zip(axes.T, hardest, strict=True):
    above.imshow(X_test[query].reshape(8, 8), cmap="Greys")
    above.set_axis_off()
    colours = np.where(np.arange(10) == y_test[query], "#2166ac", "#e6730f")
    below.bar(np.arange(10), proba[query], color=colours)
    below.set(ylim=(0, 0.6), yticks=[], xticks=[y_test[query], proba[query].argmax()])
    below.spines["left"].set_visible(False)
    below.tick_params(length=0)
figure.suptitle("The eight least certain digits, and the probability of each class", fontsize=11)
plt.show()
