"""The membership adversary, who sees the final model alone: its advantages, what bounds them, the insider beside it."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from fl_audit.adjacency import Relation, Unit
from fl_audit.evidence.belief.advantage import AdvantageEstimate, MeanAdvantage
from fl_audit.evidence.findings.found import finite
from fl_audit.evidence.findings.insider import InsiderNumbers
from fl_audit.evidence.findings.membership import MembershipNumbers, measure_membership
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.report.finding import Picture, Row, RunContents, Section
from fl_audit.report.sections.promise import at_delta, exact_accountant, noise_text
from fl_audit.report.style import (
    BIT_STYLES,
    MUTED,
    IntervalRow,
    add_legend,
    draw_intervals,
    draw_limit,
    finish_axes,
    report_figure,
)
from fl_audit.report.units import unit_words
from fl_audit.report.wording import interval_text, number_text, percent


def scope_of(facts: RunFacts) -> str:
    """Return whom the bounds cover, in words."""
    if not facts.has_promise:
        return "Nothing was promised, so nothing but certainty bounds the advantage."
    words = unit_words(facts.relation)
    if not facts.is_private_release:
        return (
            f"No bound for members and others holds here: the noise follows {words.differing}, and no other "
            f"{words.one} is promised anything. The bounds say what the same promise would be worth to every one."
        )
    text = (
        "The bounds for members and others hold on average over data sets drawn from the population; by the luck of "
        "this D and this sample the advantage may lie beyond."
    )
    if facts.relation.unit is Unit.CLIENT:
        text = f"What is promised to a client holds for each of its records, where these are drawn alike. {text}"
    if facts.relation.relation is Relation.ADD_REMOVE:
        text += (
            " One of the population in the place of a member is one removed and one added: these bounds count what is "
            "promised to either twice."
        )
    return text


def _said(numbers: MembershipNumbers, run: FinishedRun) -> Mapping[str, Any]:
    return {"membership": numbers.to_json()["membership"] | {"bound_scope": scope_of(run.facts)}}


def _sentence(numbers: MembershipNumbers, contents: RunContents) -> str:
    """Return how an outsider who has the finished model alone fares beside the insider, on one scale."""
    insider = contents.find(InsiderNumbers)
    compared = insider is not None and insider.estimate.worlds > 1
    beside = f"; the insider scores {number_text(insider.estimate.advantage, 2)}" if insider and compared else ""
    return (
        "An outsider who sees only the finished model, and tells its training cases by how well it does on them, "
        f"scores {number_text(numbers.over_worlds.advantage, 2)} on a scale where 0 is coin-flipping and 1 is always "
        f"right{beside}. {scope_of(contents.facts)}"
    )


def _console(numbers: MembershipNumbers, contents: RunContents) -> list[tuple[str, str]]:
    mean, record = numbers.over_worlds, number_text(numbers.record.advantage, 3)
    text = f"advantage {interval_text(mean.advantage, mean.low, mean.high)}; about {contents.words.differing} {record}"
    insider = contents.find(InsiderNumbers)
    beside = "" if insider is None else f", the insider {number_text(insider.estimate.advantage, 3)}"
    return [("Membership", text + beside)]


def _rows(numbers: MembershipNumbers, contents: RunContents) -> list[Row]:
    mean, record, bounds, differing = numbers.over_worlds, numbers.record, numbers.bounds, contents.words.differing
    attack = "a member where the loss under the final release is at most the average training loss (Yeom et al. 2018)"
    rows = [
        Row("Membership advantage", mean.advantage,
            f"TPR - FPR, mean over worlds; {attack}; Student interval, for this D and this population sample",
            mean.low, mean.high, mean.confidence, None if bounds is None else bounds.exact),
        Row(f"Right guesses about {differing}", record.wins, "counted; the same rule, threshold from all others"),
        Row(f"Advantage about {differing}", record.advantage,
            "twice the share of right guesses - 1; Clopper-Pearson interval", record.low, record.high,
            record.confidence, numbers.record_bound),
    ]  # fmt: skip
    promise, exact_by = contents.facts.guarantee, exact_accountant(contents.facts)
    if promise is not None and bounds is not None:
        epsilon = "(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1) (Kairouz et al. 2015, Humphries et al. 2023)"
        rows += [
            Row("Bound for members, exact", bounds.exact, f"total variation between neighbours, by {exact_by}"),
            Row("Bound for members by epsilon and delta", bounds.tradeoff, f"{epsilon}, by {promise.accountant}"),
            Row("Bound for members by epsilon", finite(bounds.yeom),
                "exp(epsilon) - 1 (Yeom et al. 2018, theorem 1), at delta = 0; above 1 it says nothing"),
            Row(f"Bound about {differing}, exact", numbers.record_bound,
                f"that of the insider (Bernau et al. 2021, prop. 1), by {exact_by}; {noise_text(contents.facts)}"),
        ]  # fmt: skip
    if (bound := numbers.lower_bound) is not None:
        rows += [
            Row(f"Lower bound from the loss of {differing} (nats)", finite(bound.epsilon),
                f"holds at {percent(bound.confidence)} confidence; {bound.method}{at_delta(bound.delta)}; final "
                f"release alone, less the loss of what takes its place; {bound.assumption}",
                limit=None if promise is None else promise.epsilon),
            Row("Largest bound that so many losses could prove (nats)", finite(bound.limit_of_detection),
                f"{bound.method}; {bound.limit_meaning}"),
        ]  # fmt: skip
    return rows


def _caption(numbers: MembershipNumbers, contents: RunContents) -> str:
    even = "" if contents.facts.prior != 0.5 or contents.find(InsiderNumbers) is None else (
        " It wins more often than the insider by chance only."
    )  # fmt: skip
    return (
        f"The adversary of Yeom et al. sees the final model alone. Intervals at "
        f"{percent(numbers.over_worlds.confidence)}.{even}"
    )


def _interval_row(name: str, found: AdvantageEstimate | MeanAdvantage, marker: str, colour: str) -> IntervalRow:
    return IntervalRow(name, found.advantage, found.low, found.high, number_text(found.advantage, 3), marker, colour)


def membership_figure(numbers: MembershipNumbers, contents: RunContents) -> Figure:
    """Draw the advantages of insider and membership adversary with their intervals, and the bounds as lines."""
    figure, words, insider = report_figure(3.4), contents.words, contents.find(InsiderNumbers)
    axes = figure.add_subplot()
    rows = [
        _interval_row("Membership,\nmembers and others", numbers.over_worlds, "s", MUTED),
        _interval_row(f"Membership,\n{words.differing}", numbers.record, "v", MUTED),
    ]
    if insider is not None:
        rows.append(_interval_row(f"Insider\n({words.held_back})", insider.estimate, "o", BIT_STYLES[1].colour))
    axes.axvline(0, color=MUTED, linewidth=1.2)
    draw_intervals(axes, rows)
    axes.set_xlim(min(-0.1, *(row.low - 0.04 for row in rows)), 1.04)
    finish_axes(
        axes, "What each adversary achieved", "Advantage: twice the share of\nright guesses - 1; 0 = coin-flipping", ""
    )
    promise, bounds = contents.facts.guarantee, numbers.bounds
    if promise is not None and bounds is not None:
        exact = promise.advantage_bound_exact
        draw_limit(axes, exact, f"exact bound, one {words.one}: {number_text(exact, 3)}")
        if bounds.exact != exact:
            draw_limit(axes, bounds.exact, f"exact bound, members and others: {number_text(bounds.exact, 3)}", "--")
        add_legend(axes)
    return figure


MEMBERSHIP = Section(
    name="membership",
    title="The membership adversary",
    numbers=MembershipNumbers,
    measure=measure_membership,
    keys=("membership",),
    sentence=_sentence,
    rows=_rows,
    picture=Picture("The membership adversary", membership_figure, _caption),
    console=_console,
    said=_said,
    belongs=lambda facts: not facts.game.plays_membership,
)
