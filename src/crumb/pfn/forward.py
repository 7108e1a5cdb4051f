"""tabicl's network for many tables at once.

The network *is* tabicl's ``TabICL``: the same module, parameters and checkpoint. Only the way
through it differs. tabicl's own pass takes tables of one size and one number of classes, asks the
device several times how to go on, embeds placeholder columns for its summary tokens and launches
thousands of small kernels. ``forward`` computes the same function without a question to the device,
so that a step of the training can be recorded once as a CUDA graph. It takes contexts of different
sizes and classes, so that many of them share one pass. ``tests/pfn/test_forward.py`` compares it
with tabicl's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crumb.pfn.tabicl_package import MultiheadAttention, MultiheadAttentionBlock, QASSMaxMLP, TabICL

Block = Callable[..., Tensor]

# Tokens of a row up to which attention with its weights written out is the faster one: on a GPU,
# whose fused kernels work in tiles of 64 or 128 keys, and on a CPU.
MOST_DENSE, CPU_DENSE = 144, 40
CPU_BYTES = 1 << 20  # of cells that go through the network together on a CPU
NO_CELL = -100.0  # tabicl's mark for the places of its summary tokens
WAVES = 16  # of a place
KNOTS = 65  # quantiles of a context's column, between which places are interpolated


class Keys(NamedTuple):
    """The rows that may be looked at: the first ``most``, of which each table may have fewer."""

    most: int
    log: Tensor  # (1, 1) or (B, 1): logarithm of how many there are, which sharpens the attention
    # (B, 1, 1, most): true where a row is there. None: everywhere, which has faster kernels.
    mask: Tensor | None

    def repeated(self, times: int) -> Keys:
        """The same for each of the ``times`` columns of a table."""
        if self.mask is None:
            return self
        log, mask = (part.repeat_interleave(times, dim=0) for part in (self.log, self.mask))
        return Keys(self.most, log, mask)


def supports(network: TabICL) -> bool:
    """Whether ``forward`` knows every part of a network: TabICL v1, v1.1, v2 and their like."""
    grouped = network.col_feature_group in (True, "same")
    plain = not network.col_feature_group and not network.col_target_aware
    attentions = [module for module in network.modules() if isinstance(module, MultiheadAttention)]
    return (
        ((grouped and not network.col_affine) or plain)
        and network.norm_first
        and network.activation == "gelu"
        and all(isinstance(one.ssmax_layer, QASSMaxMLP | None) for one in attentions)
    )


def forward(
    network: TabICL,
    X: Tensor,
    y_train: Tensor,
    dtype: torch.dtype = torch.float32,
    block: Block | None = None,
    lengths: Tensor | None = None,
    at_once: int | None = None,
) -> Tensor:
    """X (B, n, d), y_train (B, t) → logits of all classes, or quantiles, (B, n − t, out).

    The first t rows are the context; the answers are to the rows after them.
    ``dtype`` is the precision of the blocks. Cells and targets are always embedded in float32:
    bfloat16 keeps less than three digits, and rounding 48 dimensions apart loses less than rounding
    the one number.
    ``block`` is ``attention_block``, or that compiled.
    ``lengths`` (B,) says how many of the first t rows each table has. The others are padding: they
    are finite and not looked at.
    ``at_once`` is the number of tables whose cells are embedded together. Cells take the memory.
    """
    block, size = block or attention_block, at_once or len(X)
    rows = []
    for start in range(0, len(X), size):
        some = slice(start, start + size)
        keys = keys_of(y_train[some], None if lengths is None else lengths[some])
        rows.append(represent(network, X[some], y_train[some], keys, dtype, block))
    x = rows[0] if len(rows) == 1 else torch.cat(rows)
    return _in_context(network, x, y_train, keys_of(y_train, lengths), block)


def represent(
    network: TabICL, X: Tensor, y_train: Tensor, keys: Keys, dtype: torch.dtype, block: Block
) -> Tensor:
    """All rows (B, n, C·E) as ``forward`` has them before they learn from each other."""
    return _rows(network, _columns(network, X, y_train, keys, dtype, block), block)


def keys_of(y_train: Tensor, lengths: Tensor | None = None) -> Keys:
    most = y_train.shape[1]
    if lengths is None:
        return Keys(most, torch.full((1, 1), math.log(max(most, 1)), device=y_train.device), None)
    mask = torch.arange(most, device=lengths.device) < lengths.unsqueeze(1)
    return Keys(most, lengths.float().log().unsqueeze(1), mask[:, None, None])


def attention_block(
    layer: MultiheadAttentionBlock,
    x: Tensor,
    source: Tensor | None = None,
    keys: Keys | None = None,
    turned: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Pre-norm attention of ``x`` (N, n, E) to ``source``, then the feed-forward layer.

    Without a ``source``, ``x`` looks at itself; with ``keys``, at these rows only. ``dtype`` is the
    precision of the products, if it is not that of ``x``. With weights ``turned`` for each place n
    of a row, ``x`` is (n, N, E).
    """
    dtype = dtype or x.dtype
    if turned is None:
        x = x + _attention(layer, x, source, keys, dtype)
    else:
        x = x + _among_tokens(layer, x, x if source is None else source, turned)
    hidden = F.gelu(_linear(layer.linear1, _norm(layer.norm2, x).to(dtype)))
    return x + _linear(layer.linear2, hidden)


def _columns(
    network: TabICL, X: Tensor, y_train: Tensor, keys: Keys, dtype: torch.dtype, block: Block
) -> Tensor:
    """Column embedding: every cell (in v2 beside two others of its row) among the training rows."""
    column = network.col_embedder
    groups = _groups(column, X.mT)  # (B, d, n, 1 or 3)
    cells = _cells(column, X, groups, keys)  # (B, d, n, E)
    if column.target_aware:
        labels = _labels(column.y_encoder, y_train, network.max_classes)  # (B, t, E)
        cells = cells + F.pad(labels.unsqueeze(1), (0, 0, 0, X.shape[1] - keys.most))
    # In this order x is no view in half precision. The compiler would tell views apart.
    x = cells.flatten(0, 1).to(dtype)  # (B·d, n, E)
    del cells
    keys, induced = keys.repeated(X.shape[2]), partial(_induced, column, block=block)
    # A mask has a line for each of all columns.
    x = _in_parts(partial(induced, keys), x, 0) if keys.mask is None else induced(keys, x)
    x = x.unflatten(0, (X.shape[0], X.shape[2]))
    if column.affine:
        scale = _norm(column.ln_w, _linear(column.out_w, x))
        shift = _norm(column.ln_b, _linear(column.out_b, x))
        x = (groups * scale + shift).to(dtype)
    return x


def _induced(column: Any, keys: Keys, x: Tensor, block: Block) -> Tensor:
    """A few learnt points look at the training rows of a column, then all rows at the points."""
    for layer in column.tf_col.blocks:
        points = layer.ind_vectors.to(x.dtype).unsqueeze(0)
        points = block(layer.multihead_attn1, points, x[:, : keys.most], keys=keys)
        x = block(layer.multihead_attn2, x, points)
    return x


def _in_parts(work: Callable[[Tensor], Tensor], x: Tensor, dim: int) -> Tensor:
    """On a CPU a few at a time, which stay in its caches; all at once elsewhere."""
    size = max(1, CPU_BYTES * x.shape[dim] // max(1, x.nbytes))
    if x.device.type != "cpu" or x.shape[dim] <= size:
        return work(x)
    return torch.cat([work(part) for part in x.split(size, dim)], dim)


def _cells(column: Any, X: Tensor, groups: Tensor, keys: Keys) -> Tensor:
    """The input layer, without tabicl's questions about its placeholder columns."""
    layer = column.in_linear
    if not isinstance(layer, Cells):
        return F.linear(groups, layer.weight, layer.bias)
    lengths = None if keys.mask is None else keys.mask.sum(-1)  # (B, 1, 1)
    place = places(X.mT, quantiles(X[:, : keys.most].mT, lengths))
    return layer.embed(torch.cat([groups, _groups(column, place)], dim=-1))


class Cells(nn.Module):
    """The input layer of our variant: numbers and their places (…, 2k) to (…, width).

    A cell brings three things: its number; its place among the context's cells of its column, which
    no heavy tail squeezes together; and waves of that place. These are learnt from wide to narrow.
    They begin small beside the numbers, so that an untrained network starts as an affine one.
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


def _groups(column: Any, X: Tensor) -> Tensor:
    """Cells (B, d, n) with those of the columns 1, 2 and 4 further on, going round."""
    if not column.feature_group:
        return X.unsqueeze(-1)
    return torch.stack([X.roll(-(2**i), dims=1) for i in range(column.feature_group_size)], dim=-1)


def _rows(network: TabICL, cells: Tensor, block: Block) -> Tensor:
    """Row interaction: the cells of a row (B, d, n, E), summed up in C tokens (B, n, C·E)."""
    row, shape = network.row_interactor, (cells.shape[0], cells.shape[2])
    x = cells.transpose(0, 1).flatten(1, 2)  # (d, B·n, E)
    angles = _angles(row.tf_row.rope.freqs, row.num_cls + len(x))
    layers = [
        (layer, _turned(layer.attn, angles, row.tf_row.rope.interleaved).to(x.dtype))
        for layer in row.tf_row.blocks
    ]
    x = _in_parts(partial(_summed, row, layers, block), x, 1)
    return x.transpose(0, 1).flatten(1).unflatten(0, shape)


def _summed(
    row: Any, layers: list[tuple[MultiheadAttentionBlock, Tensor]], block: Block, x: Tensor
) -> Tensor:
    """The places in a row come first: (d, N, E) → (C, N, E)."""
    tokens = row.cls_tokens.to(x.dtype).unsqueeze(1).expand(-1, x.shape[1], -1)
    x, (last, turned) = torch.cat([tokens, x]), layers[-1]
    for layer, weights in layers[:-1]:
        x = block(layer, x, turned=weights)
    return _norm(row.out_ln, block(last, x[: row.num_cls], x, turned=turned))


def _in_context(network: TabICL, rows: Tensor, y_train: Tensor, keys: Keys, block: Block) -> Tensor:
    """In-context learning: all rows look at the labelled rows; in the last block the queries do."""
    icl, dtype = network.icl_predictor, rows.dtype
    labels = _labels(icl.y_encoder, y_train, network.max_classes)
    # float16 ends at 65,504, so what the blocks add up stays in float32, as it does in tabicl.
    stream = torch.float32 if dtype == torch.float16 else dtype
    x = (rows + F.pad(labels, (0, 0, 0, rows.shape[1] - keys.most))).to(stream)
    layers = list(icl.tf_icl.blocks)
    for layer in layers[:-1]:
        x = block(layer, x, keys=keys, dtype=dtype)
    x = block(layers[-1], x[:, keys.most :], x[:, : keys.most], keys=keys, dtype=dtype)
    x = _norm(icl.ln, x).to(dtype)
    return _linear(icl.decoder[2], F.gelu(_linear(icl.decoder[0], x))).float()


def _labels(encoder: nn.Linear, y: Tensor, classes: int) -> Tensor:
    if classes > 0:  # the product with a one-hot vector, without the vector
        return F.embedding(y.long(), encoder.weight.mT) + encoder.bias
    return F.linear(y.unsqueeze(-1), encoder.weight, encoder.bias)


def _attention(
    layer: MultiheadAttentionBlock,
    x: Tensor,
    source: Tensor | None,
    keys: Keys | None,
    dtype: torch.dtype,
) -> Tensor:
    attention: MultiheadAttention = layer.attn
    weight, bias = attention.in_proj_weight.to(dtype), attention.in_proj_bias.to(dtype)
    width, heads = x.shape[-1], attention.num_heads
    normed = _norm(layer.norm1, x).to(dtype)
    if source is None:
        # One product for all three. Test rows need no keys, but leaving them out costs a copy.
        q, k, v = F.linear(normed, weight, bias).chunk(3, dim=-1)
    else:
        q = F.linear(normed, weight[:width], bias[:width])
        source = _norm(layer.norm1, source).to(dtype)
        k, v = F.linear(source, weight[width:], bias[width:]).chunk(2, dim=-1)
    del normed
    if keys is not None:
        k, v = k[:, : keys.most], v[:, : keys.most]
    q, k, v = (part.unflatten(-1, (heads, width // heads)).transpose(1, 2) for part in (q, k, v))
    if attention.ssmax_layer is not None and keys is not None:
        q = _scale_with_length(attention.ssmax_layer, q, keys.log)
    if q.shape[0] != k.shape[0]:  # learnt points serve every column; not all kernels repeat them
        q = q.expand(k.shape[0], -1, -1, -1).contiguous()
    if q.device.type == "cpu":  # whose kernels are slower in half precision
        q, k, v = q.float(), k.float(), v.float()
    attended = F.scaled_dot_product_attention(q, k, v, None if keys is None else keys.mask)
    return _linear(attention.out_proj, attended.transpose(1, 2).flatten(2).to(dtype))


def _among_tokens(
    layer: MultiheadAttentionBlock, x: Tensor, tokens: Tensor, turned: Tensor
) -> Tensor:
    """Attention of ``x``, the first tokens of N rows, to all of their ``tokens`` (n, N, E)."""
    width, heads = x.shape[-1], layer.attn.num_heads

    def part(tokens: Tensor, which: slice) -> Tensor:
        """(1 or 2, N, heads, n, E / heads): queries, or keys and values."""
        weights = turned[: len(tokens), :, which]
        made = torch.baddbmm(weights[:, :1], tokens, weights[:, 1:])
        made = made.unflatten(-1, (-1, heads, width // heads))
        return made.permute(2, 1, 3, 0, 4).contiguous()

    tokens = _norm(layer.norm1, tokens)
    (q,), (k, v) = part(tokens[: len(x)], slice(width)), part(tokens, slice(width, None))
    if k.shape[2] <= (CPU_DENSE if k.device.type == "cpu" else MOST_DENSE):
        attended = (q @ k.mT).float().softmax(-1).to(v.dtype) @ v
    else:
        attended = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    return _linear(layer.attn.out_proj, attended.permute(2, 0, 1, 3).flatten(2))


def _scale_with_length(ssmax: QASSMaxMLP, q: Tensor, log_keys: Tensor) -> Tensor:
    """Query-aware scalable softmax: sharper attention over more rows."""
    base = ssmax.base_mlp(log_keys).unflatten(1, (ssmax.num_heads, -1))
    base = base.unsqueeze(2)  # (1 or N, heads, 1, 1 or width)
    first, last = ssmax.query_mlp[0], ssmax.query_mlp[2]
    bent = _linear(last, F.gelu(_linear(first, q)))
    # 2 · sigmoid(2 x) is 1 + tanh(x), and several times faster on a CPU.
    return q * (2 * base.to(q.dtype)) * torch.sigmoid(2 * bent)


def _angles(frequencies: Tensor, length: int) -> Tensor:
    """Of the rotary position encoding, for each place and pair of dimensions: (n, E / heads / 2)"""
    places = torch.arange(length, device=frequencies.device, dtype=frequencies.dtype)
    return torch.outer(places, frequencies)


def _turned(attention: MultiheadAttention, angles: Tensor, interleaved: bool) -> Tensor:
    """(n, 1 + E, 3·E): bias and weights of queries, keys and values for each place of a row.

    Queries and keys are turned by their place. Here their few weights are, and queries are scaled,
    which is cheaper than to do it to all rows. A pair of dimensions are neighbours in v1, and one
    of each half in v2; which of them comes first is the same to their product.
    """
    width, heads = attention.embed_dim, attention.num_heads
    every = torch.cat([attention.in_proj_bias.unsqueeze(1), attention.in_proj_weight], dim=1)
    q, k, v = every.chunk(3)
    seen = torch.cat([q * (width / heads) ** -0.5, k])
    pairs = seen.unflatten(0, (2 * heads, -1, 2) if interleaved else (2 * heads, 2, -1))
    first, second = pairs.unbind(2 if interleaved else 1)  # (2·heads, E / heads / 2, 1 + E)
    cos, sin = angles.cos()[:, None, :, None], angles.sin()[:, None, :, None]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=2)
    turned = torch.cat([turned.flatten(1, 3), v.expand(len(angles), -1, -1)], dim=1)
    return turned.mT.contiguous()


def _norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    bias = None if norm.bias is None else norm.bias.to(x.dtype)
    return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), bias, norm.eps)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
