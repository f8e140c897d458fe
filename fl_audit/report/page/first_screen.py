"""The first screen of a report: the verdict in words, three numbers, a gauge, what to do next, where it comes from."""

from dataclasses import replace
from html import escape

from fl_audit.report.finding import RunContents
from fl_audit.report.headline import Fact, facts_of, next_step, warnings_of
from fl_audit.report.page.gauge import gauge_html
from fl_audit.report.page.shell import banner_html, next_html
from fl_audit.report.sections.origin import provenance_line
from fl_audit.report.sections.verdict import banner


def first_screen(contents: RunContents) -> str:
    """Return what fits on the first screen, and on the first page of paper, as HTML."""
    words = banner(contents)
    facts = "\n".join(fact_html(fact) for fact in facts_of(contents))
    labels = "".join(
        f'<p class="label"><span aria-hidden="true">⚠ </span>{escape(line)}</p>\n' for line in warnings_of(contents)
    )
    verdict = banner_html(replace(words, word=f"Verdict: {words.word}"))
    return (
        f'<div class="first">\n{verdict}\n{labels}<dl class="facts">\n{facts}\n</dl>\n{gauge_html(contents)}\n'
        f'{next_html(next_step(contents))}\n<p class="origin">{escape(provenance_line(contents.run.provenance))}</p>\n'
        "</div>"
    )


def fact_html(fact: Fact) -> str:
    """Return one number of a first screen."""
    return (
        f'<div><dt>{escape(fact.name)}</dt><dd><span class="figure">{escape(fact.value)}</span> '
        f'<span class="note">{escape(fact.note)}</span></dd></div>'
    )
