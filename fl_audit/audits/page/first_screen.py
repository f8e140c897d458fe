"""Build the first screen of a report as HTML, and the summary of a run for the terminal.

The first screen has the verdict, three numbers, a gauge, the next step and warnings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import assert_never

from rich.table import Table
from rich.text import Text

from fl_audit.audits.common.findings_released_model import ModelAccuracyFinding
from fl_audit.audits.common.report_cautions import cautions_for_reader
from fl_audit.audits.common.sections_provenance import provenance_line
from fl_audit.audits.common.sections_released_model import reference_accuracies_text
from fl_audit.audits.identifiability.findings_insider import InsiderFinding
from fl_audit.audits.identifiability.sections_insider import advantage_row
from fl_audit.audits.page.gauge import gauge_html
from fl_audit.audits.page.html_building_blocks import banner_html, next_step_html, warning_html
from fl_audit.audits.page.ordinary_training import (
    is_shown_as_training,
    model_text,
    trained_text,
    training_banner,
    training_rows,
)
from fl_audit.audits.sections import page_rows
from fl_audit.learning.metric_names import Metric, metric_title
from fl_audit.plurals import plural
from fl_audit.privacy.guarantee_line import guarantee_line, guarantee_values
from fl_audit.report.formatting import finding_text, is_certainty, metric_text, number_text, one_in, percent
from fl_audit.report.guarantee_warnings import delta_warning, is_weak_guarantee, weakness_warning
from fl_audit.report.mechanism_messages import multiplied_text, not_private_label
from fl_audit.report.report_elements import ReportContents
from fl_audit.statistics.advantage import most_wins
from fl_audit.user_modules import title_of_named
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, OF_NOISE, TestName
from fl_audit.verdict.findings_verdict import NoiseFinding
from fl_audit.verdict.sections_verdict import banner, trials_needed_text, unanswered_text, verdict_of
from fl_audit.verdict.verdict import Verdict, has_open_shares
from fl_audit.verdict.verdict_messages import TestMessage, broken_tests, p_as_chance


@dataclass(frozen=True)
class Fact:
    """One of the three numbers on the first screen of a report, with its name and a number to compare it with."""

    name: str  # name of the number, in a few words
    value: str  # the number, as text
    note: str  # phrase with the number to compare it with
    joint: str = "; "  # separator between `value` and `note` in a line of text


def facts_of(contents: ReportContents) -> tuple[Fact, Fact, Fact]:
    """Return the three numbers of the first screen.

    These are the claim, the insider's right guesses and the accuracy of the model. If the guarantee is violated, they
    are the failed test, the insider's right guesses and the proven epsilon. Of an ordinary training they are the
    accuracy of the model, the claim, and what was trained.
    """
    broken = broken_tests(verdict_of(contents).judgement, contents.words)
    if broken:
        return _broken(broken[0]), _insider(contents), _shown(contents)
    if is_shown_as_training(contents):
        rounds = plural(contents.plan.federation.rounds, "round")
        return _model(contents), _claimed(contents), Fact("Trained for", rounds, trained_text(contents))
    return _claimed(contents), _insider(contents), _model(contents)


def _broken(row: TestMessage) -> Fact:
    if row.test.name in OF_NOISE:
        where = f" on {row.test.place}" if row.test.name is TestName.NOISE_TENSOR else ""
        return Fact("Noise really added", percent(row.test.statistic), f"of what was claimed{where}", " ")
    if row.test.name in (TestName.SCORES, TestName.CANARIES):
        shown = f"≥ {number_text(row.test.statistic, 3)}"
        return Fact("Epsilon, by scores alone", shown, f"claimed: {row.words.claimed}")
    return Fact("If the guarantee were kept", p_as_chance(row.test.p_value), "audits would show so clear a sign", " ")


def _shown(contents: ReportContents) -> Fact:
    guarantee, at_least = contents.guarantee, verdict_of(contents).judged.epsilon_lower_bound
    value = f"≥ {number_text(at_least, 3)}" if math.isfinite(at_least) else "unbounded"
    another = "; the breach is of another kind" if at_least <= guarantee.epsilon else ""
    return Fact("Epsilon shown", value, f"{number_text(guarantee.epsilon, 3)} was claimed{another}")


def _claimed(contents: ReportContents) -> Fact:
    guarantee = contents.plan.guarantee
    if guarantee is None and contents.plan.federation.local_randomizer is not None:
        return Fact("Claimed of the training", "nothing", "no clipping, no noise; records were randomised before it")
    if guarantee is None:
        return Fact("Claimed", "nothing", "no clipping, no noise")
    epsilon, note = (
        number_text(guarantee.epsilon, 3),
        f"at delta {number_text(guarantee.delta, 3)} ({guarantee.accountant})",
    )
    if guarantee.noise_multiplier is not None:
        multiplied = multiplied_text(contents.plan.federation.mechanism)
        note += f"; noise multiplier {number_text(guarantee.noise_multiplier, 3)}, over {multiplied}"
    if is_certainty(guarantee.belief_bound):
        return Fact("Claimed: epsilon at most", epsilon, f"{note}; so weak that somebody may become sure")
    bound = percent(guarantee.belief_bound)
    note = f"except with a chance of at most {one_in(guarantee.delta)}; epsilon {epsilon} {note}"
    if guarantee.prior == 0.5:
        return Fact("Claimed: nobody is surer than", bound, note)
    other = percent(contents.plan.belief_bounds[0])
    beside = f"from {percent(guarantee.prior)} beforehand; {other} that {contents.words.not_that}; {note}"
    return Fact(f"Claimed: nobody is surer that {contents.words.that_short} than", bound, beside)


def _insider(contents: ReportContents) -> Fact:
    numbers, guarantee, found = contents.find(InsiderFinding), contents.plan.guarantee, verdict_of(contents).judgement
    if numbers is not None and guarantee is not None:
        trials, wins = numbers.estimate.trials, numbers.estimate.wins
        most = most_wins(trials, guarantee.advantage_bound_exact, FAMILY_LEVEL)
        rarely = f"in less than one of {round(1 / FAMILY_LEVEL):,} audits"
        note = f"if the guarantee is kept, it is right in more than {most:,} {rarely}"
        if found is not None and found.broken and wins <= most:
            note = "this count alone would not have shown what broke the guarantee"
        elif most >= trials and is_certainty(guarantee.belief_bound):
            note = "so weak a guarantee lets it be right every time"
        elif most >= trials:
            note = "so few trials can break no guarantee this way"
        note += advantage_row(numbers.estimate, contents).comparison_in_brackets
        return Fact("The insider was right in", f"{wins:,} of {trials:,}", note)
    if found is None:
        return Fact("The insider", "not played", "no insider took part")
    shown, note = f"≥ {number_text(found.epsilon_lower_bound, 3)}", f"{percent(found.confidence)} confidence"
    if guarantee is not None and not found.broken and found.epsilon_lower_bound > guarantee.epsilon:
        by_chance = one_in(1 - found.confidence)
        at_level = number_text(found.epsilon_lower_bound_at_level, 3)
        note += (
            f": more than is claimed, as {by_chance} honest runs is by chance. At the level of the verdict, "
            f"{one_in(found.level)}, it is ≥ {at_level}"
        )
    return Fact(f"Epsilon shown by {found.words.shown_by}", shown, note)


def _model(contents: ReportContents) -> Fact:
    numbers = contents.find(ModelAccuracyFinding)
    if numbers is None:
        return Fact("The model", "not measured", "its accuracy could not be computed")
    metric, value = numbers.headline
    if metric != Metric.ACCURACY:
        without = None if numbers.unprotected is None else numbers.unprotected.metrics.get(metric)
        right = "" if without is None else f"{metric_text(metric, without)} without privacy; "
        if numbers.is_of_classes:
            right += f"right for {percent(numbers.test_accuracy)} of new cases{reference_accuracies_text(numbers)}"
        else:
            right += "on new cases"
        return Fact(f"The model's {metric_title(metric)}", metric_text(metric, value), right)
    return Fact(
        "The model is right for",
        percent(numbers.test_accuracy),
        f"of new cases{reference_accuracies_text(numbers)}",
        " ",
    )


def next_step(contents: ReportContents) -> str:
    """Return a few sentences that tell the reader of a report what to do next, given the verdict."""
    numbers = verdict_of(contents)
    if is_shown_as_training(contents):
        return model_text(contents)
    match numbers.verdict:
        case Verdict.VIOLATED:
            told = broken_tests(numbers.judgement, contents.words)
            cause = told[0].words.remedy if told else "Look for what the exact questions name."
            return f"Hand out none of these models. {cause} Then audit again."
        case Verdict.INCONCLUSIVE if numbers.contradicted_by:
            rare = f"chance does this to fewer than {one_in(FAMILY_LEVEL)} runs that keep their guarantee"
            return f"Do not lean on this run: {rare}. Audit again with another seed; find out why if it happens again."
        case Verdict.INCONCLUSIVE if unanswered_text(numbers, contents.words):
            return "Do not lean on this run: see to what is named above, and audit again."
        case Verdict.INCONCLUSIVE:
            needed = numbers.judged.trials_for_conclusive_verdict
            if needed is not None and needed <= contents.run.trials:
                return "Do not lean on this run: so many trials could have told. Audit again with another seed."
            setting = "" if needed is None else f" Set trials = {needed} in [audit], or more."
            return f"Do not lean on this run. {trials_needed_text(numbers, contents.words)}{setting}"
        case Verdict.NOT_AUDITED:
            return "Let the insider play: set insider = true in [audit], and carry the run out anew."
        case Verdict.NO_GUARANTEE if contents.plan.federation.local_randomizer is not None:
            return (
                "See below whether what randomising guarantees each record is enough: the training adds nothing to it. "
                "To have it protect too, set belief = 0.9 in [privacy]."
            )
        case Verdict.NO_GUARANTEE:
            return (
                "Hand out none of these models as protected. To guarantee something, set belief = 0.9 in [privacy]; "
                "fl-audit calibrate tells how much noise that takes."
            )
        case Verdict.CONSISTENT:
            return _after_consistent(contents)
        case _:
            assert_never(numbers.verdict)


def _after_consistent(contents: ReportContents) -> str:
    numbers, spare = verdict_of(contents), contents.find(NoiseFinding)
    if is_weak_guarantee(contents.guarantee):
        return "Choose a guarantee that assures something: set belief = 0.9 in [privacy], and audit again."
    if numbers.words.next_step is not None:
        return numbers.words.next_step
    device = "" if contents.plan.federation.mechanism.is_private_release else "Hand out none of these test pieces. "
    has_spare = spare is not None and spare.estimate.excess is not None and has_open_shares(spare.judgement)
    excess = "There is more noise than the guarantee needs: less would keep it too. " if has_spare else ""
    at = "seed in [data]" if contents.plan.federation.targets > 1 else "neighbour in [audit]"
    others = f"Audit other {contents.words.many} too ({at}) and other seeds, for this verdict covers one"
    return f"{device}{excess}{others}; play more trials to find smaller breaches."


def warnings_of(contents: ReportContents) -> list[str]:
    """Return the warnings of a report, one text for each warning.

    Warnings concern a release that is not private, a guarantee that assures next to nothing, a large delta, and unusual
    data.
    """
    plan, guarantee = contents.plan, contents.plan.guarantee
    lines = [not_private_label(plan)] if not plan.federation.mechanism.is_private_release else []
    if guarantee is not None:
        warned = weakness_warning(guarantee), delta_warning(guarantee, plan.units)
        lines += [line for line in warned if line is not None]
    return [*lines, *cautions_for_reader(contents)]


def first_screen(contents: ReportContents) -> str:
    """Return the HTML of the first screen of a report, which is also the first page of the PDF."""
    is_training, words = is_shown_as_training(contents), banner(contents)
    facts = "\n".join(map(fact_html, facts_of(contents)))
    labels = "".join(f"{warning_html(line)}\n" for line in warnings_of(contents))
    verdict = banner_html(replace(words, word=f"Verdict: {words.word}"))
    if is_training:
        verdict = banner_html(training_banner(contents))
    origin = escape(provenance_line(contents.run.provenance, contents.plan.federation.records))
    return (
        f'<div class="first">\n{verdict}\n{labels}<dl class="facts">\n{facts}\n</dl>\n{gauge_html(contents)}\n'
        f'{next_step_html(next_step(contents))}\n<p class="origin">{origin}</p>\n'
        "</div>"
    )


def fact_html(fact: Fact) -> str:
    """Return one number of the first screen as an HTML element."""
    told = f'<span class="figure">{escape(fact.value)}</span> <span class="note">{escape(fact.note)}</span>'
    return f"<div><dt>{escape(fact.name)}</dt><dd>{told}</dd></div>"


_WIDEST_NAME = 30


def summary_table(contents: ReportContents) -> Table:
    """Return a table for the terminal, with the verdict, the next step, and the numbers of the report's page."""
    federation, words, warnings = contents.plan.federation, banner(contents), warnings_of(contents)
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
    *_, style = words.look.value
    table.add_row(Text("Verdict"), Text(words.word, style=style).append(f". {words.line}", style="not bold default"))
    table.add_row(Text("Next"), Text(next_step(contents)))
    plan = [(fact.name, f"{fact.value}{fact.joint}{fact.note}") for fact in facts_of(contents)]
    if (guarantee := contents.plan.guarantee) is not None:
        plan.append(("Claimed guarantee", guarantee_line(guarantee_values(guarantee.epsilon, guarantee.claims))))
    for rows in (plan, [(row.name, finding_text(row.to_json())) for row in page_rows(contents)]):
        _add_group(table, rows)
    return table


def _add_group(table: Table, rows: Sequence[tuple[str, str]]) -> None:
    table.add_section()
    for name, said in rows:
        table.add_row(Text(name), Text(said))
