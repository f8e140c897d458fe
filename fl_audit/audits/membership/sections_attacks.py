"""The report section on membership attacks on many targets.

The figure shows all attacks, from the weakest to the strongest attacker. The weakest attacker sees only the final
model. The strongest is an insider that knows the membership of all targets but one.
"""

import math
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from fl_audit.array_types import finite
from fl_audit.audits.canaries.bounds import OneRunBound, bound_of_guesses
from fl_audit.audits.membership import findings_attacks as evidence
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.audits.membership.attack_results import AttackResults
from fl_audit.audits.membership.attacks.registry import attack_named
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report.figure_style import INK, MUTED, finish_axes
from fl_audit.report.mechanism_messages import at_delta
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets
from fl_audit.words import is_certainty, number_text, percent, plural

_SMALLEST_RATE = 1e-3
_RATES_SHOWN = np.concatenate([[0.0], np.logspace(np.log10(_SMALLEST_RATE / 10), 0, 2000)])
_LOOKS = (("#12426e", "-"), ("#4d7a2a", "--"), ("#7a3b69", "-."), ("#2a7f86", ":"), ("#5c5c5c", (0, (5, 1, 1, 1))))


def _label(name: str) -> str:
    """Return the name in a report of an attack or of the insiders."""
    return "Insider (exact)" if name == evidence.INSIDER else attack_named(name).label


def _auc_row(name: str, finding: evidence.AllAttacksFinding, run: FinishedRun) -> ReportNumber:
    rates = finding.achieved[name].rates
    which, interval = ("one trial", "bootstrap") if name != evidence.INSIDER else ("different trials", "jackknife")
    basis_text = (
        f"share of pairs of {which} that the score puts in order; {interval} interval over trials, about "
        "as sure as stated for it and its rates together; trials are independent; targets of one trial share its model"
    )
    return ReportNumber(
        f"AUC, {_label(name)}",
        rates.auc.value,
        basis_text,
        rates.auc.low,
        rates.auc.high,
        rates.confidence,
        finding.largest_auc_of(name),
        origin=0.5,
        largest=1.0,
        on_page=True,
        wide=partial(evidence.rate_ends, run, name, "auc"),
    )


_RATES = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")


def _rate_row(
    rate: str, limit: float | None, name: str, results: AttackResults, contents: ReportContents
) -> ReportNumber:
    interval = getattr(results.rates, rate)
    origin = 0.0 if rate.startswith("tpr") else 0.5
    wide = partial(evidence.rate_ends, contents.run, name, rate)
    return ReportNumber(
        rate,
        interval.value,
        "",
        interval.low,
        interval.high,
        results.rates.confidence,
        limit,
        origin=origin,
        largest=1.0,
        wide=wide,
    )


def _sentence(finding: evidence.AllAttacksFinding, contents: ReportContents) -> str:
    words = contents.words
    trials = plural(finding.trials, "training")
    targets = plural(finding.targets, words.one)
    text = f"In {trials} we tossed a coin for each of {targets}, and trained with those that won."
    if finding.outsiders:
        name, attack_results = max(finding.outsiders.items(), key=lambda entry: entry[1].rates.auc.value)
        several = len(finding.outsiders) > 1
        subject, were = ("Attackers", "were") if several else (f"An attacker ({_label(name)})", "was")
        text += (
            f" {subject} who saw the finished models alone {were} then shown one that was in and one that was not; "
            f"{f'the best of them ({_label(name)})' if several else 'it'} picked the right one in "
            f"{percent(attack_results.rates.auc.value)} of "
            f"cases{_auc_row(name, finding, contents.run).comparison_in_brackets}, "
            f"where coin-flipping has 50 %{_allowed(finding.largest_order)}{_of_two(finding.largest_order, words.one)}."
        )
    insider = finding.achieved.get(evidence.INSIDER)
    if insider is not None:
        text += (
            f" A participant who knows everything but one coin, and sees every update, tells a training with the "
            f"{words.one} from one without it in {percent(insider.rates.auc.value)} of cases"
            f"{_auc_row(evidence.INSIDER, finding, contents.run).comparison_in_brackets}{_allowed(finding.largest_auc)}"
            f"{_of_one(finding.largest_auc, words.one)}."
        )
    return text


def _of_two(limit: float | None, text: str) -> str:
    return "" if limit is None else f" here, since two {text}s are told apart at once and each counts"


def _of_one(limit: float | None, text: str) -> str:
    return "" if limit is None else f" here, where one {text} alone decides"


def _allowed(limit: float | None) -> str:
    if limit is None:
        return ""
    return (
        "; the guarantee excludes nothing"
        if is_certainty(limit)
        else f"; the guarantee allows at most {percent(limit)}"
    )


def _tables(finding: evidence.AllAttacksFinding, contents: ReportContents) -> list[Table]:
    columns = ("Who attacks", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR", "Balanced accuracy")
    rows = []
    for name, attack_results in finding.achieved.items():
        limits = (finding.largest_auc_of(name), *finding.largest_rates)
        beside = [
            _rate_row(rate, limit, name, attack_results, contents).text
            for rate, limit in zip(_RATES, limits, strict=True)
        ]
        rows.append((_label(name), *beside))
    if contents.plan.has_guarantee:
        limits_text = [f"at most {number_text(value, 3)}" for value in (finding.largest_order, *finding.largest_rates)]
        unit_name = contents.words.one
        limits_text[0] += (
            f" (two {unit_name}s compared), an insider {number_text(finding.largest_auc, 3)} (one {unit_name})"
        )
        whose = with_standing_in_brackets("Nobody, by the guarantee", standing_of_claim(contents))
        rows.append((whose, *limits_text))
    title = f"Membership attacks on {plural(finding.targets, 'target')} in {plural(finding.trials, 'trial')}"
    return [Table(title, columns, tuple(rows))]


def _rows(finding: evidence.AllAttacksFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee = contents.plan.guarantee
    numbers = list[ReportNumber]()
    epsilon = None if guarantee is None else guarantee.epsilon
    for name, attack_results in finding.achieved.items():
        attack_name = _label(name)
        numbers.append(_auc_row(name, finding, contents.run))
        basis = "not computed: the trials were shadow models of each other"
        if attack_results.bound is not None:
            basis = (
                f"holds at {percent(attack_results.bound.confidence)} confidence; "
                f"{attack_results.bound.method}{at_delta(attack_results.bound.delta)}, "
                f"one target drawn in each trial; {attack_results.bound.assumption}"
            )
        proved = None if attack_results.bound is None else finite(attack_results.bound.epsilon)
        numbers.append(
            ReportNumber(
                f"Lower bound on epsilon, {attack_name} (nats)",
                proved,
                basis,
                limit=epsilon,
                is_bound=True,
                on_page=bool(proved),
                wide=partial(evidence.bound_end, contents.run, name),
            )
        )
        if attack_results.one_run is not None:
            at = f"holds at {percent(attack_results.one_run.confidence)} confidence; coins are independent"
            guesses_text = (
                f"{attack_results.one_run.guesses.right} of {attack_results.one_run.guesses.guessed} guesses "
                "right in trial 0"
            )
            basis = f"Steinke et al. 2023{at_delta(attack_results.one_run.delta)}; {guesses_text}; {at}"
            one_run = finite(attack_results.one_run.epsilon)
            numbers.append(
                ReportNumber(
                    f"One-run bound on epsilon, {attack_name} (nats)",
                    one_run,
                    basis,
                    limit=epsilon,
                    is_bound=True,
                    wide=partial(_one_run_end, attack_results.one_run),
                )
            )
            if attack_results.by_tradeoff is not None:
                basis = f"after Mahloujifar et al. 2024; the same; {at}"
                label = "One-run bound by the trade-off curve"
                numbers.append(
                    ReportNumber(
                        f"{label}, {attack_name} (nats)",
                        finite(attack_results.by_tradeoff.epsilon),
                        basis,
                        limit=epsilon,
                        is_bound=True,
                        wide=partial(_one_run_end, attack_results.by_tradeoff),
                    )
                )
    if finding.insider_auc is not None:
        numbers.append(
            ReportNumber(
                "AUC that the insiders' signals lead to",
                finding.insider_auc,
                "mean of Phi(sqrt(mu_1^2 + mu_0^2) / 2) over pairs, if the signals were fixed",
            )
        )
    return numbers


def _one_run_end(bound: OneRunBound, confidence: float) -> tuple[float, float]:
    return bound_of_guesses(bound.guesses, bound.delta, confidence, bound.method).epsilon, math.inf


def _roc_figure(figure: Figure, finding: evidence.AllAttacksFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    for index, (name, attack_results) in enumerate(finding.achieved.items()):
        colour, line = (INK, "-") if name == evidence.INSIDER else _LOOKS[index % len(_LOOKS)]
        # Only as many corners as a figure can show, because memory would grow with every score.
        shown_points = np.unique(np.searchsorted(attack_results.roc.fpr, _RATES_SHOWN, side="right") - 1)
        fpr = np.maximum(attack_results.roc.fpr[shown_points], _SMALLEST_RATE / 10)
        width = 2.6 if name == evidence.INSIDER else 1.8
        label = f"{_label(name)}: AUC {attack_results.rates.auc.value:.3f}"
        axes.plot(fpr, attack_results.roc.tpr[shown_points], linestyle=line, color=colour, linewidth=width, label=label)
        for rate, at in ((1e-3, attack_results.rates.tpr_at_fpr_0001), (1e-2, attack_results.rates.tpr_at_fpr_001)):
            beside, ends = rate * 1.05 ** (index + 1), [max(at.low, _SMALLEST_RATE), at.high]  # bars beside each other
            axes.plot([beside, beside], ends, "-", color=colour, marker="_", markersize=6)
    rates = np.logspace(np.log10(_SMALLEST_RATE), 0, 60)
    axes.plot(rates, rates, linestyle=":", color=MUTED, linewidth=1.4, label="coin-flipping")
    guarantee = contents.plan.guarantee
    if guarantee is not None:
        allowed = largest_tpr(guarantee.claim.profile, rates)
        axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="///", linewidth=0, alpha=0.5)
        axes.plot(rates, allowed, linestyle=(0, (8, 2)), color=MUTED, linewidth=1.6, label="most that is claimed")
    axes.set(xscale="log", yscale="log", xlim=(_SMALLEST_RATE, 1), ylim=(_SMALLEST_RATE, 1.05))
    finish_axes(axes, "Who finds members, at how many false alarms", "False-positive rate", "True-positive rate")


def _caption(_: evidence.AllAttacksFinding, contents: ReportContents) -> str:
    hatched = "Nothing was claimed, so no region is closed to anybody"
    if contents.plan.has_guarantee:
        hatched = "A kept guarantee lets nobody into the hatched region, but by chance"
    return (
        f"Share of members found over share of others called members. What counts is how many are found for sure, at "
        f"the left. {hatched}: the bars are bootstrap intervals."
    )


ATTACKS = Section(
    "attacks",
    "Membership attacks",
    evidence.AllAttacksFinding,
    evidence.measure_attacks,
    keys=("attacks",),
    on_page=True,
    sentence=_sentence,
    rows=_rows,
    tables=_tables,
    picture=FindingFigure("What outsiders get of what the insider can get", _roc_figure, _caption),
)
