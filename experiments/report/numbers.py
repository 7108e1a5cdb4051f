"""Numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOTHING = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def fixed(value: float | None, digits: int = 3, sign: bool = False) -> str:
    if value is None or not known(value):
        return NOTHING
    value = round(float(value), digits) + 0.0  # without the minus of −0.00
    text = f"{value:+,.{digits}f}" if sign and value else f"{value:,.{digits}f}"
    return text.replace("-", "−")


def plus_minus(mean: float, error: float, digits: int = 3, sign: bool = False) -> str:
    behind = f" ± {fixed(error, digits)}" if known(error) and known(mean) else ""
    return fixed(mean, digits, sign) + behind


def p_value(p: float) -> str:
    """Three digits, or a power of ten below a thousandth."""
    if p == 0:
        return "< 10" + "-300".translate(RAISED)
    return small(p) if p < 0.001 else "1" if p >= 0.9995 else fixed(p)


def small(value: float) -> str:
    """For quantities of any size, such as MMD²: 0.0123 or 2.1·10⁻⁶."""
    if not known(value):
        return NOTHING
    if not 0 < abs(value) < 0.001:
        return f"{value:.3g}".replace("-", "−")
    digits, exponent = f"{value:.1e}".replace("e-0", "e-").split("e")
    return f"{digits.replace('-', '−')}·10{exponent.translate(RAISED)}"


def seconds(value: float | None) -> str:
    if value is None or not known(value):
        return NOTHING
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return fixed(value, digits)


def whole(value: float | None) -> str:
    return fixed(value, 0)


def percent(value: float, digits: int = 0, sign: bool = False) -> str:
    if not known(value):
        return NOTHING
    return f"{fixed(100 * value, digits, sign)}\N{NO-BREAK SPACE}%"


def short(value: float) -> str:
    """A tick label: 10k, 2M, 0.05."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def span(values: Iterable[float]) -> str:
    """A few values as they are, else the smallest to the largest."""
    found = sorted({float(value) for value in values if known(value)})
    if not found:
        return NOTHING
    shown = [f"{value:,g}" if value < 1e6 else f"{value:,.0f}" for value in found]
    if len(found) <= 6:
        return ", ".join(shown)
    return f"{shown[0]} to {shown[-1]} ({len(found)} values)"


def counted(number: float, one: str) -> str:
    return f"{number:,.0f} {one if number == 1 else one + 's'}"


def listing(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def code(name: object) -> str:
    """A name set apart from the text around it, whatever signs are in it."""
    return "`" + str(name).replace("`", "'") + "`"


def best(values: Sequence[float], texts: Sequence[str], lower: bool = False) -> list[str]:
    """The texts, those of the best value in bold if there are several values."""
    found = [value for value in values if known(value)]
    top = (min(found) if lower else max(found)) if len(found) > 1 else None
    pairs = zip(values, texts, strict=True)
    return [f"**{text}**" if top is not None and value == top else text for value, text in pairs]
