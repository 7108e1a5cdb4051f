"""The size of the house: lines by folder and by part, files on the way of one prediction.

    python benchmarks/house.py [ROOT]

ROOT is a checkout; this one by default. Lines are counted whole, and without docstrings, comments
and empty lines ("code"). Private accesses are counted by ``ruff check --select SLF src``.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path

# Files and folders of this version by what they are for; "estimators" has all the others.
PARTS = {
    "the method": "table/space.py selection herding plan.py evidence.py infer.py",
    "tables in memory": "table/cells.py table/csv.py table/encoder.py pool.py",
    "TabICL, many contexts at once": "pfn/tabicl.py pfn/fused.py pfn/forward.py pfn/preprocess.py "
    "pfn/contexts.py pfn/architecture.py pfn/tabicl_package.py",
    "TabPFN v1": "pfn/tabpfn_v1.py pfn/package_index.py",
    "guides": "guide.py trees.py mixing.py",
    "budgets": "budget.py",
    "explanations and reports": "explanation.py cli/explain.py cli/report.py markup.py",
    "AutoGluon": "integrations",
    "tables in files": "scale",
    "streams": "online table/row.py",
    "the service": "serve cli/serve.py",
    "other commands": "cli",
}
NOT_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)

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


Lines = tuple[int, int]  # whole, and code alone


def lines_of(path: Path) -> Lines:
    text = path.read_text()
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    kept = [token for token in read if token.type not in (*NOT_CODE, tokenize.ENDMARKER)]
    code = {line for token in kept for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(text.splitlines()), len(code)


def lines_by(package: Path, name: Callable[[str], str]) -> dict[str, Lines]:
    """The lines of files with the same ``name``, most first."""
    found: dict[str, Lines] = {}
    for path in package.rglob("*.py"):
        one = name(path.relative_to(package).as_posix())
        whole, code = found.get(one, (0, 0))
        more = lines_of(path)
        found[one] = whole + more[0], code + more[1]
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def folder(path: str) -> str:
    return path.partition("/")[0] + "/" if "/" in path else "top"


def part(path: str) -> str:
    for name, places in PARTS.items():
        if any(path == place or path.startswith(f"{place}/") for place in places.split()):
            return name
    return "estimators"


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
    for name in (folder, part):
        print(f"{'lines':30} {'whole':>7} {'code':>7}")
        found = lines_by(package, name)
        every = {**found, "in all": tuple(map(sum, zip(*found.values(), strict=True)))}
        for one, (whole, code) in every.items():
            print(f"{one:30} {whole:7,} {code:7,}")
        print()
    files = files_on_the_way(root)
    whole = sum(lines_of(package / file)[0] for file in files)
    said = f"{len(files)} files of {whole:,} lines: {' '.join(files)}"
    print(f"fit and predict_proba pass through {said}")
    size, where = longest_function(package)
    print(f"longest function: {size} lines ({where})")


if __name__ == "__main__":
    main()
