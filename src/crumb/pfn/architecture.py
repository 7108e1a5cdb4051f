"""From the configuration in a checkpoint to a network: tabicl's ``TabICL``, or our variant of it.

The variant is ``TabICL`` with another input layer (``Cells``), so that the package's own passes,
its cache and ``crumb.pfn.forward`` all serve it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crumb.pfn.forward import NO_CELL, Cells, places, quantiles
from crumb.pfn.tabicl_package import ColEmbedding, KVCacheEntry, TabICL

# Files of tabicl 0.1.x do not name these flags, whose defaults have since become those of v2.
V1_ARCHITECTURE = {
    "col_affine": True,
    "col_feature_group": False,
    "col_target_aware": False,
    "col_ssmax": False,
    "icl_ssmax": False,
    "row_rope_interleaved": True,
    "bias_free_ln": False,
}
VARIANT = {"ranks": True, "cells": "fourier"}  # what config["variant"] says of ours


def build(config: dict[str, Any]) -> TabICL:
    """A network with fresh weights."""
    config = dict(config)
    variant = config.pop("variant", {})
    network = TabICL(**config)
    if not variant:
        return network
    if variant != VARIANT:
        raise ValueError(f"The variant of a network is {VARIANT}, not {variant}.")
    columns = network.col_embedder
    columns.__class__ = RankedColumns  # the same parts, another way through them
    columns.in_linear = Cells(network.col_feature_group_size, network.embed_dim)
    return network


class RankedColumns(ColEmbedding):
    """Gives the input layer the place of every cell beside its number; the cache keeps the
    quantiles for this."""

    def _compute_embeddings(self, features, train_size, y_train=None, embed_with_test=False):
        cells = with_places(features, quantiles(features[..., :train_size, :].mT))
        return super()._compute_embeddings(cells, train_size, y_train, embed_with_test)

    def _compute_embeddings_with_cache(
        self, features, col_cache, train_size=None, y_train=None, use_cache=False, store_cache=True
    ):
        last = len(self.tf_col.blocks)  # the entries before are those of the blocks
        if store_cache:
            knots = quantiles(features[..., :train_size, :].mT)
        else:
            knots = col_cache.kv[last].key.squeeze(-3)
        answer = super()._compute_embeddings_with_cache(
            with_places(features, knots), col_cache, train_size, y_train, use_cache, store_cache
        )
        if store_cache:
            kept = knots.unsqueeze(-3)  # a cache has a dimension of heads
            col_cache.kv[last] = KVCacheEntry(key=kept, value=kept[..., :1, :1, :1])
        return answer


def with_places(features: Tensor, knots: Tensor) -> Tensor:
    """Cells (…, n, k) and their places (…, n, 2k); where there is no cell there is no place."""
    place = places(features.mT, knots).mT
    return torch.cat([features, torch.where(features == NO_CELL, NO_CELL, place)], dim=-1)
