"""The inside of tabicl 2.2: the only file that imports its private modules.

tabicl has no public way to give an estimator a network that is loaded already, to run a network for
many tables, or to ask for the shuffles of its ensemble. What CRUMB takes instead, or computes in a
way of its own that must follow the package:

- ``_model.tabicl.TabICL`` and its layers: ``forward.py`` goes through them in another way.
- ``_model.embedding`` and ``_model.encoders``: ``architecture.py`` has networks whose columns or
  in-context blocks differ; they override a method or two of these classes.
- ``_sklearn.preprocessing``: ``preprocess.py`` does the same to many contexts at once.
- ``_sklearn.base``: where an estimator loads its network, and when it uses half precision.

A new minor version may change any of these, so ``pyproject.toml`` allows 2.2 only. The tests in
``tests/pfn`` compare the answers with those of the package. Run them before you allow another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.embedding import ColEmbedding as ColEmbedding
from tabicl._model.encoders import Encoder as Encoder
from tabicl._model.kv_cache import KVCacheEntry as KVCacheEntry
from tabicl._model.layers import MultiheadAttention as MultiheadAttention
from tabicl._model.layers import MultiheadAttentionBlock as MultiheadAttentionBlock
from tabicl._model.ssmax import QASSMaxMLP as QASSMaxMLP
from tabicl._model.tabicl import TabICL as TabICL
from tabicl._sklearn.preprocessing import EnsembleGenerator
from tabicl._sklearn.preprocessing import PreprocessingPipeline as PreprocessingPipeline
from tabicl._sklearn.preprocessing import TransformToNumerical as TransformToNumerical
from tabicl._torch_devices import resolve_torch_device as resolve_torch_device


class _Shared:
    """Mixed into the estimators: takes a network that is there instead of reading the file."""

    network_on: Callable[[str], TabICL]  # the network on a device
    device_: torch.device
    n_samples_in_: int
    n_features_in_: int

    def _load_model(self) -> None:
        self.model_ = self.network_on(str(self.device_))

    def in_half_precision(self, device: torch.device, shape: tuple[int, int]) -> bool:
        """Whether the package would run a context of this shape in half precision."""
        self.device_, (self.n_samples_in_, self.n_features_in_) = device, shape
        return bool(self._resolve_amp_fa3()[0])  # type: ignore[attr-defined]


class SharedClassifier(_Shared, TabICLClassifier):
    pass


class SharedRegressor(_Shared, TabICLRegressor):
    pass


class Ensemble(EnsembleGenerator):
    """The members of the package's ensemble, without the rows of a table."""

    def shuffles(
        self, n_features: int, n_classes: int
    ) -> Mapping[str, list[tuple[list[int], list[int] | None]]]:
        """For each norm method, the orders of columns and of classes (None: regression)."""
        self.norm_methods_, self.rng_ = self.norm_methods, random.Random(self.random_state)
        self.n_features_in_, self.n_classes_ = n_features, n_classes
        return self._generate_ensemble()[0]
