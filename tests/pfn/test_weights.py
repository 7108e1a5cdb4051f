"""Models by name: where their weights are looked for, and how they are fetched, or not."""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from small_tables import classes, numbers, targets

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint, InvalidInput, WeightsMissing
from crumb.pfn import models
from crumb.pfn.models import ModelCard, card_for, fetch, locate, model_names

CLOSED = "http://127.0.0.1:9"  # nothing listens on the port named "discard"


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights anywhere, and nothing outside this machine in reach."""
    for name in ("CRUMB_MODEL_DIR", "TABPFN_MODEL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("weights")
    return path


def put_in_hub_cache(root: Path, card: ModelCard, revision: str) -> Path:
    folder = root / "hub" / f"models--{str(card.repository).replace('/', '--')}"
    put(folder / "refs" / "main").write_text(revision)
    return put(folder / "snapshots" / revision / card.file)


def vouch_for(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these be the official weights: a tiny checkpoint in their place."""
    digest = hashlib.sha256(content).hexdigest()
    cards = (replace(card, sha256=digest) if card.sha256 else card for card in models.CARDS)
    monkeypatch.setattr(models, "CARDS", tuple(cards))


def test_order_in_which_places_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vouch_for(b"weights", monkeypatch)
    card = card_for("tabpfn-v2", "classification")
    assert locate(card) is None
    put_in_hub_cache(tmp_path, card, "c0ffee")
    assert locate(card) is None  # another revision of the repository
    assert card.revision is not None
    hub = put_in_hub_cache(tmp_path, card, card.revision)
    assert locate(card) == hub
    theirs = put(tmp_path / "cache" / "tabpfn" / card.file)
    assert locate(card) == theirs
    monkeypatch.setenv("TABPFN_MODEL_CACHE_DIR", str(tmp_path / "theirs"))
    assert locate(card) == hub
    theirs = put(tmp_path / "theirs" / card.file)
    assert locate(card) == theirs
    own = put(tmp_path / "cache" / "crumb" / "models" / card.file)
    assert locate(card) == own
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "own"))
    assert locate(card) == theirs
    own = put(tmp_path / "own" / card.file)
    assert locate(card) == own
    assert fetch(card) == own


def test_folder_of_tabpfn_is_for_its_own_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = card_for("tabicl-v2", "regression")
    monkeypatch.setenv("TABPFN_MODEL_CACHE_DIR", str(tmp_path / "theirs"))
    put(tmp_path / "theirs" / card.file)
    assert locate(card) is None


def test_found_weights_are_used(
    tabicl_regressor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    vouch_for(tabicl_regressor.read_bytes(), monkeypatch)
    card = card_for("tabicl-v2", "regression")
    (tmp_path / card.file).write_bytes(tabicl_regressor.read_bytes())
    crumb = CrumbRegressor(model="tabicl-v2", strategy="full", device="cpu").fit(
        numbers(20, 1), targets(20, 2)
    )
    assert crumb.backend_.name == "tabicl-v2"
    assert crumb.backend_.window == card.window
    assert crumb.predict(numbers(3, 3)).shape == (3,)


def test_weights_that_were_altered_are_refused(
    tabicl_regressor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    card = card_for("tabicl-v2", "regression")
    (tmp_path / card.file).write_bytes(tabicl_regressor.read_bytes())
    with pytest.raises(InvalidCheckpoint) as caught:
        CrumbRegressor(model="tabicl-v2").fit(numbers(20, 1), targets(20, 2))
    assert f"{tmp_path / card.file} is not the file" in str(caught.value)
    assert "delete it, then `crumb models --get tabicl-v2`" in str(caught.value)


def test_downloads_are_pinned() -> None:
    """To a commit or an archive's digest; a few checksums are not known to us."""
    assert all(card.revision for card in models.CARDS if card.repository is not None)
    unknown = {card.file for card in models.CARDS if card.sha256 is None}
    assert unknown == {
        "tabicl-classifier-v1-20250208.ckpt",
        "tabicl-classifier-v1.1-20250506.ckpt",
        "tabpfn-v2.5-classifier-v2.5_default.ckpt",
        "tabpfn-v2.5-regressor-v2.5_default.ckpt",
        "tabpfn-v2.6-regressor-v2.6_default.ckpt",
        "tabpfn-v3.5-fast-20260909.safetensors",
    }


def test_offline_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "own"))
    start = time.perf_counter()
    with pytest.raises(WeightsMissing) as caught:
        CrumbClassifier(model="tabicl-v2").fit(numbers(20, 1), classes(20, 2))
    assert time.perf_counter() - start < 2
    sentence = str(caught.value)
    assert "tabicl-classifier-v2-20260212.ckpt" in sentence
    assert f"get it from {CLOSED}/jingang/TabICL" in sentence
    assert f"put it in {tmp_path / 'own'}" in sentence
    assert isinstance(caught.value, FileNotFoundError)


def test_hub_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked: list[Any] = []
    monkeypatch.setattr(socket, "create_connection", lambda *args, **kwargs: asked.append(args))
    with pytest.raises(WeightsMissing, match="cannot be reached"):
        fetch(card_for("tabicl-v1", "classification"))
    assert asked == []


def test_network_that_swallows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops packets, or a name server that never answers."""
    over = threading.Event()

    def swallow(*args: Any, **kwargs: Any) -> None:
        over.wait(30)
        raise TimeoutError

    assert models.PROBE_SECONDS < 2
    monkeypatch.setattr(models, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(socket, "create_connection", swallow)
    start = time.perf_counter()
    with pytest.raises(WeightsMissing, match="cannot be reached"):
        fetch(card_for("tabicl-v2", "classification"))
    assert time.perf_counter() - start < 1
    over.set()


@pytest.mark.parametrize("excepted", [False, True])
def test_way_through_a_proxy(excepted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def refuse(address: Any, **kwargs: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(models, "getproxies", lambda: {"http": "http://proxy.example:3128"})
    monkeypatch.setattr(models, "proxy_bypass", lambda host: excepted)
    with pytest.raises(WeightsMissing):
        fetch(card_for("tabicl-v2", "classification"))
    assert asked == [("127.0.0.1", 9) if excepted else ("proxy.example", 3128)]


def test_unknown_name_and_missing_task() -> None:
    X, y = numbers(20, 1), classes(20, 2)
    with pytest.raises(InvalidInput) as caught:
        CrumbClassifier(model="tabicl-v3").fit(X, y)
    assert all(repr(name) in str(caught.value) for name in model_names())
    with pytest.raises(
        InvalidInput, match="'tabicl-v1' does classification only; choose another for regression"
    ):
        CrumbRegressor(model="tabicl-v1").fit(X, y)


BLOCKED = """
import socket

def blocked(*args, **kwargs):
    raise AssertionError("the network was touched")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = blocked
"""


def run(code: str, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, text=True, timeout=60, **options
    )


def test_nothing_is_fetched_before_fit() -> None:
    code = f"""{BLOCKED}
import crumb.pfn.models
from crumb import CrumbClassifier, CrumbRegressor
for name in crumb.pfn.models.model_names():
    CrumbClassifier(model=name), CrumbRegressor(model=name)
# The embedded model needs no network.
CrumbClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 1]).predict([[1.0]])
"""
    done = run(code, {}, capture_output=True)
    assert done.returncode == 0, done.stderr


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as a download needs."""

    protocol_version = "HTTP/1.1"
    content = b""
    dies = False  # in the middle of the file, and for good
    dead = False
    asked: list[str]

    def handle(self) -> None:
        if not self.dead:
            super().handle()

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        if not self.answer():
            return
        if self.dies:
            self.wfile.write(self.content[: len(self.content) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            type(self).dead = True
        else:
            self.wfile.write(self.content)

    def answer(self) -> bool:
        pinned = [card_for(name, "classification").revision for name in ("tabicl-v2", "tabpfn-v3")]
        found = any(f"/resolve/{revision}/" in self.path for revision in pinned)
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(self.content) if found else 0))
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c0ffee" * 6 + "cafe")
        self.end_headers()
        return found

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def hub(
    tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[http.server.HTTPServer]:
    monkeypatch.setattr(Hub, "content", tabicl_classifier.read_bytes())
    monkeypatch.setattr(Hub, "asked", [], raising=False)
    monkeypatch.setattr(Hub, "dead", False)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def settings(hub: http.server.HTTPServer, tmp_path: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "CRUMB_MODEL_DIR": str(tmp_path / "own"),
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_OFFLINE": "0",
    }


def on_a_terminal(code: str, env: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], str]:
    """Standard error is a terminal of 120 columns, since progress bars are for terminals."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with ThreadPoolExecutor(1) as reader, os.fdopen(terminal, "rb") as screen:
        shown = reader.submit(read_to_the_end, screen)
        done = run(code, env, stdout=subprocess.PIPE, stderr=end)
        os.close(end)
        return done, shown.result()


def read_to_the_end(screen: Any) -> str:
    shown = b""
    try:
        while part := screen.read1():
            shown += part
    except OSError:  # Linux: the other side of a terminal has closed it
        pass
    return shown.decode()


def test_download(
    hub: http.server.HTTPServer,
    tabicl_classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = f"""
from dataclasses import replace
from crumb.pfn.models import card_for, fetch
digest = "{hashlib.sha256(tabicl_classifier.read_bytes()).hexdigest()}"
print(fetch(replace(card_for("tabicl-v2", "classification"), sha256=digest)))
"""
    done, shown = on_a_terminal(code, settings(hub, tmp_path))
    assert done.returncode == 0, shown
    card = card_for("tabicl-v2", "classification")
    path = tmp_path / "own" / card.file
    assert done.stdout.strip() == str(path)
    assert path.read_bytes() == tabicl_classifier.read_bytes()
    assert "100%" in shown, shown
    assert "tabicl-classifier-v2-20260212.ckpt" in shown
    downloads = [line for line in Hub.asked if line.startswith("GET") and "resolve" in line]
    assert downloads == [f"GET /jingang/TabICL/resolve/{card.revision}/{card.file}"]

    second = run(BLOCKED + code, settings(hub, tmp_path), capture_output=True)
    assert second.stdout == done.stdout, second.stderr
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "own"))
    vouch_for(tabicl_classifier.read_bytes(), monkeypatch)
    CrumbClassifier(model="tabicl-v2", device="cpu").fit(numbers(20, 1), classes(20, 2)).predict(
        numbers(3, 3)
    )


def test_download_that_breaks_off(
    hub: http.server.HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "dies", True)
    code = """
import time
time.sleep = lambda seconds: None  # the hub's client rests between its attempts
from crumb.errors import WeightsMissing
from crumb.pfn.models import card_for
from crumb.pfn.models import fetch
try:
    fetch(card_for("tabicl-v2", "classification"))
except WeightsMissing as error:
    print(error)
"""
    done = run(code, settings(hub, tmp_path), capture_output=True)
    card = card_for("tabicl-v2", "classification")
    assert f"({card.file}) failed" in done.stdout, done.stderr
    assert f"put it in {tmp_path / 'own'}" in done.stdout
    assert any(line.startswith("GET") and "resolve" in line for line in Hub.asked)
    left = [
        path
        for path in (tmp_path / "own").rglob("*")
        if path.is_file() and path.stat().st_size > 1_000
    ]
    assert left == []


FETCH = """
import resource, sys, time
time.sleep = lambda seconds: None  # the hub's client rests between its attempts
from crumb.errors import CrumbError
from crumb.pfn.models import card_for, fetch
name, limit = sys.argv[1:]
if limit != "none":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    print(fetch(card_for(name, "classification")))
except CrumbError as error:
    print(error)
"""


def fetched(hub: http.server.HTTPServer, tmp_path: Path, name: str, limit: str = "none") -> str:
    """What is said, in one line, and that nothing is left behind."""
    command = [sys.executable, "-c", FETCH, name, limit]
    env = {**os.environ, **settings(hub, tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 1, done.stderr
    own = tmp_path / "own"
    assert not own.exists() or list(own.iterdir()) == []
    return done.stdout


def test_download_that_is_another_file(hub: http.server.HTTPServer, tmp_path: Path) -> None:
    said = fetched(hub, tmp_path, "tabicl-v2")
    assert "What was downloaded as tabicl-classifier-v2-20260212.ckpt is not the file" in said
    assert f"put it in {tmp_path / 'own'}" in said


def test_disk_that_is_full(hub: http.server.HTTPServer, tmp_path: Path) -> None:
    said = fetched(hub, tmp_path, "tabicl-v2", limit=str(len(Hub.content) // 2))
    assert "Downloading the weights of 'tabicl-v2'" in said
    assert "failed (File too large)" in said


def test_licence_that_was_not_accepted(
    hub: http.server.HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a download is tried. The package that asks for consent gets no answer here."""
    pytest.importorskip("tabpfn")
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, CLOSED)
    monkeypatch.setenv("TABPFN_NO_BROWSER", "1")
    said = fetched(hub, tmp_path, "tabpfn-v3")
    assert "'tabpfn-v3' (Prior Labs, non-commercial) can be downloaded once you have" in said
    assert "set TABPFN_TOKEN" in said
    assert not any("resolve" in line for line in Hub.asked)


def test_licence_that_was_accepted(hub: http.server.HTTPServer, tmp_path: Path) -> None:
    pytest.importorskip("tabpfn")
    code = f"""
from dataclasses import replace
import tabpfn.browser_auth
tabpfn.browser_auth.ensure_license_accepted = lambda repository: print("asked for", repository)
from crumb.pfn.models import card_for, fetch
digest = "{hashlib.sha256(Hub.content).hexdigest()}"
print(fetch(replace(card_for("tabpfn-v3", "classification"), sha256=digest)))
"""
    done = run(code, settings(hub, tmp_path), capture_output=True)
    card = card_for("tabpfn-v3", "classification")
    assert done.stdout.splitlines() == ["asked for tabpfn_3", str(tmp_path / "own" / card.file)]
    assert f"GET /Prior-Labs/tabpfn_3/resolve/{card.revision}/{card.file}" in Hub.asked
