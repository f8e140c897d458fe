"""The report as one HTML file that needs nothing else: figures, style and words are all inside."""

from collections.abc import Iterable, Sequence
from html import escape
from numbers import Real
from string import Template
from typing import Any

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.mechanisms.participation import FixedCohort
from fl_audit.mechanisms.standpoint import Place as Standing
from fl_audit.report.contents import RunContents
from fl_audit.report.finished_run import RunFacts
from fl_audit.report.headline import verdict_of
from fl_audit.report.page.first_screen import first_screen
from fl_audit.report.page.markup import html_drawing, html_figure, scrolling
from fl_audit.report.page.papers import papers_of
from fl_audit.report.page.pictures import DrawnPicture
from fl_audit.report.page.shell import html_page
from fl_audit.report.section import Entry, Place, Table
from fl_audit.report.sections.law import SIMULATION_NOTICE, scaling_text
from fl_audit.report.sections.registry import measured
from fl_audit.report.sections.verdict import banner
from fl_audit.report.wording import MISSING, number_text, percent, plural

BODY = Template("""$first
<h2>In words</h2>
$words
$covers
<h2>Figures</h2>
$figures
$tests
<div class="bulk">
<h2>All numbers, and what each rests on</h2>
$numbers
<h2>Configuration</h2>
$configuration
</div>
<p class="lean">All numbers with what each rests on, and the configuration, stand in report.html beside this file.</p>
<h2>Papers used</h2>
<ol class="papers">
$papers
</ol>""")


def render_html(contents: RunContents, pictures: Sequence[DrawnPicture], with_drawings: bool = True) -> str:
    """Return the whole report as one HTML page.

    Parameters
    ----------
    contents
        What the report is made of.
    pictures
        The figures, in the order in which they shall appear.
    with_drawings
        Whether figures stand in the page as drawings; else as pictures, as a PDF needs them.
    """
    game, tests = contents.facts.game, _tables(contents, Place.TESTS)
    body = BODY.substitute(
        first=first_screen(contents),
        words="\n".join(f"<p>{escape(text)}</p>" for text in paragraphs(contents)),
        covers=_covers(contents),
        figures="\n".join(_figure(number, one, with_drawings) for number, one in enumerate(pictures, start=1)),
        tests=f"<h2>The tests of the promise</h2>\n{tests}" if tests else "",
        numbers=_evidence_table(contents) + _tables(contents, Place.NUMBERS),
        configuration=_tables(contents, Place.CONFIGURATION),
        papers="\n".join(f"<li>{escape(paper)}</li>" for paper in papers_of(contents)),
    )
    return html_page(
        title=f"Privacy audit: {game.data.name}, {game.model}",
        heading="Privacy audit report",
        subtitle=_subtitle(contents),
        opening="",
        body=body,
        footer=f"Written by fl_audit from this run's own files. {SIMULATION_NOTICE}",
    )


def opening(contents: RunContents) -> str:
    """Return what a report says in words, as plain text: no Greek, no formulas, no terms of the trade."""
    return " ".join(paragraphs(contents))


def paragraphs(contents: RunContents) -> list[str]:
    """Return the paragraphs that a report says in words: of each finding, then what is concluded."""
    found = measured(contents)
    sentences = [section.sentence(numbers, contents) for section, numbers in found if section.sentence is not None]
    closings = [section.closing(numbers, contents) for section, numbers in found if section.closing is not None]
    return [text for text in (*sentences, *closings) if text]


def _subtitle(contents: RunContents) -> str:
    facts, game = contents.facts, contents.facts.game
    parts = (
        f"{game.data.name}, {plural(game.records, 'record')} at {plural(game.clients, 'client')}",
        f"model {game.model}",
        plural(game.rounds, "round"),
        plural(contents.run.worlds, "world"),
        scaling_text(facts) if facts.game.law.weighs_exactly else "noise in every step of the clients' training",
        *_laws(facts),
        *(["early stopping"] if contents.run.chosen_releases is not None else []),
    )
    return " · ".join(parts)


def _laws(facts: RunFacts) -> list[str]:
    """Return what sets this release law apart from the plainest one, in a few words each."""
    law, words = facts.game.law, facts.words
    parts = {
        "each client protected as a whole": words.one == "client",
        f"{words.many} sampled at rate {number_text(facts.sampling_rate)}": facts.is_sampled,
        "cohorts take turns": isinstance(law.participation, FixedCohort),
        f"{law.noise.kind} noise": law.adds_noise and law.noise.kind not in {"central", "inside-training"},
        "adaptive clipping": law.is_adaptive,
        "insider at the server": facts.game.standpoint.place is Standing.SERVER,
        plural(facts.game.insiders, "insider"): facts.game.insiders > 1,
    }
    return [part for part, applies in parts.items() if applies]


_ABOUT = {
    Verdict.VIOLATED: "What an audit like this covers",
    Verdict.CONSISTENT: "What this verdict covers",
    Verdict.INCONCLUSIVE: "What a verdict would cover",
    Verdict.NOT_AUDITED: "Why there is no verdict",
    Verdict.NO_PROMISE: "Why there is no verdict",
}


def _covers(contents: RunContents) -> str:
    numbers = verdict_of(contents)
    basis, scope = banner(numbers).basis, numbers.scope
    about = _ABOUT[numbers.verdict]
    text = f"{scope} {basis}" if basis and basis not in scope else scope
    return (
        f'<p class="notice"><strong>{about}.</strong> {escape(text)}</p>\n'
        f'<p class="notice"><strong>Simulation.</strong> {escape(SIMULATION_NOTICE)}</p>'
    )


def _figure(number: int, picture: DrawnPicture, with_drawings: bool) -> str:
    words = picture.caption
    text = escape(words.text).replace(" = ", "&nbsp;=&nbsp;")
    full = f"<strong>Figure {number}. {escape(words.title)}.</strong> {text}"
    name = f"figure-{picture.name}"
    if picture.svg and with_drawings:
        return html_drawing(picture.svg, words.alternative, full, name)
    return html_figure(picture.png, words.alternative, full, name)


def _value(value: Any, is_share: bool = False) -> str:
    """Return a number for display, wrapped so that its full precision stays in the page."""
    if value is None:
        return escape(MISSING)
    shown = percent(float(value)) if is_share else number_text(value)
    return f'<data value="{escape(str(value))}">{escape(shown)}</data>'


def _table(title: str, columns: tuple[str, ...], rows: Iterable[str], kind: str = "numbers") -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "\n".join(rows)
    table = (
        f'<table class="{kind}"><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )
    return f"{scrolling(table, title)}\n"


_ENTRY_COLUMNS = ("Number", "Value", "Accountant", "Confidence", "Method", "Assumption")


def _evidence_table(contents: RunContents) -> str:
    columns = _ENTRY_COLUMNS
    rows = []
    for section, numbers in measured(contents):
        entries = [] if section.entries is None else section.entries(numbers, contents)
        if entries:
            heading = escape(section.heading)
            rows.append(f'<tr class="group"><th colspan="{len(columns)}" scope="rowgroup">{heading}</th></tr>')
            rows.extend(_entry_row(entry) for entry in entries)
    return _table("Promise and evidence", columns, rows)


def _entry_row(entry: Entry) -> str:
    texts = (entry.accountant, entry.confidence, entry.method, entry.assumption)
    asides = "".join(
        f'<td class="aside" data-label="{label}">{escape(text)}</td>'
        for label, text in zip(_ENTRY_COLUMNS[2:], texts, strict=True)
    )
    value = f'<td class="value" data-label="Value">{_value(entry.value, entry.is_share)}</td>'
    return f'<tr><th scope="row">{escape(entry.name)}</th>{value}{asides}</tr>'


def _tables(contents: RunContents, place: Place) -> str:
    """Return the sections' own tables that stand in one place."""
    tables = [
        table
        for section, numbers in measured(contents)
        if section.tables is not None
        for table in section.tables(numbers, contents)
        if table.place is place
    ]
    return "".join(_own_table(table) for table in tables)


def _own_table(table: Table) -> str:
    rows = (
        f'<tr><th scope="row">{_cell(row[0])}</th>{_data_cells(table.columns[1:], row[1:])}</tr>' for row in table.rows
    )
    return _table(table.title, table.columns, rows, table.look)


def _cell(cell: Any) -> str:
    return escape(cell) if isinstance(cell, str) else _value(cell)


def _data_cells(columns: Sequence[str], cells: Sequence[Any]) -> str:
    return "".join(_data_cell(column, cell) for column, cell in zip(columns, cells, strict=True))


def _data_cell(column: str, cell: Any) -> str:
    kind = ' class="value"' if cell is None or isinstance(cell, Real) else ""
    return f'<td{kind} data-label="{escape(column)}">{_cell(cell)}</td>'
