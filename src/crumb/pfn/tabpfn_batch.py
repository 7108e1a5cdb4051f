"""Several contexts through one pass of TabPFN, by the package's batched calls.

The package prepares every context by itself, as ``fit`` and ``predict`` do, and stacks the results.
So the answers are those of one context at a time, up to rounding in the network's precision.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.devices import free_bytes
from crumb.pfn.base import ContextTask, Output
from crumb.pfn.groups import pieces

if TYPE_CHECKING:
    from tabpfn import ModelSpecs

# About 100 contexts of 500 rows and 20 columns in the released network. A GPU is busy with fewer,
# and the widest tensor stays under 2³¹ numbers, where 32-bit indices end.
BATCH_BYTES = 16 << 30
HELD_CELLS = 1 << 22  # of the tasks that wait for others to go with
# As wide as the embedding, at the peak of a layer: its input, and its MLP (4) before and after.
TENSORS = 9


def cells(task: ContextTask) -> int:
    return int(task.X.size + task.queries.size)


def group_of(task: ContextTask, output: Output) -> Hashable:
    """What tasks of one call have in common: the package asks for one shape and one set of classes.

    Queries are padded to the same number. Rows are counted in powers of two, so that at most half
    of them are padding.
    """
    classes = int(task.y.max()) + 1 if output.kind == "proba" else None
    rows = len(task.X) + len(task.queries)
    return type(task.X), task.X.shape, classes, rows.bit_length()


def most_together(specs: ModelSpecs, tasks: list[ContextTask], device: str) -> int:
    """How many of these tasks one call may take, by an estimate of the memory."""
    rows = len(tasks[0].X) + max(len(task.queries) for task in tasks)
    one = rows * row_bytes(specs, tasks[0].X.shape[1])
    return max(1, min(BATCH_BYTES, free_bytes(device)) // one)


def predict_together(estimator: Any, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
    """The package's answers to tasks of one group, from one call."""
    most = max(len(task.queries) for task in tasks)
    contexts, labels = [task.X for task in tasks], [task.y for task in tasks]
    queries = [pieces(task.queries, most, most)[0] for task in tasks]
    if output.kind == "proba":
        answers = estimator.predict_proba_batched(contexts, labels, queries)
    else:
        asked = asked_of(output)
        answers = estimator.predict_batched(contexts, labels, queries, **asked)
    answers = [stacked(answer, output) for answer in answers]
    return [answer[: len(task.queries)] for answer, task in zip(answers, tasks, strict=True)]


def predict_alone(estimator: Any, task: ContextTask, output: Output) -> np.ndarray:
    """The answer of a fitted estimator."""
    if output.kind == "proba":
        return estimator.predict_proba(task.queries)
    return stacked(estimator.predict(task.queries, **asked_of(output)), output)


def asked_of(output: Output) -> dict[str, Any]:
    levels = {"quantiles": list(output.quantiles)} if output.kind == "quantiles" else {}
    return {"output_type": output.kind, **levels}


def stacked(answer: Any, output: Output) -> np.ndarray:
    """The package lists its quantiles one by one."""
    return np.stack(answer, axis=1) if output.kind == "quantiles" else answer


def row_bytes(specs: ModelSpecs, columns: int) -> int:
    """In single precision; half of it in the half precision that a GPU has by default."""
    config: Any = specs.architecture_config
    prepared = 2 * columns + 10  # the columns twice, once transformed, and a few components
    tokens = prepared // getattr(config, "features_per_group", 1) + 2
    outputs = 3 * max(config.num_buckets, config.max_num_classes)
    return 4 * (TENSORS * specs.model.embedding_dim * tokens + outputs)
