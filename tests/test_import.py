"""The package as a whole: lazy imports, versions, doctests."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import crumb
from crumb.scale.engine import Engine
from crumb.selection import Strategy


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


def test_the_unrelated_package_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    code = f"import sys; sys.path.append({str(tmp_path / 'site-packages')!r}); import crumb"
    beside = tmp_path / "site-packages" / "crumb_pfn-0.1.0.dist-info"
    beside.mkdir(parents=True)
    command = [sys.executable, "-c", code]
    assert "unrelated" not in subprocess.run(command, capture_output=True, text=True).stderr
    (beside.parent / "crumb-2.4.dist-info").mkdir()
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "unrelated package named crumb is installed too (crumb-2.4.dist-info)" in shown


def referenced() -> list[Any]:
    """What the reference documents, in its order, without the kinds of ``CrumbError``."""
    found, module = [], ""
    for line in (Path(__file__).parents[1] / "docs/reference.md").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line) and module != "crumb.errors":
            found.append(getattr(importlib.import_module(module), line.strip()))
    return found


PUBLIC = referenced()
CALLED = [one for one in PUBLIC if one is not crumb.CrumbError]


def test_the_reference_has_everything_public() -> None:
    assert set(crumb.__all__) <= {one.__name__ for one in PUBLIC} | {"__version__"}


@pytest.mark.parametrize("module", sorted({"crumb"} | {one.__module__ for one in PUBLIC}))
def test_the_examples_in_the_docstrings_work(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_everything_public_has_an_example(public: Any) -> None:
    assert ">>> " in public.__doc__


@pytest.mark.parametrize("public", CALLED, ids=lambda public: public.__name__)
def test_every_parameter_is_explained(public: Any) -> None:
    """In the form of numpydoc: names before a colon, or alone, under "Parameters"."""
    methods = inspect.getmembers(public, inspect.isroutine) if inspect.isclass(public) else []
    methods = [(name, m) for name, m in methods if callable(m)]  # 3.14: cached properties too
    ours = [m for name, m in methods if name[0] != "_" and m.__module__.startswith("crumb")]
    closed = inspect.isclass(public) and issubclass(public, (Strategy, Engine))
    for one in (public, *ours) if not closed else (public,):
        section = re.search(r"Parameters\n *-+\n(.*?)(\n *\n *\w+\n *-+\n|\Z)", one.__doc__, re.S)
        lines = inspect.cleandoc("\n" + section[1]).splitlines() if section else []
        heads = " ".join(line.split(" : ")[0] for line in lines if line[:1] != " ")
        listed = set(re.findall(r"\w+", heads))
        kinds = inspect.signature(one).parameters.values()
        asked = {p.name for p in kinds if "VAR_" not in p.kind.name} - {"self"}
        assert asked <= listed, f"{one.__qualname__} does not explain {sorted(asked - listed)}"
