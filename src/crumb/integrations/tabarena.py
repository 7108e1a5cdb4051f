"""CRUMB's entry for TabArena (extra ``tabarena``): its model, its default configuration and what
TabArena's pages say of it.

    TabArenaV0pt1ExperimentBundle(models=[(crumb_info.search_space, 0), ("LightGBM", 0)])

There is no search space: one configuration, the default. docs/tabarena.md has the runner and its
results.
"""

from __future__ import annotations

from crumb.errors import extra
from crumb.integrations.autogluon import CrumbModel

with extra("tabarena", "CRUMB's entry for TabArena"):
    from tabarena.models import MethodMetadata, ModelInfo
    from tabarena.utils.config_utils import ConfigGenerator

crumb_info = ModelInfo(
    model_cls=CrumbModel,
    search_space=ConfigGenerator(search_space={}, model_cls=CrumbModel, manual_configs=[{}]),
    method_metadata=MethodMetadata.config(
        method="CRUMB",
        display_name="CRUMB",
        suite="crumb-pfn",
        ag_key=CrumbModel.ag_key,
        config_default="CRUMB_c1_default_BAG_L1",
        can_hpo=False,
        is_bag=False,  # folds are refitted as one model
        compute="cpu",
        date="2026-11-17",
        reference_url="https://github.com/crumb-pfn/crumb-pfn",
    ),
    pip_extra=("crumb-pfn[autogluon]",),
)
