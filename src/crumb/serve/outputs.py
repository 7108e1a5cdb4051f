"""What answers hold, and how a client sees it: labels, probabilities, numbers or quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, create_model

from crumb.online import Answer, CrumbOnline

# By the kind of numpy's type; anything else is text.
DATATYPES = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP64"}
Numbers = dict[str, float]
Label = bool | int | float | str  # learned rows may bring classes of another type


@dataclass(frozen=True)
class Tensor:
    """One output of a model: as the Open Inference Protocol names, types and shapes it."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # of one row


@dataclass(frozen=True)
class Outputs:
    """``kind``: what the stream answers with, such as "proba"; ``levels``: of quantiles."""

    kind: str
    levels: tuple[float, ...] = ()

    @classmethod
    def of(cls, stream: CrumbOnline) -> Outputs:
        return cls(stream.output.kind, tuple(stream.output.quantiles))

    def tensors(self, classes: np.ndarray | None) -> list[Tensor]:
        if self.kind == "quantiles":
            return [Tensor("quantiles", "FP64", (len(self.levels),))]
        if classes is None:
            return [Tensor("prediction", "FP64", ())]
        label = Tensor("label", DATATYPES.get(classes.dtype.kind, "BYTES"), ())
        probabilities = Tensor("probabilities", "FP64", (len(classes),))
        return [label] if self.kind == "label" else [label, probabilities]

    def values(self, tensor: str, answers: Sequence[Answer]) -> list[Any]:
        """The values of one output, row after row, flat."""
        if tensor == "label":
            return [_label(answer, self.kind) for answer in answers]
        return np.asarray([answer.value for answer in answers], dtype=np.float64).ravel().tolist()

    def record(self, answer: Answer) -> dict[str, Any]:
        """One answer in plain JSON."""
        if self.kind == "quantiles":
            levels = (f"{level:g}" for level in self.levels)
            return {"quantiles": dict(zip(levels, map(float, answer.value), strict=True))}
        if answer.classes is None:
            return {"prediction": float(answer.value)}
        found: dict[str, Any] = {"label": _label(answer, self.kind)}
        if self.kind == "proba":
            names = class_names(answer.classes)
            found["probabilities"] = dict(zip(names, answer.value.tolist(), strict=True))
        return found

    def model(self, classes: np.ndarray | None) -> type[BaseModel]:
        """Of what ``record`` gives."""
        types = {"label": Label, "prediction": float}
        names = [tensor.name for tensor in self.tensors(classes)]
        return create_model("Prediction", **{n: (types.get(n, Numbers), ...) for n in names})  # type: ignore[call-overload]


def class_names(classes: np.ndarray) -> list[str]:
    """Classes as keys of a JSON object: true and false as JSON writes them."""
    lower = classes.dtype.kind == "b"
    return [str(label).lower() if lower else str(label) for label in classes.tolist()]


def _label(answer: Answer, kind: str) -> Any:
    assert answer.classes is not None
    label = answer.value if kind == "label" else answer.classes[int(np.argmax(answer.value))]
    return label.item() if isinstance(label, np.generic) else label
