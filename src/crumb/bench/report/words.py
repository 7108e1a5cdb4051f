"""Numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOTHING = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fixed(value: float | None, digits: int = 3, sign: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    value = round(value, digits) + 0.0  # without the minus of −0.00
    text = f"{value:+,.{digits}f}" if sign and value else f"{value:,.{digits}f}"
    return text.replace("-", "−")


def plus_minus(mean: float, error: float, digits: int = 3, sign: bool = False) -> str:
    if not math.isfinite(mean):
        return NOTHING
    return fixed(mean, digits, sign) + (f" ± {fixed(error, digits)}" if math.isfinite(error) else "")


def p_value(p: float) -> str:
    """Three digits, or a power of ten below a thousandth."""
    if not math.isfinite(p):
        return NOTHING
    if p >= 0.9995:
        return "1"
    if p >= 0.001:
        return f"{p:.3f}"
    return power(p) if p > 0 else "< 10" + "-300".translate(RAISED)


def power(value: float) -> str:
    """2.1·10⁻⁶"""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.replace('-', '−')}·10{str(int(exponent)).translate(RAISED)}"


def small(value: float) -> str:
    """For quantities of any size, such as MMD²."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return power(value) if 0 < abs(value) < 0.001 else f"{value:.3g}".replace("-", "−")


def seconds(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def whole(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(value: float, digits: int = 0, sign: bool = False) -> str:
    return NOTHING if not math.isfinite(value) else f"{fixed(100 * value, digits, sign)}\N{NO-BREAK SPACE}%"


def short(value: float) -> str:
    """A tick label: 10k, 2M, 0.05."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def span(values: Iterable[float]) -> str:
    """All of a few values, else the smallest to the largest."""
    found = sorted({float(value) for value in values if value is not None and math.isfinite(value)})
    if not found:
        return NOTHING
    shown = [f"{value:,g}" if value < 1e6 else f"{value:,.0f}" for value in found]
    return ", ".join(shown) if len(found) <= 6 else f"{shown[0]} to {shown[-1]} ({len(found)} values)"


def counted(number: float, one: str, many: str | None = None) -> str:
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def listing(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else ", ".join(names[:-1]) + " and " + names[-1]


def code(name: object) -> str:
    """A name set off from the text around it, whatever signs are in it."""
    return "`" + str(name).replace("`", "'") + "`"
