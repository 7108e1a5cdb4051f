"""A model whose process dies. In a module of its own: few workers need to load sklearn."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from scale_faults import once
from sklearn.linear_model import LogisticRegression


class FallingModel(LogisticRegression):
    """A classifier whose process is killed at its first fit."""

    def __init__(self, folder: str = ""):
        super().__init__()
        self.folder = folder

    def fit(self, X: Any, y: Any) -> FallingModel:
        if once(Path(self.folder) / "fell"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(np.asarray(X), y)

    def predict_proba(self, X: Any) -> np.ndarray:
        return super().predict_proba(np.asarray(X))
