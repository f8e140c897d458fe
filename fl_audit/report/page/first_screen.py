"""The first screen of a report: the verdict in words, three numbers, a gauge, what to do next, where it comes from."""

from html import escape

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.report.contents import RunContents
from fl_audit.report.headline import Fact, facts_of, next_step, verdict_of
from fl_audit.report.page.gauge import gauge_html
from fl_audit.report.provenance import provenance_line
from fl_audit.report.sections.law import not_private_label
from fl_audit.report.sections.verdict import banner
from fl_audit.report.wording import DASH

_LOOKS = {
    Verdict.VIOLATED: ("violated", "✗"),
    Verdict.CONSISTENT: ("consistent", "✓"),
    Verdict.INCONCLUSIVE: ("inconclusive", "?"),
    Verdict.NOT_AUDITED: ("open", DASH),
    Verdict.NO_PROMISE: ("open", DASH),
}


def first_screen(contents: RunContents) -> str:
    """Return what fits on the first screen, and on the first page of paper, as HTML."""
    facts = "\n".join(_fact(fact) for fact in facts_of(contents))
    label = not_private_label(contents.facts)
    warning = f'<p class="label"><span aria-hidden="true">⚠ </span>{escape(label)}</p>\n' if label else ""
    return (
        f'<div class="first">\n{_verdict(contents)}\n{warning}<dl class="facts">\n{facts}\n</dl>\n'
        f"{gauge_html(contents)}\n"
        f'<p class="next"><strong>Next.</strong> {escape(next_step(contents))}</p>\n'
        f'<p class="origin">{escape(provenance_line(contents.run.provenance))}</p>\n</div>'
    )


def _verdict(contents: RunContents) -> str:
    numbers = verdict_of(contents)
    words, (kind, sign) = banner(numbers), _LOOKS[numbers.verdict]
    return (
        f'<section class="verdict {kind}" aria-label="Verdict"><span class="sign" aria-hidden="true">{sign}</span>'
        f'<div><h2 class="word">Verdict: {escape(words.word)}</h2><p>{escape(words.line)}</p></div></section>'
    )


def _fact(fact: Fact) -> str:
    return (
        f'<div><dt>{escape(fact.name)}</dt><dd><span class="figure">{escape(fact.value)}</span> '
        f'<span class="note">{escape(fact.note)}</span></dd></div>'
    )
