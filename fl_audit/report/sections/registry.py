"""All findings in the order in which a report shows them: whoever adds one writes its file and adds it here."""

from typing import Any

from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Section
from fl_audit.report.sections.attacks import ATTACKS
from fl_audit.report.sections.attributes import ATTRIBUTES
from fl_audit.report.sections.client_promises import CLIENT_PROMISES
from fl_audit.report.sections.clients import CLIENTS
from fl_audit.report.sections.clipping import CLIPPING
from fl_audit.report.sections.colluders import COLLUDERS
from fl_audit.report.sections.crafted import CRAFTED
from fl_audit.report.sections.empirical_epsilon import EMPIRICAL_EPSILON
from fl_audit.report.sections.innovations import INNOVATIONS
from fl_audit.report.sections.insider import INSIDER
from fl_audit.report.sections.insiders import INSIDERS
from fl_audit.report.sections.law import LAW
from fl_audit.report.sections.membership import MEMBERSHIP
from fl_audit.report.sections.noise import NOISE
from fl_audit.report.sections.other_promises import OTHER_PROMISES
from fl_audit.report.sections.pair import PAIR
from fl_audit.report.sections.promise import PROMISE
from fl_audit.report.sections.provenance import PROVENANCE
from fl_audit.report.sections.record_promise import RECORD_PROMISE
from fl_audit.report.sections.released_model import RELEASED_MODEL
from fl_audit.report.sections.scores import SCORES
from fl_audit.report.sections.timing import TIMING
from fl_audit.report.sections.tradeoff import TRADEOFF
from fl_audit.report.sections.verdict import VERDICT
from fl_audit.stored_json import SCHEMA

SECTIONS: tuple[Section[Any], ...] = (
    VERDICT,
    NOISE,
    PROMISE,
    RECORD_PROMISE,
    CLIENT_PROMISES,
    OTHER_PROMISES,
    INSIDER,
    TRADEOFF,
    INSIDERS,
    SCORES,
    ATTACKS,
    ATTRIBUTES,
    PAIR,
    CRAFTED,
    MEMBERSHIP,
    INNOVATIONS,
    LAW,
    CLIPPING,
    COLLUDERS,
    EMPIRICAL_EPSILON,
    RELEASED_MODEL,
    CLIENTS,
    TIMING,
    PROVENANCE,
)
"""A section may use what the sections before it have found."""


def report_contents(run: FinishedRun, sections: tuple[Section[Any], ...] = SECTIONS) -> RunContents:
    """Return everything that the report of a run is drawn from: each section measures what it reports.

    Parameters
    ----------
    run
        The finished run.
    sections
        The findings; all by default.
    """
    found: dict[type, Any] = {}
    summary: dict[str, Any] = {"schema": SCHEMA}
    for section in sections:
        numbers = section.measure(run, Findings(dict(found)))
        summary |= dict.fromkeys(section.keys)
        if numbers is not None:
            found[section.numbers] = numbers
            summary |= numbers.to_json()
    return RunContents(run, Findings(found), summary)


def measured(contents: RunContents, sections: tuple[Section[Any], ...] = SECTIONS) -> list[tuple[Section[Any], Any]]:
    """Return the sections that have numbers in this run, in order, each with its numbers."""
    found = [(section, contents.find(section.numbers)) for section in sections]
    return [(section, numbers) for section, numbers in found if numbers is not None]
