"""The promise: how sure anybody may become, and the epsilon, delta and noise that this stands for."""

import math
from dataclasses import dataclass
from typing import Any, assert_never

from fl_audit.mechanisms.noise import (
    CentralGaussian,
    CorrelatedGaussian,
    DistributedGaussian,
    InsideTraining,
    LocalGaussian,
    NoNoise,
)
from fl_audit.mechanisms.participation import FixedCohort
from fl_audit.mechanisms.standpoint import Place
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun, RunFacts
from fl_audit.report.law_words import watcher_text
from fl_audit.report.section import Entry, Section
from fl_audit.report.theory import bound_in_other
from fl_audit.report.wording import DASH, number_text, one_in, percent, plural

COMPUTED = "computed, not estimated"
_PROMISED = (
    "epsilon",
    "delta",
    "noise_multiplier",
    "belief_bound",
    "belief_bound_fixed",
    "advantage_bound",
    "advantage_bound_exact",
)


@dataclass(frozen=True)
class PromiseNumbers:
    """What was promised.

    Parameters
    ----------
    guarantee
        The promise; None where nothing was promised.
    rounds
        k, number of releases after the initial model.
    sampling_rate
        Probability with which a unit takes part in a round, or a record in a step of its client's private training.
    """

    guarantee: Guarantee | None
    rounds: int
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `guarantee`; what was not promised is None."""
        promise = self.guarantee
        promised = {name: None if promise is None else getattr(promise, name) for name in _PROMISED}
        accountant = None if promise is None else str(promise.accountant)
        rest = {
            "accountant": accountant,
            "adjacency": None if promise is None else str(promise.adjacency),
            "rounds": self.rounds,
            "sampling_rate": self.sampling_rate,
        }
        return {"guarantee": promised | rest}


def belief_bounds(facts: RunFacts) -> dict[int, float]:
    """Return the belief bound by bit: for D where D was used (1), for D' where it was not (0); empty if unknown."""
    if facts.guarantee is None:
        return {}
    bound = facts.guarantee.belief_bound
    return {1: bound, 0: bound_in_other(bound, facts.prior)}


def _measure(run: FinishedRun, _: Findings) -> PromiseNumbers:
    facts = run.facts
    promise = facts.guarantee
    rate = facts.sampling_rate if promise is None else promise.sampling_rate
    return PromiseNumbers(promise, facts.game.rounds, rate)


def promise_sentence(numbers: PromiseNumbers, contents: RunContents) -> str:
    """Return what was promised, in terms of how sure anybody may become."""
    promise, facts = numbers.guarantee, contents.facts
    if promise is None and facts.game.randomiser is not None:
        return "The training itself had no protection, and of its models alone nothing was promised."
    if promise is None:
        return "These models were trained without any protection: nothing was promised."
    watcher, words = watcher_text(facts), facts.words
    bound, chance = percent(promise.belief_bound), one_in(promise.delta)
    if facts.prior != 0.5:
        other = percent(belief_bounds(facts)[0])
        return (
            f"The promise was that nobody who {watcher.rstrip(',')}, and takes it for {percent(facts.prior)} likely "
            f"beforehand that {words.that}, may become more than {bound} sure that {words.that_short}, or more than "
            f"{other} sure that {words.not_that}, except with a chance of at most {chance}."
        )
    return (
        f"The promise was that nobody who {watcher} may become more than {bound} sure {words.whether}, except with a "
        f"chance of at most {chance}."
    )


def _console(numbers: PromiseNumbers, _: RunContents) -> list[tuple[str, str]]:
    promise = numbers.guarantee
    if promise is None:
        return [("Promise", "none: no clipping, no noise")]
    text = (
        f"belief at most {percent(promise.belief_bound)} (but for {percent(promise.delta)}); epsilon "
        f"{number_text(promise.epsilon, 3)} at delta {number_text(promise.delta, 3)} by {promise.accountant}"
    )
    if promise.noise_multiplier is not None:
        text += f"; noise multiplier {number_text(promise.noise_multiplier, 4)}"
    return [("Promise", text)]


def _entries(numbers: PromiseNumbers, contents: RunContents) -> list[Entry]:
    promise = numbers.guarantee
    if promise is None:
        return []
    accountant, facts = promise.accountant, contents.facts
    neighbours = noise_text(facts)
    unseen = f"; for a {facts.words.one} that takes part every time" * facts.is_amplified
    mu = f"{_mu_method(facts)}{unseen}"
    plain = "2 Φ(mu/2) - 1 (Dong, Roth & Su 2022)"
    exact = "delta(0) of the privacy loss distribution" if facts.is_amplified else plain
    chosen = "chosen before the run"
    return [
        Entry("Epsilon (nats)", promise.epsilon, accountant, COMPUTED,
              "accounting over all rounds, at the delta below", neighbours),
        Entry("Delta (probability)", promise.delta, accountant, COMPUTED, chosen),
        Entry("Noise multiplier z", promise.noise_multiplier, accountant, COMPUTED,
              _multiplier_method(facts), neighbours),
        Entry("Rounds", numbers.rounds, DASH, COMPUTED, chosen),
        Entry("Gaussian mu", promise.mu, "gdp", COMPUTED, mu, neighbours),
        Entry("Belief bound", promise.belief_bound, str(accountant), COMPUTED, _belief_bound_method(promise),
              f"prior belief {percent(facts.prior)}", True),
        Entry("Belief bound at fixed sensitivities", promise.belief_bound_fixed, accountant, COMPUTED,
              _fixed_bound_method(accountant),
              f"prior belief {percent(facts.prior)}; D and D' differ by as much in every round, whatever was released "
              "before", True),
        Entry("Advantage bound", promise.advantage_bound, accountant, COMPUTED,
              "Bernau et al. 2021, theorem 3 and Eq. (6)",
              "noise calibrated by the classic formula; for exactly calibrated noise it may be exceeded"),
        Entry("Advantage bound, exact", promise.advantage_bound_exact, exact_accountant(facts), COMPUTED, exact,
              neighbours),
    ]  # fmt: skip


def _multiplier_method(facts: RunFacts) -> str:
    """Return what the accountant's noise multiplier is."""
    law = facts.game.law
    if isinstance(law.noise, CorrelatedGaussian):
        return "noise standard deviation over the largest difference of all rounds together"
    if law.is_adaptive:
        return "of the sum of updates and the count of short ones together (Andrew et al. 2021, theorem 1)"
    rest = ", of the noise that the insider does not know" if law.clients_add_noise else ""
    return f"noise standard deviation over the sensitivity{rest}"


def _mu_method(facts: RunFacts) -> str:
    law = facts.game.law
    if isinstance(law.participation, FixedCohort) and not isinstance(law.noise, CorrelatedGaussian):
        return "square root of the rounds in which a client takes part over z"
    match law.noise:
        case InsideTraining():
            return "square root of the most steps that a client takes, over z"
        case CorrelatedGaussian():
            return "1 over z"
        case CentralGaussian() | DistributedGaussian() | LocalGaussian() | NoNoise():
            return "square root of rounds over z"
        case _:
            assert_never(law.noise)


def _belief_bound_method(promise: Guarantee) -> str:
    if promise.accountant in (Accountant.RDP_CLASSIC, Accountant.RDP):
        return _fixed_bound_method(promise.accountant)
    match promise.claim.sensitivities:
        case Sensitivities.FIXED:
            return _fixed_bound_method(promise.accountant)
        case Sensitivities.ADAPTIVE:
            return (
                "smallest bound that follows from delta(epsilon) at all smaller epsilons, which also holds where the "
                "difference between D and D' depends on earlier releases; passed with probability at most delta"
            )
        case _:
            assert_never(promise.claim.sensitivities)


def _fixed_bound_method(accountant: Accountant) -> str:
    if accountant in (Accountant.RDP_CLASSIC, Accountant.RDP):
        return "prior odds times exp(epsilon of rdp-classic), Eq. (5); passed with probability at most delta"
    return "quantile of the law of the log-odds; passed with probability at most delta"


def exact_accountant(facts: RunFacts) -> str:
    """Return who accounts for what holds exactly."""
    return "pld" if facts.is_amplified else "gdp"


def noise_text(facts: RunFacts) -> str:
    """Return what a promise rests on: the noise, and between which neighbours it holds."""
    text = f"Gaussian noise{_of_clients(facts)}, neighbours by {facts.relation}"
    if facts.guarantee is not None and facts.is_amplified:
        seen = ", which the insider sees" if facts.game.standpoint.sees_participation else ""
        text += f", {facts.words.many} sampled at rate {facts.guarantee.sampling_rate:g}{seen}"
    return text if facts.is_private_release else f"{text}; noise follows the data, so for this pair of data sets only"


def _of_clients(facts: RunFacts) -> str:
    """Return how the noise comes to the sum, as what follows `Gaussian noise`."""
    if not facts.game.law.weighs_exactly:
        return " in every step of the clients' training"
    if not facts.game.law.clients_add_noise:
        return " on the sum"
    if facts.game.standpoint.place is Place.SERVER:
        return " that clients add, each contribution seen by itself"
    known = plural(facts.game.standpoint.known_shares, "client")
    return f" that clients add, less what {known} added"


def at_delta(delta: float | None) -> str:
    """Return at which delta a number holds, as the end of a phrase; empty for none."""
    return "" if delta is None else f", at delta = {delta:g}"


def delta_of(facts: RunFacts) -> float:
    """Return the promised delta; not a number where nothing was promised."""
    return math.nan if facts.guarantee is None else facts.guarantee.delta


PROMISE = Section(
    numbers=PromiseNumbers,
    keys=("guarantee",),
    measure=_measure,
    heading="What was promised",
    entries=_entries,
    sentence=promise_sentence,
    console=_console,
)
