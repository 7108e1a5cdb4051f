"""The live page: complete in itself, drawn in a real browser from a running service."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
import time

import pytest
import serving
from serving import Server, records

from crumb.serve.page import PAGE, STYLE

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
in_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs Chromium (Debian: apt-get install chromium)"
)
# Put at the end of the page: after some updates it writes down what is drawn, for --dump-dom.
PROBE = """<script>
setInterval(() => {
  if (document.getElementById("probe") || Number(document.body.dataset.updates || 0) < 2) return;
  const text = (id) => document.getElementById(id).textContent;
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({
    name: text("name"), state: text("state"), rate: text("rate"), p50: text("p50"),
    plan: text("plan"), score: text("score"), refusals: text("refusals"),
    long: duration(1.32).join(" "), quick: duration(0.1324).join(" "),
    queries: document.querySelectorAll("#map .query").length,
    centroids: document.querySelectorAll("#map .centroid").length,
    bars: document.querySelectorAll("#buffers .bar").length,
    looks: document.querySelectorAll("#drifts circle").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    empty: [...document.querySelectorAll("svg")]
      .filter((svg) => svg.getBoundingClientRect().height < 60).length,
    ink: getComputedStyle(document.body).color,
    fetched: performance.getEntriesByType("resource").map((entry) => entry.name),
    cut: (refused(99900, "too_many_bytes"), [...document.querySelectorAll(".tiles div")]
      .filter((tile) => tile.scrollWidth > tile.clientWidth).map((tile) => tile.textContent)),
  });
  document.body.append(out);
}, 50);
</script>"""


def test_the_page_needs_nothing_from_elsewhere():
    assert not re.findall(r"""(?:src|href)=["'](?!/|data:,)""", PAGE)
    assert "http://www.w3.org/2000/svg" in PAGE  # a name, not an address; there is no other
    assert len(re.findall("https?://", PAGE)) == 1
    assert "/*" not in PAGE


def test_the_colours_are_those_of_the_house(pytestconfig):
    report = (pytestconfig.rootpath / "experiments/report/templates/page.html").read_text()
    house = re.findall(r"--(?:ink|muted|line|paper): (#[0-9a-f]{6})", report)
    assert len(house) == 8  # light and dark
    assert all(colour in STYLE for colour in house)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    words = [
        "--timeout",
        "0.02",
        "--name",
        "pets",
        "--log-level",
        "warning",
        *serving.SMALL,
        "--drift-every",
        "0.5",
    ]
    with Server(*serving.train_words(folder), *words) as server:
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                server.predict(records(5, seed=int(time.monotonic() * 1000)))
                time.sleep(0.05)

        assert server.predict([]).status_code == 422
        traffic = threading.Thread(target=ask)
        traffic.start()
        serving.eventually(
            lambda: (live := server.http.get("/live").json())["drift"] and live["answered"] > 60, 60
        )
        yield server
        stop.set()
        traffic.join()


def opened(url: str, folder, *options: str) -> tuple[str, list[str]]:
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [
        f"--user-data-dir={folder}",
        "--enable-logging=stderr",
        "--virtual-time-budget=6000",
        *options,
    ]
    done = subprocess.run(
        [*command, "--dump-dom", url], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def probed(server: Server, tmp_path, *options: str) -> tuple[dict, list[str]]:
    """The page as served, with the probe; /live is the service's own."""
    page = server.http.get("/").text.replace("</body>", PROBE + "</body>")
    page = page.replace('fetch("/live"', f'fetch("{server.url}/live"')
    (tmp_path / "page.html").write_text(page)
    address = (tmp_path / "page.html").as_uri()
    document, console = opened(address, tmp_path / "profile", "--disable-web-security", *options)
    found = re.search(r'<pre id="probe">(.*?)</pre>', document)
    assert found, console
    return json.loads(html.unescape(found[1])), console


@in_browser
def test_the_page_shows_the_service_live(server, tmp_path):
    document, console = opened(server.url + "/", tmp_path / "profile")
    assert console == []
    assert int(re.search(r'data-updates="(\d+)"', document)[1]) >= 2  # it asked again by itself
    assert re.search(r'<h1 id="name">pets</h1>', document)
    assert re.search(r'id="state"[^>]*>ready<', document)


@in_browser
@pytest.mark.parametrize(
    ("width", "scheme", "ink"), [(1280, 1, "rgb(34, 38, 46)"), (500, 0, "rgb(232, 234, 237)")]
)
def test_everything_is_drawn_and_fits(server, tmp_path, width, scheme, ink):
    options = [f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}"]
    found, console = probed(server, tmp_path, *options)
    assert console == []
    assert (found["name"], found["state"]) == ("pets", "ready")
    assert float(found["rate"]) > 0
    assert found["p50"].endswith("ms")
    assert found["plan"].startswith("1")
    assert found["refusals"] == "1last: invalid"
    assert (found["long"], found["quick"]) == ("1.32 s", "132 ms")
    assert found["centroids"] == found["bars"] == 3
    assert found["queries"] > 50
    assert found["looks"] > 0
    assert found["wide"] <= 0
    assert found["empty"] == 0
    assert found["cut"] == []  # the longest text of a tile stays inside
    assert found["ink"] == ink
    assert all(name.startswith((server.url, "data:")) for name in found["fetched"])
