"""Several contexts through one pass of TabPFN: the package's batched calls, what they ask for, what they take.

The package prepares every context by itself, as ``fit`` and ``predict`` do, and lays what comes out side by side. So
the answers are those of one context at a time, up to rounding in the precision that the network runs in.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.devices import free_bytes
from crumb.pfn.base import ContextTask, Output
from crumb.pfn.groups import padded

if TYPE_CHECKING:
    from tabpfn import ModelSpecs

# Some 100 contexts of 500 rows and 20 columns in the released network. A GPU is busy long before, and the widest tensor
# stays under 2³¹ numbers, where 32-bit indices end.
BATCH_BYTES = 16 << 30
HELD_CELLS = 1 << 22  # of the tasks that wait for others to go with
TENSORS = 9  # as wide as the embedding, at the peak of a layer: its input, and the inside of its MLP (4) before and after


def cells(task: ContextTask) -> int:
    return int(task.X.size + task.queries.size)


def group_of(task: ContextTask, output: Output) -> Hashable:
    """What tasks of one call have in common: the package asks for one shape and one set of classes.

    Queries are made up to the same number, so rows are counted in powers of two lest most of them be filling.
    """
    classes = int(task.y.max()) + 1 if output.kind == "proba" else None
    rows = len(task.X) + len(task.queries)
    return type(task.X), task.X.shape, classes, rows.bit_length()


def most_together(specs: ModelSpecs, tasks: list[ContextTask], device: str) -> int:
    """How many of these tasks one call may take, by an estimate of the memory."""
    rows = len(tasks[0].X) + max(len(task.queries) for task in tasks)
    return max(
        1, min(BATCH_BYTES, free_bytes(device)) // (rows * row_bytes(specs, tasks[0].X.shape[1]))
    )


def predict_together(estimator: Any, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
    """The package's answers to tasks of one group, from one call."""
    most = max(len(task.queries) for task in tasks)
    lists = (
        [task.X for task in tasks],
        [task.y for task in tasks],
        [padded(task.queries, most) for task in tasks],
    )
    if output.kind == "proba":
        answers = estimator.predict_proba_batched(*lists)
    elif output.kind == "quantiles":
        levels = estimator.predict_batched(
            *lists, output_type="quantiles", quantiles=list(output.quantiles)
        )
        answers = [np.stack(one, axis=1) for one in levels]
    else:
        answers = estimator.predict_batched(*lists, output_type=output.kind)
    return [answer[: len(task.queries)] for answer, task in zip(answers, tasks, strict=True)]


def row_bytes(specs: ModelSpecs, columns: int) -> int:
    """In single precision; half of it in the half precision that a GPU has by default."""
    config: Any = specs.architecture_config
    prepared = 2 * columns + 10  # the columns twice, once transformed, and a few components
    tokens = prepared // getattr(config, "features_per_group", 1) + 2
    outputs = 3 * max(config.num_buckets, config.max_num_classes)
    return 4 * (TENSORS * specs.model.embedding_dim * tokens + outputs)
