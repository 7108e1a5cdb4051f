"""The architecture of the embedded networks, and a forward pass of it that is fast to train.

The network *is* tabicl's ``TabICL`` (TabICLv2 flags, small widths): the same module, parameters and checkpoint, so
that the embedded model and ``tabicl-v2`` run through the same code. Only the way through it differs during training.
tabicl's own training pass asks the device several times how to go on, embeds placeholder columns for its summary
tokens, and launches thousands of small kernels: at these widths the GPU waits for the host most of the time.
``forward`` below computes the same function without a question to the device, so that a whole step can be recorded
once as a CUDA graph and replayed. ``tests/test_pretrain_network.py`` holds it against tabicl's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from tabicl._model.layers import MultiheadAttention, MultiheadAttentionBlock
from tabicl._model.tabicl import TabICL
from torch import Tensor

from crumb.pfn.tabicl import V2_ARCHITECTURE

Block = Callable[..., Tensor]

# tabicl divides logits by this before the softmax; trained with it, probabilities come out calibrated.
TEMPERATURE = 0.9
_COMMON = {
    **V2_ARCHITECTURE,
    "ff_factor": 2,
    "dropout": 0.0,
    "activation": "gelu",
    "norm_first": True,
    "zero_init": False,
}
_WIDTHS = {
    "small": {  # the one that ships
        "embed_dim": 48, "col_num_blocks": 2, "col_nhead": 3, "col_num_inds": 32,
        "row_num_blocks": 2, "row_nhead": 3, "row_num_cls": 5, "icl_num_blocks": 6, "icl_nhead": 10,
    },
    "smoke": {  # for tests: learns a little within seconds on a CPU
        "embed_dim": 16, "col_num_blocks": 1, "col_nhead": 2, "col_num_inds": 4,
        "row_num_blocks": 1, "row_nhead": 2, "row_num_cls": 2, "icl_num_blocks": 2, "icl_nhead": 2,
    },
}  # fmt: skip
_QUANTILES = {"small": 499, "smoke": 19}


def configuration(task: str, size: str = "small") -> dict[str, Any]:
    """The keyword arguments of ``TabICL`` for one of our networks."""
    head = {"max_classes": 10} if task == "classification" else {"max_classes": 0, "num_quantiles": _QUANTILES[size]}
    return {**head, **_WIDTHS[size], **_COMMON, "bias_free_ln": task == "regression"}


def build(config: dict[str, Any], seed: int = 0) -> TabICL:
    """A network with fresh weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TabICL(**config).train()


def forward(
    network: TabICL, X: Tensor, y_train: Tensor, dtype: torch.dtype = torch.float32, block: Block | None = None
) -> Tensor:
    """X (B, n, d), y_train (B, t) → logits or quantiles (B, n − t, out) of the rows after the first t.

    ``dtype`` is the precision of the blocks. Cells and targets are embedded in float32 whatever it is: bfloat16 keeps
    less than three digits, and rounding 48 dimensions apart loses less than rounding the one number.
    ``block`` is ``attention_block``, or that compiled.
    """
    block = block or attention_block
    embedded = _columns(network, X, y_train, dtype, block)  # (B, d, n, E)
    rows = _rows(network, embedded.transpose(1, 2), block)  # (B, n, C·E)
    return _in_context(network, rows, y_train, block)


def attention_block(
    layer: MultiheadAttentionBlock,
    x: Tensor,
    source: Tensor | None = None,
    keys: int | None = None,
    rotation: Tensor | None = None,
    log_keys: Tensor | None = None,
) -> Tensor:
    """Pre-norm attention of ``x`` (N, n, E) to ``source`` (to itself if None; only its first ``keys`` rows), then the
    feed-forward layer."""
    x = x + _attention(layer, x, source, keys, rotation, log_keys)
    hidden = F.gelu(_linear(layer.linear1, _norm(layer.norm2, x)))
    return x + _linear(layer.linear2, hidden)


def _columns(network: TabICL, X: Tensor, y_train: Tensor, dtype: torch.dtype, block: Block) -> Tensor:
    """Column embedding: every cell beside two others of its row, as seen among the training rows."""
    column = network.col_embedder
    size, train = column.feature_group_size, y_train.shape[1]
    groups = torch.stack([X.roll(-(2**i), dims=2) for i in range(size)], dim=-1)  # (B, n, d, 3)
    cells = F.linear(groups, column.in_linear.weight, column.in_linear.bias).transpose(1, 2)  # (B, d, n, E)
    labels = _labels(column.y_encoder, y_train, network.max_classes).unsqueeze(1)  # (B, 1, t, E)
    labels = F.pad(labels, (0, 0, 0, X.shape[1] - train))
    x = (cells + labels).to(dtype).flatten(0, 1)  # (B·d, n, E)
    for layer in column.tf_col.blocks:  # a few learnt points look at the training rows, then all rows at the points
        points = layer.ind_vectors.to(dtype).expand(x.shape[0], -1, -1)
        points = block(layer.multihead_attn1, points, x[:, :train], log_keys=_log(train, X))
        x = block(layer.multihead_attn2, x, points)
    return x.unflatten(0, (X.shape[0], X.shape[2]))


def _rows(network: TabICL, x: Tensor, block: Block) -> Tensor:
    """Row interaction: the cells of a row (B, n, d, E) summarised in its C leading tokens (B, n, C·E)."""
    row = network.row_interactor
    tokens = row.cls_tokens.to(x.dtype).expand(*x.shape[:2], -1, -1)
    x = torch.cat([tokens, x], dim=2).flatten(0, 1)  # (B·n, C + d, E)
    rotation = _rotation(row.tf_row.rope.freqs, x.shape[1]).to(x.dtype)
    layers = list(row.tf_row.blocks)
    for layer in layers[:-1]:
        x = block(layer, x, rotation=rotation)
    x = block(layers[-1], x[:, : row.num_cls], x, rotation=rotation)
    return _norm(row.out_ln, x).flatten(1).unflatten(0, tokens.shape[:2])


def _in_context(network: TabICL, rows: Tensor, y_train: Tensor, block: Block) -> Tensor:
    """In-context learning: all rows look at the labelled rows, block after block."""
    icl, train = network.icl_predictor, y_train.shape[1]
    labels = _labels(icl.y_encoder, y_train, network.max_classes)
    x = (rows + F.pad(labels, (0, 0, 0, rows.shape[1] - train))).to(rows.dtype)
    for layer in icl.tf_icl.blocks:
        x = block(layer, x, keys=train, log_keys=_log(train, rows))
    x = _norm(icl.ln, x[:, train:])
    return _linear(icl.decoder[2], F.gelu(_linear(icl.decoder[0], x))).float()


def _labels(encoder: torch.nn.Linear, y: Tensor, classes: int) -> Tensor:
    if classes > 0:  # a row of the weight matrix for each class: the product with a one-hot vector, without the vector
        return F.embedding(y.long(), encoder.weight.mT) + encoder.bias
    return F.linear(y.unsqueeze(-1), encoder.weight, encoder.bias)


def _attention(
    layer: MultiheadAttentionBlock,
    x: Tensor,
    source: Tensor | None,
    keys: int | None,
    rotation: Tensor | None,
    log_keys: Tensor | None,
) -> Tensor:
    attention: MultiheadAttention = layer.attn
    weight, bias = attention.in_proj_weight.to(x.dtype), attention.in_proj_bias.to(x.dtype)
    width, heads = x.shape[-1], attention.num_heads
    normed = _norm(layer.norm1, x)
    if source is None:
        # One product for queries, keys and values, though test rows need no keys: cheaper than a copy of the rest.
        q, k, v = F.linear(normed, weight, bias).chunk(3, dim=-1)
    else:
        q = F.linear(normed, weight[:width], bias[:width])
        k, v = F.linear(_norm(layer.norm1, source), weight[width:], bias[width:]).chunk(2, dim=-1)
    if keys is not None:
        k, v = k[:, :keys], v[:, :keys]
    q, k, v = (part.unflatten(-1, (heads, width // heads)).transpose(1, 2) for part in (q, k, v))
    if rotation is not None:
        q, k = _rotate(q, rotation), _rotate(k, rotation)
    if attention.ssmax_layer is not None:
        q = _scale_with_length(attention.ssmax_layer, q, log_keys)
    attend = _dense_attention if rotation is not None and k.is_cuda else F.scaled_dot_product_attention
    return _linear(attention.out_proj, attend(q, k, v).transpose(1, 2).flatten(2))


def _dense_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with its weights written out: between the few cells of a row several times faster than the fused
    kernels, which work in tiles of 64 or 128 keys."""
    weights = (q * q.shape[-1] ** -0.5) @ k.mT
    return weights.float().softmax(-1).to(v.dtype) @ v


def _scale_with_length(ssmax: Any, q: Tensor, log_keys: Tensor | None) -> Tensor:
    """Query-aware scalable softmax: sharper attention over more rows."""
    base = ssmax.base_mlp(log_keys).view(1, ssmax.num_heads, 1, -1)
    first, last = ssmax.query_mlp[0], ssmax.query_mlp[2]
    return q * base.to(q.dtype) * (1 + torch.tanh(_linear(last, F.gelu(_linear(first, q)))))


def _log(rows: int, like: Tensor) -> Tensor:
    return torch.full((1, 1), math.log(max(rows, 1)), device=like.device)


def _rotation(frequencies: Tensor, length: int) -> Tensor:
    """(2, length, E / heads): cosines and sines of the rotary position encoding."""
    angles = torch.outer(torch.arange(length, device=frequencies.device, dtype=frequencies.dtype), frequencies)
    return torch.stack([angles.cos(), angles.sin()]).repeat(1, 1, 2)


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    cos, sin = rotation[0, : x.shape[2]], rotation[1, : x.shape[2]]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def _norm(norm: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    bias = None if norm.bias is None else norm.bias.to(x.dtype)
    return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), bias, norm.eps)


def _linear(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
