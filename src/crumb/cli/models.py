"""``crumb models``: which models there are, which of them are on this machine, and getting one."""

from __future__ import annotations

import argparse

from crumb.cli.console import print_json, print_table
from crumb.errors import InvalidInput
from crumb.pfn.models import CARDS, fetch, locate, model_dir, model_names


def run(args: argparse.Namespace) -> None:
    if args.get is not None and args.get not in model_names():
        known = ", ".join(model_names())
        raise InvalidInput(f"Unknown model {args.get!r}: choose one of {known}.")
    cards, rows = [card for card in CARDS if args.get in (None, card.name)], []
    for card in cards:
        if args.get is not None:
            fetch(card)
        found = locate(card)
        line = {name: getattr(card, name) for name in ("task", "window", "cost", "licence")}
        present = found is not None and found.is_file()
        file = str(found or model_dir() / card.file)
        rows.append({"model": card.name, **line, "present": present, "file": file})
    if args.json:
        print_json({"model_dir": str(model_dir()), "models": rows})
        return
    print_table(rows)
    print("\nwindow: rows of a context at most; cost: a pass on a CPU, in passes of embedded-0.1.")
    if not all(row["present"] for row in rows):
        print("A model that is not present is downloaded to that file when it is first used.")
