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
from fl_audit.audits.common.sections_guarantee import at_delta
from fl_audit.audits.membership import findings_attacks as evidence
from fl_audit.audits.membership.attack_limits import largest_tpr
from fl_audit.audits.membership.attack_results import AttackResults
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.plurals import plural
from fl_audit.report.figure_style import INK, MUTED, finish_axes
from fl_audit.report.formatting import is_certainty, number_text, percent
from fl_audit.report.report_elements import FindingFigure, ReportContents, ReportNumber, Section, Table
from fl_audit.verdict.claim_standing import standing_of_claim, with_standing_in_brackets

_NAMES = {
    "loss": "Loss threshold",
    "shadow": "Shadow models",
    "white-box": "White box",
    "white-box-rounds": "White box, 3 releases",
    "active": "Active insider",
    "lira": "LiRA",
    "rmia": "RMIA",
    evidence.INSIDER: "Insider (exact)",
}
_SMALLEST_RATE = 1e-3
_RATES_SHOWN = np.concatenate([[0.0], np.logspace(np.log10(_SMALLEST_RATE / 10), 0, 2000)])
_LOOKS = (("#12426e", "-"), ("#4d7a2a", "--"), ("#7a3b69", "-."), ("#2a7f86", ":"), ("#5c5c5c", (0, (5, 1, 1, 1))))


def _auc_row(name: str, numbers: evidence.AllAttacksFinding, run: FinishedRun) -> ReportNumber:
    rates = numbers.achieved[name].rates
    which, interval = ("one trial", "bootstrap") if name != evidence.INSIDER else ("different trials", "jackknife")
    how = (
        f"share of pairs of {which} that the score puts in order; {interval} interval over trials, about "
        "as sure as stated for it and its rates together; trials are independent; targets of one trial share its model"
    )
    return ReportNumber(
        f"AUC, {_NAMES.get(name, name)}",
        rates.auc.value,
        how,
        rates.auc.low,
        rates.auc.high,
        rates.confidence,
        numbers.largest_auc_of(name),
        origin=0.5,
        largest=1.0,
        on_page=True,
        wide=partial(evidence.rate_ends, run, name, "auc"),
    )


_RATES = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")


def _rate_row(
    rate: str, limit: float | None, name: str, found: AttackResults, contents: ReportContents
) -> ReportNumber:
    one, origin = getattr(found.rates, rate), 0.0 if rate.startswith("tpr") else 0.5
    wide = partial(evidence.rate_ends, contents.run, name, rate)
    return ReportNumber(
        rate, one.value, "", one.low, one.high, found.rates.confidence, limit, origin=origin, largest=1.0, wide=wide
    )


def _sentence(numbers: evidence.AllAttacksFinding, contents: ReportContents) -> str:
    words = contents.words
    trials, targets = plural(numbers.trials, "training"), plural(numbers.targets, words.one)
    text = f"In {trials} we tossed a coin for each of {targets}, and trained with those that won."
    if numbers.outsiders:
        name, found = max(numbers.outsiders.items(), key=lambda one: one[1].rates.auc.value)
        several = len(numbers.outsiders) > 1
        who, were = ("Attackers", "were") if several else (f"An attacker ({_NAMES.get(name, name)})", "was")
        text += (
            f" {who} who saw the finished models alone {were} then shown one that was in and one that was not; "
            f"{f'the best of them ({_NAMES.get(name, name)})' if several else 'it'} picked the right one in "
            f"{percent(found.rates.auc.value)} of cases{_auc_row(name, numbers, contents.run).comparison_in_brackets}, "
            f"where coin-flipping has 50 %{_allowed(numbers.largest_order)}{_of_two(numbers.largest_order, words.one)}."
        )
    insider = numbers.achieved.get(evidence.INSIDER)
    if insider is not None:
        text += (
            f" A participant who knows everything but one coin, and sees every update, tells a training with the "
            f"{words.one} from one without it in {percent(insider.rates.auc.value)} of cases"
            f"{_auc_row(evidence.INSIDER, numbers, contents.run).comparison_in_brackets}{_allowed(numbers.largest_auc)}"
            f"{_of_one(numbers.largest_auc, words.one)}."
        )
    return text


def _of_two(limit: float | None, one: str) -> str:
    return "" if limit is None else f" here, since two {one}s are told apart at once and each counts"


def _of_one(limit: float | None, one: str) -> str:
    return "" if limit is None else f" here, where one {one} alone decides"


def _allowed(limit: float | None) -> str:
    if limit is None:
        return ""
    return (
        "; the guarantee excludes nothing"
        if is_certainty(limit)
        else f"; the guarantee allows at most {percent(limit)}"
    )


def _tables(numbers: evidence.AllAttacksFinding, contents: ReportContents) -> list[Table]:
    columns = ("Who attacks", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR", "Balanced accuracy")
    rows = []
    for name, found in numbers.achieved.items():
        limits = (numbers.largest_auc_of(name), *numbers.largest_rates)
        beside = [
            _rate_row(rate, limit, name, found, contents).text for rate, limit in zip(_RATES, limits, strict=True)
        ]
        rows.append((_NAMES.get(name, name), *beside))
    if contents.plan.has_guarantee:
        told = [f"at most {number_text(value, 3)}" for value in (numbers.largest_order, *numbers.largest_rates)]
        one = contents.words.one
        told[0] += f" (two {one}s compared), an insider {number_text(numbers.largest_auc, 3)} (one {one})"
        whose = with_standing_in_brackets("Nobody, by the guarantee", standing_of_claim(contents))
        rows.append((whose, *told))
    title = f"Membership attacks on {plural(numbers.targets, 'target')} in {plural(numbers.trials, 'trial')}"
    return [Table(title, columns, tuple(rows))]


def _rows(numbers: evidence.AllAttacksFinding, contents: ReportContents) -> list[ReportNumber]:
    guarantee, found = contents.plan.guarantee, list[ReportNumber]()
    epsilon = None if guarantee is None else guarantee.epsilon
    for name, one in numbers.achieved.items():
        said = _NAMES.get(name, name)
        found.append(_auc_row(name, numbers, contents.run))
        basis = "not computed: the trials were shadow models of each other"
        if one.bound is not None:
            basis = (
                f"holds at {percent(one.bound.confidence)} confidence; {one.bound.method}{at_delta(one.bound.delta)}, "
                f"one target drawn in each trial; {one.bound.assumption}"
            )
        proved = None if one.bound is None else finite(one.bound.epsilon)
        found.append(ReportNumber(f"Lower bound on epsilon, {said} (nats)", proved, basis, limit=epsilon, is_bound=True,
                         on_page=bool(proved), wide=partial(evidence.bound_end, contents.run, name)))  # fmt: skip
        if one.one_run is not None:
            at = f"holds at {percent(one.one_run.confidence)} confidence; coins are independent"
            counted = f"{one.one_run.guesses.right} of {one.one_run.guesses.guessed} guesses right in trial 0"
            basis = f"Steinke et al. 2023{at_delta(one.one_run.delta)}; {counted}; {at}"
            one_run = finite(one.one_run.epsilon)
            found.append(
                ReportNumber(
                    f"One-run bound on epsilon, {said} (nats)",
                    one_run,
                    basis,
                    limit=epsilon,
                    is_bound=True,
                    wide=partial(_one_run_end, one.one_run),
                )
            )
            if one.by_tradeoff is not None:
                basis, what = f"after Mahloujifar et al. 2024; the same; {at}", "One-run bound by the trade-off curve"
                found.append(
                    ReportNumber(
                        f"{what}, {said} (nats)",
                        finite(one.by_tradeoff.epsilon),
                        basis,
                        limit=epsilon,
                        is_bound=True,
                        wide=partial(_one_run_end, one.by_tradeoff),
                    )
                )
    if numbers.insider_auc is not None:
        found.append(ReportNumber("AUC that the insiders' signals lead to", numbers.insider_auc,
                         "mean of Phi(sqrt(mu_1^2 + mu_0^2) / 2) over pairs, if the signals were fixed"))  # fmt: skip
    return found


def _one_run_end(bound: OneRunBound, confidence: float) -> tuple[float, float]:
    return bound_of_guesses(bound.guesses, bound.delta, confidence, bound.method).epsilon, math.inf


def _roc_figure(figure: Figure, numbers: evidence.AllAttacksFinding, contents: ReportContents) -> None:
    axes = figure.add_subplot()
    for place, (name, found) in enumerate(numbers.achieved.items()):
        colour, line = (INK, "-") if name == evidence.INSIDER else _LOOKS[place % len(_LOOKS)]
        # Only as many corners as a figure can show, because memory would grow with every score.
        shown = np.unique(np.searchsorted(found.roc.fpr, _RATES_SHOWN, side="right") - 1)
        fpr = np.maximum(found.roc.fpr[shown], _SMALLEST_RATE / 10)
        width = 2.6 if name == evidence.INSIDER else 1.8
        label = f"{_NAMES.get(name, name)}: AUC {found.rates.auc.value:.3f}"
        axes.plot(fpr, found.roc.tpr[shown], linestyle=line, color=colour, linewidth=width, label=label)
        for rate, at in ((1e-3, found.rates.tpr_at_fpr_0001), (1e-2, found.rates.tpr_at_fpr_001)):
            beside, ends = rate * 1.05 ** (place + 1), [max(at.low, _SMALLEST_RATE), at.high]  # bars beside each other
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
    "attacks", "Membership attacks", evidence.AllAttacksFinding, evidence.measure_attacks, keys=("attacks",),
    on_page=True, sentence=_sentence, rows=_rows, tables=_tables,
    picture=FindingFigure("What outsiders get of what the insider can get", _roc_figure, _caption),
)  # fmt: skip
