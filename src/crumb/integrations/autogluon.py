"""CRUMB as a model for AutoGluon's ``TabularPredictor`` (extra ``autogluon``).

    TabularPredictor("price").fit(table, hyperparameters={CrumbModel: {}, "GBM": {}})

Hyperparameters are those of ``CrumbClassifier`` and ``CrumbRegressor``. A short time limit becomes
a ``budget`` where the user has left K or n open. Answers depend on the batch, unless ``plan_at`` is
``"fit"``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import extra
from crumb.pfn.models import COSTS

with extra("autogluon", "CRUMB as a model of AutoGluon"):
    from autogluon.core.models import AbstractModel

PREDICTING = 0.5  # share of a time limit that a prediction may take; most of a fit is quick
LEAST_BUDGET = 0.1  # seconds
# Seconds in which the defaults answer on two cores with the embedded network. A longer limit leaves
# the defaults: every prediction would take the whole of a budget, and hardly be better for it.
LONG = 120
# Memory, as measured with the embedded network (docs/autogluon.md).
OVERHEAD = 300 << 20  # bytes: torch and the network
CELL_BYTES = 300  # of the table: as it came, encoded, as numbers, and as points
COLUMN_BYTES = 1_500_000  # of a pass; more for costlier models
UNKNOWN_COST = 5  # of a model that is not ours by name


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
        if time_limit is not None and _short(CrumbClassifier(**settings), time_limit):
            settings["budget"] = max(LEAST_BUDGET, PREDICTING * time_limit)
        kind = CrumbRegressor if self.problem_type == "regression" else CrumbClassifier
        self.model = kind(**settings).fit(X, y)

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: pd.DataFrame,
        hyperparameters: dict[str, Any] | None = None,
        num_cpus: int = 1,
        **kwargs: Any,
    ) -> int:
        model = (hyperparameters or {}).get("model", "embedded")
        a_pass = (_cost(model) or UNKNOWN_COST) * COLUMN_BYTES * (X.shape[1] + 5)
        return OVERHEAD + CELL_BYTES * X.size + num_cpus * a_pass

    def _more_tags(self) -> dict[str, Any]:
        return {"can_refit_full": True}


def _cost(model: Any) -> int | None:
    return COSTS.get(model) if isinstance(model, str) else None


def _short(model: CrumbClassifier, seconds: float) -> bool:
    """Whether K or n must give way to a limit: they are open, and the defaults may take longer."""
    free = "auto" in (model.n_clusters, model.context_size)
    cost = _cost(model.model)
    long = cost is not None and seconds >= LONG * cost
    return free and model.budget is None and model.plan_at == "predict" and not long
