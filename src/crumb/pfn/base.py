"""Back-ends: many (context, queries) tasks in, one answer for each out."""

from __future__ import annotations

import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from crumb.errors import InvalidInput
from crumb.machine import quiet, said_once, torch_threads
from crumb.pfn.contexts import ContextCache, Numbers, Slice
from crumb.pfn.models import Checkpoint, card_for, locate, model_names

if TYPE_CHECKING:
    from crumb.table.encoder import Rows

# tabicl says this of an encoding that its users can choose. Here ``fit`` says what can be done.
Call: TypeAlias = Callable[..., Any]  # of a function and its arguments, somewhere else
FEWEST_QUERIES = 32  # of a context that comes again
CARDINALITY = "The following categorical columns have a cardinality above"


@dataclass(frozen=True)
class TargetScale:
    """Targets of a context with mean 0 and deviation 1, in float64.

    Networks are made for that. They work in float32, where 1e9 + 1 is 1e9 and 1e39 is infinite.
    """

    unit: float = 1.0  # a power of two: dividing by it loses nothing, and nothing overflows after
    centre: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, y: np.ndarray) -> TargetScale:
        unit = 2.0 ** max(-1_000, int(np.frexp(np.abs(y).max())[1]) - 1)
        y = y / unit
        centre = float(y[0] + np.mean(y - y[0]))  # exact where all are equal
        spread = float(np.sqrt(np.mean((y - centre) ** 2)))
        return cls(unit, centre, spread or 1.0)

    def scaled(self, y: np.ndarray) -> np.ndarray:
        return (y / self.unit - self.centre) / self.spread

    def unscaled(self, answer: np.ndarray) -> np.ndarray:
        answer = np.asarray(answer, dtype=np.float64)
        return (answer * self.spread + self.centre) * self.unit


@dataclass(frozen=True, eq=False)
class ContextTask:
    """One pass: a labelled context, and the queries that share it.

    Parameters
    ----------
    context, asked : Slice
        The rows of the context and the queries, as parts of their tables.
    y : array (n,)
        Numbers for regression, scaled where the back-end ``scales_targets``. For classification the
        codes 0 … C−1 of the classes in *this* context; each of them occurs.
    key : bytes or None, default=None
        Tells one context from another where the same ones will come again. None: they will not.
    keep : bool, default=True
        Whether such a context may be kept in memory.

    Examples
    --------
    >>> rows, queries = np.arange(8.0).reshape(4, 2), np.ones((1, 2))
    >>> task = ContextTask.of(rows, np.array([0, 1, 1, 0]), queries)
    >>> task.X.shape, task.queries.shape, task.columns
    ((4, 2), (1, 2), 2)
    """

    context: Slice
    y: np.ndarray
    asked: Slice
    key: bytes | None = None
    keep: bool = True

    @classmethod
    def of(
        cls, X: Rows, y: np.ndarray, queries: Rows, key: bytes | None = None, keep: bool = True
    ) -> ContextTask:
        """A context that is a table of its own.

        Parameters
        ----------
        X, queries : table
        y, key, keep
            As for the class.

        Returns
        -------
        task : ContextTask
        """
        table = Numbers(X)
        return cls(Slice.whole(table), y, Slice.whole(Numbers(queries, table)), key, keep)

    @cached_property
    def X(self) -> Rows:
        """The rows of the context, for packages that prepare them themselves."""
        return self.context.rows()

    @cached_property
    def queries(self) -> Rows:
        """The queries, in the same way."""
        return self.asked.rows()

    @property
    def multiple(self) -> int:
        """Queries come in multiples of this. Products of few rows round differently from products
        of many, and with a frozen plan an answer depends on its row alone."""
        return 1 if self.key is None else FEWEST_QUERIES

    @property
    def cells(self) -> int:
        """Of the context and the queries."""
        return self.context.cells + self.asked.cells

    @property
    def columns(self) -> int:
        """Their number."""
        return self.context.table.rows.shape[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """A task travels without the rest of the pool."""
        return ContextTask.of, (self.X, self.y, self.queries, self.key, self.keep)


@dataclass(frozen=True)
class Output:
    """What is asked of a pass.

    Parameters
    ----------
    kind : {"proba", "label", "mean", "median", "quantiles"}
    quantiles : sequence of float, default=()
        Their levels.

    Examples
    --------
    >>> Output("quantiles", (0.1, 0.9)).kind
    'quantiles'
    """

    kind: str
    quantiles: Sequence[float] = ()


@dataclass(frozen=True)
class BackendSettings:
    """What the user may say about how a network runs.

    Parameters
    ----------
    n_estimators : int
        Members of its ensemble.
    options : dict
        The ``model_options``, for the model's own package.
    device : str
    seed : int
    n_jobs : int or None
        Threads.
    categorical_indices : sequence of int, default=()
        The columns that hold categories.
    cache_bytes : int, default=0
        What may be kept of contexts that come again.
    stack_bytes : int, default=4 GiB
        Activations of the contexts that share a pass. More would make it no faster.

    Examples
    --------
    >>> BackendSettings(n_estimators=1, options={}, device="cpu", seed=0, n_jobs=2).cache_bytes
    0
    """

    n_estimators: int
    options: dict[str, Any]
    device: str
    seed: int
    n_jobs: int | None
    categorical_indices: Sequence[int] = ()
    cache_bytes: int = 0
    stack_bytes: int = 4 << 30


Tasks: TypeAlias = Iterable[ContextTask]


class Backend(ABC):
    """A model that answers contexts, one by one or many: a subclass has one of the two methods.

    It holds no network itself, so that it pickles small.

    Examples
    --------
    >>> class Mean(Backend):
    ...     name, outputs = "mean", ("mean",)
    ...
    ...     def predict_context(self, task, output):
    ...         return np.full(len(task.queries), task.y.mean())
    >>> task = ContextTask.of(np.zeros((2, 1)), np.array([1.0, 3.0]), np.zeros((1, 1)))
    >>> Mean().predict_context(task, Output("mean")).tolist()
    [2.0]
    """

    name: str
    settings: BackendSettings
    path: Path | None = None  # the checkpoint; None: the model is no file
    window: int | None = None  # rows that the model was made for; None: any number
    max_classes: int | None = None  # None: any number
    max_columns: int | None = None  # None: any number
    outputs: tuple[str, ...]
    # More categories in a column should be told of: the model does little with them.
    most_categories: ClassVar[int] = sys.maxsize
    # Whether it can learn from columns that hold one value or none.
    missing_is_a_value: ClassVar[bool] = True
    # Whether it is shown mean targets beside words. A model of the user's own knows its columns.
    takes_means: ClassVar[bool] = False
    # Whether targets must have mean 0 and deviation 1. An estimator of the user's own may have
    # settings in the units of its targets, and works in float64.
    scales_targets: ClassVar[bool] = False

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        """The answers to the queries of a task.

        Parameters
        ----------
        task : ContextTask
        output : Output

        Returns
        -------
        answers : array
            (q, C) for ``"proba"``, (q,) for labels, means and medians, (q, Q) for quantiles.
        """
        return next(iter(self.predict_contexts([task], output)))

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        """The same for several tasks, one network for all of them.

        Parameters
        ----------
        tasks : iterable of ContextTask
        output : Output

        Yields
        ------
        answers : array
            In the order of the tasks.
        """
        for task in tasks:
            yield self.predict_context(task, output)

    @property
    def together(self) -> int:
        """Contexts that should be answered at once where the time of one is measured."""
        return 1 if self.settings.device == "cpu" else TOGETHER

    def embed(self, task: ContextTask) -> np.ndarray:
        """The queries as the model sees them, before rows learn from each other.

        Parameters
        ----------
        task : ContextTask

        Returns
        -------
        embeddings : array (q, D)
        """
        raise InvalidInput(
            f"The model {self.name!r} has no row embeddings: "
            f"features='embedding' needs the embedded model or TabICL."
        )

    def keep(self, task: ContextTask, call: Call | None = None) -> None:  # noqa: B027
        """Make a context ready before its queries come, if that is possible and there is room.

        Parameters
        ----------
        task : ContextTask
        call : callable or None, default=None
            Calls a function in another process, where no query waits for it.
        """

    def forget(self, keys: Iterable[bytes] | None = None) -> None:  # noqa: B027 (most keep nothing)
        """Free what is kept.

        Parameters
        ----------
        keys : iterable of bytes or None, default=None
            Of these contexts. None: of all.
        """

    def share(self, other: Backend) -> None:  # noqa: B027 (most keep nothing)
        """Keep contexts together with another back-end, within the bytes that it may use.

        Parameters
        ----------
        other : Backend
        """

    def work(self, rows: int, queries: int, columns: int) -> float:
        """What a pass costs: by its rows if nothing better is known.

        Parameters
        ----------
        rows, queries, columns : int
            Of one context.

        Returns
        -------
        work : float
            In units of its own.
        """
        return float(rows + queries)

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        """Memory that a pass takes, about.

        Parameters
        ----------
        rows, queries, columns : int
            Of one context.

        Returns
        -------
        bytes : float
        """
        return 32.0 * columns * (rows + queries)

    def check_output(self, output: Output) -> None:
        """Refuse what the model cannot answer with.

        Parameters
        ----------
        output : Output
        """
        if output.kind not in self.outputs:
            known = ", ".join(repr(kind) for kind in self.outputs)
            raise InvalidInput(
                f"The model {self.name!r} cannot answer with {output.kind!r}, only with {known}."
            )


TOGETHER = 8  # contexts that make a GPU as busy as more would
# The packages keep the state of a pass inside the network, so it does one pass at a time.
_pass = threading.Lock()


class NetworkBackend(Backend):
    """A network from a checkpoint, run by the estimators of its own package, or by our own."""

    scales_targets = takes_means = True
    path: Path
    # By task. Where there is no package: a class whose arguments are the options.
    estimators: ClassVar[dict[str, type]]
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
        self.open()

    def open(self) -> None:
        """Load the network: weights that do not fit are refused at ``fit``."""

    @abstractmethod
    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        """One context through the package's estimator."""

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        with self.alone():
            return self.run(task, output)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What a pass needs around it; no other thread uses a network meanwhile. Does not nest."""
        silent = quiet(CARDINALITY)
        with _pass, said_once(self._said), silent, torch_threads(self.settings.n_jobs):
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


class KeepingBackend(NetworkBackend):
    """A network whose contexts are kept where they will come again.

    ``travels``: what it makes of a context can be pickled, without the network.
    """

    travels: ClassVar[bool] = False

    def open(self) -> None:
        self.contexts: ContextCache[Any] = ContextCache(self.settings.cache_bytes)

    @abstractmethod
    def fitted(self, task: ContextTask) -> Any:
        """What answers the queries of a context: from ``contexts``, or made now."""

    @abstractmethod
    def kept_bytes(self, task: ContextTask) -> int:
        """Of what is kept of a context, about."""

    @abstractmethod
    def size_of(self, made: Any) -> int:
        """Bytes of what is kept of a context."""

    def kept_under(self, task: ContextTask) -> bytes | None:
        """The key of a context that may be kept; None: it may not."""
        fits = task.keep and self.kept_bytes(task) <= self.settings.cache_bytes
        return task.key if fits else None

    def keep(self, task: ContextTask, call: Call | None = None) -> None:
        key = self.kept_under(task)
        if key is None or not self.contexts.has_room(key, self.kept_bytes(task)):
            return
        if call is None or not self.travels or self.settings.device != "cpu":
            self.made(task)
        else:
            self.contexts.get_or(key, lambda: call(self.made, task), self.size_of)

    def made(self, task: ContextTask) -> Any:
        """``fitted``, while no other thread uses the network."""
        with self.alone():
            return self.fitted(task)

    def forget(self, keys: Iterable[bytes] | None = None) -> None:
        self.contexts.drop(keys)

    def share(self, other: Backend) -> None:
        if type(other) is type(self):
            self.contexts = other.contexts
