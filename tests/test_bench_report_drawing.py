"""Inline SVG: ids of its own, the page's colours and font, text untouched, no global state."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from crumb.bench.report import drawing, palette


def picture(name="one"):
    def draw(axes):
        axes.plot([0, 1], [0, 1], color=palette.look("crumb").light, marker="o")
        axes.text(0, 0.5, "$0.12345 #d55e00 < 1$")

    return drawing.panel(name, "A & B", "what it shows", draw).svg


def test_text_stays_as_it_is_and_everything_else_follows_the_page():
    svg = picture()
    assert "$0.12345 #d55e00 &lt; 1$" in svg
    assert "var(--c2)" in svg
    assert "var(--ink)" in svg
    assert "font-family" not in svg
    assert not re.search(r"\d\.\d{3}", svg.replace("0.12345", ""))
    assert '<title id="one-title">A &amp; B</title><desc id="one-desc">what it shows</desc>' in svg
    assert ElementTree.fromstring(svg).get("viewBox")


def test_ids_of_two_panels_do_not_meet():
    ids = [set(re.findall(r' id="([^"]+)"', picture(name))) for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]
    svg = picture()
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= ids[0]


def test_the_same_rows_make_the_same_picture_and_settings_are_left_alone():
    before = dict(mpl.rcParams)
    assert picture() == picture()
    assert dict(mpl.rcParams) == before


def test_logarithms_have_plain_ticks():
    def draw(axes):
        axes.loglog([500, 50_000], [0.01, 100])
        drawing.plain_logarithm(axes.xaxis)
        drawing.plain_logarithm(axes.yaxis)

    shown = re.findall(r">([^<>]+)</text>", drawing.panel("logs", "t", "alt", draw).svg)
    assert "10k" in shown
    assert "0.1" in shown
    assert not any("^" in text or "$" in text for text in shown)


@pytest.mark.parametrize("values", [[[1.0, 2.0], [3.0, np.nan]], [[2.0, 2.0]], [[np.nan]]])
def test_heat_maps_of_any_values(values):
    array = np.array(values)
    texts = [[f"c{i}{j}" for j in range(array.shape[1])] for i in range(len(array))]

    def draw(axes):
        drawing.heat_map(
            axes, array, texts, [f"r{i}" for i in range(len(array))], [f"k{j}" for j in range(array.shape[1])]
        )

    svg = drawing.panel("map", "t", "alt", draw).svg
    assert all(text in svg for line in texts for text in line)
