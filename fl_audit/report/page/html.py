"""The report as one HTML file that needs nothing else: a page, and an appendix that is folded on a screen."""

from collections.abc import Sequence
from html import escape
from typing import Any

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.notebook import Markup
from fl_audit.report.finding import Row, RunContents, Section, Table
from fl_audit.report.law_words import SIMULATION_NOTICE, scaling_text
from fl_audit.report.page.first_screen import first_screen
from fl_audit.report.page.markup import html_figure, html_page, page_table, value_html
from fl_audit.report.page.papers import papers_of
from fl_audit.report.page.pictures import DrawnPicture
from fl_audit.report.sections.law import law_tables
from fl_audit.report.sections.promise import person_text
from fl_audit.report.sections.registry import measured, page_rows
from fl_audit.report.sections.verdict import verdict_of
from fl_audit.report.tests_table import broken_tests
from fl_audit.report.wording import Reading, percent, plural
from fl_audit.user_modules import title_of_named

ON_ITS_WORD = "Computed as if the claimed noise were there. The promise was broken, so nothing here acquits."
"""Above what takes a promise at its word that was broken."""
MOST_FAILED = 4  # failed tests that the page names; the appendix has all of them
_ALONE = "shows no breach by itself"  # what is said of a number within the promise where another broke it


def render_html(
    contents: RunContents, pictures: Sequence[DrawnPicture], on_paper: bool = False, with_appendix: bool = True
) -> str:
    """Return the whole report as one HTML page.

    Parameters
    ----------
    contents, pictures
        What the report is made of, and the figures, in the order in which they shall appear.
    on_paper
        Whether it is made for paper: pictures instead of drawings, the configuration, and a place to sign.
    with_appendix
        Whether the appendix follows.
    """
    game = contents.facts.game
    on_page = {section.name for section, _ in measured(contents) if _stands_on_page(contents, section)}
    order = sorted(pictures, key=lambda picture: picture.name not in on_page)  # those of the page first
    figures = {picture.name: _figure(place, picture, on_paper) for place, picture in enumerate(order, start=1)}
    shown = [figures[picture.name] for picture in order if picture.name in on_page]
    rows = [(*_row_cells(row), _reading(row, _is_broken(contents))) for row in page_rows(contents)]
    body = [
        first_screen(contents),
        '<h2 id="words">In words</h2>',
        *(f"<p>{escape(text)}</p>" for text in paragraphs(contents)),
        '<h2 id="person">What it means for a person in the data</h2>',
        f"<p>{escape(person_text(contents))}</p>",
        _failed(contents),
        '<h2 id="numbers">Measured beside promised</h2>',
        _rows_table((*_ROW_COLUMNS, "Reading"), rows),
        f'<h2 id="figures">Figures</h2>\n<div class="figures">{"".join(shown)}</div>' if shown else "",
        _configuration(contents) if on_paper else "",
        f'<p class="notice"><strong>Simulation.</strong> {escape(SIMULATION_NOTICE)}</p>',
        _appendix(contents, figures) if with_appendix else "",
    ]
    return html_page(
        title=f"Privacy audit: {game.data.title}, {title_of_named(game.model)}",
        heading="Privacy audit report",
        subtitle=_subtitle(contents),
        opening="",
        body="\n".join(part for part in body if part),
        footer="From this run's own files.",
    )


def paragraphs(contents: RunContents) -> list[str]:
    """Return the sentences of the findings whose place is the page."""
    return [
        text
        for section, numbers in measured(contents)
        if _stands_on_page(contents, section) and (text := section.sentence(numbers, contents))
    ]


def _is_broken(contents: RunContents) -> bool:
    return verdict_of(contents).verdict is Verdict.VIOLATED


def _stands_on_page(contents: RunContents, section: Section[Any]) -> bool:
    """Whether sentence and figure stand on the page: nothing there takes a broken promise at its word."""
    return section.on_page and not (section.trusts and _is_broken(contents))


def _subtitle(contents: RunContents) -> str:
    facts, game = contents.facts, contents.facts.game
    parts = (
        f"{game.data.title}, {plural(game.records, 'record')} at {plural(game.clients, 'client')}",
        f"model {title_of_named(game.model)}",
        plural(game.rounds, "round"),
        plural(contents.run.worlds, "world"),
        scaling_text(facts) if facts.game.law.weighs_exactly else "noise in every step of the clients' training",
        *(["early stopping"] if contents.run.chosen_releases is not None else []),
    )
    return " · ".join(parts)


def _figure(number: int, picture: DrawnPicture, on_paper: bool) -> str:
    caption = escape(picture.caption).replace(" = ", "&nbsp;=&nbsp;")
    full = f"<strong>Figure {number}. {escape(picture.title)}.</strong> {caption}"
    shown = (not on_paper and picture.svg) or picture.png
    return html_figure(shown, f"{picture.title}. {picture.caption}", full, f"figure-{picture.name}")


def _failed(contents: RunContents) -> str:
    broken = broken_tests(verdict_of(contents).judgement, contents.words)
    if not broken:
        return ""
    lines = "".join(
        f"<li><strong>{escape(row.title)}.</strong> {escape(row.sentence)}</li>" for row in broken[:MOST_FAILED]
    )
    left = len(broken) - MOST_FAILED
    more = f"<p>{plural(left, 'more failed test')} in the appendix.</p>" if left > 0 else ""
    return f'<h2 id="failed">What failed</h2>\n<ul>{lines}</ul>{more}'


_ROW_COLUMNS = ("Number", "Value", "Interval", "Promised")


def _rows_table(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """Return a table without the columns in which no row says anything; nothing of no rows."""
    told = [place for place in range(len(columns)) if any(row[place] != "" for row in rows)]
    if not rows:
        return ""
    return page_table([columns[place] for place in told], [[row[place] for place in told] for row in rows])


def _reading(row: Row, is_broken: bool) -> str:
    if row.reading is None:
        return ""
    return _ALONE if is_broken and row.reading is Reading.WITHIN else str(row.reading)


def _row_cells(row: Row) -> tuple[Any, ...]:
    limit, sign = "", "≥" if row.is_least else "≤"
    if row.limit is not None:
        limit = Markup(f"{sign} {value_html(row.limit, row.is_share, row.digits)}")
    return row.name, Markup(value_html(row.value, row.is_share, row.digits)), _interval(row), limit


def _interval(row: Row) -> str:
    if row.confidence is None:
        return ""
    ends = " to ".join(
        "no limit" if end is None else value_html(end, row.is_share, row.digits) for end in (row.low, row.high)
    )
    return Markup(f"{ends} at {percent(row.confidence)}" if row.confidence < 1 else ends)


def _configuration(contents: RunContents) -> str:
    lines = "".join(f"<div><span></span>{name}</div>" for name in ("Name", "Date", "Signature"))
    tables = "".join(map(_table, law_tables(contents.facts)))
    return (
        f'<h2 id="configuration">Configuration</h2>\n<div class="small-print">{tables}</div>\n'
        f'<div class="sign-off">{lines}</div>'
    )


def _appendix(contents: RunContents, figures: dict[str, str]) -> str:
    """Return every section with all that it has, folded, under a table of contents."""
    inside = [(section, _inside(section, numbers, contents, figures)) for section, numbers in measured(contents)]
    told = [(section, html) for section, html in inside if html]
    contents_list = "".join(f'<li><a href="#{section.name}">{escape(section.title)}</a></li>' for section, _ in told)
    parts = "\n".join(
        f'<details><summary>{escape(section.title)}</summary><div id="{section.name}">\n{html}</div></details>'
        for section, html in told
    )
    papers = "\n".join(f"<li>{escape(paper)}</li>" for paper in papers_of(contents))
    return (
        f'<h2 id="appendix">Appendix: every number, and what it rests on</h2>\n<nav aria-label="Appendix"><ol>'
        f'{contents_list}<li><a href="#papers">Papers used</a></li></ol></nav>\n{parts}\n'
        f'<details><summary>Papers used</summary><div id="papers"><ol class="papers">\n{papers}\n</ol></div></details>'
    )


def _inside(section: Section[Any], numbers: Any, contents: RunContents, figures: dict[str, str]) -> str:
    """Return all that a section has beside what stands on the page; nothing for nothing."""
    on_page = _stands_on_page(contents, section)
    text = "" if on_page else section.sentence(numbers, contents)
    rows = [
        (*_row_cells(row), f"{row.basis}. Reading: {row.reading}." if row.aside else row.basis)
        for row in section.rows(numbers, contents)
    ]
    body = [
        f'<p class="notice">{ON_ITS_WORD}</p>' if section.trusts and _is_broken(contents) else "",
        f"<p>{escape(text)}</p>" if text else "",
        figures.get(section.name, "") if not on_page else "",
        _rows_table((*_ROW_COLUMNS, "What it rests on"), rows),
        *map(_table, section.tables(numbers, contents)),
    ]
    return "\n".join(part for part in body if part)


def _table(table: Table) -> str:
    return page_table(table.columns, table.rows, title=table.title, look=str(table.look))
