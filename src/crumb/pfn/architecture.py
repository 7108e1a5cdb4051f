"""From the configuration in a checkpoint to a network: tabicl's ``TabICL``, or a variant of it.

A variant is ``TabICL`` with a submodule replaced, so that the package's own passes, its cache and
``crumb.pfn.forward`` all serve it. ``config["variant"]`` names the parts that differ:

``cells``      what the column embedder is given for a number: itself (``"affine"``), or itself
               beside waves (``"fourier"``) or bumps (``"rbf"``) of it
``ranks``      whether a cell also brings its place among the context's cells of its column; waves
               and bumps are then those of the place, which no heavy tail squeezes together
``registers``  how many learnt rows stand beside the context for the queries to look at
``norm``       ``"layer"``, or ``"rms"``: no mean is taken off
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from crumb.pfn.tabicl_package import ColEmbedding, Encoder, KVCacheEntry, TabICL

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
# What makes a TabICL network a TabICLv2 network, widths and depths aside.
V2_ARCHITECTURE = {
    "col_affine": False,
    "col_feature_group": "same",
    "col_feature_group_size": 3,
    "col_target_aware": True,
    "col_ssmax": "qassmax-mlp-elementwise",
    "icl_ssmax": "qassmax-mlp-elementwise",
    "row_rope_base": 100_000,
    "row_rope_interleaved": False,
}
PLAIN = {"cells": "affine", "ranks": False, "registers": 0, "norm": "layer"}
NO_CELL = -100.0  # tabicl's mark for the places of its summary tokens
FEATURES = 16  # waves or bumps of a number
KNOTS = 65  # quantiles of a context's column, between which places are interpolated


def build(config: dict[str, Any]) -> TabICL:
    """A network with fresh weights."""
    config = dict(config)
    variant = {**PLAIN, **config.pop("variant", {})}
    if unknown := variant.keys() - PLAIN.keys():
        raise ValueError(f"A network has no {', '.join(sorted(unknown))}.")
    network = TabICL(**config)
    if variant["ranks"]:
        network.col_embedder.__class__ = RankedColumns  # the same parts, another way through them
    if variant["cells"] != "affine" or variant["ranks"]:
        size = network.col_feature_group_size
        network.col_embedder.in_linear = Cells(
            size, network.embed_dim, variant["cells"], variant["ranks"]
        )
    if variant["registers"]:
        encoder = network.icl_predictor.tf_icl
        encoder.__class__ = RegisteredEncoder
        width = network.embed_dim * network.row_num_cls
        encoder.registers = nn.Parameter(0.1 * torch.randn(variant["registers"], width))
    if variant["norm"] == "rms":
        _use_rms_norm(network)
    return network


class Cells(nn.Module):
    """The input layer of the column embedder: numbers (…, k), or numbers and their places (…, 2k),
    to (…, width).

    Waves are learnt from wide to narrow, bumps from one end to the other. Both begin small beside
    the numbers themselves, so that an untrained network starts as an affine one.
    """

    def __init__(self, size: int, width: int, kind: str, ranks: bool):
        super().__init__()
        self.size, self.kind, self.ranks = size, kind, ranks
        count, features = size * (1 + ranks), 0 if kind == "affine" else FEATURES
        self.in_features = count + size * features
        self.linear = nn.Linear(self.in_features, width)
        # Places lie between −1 and 1, most standardised numbers between −3 and 3.
        reach = 1.0 if ranks else 3.0
        if kind == "fourier":
            self.frequency = nn.Parameter(
                math.pi / reach * 2 ** torch.linspace(-1, 5, FEATURES // 2)
            )
        elif kind == "rbf":
            self.centre = nn.Parameter(torch.linspace(-reach, reach, FEATURES))
            self.sharpness = nn.Parameter(torch.full((FEATURES,), math.log(FEATURES / (2 * reach))))
        elif kind != "affine":
            raise ValueError(f"Cells are 'affine', 'fourier' or 'rbf', not {kind!r}.")
        with torch.no_grad():
            nn.init.uniform_(self.linear.weight, -(count**-0.5), count**-0.5)
            self.linear.weight[:, count:] *= 0.3 / max(features, 1) ** 0.5

    def forward(self, src: Tensor) -> Tensor:
        skipped = (src == NO_CELL).all(dim=-1, keepdim=True)
        return torch.where(skipped, NO_CELL, self.embed(src))

    def embed(self, src: Tensor) -> Tensor:
        """The same without tabicl's mark."""
        if self.kind == "affine":
            return self.linear(src)
        x = src[..., -self.size :].unsqueeze(-1)  # the places, if there are any
        if self.kind == "fourier":
            angle = x * self.frequency
            features = torch.cat([angle.sin(), angle.cos()], dim=-1)
        else:
            features = torch.exp(-0.5 * ((x - self.centre) * self.sharpness.exp()).square())
        return self.linear(torch.cat([src, features.flatten(-2)], dim=-1))


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


class RegisteredEncoder(Encoder):
    """In-context blocks with learnt rows before the context. They are like rows of every table."""

    registers: nn.Parameter  # (R, D)

    def forward(self, src: Tensor, train_size: int | None = None) -> Tensor:
        first = len(self.registers)
        size = None if train_size is None else train_size + first
        return super().forward(self.beside(src), size)[..., first:, :]

    def forward_with_cache(
        self, src, icl_cache, train_size=None, use_cache=False, store_cache=True
    ):
        if not store_cache:  # the cached keys and values have the registers among them
            return super().forward_with_cache(src, icl_cache, None, use_cache, store_cache)
        first, src = len(self.registers), self.beside(src)
        every = super().forward_with_cache(src, icl_cache, train_size + first, use_cache, True)
        return every[..., first:, :]

    def beside(self, rows: Tensor) -> Tensor:
        """Rows (…, n, D) after the registers."""
        learnt = self.registers.to(rows.dtype).expand(*rows.shape[:-2], -1, -1)
        return torch.cat([learnt, rows], dim=-2)


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


def _use_rms_norm(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.LayerNorm):
            setattr(module, name, nn.RMSNorm(child.normalized_shape, eps=1e-5))
        else:
            _use_rms_norm(child)
