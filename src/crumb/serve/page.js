"use strict";
const W = 520, H = 190, LEFT = 44, BOTTOM = 20, TOP = 8, RIGHT = 8;
const byId = (id) => document.getElementById(id);
const put = (id, value, unit = "") => {
  const place = byId(id);
  place.textContent = value;
  if (unit) place.append(Object.assign(document.createElement("small"), { textContent: unit }));
};

// Drawing: elements of SVG from plain data.
function draw(id, height, said, parts) {
  const svg = byId(id);
  svg.setAttribute("viewBox", `0 0 ${W} ${height}`);
  svg.setAttribute("aria-label", said);
  svg.replaceChildren(...parts.map(([tag, attributes, text]) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }));
}
function nice(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= most);
}
const short = (n) => n >= 1000 ? `${+(n / 1000).toPrecision(3)}k` : `${+n.toPrecision(3)}`;
// Latencies: milliseconds up to a second, seconds from there on.
const duration = (seconds) => seconds < 1 ? [short(1000 * seconds), "ms"] : [short(seconds), "s"];
const y = (value, most) => H - BOTTOM - (H - BOTTOM - TOP) * Math.min(1, value / most);
const x = (share) => LEFT + (W - LEFT - RIGHT) * share;
function frame(most, unit, first, last) {
  const parts = [0, 0.5, 1].flatMap((share) => [
    ["line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: y(share * most, most), y2: y(share * most, most) }],
    ["text", { x: LEFT - 6, y: y(share * most, most) + 4, "text-anchor": "end" }, short(share * most) + unit],
  ]);
  parts.push(["text", { x: LEFT, y: H - 4 }, first], ["text", { x: W - RIGHT, y: H - 4, "text-anchor": "end" }, last]);
  return parts;
}
// Points that are not there break the line.
function path(points) {
  let down = false;
  return points.map((point) => {
    if (!point) { down = false; return ""; }
    const step = `${down ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    down = true;
    return step;
  }).join("");
}

function drawRates(live, seconds) {
  const most = nice(Math.max(...seconds.map((second) => second ? second.rows : 0)));
  const points = seconds.map((second, i) => [x(i / (seconds.length - 1)), y(second ? second.rows : 0, most)]);
  draw("rates", H, "Queries per second", [
    ...frame(most, "", `−${live.length} s`, "now"),
    ["path", { d: `${path(points)}L${x(1)} ${y(0, 1)}L${x(0)} ${y(0, 1)}Z`, fill: "var(--b)", opacity: 0.15 }],
    ["path", { class: "line", stroke: "var(--b)", d: path(points) }],
  ]);
}
function drawLatencies(live, seconds) {
  const known = seconds.filter((second) => second && second.p99 !== null);
  const longest = Math.max(0, ...known.map((second) => second.p99));
  const [scale, unit] = longest < 1 ? [1000, "ms"] : [1, "s"];
  const most = nice(scale * longest);
  const line = (key, colour) => {
    const points = seconds.map((second, i) => second && second[key] !== null
      ? [x(i / (seconds.length - 1)), y(scale * second[key], most)] : null);
    const alone = points.filter((point, i) => point && !points[i - 1] && !points[i + 1]);
    return [
      ["path", { class: "line", stroke: colour, d: path(points) }],
      ...alone.map((point) => ["circle", { cx: point[0], cy: point[1], r: 2.2, fill: colour }]),
    ];
  };
  draw("latencies", H, `Latency in ${unit}`, [
    ...frame(most, "", `${unit}, −${live.length} s`, "now"), ...line("p50", "var(--b)"), ...line("p99", "var(--a)"),
  ]);
}
function drawDrift(live) {
  const looks = live.drift;
  const first = looks.length ? looks[0].time : live.now - 60;
  const span = Math.max(1, live.now - first);
  const most = nice(Math.max(2, ...looks.map((look) => look.score)));
  const place = (time) => x((time - first) / span);
  const points = looks.map((look) => [place(look.time), y(look.score, most)]);
  draw("drifts", H, "Drift score over time", [
    ...frame(most, "", looks.length ? `−${ago(span)}` : "no look yet", "now"),
    ...live.refreshes.filter((time) => time >= first).map((time) => ["line",
      { class: "axis", style: "stroke:var(--c)", x1: place(time), x2: place(time), y1: TOP, y2: H - BOTTOM }]),
    ["line", { class: "limit", x1: LEFT, x2: W - RIGHT, y1: y(1, most), y2: y(1, most) }],
    ["path", { class: "line", stroke: "var(--a)", d: path(points) }],
    ...points.map((point) => ["circle", { cx: point[0], cy: point[1], r: 2.6, fill: "var(--a)" }]),
  ]);
}
function drawBuffers(live) {
  const most = Math.max(live.b_min, ...live.fill);
  const step = (W - LEFT - RIGHT) / live.fill.length;
  const every = Math.ceil(live.fill.length / 20);
  draw("buffers", H, "Queries that wait in each cluster", [
    ...frame(most, "", "", ""),
    ["line", { class: "limit", x1: LEFT, x2: W - RIGHT, y1: y(live.b_min, most), y2: y(live.b_min, most) }],
    ...live.fill.map((rows, i) => ["rect", { class: "bar", x: LEFT + i * step + step * 0.12, width: step * 0.76,
      y: y(rows, most), height: y(0, most) - y(rows, most), fill: colour(i), rx: 1.5 }]),
    ...live.fill.map((_, i) => i).filter((i) => i % every === 0).map((i) => ["text",
      { x: LEFT + (i + 0.5) * step, y: H - 4, "text-anchor": "middle" }, i]),
  ]);
}
// Hues a golden angle apart: neighbours in number differ most.
const colour = (cluster) => `hsl(${(cluster * 137.508 + 20) % 360} 62% 50%)`;
function drawMap(map) {
  const all = [...map.centroids, ...map.queries];
  const low = [0, 1].map((k) => Math.min(...all.map((point) => point[k])));
  const high = [0, 1].map((k) => Math.max(...all.map((point) => point[k])));
  const height = 430, edge = 14;
  // One scale for both directions: distance means something.
  const scale = Math.min((W - 2 * edge) / Math.max(1e-9, high[0] - low[0]),
    (height - 2 * edge) / Math.max(1e-9, high[1] - low[1]));
  const left = (point) => (W / 2 + scale * (point[0] - (low[0] + high[0]) / 2)).toFixed(1);
  const top = (point) => (height / 2 - scale * (point[1] - (low[1] + high[1]) / 2)).toFixed(1);
  draw("map", height, "Queries and centroids in two dimensions", [
    ["rect", { x: 0.5, y: 0.5, width: W - 1, height: height - 1, fill: "none", stroke: "var(--grid)", rx: 6 }],
    ...map.queries.map((point, i) => ["circle", { class: "query", cx: left(point), cy: top(point), r: 3,
      fill: colour(map.clusters[i]), opacity: (0.25 + 0.75 * (i + 1) / map.queries.length).toFixed(2) }]),
    ...map.centroids.map((point, i) => ["path", { class: "centroid", stroke: colour(i), "stroke-width": 2.4,
      d: `M${left(point)} ${top(point)}m-5 -5l10 10m0 -10l-10 10` }]),
  ]);
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}
function lastSeconds(live) {
  const end = Math.floor(live.now), found = new Map(live.seconds.map((second) => [second.time, second]));
  return Array.from({ length: live.length }, (_, i) => found.get(end - live.length + i));
}
function refused(count, last) {
  put("refusals", short(count), last ? `last: ${last.replaceAll("_", " ")}` : "");
}
function show(live) {
  const seconds = lastSeconds(live), recent = seconds.slice(-10);
  const latest = recent.filter((second) => second && second.p50 !== null).pop();
  document.title = `${live.name} · CRUMB`;
  put("name", live.name);
  put("about", `${live.contexts} contexts · up ${ago(live.uptime)} ·`);
  byId("state").textContent = live.ready ? "ready" : "draining";
  byId("state").className = live.ready ? "good" : "bad";
  put("rate", short(recent.reduce((sum, second) => sum + (second ? second.rows : 0), 0) / recent.length));
  for (const key of ["p50", "p99"]) put(key, ...(latest ? duration(latest[key]) : ["–"]));
  put("pending", short(live.pending), `of ${short(live.max_pending)}`);
  refused(live.refusals, live.last_refusal);
  put("plan", live.version, `${ago(live.plan_age)} old`);
  put("score", live.drift.length ? live.drift[live.drift.length - 1].score.toFixed(2) : "–");
  drawRates(live, seconds);
  drawLatencies(live, seconds);
  drawDrift(live);
  drawBuffers(live);
  drawMap(live.map);
  document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
}

async function look() {
  const token = sessionStorage.getItem("token");
  try {
    const response = await fetch("/live", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
    byId("login").hidden = response.status !== 401;
    if (response.ok) show(await response.json());
    else { byId("state").textContent = response.status === 401 ? "token needed" : "no data"; byId("state").className = "bad"; }
  } catch {
    byId("state").textContent = "not reachable";
    byId("state").className = "bad";
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  byId("token").value = "";
});
look();
