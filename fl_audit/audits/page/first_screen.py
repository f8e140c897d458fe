"""Build the first screen of a report, for somebody who decides, and the summary of a run for the terminal.

The first screen has the verdict, who is protected and how well, what that means for a person, and the next step. It
explains its technical words. Numbers for engineers follow below it, see `engineer_part`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rich.table import Table
from rich.text import Text

from fl_audit.audits.common.sections_accuracy import ModelAccuracyFinding, reference_accuracies_text
from fl_audit.audits.common.sections_guarantee import person_text
from fl_audit.audits.page.engineer_part import facts_of, next_step, warnings_for_officer, warnings_of
from fl_audit.audits.page.ordinary_training import is_shown_as_training, training_banner, training_rows
from fl_audit.audits.sections import page_rows
from fl_audit.html_tables import Markup
from fl_audit.learning.metric_names import metric_text, metric_title
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.guarantee_warnings import is_weak_guarantee
from fl_audit.report.page import (
    Banner,
    Fact,
    banner_html,
    block_html,
    facts_html,
    heading_html,
    joined_html,
    pairs_html,
    paragraph_html,
    step_html,
    warning_html,
)
from fl_audit.report.report_elements import ReportContents
from fl_audit.report.template_files import template_table, template_texts
from fl_audit.statistics.claim_comparisons import finding_text
from fl_audit.user_modules import title_of_named
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.verdict.declared_tests import OF_NOISE
from fl_audit.verdict.sections_verdict import banner, verdict_of
from fl_audit.verdict.verdict import Verdict
from fl_audit.verdict.verdict_messages import broken_tests, exact_sentences
from fl_audit.words import is_certainty, plural

_FACTS = ("protected", "surer", "chance", "model")
_STANDINGS = {ClaimStanding.HELD: "held", ClaimStanding.REFUTED: "refuted", ClaimStanding.UNCONFIRMED: "unconfirmed"}


class OpenReason(StrEnum):
    """Reason why a verdict is inconclusive: a number beside the tests, or a limit of the audit."""

    CONTRADICTED = "contradicted"
    UNANSWERED = "unanswered"
    SCORES = "scores"
    BLIND = "blind"
    FEW_TRIALS = "few trials"


@dataclass(frozen=True)
class FirstScreen:
    """The texts of the first screen of a report."""

    banner: Banner  # the verdict, or what was trained
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]  # who is protected, how well, and how good the model is
    person: str  # what it means for a person in the data
    next_step: str
    words: tuple[tuple[str, str], ...] = ()  # technical words of this screen, with their explanations


def first_screen_of(contents: ReportContents) -> FirstScreen:
    """Return the texts of the first screen of a run's report."""
    texts = template_texts("first_screen.md", **_facts(contents))
    facts = tuple(
        Fact(texts[f"{part_name}-name"], texts[part_name], texts[f"{part_name}-note"])
        for part_name in _FACTS
        if part_name in texts
    )
    of_verdict = replace(banner(contents), line=texts["verdict"])
    screen = FirstScreen(
        training_banner(contents) if is_shown_as_training(contents) else of_verdict,
        tuple(warnings_for_officer(contents)),
        facts,
        person_text(contents),
        texts["next"],
    )
    return replace(screen, words=_explained(screen, contents.words.one))


def _explained(screen: FirstScreen, unit: str) -> tuple[tuple[str, str], ...]:
    """Return the technical words that a first screen uses, each with its explanation."""
    numbers = (text for fact in screen.facts for text in (fact.name, fact.value, fact.note))
    text = " ".join((screen.banner.line, *screen.warnings, *numbers, screen.person, screen.next_step))
    words = template_table("words.md", unit=unit)
    # A word may end with a mark, such as Epsilon*, and may stand in the plural.
    return tuple(
        (word, meaning)
        for word, meaning in words
        if re.search(rf"(?<!\w){re.escape(word)}s?(?![\w*])", text, re.IGNORECASE)
    )


def _facts(contents: ReportContents) -> dict[str, object]:
    """Return the facts that the template of the first screen names."""
    plan = contents.plan
    guarantee = contents.plan.guarantee
    numbers = verdict_of(contents)
    model = contents.find(ModelAccuracyFinding)
    accuracy = None if model is None or math.isnan(model.test_accuracy) else model.test_accuracy
    return {
        "verdict": str(numbers.verdict),
        "why_open": _why_open(contents),
        "breach": _breach(contents),
        "unit": str(plan.adjacency.unit),
        "standing": "nothing" if guarantee is None else _STANDINGS[standing_of_claim(contents)],
        "belief": None if guarantee is None else guarantee.belief_bound,
        "other_belief": None if guarantee is None else plan.belief_bounds[0],
        "delta": None if guarantee is None else guarantee.delta,
        "prior": plan.prior,
        "is_certain": guarantee is not None and is_certainty(guarantee.belief_bound),
        "is_weak": guarantee is not None and is_weak_guarantee(guarantee),
        "is_private_release": plan.federation.mechanism.is_private_release,
        "is_randomised": plan.federation.local_randomizer is not None,
        "targets": plan.federation.targets,
        "most_records": contents.run.most_records,
        "trials_needed": _trials_needed(contents),
        "accuracy": accuracy,
        "headline": None if model is None else metric_title(model.headline[0]),
        "headline_value": None if model is None else metric_text(*model.headline),
        "beside_accuracy": "" if model is None else reference_accuracies_text(model),
    }


def _why_open(contents: ReportContents) -> OpenReason | None:
    """Return what leaves the verdict open; None if it is not inconclusive."""
    numbers = verdict_of(contents)
    if numbers.verdict is not Verdict.INCONCLUSIVE:
        return None
    if numbers.contradicted_by:
        return OpenReason.CONTRADICTED
    if numbers.is_unanswered:
        return OpenReason.UNANSWERED
    if numbers.judges_scores:
        return OpenReason.SCORES
    return OpenReason.FEW_TRIALS if math.isfinite(numbers.judged.limit_of_detection) else OpenReason.BLIND


def _trials_needed(contents: ReportContents) -> int | None:
    """Return the number of trials that would tell; None if it is not known, or if as many were played."""
    judgement = verdict_of(contents).judgement
    needed = None if judgement is None else judgement.trials_for_conclusive_verdict
    return needed if needed is not None and needed > contents.run.trials else None


def _breach(contents: ReportContents) -> str:
    """Return a sentence on the clearest breach without numbers of tests; empty if the guarantee is not violated."""
    numbers = verdict_of(contents)
    broken = broken_tests(numbers.judgement, contents.words, contents.noise)
    if broken:
        first = broken[0]
        return first.sentence if first.test.name in OF_NOISE else f"{first.breach}."
    return "" if numbers.judgement is None else exact_sentences(numbers.judged.exact)


def first_screen(contents: ReportContents) -> Markup:
    """Return the HTML of the first screen of a report, which is also the first page of the PDF."""
    screen = first_screen_of(contents)
    verdict = (
        screen.banner
        if is_shown_as_training(contents)
        else replace(screen.banner, word=f"Verdict: {screen.banner.word}")
    )
    markups = (
        banner_html(verdict),
        *map(warning_html, screen.warnings),
        facts_html(screen.facts),
        heading_html("What it means for a person in the data", "person"),
        paragraph_html(screen.person),
        step_html(screen.next_step),
        pairs_html(screen.words, "words") if screen.words else "",
    )
    return block_html(joined_html(*markups), "first")


_WIDEST_NAME = 30


def summary_table(contents: ReportContents) -> Table:
    """Return a table for the terminal, with the verdict, the next step, and the numbers of the report's page."""
    federation = contents.plan.federation
    words = banner(contents)
    warnings = warnings_of(contents)
    title = Text(
        f"{federation.data.title}, {title_of_named(federation.model)}: {contents.run.trials:,} x "
        f"{plural(federation.rounds, 'round')}"
    )
    if is_shown_as_training(contents):
        title = Text(f"{federation.data.title}, {title_of_named(federation.model)}")
    table = Table(title=title, show_header=False, caption=Text("\n".join(warnings)) if warnings else None)
    table.add_column("what", style="bold", max_width=_WIDEST_NAME)
    table.add_column("finding")
    if is_shown_as_training(contents):
        for rows in training_rows(contents):
            _add_group(table, rows)
        return table
    screen = first_screen_of(contents)
    *_, style = words.look.value
    table.add_row(
        Text("Verdict"), Text(words.word, style=style).append(f". {screen.banner.line}", style="not bold default")
    )
    _add_group(table, [*map(_fact_row, screen.facts), ("Next", screen.next_step)])
    plan = [("For engineers", words.line), ("To do", next_step(contents)), *map(_fact_row, facts_of(contents))]
    if (guarantee := contents.plan.guarantee) is not None:
        plan.append(("Claimed guarantee", guarantee_line(guarantee_values(guarantee.epsilon, guarantee.claims))))
    for rows in (plan, [(row.name, finding_text(row.to_json())) for row in page_rows(contents)]):
        _add_group(table, rows)
    return table


def _fact_row(fact: Fact) -> tuple[str, str]:
    return fact.name, f"{fact.value}{fact.joint}{fact.note}".removesuffix(fact.joint)


def _add_group(table: Table, rows: Sequence[tuple[str, str]]) -> None:
    table.add_section()
    for name, text in rows:
        table.add_row(Text(name), Text(text))
