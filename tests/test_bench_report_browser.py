"""The report in a real browser: no console errors, every figure drawn, nothing wider than the window."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import bench_rows
import pytest

from crumb.bench.report import write_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: apt-get install chromium)")
# Measures the page from inside and leaves the result where --dump-dom shows it.
PROBE = """<script>
const plots = [...document.querySelectorAll("figure svg.plot")].map(svg => svg.getBoundingClientRect());
const found = {
  figures: [...document.querySelectorAll("figure")].map(figure => figure.id),
  empty: plots.filter(box => box.width < 200 || box.height < 60).length,
  plots: plots.length,
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  colour: getComputedStyle(document.querySelector("svg.plot text")).fill,
};
const out = document.createElement("pre");
out.id = "probe";
out.textContent = JSON.stringify(found);
document.body.append(out);
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    rows = bench_rows.write_rows(folder / "rows.jsonl", bench_rows.Maker(3, 1, 2).everything())
    return write_report(rows, folder / "report.html")[0]


def opened(page, folder, *options: str) -> tuple[str, list[str]]:
    """The document after loading, and what the browser's console said."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}", "--enable-logging=stderr", *options, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def probed(report, tmp_path, *options: str) -> tuple[dict, list[str]]:
    page = tmp_path / "probed.html"
    page.write_text(report.read_text().replace("</body>", PROBE + "</body>"))
    document, console = opened(page, tmp_path / "profile", *options)
    return json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', document)[1])), console


def test_the_page_opens_without_errors_and_shows_every_figure(report, tmp_path):
    document, console = opened(report, tmp_path / "profile")
    assert console == []
    written = re.findall(r'<figure id="([\w-]+)"', report.read_text())
    assert re.findall(r'<figure id="([\w-]+)"', document) == written
    assert len(written) >= 20


@pytest.mark.parametrize("width", [1280, 500])
def test_figures_have_a_size_and_fit(report, tmp_path, width):
    found, console = probed(report, tmp_path, f"--window-size={width},900")
    assert console == []
    assert found["plots"] == report.read_text().count('<svg class="plot"')
    assert found["empty"] == 0
    assert found["wide"] <= 0


def test_text_in_figures_follows_the_theme(report, tmp_path):
    light, _ = probed(report, tmp_path, "--blink-settings=preferredColorScheme=1")
    dark, _ = probed(report, tmp_path, "--blink-settings=preferredColorScheme=0")
    assert light["colour"] == "rgb(34, 38, 46)"
    assert dark["colour"] == "rgb(232, 234, 237)"


def test_an_error_on_the_console_would_be_seen(tmp_path):
    page = tmp_path / "wrong.html"
    page.write_text("<!doctype html><script>nowhere()</script>")
    assert any("nowhere is not defined" in line for line in opened(page, tmp_path / "profile")[1])
