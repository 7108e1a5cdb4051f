"""The package as a whole: lazy imports, versions, doctests."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

import crumb


def test_import_is_instant_and_light() -> None:
    heavy = ("torch", "sklearn", "pandas", "tabicl", "scipy")
    code = f"import crumb, sys; print([m for m in {heavy} if m in sys.modules])"
    best = 9.0
    for _ in range(3):  # the best of three: the machine may be busy
        started = time.perf_counter()
        shown = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        best = min(best, time.perf_counter() - started)
        assert shown.stdout.strip() == "[]"
    assert best < 0.5


def test_every_public_name_is_there() -> None:
    for name in crumb.__all__:
        assert getattr(crumb, name) is not None
    assert set(crumb.__all__) == {*crumb._HOME, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = crumb.nonsense
    assert "CrumbClassifier" in dir(crumb)


def test_one_version() -> None:
    assert version("crumb-pfn") == crumb.__version__


@pytest.mark.parametrize("module", ["crumb.estimator", "crumb.plan", "crumb.online.stream"])
def test_the_examples_in_the_docstrings_work(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
