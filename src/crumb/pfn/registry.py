"""The back-ends, and the models that have a name.

To add a back-end, write its module and add a line to ``FAMILIES``; to give a checkpoint a name, add
a line to ``CARDS``. No other file has to know. Nothing here imports torch or a package of models,
so ``crumb models`` answers at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from crumb.errors import InvalidInput

if TYPE_CHECKING:
    from crumb.pfn.network import NetworkBackend


class Contents(NamedTuple):
    """What a checkpoint file holds."""

    config: dict[str, Any]
    state_dict: dict[str, Any]
    max_classes: Any  # as the file has it; 0 or less: regression


@dataclass(frozen=True)
class Family:
    """The checkpoints that one back-end runs."""

    name: str
    title: str  # what users know them by
    backend: str  # module and class
    read: Callable[[Any], Contents | None]  # an opened file; None: of another family
    folder: tuple[str, str] | None = None  # variable, else folder of the cache, with its weights

    def load(self) -> type[NetworkBackend]:
        """The back-end. Fails if its package is not installed."""
        module, _, name = self.backend.partition(":")
        return getattr(importlib.import_module(module), name)


def _read_tabicl(content: Any) -> Contents | None:
    config, weights = config_and_weights(content)
    if any(str(name).startswith("icl_predictor.") for name in weights):
        return Contents(config, weights, config.get("max_classes", 10))
    return None


def _read_tabpfn(content: Any) -> Contents | None:
    config, weights = config_and_weights(content)
    if "emsize" in config:
        return Contents(config, weights, config.get("max_num_classes", 10))
    return None


def config_and_weights(content: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a file in the usual format; empty where the format is another one."""
    if isinstance(content, dict):
        config, weights = (content.get(key) for key in USUAL_FORMAT)
        if isinstance(config, dict) and isinstance(weights, dict):
            return config, weights
    return {}, {}


USUAL_FORMAT = ("config", "state_dict")
FAMILIES = (
    Family("tabicl", "TabICL", "crumb.pfn.tabicl:TabICLBackend", _read_tabicl),
    Family(
        "tabpfn", "TabPFN up to 2.6", "crumb.pfn.tabpfn:TabPFNBackend", _read_tabpfn,
        folder=("TABPFN_MODEL_CACHE_DIR", "tabpfn"),
    ),
)  # fmt: skip


def family_named(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


@dataclass(frozen=True)
class ModelCard:
    """One checkpoint: what it is for and where it lives."""

    name: str
    task: str  # "classification" or "regression"
    family: str
    file: str
    repository: str | None  # on the hub; None: shipped inside this package
    window: int  # rows of context that the model was made for
    licence: str
    sha256: str | None = None


BSD, PRIOR_LABS = "BSD-3-Clause", "Prior Labs (Apache-2.0 with attribution)"
# Windows. Embedded: a little above the longest tables of its pre-training (docs/model-card.md).
# TabICL: the longest ones (v1), or the range that its authors recommend (v2). TabPFN v2: the limit
# that its package enforces. The paper gives 4,096 for TabICL; neither its package nor its papers
# have such a limit (docs/method.md).
# Networks keep their name for good, so that results can be repeated; "embedded" is the newest pair.
EMBEDDED_0_1 = (
    ModelCard(
        "embedded-0.1", "classification", "tabicl", "classifier.ckpt", None, 10_000, BSD,
        "392992aee240cb4192eb61be6ae9873b8f35ec5c6b68a661ac2899debdef7175",
    ),
    ModelCard(
        "embedded-0.1", "regression", "tabicl", "regressor.ckpt", None, 10_000, BSD,
        "37feecc12f518a52844d2ed042eb8ae1bda22db5cf2118a57f3bfa5655edea38",
    ),
)  # fmt: skip
CARDS = (
    *(replace(card, name="embedded") for card in EMBEDDED_0_1),
    *EMBEDDED_0_1,
    ModelCard(
        "tabicl-v1", "classification", "tabicl", "tabicl-classifier-v1-20250208.ckpt",
        "jingang/TabICL", 60_000, BSD,
    ),
    ModelCard(
        "tabicl-v1.1", "classification", "tabicl", "tabicl-classifier-v1.1-20250506.ckpt",
        "jingang/TabICL", 60_000, BSD,
    ),
    ModelCard(
        "tabicl-v2", "classification", "tabicl", "tabicl-classifier-v2-20260212.ckpt",
        "jingang/TabICL", 100_000, BSD,
    ),
    ModelCard(
        "tabicl-v2", "regression", "tabicl", "tabicl-regressor-v2-20260212.ckpt",
        "jingang/TabICL", 100_000, BSD,
    ),
    ModelCard(
        "tabpfn-v2", "classification", "tabpfn", "tabpfn-v2-classifier-finetuned-zk73skhh.ckpt",
        "Prior-Labs/TabPFN-v2-clf", 10_000, PRIOR_LABS,
    ),
    ModelCard(
        "tabpfn-v2", "regression", "tabpfn", "tabpfn-v2-regressor.ckpt",
        "Prior-Labs/TabPFN-v2-reg", 10_000, PRIOR_LABS,
    ),
)  # fmt: skip


def model_names() -> list[str]:
    return list(dict.fromkeys(card.name for card in CARDS))


def card_for(name: str, task: str) -> ModelCard:
    """The checkpoint of a named model for a task, or a sentence about why there is none."""
    tasks = {card.task: card for card in CARDS if card.name == name}
    if task in tasks:
        return tasks[task]
    if tasks:
        raise InvalidInput(
            f"The model {name!r} does {' and '.join(tasks)} only; choose another for {task}."
        )
    known = ", ".join(map(repr, model_names()))
    kind = "classifier" if task == "classification" else "regressor"
    raise InvalidInput(
        f"Unknown model {name!r}: choose one of {known}, the path of a checkpoint file, "
        f"or a scikit-learn {kind}."
    )


def card_of_file(file: str) -> ModelCard:
    """The checkpoint that has this file name on the hub."""
    for card in CARDS:
        if card.file == file:
            return card
    known = ", ".join(card.file for card in CARDS if card.repository is not None)
    raise InvalidInput(f"There are no weights {file!r}; known are {known}.")
