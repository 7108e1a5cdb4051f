"""The report in a real browser: no errors, every figure drawn, nothing too wide."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import experiment_rows
import pytest

from experiments.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium (Debian: apt-get install)")
# Measures the page from inside and leaves the result where --dump-dom shows it.
PROBE = """<script>
addEventListener("load", () => {
  const plots = [...document.querySelectorAll("figure img")];
  const found = {
    empty: plots.filter(plot => plot.naturalWidth < 200 || plot.height < 60).length,
    plots: plots.length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    ink: getComputedStyle(document.body).color,
    filter: getComputedStyle(document.querySelector(".plots")).filter,
  };
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    maker = experiment_rows.Maker(2, 1, 2)
    rows = experiment_rows.write_rows(folder / "rows.jsonl", maker.main() + maker.rff())
    return write_report(rows, folder / "report.html")[0]


def probed(report, folder, *options: str) -> tuple[dict, list[str]]:
    """What the page says of itself after loading, and what the browser's console said."""
    page = folder / "probed.html"
    page.write_text(report.read_text().replace("</body>", PROBE + "</body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", *options]
    command += ["--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    return json.loads(html.unescape(found[1])), re.findall(r".*CONSOLE.*", done.stderr)


@pytest.mark.parametrize(
    ("width", "scheme", "ink", "filtered"),
    [(1280, 1, "rgb(34, 38, 46)", False), (500, 0, "rgb(232, 234, 237)", True)],
)
def test_figures_are_drawn_fit_and_follow_the_theme(report, tmp_path, width, scheme, ink, filtered):
    options = (f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}")
    found, console = probed(report, tmp_path, *options)
    assert console == []
    assert found["plots"] == report.read_text().count("<img ") > 5
    assert found["empty"] == 0
    assert found["wide"] <= 0
    assert found["ink"] == ink
    assert (found["filter"] != "none") == filtered
