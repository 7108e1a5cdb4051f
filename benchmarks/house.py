"""The size of the house: lines by folder, files on the way of one prediction, longest function.

    python benchmarks/house.py [ROOT]

ROOT is a checkout; this one by default. Private accesses are counted by
``ruff check --select SLF src``.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

WALK = """
import sys, threading
from pathlib import Path
from sklearn.datasets import load_iris
from crumb import CrumbClassifier
X, y = load_iris(return_X_y=True)
CrumbClassifier(context_size=30, n_clusters=3).fit(X[::2], y[::2]).predict_proba(X[1::2])
seen = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name not in ("<module>", "<lambda>"):
        seen.add(frame.f_code.co_filename)
sys.setprofile(note)
threading.setprofile(note)
CrumbClassifier(context_size=30, n_clusters=3).fit(X[::2], y[::2]).predict_proba(X[1::2])
sys.setprofile(None)
root = Path(sys.argv[1], "src", "crumb")
print(*sorted(str(Path(f).relative_to(root)) for f in seen if Path(f).is_relative_to(root)))
"""


def lines_by_folder(package: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).parts
        found[parts[0] + "/" if len(parts) > 1 else "top"] += len(path.read_text().splitlines())
    return found


def longest_function(package: Path) -> tuple[int, str]:
    """Lines of its body, without signature and docstring."""
    longest = (0, "")
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body:
                    size = (body[-1].end_lineno or 0) - body[0].lineno + 1
                    longest = max(longest, (size, f"{path.relative_to(package)}:{node.name}"))
    return longest


def files_on_the_way(root: Path) -> list[str]:
    """Files of the package whose functions one default fit and predict_proba call."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WALK, str(root)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
    )
    return run.stdout.split()


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    package = root / "src" / "crumb"
    folders = lines_by_folder(package)
    for name, lines in sorted(folders.items(), key=lambda item: -item[1]):
        print(f"{name:12} {lines:6,}")
    print(f"{'in all':12} {sum(folders.values()):6,}")
    files = files_on_the_way(root)
    print(f"\nfit and predict_proba pass through {len(files)} files: {' '.join(files)}")
    size, where = longest_function(package)
    print(f"longest function: {size} lines ({where})")


if __name__ == "__main__":
    main()
