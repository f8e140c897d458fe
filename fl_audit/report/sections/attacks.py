"""The game of membership: what attacks on the models find of many targets, beside what insiders get and promises allow.

Everything stands on one axis, from who sees a finished model alone to who knows all but one coin.
"""

import numpy as np
from matplotlib.figure import Figure

from fl_audit.evidence.findings.attacks import INSIDER, AttackNumbers, measure_attacks
from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.membership.limits import largest_tpr
from fl_audit.report.finding import Picture, Row, RunContents, Section, Table
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.style import INK, MUTED, finish_axes
from fl_audit.report.wording import number_text, percent, plural

_NAMES = {
    "loss": "Loss threshold",
    "shadow": "Shadow models",
    "white-box": "White box",
    "white-box-rounds": "White box, 3 releases",
    "active": "Active insider",
    "lira": "LiRA",
    "rmia": "RMIA",
    INSIDER: "Insider (exact)",
}
_SMALLEST_RATE = 1e-3
_RATES_SHOWN = np.concatenate([[0.0], np.logspace(np.log10(_SMALLEST_RATE / 10), 0, 2000)])
_LOOKS = (("#12426e", "-"), ("#4d7a2a", "--"), ("#7a3b69", "-."), ("#2a7f86", ":"), ("#5c5c5c", (0, (5, 1, 1, 1))))


def _auc_row(name: str, numbers: AttackNumbers) -> Row:
    rates = numbers.achieved[name].rates
    which, interval = ("one world", "bootstrap") if name != INSIDER else ("different worlds", "jackknife")
    how = (
        f"share of pairs of {which} that the score puts in order; {interval} interval over worlds, about so sure "
        "together with its rates; worlds are independent; targets of one world share its model"
    )
    return Row(f"AUC, {_NAMES.get(name, name)}", rates.auc.value, how, rates.auc.low, rates.auc.high, rates.confidence,
               numbers.largest_auc_of(name), on_page=True)  # fmt: skip


def _sentence(numbers: AttackNumbers, contents: RunContents) -> str:
    words = contents.words
    text = (
        f"In {plural(numbers.worlds, 'training')} we tossed a coin for each of {plural(numbers.targets, words.one)}, "
        "and trained with those that won."
    )
    if numbers.outsiders:
        name, found = max(numbers.outsiders.items(), key=lambda one: one[1].rates.auc.value)
        several = len(numbers.outsiders) > 1
        who, were = ("Attackers", "were") if several else (f"An attacker ({_NAMES.get(name, name)})", "was")
        text += (
            f" {who} who saw the finished models alone {were} then shown one that was in and one that was not; "
            f"{f'the best of them ({_NAMES.get(name, name)})' if several else 'it'} picked the right one in "
            f"{percent(found.rates.auc.value)} of cases{_auc_row(name, numbers).aside}, where coin-flipping has 50 %"
            f"{_allowed(numbers.largest_order)}."
        )
    insider = numbers.achieved.get(INSIDER)
    if insider is not None:
        text += (
            f" A participant who knows everything but one coin, and sees every update, tells a training with the "
            f"{words.one} from one without it in {percent(insider.rates.auc.value)} of cases"
            f"{_auc_row(INSIDER, numbers).aside}{_allowed(numbers.largest_auc)}."
        )
    return text


def _allowed(limit: float | None) -> str:
    return "" if limit is None else f"; the promise allows at most {percent(limit)}"


def _tables(numbers: AttackNumbers, contents: RunContents) -> list[Table]:
    columns = ("Who attacks", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR", "Balanced accuracy")
    rows = []
    for name, found in numbers.achieved.items():
        rates = found.rates
        shown = (rates.auc, rates.tpr_at_fpr_0001, rates.tpr_at_fpr_001, rates.balanced_accuracy)
        limits = (numbers.largest_auc_of(name), *numbers.largest_rates)
        beside = [Row(column, one.value, "", one.low, one.high, limit=limit).text
                  for column, one, limit in zip(columns[1:], shown, limits, strict=True)]  # fmt: skip
        rows.append((_NAMES.get(name, name), *beside))
    if contents.facts.has_promise:
        told = [f"at most {number_text(value, 3)}" for value in (numbers.largest_order, *numbers.largest_rates)]
        told[0] += f", an insider {number_text(numbers.largest_auc, 3)}"
        rows.append(("Nobody, by the promise", *told))
    title = f"Membership attacks on {plural(numbers.targets, 'target')} in {plural(numbers.worlds, 'world')}"
    return [Table(title, columns, tuple(rows))]


def _rows(numbers: AttackNumbers, contents: RunContents) -> list[Row]:
    promise, found = contents.facts.guarantee, list[Row]()
    epsilon = None if promise is None else promise.epsilon
    for name, one in numbers.achieved.items():
        said = _NAMES.get(name, name)
        found.append(_auc_row(name, numbers))
        basis = "not computed: the worlds were shadow models of each other"
        if one.bound is not None:
            basis = (
                f"holds at {percent(one.bound.confidence)} confidence; {one.bound.method}{at_delta(one.bound.delta)}, "
                f"one target drawn in each world; {one.bound.assumption}"
            )
        proved = None if one.bound is None else finite(one.bound.epsilon)
        found.append(Row(f"Lower bound on epsilon, {said} (nats)", proved, basis, limit=epsilon,
                         on_page=bool(proved)))  # fmt: skip
        if one.one_run is not None:
            at = f"holds at {percent(one.one_run.confidence)} confidence; coins are independent"
            counted = f"{one.one_run.guesses.right} of {one.one_run.guesses.guessed} guesses right in world 0"
            basis = f"Steinke et al. 2023{at_delta(one.one_run.delta)}; {counted}; {at}"
            one_run = finite(one.one_run.epsilon)
            found.append(Row(f"One-run bound on epsilon, {said} (nats)", one_run, basis, limit=epsilon))
            if one.by_tradeoff is not None:
                basis, by_curve = f"after Mahloujifar et al. 2024; the same; {at}", finite(one.by_tradeoff.epsilon)
                found.append(
                    Row(f"One-run bound by the trade-off curve, {said} (nats)", by_curve, basis, limit=epsilon)
                )
    if numbers.insider_auc is not None:
        found.append(Row("AUC that the insiders' signals lead to", numbers.insider_auc,
                         "mean of Phi(sqrt(mu_1^2 + mu_0^2) / 2) over pairs, were signals fixed"))  # fmt: skip
    return found


def _roc_figure(figure: Figure, numbers: AttackNumbers, contents: RunContents) -> None:
    """Draw every ROC on logarithmic axes, with intervals at two rates, what the promise allows and what coins reach."""
    axes = figure.add_subplot()
    for place, (name, found) in enumerate(numbers.achieved.items()):
        colour, line = (INK, "-") if name == INSIDER else _LOOKS[place % len(_LOOKS)]
        # Of the corners of many worlds as many as a figure can show: memory would grow with every score.
        shown = np.unique(np.searchsorted(found.roc.fpr, _RATES_SHOWN, side="right") - 1)
        fpr = np.maximum(found.roc.fpr[shown], _SMALLEST_RATE / 10)
        width, label = (2.6 if name == INSIDER else 1.8), f"{_NAMES.get(name, name)}: AUC {found.rates.auc.value:.3f}"
        axes.plot(fpr, found.roc.tpr[shown], linestyle=line, color=colour, linewidth=width, label=label)
        for rate, at in ((1e-3, found.rates.tpr_at_fpr_0001), (1e-2, found.rates.tpr_at_fpr_001)):
            beside = rate * 1.05 ** (place + 1)  # side by side, so that none hides another
            axes.plot(
                [beside, beside], [max(at.low, _SMALLEST_RATE), at.high], "-", color=colour, marker="_", markersize=6
            )
    rates = np.logspace(np.log10(_SMALLEST_RATE), 0, 60)
    axes.plot(rates, rates, linestyle=":", color=MUTED, linewidth=1.4, label="coin-flipping")
    promise = contents.facts.guarantee
    if promise is not None:
        allowed = largest_tpr(promise.claim.profile, rates)
        axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="///", linewidth=0, alpha=0.5)
        axes.plot(rates, allowed, linestyle=(0, (8, 2)), color=MUTED, linewidth=1.6, label="most that is promised")
    axes.set(xscale="log", yscale="log", xlim=(_SMALLEST_RATE, 1), ylim=(_SMALLEST_RATE, 1.05))
    finish_axes(axes, "Who finds members, at how many false alarms", "False-positive rate", "True-positive rate")


def _caption(_: AttackNumbers, contents: RunContents) -> str:
    hatched = "A kept promise lets nobody into the hatched region, but by chance" if contents.facts.has_promise else (
        "Nothing was promised, so no region is closed to anybody"
    )  # fmt: skip
    return (
        f"Share of members found over share of others called members. What counts is how many are found for sure, at "
        f"the left. {hatched}: the bars are bootstrap intervals."
    )


ATTACKS = Section(
    name="attacks", title="Membership attacks", numbers=AttackNumbers, measure=measure_attacks, keys=("attacks",),
    on_page=True, sentence=_sentence, rows=_rows, tables=_tables,
    picture=Picture("What outsiders get of what the insider can get", _roc_figure, _caption, height=4.6),
)  # fmt: skip
