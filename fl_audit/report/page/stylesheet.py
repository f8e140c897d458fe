"""The style of the report's page: one column, system fonts, light on screen and on paper, in colour and in grey."""

STYLESHEET = """
:root { --ink: #1a1a1a; --muted: #555; --line: #bbb; --pale: #f4f4f2; --accent: #12426e; }
* { box-sizing: border-box; }
html { font-size: 17px; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 60rem; color: var(--ink); background: #fff;
  font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Noto Sans", Arial, sans-serif;
  line-height: 1.55; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .8rem; padding-bottom: .25rem; border-bottom: 2px solid var(--ink); }
p { margin: 0 0 .8rem; }
.subtitle { color: var(--muted); margin-bottom: 1.6rem; overflow-wrap: anywhere; }
.opening { font-size: 1.12rem; line-height: 1.65; margin-bottom: 1.6rem; }
.verdict { border: 4px solid var(--ink); padding: 1rem 1.3rem; margin: 0 0 1rem; display: flex; gap: 1.2rem;
  align-items: center; }
.verdict .sign { font-size: 3rem; line-height: 1; }
.verdict .word { font-size: 1.9rem; font-weight: 700; line-height: 1.15; margin: 0; letter-spacing: .01em; }
.verdict p { margin: .2rem 0 0; }
.verdict.consistent { border-color: #1d5c36; background: #f1f8f3; }
.verdict.consistent .word, .verdict.consistent .sign { color: #17492b; }
.verdict.inconclusive { border-color: #6b6b6b; background: #efefef; border-style: dashed; }
.verdict.inconclusive .word, .verdict.inconclusive .sign { color: #474747; }
.verdict.violated { border-color: #7a0c0c; background: #7a0c0c; color: #fff; border-style: double; border-width: 8px; }
.label { border: 2px dashed var(--ink); background: #fff6e0; padding: .6rem 1rem; margin: 0 0 1rem; font-weight: 700; }
.notice { border-left: 5px solid var(--muted); background: var(--pale); padding: .6rem 1rem; margin: 0 0 1rem; }
figure { margin: 0 0 2.2rem; break-inside: avoid; }
figure img { width: 100%; max-width: 50rem; height: auto; display: block; }
figcaption { color: #333; font-size: .9rem; max-width: 50rem; margin-top: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; line-height: 1.4; margin: 0 0 1.4rem; }
caption { text-align: left; font-weight: 700; padding: 0 0 .4rem; }
th, td { text-align: left; vertical-align: top; padding: .38rem .6rem .38rem 0; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--ink); white-space: nowrap; }
tbody th { font-weight: 600; }
tr.group th { padding-top: 1rem; font-size: .95rem; border-bottom: 1.5px solid var(--ink); }
td.value { font-variant-numeric: tabular-nums; font-weight: 600; white-space: nowrap; }
td.aside { color: var(--muted); }
table.configuration tbody * { font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
table.configuration tbody th { font-weight: 400; }
table.configuration tbody th, table.pairs tbody th { width: 40%; }
table.configuration td { overflow-wrap: anywhere; }
table.tests td.value { white-space: normal; }
table.tests td, table.tests th { padding-right: .5rem; }
ol.papers li { margin-bottom: .5rem; }
footer { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--muted);
  font-size: .85rem; }
@media (max-width: 40rem) { html { font-size: 15px; } body { padding: 1.2rem 1rem 3rem; } }
@media print {
  @page { margin: 16mm 15mm; }
  html { font-size: 10.5pt; }
  body { max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.8rem; }
  tr, .verdict, .label, .notice { break-inside: avoid; }
  thead { display: table-header-group; }
  .scroll { overflow: visible; }
  figure { margin-bottom: 1.2rem; }
  figure img { max-width: 14cm; margin: 0 auto; }
  figcaption { max-width: none; }
  tr.group { break-after: avoid; }
  table.short { break-inside: avoid; }
  .verdict, .label, .notice { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
"""CSS of the page, without any external resource."""
