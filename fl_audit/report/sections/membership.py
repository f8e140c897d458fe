"""The membership adversary, who sees the final model alone: its advantages, what bounds them, the insider beside it."""

from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fl_audit.adjacency import Relation, Unit
from fl_audit.evidence.belief.advantage import (
    AdvantageEstimate,
    MeanAdvantage,
    empirical_advantage,
    mean_advantage,
)
from fl_audit.evidence.bounds.lower_bounds import LowerBound, bound_json, epsilon_lower_bound
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.privacy.membership_bounds import MembershipBounds, membership_bounds
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.section import Caption, Entry, Picture, Section, finite
from fl_audit.report.sections.insider import EXACT, INDEPENDENT, POINT, InsiderNumbers
from fl_audit.report.sections.promise import COMPUTED, at_delta, exact_accountant, noise_text
from fl_audit.report.style import BIT_STYLES, INK, MUTED, SMALL_TEXT_SIZE, add_legend, finish_axes, report_figure
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import DASH, number_text, percent

_COLUMNS = ["membership_advantage", "record_membership_guess"]
_SCORE = "record_score"

_EVERY_RECORD = (
    "The bounds for members and others hold on average over data sets drawn from the population; by the luck of this D "
    "and this sample the advantage may lie beyond."
)
_RECORDS_OF_CLIENTS = "What is promised to a client holds for each of its records, where these are drawn alike."
_TWICE = (
    "One of the population in the place of a member is one removed and one added: these bounds count what is promised "
    "to either twice."
)
_NOTHING_PROMISED = "Nothing was promised, so nothing but certainty bounds the advantage."


@dataclass(frozen=True)
class MembershipNumbers:
    """What the membership adversary achieved.

    Parameters
    ----------
    over_worlds
        Mean over worlds of its advantage about members and others.
    record
        Its guesses about the record in which D and D' differ.
    bounds
        What the promise leaves to it; None where nothing was promised.
    record_bound
        What the promise leaves to anybody who is asked about that record; None likewise.
    bound_scope
        Whom the bounds cover, in words.
    lower_bound
        The epsilon that the losses of that record under the final models prove, without any assumption about their law;
        None where nothing was promised or one kind of world is missing.
    """

    over_worlds: MeanAdvantage
    record: AdvantageEstimate
    bounds: MembershipBounds | None
    record_bound: float | None
    bound_scope: str
    lower_bound: LowerBound | None = None

    @property
    def yeom_bound_fits(self) -> bool:
        """Whether the bound of Yeom et al. says anything, that is, lies below 1."""
        return self.bounds is not None and self.bounds.yeom < 1

    def to_json(self) -> dict[str, Any]:
        """Return the entry `membership`."""
        mean, record, bounds = self.over_worlds, self.record, self.bounds
        return {
            "membership": {
                "advantage": mean.advantage,
                "low": mean.low,
                "high": mean.high,
                "confidence": mean.confidence,
                "yeom_bound": None if bounds is None else finite(bounds.yeom),
                "tradeoff_bound": None if bounds is None else bounds.tradeoff,
                "bound": None if bounds is None else bounds.exact,
                "bound_scope": self.bound_scope,
                "record": {
                    "wins": record.wins,
                    "advantage": record.advantage,
                    "low": record.low,
                    "high": record.high,
                    "bound": self.record_bound,
                    "lower_bound": None if self.lower_bound is None else bound_json(self.lower_bound),
                },
            }
        }


def _measure(run: FinishedRun, _: Findings) -> MembershipNumbers | None:
    worlds, facts = run.tables.worlds, run.facts
    if not set(_COLUMNS) <= set(worlds) or worlds[_COLUMNS].isna().any(axis=None):
        return None
    promise = facts.guarantee
    return MembershipNumbers(
        over_worlds=mean_advantage(worlds[_COLUMNS[0]].to_numpy(dtype=np.float64), facts.confidence),
        record=empirical_advantage(worlds[_COLUMNS[1]].to_numpy() == worlds["bit"].to_numpy(), facts.confidence),
        bounds=None if promise is None else membership_bounds(promise),
        record_bound=None if promise is None else promise.advantage_bound_exact,
        bound_scope=_bound_scope(facts),
        lower_bound=_lower_bound(run),
    )


def _lower_bound(run: FinishedRun) -> LowerBound | None:
    """Return what the losses of the differing record prove: an audit of the final model alone."""
    promise, worlds = run.facts.guarantee, run.tables.worlds
    if promise is None or _SCORE not in worlds or run.bits.all() or not run.bits.any():
        return None
    scores = worlds[_SCORE].to_numpy(dtype=np.float64)
    members, others = scores[run.bits], scores[~run.bits]
    return epsilon_lower_bound(members, others, promise.delta, run.facts.confidence, BoundMethod.ORDER_STATISTIC)


def _bound_scope(facts: RunFacts) -> str:
    if not facts.has_promise:
        return _NOTHING_PROMISED
    if not facts.is_private_release:
        return _this_pair_only(facts.words)
    of_clients = f"{_RECORDS_OF_CLIENTS} " if facts.relation.unit is Unit.CLIENT else ""
    twice = f" {_TWICE}" if facts.relation.relation is Relation.ADD_REMOVE else ""
    return f"{of_clients}{_EVERY_RECORD}{twice}"


def _this_pair_only(words: UnitWords) -> str:
    return (
        f"No bound for members and others holds here: the noise follows {words.differing}, and no other {words.one} is "
        f"promised anything. The bounds say what the same promise would be worth to every {words.one}."
    )


def _sentence(numbers: MembershipNumbers, contents: RunContents) -> str:
    """Return how an outsider who has the finished model alone fares beside the insider, on one scale."""
    insider = contents.find(InsiderNumbers)
    compared = insider is not None and insider.estimate.worlds > 1
    beside = f"; the insider scores {number_text(insider.estimate.advantage, 2)}" if insider and compared else ""
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {number_text(numbers.over_worlds.advantage, 2)} on a scale where 0 is coin-flipping and 1 is always "
        f"right{beside}."
    )


def _console(numbers: MembershipNumbers, contents: RunContents) -> list[tuple[str, str]]:
    mean, record = numbers.over_worlds, number_text(numbers.record.advantage, 3)
    text = f"advantage {number_text(mean.advantage, 3)} ({number_text(mean.low, 3)} to {number_text(mean.high, 3)})"
    insider = contents.find(InsiderNumbers)
    if insider is None:
        return [("Membership", f"{text}; about {contents.facts.words.differing} {record}")]
    beside = number_text(insider.estimate.advantage, 3)
    return [("Membership", f"{text}; about {contents.facts.words.differing} {record}, the insider {beside}")]


def _entries(numbers: MembershipNumbers, contents: RunContents) -> list[Entry]:
    mean, record = numbers.over_worlds, numbers.record
    at = f"{percent(mean.confidence)} confidence"
    attack = "final release; a member where the loss is at most the average training loss (Yeom et al. 2018)"
    sample, student = "this D and this population sample", "Student interval of the mean over worlds"
    exact = "Clopper-Pearson interval of the share of right guesses"
    bounds, record_bound = _bound_entries(numbers, contents)
    differing = contents.facts.words.differing
    return [
        Entry("Membership advantage", mean.advantage, DASH, POINT, f"TPR - FPR, mean over worlds; {attack}", sample),
        Entry("Membership advantage, lower end", mean.low, DASH, at, student, sample),
        Entry("Membership advantage, upper end", mean.high, DASH, at, student, sample),
        *bounds,
        Entry(f"Right guesses about {differing}", record.wins, DASH, EXACT,
              "counted; the same rule, threshold from the records that D and D' share", INDEPENDENT),
        Entry(f"Advantage about {differing}", record.advantage, DASH, POINT,
              "twice the share of right guesses - 1", INDEPENDENT),
        Entry("The same, lower end", record.low, DASH, at, exact, INDEPENDENT),
        Entry("The same, upper end", record.high, DASH, at, exact, INDEPENDENT),
        *record_bound,
        *_proved(numbers, contents),
    ]  # fmt: skip


def _proved(numbers: MembershipNumbers, contents: RunContents) -> list[Entry]:
    bound = numbers.lower_bound
    if bound is None:
        return []
    words = contents.facts.words
    return [
        Entry(f"Lower bound from the loss of {words.differing} (nats)", finite(bound.epsilon), DASH,
              f"holds at {percent(bound.confidence)} confidence",
              f"{bound.method}{at_delta(bound.delta)}; final release alone, less the loss of what takes its place",
              bound.assumption),
        Entry("Largest bound that so many losses could prove (nats)", finite(bound.limit_of_detection), DASH, DASH,
              str(bound.method), bound.limit_meaning),
    ]  # fmt: skip


def _bound_entries(numbers: MembershipNumbers, contents: RunContents) -> tuple[list[Entry], list[Entry]]:
    """Return the bounds for members and others, and that for the differing record; none without a promise."""
    promise, bounds, scope = contents.facts.guarantee, numbers.bounds, numbers.bound_scope
    if promise is None or bounds is None:
        return [], []
    accountant, exact_by = str(promise.accountant), exact_accountant(contents.facts)
    for_members = [
        Entry("Its bound, exact", bounds.exact, exact_by, COMPUTED, "total variation between neighbours", scope),
        Entry("Its bound by epsilon and delta", bounds.tradeoff, accountant, COMPUTED,
              "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)", scope),
        Entry("Its bound by epsilon", finite(bounds.yeom), accountant, COMPUTED,
              "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1); above 1 it says nothing; it may be too large to write",
              f"delta = 0. {scope}"),
    ]  # fmt: skip
    insiders = "that of the insider (Bernau et al. 2021, proposition 1)"
    rests_on = noise_text(contents.facts)
    return for_members, [Entry("Its bound, exact", numbers.record_bound, exact_by, COMPUTED, insiders, rests_on)]


def _caption(numbers: MembershipNumbers, contents: RunContents) -> Caption:
    facts, insider = contents.facts, contents.find(InsiderNumbers)
    record, members = (number_text(found.advantage, 3) for found in (numbers.record, numbers.over_worlds))
    is_loose = facts.has_promise and not numbers.yeom_bound_fits
    loose = " The bound of Yeom et al. lies above 1 and says nothing." if is_loose else ""
    # With another prior the insider names the likelier data set, not the one that the evidence speaks for.
    even = facts.prior == 0.5
    chance = " and wins more often by chance only, since the insider knows all that it knows" if even else ""
    game = (
        f"plays the insider's game in the insider's worlds{chance}"
        if insider is not None
        else "says in each world whether that was used"
    )
    differing = facts.words.differing
    text = (
        "The membership adversary of Yeom et al. sees the final model alone and calls a record a member where its loss "
        f"is at most the average training loss. {_asked(facts)}, it {game}. "
        "Asked about all members and about the population sample, it has one advantage a world; "
        f"the intervals hold with {percent(numbers.over_worlds.confidence)} confidence, that of the last for the mean, "
        "for this D and this sample: another draw of records "
        f"may move it by more. {numbers.bound_scope}{loose}"
    )
    if insider is None:
        alternative = f"Advantages: membership about {differing} {record}, about members {members}."
        return Caption("The membership adversary", text, alternative)
    beside = number_text(insider.estimate.advantage, 3)
    alternative = f"Advantages: insider {beside}, membership about {differing} {record}, about members {members}."
    return Caption("The insider beside the membership adversary", text, alternative)


def _asked(facts: RunFacts) -> str:
    match facts.relation.unit:
        case Unit.RECORD:
            return "Asked about the record in which D and D' differ"
        case Unit.CLIENT:
            return "Asked about the client in which D and D' differ, by the mean loss of its records"
        case _:
            assert_never(facts.relation.unit)


@dataclass(frozen=True)
class _Row:
    """One adversary: what it achieved, and how it is drawn."""

    name: str
    found: AdvantageEstimate | MeanAdvantage
    colour: str
    marker: str


def _rows(numbers: MembershipNumbers, contents: RunContents) -> list[_Row]:
    insider, outsider = BIT_STYLES[1].colour, BIT_STYLES[0].colour
    words = contents.facts.words
    rows = [
        _Row("Membership,\nabout members and others", numbers.over_worlds, outsider, "s"),
        _Row(f"Membership,\nabout {words.differing}", numbers.record, outsider, "v"),
    ]
    beside = contents.find(InsiderNumbers)
    if beside is not None:
        rows.append(_Row(f"Insider\n({words.held_back})", beside.estimate, insider, "o"))
    return rows


def membership_figure(numbers: MembershipNumbers, contents: RunContents) -> Figure:
    """Draw the advantages of insider and membership adversary with their intervals, and the bounds as lines."""
    figure = report_figure()
    axes = figure.add_subplot()
    rows = _rows(numbers, contents)
    for height, row in enumerate(rows):
        _draw_row(axes, row, height)
    axes.axvline(0, color=MUTED, linewidth=1.2)
    _draw_bounds(axes, numbers, contents)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(min(-0.1, *(row.found.low - 0.04 for row in rows)), 1.04)
    name = "Advantage: twice the share of\nright guesses - 1; 0 = coin-flipping"
    finish_axes(axes, "What each adversary achieved", name, "Adversary")
    if contents.facts.has_promise:
        add_legend(axes)  # of the bounds; without a promise there are none
    return figure


def _draw_row(axes: Axes, row: _Row, height: int) -> None:
    value, ends = row.found.advantage, [row.found.low, row.found.high]
    axes.plot(ends, [height, height], "-", color=row.colour, linewidth=2.4)
    axes.plot(ends, [height, height], "|", color=row.colour, markersize=18, markeredgewidth=2)
    axes.plot([value], [height], row.marker, color=row.colour, markersize=7)
    axes.annotate(
        number_text(value, 3), (value, height), (0, 13), textcoords="offset points", ha="center",
        fontsize=SMALL_TEXT_SIZE, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, zorder=5,
    )  # fmt: skip


def _draw_bounds(axes: Axes, numbers: MembershipNumbers, contents: RunContents) -> None:
    """Draw each bound that lies below 1 as a line of its own kind; equal ones share one."""
    promise, bounds = contents.facts.guarantee, numbers.bounds
    if promise is None or bounds is None:
        return
    epsilon = f"epsilon {number_text(promise.epsilon, 3)}"
    lines: list[tuple[float, str, Any]] = [
        (promise.advantage_bound_exact, f"exact bound, one {contents.facts.words.one}", "-.")
    ]
    if bounds.exact != promise.advantage_bound_exact:
        lines.append((bounds.exact, "exact bound, members and others", (0, (8, 2))))
    lines.append((bounds.tradeoff, f"bound by {epsilon} and δ alone (Kairouz et al. 2015)", "--"))
    if numbers.yeom_bound_fits:
        lines.append((bounds.yeom, f"bound of Yeom et al. 2018, exp({epsilon}) - 1", ":"))
    for value, name, line in lines:
        axes.axvline(value, color=INK, linestyle=line, linewidth=1.8, label=f"{name}: {number_text(value, 3)}")


MEMBERSHIP = Section(
    numbers=MembershipNumbers,
    keys=("membership",),
    measure=_measure,
    heading="The membership adversary",
    entries=_entries,
    pictures=(Picture("membership", membership_figure, _caption),),
    sentence=_sentence,
    console=_console,
    unmeasured=("Membership",),
    belongs=lambda facts: not facts.game.plays_membership,
)
