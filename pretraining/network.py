"""The architecture of the embedded networks: tabicl's ``TabICL`` with TabICLv2's flags and small widths.

The same module, parameters and checkpoint as ``tabicl-v2``, so that both run through the same code: the package's, or
``crumb.pfn.forward`` in training and on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from tabicl._model.tabicl import TabICL

from crumb.pfn.architecture import V2_ARCHITECTURE

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
