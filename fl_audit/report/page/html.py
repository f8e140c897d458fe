"""The report as one HTML file that needs nothing else: figures, style and words are all inside."""

import json
from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import Any

from fl_audit.report.contents import RunContents
from fl_audit.report.page.markup import html_figure
from fl_audit.report.page.shell import html_page
from fl_audit.report.sections.captions import caption
from fl_audit.report.sections.narrative import SIMULATION_NOTICE, banner, not_private_label, opening
from fl_audit.report.sections.tables import Entry, evidence
from fl_audit.report.wording import MISSING, number_text, percent, plural, relation_text

PAPERS = (
    "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to choose and "
    "audit epsilon in differentially private deep learning. PVLDB 14(13). For the insider, the bounds on belief and "
    "advantage, and the empirical epsilon.",
    "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24. For the risk of one "
    "released model.",
    "S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha (2018). Privacy risk in machine learning: Analyzing the connection "
    "to overfitting. IEEE Computer Security Foundations Symposium. For the membership adversary and its first bound.",
    "T. Humphries et al. (2023). Investigating membership inference attacks under data dependencies. IEEE Computer "
    "Security Foundations Symposium. For its bound by epsilon and delta; it follows from P. Kairouz, S. Oh, "
    "P. Viswanath (2015), The composition theorem for differential privacy, ICML.",
    "J. Dong, A. Roth, W. J. Su (2022). Gaussian differential privacy. Journal of the Royal Statistical Society, "
    "Series B 84(1). For the law of the log-odds and the exact advantage.",
    "I. Mironov (2017). Rényi differential privacy. IEEE Computer Security Foundations Symposium. For accounting over "
    "the rounds.",
)
"""The papers whose methods a report uses."""

BODY = Template("""$verdict
$labels
<h2>Figures</h2>
$figures
<h2>All numbers, and what each rests on</h2>
$numbers
<h2>Configuration</h2>
$configuration
<h2>Papers used</h2>
<ol class="papers">
$papers
</ol>""")


def render_html(contents: RunContents, figures: Mapping[str, bytes]) -> str:
    """Return the whole report as one HTML page.

    Parameters
    ----------
    contents
        What the report is made of.
    figures
        PNG bytes of each figure by name, in the order in which they shall appear.
    """
    law = contents.law
    body = BODY.substitute(
        verdict=_verdict(contents),
        labels=_labels(contents),
        figures="\n".join(_figure(i, name, png, contents) for i, (name, png) in enumerate(figures.items(), start=1)),
        numbers=_evidence_table(contents)
        + _innovation_table(contents)
        + _client_table(contents)
        + _timing_table(contents),
        configuration=_law_table(contents) + _configuration_table(contents.configuration),
        papers="\n".join(f"<li>{escape(paper)}</li>" for paper in PAPERS),
    )
    return html_page(
        title=f"Privacy audit: {law.data_name}, {law.model}",
        heading="Privacy audit report",
        subtitle=_subtitle(contents),
        opening=opening(contents),
        body=body,
        footer=f"Written by fl_audit from this run's own files. {SIMULATION_NOTICE}",
    )


def _subtitle(contents: RunContents) -> str:
    law = contents.law
    parts = (
        f"{law.data_name}, {plural(law.records, 'record')} at {plural(law.clients, 'client')}",
        f"model {law.model}",
        plural(law.rounds, "round"),
        plural(len(contents.worlds), "world"),
        f"{law.scaling} sensitivity" if law.has_noise else "no clipping, no noise",
        *((f"records sampled at rate {number_text(law.sampling_rate)}",) if law.sampling_rate < 1 else ()),
    )
    return " · ".join(parts)


def _verdict(contents: RunContents) -> str:
    word, line = banner(contents)
    kind = {"Violated": "violated", "Consistent": "consistent"}.get(word, "open")
    sign = {"violated": "✗", "consistent": "✓", "open": "?"}[kind]
    scope = str(contents.value("scope") or "")
    covers = f'<p class="notice"><strong>What this verdict covers.</strong> {escape(scope)}</p>' if scope else ""
    method, assumption = (contents.value("empirical_epsilon", key) or MISSING for key in ("method", "assumption"))
    basis = (
        ""
        if kind == "open"
        else f"Method: {method}, at level {number_text(contents.violation_level)}. Assumption: {assumption}"
    )
    return (
        f'<section class="verdict {kind}" aria-label="Verdict"><span class="sign" aria-hidden="true">{sign}</span>'
        f'<div><p class="word">Verdict: {escape(word)}</p><p>{escape(line)} {escape(basis)}</p></div></section>\n'
        f"{covers}"
    )


def _labels(contents: RunContents) -> str:
    notice = f'<p class="notice"><strong>Simulation.</strong> {escape(SIMULATION_NOTICE)}</p>'
    label = not_private_label(contents.law)
    return f'<p class="label">⚠ {escape(label)}</p>\n{notice}' if label else notice


def _figure(index: int, name: str, png: bytes, contents: RunContents) -> str:
    words = caption(name, contents)
    text = escape(words.text).replace(" = ", "&nbsp;=&nbsp;")
    full = f"<strong>Figure {index}. {escape(words.title)}.</strong> {text}"
    return html_figure(png, words.alternative, full, f"figure-{name}")


def _value(value: Any, is_share: bool = False) -> str:
    """Return a number for display, wrapped so that its full precision stays in the page."""
    if value is None:
        return escape(MISSING)
    shown = percent(float(value)) if is_share else number_text(value)
    return f'<data value="{escape(str(value))}">{escape(shown)}</data>'


def _cells(texts: Iterable[str], tag: str = "td", kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return "".join(f"<{tag}{attribute}>{escape(text)}</{tag}>" for text in texts)


def _table(title: str, columns: tuple[str, ...], rows: Iterable[str], kind: str = "numbers") -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table class="{kind}"><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>\n"
    )


def _entry_row(entry: Entry) -> str:
    asides = _cells((entry.accountant, entry.confidence, entry.method, entry.assumption), kind="aside")
    value = f'<td class="value">{_value(entry.value, entry.is_share)}</td>'
    return f'<tr><th scope="row">{escape(entry.name)}</th>{value}{asides}</tr>'


def _evidence_table(contents: RunContents) -> str:
    columns = ("Number", "Value", "Accountant", "Confidence", "Method", "Assumption")
    rows = []
    for heading, entries in evidence(contents).items():
        rows.append(f'<tr class="group"><th colspan="{len(columns)}" scope="rowgroup">{escape(heading)}</th></tr>')
        rows.extend(_entry_row(entry) for entry in entries)
    return _table("Promise and evidence", columns, rows)


def _innovation_table(contents: RunContents) -> str:
    groups = contents.value("innovations", "groups") or []
    if not groups:
        return ""
    holds = contents.value("innovations", "holds")
    finding = MISSING if holds is None else ("yes" if holds else "NO")
    keys = ("count", "mean", "variance", "serial_correlation", "ks_p")
    rows = [
        f'<tr><th scope="row">b = {escape(str(group.get("bit")))}</th>'
        + "".join(f'<td class="value">{_value(group.get(key))}</td>' for key in keys)
        + "</tr>"
        for group in groups
    ]
    title = f"Innovations against independent N(0, 1): the law holds: {finding}"
    columns = ("Worlds", "Count", "Mean (law: 0)", "Variance (law: 1)", "Serial correlation (law: 0)",
               "p-value, Kolmogorov-Smirnov")  # fmt: skip
    return _table(title, columns, rows, "short")


def _client_table(contents: RunContents) -> str:
    clients = contents.value("client_epsilon_star") or []
    if not clients:
        return ""
    keys = ("worlds", "low", "median", "high", "max")
    rows = [
        f'<tr><th scope="row">{_value(client.get("client"))}</th>'
        + "".join(f'<td class="value">{_value(client.get(key))}</td>' for key in keys)
        + "</tr>"
        for client in clients
    ]
    title = "Epsilon* of each client's own shard at the last release (nats); where unbounded, not determined"
    return _table(title, ("Client", "Worlds with 2 records or more", "5 %", "Median", "95 %", "Largest"), rows, "short")


def _timing_table(contents: RunContents) -> str:
    names = {
        "setup_seconds": "Setup (s)",
        "training_seconds": "Training (s)",
        "worlds_per_second": "Speed (worlds per second)",
        "engine": "Engine",
    }
    timing = contents.value("timing") or {}
    rows = [f'<tr><th scope="row">{escape(name)}</th><td class="value">{_value(timing.get(key))}</td></tr>'
            for key, name in names.items()]  # fmt: skip
    return _table("Time", ("What", "Value"), rows, "short pairs")


def _law_table(contents: RunContents) -> str:
    law = contents.law
    facts: dict[str, Any] = {
        "Neighbours": f"{law.relation}: {relation_text(law.relation)}",
        "Noise scaled to": f"{law.scaling} sensitivity" if law.has_noise else "no noise",
        "Private release": law.is_private_release,
        "Clipping norm C": law.clipping_norm if law.has_noise else "no clipping",
        "Global sensitivity": law.global_sensitivity,
        "Sampling rate of records": law.sampling_rate,
        "Prior belief in D": percent(law.prior),
        "Optimizer": law.optimizer,
        "Released to clients": law.view,
        "Partition": law.partition,
    }
    rows = [f'<tr><th scope="row">{escape(name)}</th><td>{_value(value)}</td></tr>' for name, value in facts.items()]
    return _table("The release law", ("Fact", "Value"), rows, "short pairs")


def _configuration_table(configuration: Mapping[str, Any]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in _flat(configuration)
    ]
    return _table("Resolved configuration", ("Setting", "Value"), rows, "configuration")


def _flat(section: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return all settings as dotted name and JSON text."""
    settings: list[tuple[str, str]] = []
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            settings.extend(_flat(value, f"{name}."))
        else:
            settings.append((name, json.dumps(value, ensure_ascii=False, default=str)))
    return settings
