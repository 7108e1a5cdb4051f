"""Python in the README and in the docs works as pasted, and links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_ten_lines_work_as_pasted(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(shown.stdout.split()[0]) > 0.85
    assert (tmp_path / "plan.png").stat().st_size > 10_000


def test_the_page_on_streams_works_as_pasted(tmp_path: Path) -> None:
    code = "\n".join(
        re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "online.md").read_text(), re.DOTALL)
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    answer, right, drift, waits = shown.stdout.splitlines()
    assert answer.split()[1] == "1"
    assert float(right) > 0.85
    assert float(re.findall(r"score=([\d.]+)", drift)[0]) > 1
    assert waits.startswith("1 answers")


def test_the_page_on_explanations_works_as_pasted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "explain.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    command = [sys.executable, "-c", "import matplotlib; matplotlib.use('agg')\n" + code]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    assert lines[0] == "(10, 13, 3)"
    assert lines[1].split()[:3] == ["distance", "influence", "target"]
    assert len(lines) == 11


def test_the_page_on_back_ends_works_as_pasted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "backends.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(shown.stdout) > 0.9


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
