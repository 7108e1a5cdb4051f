"""What a release consists of: its description, its pictures, and files that name its parts."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import conftest
import pytest
import yaml

import crumb
from crumb.cli import main

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
PROJECT = metadata("crumb-pfn")
URLS = dict(line.split(", ") for line in PROJECT.get_all("Project-URL"))


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_links_of_the_long_description_are_absolute() -> None:
    text = PROJECT.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) == len(re.findall(r"\]\(([^)\s]+)\)", read("README.md")))
    assert all(link.startswith("https://") for link in links)
    assert any("raw." in link and link.endswith("/main/docs/demo.png") for link in links)


def test_every_place_knows_the_same_project() -> None:
    recipe = yaml.safe_load(read("packaging", "conda", "recipe.yaml"))
    citation = yaml.safe_load(read("CITATION.cff"))
    newest = re.findall(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)[0]  # a date may follow
    versions = recipe["context"]["version"], citation["version"], newest, PROJECT["Version"]
    assert set(versions) == {crumb.__version__}
    assert recipe["context"]["name"] == PROJECT["Name"]
    assert recipe["about"]["homepage"] == citation["repository-code"] == URLS["Repository"]
    assert recipe["about"]["documentation"] == citation["url"] == URLS["Documentation"]


def test_addresses_of_the_project_are_those_of_pyproject() -> None:
    """A project that moves changes them there; this names the other places."""
    own = (URLS["Repository"], URLS["Documentation"])
    assert all(url.startswith(own) for url in URLS.values())
    hosted = re.compile(r"https://[\w.-]*github[\w.-]*/[^\s\"'`)>]*crumb[^\s\"'`)>]*")
    parts = ("src", "docs", "examples", "packaging", ".github")
    files = [*ROOT.glob("*.*"), *(file for part in parts for file in ROOT.glob(f"{part}/**/*.*"))]
    kinds = {".py", ".md", ".rst", ".txt", ".toml", ".cff", ".yaml", ".yml", ".json", ".html"}
    texts = [file for file in files if file.suffix in kinds and "_build" not in file.parts]
    found = {(file, url) for file in texts for url in hosted.findall(file.read_text("utf-8"))}
    assert [pair for pair in found if not pair[1].startswith(own)] == []
    assert {"CITATION.cff", "recipe.yaml", "pyproject.toml"} <= {file.name for file, _ in found}


def test_the_recipe_asks_for_what_the_package_asks_for() -> None:
    whole = yaml.safe_load(read("packaging", "conda", "recipe.yaml"))
    recipe = whole["requirements"]["run"]
    assert f">={whole['context']['python_min']}" == PROJECT["Requires-Python"]
    build = re.search(r'requires = \["([\w-]+)(\S+)"\]', read("pyproject.toml"))
    assert " ".join(build.groups()) in whole["requirements"]["host"]
    theirs = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
    pairs = [line.split(" ", 1) for line in recipe if not line.startswith("python ")]
    found = {theirs.get(name, name): set(bound.split(",")) for name, bound in pairs}
    wanted = [line for line in PROJECT.get_all("Requires-Dist") if "extra" not in line]
    for line in wanted:
        name, bound = re.fullmatch(r"([\w-]+)(\S*)", line).groups()
        assert found.pop(name) == set(bound.split(","))
    assert not found


def test_workflows_try_every_python_that_is_promised() -> None:
    tests = yaml.safe_load(read(".github", "workflows", "tests.yml"))["jobs"]["tests"]
    promised = [line.rsplit(" ", 1)[1] for line in PROJECT.get_all("Classifier") if ":: 3." in line]
    assert tests["strategy"]["matrix"]["python"] == promised
    assert len(tests["strategy"]["matrix"]["os"]) == 3
    publish = yaml.safe_load(read(".github", "workflows", "publish.yml"))["jobs"]["pypi"]
    assert publish["permissions"] == {"id-token": "write"}


def test_what_windows_does_not_have_is_left_out_there() -> None:
    ignored = conftest.POSIX
    missing = re.compile(r"^import (resource|fcntl|pty|termios)$|SIGKILL|/proc/|os\.nice", re.M)
    helpers = re.compile(r"^from (serving|scale_faults|scale_falling) import", re.M)
    tests = ROOT / "tests"
    for file in tests.glob("**/test_*.py"):
        name, text = file.relative_to(tests).as_posix(), file.read_text(encoding="utf-8")
        if file != Path(__file__) and (missing.search(text) or helpers.search(text)):
            assert name.startswith(tuple(ignored)), name
    assert all((tests / name).exists() for name in ignored)


def test_the_citation_names_the_authors_of_the_paper() -> None:
    paper = yaml.safe_load(read("CITATION.cff"))["preferred-citation"]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Heredge", "Villani", "Deshpande", "Seshadri", "Kumar"]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_scripts_of_the_gallery_are_short_and_end_in_a_picture(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    compile(text, script.name, "exec")
    assert len(text.splitlines()) < 60
    assert re.match(r'"""\n(.+)\n=+\n\n', text)
    assert text.endswith("plt.show()\n")


@pytest.mark.parametrize("name", ["plot_02_why_this_context", "plot_11_a_model_of_your_own"])
def test_some_scripts_of_the_gallery_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` runs all of them."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    plt.close("all")  # what other tests left open
    drawn: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    plt.close("all")
    assert len(drawn) == 1


def test_the_start_page_prints_what_it_says() -> None:
    page = read("docs", "start.md")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    promised = re.findall(r"prints\n\n```\n(.*?)```", page, re.DOTALL)[0]
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found, wanted = ([line.split() for line in text.splitlines()] for text in (shown, promised))
    assert float(found[0][0]) == pytest.approx(float(wanted[0][0]), abs=0.02)  # the network's part
    assert found[1:3] == wanted[1:3]
    for mine, theirs in zip(found[3:], wanted[3:], strict=True):
        assert [*map(float, mine)] == pytest.approx([*map(float, theirs)], abs=0.002)


def test_the_page_on_commands_works_as_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = re.sub(r"\\\n *", "", read("docs", "command-line.md"))
    prepare, commands = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    python = prepare.splitlines()[0]
    subprocess.run([sys.executable, *shlex.split(python)[1:]], check=True)
    rows = Path("iris.csv").read_text().splitlines(keepends=True)  # head and tail, on any system
    Path("train.csv").write_text("".join(rows[:101]))
    Path("test.csv").write_text("".join(rows[:1] + rows[-50:]))
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0, command
    answers = Path("answers.csv").read_text().splitlines()
    assert len(answers) == 51
    assert answers[0].startswith("prediction") or "probability" in answers[0]
    assert Path("plan.png").stat().st_size > 10_000
    assert len(Path("again.csv").read_text().splitlines()) == 51
