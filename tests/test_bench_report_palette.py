"""One look a method, and a variable on the page for each colour."""

from __future__ import annotations

from crumb.bench.report import palette
from crumb.bench.report.style import css


def test_colours_can_be_told_apart_by_the_page():
    light = [look.light for look in (*palette.METHODS.values(), *palette.OTHERS)] + list(palette.NAMES)
    assert len(set(light)) == len(light)
    for name, one, other in palette.variables().values():
        assert css().count(f"--{name}:{one};") == 1
        assert f"--{name}:{other};" in css()


def test_unknown_methods_keep_their_look():
    assert palette.look("crumb+K=50") == palette.look("crumb+K=50")
    assert palette.label("crumb+K=50") == "crumb+K=50"
    assert palette.css_colour(palette.look("crumb+K=50").light).startswith("var(--c")
    assert palette.css_colour("#123456") == "#123456"


def test_the_order_is_the_papers():
    assert palette.in_order(["zz", "uniform", "crumb", "aa", "full"]) == ["full", "crumb", "uniform", "aa", "zz"]
