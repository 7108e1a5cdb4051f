"""Models by name: which file each one is, where it is looked for, and how it is fetched.

Nothing here imports torch or a PFN package, so that ``crumb models`` answers at once.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from crumb.errors import InvalidInput, WeightsMissing

PROBE_SECONDS = 1.5  # how long an unreachable hub may keep a user waiting
EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class ModelCard:
    """One checkpoint: what it is for and where it lives."""

    name: str
    task: str  # "classification" or "regression"
    family: str  # the package that runs it: "tabicl" or "tabpfn"
    file: str
    repository: str | None  # on the hub; None: shipped inside this package
    window: int  # rows of context that the model was made for
    licence: str
    sha256: str | None = None


TABPFN_LICENCE = "Prior Labs (Apache-2.0 with attribution)"

# Windows: embedded, a little above the longest tables of its pre-training (docs/model-card.md); TabICL, the longest
# (v1) or the range that its authors recommend (v2); TabPFNv2, the limit that its package enforces.
# The paper gives 4,096 for TabICL; neither its package nor its papers have such a limit (docs/method.md).
CARDS = (
    ModelCard(
        "embedded", "classification", "tabicl", "classifier.ckpt", None, 10_000, "BSD-3-Clause",
        "392992aee240cb4192eb61be6ae9873b8f35ec5c6b68a661ac2899debdef7175",
    ),
    ModelCard(
        "embedded", "regression", "tabicl", "regressor.ckpt", None, 10_000, "BSD-3-Clause",
        "37feecc12f518a52844d2ed042eb8ae1bda22db5cf2118a57f3bfa5655edea38",
    ),
    ModelCard(
        "tabicl-v1", "classification", "tabicl", "tabicl-classifier-v1-20250208.ckpt", "jingang/TabICL",
        60_000, "BSD-3-Clause",
    ),
    ModelCard(
        "tabicl-v1.1", "classification", "tabicl", "tabicl-classifier-v1.1-20250506.ckpt", "jingang/TabICL",
        60_000, "BSD-3-Clause",
    ),
    ModelCard(
        "tabicl-v2", "classification", "tabicl", "tabicl-classifier-v2-20260212.ckpt", "jingang/TabICL",
        100_000, "BSD-3-Clause",
    ),
    ModelCard(
        "tabicl-v2", "regression", "tabicl", "tabicl-regressor-v2-20260212.ckpt", "jingang/TabICL",
        100_000, "BSD-3-Clause",
    ),
    ModelCard(
        "tabpfn-v2", "classification", "tabpfn", "tabpfn-v2-classifier-finetuned-zk73skhh.ckpt",
        "Prior-Labs/TabPFN-v2-clf", 10_000, TABPFN_LICENCE,
    ),
    ModelCard(
        "tabpfn-v2", "regression", "tabpfn", "tabpfn-v2-regressor.ckpt", "Prior-Labs/TabPFN-v2-reg", 10_000,
        TABPFN_LICENCE,
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
    known = ", ".join(repr(name) for name in model_names())
    raise InvalidInput(
        f"Unknown model {name!r}: choose one of {known}, the path of a checkpoint file, or a scikit-learn "
        f"{'classifier' if task == 'classification' else 'regressor'}."
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
    if folder := os.environ.get("CRUMB_MODEL_DIR"):
        return Path(folder).expanduser()
    return _user_cache() / "crumb" / "models"


def locate(card: ModelCard) -> Path | None:
    """The file of a model if it is on this machine: our own folder, then the packages' own caches."""
    if card.repository is None:
        return EMBEDDED / card.file
    places = [model_dir() / card.file]
    if card.family == "tabpfn":
        folder = os.environ.get("TABPFN_MODEL_CACHE_DIR")
        places.append(
            (Path(folder).expanduser() if folder else _user_cache() / "tabpfn") / card.file
        )
    for place in places:
        if place.is_file():
            return place
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(card.repository, card.file)
    return Path(cached) if isinstance(cached, str) else None


def fetch(card: ModelCard) -> Path:
    """The file of a model: found locally, else downloaded with a progress bar, else refused at once."""
    found = locate(card)
    if found is not None:
        return found
    from huggingface_hub import constants, hf_hub_download

    assert card.repository is not None
    where = f"get it from {constants.ENDPOINT}/{card.repository} and put it in {model_dir()}"
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        raise WeightsMissing(
            f"The weights of {card.name!r} for {card.task} ({card.file}) are not on this machine and the hub "
            f"cannot be reached: {where}."
        )
    try:
        return Path(hf_hub_download(card.repository, card.file, local_dir=model_dir()))
    except (
        Exception
    ) as error:  # the hub client raises a dozen unrelated types; each means the same to a user
        raise WeightsMissing(
            f"Downloading the weights of {card.name!r} ({card.file}) failed ({type(error).__name__}): {where}."
        ) from error


def _reachable(endpoint: str) -> bool:
    """Whether a connection to the hub (or to the proxy on the way) opens."""
    address = urlsplit(endpoint)
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    opened = (
        threading.Event()
    )  # set by a thread, since looking up a name can hang and has no time limit

    def probe() -> None:
        try:
            socket.create_connection((address.hostname or "", port), timeout=PROBE_SECONDS).close()
            opened.set()
        except OSError:
            pass

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return opened.is_set()


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
