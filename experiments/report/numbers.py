"""Numbers as people write them."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

NOTHING = "–"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def fixed(value: float | None, digits: int = 3, sign: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    value = round(float(value), digits) + 0.0  # without the minus of −0.00
    text = f"{value:+,.{digits}f}" if sign and value else f"{value:,.{digits}f}"
    return text.replace("-", "−")


whole = partial(fixed, digits=0)


def plus_minus(mean: float, error: float = math.nan, *, digits: int = 3, sign: bool = False) -> str:
    behind = f" ± {fixed(error, digits)}" if math.isfinite(error) and math.isfinite(mean) else ""
    return fixed(mean, digits, sign) + behind


def p_value(p: float) -> str:
    """Three digits, or a power of ten below a thousandth."""
    if p == 0:
        return "< 10" + "-300".translate(RAISED)
    return small(p) if p < 0.001 else "1" if p >= 0.9995 else fixed(p)


def small(value: float) -> str:
    """For quantities of any size, such as MMD²: 0.0123 or 2.1·10⁻⁶."""
    if not math.isfinite(value) or not 0 < abs(value) < 0.001:
        return f"{value:.3g}".replace("-", "−").replace("nan", NOTHING)
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.replace('-', '−')}·10{str(int(exponent)).translate(RAISED)}"


def seconds(value: float | None) -> str:
    size = value or 0.0
    return fixed(value, 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3)


def short(value: float) -> str:
    """A tick label: 10k, 2M, 0.05."""
    unit, sign = (1e6, "M") if value >= 1e6 else (1e3, "k") if value >= 1e3 else (1, "")
    return f"{value / unit:g}{sign}"


def span(values: Iterable[float]) -> str:
    """A few values as they are, else the smallest to the largest."""
    found = sorted({float(value) for value in values if math.isfinite(value)})
    shown = [f"{value:,.12g}" for value in found]
    few = f"{shown[0]} to {shown[-1]} ({len(found)} values)" if len(found) > 6 else ", ".join(shown)
    return few or NOTHING


def counted(number: float, one: str) -> str:
    return f"{number:,.0f} {one if number == 1 else one + 's'}"


def code(name: object) -> str:
    """A name set apart from the text around it, whatever signs are in it."""
    return "`" + str(name).replace("`", "'") + "`"


OTHERS = {"p": p_value, "s": seconds, "e": small}


def column(values: Iterable[Any], how: str = "") -> list[str]:
    """Text as it is; numbers with some digits (``2``, or ``+2`` with a sign), or as p, s or e.

    A tuple is a mean and its error. ``<`` or ``>`` at the end sets the lowest or highest in bold.
    """
    pairs = [value if isinstance(value, tuple) else (value,) for value in values]
    written = [(pair[0], _written(pair, how.rstrip("<>"))) for pair in pairs]
    best = {"<": min, ">": max}.get(how[-1:])
    found = [value for value, _ in written if best and math.isfinite(value)]
    top = best(found) if best and len(found) > 1 else math.nan
    return [f"**{text}**" if value == top else text for value, text in written]


def _written(pair: tuple[Any, ...], how: str) -> str:
    if isinstance(pair[0], str):
        return pair[0]
    if how in OTHERS:
        return OTHERS[how](*pair)
    return plus_minus(*pair, digits=int(how.lstrip("+") or 3), sign=how.startswith("+"))
