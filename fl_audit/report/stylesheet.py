"""The CSS of every page: one column, system fonts, light or dark as the reader's screen is, and light on paper."""

_COLOURS = {
    "paper": ("#ffffff", "#161616"),
    "pale": ("#f4f4f2", "#232323"),
    "ink": ("#1a1a1a", "#ececec"),
    "muted": ("#555555", "#b4b4b4"),
    "line": ("#bbbbbb", "#5a5a5a"),
    "good": ("#17492b", "#a9dfbd"),
    "good-ground": ("#f1f8f3", "#12291b"),
    "bad": ("#ffffff", "#ffffff"),
    "bad-ground": ("#7a0c0c", "#8c1616"),
    "open": ("#474747", "#d2d2d2"),
    "open-ground": ("#efefef", "#2b2b2b"),
    "label": ("#1a1a1a", "#fbeccb"),
    "label-ground": ("#fff6e0", "#3a2f14"),
    "shown": ("#12426e", "#8ab6e0"),
    "beyond": ("#7a0c0c", "#f08a8a"),
    "grid": ("#dddddd", "#3a3a3a"),
    "band": ("#e9e9e9", "#333333"),
    "one": ("#12426e", "#8ab6e0"),
    "one-fill": ("#7fa3c7", "#35587c"),
    "two": ("#b35806", "#e8a765"),
    "two-fill": ("#f8d9b0", "#5c3d18"),
    "three": ("#4d7a2a", "#a3d17c"),
    "four": ("#7a3b69", "#d99cc6"),
    "five": ("#2a7f86", "#7fced5"),
}
"""The colours of a page, keyed by name: first for light screens and paper, then for dark screens."""
LIGHT, DARK = ({name: pair[side] for name, pair in _COLOURS.items()} for side in (0, 1))

DRAWN = {
    "#ffffff": "paper",
    "#1a1a1a": "ink",
    "#5c5c5c": "muted",
    "#dddddd": "grid",
    "#e9e9e9": "band",
    "#12426e": "one",
    "#7fa3c7": "one-fill",
    "#b35806": "two",
    "#f8d9b0": "two-fill",
    "#4d7a2a": "three",
    "#7a3b69": "four",
    "#2a7f86": "five",
}
"""The names of the page colours that replace the colours of figures, keyed by the figures' colours."""

_LIGHT_VARIABLES, _DARK_VARIABLES = (
    " ".join(f"--{name}: {colour};" for name, colour in colours.items()) for colours in (LIGHT, DARK)
)
_VARIABLES = f"""
:root {{ color-scheme: light dark; {_LIGHT_VARIABLES} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK_VARIABLES} }} }}
"""

_PAGE = """
* { box-sizing: border-box; }
html { font-size: 17px; background: var(--paper); }
body { margin: 0 auto; padding: 1.4rem 1.5rem 4rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Noto Sans", Arial, sans-serif;
  line-height: 1.5; }
h1 { font-size: 1.25rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .8rem; padding-bottom: .25rem; border-bottom: 2px solid var(--ink); }
p { margin: 0 0 .8rem; }
.subtitle { color: var(--muted); margin-bottom: 1rem; overflow-wrap: anywhere; font-size: .9rem; }
.opening { font-size: 1.12rem; line-height: 1.65; margin-bottom: 1.6rem; }
.notice { border-left: 5px solid var(--muted); background: var(--pale); color: var(--ink); padding: .6rem 1rem;
  margin: 1.4rem 0 1rem; }
.small { font-size: .8rem; color: var(--muted); margin: .3rem 0 0; }
ol.papers li { margin-bottom: .5rem; }
footer { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--muted);
  font-size: .85rem; }
"""

_FIRST_SCREEN = """
.verdict { border: 4px solid var(--ink); padding: .7rem 1.2rem; margin: 0 0 .8rem; display: flex; gap: 1.2rem;
  align-items: center; }
.verdict .sign { font-size: 2.6rem; line-height: 1; }
.verdict .word { font-size: 1.7rem; font-weight: 700; line-height: 1.15; margin: 0; padding: 0; border: 0; }
.verdict p { margin: .2rem 0 0; }
.verdict.consistent { border-color: var(--good); background: var(--good-ground); color: var(--ink); }
.verdict.consistent .word, .verdict.consistent .sign { color: var(--good); background: var(--good-ground); }
.verdict.inconclusive, .verdict.open { border-color: var(--muted); background: var(--open-ground); color: var(--ink);
  border-style: dashed; }
.verdict.inconclusive .word, .verdict.inconclusive .sign, .verdict.open .word, .verdict.open .sign {
  color: var(--open); background: var(--open-ground); }
.verdict.violated { border-color: var(--bad-ground); background: var(--bad-ground); color: var(--bad); }
.label { border: 2px dashed var(--muted); background: var(--label-ground); color: var(--label); padding: .3rem .8rem;
  margin: 0 0 .8rem; font-weight: 700; font-size: .9rem; }
.facts { display: flex; gap: 1rem; margin: 0 0 1rem; }
.facts > div { flex: 1 1 0; border-top: 3px solid var(--ink); padding-top: .3rem; }
.facts dt { font-size: .85rem; color: var(--muted); }
.facts dd { margin: 0; }
.facts .figure { display: block; font-size: 1.6rem; font-weight: 700; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.facts .note { font-size: .85rem; color: var(--muted); display: block; line-height: 1.35; }
.gauge { margin: 0 0 .9rem; }
.gauge figcaption { max-width: none; margin: 0 0 .3rem; font-size: .85rem; color: var(--muted); }
.gauge .row { display: flex; align-items: center; font-size: .9rem; }
.gauge .name { flex: 0 0 9.4rem; font-weight: 600; white-space: nowrap; }
.gauge .track { flex: 1 1 auto; position: relative; overflow: hidden; height: 1.7rem;
  border-left: 1px solid var(--muted); }
.gauge .said { flex: 0 0 16rem; padding-left: .8rem; line-height: 1.2; }
.gauge .bar { position: absolute; top: .35rem; height: 1rem; background: var(--muted); }
.gauge .bar.shown { background: var(--shown); }
.gauge .bar.beyond { background: var(--beyond); }
.gauge .bar.detectable { background: none; border: 2px solid var(--ink); border-right: 0; }
.gauge .bar.blind {
  background: repeating-linear-gradient(135deg, var(--line), var(--line) 2px, transparent 2px, transparent 6px); }
.gauge .line { position: absolute; top: 0; height: 100%; border-left: 2px solid var(--ink); }
.gauge .kept { position: absolute; top: 0; height: 100%; border-left: 2px dotted var(--ink); }
.gauge .axis { font-size: .78rem; color: var(--muted); }
.gauge .axis .track { overflow: visible; border: 0; height: 1.2rem; margin-right: 16rem; }
.gauge .axis .track span { position: absolute; white-space: nowrap; transform: translateX(-50%); }
.next { border-left: 5px solid var(--ink); padding-left: .8rem; }
.words { font-size: .82rem; color: var(--muted); margin: .6rem 0 0; }
.words dt { float: left; clear: left; font-weight: 700; margin-right: .5rem; }
.words dd { margin: 0; }
.first h2 { margin: 1rem 0 .4rem; }
.origin { font-size: .8rem; color: var(--muted); overflow-wrap: anywhere; }
"""

_FIGURES_AND_TABLES = """
figure { margin: 0 0 2.2rem; break-inside: avoid; }
figure img { width: 100%; max-width: 50rem; height: auto; display: block; background: var(--paper); }
figure svg { width: 100%; max-width: 38rem; height: auto; display: block; }
figure svg text { fill: var(--ink); }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
@media screen and (prefers-color-scheme: dark) { figure img { filter: invert(.915) hue-rotate(180deg); } }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1.4rem 2rem; }
.figures figure { margin: 0; }
figcaption { color: var(--muted); font-size: .9rem; max-width: 50rem; margin-top: .5rem; }
figcaption strong { color: var(--ink); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; line-height: 1.4; margin: 0 0 1.4rem; }
caption { text-align: left; font-weight: 700; padding: 0 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .38rem .6rem .38rem 0; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
tbody th { font-weight: 600; }
td.value { font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
td.aside { color: var(--muted); }
nav ol { columns: 2; gap: 2rem; font-size: .9rem; margin: 0 0 1.2rem; }
a { color: var(--ink); }
dd { margin-left: 1.4rem; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); }
summary { font-weight: 700; padding: .55rem 0; cursor: pointer; }
details > div { padding: .3rem 0 1rem; }
.sign-off { display: none; }
table.configuration tbody * { font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
table.configuration tbody th { font-weight: 400; }
table.configuration tbody th, table.pairs tbody th { width: 40%; }
table.configuration td, table.pairs td { overflow-wrap: anywhere; }
table.pairs td { white-space: pre-line; }
"""

_PHONE = """
@media screen and (max-width: 40rem) {
  html { font-size: 15px; }
  body { padding: .7rem .9rem 3rem; line-height: 1.42; }
  .subtitle { margin-bottom: .6rem; font-size: .8rem; }
  .verdict { padding: .5rem .8rem; gap: .8rem; align-items: flex-start; border-width: 3px; }
  .verdict .sign { font-size: 1.7rem; }
  .verdict .word { font-size: 1.35rem; }
  .facts { display: block; margin-bottom: .7rem; }
  .facts > div { border-top: 1px solid var(--line); padding: .15rem 0; display: flex; gap: .6rem;
    align-items: baseline; }
  .facts dt { flex: 0 0 6.6rem; line-height: 1.2; }
  .facts .figure { font-size: 1.15rem; }
  .facts .note { font-size: .78rem; line-height: 1.2; }
  .gauge .row { flex-wrap: wrap; font-size: .85rem; }
  .gauge .name { flex: 0 0 9.2rem; }
  .gauge .said { flex: 1 1 auto; padding-left: 0; order: 1; }
  .gauge .track { flex: 0 0 100%; order: 2; height: 1.15rem; }
  .gauge .bar { top: .15rem; height: .8rem; }
  .gauge .axis .name { display: none; }
  .gauge .axis .track { overflow: visible; margin-right: 0; }
  .gauge .axis .track span:last-child { transform: translateX(-100%); }
  .next { padding-left: .6rem; font-size: .95rem; }
  .figures { grid-template-columns: 1fr; }
  nav ol { columns: 1; }
  .scroll thead { display: none; }
  .scroll table, .scroll tbody, .scroll caption, .scroll tr { display: block; }
  .scroll tr { padding: .35rem 0; border-bottom: 1px solid var(--line); }
  .scroll tbody th, .scroll td { display: block; width: auto; border: 0; padding: .08rem 0; white-space: normal;
    overflow-wrap: anywhere; }
  .scroll td:empty { display: none; }
  .scroll td[data-label]::before { content: attr(data-label) ": "; color: var(--muted); font-weight: 400; }
}
"""

_PAPER = """
@media print {
  @page { size: A4; margin: 10mm 15mm; }
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; line-height: 1.3; }
  h2 { break-after: avoid; }
  tr, .verdict, .label, .notice, .facts, .gauge { break-inside: avoid; }
  thead { display: table-header-group; }
  table.pairs tr:last-child { break-inside: auto; }
  h2#officer ~ .scroll:has(table.numbers) { break-inside: avoid; }
  .scroll { overflow: visible; }
  figure { margin-bottom: 1.2rem; }
  figure[id^="figure-"] img, figure[id^="figure-"] svg { max-width: 10cm; margin: 0 auto; }
  .figures { grid-template-columns: 1fr 1fr; gap: .4rem .8rem; }
  .figures figure { margin: 0; }
  .figures figure img, .figures figure svg { max-width: 86%; margin: 0; }
  .figures figcaption { font-size: 7.5pt; margin-top: .1rem; }
  figcaption { max-width: none; }
  h2 { margin: .5rem 0 .3rem; font-size: 1.1rem; }
  p { margin-bottom: .35rem; }
  ul { margin: .1rem 0 .2rem; }
  h2#numbers, h2#officer, h2#appendix { break-before: page; }
  table { font-size: 8pt; overflow-wrap: break-word; }
  th, td { padding: .14rem .5rem .14rem 0; }
  caption { break-after: avoid; }
  thead th:first-child:nth-last-child(n+3):nth-last-child(-n+5) { width: 27%; }
  thead th:nth-child(3):nth-last-child(3) { width: 16%; }
  thead:has(th:nth-child(3)):not(:has(th:nth-child(6))) ~ tbody th { overflow-wrap: anywhere; }
  table.tests { table-layout: fixed; }
  table.tests th:nth-child(1) { width: 17%; }
  table.tests th:nth-child(2) { width: 11.6%; }
  table.tests th:nth-child(6) { width: 7.5%; }
  table.tests th:nth-child(7) { width: 8.7%; }
  table.configuration tbody th, table.pairs tbody th { width: 32%; }
  td.value { white-space: normal; }
  td.value[data-label="Claimed"] { white-space: nowrap; }
  .small-print { font-size: 6.5pt; }
  .small-print table { font-size: 6.5pt; line-height: 1.15; margin: 0 0 .6rem; }
  .small-print td, .small-print th { padding: .5pt 4pt .5pt 0; }
  .small-print table.configuration, .small-print table.configuration thead { display: block; }
  .small-print table.configuration thead { display: none; }
  .small-print table.configuration caption { display: block; }
  .small-print table.configuration tbody { display: block; columns: 3; }
  .small-print table.configuration tr { display: block; }
  .small-print table.configuration th, .small-print table.configuration td { display: inline; border: 0; }
  .sign-off { display: flex; gap: 1.5rem; margin-top: 1.6rem; break-inside: avoid; }
  .sign-off div { flex: 1 1 0; font-size: 8pt; color: var(--muted); }
  .sign-off span { display: block; height: 1.3cm; padding-top: .7cm; border-bottom: 1px solid var(--ink);
    margin-bottom: .2rem; color: var(--ink); }
  .closing { break-inside: avoid; break-before: avoid; }
  footer { break-before: avoid; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
  summary { list-style: none; break-after: avoid; }
  .verdict, .label, .notice, .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

STYLESHEET = _VARIABLES + _PAGE + _FIGURES_AND_TABLES + _FIRST_SCREEN + _PHONE + _PAPER
"""CSS of the page, without any external resource."""
