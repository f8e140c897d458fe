"""Compute which breaches of a guarantee the canaries of a training would show, and how many rounds that takes."""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

from fl_audit.adjacency import Relation
from fl_audit.audits.canaries.canary_contributions import canary_facts, directions_read
from fl_audit.audits.canaries.epsilon_from_scores import over_the_training
from fl_audit.audits.canaries.other_clients_variance import OtherClientsVariance, squared_spread
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.root_finding import smallest_number
from fl_audit.statistics.shift_bound import detectable_slope
from fl_audit.verdict.declared_tests import DETECTION_POWER, FAMILY_LEVEL
from fl_audit.verdict.noise_estimate import BREACH, breach_ratio
from fl_audit.words import capital

HIDDEN_BY_OTHERS = (
    f"the updates of so many other clients, with so few parameters, can hide {BREACH:g} times the guarantee from any "
    "number of canaries"
)
"""Reason why no number of rounds would show a breach."""
_MOST_ROUNDS = 2**24  # the largest number of rounds that is tried


@dataclass(frozen=True)
class CanaryDetectionLimit:
    """The smallest breach that canaries show with probability 0.9, and the number of rounds that a verdict needs."""

    limit_of_detection: float = inf  # epsilon of that breach at the claimed delta; infinite where none would be shown
    conclusive: bool = False  # whether a breach of 1.5 times the guarantee would be shown
    # Number of rounds with which it would be shown; None if the updates of other clients hide it in any number.
    rounds_needed: int | None = None


def canary_detection_limit(
    coins: tuple[float, int], rounds: int, variance: OtherClientsVariance, claim: Claim, claimed_mu: float
) -> CanaryDetectionLimit:
    """Return the smallest breach of a claim that the canaries of a training would show, and the rounds that it takes.

    `coins`: The first one is the square root of the sum of their squared deviations from their mean, at least 0. The
    second one is their number. A decoy, a direction that nobody sends, counts as a coin that is 0.
    """
    root, number = coins
    if root <= 0:
        return CanaryDetectionLimit()
    breach_mu = variance.measured_mu(claimed_mu / breach_ratio(derive_guarantee(claim)))

    def shift(longer: float) -> float:
        degrees = max(1, round(number * longer) - 2)
        return detectable_slope(root * sqrt(longer), degrees, claimed_mu, FAMILY_LEVEL, DETECTION_POWER)

    shift_found = shift(1.0)
    mu = variance.true_mu(shift_found)
    needed = (
        smallest_number(lambda count: shift(count / rounds) <= breach_mu, _MOST_ROUNDS)
        if breach_mu > claimed_mu
        else None
    )
    limit = over_the_training(claim, mu / claimed_mu) if isfinite(mu) else inf
    return CanaryDetectionLimit(limit, shift_found <= breach_mu, needed)


def planned_canaries(federation: LoadedFederation, guarantee: Guarantee, trials: int) -> CanaryDetectionLimit | None:
    """Return the limit of detection of a planned run with canaries.

    The result is None if the run has no canaries. It is also None if clients train with DP-SGD: then the steps in which
    a canary takes part are drawn during training, so the limit cannot be planned.
    """
    public = federation.public
    facts = canary_facts(federation)
    if facts is None or isinstance(public.mechanism.contribution, PrivateTraining):
        return None
    is_replaced = public.mechanism.adjacency.relation is Relation.REPLACE
    squared = squared_spread(facts.others, public.canaries, facts.size, is_replaced)
    variance = OtherClientsVariance(sqrt(squared), is_seen=False)
    played = trials * public.rounds
    read = played * directions_read(public)
    is_in = played * public.canaries / 2
    root = sqrt(is_in - is_in**2 / read)
    return canary_detection_limit((root, read), public.rounds, variance, guarantee.claim, facts.mu)


def canaries_needed_text(limit: CanaryDetectionLimit) -> str:
    """Return a sentence that says how canaries could find smaller breaches, such as by more rounds or fewer clients."""
    if limit.rounds_needed is None:
        return f"{capital(HIDDEN_BY_OTHERS)}: take fewer clients, or a model with more parameters."
    remedy = "More rounds or more canaries find smaller breaches (rounds in [training], canaries in [audit])"
    return (
        f"{remedy}." if limit.conclusive else f"{remedy}: {limit.rounds_needed:,} rounds would find {BREACH:g} times."
    )
