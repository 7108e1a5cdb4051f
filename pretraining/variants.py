"""Ways to train that can be compared, and the one that was chosen. A name says all that a run
depends on but its seed. docs/model-card.md says what else was tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    widths: dict[str, int] = field(default_factory=dict)  # that differ from the size's
    parts: dict[str, Any] = field(default_factory=dict)  # that are not TabICL's
    fade: float = 1.0  # how much less each in-context block adds than the one before
    recipe: str = "everything"
    rate: float = 2e-3
    batch: float = 1.0  # cells of a batch, of what the stage of the curriculum has
    even: float = 0.0  # above 0, tables count by the logarithm of their loss and this much


DEEP = {
    "row_num_cls": 4,
    "icl_num_blocks": 12,
    "icl_nhead": 8,
}  # 12 blocks of 192 instead of 6 of 240
OURS = {"ranks": True, "cells": "fourier"}  # places of cells, and waves of them
WIDE = {
    "embed_dim": 64,
    "col_nhead": 4,
    "row_nhead": 4,
    "row_num_cls": 4,
    "icl_nhead": 8,
}  # 6 blocks of 256

VARIANTS = {
    "base": Variant(),
    "plain": Variant(recipe="plain"),
    "ranks-fourier": Variant(parts=OURS),
    "certain": Variant(parts=OURS, recipe="certain"),
    "mild": Variant(parts=OURS, recipe="mild"),
    "base-certain": Variant(recipe="certain"),
    "slow-certain": Variant(parts=OURS, recipe="certain", rate=1e-3),
    "gentle": Variant(parts=OURS, recipe="certain", rate=5e-4),
    "even": Variant(parts=OURS, recipe="certain", even=0.01),
    "base-even": Variant(recipe="certain", even=0.01),
    "gentle-even": Variant(parts=OURS, recipe="certain", rate=5e-4, even=0.01),
    "gentle-plainer": Variant(parts=OURS, recipe="plainer", rate=5e-4),
    "gentle-even-plainer": Variant(parts=OURS, recipe="plainer", rate=5e-4, even=0.01),
    "gentle-even-smooth": Variant(parts=OURS, recipe="smooth", rate=5e-4, even=0.01),
    "gentle-even-double": Variant(parts=OURS, recipe="certain", rate=5e-4, batch=2.0, even=0.01),
    "fine-even-double": Variant(parts=OURS, recipe="certain", rate=2e-4, batch=2.0, even=0.01),
    "deeper": Variant({"icl_num_blocks": 10}, OURS, recipe="certain"),
    "fade": Variant(fade=0.95),
    "deep": Variant(widths=DEEP),
    "wide": Variant(widths=WIDE),
    "fast": Variant(rate=4e-3),
    "slow": Variant(rate=1e-3),
    "slow-ranks": Variant(parts=OURS, rate=1e-3),
    "half": Variant(batch=0.5),
    "double": Variant(batch=2.0),
}
CHOSEN = "ranks-fourier"
