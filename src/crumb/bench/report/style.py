"""The look of the page: its own fonts and colours, light and dark, on a desk, a phone and on paper."""

from __future__ import annotations

from crumb.bench.report import palette

LAYOUT = """
*{box-sizing:border-box}
html{color-scheme:light dark;scroll-behavior:smooth;-webkit-text-size-adjust:100%}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.55;
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
.layout{max-width:76rem;margin:0 auto;padding:1.5rem 1.25rem 4rem;display:grid;grid-template-columns:1fr;gap:1.5rem}
.layout>*{min-width:0}
header p{color:var(--muted);margin:.2rem 0}
h1{font-size:1.75rem;line-height:1.2;margin:.2rem 0 .6rem;letter-spacing:-.01em}
h2{font-size:1.35rem;line-height:1.25;margin:3rem 0 .6rem;padding-top:1.1rem;border-top:1px solid var(--grid);
 scroll-margin-top:.5rem}
h3{font-size:1rem;margin:1.6rem 0 .3rem}
p,ul{margin:.5rem 0;max-width:46rem}
li{margin:.25rem 0}
a{color:inherit;text-decoration-color:var(--muted);text-underline-offset:.15em}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--focus);outline-offset:2px}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--tint);padding:.06em .3em;
 border-radius:.25em;overflow-wrap:anywhere}
nav{font-size:.92rem}
nav strong{display:block;margin-bottom:.3rem}
nav ol{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem}
nav a{text-decoration:none;color:var(--muted);display:inline-block;padding:.18rem 0}
nav a:hover{color:var(--ink);text-decoration:underline}
.answers h3{margin-top:1.8rem}
.scroll{overflow-x:auto;margin:1.1rem 0}
table{border-collapse:collapse;font-size:.9rem;line-height:1.35;font-variant-numeric:tabular-nums lining-nums}
.caption{color:var(--muted);font-size:.88rem;margin:1.3rem 0 .35rem}
.caption+.scroll{margin-top:0}
th,td{padding:.32rem .6rem;text-align:left;vertical-align:baseline;border-bottom:1px solid var(--grid)}
thead th{border-bottom:1.5px solid var(--muted);font-weight:600;vertical-align:bottom}
tbody th{font-weight:400}
.num{text-align:right;white-space:nowrap}
thead th.num{white-space:normal}
tbody th{white-space:nowrap}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--paper)}
tbody th code{overflow-wrap:normal}
.from-paper{color:var(--muted);background:var(--tint)}
td strong,th strong{font-weight:700}
details{margin:1.1rem 0}
summary{cursor:pointer;color:var(--muted);font-size:.92rem}
details .scroll{margin-top:.6rem}
figure{margin:1.6rem 0}
figcaption{color:var(--muted);font-size:.88rem;max-width:46rem;margin-top:.5rem}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem 1.5rem;
 align-items:start}
.panels .wide{grid-column:1/-1}
svg.plot{display:block;width:100%;height:auto}
svg.plot *{stroke-linejoin:round;stroke-linecap:butt}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0 0 .5rem;padding:0;font-size:.88rem;
 max-width:none}
.legend svg{width:.85em;height:.85em;margin-right:.4em;vertical-align:-.05em}
footer{color:var(--muted);font-size:.88rem;border-top:1px solid var(--grid);margin-top:3rem;padding-top:1rem}
@media (min-width:64rem){
 .layout{grid-template-columns:13rem minmax(0,1fr);gap:3rem}
 header{grid-column:1/-1}
 nav{position:sticky;top:1.5rem;align-self:start;max-height:calc(100vh - 3rem);overflow-y:auto}
 nav ol{display:block}
 main>section:first-child h2{border-top:0;margin-top:0;padding-top:0}
}
@media (max-width:30rem){
 .layout{padding:1rem .9rem 3rem}
 h1{font-size:1.45rem}
 table{font-size:.82rem}
 th,td{padding:.28rem .45rem}
}
@media print{
 html{color-scheme:light}
 body{font-size:10pt}
 .layout{display:block;max-width:none;padding:0}
 nav ol{columns:2;display:block}
 .scroll{overflow:visible}
 table{font-size:8pt;break-inside:auto}
 tr,figure,.panels svg{break-inside:avoid}
 h2,h3,.caption{break-after:avoid}
 details::details-content{display:block;content-visibility:visible;height:auto}
 .panels{grid-template-columns:1fr 1fr}
 *{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""


def css() -> str:
    named = palette.variables().values()
    light = "".join(f"--{name}:{colour};" for name, colour, _ in named) + "--tint:#f4f5f7;--focus:#0072b2;"
    dark = "".join(f"--{name}:{colour};" for name, _, colour in named) + "--tint:#20242a;--focus:#4aa8e0;"
    # On paper always light: the dark set is for screens only.
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{LAYOUT}"
