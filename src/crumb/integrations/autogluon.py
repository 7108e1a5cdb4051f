"""CRUMB as a model for AutoGluon's ``TabularPredictor`` (extra ``autogluon``).

    TabularPredictor("price").fit(table, hyperparameters={CrumbModel: {}, "GBM": {}})

Hyperparameters are those of ``CrumbClassifier`` and ``CrumbRegressor``. A time limit becomes a
``budget`` where the user has left K or n open. Answers depend on the batch, unless ``plan_at`` is
``"fit"``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import BackendUnavailable

try:
    from autogluon.common.utils.pandas_utils import get_approximate_df_mem_usage
    from autogluon.core.models import AbstractModel
except ImportError as error:
    raise BackendUnavailable(
        "CRUMB as a model of AutoGluon needs its package: pip install 'crumb-pfn[autogluon]'."
    ) from error

PREDICTING = 0.5  # share of a time limit that a prediction may take; most of a fit is quick
LEAST_BUDGET = 0.1  # seconds
OVERHEAD = 1 << 30  # bytes: torch and the network
COPIES = 6  # of the table: as it came, encoded, as numbers, and as points
CELL_BYTES = 7 << 20  # what a pass takes for each column, by contexts of 2,000 rows


class CrumbModel(AbstractModel):
    ag_key = "CRUMB"
    ag_name = "CRUMB"
    ag_priority = 65
    seed_name = "random_state"
    default_resources_physical_cores_only = True
    default_num_gpus = 1  # where there is one
    _supported_problem_types: ClassVar = ["binary", "multiclass", "regression"]
    # A fit is as quick as loading the model of a fold, and a bag of eight would ask eight times.
    _default_ag_args_ensemble_extra: ClassVar = {
        "fold_fitting_strategy": "sequential_local",
        "refit_folds": True,
    }

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        num_cpus: int = 1,
        num_gpus: float = 0,
        time_limit: float | None = None,
        **kwargs: Any,
    ) -> None:
        X = self.preprocess(X, y=y, is_train=True)
        # "auto": a predictor that was saved on a GPU also loads where there is none.
        how = {"n_jobs": num_cpus, "device": "auto" if num_gpus else "cpu"}
        settings = {**how, **self._get_model_params()}
        if time_limit is not None and _open(CrumbClassifier(**settings)):
            settings["budget"] = max(LEAST_BUDGET, PREDICTING * time_limit)
        kind = CrumbRegressor if self.problem_type == "regression" else CrumbClassifier
        self.model = kind(**settings).fit(X, y)

    @classmethod
    def _estimate_memory_usage_static(
        cls, *, X: pd.DataFrame, num_cpus: int = 1, **kwargs: Any
    ) -> int:
        table = COPIES * int(get_approximate_df_mem_usage(X).sum())
        return OVERHEAD + table + num_cpus * CELL_BYTES * (X.shape[1] + 5)

    def _more_tags(self) -> dict[str, Any]:
        return {"can_refit_full": True}


def _open(model: CrumbClassifier) -> bool:
    """Whether the user has left K or n open, and set no budget, and no plan that takes none."""
    free = "auto" in (model.n_clusters, model.context_size)
    return free and model.budget is None and model.plan_at == "predict"
