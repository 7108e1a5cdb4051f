"""What test files share: tiny checkpoints, written once a session, and a folder to run in."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# Before torch is imported: threads that wait for each other at every step take ten times longer.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before shap is imported: compiling its loops takes longer than running them on small tables.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

import checkpoints
from cli_tables import make_table

# Files about signals, terminals, limits and /proc. Windows has none of these.
POSIX = [
    "serve",
    "cli/test_main.py",
    "cli/test_serve.py",
    "experiments/test_campaign.py",
    "online/test_child.py",
    "pfn/test_package_index.py",
    "pfn/test_weights.py",
    "pretraining/test_training.py",
    "scale/test_engine.py",
    "scale/test_ray_engine.py",
]
collect_ignore = [] if os.name == "posix" else POSIX


def pytest_configure() -> None:
    # A shell that starts tests in the background ignores Ctrl-C: tests of it would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tabicl_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tabicl_v2_classifier(tmp_path_factory.mktemp("tabicl") / "classifier.ckpt")


@pytest.fixture(scope="session")
def tabicl_regressor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tabicl_v2_regressor(tmp_path_factory.mktemp("tabicl") / "regressor.ckpt")


@pytest.fixture(scope="session")
def tabicl_v1_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tabicl_v1_classifier(tmp_path_factory.mktemp("tabicl") / "v1.ckpt")


@pytest.fixture(scope="session")
def tabpfn_v1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.tabpfn_v1_classifier(tmp_path_factory.mktemp("tabpfn-v1") / "v1.cpkt")


@pytest.fixture(scope="session")
def tabpfn_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tabpfn")
    return checkpoints.tabpfn_classifier(tmp_path_factory.mktemp("tabpfn") / "classifier.ckpt")


@pytest.fixture(scope="session")
def tabpfn_regressor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tabpfn")
    return checkpoints.tabpfn_regressor(tmp_path_factory.mktemp("tabpfn") / "regressor.ckpt")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with train.csv and test.csv."""
    monkeypatch.chdir(tmp_path)
    make_table(200, 0).to_csv("train.csv", index=False)
    make_table(30, 1).to_csv("test.csv", index=False)
    return tmp_path


@pytest.fixture
def crumb(capsys):
    """Run the command in this process: exit status, standard output, standard error."""
    from crumb.cli import main

    def run(*argv):
        status = main([str(word) for word in argv])
        return (status, *capsys.readouterr())

    return run
