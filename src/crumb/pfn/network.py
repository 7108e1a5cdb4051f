"""What back-ends with a checkpoint share: one network for the whole process, one pass at a time."""

from __future__ import annotations

import inspect
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
from crumb.pfn.registry import card_for, model_names
from crumb.pfn.weights import locate
from crumb.quiet import said_once

T = TypeVar("T")

# The packages keep the state of a pass inside the network, so it does one pass at a time.
_pass = threading.Lock()


class Shared(Generic[T]):
    """Makes something from a checkpoint once per process and setting, then hands it out again."""

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
    reserved: ClassVar[frozenset[str]]  # arguments of theirs that CRUMB's ``model`` stands for

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
        """What a pass needs around it; no other thread uses a network meanwhile. Does not nest."""
        with _pass, said_once(self._said), torch_threads(self.settings.n_jobs):
            yield

    def estimator(self, **given: Any) -> Any:
        """The package's estimator, not fitted; the user's options come before what is given."""
        usual = {
            "n_estimators": self.settings.n_estimators,
            "device": self.settings.device,
            "random_state": self.settings.seed,
        }
        return self.estimators[self.task](**{**usual, **given, **self.settings.options})

    def _check_options(self) -> None:
        """A misspelt option is refused at fit, not at the first prediction."""
        arguments = inspect.signature(self.estimators[self.task]).parameters
        known = sorted(set(arguments) - self.reserved)
        unknown = sorted(set(self.settings.options) - set(known))
        if unknown:
            named = ", ".join(map(repr, unknown))
            raise InvalidInput(
                f"The model {self.name!r} has no option {named}; it has {', '.join(known)}."
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The weights of a named model may lie in another place on the machine that unpickles."""
        self.__dict__.update(state)
        if not self.path.is_file() and self.name in model_names():
            self.path = locate(card_for(self.name, self.task)) or self.path
