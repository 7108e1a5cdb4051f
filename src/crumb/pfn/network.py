"""What TabICL and TabPFN have in common: a checkpoint file, and one network for everyone in the process."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from crumb.errors import InvalidInput
from crumb.parallel import torch_threads
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import Checkpoint, file_key
from crumb.pfn.weights import card_for, locate, model_names
from crumb.quiet import said_once

T = TypeVar("T")

# The packages keep the state of a pass inside the network, so a shared network does one pass at a time.
_pass = threading.Lock()


class Shared(Generic[T]):
    """Makes something from a checkpoint file once per process and setting, then hands out the same object."""

    def __init__(self, make: Callable[..., T]):
        self._make, self._lock = make, threading.Lock()
        self._made: dict[tuple[Any, ...], T] = {}

    def __call__(self, path: Path, *setting: str) -> T:
        key = (*file_key(path), *setting)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(path, *setting)
            return self._made[key]


class NetworkBackend(Backend):
    """A network from a checkpoint, run by the estimators of its own package."""

    path: Path
    estimators: ClassVar[dict[str, type]]  # by task
    reserved: ClassVar[
        frozenset[str]
    ]  # arguments of these estimators that say which network: ``model`` does

    def __init__(
        self, name: str, checkpoint: Checkpoint, window: int | None, settings: BackendSettings
    ):
        self.name, self.path, self.task = name, checkpoint.path, checkpoint.task
        self.window, self.settings = window, settings
        self._said: set[str] = set()  # warnings of the package that the user has seen
        classification = self.task == "classification"
        self.outputs = ("proba",) if classification else ("mean", "median", "quantiles")
        self.max_classes = checkpoint.max_classes if classification else None
        self._check_options()

    @abstractmethod
    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        """One context through the package's estimator."""

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        with self.alone():
            return self.run(task, output)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What a pass needs around it; nobody else uses a network meanwhile. Does not nest."""
        with _pass, said_once(self._said), torch_threads(self.settings.n_jobs):
            yield

    def _check_options(self) -> None:
        """A misspelt option is refused at fit, not at the first prediction."""
        names = self.estimators[self.task]._get_param_names()  # type: ignore[attr-defined]
        known = [name for name in names if name not in self.reserved]
        unknown = sorted(set(self.settings.options) - set(known))
        if unknown:
            named = ", ".join(map(repr, unknown))
            raise InvalidInput(
                f"The model {self.name!r} has no option {named}; it has {', '.join(known)}."
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The weights of a named model may lie in another place on the machine that reads a pickle."""
        self.__dict__.update(state)
        if not self.path.is_file() and self.name in model_names():
            self.path = locate(card_for(self.name, self.task)) or self.path
