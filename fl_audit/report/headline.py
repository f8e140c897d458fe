"""What a reader of the first screen is told beside the verdict: three numbers, and what to do next."""

import math
from dataclasses import dataclass
from typing import assert_never

from fl_audit.evidence.belief.advantage import most_wins
from fl_audit.evidence.belief.family import FAMILY_LEVEL, TestName, TestResult
from fl_audit.evidence.belief.verdict import Judgement, Verdict
from fl_audit.report.contents import RunContents
from fl_audit.report.sections.insider import InsiderNumbers
from fl_audit.report.sections.noise import NoiseNumbers
from fl_audit.report.sections.released_model import ModelNumbers
from fl_audit.report.sections.verdict import VerdictNumbers, worlds_needed_text
from fl_audit.report.test_words import OF_NOISE, remedy, strongest
from fl_audit.report.theory import bound_in_other
from fl_audit.report.wording import number_text, one_in, percent

_SMALLEST_CHANCE = 1e-9


@dataclass(frozen=True)
class Fact:
    """One number of the first screen.

    Parameters
    ----------
    name
        What it is, in a few words.
    value
        The number, as it is shown.
    note
        What to hold it against.
    """

    name: str
    value: str
    note: str


def facts_of(contents: RunContents) -> tuple[Fact, Fact, Fact]:
    """Return the three numbers of the first screen: those of what broke come first where the promise was broken."""
    found = verdict_of(contents).judgement
    if found is not None and found.broken:
        return _broken(strongest(found)), _insider(contents), _shown(contents, found)
    return _promised(contents), _insider(contents), _model(contents)


def verdict_of(contents: RunContents) -> VerdictNumbers:
    """Return the verdict, which every run has."""
    numbers = contents.find(VerdictNumbers)
    assert numbers is not None, "every run has a verdict"
    return numbers


def _broken(test: TestResult) -> Fact:
    if test.name in OF_NOISE:
        where = f" on the tensor '{test.place}'" if test.name == TestName.NOISE_TENSOR else ""
        return Fact("Noise really added", percent(round(test.statistic, 3)), f"of what was promised{where}")
    if test.name == TestName.SCORES:
        return Fact(
            "Epsilon, by scores alone",
            f"≥ {number_text(test.statistic, 3)}",
            f"promised: at most {number_text(test.promised, 3)}",
        )
    rare = test.p_value < _SMALLEST_CHANCE
    chance = f"< {one_in(_SMALLEST_CHANCE)}" if rare else one_in(float(f"{test.p_value:.1g}"))
    return Fact("If the promise were kept", chance, "audits would show so clear a sign")


def _shown(contents: RunContents, found: Judgement) -> Fact:
    promise = contents.facts.guarantee
    assert promise is not None, "only a promise is broken"
    at_least = found.epsilon_lower_bound
    value = f"≥ {number_text(at_least, 3)}" if math.isfinite(at_least) else "unbounded"
    return Fact("Epsilon shown", value, f"{number_text(promise.epsilon, 3)} was promised")


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
    if promise.prior == 0.5:
        return Fact("Promised: nobody is surer than", percent(promise.belief_bound), note)
    other = percent(bound_in_other(promise.belief_bound, promise.prior))
    words = contents.facts.words
    beside = f"from {percent(promise.prior)} beforehand; {other} that {words.not_that}; {note}"
    return Fact(f"Promised: nobody is surer that {words.that_short} than", percent(promise.belief_bound), beside)


def _insider(contents: RunContents) -> Fact:
    numbers, promise, found = contents.find(InsiderNumbers), contents.facts.guarantee, verdict_of(contents).judgement
    if numbers is not None and promise is not None:
        worlds, wins = numbers.estimate.worlds, numbers.estimate.wins
        most = most_wins(worlds, promise.advantage_bound_exact, FAMILY_LEVEL)
        note = _allowed(worlds, wins, most, found is not None and bool(found.broken))
        return Fact("The insider was right in", f"{wins:,} of {worlds:,}", note)
    if found is None:
        return Fact("The insider", "not played", "no insider took part")
    shown = f"≥ {number_text(found.epsilon_lower_bound, 3)}"
    return Fact("Epsilon shown by scores", shown, f"{percent(found.confidence)} confidence")


def _allowed(worlds: int, wins: int, most: int, is_broken: bool) -> str:
    if is_broken and wins <= most:
        return "this count alone would not have shown what broke the promise"
    if most >= worlds:
        return "so few trials can break no promise this way"
    return f"a kept promise allows more than {most:,} less than {_once(FAMILY_LEVEL)}"


def _once(level: float) -> str:
    return f"once in {round(1 / level):,}"


def _model(contents: RunContents) -> Fact:
    numbers = contents.find(ModelNumbers)
    assert numbers is not None, "every run has models"
    star = numbers.star
    note = f"of new cases{numbers.beside}"
    if star is not None and math.isfinite(star.mean):
        note += f"; Epsilon* {number_text(star.mean, 2)}"
        if math.isfinite(star.untrained_mean):
            note += f" ({number_text(star.untrained_mean, 2)} by chance)"
    return Fact("The model is right for", percent(numbers.test_accuracy), note)


def next_step(contents: RunContents) -> str:
    """Return what to do next, in a few sentences."""
    numbers = verdict_of(contents)
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert numbers.judgement is not None, "only what was judged is violated"
            return f"Hand out none of these models. {remedy(strongest(numbers.judgement))} Then audit again."
        case Verdict.INCONCLUSIVE:
            return f"Do not lean on this run. {worlds_needed_text(numbers)}{_setting(numbers)}"
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


def _setting(numbers: VerdictNumbers) -> str:
    found = numbers.judgement
    if found is None or found.worlds_needed is None:
        return ""
    return f" Set worlds = {found.worlds_needed} in [audit], or more."


def _after_consistent(contents: RunContents) -> str:
    """Return what a run that found nothing leaves to do."""
    device = "" if contents.facts.is_private_release else "Hand out none of these test pieces. "
    spare = contents.find(NoiseNumbers)
    excess = "There is more noise than the promise needs: less would keep it too. " * bool(
        spare is not None and spare.estimate.excess
    )
    return (
        f"{device}{excess}Try other neighbours (neighbour in [audit]) and other seeds, for this verdict covers one "
        "pair; play more worlds to find smaller breaches."
    )
