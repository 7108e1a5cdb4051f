"""``crumb models``: which models there are, and which of them are on this machine."""

from __future__ import annotations

import argparse

from crumb.cli.report import print_json, print_table
from crumb.pfn.registry import CARDS
from crumb.pfn.weights import locate, model_dir


def run(args: argparse.Namespace) -> None:
    rows = []
    for card in CARDS:
        found = locate(card)
        line = {name: getattr(card, name) for name in ("task", "window", "licence")}
        present = found is not None and found.is_file()
        file = str(found or model_dir() / card.file)
        rows.append({"model": card.name, **line, "present": present, "file": file})
    if args.json:
        print_json({"model_dir": str(model_dir()), "models": rows})
        return
    print_table(rows)
    if not all(row["present"] for row in rows):
        print("\nA model that is not present is downloaded to that file when it is first used.")
