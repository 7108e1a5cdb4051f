"""Tiny checkpoints with random weights in the official formats: real networks, milliseconds a pass.

Their answers mean nothing, but they vary with the context and with the query, so two ways of
running the same network can be compared.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from crumb.pfn.architecture import build
from pretraining.network import V2_ARCHITECTURE

TINY = {
    "embed_dim": 16,
    "col_num_blocks": 1,
    "col_nhead": 2,
    "col_num_inds": 8,
    "row_num_blocks": 1,
    "row_nhead": 2,
    "row_num_cls": 2,
    "icl_num_blocks": 2,
    "icl_nhead": 2,
    "ff_factor": 2,
    "zero_init": False,  # the package's default gives the same answer to every query
}
V2 = {**V2_ARCHITECTURE, "bias_free_ln": False}
V1 = {
    "col_affine": True,
    "col_feature_group": False,
    "col_target_aware": False,
    "col_ssmax": False,
    "icl_ssmax": False,
    "row_rope_interleaved": True,
    "bias_free_ln": False,
}


def write_tabicl(path: Path, config: dict[str, Any], seed: int = 0) -> Path:
    torch.manual_seed(seed)
    network = build(config)
    torch.save({"config": config, "state_dict": network.state_dict()}, path)
    return path


def tabicl_v2_classifier(path: Path, seed: int = 0) -> Path:
    return write_tabicl(path, {"max_classes": 10, **TINY, **V2}, seed)


def tabicl_v2_regressor(path: Path, seed: int = 0) -> Path:
    return write_tabicl(path, {"max_classes": 0, "num_quantiles": 99, **TINY, **V2}, seed)


def tabicl_v1_classifier(path: Path, seed: int = 0) -> Path:
    return write_tabicl(path, {"max_classes": 10, **TINY, **V1}, seed)


def without_flags(source: Path, path: Path) -> Path:
    """The same weights as tabicl 0.1.x wrote them: without the flags of v1."""
    content = torch.load(source, weights_only=True)
    # Nor zero_init, which matters only before weights are loaded.
    content["config"] = {k: v for k, v in content["config"].items() if k not in {*V1, "zero_init"}}
    torch.save(content, path)
    return path


def tabpfn_classifier(path: Path, seed: int = 0) -> Path:
    torch.save(_tabpfn(seed, max_num_classes=10), path)
    return path


def tabpfn_regressor(path: Path, seed: int = 0) -> Path:
    content = _tabpfn(seed, max_num_classes=0, num_buckets=100)
    content["state_dict"].update(_bars())
    torch.save(content, path)
    return path


def tabpfn_v2_5_regressor(path: Path) -> Path:
    """Its configuration says −1 where that of version 2 says that there are 0 classes."""
    later_tabpfn(path, "v2.5", "regression")
    assert torch.load(path, weights_only=True)["config"]["max_num_classes"] == -1
    return path


# By version: the module of the package, the name in its checkpoints, and a tiny network.
OLD_STYLE = {"emsize": 16, "nlayers": 2, "nhead": 2, "num_thinking_rows": 2}
ROW_STYLE = {"embed_dim": 16, "dist_embed_num_blocks": 1, "dist_embed_num_heads": 2}
ROW_STYLE |= {"dist_embed_num_inducing_points": 8, "feat_agg_num_blocks": 1, "nlayers": 2}
ROW_STYLE |= {"feat_agg_num_heads": 2, "feat_agg_num_cls_tokens": 2, "icl_num_heads": 2}
ROW_STYLE |= {"decoder_head_dim": 8, "decoder_num_heads": 2, "softmax_scaling_mlp_hidden_dim": 8}
LATER: dict[str, tuple[str, str, dict[str, Any]]] = {
    "v2.5": ("tabpfn_v2_5", "base", OLD_STYLE),
    "v2.6": ("tabpfn_v2_6", "tabpfn_v2_6", OLD_STYLE),
    "v3": ("tabpfn_v3", "tabpfn_v3", ROW_STYLE),
    "v3.5": ("tabpfn_v3_5", "tabpfn_v3_5", {**ROW_STYLE, "fourier_encoding_num_frequencies": 4}),
}


def later_tabpfn(path: Path, version: str, task: str) -> Path:
    """TabPFN 2.5 to 3.5 as the package reads them; from 3.5 on, one file does both tasks."""
    from importlib import import_module

    from tabpfn.checkpoint import save_as_safetensors
    from tabpfn.constants import ModelVersion
    from tabpfn.inference_config import InferenceConfig

    module, name, config = LATER[version]
    architecture = import_module(f"tabpfn.architectures.{module}")
    heads = {"max_num_classes": 10} if task == "classification" else {"num_buckets": 100}
    if version == "v3.5":
        heads = {"max_num_classes": 10, "num_buckets": 100}
    settings = architecture.parse_config({**config, **heads})[0]
    weights = randomised(architecture.get_architecture(settings)).state_dict()
    if task == "regression" and "emsize" in config:  # later ones have the bars among their weights
        weights |= _bars()
    content = {"architecture_name": name, "config": asdict(settings), "state_dict": weights}
    if version != "v2.5":
        kind = "multiclass" if task == "classification" else "regression"
        usual = asdict(InferenceConfig.get_default(kind, ModelVersion.V2_5))
        content["inference_config"] = {**usual, "MAX_NUMBER_OF_SAMPLES": 60_000}
    if path.suffix == ".safetensors":
        save_as_safetensors(content, path)
    else:
        torch.save(content, path)
    return path


def tabpfn_v1_classifier(path: Path, seed: int = 0) -> Path:
    """As a parallel run of 2022 wrote it: a tuple, every name with a prefix, the loss inside."""
    from crumb.pfn.tabpfn_v1 import Network

    config = {"emsize": 16, "nhead": 2, "nlayers": 2, "nhid_factor": 2}
    config |= {"num_features": 100, "max_num_classes": 10, "dropout": 0.0}
    weights = randomised(Network(config), seed).state_dict() | {"criterion.weight": torch.ones(10)}
    torch.save(({f"module.{name}": one for name, one in weights.items()}, None, config), path)
    return path


def _bars() -> dict[str, torch.Tensor]:
    from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution

    bars = FullSupportBarDistribution(torch.linspace(-4, 4, 101))
    return {f"criterion.{name}": value for name, value in bars.state_dict().items()}


def _tabpfn(seed: int, **config: Any) -> dict[str, Any]:
    from tabpfn.architectures import tabpfn_v2

    settings = tabpfn_v2.TabPFNV2Config(
        emsize=16, features_per_group=2, nhead=2, nlayers=2, seed=42, **config
    )
    network = randomised(tabpfn_v2.get_architecture(settings), seed)
    return {"state_dict": network.state_dict(), "config": asdict(settings)}


def randomised(network: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """A new network of tabpfn ends in a layer of zeros: every query gets the same answer."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim >= 2:
                weight.normal_(std=0.2)
    return network


def shaken(network: torch.nn.Module) -> torch.nn.Module:
    """A network none of whose parameters is zero."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:  # not the fixed frequencies of the position encoding
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return network
