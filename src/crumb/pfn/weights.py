"""The file of a named model: where it is looked for, and how it is fetched."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from crumb.errors import WeightsMissing
from crumb.pfn.registry import ModelCard, family_named

PROBE_SECONDS = 1.5  # how long an unreachable hub may keep a user waiting
EMBEDDED = Path(__file__).parent / "embedded"


def model_dir() -> Path:
    """Where weights are put: ``CRUMB_MODEL_DIR``, or a folder of the user's cache."""
    return _folder("CRUMB_MODEL_DIR", "crumb/models")


def locate(card: ModelCard) -> Path | None:
    """The file of a model on this machine: in our own folder, or in a cache of its package."""
    if card.repository is None:
        return EMBEDDED / card.file
    folders = [model_dir()]
    if theirs := family_named(card.family).folder:
        folders.append(_folder(*theirs))
    for folder in folders:
        if (folder / card.file).is_file():
            return folder / card.file
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(card.repository, card.file)
    return Path(cached) if isinstance(cached, str) else None


def fetch(card: ModelCard) -> Path:
    """The file of a model: found here, or downloaded with a progress bar, or refused at once."""
    found = locate(card)
    if found is not None:
        return found
    from huggingface_hub import constants, hf_hub_download

    assert card.repository is not None
    where = f"get it from {constants.ENDPOINT}/{card.repository} and put it in {model_dir()}"
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        raise WeightsMissing(
            f"The weights of {card.name!r} for {card.task} ({card.file}) are not on this machine "
            f"and the hub cannot be reached: {where}."
        )
    try:
        return Path(hf_hub_download(card.repository, card.file, local_dir=model_dir()))
    except Exception as error:  # of a dozen unrelated types; each means the same to a user
        raise WeightsMissing(
            f"Downloading the weights of {card.name!r} ({card.file}) failed "
            f"({type(error).__name__}): {where}."
        ) from error


def _reachable(endpoint: str) -> bool:
    """Whether a connection to the hub (or to the proxy on the way) opens."""
    address = urlsplit(endpoint)
    proxy = getproxies().get(address.scheme)
    if proxy and not proxy_bypass(address.hostname or ""):
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    # In a thread, since looking up a name can hang and has no time limit.
    opened = threading.Event()

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


def _folder(variable: str, cached: str) -> Path:
    """The folder that an environment variable names, or else one in the user's cache."""
    if folder := os.environ.get(variable):
        return Path(folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).expanduser() / cached
