"""Render the report as one HTML file without external resources: a page, and an appendix that is collapsed at first."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fl_audit.audits.common.findings_privacy_units import PrivacyUnitsFinding
from fl_audit.audits.common.sections_accuracy import RELEASED_MODEL
from fl_audit.audits.common.sections_data_protection_officer import OFFICER, OfficerAnnex
from fl_audit.audits.common.sections_mechanism import mechanism_tables
from fl_audit.audits.common.sections_privacy_units import LEVELS
from fl_audit.audits.identifiability.findings_insider import InsiderFinding
from fl_audit.audits.membership.attacks.registry import attack_named
from fl_audit.audits.membership.findings_attacks import AllAttacksFinding
from fl_audit.audits.membership.findings_membership_adversary import FinalModelMembershipFinding
from fl_audit.audits.page.engineer_part import engineer_part
from fl_audit.audits.page.first_screen import first_screen
from fl_audit.audits.page.ordinary_training import is_shown_as_training
from fl_audit.audits.sections import VERDICT, page_rows, sections_with_findings
from fl_audit.errors import in_a_line
from fl_audit.html_tables import Markup, exactly_html
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.report.figure_style import to_png, to_svg
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
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.report.stylesheet import DRAWN
from fl_audit.report.template_files import page_part
from fl_audit.user_modules import title_of_named
from fl_audit.verdict.sections_verdict import verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.verdict.verdict_messages import broken_tests
from fl_audit.words import percent, plural

_FONT = re.compile(r"font: (?:(\w+) )?([\d.]+)px [^;\"]+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"")
_NOT_IN_A_PAGE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class DrawnPicture:
    """A drawn figure of a report as PNG and as SVG, with its title and caption."""

    name: str  # name of the section that the figure belongs to
    png: bytes  # empty if the figure could not be drawn; the caption says why
    title: str
    caption: str
    svg: str = ""  # SVG element for an HTML page


def draw_all(contents: ReportContents) -> list[DrawnPicture]:
    """Return the drawn figures of all sections that have findings and a figure, in the order of the report."""
    pictures = []
    for section, numbers in sections_with_findings(contents):
        if (picture := section.picture) is None:
            continue
        try:
            if picture.applies(numbers, contents):
                pictures.append(_drawn(section.name, picture, numbers, contents))
        except Exception as error:  # one figure that cannot be drawn may not lose the report
            reason = f"It could not be drawn because of an error ({in_a_line(error)})."
            pictures.append(DrawnPicture(section.name, b"", picture.title, reason))
    return pictures


def _drawn(name: str, picture: FindingFigure[Any], numbers: Any, contents: ReportContents) -> DrawnPicture:
    figure = picture.figure(numbers, contents)
    caption = picture.caption(numbers, contents)
    png = to_png(figure)
    figure.set_layout_engine("none")  # the layout of the first is right for the second
    return DrawnPicture(name, png, picture.title, caption, _page_svg(figure, name))


def _page_svg(figure: Figure, name: str) -> str:
    """Return a figure as a compact SVG element with the CSS colours of the page; equal figures give equal text."""
    text = to_svg(figure, name)
    text = _NOT_IN_A_PAGE.sub("", text[text.index("<svg") :])
    box = re.search(r'viewBox="[^"]+"', text)
    assert box is not None, "matplotlib writes a view box"
    text = f'<svg {box[0]} role="img" aria-label="$label">' + text[text.index(">") + 1 :]
    text = _with_own_names(text, name)
    text = re.sub(r"; font-family: [^;\"]+", "", text)
    text = _FONT.sub(lambda match_: f"font-weight: {match_[1] or 400}; font-size: {match_[2]}px", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("> <", "><")
    for colour, variable in DRAWN.items():
        text = text.replace(f": {colour}", f": var(--{variable})")
    return text.strip()


def _with_own_names(text: str, name: str) -> str:
    """Return SVG text whose identifiers begin with `name`, so that several figures can stand on one page.

    Identifiers to which nothing refers are removed.
    """
    used = {first or second for first, second in _REFERENCE.findall(text)}
    text = _REFERENCE.sub(lambda match_: match_[0].replace("#", f"#{name}-"), text)
    return re.sub(r' id="([^"]+)"', lambda match_: f' id="{name}-{match_[1]}"' if match_[1] in used else "", text)


_IN_CSF = "IEEE Computer Security Foundations Symposium"
_IN_SP = "IEEE Symposium on Security and Privacy"
_IN_JRSSB = "Journal of the Royal Statistical Society, Series B"


def papers_of(contents: ReportContents) -> list[str]:
    """Return the papers whose methods a run used, each as a line with reference, use and DOI."""
    papers = [(citation, use, doi) for citation, use, doi, is_used in _PAPERS if is_used(contents)]
    return [f"{citation}. {use}. doi:{doi}" for citation, use, doi in (*papers, *_papers_of_attacks(contents))]


def _papers_of_attacks(contents: ReportContents) -> list[tuple[str, str, str]]:
    """Return the papers of the attacks that have results, each once: citation, use and DOI."""
    finding = contents.find(AllAttacksFinding)
    papers = [] if finding is None else [attack_named(name).paper for name in finding.outsiders]
    return [(paper.citation, paper.use, paper.identifier) for paper in dict.fromkeys(papers) if paper is not None]


def _has(kind: type) -> Callable[[ReportContents], bool]:
    return lambda contents: contents.find(kind) is not None


def _has_laplace_noise(contents: ReportContents) -> bool:
    return contents.plan.federation.mechanism.noise.distribution is NoiseDistribution.LAPLACE


def _accounts_by_renyi(contents: ReportContents) -> bool:
    guarantee = contents.plan.guarantee
    return guarantee is not None and guarantee.accountant in (Accountant.RDP, Accountant.RDP_CLASSIC)


_PAPERS: tuple[tuple[str, str, str, Callable[[ReportContents], bool]], ...] = (
    (
        "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to "
        "choose and audit epsilon in differentially private deep learning. PVLDB 14(13)",
        "For the insider, the bounds on belief and advantage, and the empirical epsilon",
        "10.14778/3484224.3484231",
        lambda contents: contents.plan.has_guarantee,
    ),
    (
        "C. J. Clopper, E. S. Pearson (1934). The use of confidence or fiducial limits illustrated in the case of "
        "the binomial. Biometrika 26(4)",
        "For the interval of counted wins",
        "10.1093/biomet/26.4.404",
        _has(InsiderFinding),
    ),
    (
        "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24",
        "For the risk of one released model",
        "10.48550/arXiv.2307.11280",
        lambda contents: contents.plan.star is not None,
    ),
    (
        "S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha (2018). Privacy risk in machine learning: Analyzing the "
        f"connection to overfitting. {_IN_CSF}",
        "For the membership adversary and its first bound",
        "10.1109/CSF.2018.00027",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"T. Humphries et al. (2023). Investigating membership inference attacks under data dependencies. {_IN_CSF}",
        "For its bound by epsilon and delta; it follows from P. Kairouz, S. Oh, P. Viswanath (2015), "
        "The composition theorem for differential privacy, ICML",
        "10.1109/CSF57540.2023.00013",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"J. Dong, A. Roth, W. J. Su (2022). Gaussian differential privacy. {_IN_JRSSB} 84(1)",
        "For the distribution of the log-odds and the exact advantage",
        "10.1111/rssb.12454",
        lambda contents: contents.plan.has_guarantee and contents.plan.federation.mechanism.noise.has_gaussian_llr,
    ),
    (
        "C. Dwork, F. McSherry, K. Nissim, A. Smith (2006). Calibrating noise to sensitivity in private data analysis. "
        "TCC",
        "For the guarantee of Laplace noise",
        "10.1007/11681878_14",
        _has_laplace_noise,
    ),
    (
        f"I. Waudby-Smith, A. Ramdas (2024). Estimating means of bounded random variables by betting. {_IN_JRSSB} "
        "86(1)",
        "For the interval of the mean advantage of the membership adversary",
        "10.1093/jrsssb/qkad009",
        _has(FinalModelMembershipFinding),
    ),
    (
        f"I. Mironov (2017). Rényi differential privacy. {_IN_CSF}",
        "For accounting over the rounds",
        "10.1109/CSF.2017.11",
        _accounts_by_renyi,
    ),
)
"""Papers: authors, year and title; their use here; the identifier; and whether a run used the paper.

Attacks name their papers themselves."""


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
    shown = [figures[picture.name] for picture in order if picture.name in on_page]
    rows = [(*_row_cells(row), row.reading_text) for row in page_rows(contents)]
    body = [
        first_screen(contents),
        engineer_part(contents),
        heading_html("In words", "words"),
        *map(paragraph_html, paragraphs(contents)),
        _failed(contents, "in the appendix" if with_appendix else "in the appendix of report.html"),
        heading_html("Measured beside claimed", "numbers"),
        _rows_table((*_ROW_COLUMNS, "Reading"), rows),
        joined_html(heading_html("Figures", "figures"), block_html("".join(shown), "figures")) if shown else "",
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
    broken = broken_tests(verdict_of(contents).judgement, contents.words)
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
    numbers = contents.find(OfficerAnnex)
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
