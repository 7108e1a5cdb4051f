"""The description of the service as a page: every operation with a command to paste."""

from __future__ import annotations

import html
import json
import shlex
from typing import Any

from crumb.serve.page import STYLE


def docs_page(name: str, described: dict[str, Any], base: str) -> str:
    """``described``: the OpenAPI description. Nothing is fetched from elsewhere."""
    sections = [
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>"
        f"<p>{html.escape(operation['summary'])}. "
        f"Answers with {', '.join(sorted(operation['responses']))}.</p>"
        f'<pre tabindex="0">{html.escape(_curl(base + path, name, operation))}</pre></section>'
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    ]
    title = f"{html.escape(name)}: how to ask"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f'<body><main class="docs"><h1>{title}</h1>'
        '<p><a href="/">The page</a> · <a href="/openapi.json">OpenAPI</a></p>'
        f"{''.join(sections)}</main></body></html>"
    )


def _curl(url: str, name: str, operation: dict[str, Any]) -> str:
    """A command that works as pasted into a shell."""
    words = ["curl", "-s", url.replace("{name}", name)]
    if "security" in operation:
        words += ["-H", "Authorization: Bearer $CRUMB_TOKEN"]
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(example)]
    quoted = [f'"{word}"' if "$CRUMB_TOKEN" in word else shlex.quote(word) for word in words]
    return " ".join(quoted)
