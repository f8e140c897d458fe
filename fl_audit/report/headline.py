"""What a reader of the first screen is told beside the verdict: three numbers, what to do next, what to beware of."""

import math
from dataclasses import dataclass
from typing import assert_never

from fl_audit.evidence.belief.advantage import most_wins
from fl_audit.evidence.belief.family import FAMILY_LEVEL, OF_NOISE, TestName
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.findings.insider import InsiderNumbers
from fl_audit.evidence.findings.released_model import ModelNumbers
from fl_audit.evidence.findings.verdict import NoiseNumbers
from fl_audit.report.finding import RunContents
from fl_audit.report.law_words import not_private_label
from fl_audit.report.sections.insider import advantage_row
from fl_audit.report.sections.released_model import beside_text
from fl_audit.report.sections.verdict import verdict_of, worlds_needed_text
from fl_audit.report.tests_table import ToldTest, ToldTests, p_as_chance
from fl_audit.report.wording import number_text, percent

LARGE_DELTA = 0.5
"""From this delta times the number of units on, a mechanism that publishes whole units is said to keep the promise."""


@dataclass(frozen=True)
class Fact:
    """One number of the first screen."""

    name: str  # what it is, in a few words
    value: str  # the number, as it is shown
    note: str  # what to hold it against


def facts_of(contents: RunContents) -> tuple[Fact, Fact, Fact]:
    """Return the three numbers of the first screen: those of what broke come first where the promise was broken."""
    broken = ToldTests(verdict_of(contents).judgement, contents.words).broken
    if broken:
        return _broken(broken[0]), _insider(contents), _shown(contents)
    return _promised(contents), _insider(contents), _model(contents)


def _broken(row: ToldTest) -> Fact:
    if row.test.name in OF_NOISE:
        where = f" on the tensor '{row.test.place}'" if row.test.name is TestName.NOISE_TENSOR else ""
        return Fact("Noise really added", percent(round(row.test.statistic, 3)), f"of what was promised{where}")
    if row.test.name in (TestName.SCORES, TestName.CANARIES):
        return Fact(
            "Epsilon, by scores alone", f"≥ {number_text(row.test.statistic, 3)}", f"promised: {row.words.promised}"
        )
    return Fact("If the promise were kept", p_as_chance(row.test.p_value), "audits would show so clear a sign")


def _shown(contents: RunContents) -> Fact:
    promise, at_least = contents.promise, verdict_of(contents).judged.epsilon_lower_bound
    value = f"≥ {number_text(at_least, 3)}" if math.isfinite(at_least) else "unbounded"
    another = "; the breach is of another kind" if at_least <= promise.epsilon else ""
    return Fact("Epsilon shown", value, f"{number_text(promise.epsilon, 3)} was promised{another}")


def _promised(contents: RunContents) -> Fact:
    promise = contents.facts.guarantee
    if promise is None and contents.facts.game.randomiser is not None:
        return Fact("Promised of the training", "nothing", "no clipping, no noise; records were randomised before it")
    if promise is None:
        return Fact("Promised", "nothing", "no clipping, no noise")
    epsilon, delta = number_text(promise.epsilon, 3), number_text(promise.delta, 3)
    note = f"epsilon {epsilon} at delta {delta} ({promise.accountant})"
    if promise.noise_multiplier is not None:
        note += f"; noise multiplier {number_text(promise.noise_multiplier, 3)}"
    if promise.belief_bound >= 1:
        beside = note.removeprefix(f"epsilon {epsilon} ")
        return Fact("Promised: epsilon at most", epsilon, f"{beside}; so weak that one may become sure")
    bound = percent(promise.belief_bound)
    if promise.prior == 0.5:
        return Fact("Promised: nobody is surer than", bound, note)
    other = percent(contents.facts.belief_bounds[0])
    beside = f"from {percent(promise.prior)} beforehand; {other} that {contents.words.not_that}; {note}"
    return Fact(f"Promised: nobody is surer that {contents.words.that_short} than", bound, beside)


def _insider(contents: RunContents) -> Fact:
    numbers, promise, found = contents.find(InsiderNumbers), contents.facts.guarantee, verdict_of(contents).judgement
    if numbers is not None and promise is not None:
        worlds, wins = numbers.estimate.worlds, numbers.estimate.wins
        most = most_wins(worlds, promise.advantage_bound_exact, FAMILY_LEVEL)
        note = _allowed(worlds, wins, most, found is not None and bool(found.broken))
        note += advantage_row(numbers, contents).aside
        return Fact("The insider was right in", f"{wins:,} of {worlds:,}", note)
    if found is None:
        return Fact("The insider", "not played", "no insider took part")
    shown = f"≥ {number_text(found.epsilon_lower_bound, 3)}"
    verdict = verdict_of(contents)
    by = "canaries" if verdict.judges_canaries else "first guesses" if verdict.names_candidates else "scores"
    return Fact(f"Epsilon shown by {by}", shown, f"{percent(found.confidence)} confidence")


def _allowed(worlds: int, wins: int, most: int, is_broken: bool) -> str:
    if is_broken and wins <= most:
        return "this count alone would not have shown what broke the promise"
    if most >= worlds:
        return "so few trials can break no promise this way"
    return f"a kept promise allows more than {most:,} less than once in {round(1 / FAMILY_LEVEL):,}"


def _model(contents: RunContents) -> Fact:
    numbers = contents.find(ModelNumbers)
    assert numbers is not None, "every run has models"
    return Fact("The model is right for", percent(numbers.test_accuracy), f"of new cases{beside_text(numbers)}")


def next_step(contents: RunContents) -> str:
    """Return what to do next, in a few sentences."""
    numbers = verdict_of(contents)
    match numbers.verdict:
        case Verdict.VIOLATED:
            cause = ToldTests(numbers.judgement, contents.words).broken[0].words.remedy
            return f"Hand out none of these models. {cause} Then audit again."
        case Verdict.INCONCLUSIVE:
            needed = numbers.judged.worlds_needed
            setting = "" if needed is None else f" Set worlds = {needed} in [audit], or more."
            return f"Do not lean on this run. {worlds_needed_text(numbers)}{setting}"
        case Verdict.NOT_AUDITED:
            return "Let the insider play: set insider = true in [audit], and carry the run out anew."
        case Verdict.NO_PROMISE if contents.facts.game.randomiser is not None:
            return (
                "See below whether what randomising promises each record is enough: the training adds nothing to it. "
                "To have it protect too, set belief = 0.9 in [privacy]."
            )
        case Verdict.NO_PROMISE:
            return (
                "Hand out none of these models as protected. To promise something, set belief = 0.9 in [privacy]; "
                "fl-audit calibrate tells how much noise that takes."
            )
        case Verdict.CONSISTENT:
            return _after_consistent(contents)
        case _:
            assert_never(numbers.verdict)


def _after_consistent(contents: RunContents) -> str:
    """Return what a run that found nothing leaves to do."""
    numbers, spare = verdict_of(contents), contents.find(NoiseNumbers)
    if numbers.judges_canaries:
        return worlds_needed_text(numbers)
    if numbers.names_candidates:
        return "Play more worlds to find smaller breaches; other candidates (seed in [data]) may be more exposed."
    device = "" if contents.facts.game.law.is_private_release else "Hand out none of these test pieces. "
    has_spare = spare is not None and spare.estimate.excess is not None
    excess = "There is more noise than the promise needs: less would keep it too. " if has_spare else ""
    at = "seed in [data]" if contents.facts.game.plays_membership else "neighbour in [audit]"
    return (
        f"{device}{excess}Audit other {contents.words.many} too ({at}) and other seeds, for this verdict covers one; "
        "play more worlds to find smaller breaches."
    )


def warnings_of(contents: RunContents) -> list[str]:
    """Return what to beware of, a line each: models that are no private release, a delta that allows to publish."""
    facts, promise = contents.facts, contents.facts.guarantee
    lines = [not_private_label(facts)] if not facts.game.law.is_private_release else []
    if promise is not None and promise.delta * facts.units >= LARGE_DELTA:
        lines.append(
            f"Delta {number_text(promise.delta, 3)} is large for {facts.units:,} {contents.words.many}: to publish "
            f"{number_text(promise.delta * facts.units, 2)} of them, drawn by lot, would keep the promise"
        )
    return lines
