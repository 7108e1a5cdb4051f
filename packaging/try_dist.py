"""Install the wheel where nothing else is, use it, then run tests of the sdist against it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
FIRST_USE = """
import crumb
from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
assert crumb.CrumbClassifier(n_clusters=2, context_size=50).fit(X, y).score(X, y) > 0.9
print("crumb", crumb.__version__, "from", crumb.__file__)
"""


def main(dist: Path, tests: list[str]) -> None:
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        python = place / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        pip += ["-c", CONSTRAINTS]
        run(place, *pip, "torch")  # first and alone, as in the Makefile
        run(place, *pip, wheel.resolve())
        run(place, python, "-c", FIRST_USE)
        run(place, python, "-m", "crumb", "models")
        run(place, *pip, f"{wheel.resolve()}[dev]")
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        (source,) = place.glob("crumb_pfn-*")
        (source / "src").rename(place / "not-imported")  # tests see the wheel, not the source
        os.environ["PYTHONPATH"] = str(source)  # scripts import the folders beside the package
        run(source, python, "-m", "pytest", "-n", "2", "--dist", "worksteal", *tests)


def run(place: Path, *command: object) -> None:
    subprocess.run([str(part) for part in command], cwd=place, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
