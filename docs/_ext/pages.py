"""What Sphinx lacks for this site: a page of the commands, and links that leave ``docs/``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from crumb.cli.options import COMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
EXAMPLES = ("command-line.md", "serving.md")
INSIDE = ("sklearn", "crumb.selection", "crumb.scale")
OUTWARD = re.compile(r"\]\((\.\./[^)\s]+)\)")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write_commands)
    app.connect("source-read", point_outward)
    app.connect("autodoc-skip-member", skip_inherited)
    return {"parallel_read_safe": True}


def write_commands(app: Any) -> None:
    """``reference/commands.rst``, from what argparse is given."""
    lines = ["Commands", "========", "", "``crumb COMMAND --help`` says the same.", ""]
    for name, (text, groups) in COMMANDS.items():
        lines += [f"crumb {name}", "-" * (6 + len(name)), "", f"{text[0].upper()}{text[1:]}.", ""]
        lines += ["::", "", f"    {example(Path(app.srcdir), name)}", ""]
        lines += [f".. program:: crumb {name}", ""]
        for title, options in groups.items():
            lines += [f".. rubric:: {title[0].upper()}{title[1:]}", ""] if title else []
            for flags, settings in options.items():
                lines += [f".. option:: {', '.join(shown(flags, settings))}", ""]
                lines += [f"   {explained(settings)}", ""]
    page = Path(app.srcdir) / "reference" / "commands.rst"
    if not page.exists() or page.read_text(encoding="utf-8") != "\n".join(lines):
        page.write_text("\n".join(lines), encoding="utf-8")


def example(pages: Path, name: str) -> str:
    """As one of the pages has it; the tests run those on the page of the command line."""
    texts = [(pages / page).read_text(encoding="utf-8") for page in EXAMPLES]
    command = re.compile(rf"^crumb {name}\b(?:.*\\\n)*.*$", re.MULTILINE)
    found = next(filter(None, map(command.search, texts)), [f"crumb {name}"])
    return found[0].replace("\n", "\n    ")


def shown(flags: str, settings: dict[str, Any]) -> list[str]:
    value = settings.get("metavar") or "|".join(settings.get("choices", ()))
    both = settings.get("action") is argparse.BooleanOptionalAction
    names = [name for flag in flags.split() for name in ([flag, f"--no-{flag[2:]}"][: 1 + both])]
    return [f"{name} {value}".strip() for name in names]


def explained(settings: dict[str, Any]) -> str:
    text = settings.get("help", "").replace("*", r"\*") or "One of the values above."
    default, needed = settings.get("default"), settings.get("required")
    said = default is None or default in ("", [], argparse.SUPPRESS) or f"{default}" in text
    said = said or (isinstance(default, int | float) and f"{default:,}" in text)
    ending = "Required." if needed else "" if said else f"Default: ``{default}``."
    return f"{text[0].upper()}{text[1:].rstrip('.')}. {ending}".strip()


def point_outward(app: Any, name: str, source: list[str]) -> None:
    """Files beside ``docs/`` are no pages of the site: their links lead to the code host."""
    page = Path(app.srcdir, name)

    def outward(found: re.Match[str]) -> str:
        target = (page.parent / found[1]).resolve()
        if target.is_relative_to(app.srcdir):
            return found[0]
        if target.parent.name == "examples":
            return f"](gallery/{target.stem}.rst)"
        kind = "tree" if target.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target.relative_to(ROOT).as_posix()})"

    source[0] = OUTWARD.sub(outward, source[0])


def skip_inherited(_app: Any, _what: str, name: str, obj: Any, skip: bool, _opts: Any) -> bool:
    """scikit-learn documents its own; methods of strategies and engines are not called by users."""
    inside = (getattr(obj, "__module__", None) or "").startswith(INSIDE)
    return skip or inside or bool(re.fullmatch(r"set_\w+_request", name))
