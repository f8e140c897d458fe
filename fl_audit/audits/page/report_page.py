"""Render the report as one HTML file without external resources: a page, and an appendix that is collapsed at first."""

from collections.abc import Sequence
from typing import Any

from fl_audit.audits.common.sections_accuracy import RELEASED_MODEL
from fl_audit.audits.common.sections_data_protection_officer import OFFICER
from fl_audit.audits.common.sections_guarantee import GuaranteeFinding
from fl_audit.audits.common.sections_mechanism import mechanism_tables
from fl_audit.audits.common.sections_privacy_units import LEVELS, PrivacyUnitsFinding
from fl_audit.audits.page.drawn_pictures import DrawnPicture
from fl_audit.audits.page.engineer_part import engineer_part
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.audits.page.ordinary_training import is_shown_as_training
from fl_audit.audits.page.papers_used import papers_of
from fl_audit.audits.sections import VERDICT, page_rows, sections_with_findings
from fl_audit.html_tables import Markup, exactly_html
from fl_audit.report.mechanism_messages import SIMULATION_NOTICE
from fl_audit.report.page import (
    block_html,
    folded_html,
    heading_html,
    html_figure,
    html_page,
    joined_html,
    link_html,
    list_html,
    page_table,
    paragraph_html,
    strong_html,
    value_html,
)
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section, Table
from fl_audit.report.template_files import page_part
from fl_audit.user_modules import title_of_named
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.verdict.verdict_messages import broken_tests
from fl_audit.words import percent, plural

ON_ITS_WORD = "Computed as if the claimed noise were there. The guarantee was broken, so nothing here acquits anybody."
"""Note above numbers that assume the claimed noise, in a report on a violated guarantee."""
_SIMULATION = paragraph_html(strong_html("Simulation.", SIMULATION_NOTICE), "notice")
SIGN_OFF_TITLES = ("Signed by", "Role", "Date", "Signature")
_SIGN_OFF = page_part("sign_off", titles=SIGN_OFF_TITLES)
"""The line to sign on paper."""
MOST_FAILED = 4  # largest number of failed tests that the page names; the appendix names all of them


def render_html(
    contents: ReportContents, pictures: Sequence[DrawnPicture], on_paper: bool = False, with_appendix: bool = True
) -> str:
    """Return the whole report as the text of one HTML page."""
    federation = contents.plan.federation
    on_page = {section.name for section, _ in sections_with_findings(contents) if _stands_on_page(contents, section)}
    order = sorted(pictures, key=lambda picture: picture.name not in on_page)  # figures of the page first
    figures = {picture.name: _figure(index, picture, on_paper) for index, picture in enumerate(order, start=1)}
    page_figures = [figures[picture.name] for picture in order if picture.name in on_page]
    rows = [(*_row_cells(row), row.reading_text) for row in page_rows(contents)]
    body = [
        first_screen(contents),
        engineer_part(contents),
        heading_html("In words", "words"),
        *map(paragraph_html, paragraphs(contents)),
        _failed(contents, "in the appendix" if with_appendix else "in the appendix of report.html"),
        heading_html("Measured beside claimed", "numbers"),
        _rows_table((*_ROW_COLUMNS, "Reading"), rows),
        joined_html(heading_html("Figures", "figures"), block_html("".join(page_figures), "figures"))
        if page_figures
        else "",
        _annex(contents) if on_paper and not with_appendix else "",
        block_html(joined_html(_SIMULATION, _SIGN_OFF), "closing", "closing") if on_paper else _SIMULATION,
        _configuration(contents) if on_paper else "",
        _appendix(contents, figures) if with_appendix else "",
    ]
    kind = "Training" if is_shown_as_training(contents) else "Privacy audit"
    return html_page(
        title=f"{kind}: {federation.data.title}, {title_of_named(federation.model)}",
        heading=f"{kind} report",
        subtitle=_subtitle(contents),
        opening="",
        body=joined_html(*body),
        footer="From this run's own files.",
    )


def paragraphs(contents: ReportContents) -> list[str]:
    """Return the text of each section that is shown on the page, one paragraph for each section."""
    sections_shown = [
        (section, numbers)
        for section, numbers in sections_with_findings(contents)
        if _stands_on_page(contents, section)
    ]
    if is_shown_as_training(contents):  # the model leads, and the verdict that nobody asked for comes last
        sections_shown.sort(key=lambda pair: (pair[0].name != RELEASED_MODEL.name, pair[0].name == VERDICT.name))
    return [text for section, numbers in sections_shown if (text := section.sentence(numbers, contents))]


def _is_broken(contents: ReportContents) -> bool:
    return verdict_of(contents).verdict is Verdict.VIOLATED


def _stands_on_page(contents: ReportContents, section: Section[Any]) -> bool:
    """Return whether a section is shown on the page, and not only in the appendix.

    If the guarantee is violated, a section that assumes the guarantee is shown only in the appendix.
    """
    return section.on_page and not (section.trusts and _is_broken(contents))


def _subtitle(contents: ReportContents) -> str:
    federation = contents.plan.federation
    of_users = f" of {plural(federation.users, 'user')}" if federation.users else ""
    records = f"{plural(federation.records, 'record')}{of_users}"
    at = f"{federation.data.title}, {records} at {plural(federation.clients, 'participant')}"
    return f"{at} · model {title_of_named(federation.model)}"


def _figure(number: int, picture: DrawnPicture, on_paper: bool) -> str:
    full = page_part("numbered_figure", number=number, title=picture.title, caption=picture.caption)
    if not picture.png:
        return paragraph_html(full)
    image = (not on_paper and picture.svg) or picture.png
    return html_figure(image, f"{picture.title}. {picture.caption}", full, f"figure-{picture.name}")


def _failed(contents: ReportContents, where: str) -> str:
    broken = broken_tests(verdict_of(contents).judgement, contents.words, contents.noise)
    if not broken:
        return ""
    markup = list_html(strong_html(f"{row.title}.", row.sentence) for row in broken[:MOST_FAILED])
    remaining = len(broken) - MOST_FAILED
    remark = paragraph_html(f"{plural(remaining, 'more failed test')} {where}.") if remaining > 0 else ""
    return joined_html(heading_html("What failed", "failed"), markup, remark)


_ROW_COLUMNS = ("Number", "Value", "Interval", "Claimed")


def _rows_table(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """Return rows as an HTML table without columns of empty cells; empty text if there are no rows."""
    columns_shown = [index for index in range(len(columns)) if any(row[index] != "" for row in rows)]
    if not rows:
        return ""
    return page_table(
        [columns[column] for column in columns_shown], [[row[column] for column in columns_shown] for row in rows]
    )


def _row_cells(number: ReportNumber) -> tuple[Any, ...]:
    """Return name, value, interval and claim of a row, rounded together; the last two are empty if missing."""
    if number.limit is None and number.confidence is None:
        return number.name, Markup(value_html(number.value, number.is_share, number.digits)), "", ""
    value, low, high = number.cells
    interval = f"{low} to {high}"
    if number.confidence is not None and number.confidence < 1:
        interval += f" at {percent(number.confidence)}"
    claim = exactly_html(number.limit, f"{'≥' if number.is_least else '≤'} {number.shown.claim}")
    cells = "" if number.confidence is None else interval, "" if number.limit is None else claim
    return number.name, value, *map(Markup, cells)


def _configuration(contents: ReportContents) -> str:
    tables = "".join(map(_table, mechanism_tables(contents.plan)))
    return joined_html(heading_html("Configuration", "configuration"), block_html(tables, "small-print"))


def _annex(contents: ReportContents) -> str:
    """Return the annex for a data-protection officer; empty if the run has no such finding."""
    numbers = contents.find(GuaranteeFinding)
    levels = contents.find(PrivacyUnitsFinding)
    if numbers is None:
        return ""
    of_levels = [] if levels is None or contents.is_violated else LEVELS.tables(levels, contents)
    elements = [*map(_table, of_levels), _inside(OFFICER, numbers, contents, {})]
    return joined_html(heading_html("Annex: for a data-protection officer", "officer"), *elements)


def _appendix(contents: ReportContents, figures: dict[str, str]) -> str:
    """Return the HTML of the appendix: a list of its sections, each section in full, and the papers used."""
    inside = [
        (section, _inside(section, numbers, contents, figures)) for section, numbers in sections_with_findings(contents)
    ]
    sections_shown = [(section.name, section.title, html) for section, html in inside if html]
    sections_shown.append(("papers", "Papers used", page_part("papers", papers=papers_of(contents))))
    links = [link_html(name, title) for name, title, _ in sections_shown]
    markup = joined_html(*(folded_html(title, html, name) for name, title, html in sections_shown))
    heading = heading_html("Appendix: every number, and what it rests on", "appendix")
    return joined_html(heading, page_part("appendix", links=links, parts=markup))


def _inside(section: Section[Any], numbers: Any, contents: ReportContents, figures: dict[str, str]) -> str:
    """Return the text, figure, rows and tables of a section as HTML for the appendix; "" if nothing is left.

    The text and the figure are left out if the first page shows them.
    """
    on_page = _stands_on_page(contents, section)
    text = "" if on_page else section.sentence(numbers, contents)
    rows = [
        (*_row_cells(row), f"{row.basis.removesuffix('.')}. Reading: {row.reading_text}." if row.reading else row.basis)
        for row in section.read_rows(numbers, contents)
    ]
    body = [
        paragraph_html(ON_ITS_WORD, "notice") if section.trusts and _is_broken(contents) else "",
        paragraph_html(text) if text else "",
        figures.get(section.name, "") if not on_page else "",
        _rows_table((*_ROW_COLUMNS, "What it rests on"), rows),
        *map(_table, section.tables(numbers, contents)),
    ]
    return joined_html(*body)


def _table(table: Table) -> str:
    return page_table(table.columns, table.rows, title=table.title, look=str(table.look))
