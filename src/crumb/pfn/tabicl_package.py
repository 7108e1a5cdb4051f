"""The inside of tabicl 2.2: only this file imports its private modules.

It has no public way to give an estimator a network that is loaded already, to run a network for
many tables, or to ask for the shuffles of its ensemble. What CRUMB takes instead, or follows:

- ``_model.tabicl.TabICL`` and its layers: ``forward.py`` goes through them in another way.
- ``_model.embedding``: ``architecture.py`` has a network whose columns differ, and overrides two
  methods for it.
- ``_sklearn.preprocessing``: ``preprocess.py`` does the same to many contexts at once.
- ``_sklearn.base``: ``tabicl.py`` overrides where an estimator loads its network, and asks it when
  it uses half precision.

A new minor version may change any of these, so ``pyproject.toml`` allows 2.2 only. The tests in
``tests/pfn`` compare the answers with those of the package. Run them before you allow another one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tabicl._model.embedding import ColEmbedding as ColEmbedding
from tabicl._model.kv_cache import KVCacheEntry as KVCacheEntry
from tabicl._model.layers import MultiheadAttention as MultiheadAttention
from tabicl._model.layers import MultiheadAttentionBlock as MultiheadAttentionBlock
from tabicl._model.ssmax import QASSMaxMLP as QASSMaxMLP
from tabicl._model.tabicl import TabICL as TabICL
from tabicl._sklearn.preprocessing import EnsembleGenerator
from tabicl._sklearn.preprocessing import PreprocessingPipeline as PreprocessingPipeline
from tabicl._torch_devices import resolve_torch_device as resolve_torch_device


class Ensemble(EnsembleGenerator):
    """The members of the package's ensemble, without the rows of a table."""

    def shuffles(
        self, n_features: int, n_classes: int
    ) -> Mapping[str, list[tuple[list[int], list[int] | None]]]:
        """For each norm method, the orders of columns and of classes (None: regression)."""
        self.norm_methods_, self.rng_ = self.norm_methods, random.Random(self.random_state)
        self.n_features_in_, self.n_classes_ = n_features, n_classes
        return self._generate_ensemble()[0]
