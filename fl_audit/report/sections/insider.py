"""The insider: how often it was right, and how sure it became."""

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import logit

from fl_audit.evidence.belief.advantage import AdvantageEstimate, empirical_advantage
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.law_words import insider_text
from fl_audit.report.section import Caption, Entry, Picture, Section
from fl_audit.report.sections.insider_figures import (
    FEWEST_FOR_HISTOGRAM,
    belief_rounds_figure,
    beliefs_figure,
    exact_laws,
    has_histogram,
    log_odds_figure,
)
from fl_audit.report.sections.insider_tail import tail_caption, tail_figure
from fl_audit.report.sections.promise import belief_bounds
from fl_audit.report.wording import DASH, number_text, percent, plural

POINT = "none: a point estimate"
EXACT = "none: exact count"
INDEPENDENT = "worlds are independent repetitions"


@dataclass(frozen=True)
class InsiderNumbers:
    """What the insider achieved.

    Parameters
    ----------
    estimate
        Games won, and the advantage that follows.
    max_belief
        Its largest belief in the dataset that was really used.
    belief_violations
        Worlds in which that belief passed its bound.
    """

    estimate: AdvantageEstimate
    max_belief: float
    belief_violations: int

    def to_json(self) -> dict[str, Any]:
        """Return the entry `insider`."""
        estimate = self.estimate
        return {
            "insider": {
                "worlds": estimate.worlds,
                "wins": estimate.wins,
                "advantage": estimate.advantage,
                "advantage_low": estimate.low,
                "advantage_high": estimate.high,
                "max_belief": self.max_belief,
                "belief_violations": self.belief_violations,
            }
        }


def _measure(run: FinishedRun, _: Findings) -> InsiderNumbers | None:
    promise = run.facts.guarantee
    if promise is None or not run.has_insider:
        return None
    # The promise bounds the log-odds; at a prior of 1/2 this counts the beliefs beyond the bound.
    limit = logit(promise.belief_bound) - logit(promise.prior)
    return InsiderNumbers(
        estimate=empirical_advantage(run.tables.worlds["won"].to_numpy(), run.facts.confidence),
        max_belief=float(run.tables.worlds["belief"].max()),
        belief_violations=int((run.towards_truth > limit).sum()),
    )


def _sentence(numbers: InsiderNumbers, contents: RunContents) -> str:
    return f"{_right_guesses(numbers, contents)} {_certainty(numbers)}"


def _right_guesses(numbers: InsiderNumbers, contents: RunContents) -> str:
    """Return how often the strongest insider was right, beside coin-flipping."""
    worlds, wins = numbers.estimate.worlds, numbers.estimate.wins
    who = f"We put the strongest insider we could think of to the test: {insider_text(contents.facts)}."
    if worlds == 1:
        return f"{who} It had a single trial and guessed {'right' if wins else 'wrong'}; one trial says almost nothing."
    return (
        f"{who} It was right in {wins:,} of {worlds:,} trials, where flipping a coin is right in about "
        f"{number_text(worlds / 2)} of them."
    )


def _certainty(numbers: InsiderNumbers) -> str:
    """Return the highest certainty that the insider reached and how often it passed the limit."""
    text = f"The surest it ever became of the right answer was {percent(numbers.max_belief)}"
    beyond, worlds = numbers.belief_violations, numbers.estimate.worlds
    if worlds == 1:
        return f"{text}, {'beyond' if beyond else 'within'} the promised limit."
    return f"{text}, and it passed the promised limit in {f'{beyond:,}' if beyond else 'none'} of {worlds:,} trials."


def _console(numbers: InsiderNumbers, _: RunContents) -> list[tuple[str, str]]:
    estimate = numbers.estimate
    text = (
        f"right in {number_text(estimate.wins)} of {number_text(estimate.worlds)}; largest belief "
        f"{percent(numbers.max_belief)}; {number_text(numbers.belief_violations)} beyond the bound"
    )
    return [("Insider", text)]


def _entries(numbers: InsiderNumbers, contents: RunContents) -> list[Entry]:
    estimate, promise = numbers.estimate, contents.facts.guarantee
    at = f"{percent(estimate.confidence)} confidence"
    interval = "Clopper-Pearson interval of the share of right guesses"
    allowed = "" if promise is None else f"; the promise allows {promise.delta * estimate.worlds:.3g} on average"
    return [
        Entry("Worlds (trials)", estimate.worlds, DASH, EXACT, "counted", INDEPENDENT),
        Entry("Right guesses", estimate.wins, DASH, EXACT, "counted; the insider names the likelier data set",
              INDEPENDENT),
        Entry("Advantage", estimate.advantage, DASH, POINT,
              "twice the share of right guesses - 1; 0 is coin-flipping", INDEPENDENT),
        Entry("Advantage, lower end", estimate.low, DASH, at, interval, INDEPENDENT),
        Entry("Advantage, upper end", estimate.high, DASH, at, interval, INDEPENDENT),
        Entry("Largest belief in the truth", numbers.max_belief, DASH, "none: an extreme value",
              "largest over all worlds", INDEPENDENT, True),
        Entry("Worlds beyond the belief bound", numbers.belief_violations, DASH, EXACT, f"counted{allowed}",
              INDEPENDENT),
    ]  # fmt: skip


def _beliefs(numbers: InsiderNumbers, contents: RunContents) -> Caption:
    run = contents.run
    bound = _bound_sentence(numbers, contents)
    text = (
        f"Final belief of the insider in the data set that was really used, in {plural(run.worlds, 'world')}. "
        f"{_curve_of_beliefs(run)} {bound}"
    )
    what = "Histogram" if run.worlds >= FEWEST_FOR_HISTOGRAM else "Marks"
    law = " with its theoretical curve" if exact_laws(run) else ""
    alternative = (
        f"{what} of the final beliefs of {plural(run.worlds, 'world')} between 0 and 1{law}. "
        f"Largest belief {percent(numbers.max_belief)}. {bound}"
    )
    return Caption("Final beliefs", text, alternative)


def _curve_of_beliefs(run: FinishedRun) -> str:
    """Say which law the curve beside the final beliefs is, or why there is none."""
    facts, sampled = run.facts, run.facts.is_sampled
    law = "privacy loss distribution of the sampled releases" if sampled else f"μ = {number_text(facts.mu, 3)}"
    if not exact_laws(run):
        return f"{_no_law(run)} The next figure shows the limit that does hold."
    if run.has_normal_final_law:
        return (
            f"The curve is the exact law: log-odds that are normal with mean μ²/2 and standard deviation {law}, turned "
            f"into probabilities with prior {percent(facts.prior)}."
        )
    return f"The curve is the exact law ({law}), with prior {percent(facts.prior)}."


def _no_law(run: FinishedRun) -> str:
    """Say why no law of what the insider learned is drawn."""
    if not run.largest_laws:
        return "No law of them is known."
    return (
        f"No law is drawn: how far {run.facts.words.differing} changes what is released differs between rounds and "
        "worlds, so that none is exact."
    )


def _bound_sentence(numbers: InsiderNumbers, contents: RunContents) -> str:
    promise, beyond, worlds = contents.facts.guarantee, numbers.belief_violations, numbers.estimate.worlds
    if promise is None:
        return ""
    bounds = belief_bounds(contents.facts)
    other = "" if math.isclose(bounds[0], bounds[1]) else f" for D and {percent(bounds[0])} for D'"
    return (
        f"Beyond the belief bound of {percent(bounds[1])}{other} ({promise.accountant}) lie {beyond:,} of {worlds:,} "
        f"({percent(beyond / worlds)}); promised is at most δ = {percent(promise.delta)}.{_fixed_bound(promise)}"
    )


def _fixed_bound(promise: Guarantee) -> str:
    """Return the tighter bound of fixed sensitivities, where it is another."""
    if math.isclose(promise.belief_bound, promise.belief_bound_fixed, rel_tol=1e-6):
        return ""
    return (
        " The bound also holds where the difference between D and D' depends on earlier releases; if that were "
        f"fixed beforehand, the bound would be {percent(promise.belief_bound_fixed)}."
    )


def _belief_rounds(_: InsiderNumbers, contents: RunContents) -> Caption:
    facts = contents.facts
    worlds = contents.run.worlds
    shown = (
        f"Belief in D over the rounds, of all {worlds:,} worlds: their median and the middle 90 % of those where D was "
        "used (filled, ●) and where D' was (hatched, ▼)."
        if worlds >= FEWEST_FOR_HISTOGRAM
        else "Belief in D over the rounds, of each world: solid with ● where D was used, dashed with ▼ where D' was."
    )
    text = (
        f"{shown}{_belief_law(contents.run)} A world beyond the upper dash-dotted line is surer of D than the "
        "bound allows, one below the lower line surer of D'."
    )
    rounds = plural(facts.game.rounds, "round")
    alternative = f"Lines of the belief in D over {rounds}, starting at {percent(facts.prior)}."
    return Caption("Beliefs over rounds", text, alternative)


def _belief_law(run: FinishedRun) -> str:
    if not run.has_even_rounds:
        return " No exact law is drawn: it differs from world to world."
    if run.worlds >= FEWEST_FOR_HISTOGRAM:
        return " Dotted: where the exact law has 90 % of worlds."
    return " Thick lines and bands: median of the exact law and where it has 95 % of worlds."


def _log_odds(_: InsiderNumbers, contents: RunContents) -> Caption:
    run = contents.run
    histogram = has_histogram(run)
    looks = (
        "filled where D was used, hatched where D' was"
        if histogram
        else "one mark a world, ● where D was used, ▼ where D' was"
    )
    text = (
        f"The insider's whole evidence for D against D' after the last round, without the prior; {looks}. "
        f"{_curves_of_log_odds(run)} The further the two lie apart, the more the insider learned."
    )
    what = "Two overlapping histograms" if histogram else "Marks"
    laws = ", with their laws" if exact_laws(run) else ""
    alternative = f"{what} of log-odds, of worlds that used D and of those that used D'{laws}."
    return Caption("Final log-odds", text, alternative)


def _curves_of_log_odds(run: FinishedRun) -> str:
    """Say which laws the curves beside the final log-odds are, or why there are none."""
    if not exact_laws(run):
        return _no_law(run)
    normal = f"N(±μ²/2, μ²) with μ = {number_text(run.facts.mu, 3)}"
    law = "from the privacy loss distribution of the sampled releases" if run.facts.is_sampled else normal
    return f"The curves are the exact laws, {law}."


INSIDER = Section(
    numbers=InsiderNumbers,
    keys=("insider",),
    measure=_measure,
    heading="What the insider achieved",
    entries=_entries,
    pictures=(
        Picture("beliefs", lambda numbers, contents: beliefs_figure(contents, numbers.belief_violations), _beliefs),
        Picture("passing", lambda _, contents: tail_figure(contents), lambda _, contents: tail_caption(contents)),
        Picture("belief-rounds", lambda _, contents: belief_rounds_figure(contents), _belief_rounds),
        Picture("log-odds", lambda _, contents: log_odds_figure(contents), _log_odds),
    ),
    sentence=_sentence,
    console=_console,
)
