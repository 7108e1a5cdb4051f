"""What answers hold, and how a client sees it: labels and probabilities, numbers, or quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crumb.online import Answer, CrumbOnline

DATATYPES = {
    "b": "BOOL",
    "i": "INT64",
    "u": "INT64",
    "f": "FP64",
}  # by numpy's kind; anything else is text


@dataclass(frozen=True)
class Tensor:
    """One output of a model: as the Open Inference Protocol names, types and shapes it."""

    name: str
    datatype: str
    shape: tuple[int, ...]  # of one row


@dataclass(frozen=True)
class Outputs:
    """``kind``: what the stream answers with ("proba", "label", "mean", "median" or "quantiles")."""

    kind: str
    levels: tuple[float, ...] = ()

    @classmethod
    def of(cls, stream: CrumbOnline) -> Outputs:
        return cls(stream._output.kind, tuple(stream._output.quantiles))

    def tensors(self, classes: np.ndarray | None) -> list[Tensor]:
        if self.kind == "quantiles":
            return [Tensor("quantiles", "FP64", (len(self.levels),))]
        if classes is None:
            return [Tensor("prediction", "FP64", ())]
        label = Tensor("label", DATATYPES.get(classes.dtype.kind, "BYTES"), ())
        return (
            [label]
            if self.kind == "label"
            else [label, Tensor("probabilities", "FP64", (len(classes),))]
        )

    def values(self, tensor: str, answers: Sequence[Answer]) -> list[Any]:
        """The values of one output, row after row, flat."""
        if tensor == "label":
            return [_label(answer, self.kind) for answer in answers]
        return np.asarray([answer.value for answer in answers], dtype=np.float64).ravel().tolist()

    def record(self, answer: Answer) -> dict[str, Any]:
        """One answer in plain JSON."""
        if self.kind == "quantiles":
            return {
                "quantiles": {
                    f"{level:g}": float(v)
                    for level, v in zip(self.levels, answer.value, strict=True)
                }
            }
        if answer.classes is None:
            return {"prediction": float(answer.value)}
        found: dict[str, Any] = {"label": _label(answer, self.kind)}
        if self.kind == "proba":
            found["probabilities"] = dict(
                zip(class_names(answer.classes), answer.value.tolist(), strict=True)
            )
        return found

    def json_schema(self, classes: np.ndarray | None) -> dict[str, Any]:
        """Of what ``record`` gives. Classes may change when rows are learned: their names are not part of it."""
        numbers = {"type": "object", "additionalProperties": {"type": "number"}}
        if self.kind == "quantiles":
            properties: dict[str, Any] = {"quantiles": numbers}
        elif classes is None:
            properties = {"prediction": {"type": "number"}}
        else:
            kinds = {"BOOL": "boolean", "INT64": "integer", "FP64": "number", "BYTES": "string"}
            properties = {"label": {"type": kinds[self.tensors(classes)[0].datatype]}}
            if self.kind == "proba":
                properties["probabilities"] = numbers
        return {"type": "object", "properties": properties, "required": list(properties)}


def class_names(classes: np.ndarray) -> list[str]:
    """Classes as keys of a JSON object: true and false as JSON writes them."""
    return [
        str(label).lower() if classes.dtype.kind == "b" else str(label)
        for label in classes.tolist()
    ]


def _label(answer: Answer, kind: str) -> Any:
    assert answer.classes is not None
    label = answer.value if kind == "label" else answer.classes[int(np.argmax(answer.value))]
    return label.item() if isinstance(label, np.generic) else label
