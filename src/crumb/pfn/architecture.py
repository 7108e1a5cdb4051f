"""From the configuration in a checkpoint to a network: tabicl's ``TabICL``, or our variant of it.

The variant is ``TabICL`` with another input layer, so that the package's own passes, its cache and
``crumb.pfn.forward`` all serve it. A cell brings three things: its number; its place among the
context's cells of its column, which no heavy tail squeezes together; and waves of that place.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

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
NO_CELL = -100.0  # tabicl's mark for the places of its summary tokens
WAVES = 16  # of a place
KNOTS = 65  # quantiles of a context's column, between which places are interpolated


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


class Cells(nn.Module):
    """The input layer of the column embedder: numbers and their places (…, 2k) to (…, width).

    Waves are learnt from wide to narrow. They begin small beside the numbers themselves, so that an
    untrained network starts as an affine one.
    """

    def __init__(self, size: int, width: int):
        super().__init__()
        self.size, self.in_features = size, size * (2 + WAVES)
        self.linear = nn.Linear(self.in_features, width)
        self.frequency = nn.Parameter(math.pi * 2 ** torch.linspace(-1, 5, WAVES // 2))
        reach = (2 * size) ** -0.5
        with torch.no_grad():
            nn.init.uniform_(self.linear.weight, -reach, reach)
            self.linear.weight[:, 2 * size :] *= 0.3 / WAVES**0.5

    def forward(self, src: Tensor) -> Tensor:
        skipped = (src == NO_CELL).all(dim=-1, keepdim=True)
        return torch.where(skipped, NO_CELL, self.embed(src))

    def embed(self, src: Tensor) -> Tensor:
        """The same without tabicl's mark."""
        angle = src[..., self.size :].unsqueeze(-1) * self.frequency
        waves = torch.cat([angle.sin(), angle.cos()], dim=-1)
        return self.linear(torch.cat([src, waves.flatten(-2)], dim=-1))


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


def quantiles(columns: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(…, n) → (…, KNOTS) from the least to the largest of the n cells, or of the first ``lengths``
    (…, 1) of them."""
    n = columns.shape[-1]
    share = torch.linspace(0, 1, KNOTS, device=columns.device)
    if lengths is None:
        return columns.sort(dim=-1).values.index_select(-1, (share * (n - 1)).round().long())
    there = torch.arange(n, device=columns.device) < lengths
    at = (share * (lengths - 1)).round().long().expand(*columns.shape[:-1], KNOTS)
    return columns.masked_fill(~there, torch.inf).sort(dim=-1).values.gather(-1, at)


def places(columns: Tensor, knots: Tensor) -> Tensor:
    """Where cells (…, n) lie among the quantiles (…, KNOTS) of their column, from −1 to 1; ties in
    their middle."""
    columns, knots = columns.contiguous(), knots.to(columns.dtype).contiguous()
    before = torch.searchsorted(knots, columns)
    until = torch.searchsorted(knots, columns, right=True)
    low = knots.gather(-1, (before - 1).clamp(0, KNOTS - 1))
    high = knots.gather(-1, before.clamp(0, KNOTS - 1))
    between = before - 1 + (columns - low) / (high - low).clamp_min(1e-9)
    place = torch.where(before < until, 0.5 * (before + until - 1), between).clamp(0, KNOTS - 1)
    return place * (2 / (KNOTS - 1)) - 1


def with_places(features: Tensor, knots: Tensor) -> Tensor:
    """Cells (…, n, k) and their places (…, n, 2k); where there is no cell there is no place."""
    place = places(features.mT, knots).mT
    return torch.cat([features, torch.where(features == NO_CELL, NO_CELL, place)], dim=-1)
