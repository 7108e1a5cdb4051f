"""The long description of the distributions: the README with absolute links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


class AbsoluteLinks(MetadataHookInterface):
    """Links and pictures that are relative in the checkout lead nowhere on a package index."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, repository: str) -> str:
    pictures = repository.replace("//github.com/", "//raw.githubusercontent.com/") + "/main/"
    pages = f"{repository}/blob/main/"
    return LINK.sub(lambda at: f"{at[1]}[{at[2]}]({(pictures if at[1] else pages) + at[3]})", text)
