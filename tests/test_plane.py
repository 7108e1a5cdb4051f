"""The selection space in two dimensions."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

from crumb.plane import flatten


def test_axes_are_the_principal_components():
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(600, 4)) * [1, 4, 2, 3], rng.normal(size=(50, 4))
    plane, pca = flatten(pool), PCA(2).fit(pool)
    np.testing.assert_allclose(plane.shares, pca.explained_variance_ratio_)
    np.testing.assert_allclose(np.abs(plane(queries)), np.abs(pca.transform(queries)), atol=1e-9)
