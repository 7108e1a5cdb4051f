"""The architectures that are trained: tabicl's ``TabICL`` with TabICLv2's flags, small widths and
our variant.

They run through the same code as ``tabicl-v2``: the package's, or ``crumb.pfn.forward`` in training
and on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crumb.pfn import architecture
from crumb.pfn.tabicl_package import TabICL

# tabicl divides logits by this before the softmax; trained with it, probabilities come out
# calibrated.
TEMPERATURE = 0.9
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
_WIDTHS["trial"] = _WIDTHS["small"]  # the same network on fewer shapes of tables
_QUANTILES = {"small": 499, "trial": 499, "smoke": 19}


def configuration(
    task: str,
    size: str = "small",
    widths: dict[str, int] | None = None,
    variant: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What ``crumb.pfn.architecture.build`` makes one of our networks from.

    ``widths`` replace those of the size; ``variant`` names the parts that are not TabICL's.
    """
    head = (
        {"max_classes": 10}
        if task == "classification"
        else {"max_classes": 0, "num_quantiles": _QUANTILES[size]}
    )
    config = {
        **head,
        **_WIDTHS[size],
        **(widths or {}),
        **_COMMON,
        "bias_free_ln": task == "regression",
    }
    return {**config, "variant": variant} if variant else config


def build(config: dict[str, Any], seed: int = 0) -> TabICL:
    """A network with fresh weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture.build(config).train()


def graft(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a network of TabICL's parts for one of ours that gives the same answers.

    Places and waves are there but count for nothing, until the training finds a use for them.
    """
    name = "col_embedder.in_linear"
    weight = weights[f"{name}.weight"]
    width, size = weight.shape
    cells = architecture.Cells(size, width)
    learnt = torch.zeros_like(cells.linear.weight)
    learnt[:, :size] = weight
    rest = {key: value for key, value in weights.items() if not key.startswith(f"{name}.")}
    new = {"linear.weight": learnt, "linear.bias": weights[f"{name}.bias"]}
    new["frequency"] = cells.frequency.data
    return rest | {f"{name}.{part}": value for part, value in new.items()}


def grow(weights: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of a network with fewer in-context blocks for the one that ``config`` describes.

    The new blocks come last and add nothing yet, so the answers are the same.
    """
    new = build(config)
    for block in new.icl_predictor.tf_icl.blocks:
        for layer in (block.attn.out_proj, block.linear2):
            layer.weight.data.zero_()
            layer.bias.data.zero_()
    return {**new.state_dict(), **weights}


def fade(network: TabICL, factor: float) -> dict[str, float]:
    """Later in-context blocks add less: the i-th begins with factorⁱ of its usual output layers.

    Returns the pace at which these layers have to learn for this to stay so, by the names of their
    matrices.
    """
    pace: dict[str, float] = {}
    for i, block in enumerate(network.icl_predictor.tf_icl.blocks):
        for name in ("attn.out_proj", "linear2"):
            weight = block.get_submodule(name).weight
            weight.data.mul_(factor**i)
            pace[f"icl_predictor.tf_icl.blocks.{i}.{name}.weight"] = factor**i
    return pace
