"""Build the part of a report for engineers that follows the first screen: numbers, gauge, and settings to change."""

import math

from fl_audit.audits.common.report_cautions import cautions_on_data, cautions_on_epsilon_star
from fl_audit.audits.common.sections_accuracy import ModelAccuracyFinding
from fl_audit.audits.common.sections_provenance import provenance_line
from fl_audit.audits.identifiability.sections_insider import InsiderFinding, advantage_row
from fl_audit.audits.page.gauge import gauge_html
from fl_audit.audits.page.ordinary_training import is_shown_as_training, model_text, trained_text
from fl_audit.html_tables import Markup
from fl_audit.learning.metric_names import Metric, metric_text, metric_title
from fl_audit.report.guarantee_warnings import delta_warning, is_weak_guarantee, weakness_warning
from fl_audit.report.mechanism_messages import multiplied_text, not_private_label, scaling_text
from fl_audit.report.page import Fact, facts_html, heading_html, joined_html, paragraph_html, step_html, warning_html
from fl_audit.report.report_elements import ReportContents
from fl_audit.report.template_files import template_lines
from fl_audit.statistics.advantage import most_wins
from fl_audit.verdict.declared_tests import FAMILY_LEVEL, OF_NOISE, TestName
from fl_audit.verdict.sections_noise import NoiseFinding
from fl_audit.verdict.sections_verdict import banner, verdict_of, verdict_texts
from fl_audit.verdict.verdict import has_open_shares
from fl_audit.verdict.verdict_messages import TestMessage, broken_tests, p_as_chance
from fl_audit.words import is_certainty, number_text, one_in, percent, plural


def facts_of(contents: ReportContents) -> tuple[Fact, ...]:
    """Return the numbers with which the part for engineers begins.

    These are the claimed epsilon and the insider's right guesses, and the model's metric if that is no accuracy. If the
    guarantee is violated, they are the failed test, the insider's right guesses and the proven epsilon. Of an ordinary
    training they are the claimed epsilon and what was trained.
    """
    broken = broken_tests(verdict_of(contents).judgement, contents.words, contents.noise)
    if broken:
        return _broken(broken[0]), _insider(contents), _shown(contents)
    model = filter(None, [_model(contents)])
    if is_shown_as_training(contents):
        rounds = plural(contents.plan.federation.rounds, "round")
        return _claimed(contents), Fact("Trained for", rounds, trained_text(contents)), *model
    return _claimed(contents), _insider(contents), *model


def _broken(message: TestMessage) -> Fact:
    if message.test.name in OF_NOISE:
        where = f" on {message.test.place}" if message.test.name is TestName.NOISE_TENSOR else ""
        return Fact("Noise really added", percent(message.test.statistic), f"of what was claimed{where}", " ")
    if message.test.name in (TestName.SCORES, TestName.CANARIES):
        bound_text = f"≥ {number_text(message.test.statistic, 3)}"
        return Fact("Epsilon, by scores alone", bound_text, f"claimed: {message.claimed}")
    return Fact(
        "If the guarantee were kept", p_as_chance(message.test.p_value), "audits would show so clear a sign", " "
    )


def _shown(contents: ReportContents) -> Fact:
    guarantee = contents.guarantee
    at_least = verdict_of(contents).judged.epsilon_lower_bound
    value = f"≥ {number_text(at_least, 3)}" if math.isfinite(at_least) else "unbounded"
    another = "; the breach is of another kind" if at_least <= guarantee.epsilon else ""
    return Fact("Epsilon shown", value, f"{number_text(guarantee.epsilon, 3)} was claimed{another}")


def _claimed(contents: ReportContents) -> Fact:
    guarantee = contents.plan.guarantee
    if guarantee is None and contents.plan.federation.local_randomizer is not None:
        return Fact("Claimed of the training", "nothing", "no clipping, no noise; records were randomised before it")
    if guarantee is None:
        return Fact("Claimed", "nothing", "no clipping, no noise")
    note = f"at delta {number_text(guarantee.delta, 3)} ({guarantee.accountant})"
    if guarantee.noise_multiplier is not None:
        multiplied = multiplied_text(contents.plan.federation.mechanism)
        note += f"; noise multiplier {number_text(guarantee.noise_multiplier, 3)}, over {multiplied}"
    return Fact("Claimed: epsilon at most", number_text(guarantee.epsilon, 3), note)


def _insider(contents: ReportContents) -> Fact:
    numbers = contents.find(InsiderFinding)
    guarantee = contents.plan.guarantee
    details = verdict_of(contents).judgement
    if numbers is not None and guarantee is not None:
        trials = numbers.estimate.trials
        wins = numbers.estimate.wins
        most_guesses = most_wins(trials, guarantee.advantage_bound_exact, FAMILY_LEVEL)
        rarely = f"in less than one of {round(1 / FAMILY_LEVEL):,} audits"
        note = f"if the guarantee is kept, it is right in more than {most_guesses:,} {rarely}"
        if details is not None and details.broken and wins <= most_guesses:
            note = "this count alone would not have shown what broke the guarantee"
        elif most_guesses >= trials and is_certainty(guarantee.belief_bound):
            note = "so weak a guarantee lets it be right every time"
        elif most_guesses >= trials:
            note = "so few trials can break no guarantee this way"
        note += advantage_row(numbers.estimate, contents).comparison_in_brackets
        return Fact("The insider was right in", f"{wins:,} of {trials:,}", note)
    if details is None:
        return Fact("The insider", "not played", "no insider took part")
    bound_text = f"≥ {number_text(details.epsilon_lower_bound, 3)}"
    note = f"{percent(details.confidence)} confidence"
    if guarantee is not None and not details.broken and details.epsilon_lower_bound > guarantee.epsilon:
        by_chance = one_in(1 - details.confidence)
        at_level = number_text(details.epsilon_lower_bound_at_level, 3)
        note += (
            f": more than is claimed, as {by_chance} honest runs is by chance. At the level of the verdict, "
            f"{one_in(details.level)}, it is ≥ {at_level}"
        )
    return Fact(f"Epsilon shown by {details.words.shown_by}", bound_text, note)


def _model(contents: ReportContents) -> Fact | None:
    """Return the metric that stands for how good the model is; None if it is the accuracy, which is shown first."""
    numbers = contents.find(ModelAccuracyFinding)
    if numbers is None or numbers.headline[0] == Metric.ACCURACY:
        return None
    metric, value = numbers.headline
    without = None if numbers.unprotected is None else numbers.unprotected.metrics.get(metric)
    beside = "" if without is None else f"{metric_text(metric, without)} without privacy"
    return Fact(f"The model's {metric_title(metric)}", metric_text(metric, value), beside)


def next_step(contents: ReportContents) -> str:
    """Return a few sentences that tell the reader of a report what to do next, given the verdict."""
    if is_shown_as_training(contents):
        return model_text(contents)
    numbers = verdict_of(contents)
    guarantee = contents.plan.guarantee
    federation = contents.plan.federation
    details = numbers.judgement
    broken = broken_tests(details, contents.words, contents.noise)
    needed = None if details is None else details.trials_for_conclusive_verdict
    spare = contents.find(NoiseFinding)
    has_excess = spare is not None and spare.estimate.excess is not None
    lines = template_lines(
        "next_step.md",
        verdict=numbers.verdict,
        remedy=broken[0].remedy if broken else None,
        contradicted_by=numbers.contradicted_by,
        is_unanswered=details is not None and numbers.is_unanswered,
        family_level=FAMILY_LEVEL,
        is_long_enough=needed is not None and needed <= contents.run.trials,
        trials_needed=needed,
        enough_trials=verdict_texts(contents)["trials-needed"],
        is_randomised=federation.local_randomizer is not None,
        is_weak=guarantee is not None and is_weak_guarantee(guarantee),
        own_step=numbers.words.next_step,
        is_private_release=federation.mechanism.is_private_release,
        has_spare_noise=spare is not None and has_excess and has_open_shares(spare.judgement),
        units=contents.words.many,
        is_of_many=federation.targets > 1,
    )
    return " ".join(lines)


def warnings_of(contents: ReportContents) -> list[str]:
    """Return the warnings of a report, one text for each warning.

    Warnings concern a release that is not private, a guarantee that assures next to nothing, a large delta, and unusual
    data.
    """
    return [*warnings_for_officer(contents), *cautions_on_epsilon_star(contents)]


def warnings_for_officer(contents: ReportContents) -> list[str]:
    """Return the warnings that do not concern a number of the part for engineers alone."""
    plan = contents.plan
    guarantee = contents.plan.guarantee
    lines = [not_private_label(plan)] if not plan.federation.mechanism.is_private_release else []
    if guarantee is not None:
        warned = weakness_warning(guarantee), delta_warning(guarantee, plan.units)
        lines += [line for line in warned if line is not None]
    return [*lines, *cautions_on_data(contents)]


def engineer_part(contents: ReportContents) -> Markup:
    """Return the HTML of the first part for engineers: what was tested, in numbers, with the gauge and what to do."""
    reasons = "" if is_shown_as_training(contents) else banner(contents).line
    return joined_html(
        heading_html("For engineers: what was tested", "engineer"),
        paragraph_html(_setting_text(contents), "subtitle"),
        reasons and paragraph_html(reasons),
        *map(warning_html, cautions_on_epsilon_star(contents)),
        facts_html(facts_of(contents)),
        gauge_html(contents),
        step_html(next_step(contents), "To do"),
        paragraph_html(provenance_line(contents.run.provenance, contents.plan.federation.records), "origin"),
    )


def _setting_text(contents: ReportContents) -> str:
    """Return a line on what was played: rounds, trials, and what the noise is scaled to."""
    plan = contents.plan
    parts_of_setting = (
        plural(plan.federation.rounds, "round"),
        plural(contents.run.trials, "trial"),
        scaling_text(plan),
        *(["early stopping"] if contents.run.chosen_releases is not None else []),
    )
    return " · ".join(parts_of_setting)
