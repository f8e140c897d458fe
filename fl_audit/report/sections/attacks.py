"""The game of membership: what attacks on the models find of many targets, beside what insiders get and promises allow.

Everything stands on one axis, from who sees a finished model alone to who knows all but one coin.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import ndtr

from fl_audit.adversaries.membership.names import Attack
from fl_audit.evidence.bounds.lower_bounds import bound_json
from fl_audit.evidence.membership.achieved import Achieved, Asked, achieved_by_attack, achieved_by_insiders
from fl_audit.evidence.membership.limits import largest_auc, largest_tpr
from fl_audit.evidence.membership.rates import Interval, MembershipRates
from fl_audit.game.membership import Membership
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Caption, Entry, Picture, Section, Table, finite
from fl_audit.report.sections.promise import at_delta
from fl_audit.report.style import INK, MUTED, SMALL_TEXT_SIZE, add_legend, finish_axes, report_figure
from fl_audit.report.wording import DASH, number_text, percent, plural

Floats = NDArray[np.float64]

SCORE, APART = "score_", "apart_"
"""Before the name of an attack, the columns of its scores: with all other worlds as shadows, and with some apart."""
INSIDER = "insider"
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
_WORLDS_OF_PAIRS = 100
"""In so many worlds the theory of the insiders goes through all pairs; more would change no digit that is shown."""
_LOOKS = (("#12426e", "-"), ("#b35806", "--"), ("#4d7a2a", "-."), ("#7a3b69", ":"), ("#2a7f86", (0, (5, 1, 1, 1))))
_MARKERS = ("o", "v", "s", "^", "D")
_INDEPENDENT = "Worlds are independent; targets of one world share its model."
_NO_SHADOW_APART = "not computed: the worlds were shadow models of each other"


@dataclass(frozen=True)
class AttackNumbers:
    """What everybody achieved.

    Parameters
    ----------
    achieved
        By name, the attacks in the order of the configuration, the insider last.
    worlds, targets
        Their numbers.
    insider_auc
        AUC that the insiders' signal-to-noise ratios lead to, were these fixed; None without insider, or where rounds
        are sampled in secret.
    largest_auc
        The AUC that the promise allows to anybody; None without a promise.
    """

    achieved: dict[str, Achieved]
    worlds: int
    targets: int
    insider_auc: float | None
    largest_auc: float | None

    @property
    def outsiders(self) -> dict[str, Achieved]:
        """The attacks that see models alone."""
        return {name: found for name, found in self.achieved.items() if name != INSIDER}

    def to_json(self) -> dict[str, Any]:
        """Return the entry `attacks`."""
        return {
            "attacks": {
                "worlds": self.worlds,
                "targets": self.targets,
                "largest_auc": self.largest_auc,
                "insider_auc_from_signal": self.insider_auc,
                "by_name": {name: _json(found) for name, found in self.achieved.items()},
            }
        }


def _json(found: Achieved) -> dict[str, Any]:
    rates, one_run = found.rates, found.one_run
    named = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")
    told: dict[str, Any] = {name: asdict(getattr(rates, name)) for name in named}
    told |= {"confidence": rates.confidence, "lower_bound": None if found.bound is None else bound_json(found.bound)}
    if one_run is None or found.by_tradeoff is None:
        return told | {"one_run": None}
    guesses = one_run.guesses
    counted = {"coins": guesses.coins, "guessed": guesses.guessed, "right": guesses.right}
    bounds = {"epsilon": finite(one_run.epsilon), "ceiling": finite(one_run.limit_of_detection)}
    return told | {"one_run": bounds | {"epsilon_by_tradeoff": finite(found.by_tradeoff.epsilon)} | counted}


def _measure(run: FinishedRun, _: Findings) -> AttackNumbers | None:
    table, promise = run.tables.targets, run.facts.guarantee
    if table is None:
        return None
    worlds = table["world"].nunique()

    def column(name: str) -> Floats:
        return table[name].to_numpy(dtype=np.float64).reshape(worlds, -1)

    membership = Membership(column("is_in").astype(np.bool_))
    delta = float(run.facts.configuration["privacy"]["delta"])
    asked, achieved = Asked(delta, run.facts.confidence), dict[str, Achieved]()
    for name in (str(named)[len(SCORE) :] for named in table.columns if str(named).startswith(SCORE)):
        scores = column(SCORE + name)
        apart = column(APART + name) if APART + name in table else None
        attack = Attack(name)
        kept = apart if attack.has_shadows else scores
        achieved[name] = achieved_by_attack(scores, kept, membership, asked, attack.sees_weights)
    known = None
    if "log_odds" in table:
        achieved[INSIDER] = achieved_by_insiders(column("log_odds"), membership, asked)
        is_secret = run.facts.is_sampled and not run.facts.game.standpoint.sees_participation
        known = None if is_secret else _auc_of_signals(column("mu"), membership)
    if not achieved:
        return None
    limit = None if promise is None else largest_auc(promise.claim.profile)
    return AttackNumbers(achieved, worlds, membership.targets, known, limit)


def _auc_of_signals(mu: Floats, membership: Membership) -> float:
    """Return the AUC of log-odds N(+-mu^2/2, mu^2) of targets that differ in mu, over all pairs of some worlds.

    Of a member with mu_1 and another with mu_0 the difference of log-odds is N(s^2/2, s^2), s^2 = mu_1^2 + mu_0^2.
    """
    right, pairs = 0.0, 0
    for squares, is_in in zip(np.square(mu[:_WORLDS_OF_PAIRS]), membership.is_in[:_WORLDS_OF_PAIRS], strict=True):
        spread = np.sqrt(squares[is_in, np.newaxis] + squares[~is_in])
        right, pairs = right + float(ndtr(spread / 2).sum()), pairs + spread.size
    return right / pairs


def _best(numbers: AttackNumbers) -> tuple[str, MembershipRates]:
    name, found = max(numbers.outsiders.items(), key=lambda one: one[1].rates.auc.value)
    return name, found.rates


def _interval(found: Interval, digits: int = 3) -> str:
    if found.low == found.high:
        # Resampled worlds in which nothing was found find nothing either: that is no interval.
        return f"{number_text(found.value, digits)} (no interval)"
    return f"{number_text(found.value, digits)} ({number_text(found.low, digits)} to {number_text(found.high, digits)})"


def _sentence(numbers: AttackNumbers, contents: RunContents) -> str:
    words = contents.facts.words
    text = (
        f"In {plural(numbers.worlds, 'training')} we tossed a coin for each of {plural(numbers.targets, words.one)}, "
        "and trained with those that won."
    )
    if numbers.outsiders:
        name, rates = _best(numbers)
        several = len(numbers.outsiders) > 1
        who = "Attackers" if several else f"An attacker ({_NAMES.get(name, name)})"
        best = f"the best of them ({_NAMES.get(name, name)})" if several else "it"
        text += (
            f" {who} who saw the finished models alone {'were' if several else 'was'} then shown one that was in and "
            f"one that was not; {best} picked the right one in {percent(rates.auc.value)} of cases, where "
            "coin-flipping has 50 %."
        )
    insider = numbers.achieved.get(INSIDER)
    if insider is not None:
        text += (
            " A participant who knows everything but that one coin, and sees every update, is right in "
            f"{percent(insider.rates.auc.value)}."
        )
    if numbers.largest_auc is not None:
        text += f" The promise allows nobody more than {percent(numbers.largest_auc)}."
    return text


def _console(numbers: AttackNumbers, _: RunContents) -> list[tuple[str, str]]:
    lines = []
    for name, found in numbers.achieved.items():
        bound = "" if found.bound is None else f"; epsilon at least {number_text(found.bound.epsilon, 3)}"
        if found.one_run is not None:
            bound += f", by one run {number_text(found.one_run.epsilon, 3)}"
        tpr = _interval(found.rates.tpr_at_fpr_001, 2)
        lines.append((_NAMES.get(name, name), f"AUC {_interval(found.rates.auc)}; TPR at 1 % FPR {tpr}{bound}"))
    return lines


def _tables(numbers: AttackNumbers, contents: RunContents) -> list[Table]:
    columns = ("Who attacks", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR", "Balanced accuracy")
    rows = [
        (
            _NAMES.get(name, name),
            *(
                _interval(one)
                for one in (
                    found.rates.auc,
                    found.rates.tpr_at_fpr_0001,
                    found.rates.tpr_at_fpr_001,
                    found.rates.balanced_accuracy,
                )
            ),
        )
        for name, found in numbers.achieved.items()
    ]
    if (promise := contents.facts.guarantee) is not None:
        allowed = (float(value) for value in largest_tpr(promise.claim.profile, np.array([1e-3, 1e-2])))
        rows.append(
            (
                "Nobody, by the promise",
                f"at most {number_text(numbers.largest_auc, 3)}",
                *(f"at most {number_text(value, 3)}" for value in allowed),
                f"at most {number_text((1 + promise.advantage_bound_exact) / 2, 3)}",
            )
        )
    title = f"Membership attacks on {plural(numbers.targets, 'target')} in {plural(numbers.worlds, 'world')}"
    return [Table(title, columns, tuple(rows), look="wide"), _bounds_table(numbers, contents)]


def _bounds_table(numbers: AttackNumbers, contents: RunContents) -> Table:
    """Return what each attack's scores prove, beside the promise."""
    facts = contents.facts
    rows: list[tuple[Any, ...]] = [
        (
            _NAMES.get(name, name),
            None if found.bound is None else found.bound.epsilon,
            None if found.one_run is None else found.one_run.epsilon,
            None if found.by_tradeoff is None else found.by_tradeoff.epsilon,
            None if found.one_run is None else f"{found.one_run.guesses.right} of {found.one_run.guesses.guessed}",
        )
        for name, found in numbers.achieved.items()
    ]
    if facts.guarantee is not None:
        rows.append(("The promise", *(facts.guarantee.epsilon,) * 3, None))
    columns = (
        "Who attacks",
        "one target of every world",
        "one-run bound (world 0)",
        "one-run bound by the trade-off curve",
        "right guesses in world 0",
    )
    delta = float(facts.configuration["privacy"]["delta"])
    return Table(f"Epsilon that is proved at {percent(facts.confidence)} confidence{at_delta(delta)}", columns,
                 tuple(rows))  # fmt: skip


def _entries(numbers: AttackNumbers, contents: RunContents) -> list[Entry]:
    found = []
    for name, one in numbers.achieved.items():
        said, rates = _NAMES.get(name, name), one.rates
        at = f"bootstrap, about {percent(rates.confidence)} together with the rates"
        how = f"share of pairs of one world that the score puts in order; {_interval(rates.auc)}"
        found.append(Entry(f"AUC, {said}", rates.auc.value, DASH, at, how, _INDEPENDENT))
        if one.bound is not None:
            method = f"{one.bound.method}{at_delta(one.bound.delta)}, one target drawn in each world"
            found.append(
                Entry(f"Lower bound on epsilon, {said} (nats)", finite(one.bound.epsilon), DASH,
                      f"holds at {percent(one.bound.confidence)} confidence", method, one.bound.assumption)
            )  # fmt: skip
        else:
            found.append(Entry(f"Lower bound on epsilon, {said} (nats)", None, DASH, DASH, _NO_SHADOW_APART, DASH))
        if one.one_run is not None:
            counted = f"{one.one_run.guesses.right} of {one.one_run.guesses.guessed} guesses right in world 0"
            found.append(
                Entry(f"One-run bound on epsilon, {said} (nats)", finite(one.one_run.epsilon), DASH,
                      f"holds at {percent(one.one_run.confidence)} confidence",
                      f"Steinke et al. 2023{at_delta(one.one_run.delta)}; {counted}", "coins are independent")
            )  # fmt: skip
        if one.one_run is not None and one.by_tradeoff is not None:
            found.append(
                Entry(f"One-run bound on epsilon by the trade-off curve, {said} (nats)",
                      finite(one.by_tradeoff.epsilon), DASH,
                      f"holds at {percent(one.by_tradeoff.confidence)} confidence",
                      f"after Mahloujifar et al. 2024{at_delta(one.one_run.delta)}; the same guesses",
                      "coins are independent")
            )  # fmt: skip
    if numbers.insider_auc is not None:
        found.append(
            Entry("AUC that the insiders' signals lead to", numbers.insider_auc, DASH, "none: a point estimate",
                  "mean of Phi(sqrt(mu_1^2 + mu_0^2) / 2) over pairs of a member and another",
                  "signals do not follow the noise")
        )  # fmt: skip
    if numbers.largest_auc is not None:
        found.append(
            Entry("AUC that the promise allows", numbers.largest_auc, "exact profile", "holds always",
                  "area above the trade-off function", DASH)
        )  # fmt: skip
    return found


def roc_figure(numbers: AttackNumbers, contents: RunContents) -> Figure:
    """Draw every ROC on logarithmic axes, with what the promise allows and what coins reach."""
    figure = report_figure(5.0)
    axes = figure.add_subplot()
    for place, (name, found) in enumerate(numbers.achieved.items()):
        colour, line = (INK, "-") if name == INSIDER else _LOOKS[place % len(_LOOKS)]
        # Of the corners of many worlds as many as a figure can show: memory would grow with every score.
        shown = np.unique(np.searchsorted(found.roc.fpr, _RATES_SHOWN, side="right") - 1)
        fpr = np.maximum(found.roc.fpr[shown], _SMALLEST_RATE / 10)
        width, label = (2.6 if name == INSIDER else 1.8), f"{_NAMES.get(name, name)}: AUC {found.rates.auc.value:.3f}"
        axes.plot(fpr, found.roc.tpr[shown], linestyle=line, color=colour, linewidth=width, label=label)
    rates = np.logspace(np.log10(_SMALLEST_RATE), 0, 60)
    axes.plot(rates, rates, linestyle=":", color=MUTED, linewidth=1.4, label="coin-flipping")
    promise = contents.facts.guarantee
    if promise is not None:
        allowed = largest_tpr(promise.claim.profile, rates)
        axes.fill_between(rates, allowed, 1.0, facecolor="none", edgecolor=MUTED, hatch="///", linewidth=0, alpha=0.5)
        axes.plot(rates, allowed, linestyle=(0, (8, 2)), color=MUTED, linewidth=1.6, label="most that is promised")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_SMALLEST_RATE, 1)
    axes.set_ylim(_SMALLEST_RATE, 1.05)
    finish_axes(axes, "Who finds members, at how many false alarms", "False-positive rate", "True-positive rate")
    add_legend(axes, columns=2)
    return figure


def _roc_caption(numbers: AttackNumbers, contents: RunContents) -> Caption:
    words = contents.facts.words
    hatched = (
        " Nobody may come into the hatched region while the promise is kept, but by chance."
        if contents.facts.has_promise
        else " Nothing was promised, so no region is closed to anybody."
    )
    return Caption(
        "What an outsider gets of what the insider can get",
        f"Share of members found against share of others called members, for all {plural(numbers.targets, words.one)} "
        f"of {plural(numbers.worlds, 'world')} together. Both axes are logarithmic: what counts is how many are found "
        f"for sure, at the left.{hatched}",
        f"True- over false-positive rates of {', '.join(_NAMES.get(name, name) for name in numbers.achieved)}.",
    )


def auc_figure(numbers: AttackNumbers, contents: RunContents) -> Figure:
    """Draw the AUC of everybody with its interval, on one axis."""
    figure = report_figure(1.6 + 0.5 * len(numbers.achieved))
    axes = figure.add_subplot()
    for place, (name, found) in enumerate(numbers.achieved.items()):
        _draw_auc(axes, place, found.rates.auc, INK if name == INSIDER else _LOOKS[place % len(_LOOKS)][0])
    axes.axvline(0.5, color=MUTED, linestyle=":", linewidth=1.4, label="coin-flipping")
    if numbers.insider_auc is not None:
        label = f"theory of the insider: {numbers.insider_auc:.3f}"
        axes.axvline(numbers.insider_auc, color=INK, linestyle="--", linewidth=1.6, label=label)
    if numbers.largest_auc is not None:
        label = f"most that is promised: {numbers.largest_auc:.3f}"
        axes.axvline(numbers.largest_auc, color=INK, linestyle="-.", linewidth=1.6, label=label)
    axes.set_yticks(range(len(numbers.achieved)), [_NAMES.get(name, name) for name in numbers.achieved])
    axes.set_ylim(-0.6, len(numbers.achieved) - 0.4)
    finish_axes(axes, "AUC of every attacker", "AUC: chance to tell a member from another;\n0.5 = coin-flipping", "")
    add_legend(axes, columns=3)
    return figure


def _draw_auc(axes: Axes, height: int, found: Interval, colour: str) -> None:
    axes.plot([found.low, found.high], [height, height], "-", color=colour, linewidth=2.4)
    axes.plot([found.value], [height], _MARKERS[height % len(_MARKERS)], color=colour, markersize=7)
    axes.annotate(
        number_text(found.value, 3), (found.value, height), (0, 9), textcoords="offset points", ha="center",
        fontsize=SMALL_TEXT_SIZE, color=INK,
    )  # fmt: skip


def _auc_caption(numbers: AttackNumbers, contents: RunContents) -> Caption:
    insider = " The insider knows everything but one coin, and has the exact likelihood ratio." if (
        INSIDER in numbers.achieved
    ) else ""  # fmt: skip
    return Caption(
        "Everybody on one axis",
        "Probability that an attacker scores a member above another of the same world, with its bootstrap interval "
        f"over worlds (about {percent(contents.facts.confidence)}).{insider}",
        "AUC of each attacker with its interval: "
        + "; ".join(f"{_NAMES.get(name, name)} {_interval(one.rates.auc)}" for name, one in numbers.achieved.items()),
    )


ATTACKS = Section(
    numbers=AttackNumbers,
    keys=("attacks",),
    measure=_measure,
    heading="Membership attacks",
    entries=_entries,
    tables=_tables,
    pictures=(Picture("attacks", roc_figure, _roc_caption), Picture("attacks-auc", auc_figure, _auc_caption)),
    sentence=_sentence,
    console=_console,
)
