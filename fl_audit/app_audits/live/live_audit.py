"""Audit a running or finished training by its canaries, with a verdict that is valid after repeated evaluations.

The bounds use all complete rounds (those in which every canary answered). They hold for a single analysis at a time
chosen beforehand. The verdict must hold for repeated analyses, which would otherwise find a false violation sooner or
later. It is therefore based on interim analyses that are declared beforehand: after 5, 10, 20, 40, ... complete rounds
and after the last round. The family-wise error rate, and the error probability of the bounds, are divided equally among
the interim analyses (Bonferroni). A violation in one of them is final. Rounds after the last claimed round are used in
the bounds but in no interim analysis, since no share of the error rate is left for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from fl_audit.adjacency import Relation
from fl_audit.app_audits.live.live_checks import Inconsistency, doubts_about, knows_canaries
from fl_audit.app_audits.live.observer_store import StoredGuarantee, stored_guarantee
from fl_audit.app_audits.live.stored_rounds import (
    MismatchedCanary,
    StoredRound,
    earlier_rounds_of_same_training,
    fitting_rounds,
    misnumbered,
    scores_and_coins,
    whole_rounds,
)
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import DECOYS
from fl_audit.audits.canaries.epsilon_from_scores import CanaryEpsilonBounds, certify, over_the_training
from fl_audit.audits.canaries.other_clients_variance import OtherClientsVariance, other_clients_variance, squared_spread
from fl_audit.federation.findings import json_of
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.guarantee_line import guarantee_values
from fl_audit.report.guarantee_warnings import weakness_warning
from fl_audit.root_finding import smallest_number
from fl_audit.statistics.shift_bound import detectable_shift, root_sum_of_squared_deviations
from fl_audit.verdict.declared_tests import DETECTION_POWER, FAMILY_LEVEL
from fl_audit.verdict.noise_estimate import breach_ratio
from fl_audit.verdict.verdict import Verdict, verdict_on

FIRST_LOOK = 5
"""Number of complete rounds before the first interim analysis; each later one follows after twice as many rounds."""

_MOST_ROUNDS = 2**24  # largest number of rounds that is tried for `LiveFinding.rounds_needed`


@dataclass(frozen=True)
class InterimAnalysis:
    """The result of one interim analysis: bounds from the first complete rounds, and whether they refute the claim."""

    rounds: int  # number of complete rounds that were analysed
    # Lower bounds from these rounds. The bounds of all declared analyses hold together with the requested confidence.
    bounds: CanaryEpsilonBounds
    is_violated: bool  # whether these rounds refute the guarantee at this analysis's share of the significance level


@dataclass(frozen=True)
class LiveFinding:
    """The current result of a live audit, which audits a training by its canaries while the training runs.

    It is the evidence behind the `AuditResult` of a running federation: bounds, interim analyses and doubts as numbers.
    """

    guarantee: Guarantee  # the claimed guarantee
    canaries: int  # number of canaries
    bounds: CanaryEpsilonBounds  # bounds from all complete rounds, valid for one analysis at a time chosen beforehand
    # Largest belief in D that an insider may reach with noise as small as `bounds` certifies; compare it with
    # `guarantee.belief_bound`.
    belief_lower: float
    looks: tuple[InterimAnalysis, ...]  # the declared interim analyses that have taken place, in order
    last: int  # number of the last stored round, complete or not
    released: int  # number of stored rounds, including earlier ones of a training that was continued
    carried_on: int  # number of these earlier rounds, which were moved to another directory when it was continued
    misnamed: tuple[int, ...]  # numbers of canaries that two clients sent in one round, or that are not configured
    misfits: tuple[MismatchedCanary, ...]  # canaries whose rounds are excluded, and why
    # Inconsistencies, each of which rules out the verdict `consistent`, with the canaries or rounds concerned.
    doubts: Mapping[Inconsistency, tuple[int, ...]]
    knows_canaries: bool  # whether it is stored for each canary what it sends if it is out, and a check of its coins
    # The smallest epsilon that the last interim analysis would have called violated in 9 of 10 trainings. It is
    # infinite before the first analysis, and if the updates of other clients could hide any lack of noise.
    limit: float
    # Whether the last interim analysis would have detected a breach in 9 of 10 trainings. A breach is 1.5 times the
    # guaranteed epsilon or, if that is 0, noise that is 1.5 times too small.
    is_conclusive: bool
    dilution: OtherClientsVariance  # variance of the other clients' updates, which can hide missing noise
    knows_others: bool  # whether the number of other clients that answered was stored for every complete round
    knows_weights: bool  # whether the weights of the canaries' replies were stored for every complete round
    weights: tuple[float, ...]  # smallest weight of each canary over rounds, relative to the heaviest client; 0 to 1
    level: float  # share of the significance level that each interim analysis has
    # Number of complete rounds that detects such a breach in 9 of 10 trainings; None if no number is enough.
    rounds_needed: int | None

    @property
    def verdict(self) -> Verdict:
        """The verdict from the interim analyses so far; also `violated` if more rounds were released than claimed.

        In two cases the analyses cannot give `violated`. In the first, rounds start from models that the previous
        rounds did not release. In the second, under an add-remove adjacency, canaries seem to send something in rounds
        in which they are left out.
        """
        is_replaced = self.guarantee.claim.adjacency.relation is Relation.REPLACE
        is_deaf = Inconsistency.GAPS in self.doubts or (Inconsistency.OUT in self.doubts and not is_replaced)
        is_broken = self.is_overrun or (not is_deaf and any(look.is_violated for look in self.looks))
        return verdict_on(is_broken, self.is_conclusive and not self.doubts)

    @property
    def is_overrun(self) -> bool:
        """Whether the training released more rounds than the guarantee claims."""
        return self.released > self.guarantee.rounds

    @property
    def covers_enough_rounds(self) -> bool:
        """Whether the claim covers enough rounds, at least `rounds_needed`, to detect 1.5 times the claimed epsilon."""
        return self.rounds_needed is not None and self.rounds_needed <= self.guarantee.rounds

    @property
    def is_over(self) -> bool:
        """Whether the last claimed round, or a later one, has been stored."""
        return self.last >= self.guarantee.rounds

    def to_json(self) -> dict[str, Any]:
        """Return this result as a dict of JSON values, as printed by `fl-audit live --json`."""
        bounds = self.bounds
        guarantee = self.guarantee
        misfits = [{"canary": misfit.number, "node": misfit.node, "what": misfit.mismatch} for misfit in self.misfits]
        looks = [
            {"rounds": look.rounds, "mu_lower": look.bounds.mu_lower, "violated": look.is_violated}
            for look in self.looks
        ]
        claimed = guarantee_values(guarantee.epsilon, guarantee.claims)
        del claimed["epsilon"]  # here its name is `epsilon_claimed`
        values: dict[str, Any] = json_of(
            claimed
            | {
                "verdict": self.verdict,
                "whole_rounds": bounds.rounds,
                "last_round": self.last,
                "released_rounds": self.released,
                "carried_on_rounds": self.carried_on,
                "misnamed_canaries": self.misnamed,
                "misfits": misfits,
                "doubts": sorted(self.doubts),
                "faint_canaries": self.doubts.get(Inconsistency.FAINT, ()),
                "uneven_rounds": self.doubts.get(Inconsistency.UNEVEN, ()),
                "canaries_are_known": self.knows_canaries,
                "claimed_rounds": guarantee.rounds,
                "canaries": self.canaries,
                "mu": bounds.mu,
                "mu_lower": bounds.mu_lower,
                "mu_claimed": bounds.mu_claimed,
                "epsilon_round": bounds.epsilon_round,
                "epsilon_lower": bounds.epsilon_lower,
                "epsilon_claimed": guarantee.epsilon,
                "belief_lower": self.belief_lower,
                "belief_claimed": guarantee.belief_bound,
                "confidence": bounds.confidence,
                "rounds_needed": self.rounds_needed,
                "limit_of_detection": self.limit,
                "others_are_known": self.knows_others,
                "weights_are_known": self.knows_weights,
                "canary_weights": self.weights,
                "spread_of_others": self.dilution.spread,
                "canaries_stand_out_too_little": self.dilution.is_seen,
                "warning": weakness_warning(guarantee),
                "level": FAMILY_LEVEL,
                "looks": looks,
                "method": bounds.method,
                "assumption": bounds.method.assumption,
            }
        )
        return values


def measure_live(directory: Path, coins: int, confidence: float = 0.95, is_over: bool = False) -> LiveFinding:
    """Return the current result of the live audit, computed from all rounds in a directory.

    Parameters
    ----------
    directory
        Directory of the stored rounds and of the guarantee.
    coins
        Secret seed of the canaries' coins, from 0 to 2**64 - 1, which the clients use too.
    confidence
        Confidence of the bounds, above 0.5 and below 1.
    is_over
        Whether no further round will follow, although the last claimed round is missing. The last planned analysis then
        takes place now.

    Raises
    ------
    InputError
        If no complete round is stored, or a number is out of its range.
    """
    stored = stored_guarantee(directory)
    claim = stored.terms.claim(stored.delta)
    whole_ones, every = whole_rounds(directory, stored.canaries)
    rounds, wrong = fitting_rounds(whole_ones, stored.terms, coins)
    last = every[-1].number
    before = earlier_rounds_of_same_training(directory, every)
    released = len(every) + before
    scores_and_tosses = scores_and_coins(rounds, coins, stored.canaries)
    whole = sum(round.number <= claim.rounds for round in rounds)
    looks = _interim_analyses(scores_and_tosses, whole, claim, confidence, is_over or last >= claim.rounds)
    level = FAMILY_LEVEL / len(declared_looks(claim.rounds))
    played = replace(stored.terms, rounds=max(claim.rounds, released)).claim(stored.delta)
    bounds = _certified(scores_and_tosses, len(rounds), played, confidence)
    guarantee = derive_guarantee(claim)
    judged, number = (looks[-1].bounds, looks[-1].rounds) if looks else (bounds, len(rounds))
    weights = _weights(rounds)
    # The bounds are on a canary's effect, so they also hold for clients of larger weight. The limit of detection is
    # that of the heaviest client, of whose effect a canary shows the share `part`.
    smallest_weight = float(weights.min())
    variance = _dilution(rounds[:number], scores_and_tosses, stored, judged, smallest_weight)
    shift_shown = _shift(number, stored, claim, level)
    sought = smallest_weight * variance.measured_mu(bounds.mu_claimed / breach_ratio(guarantee))
    mu_bound = (
        variance.true_mu(shift_shown / smallest_weight) if looks and smallest_weight and isfinite(shift_shown) else inf
    )
    scores, tossed, decoys = (array[:number] for array in scores_and_tosses)
    return LiveFinding(
        guarantee=guarantee,
        canaries=stored.canaries,
        bounds=bounds,
        belief_lower=_largest_belief(played, bounds),
        looks=looks,
        last=last,
        released=released,
        carried_on=before,
        misnamed=misnumbered(every, stored.canaries),
        misfits=wrong,
        doubts=doubts_about(every, rounds, (scores, tossed, decoys), stored, variance, weights),
        knows_canaries=knows_canaries(rounds),
        limit=over_the_training(claim, mu_bound * stored.terms.noise_multiplier) if isfinite(mu_bound) else inf,
        is_conclusive=bool(looks) and shift_shown <= sought,
        dilution=variance,
        knows_others=all(round.others is not None for round in rounds),
        knows_weights=all(note.weight is not None for round in rounds for note in round.present),
        weights=tuple(map(float, weights)),
        level=level,
        rounds_needed=smallest_number(
            lambda rounds_count: _shift(rounds_count, stored, claim, level) <= sought, _MOST_ROUNDS
        ),
    )


def declared_looks(rounds: int) -> tuple[int, ...]:
    """Return the numbers of complete rounds after which there is an interim analysis.

    `rounds` is the number of rounds of the training, after which the last analysis takes place.

    Examples
    --------
    >>> declared_looks(50)
    (5, 10, 20, 40, 50)
    """
    return (*(FIRST_LOOK * 2**n for n in range(rounds.bit_length()) if FIRST_LOOK * 2**n < rounds), rounds)


_Opened = tuple[Floats, Floats, Floats]


def _largest_belief(claim: Claim, bounds: CanaryEpsilonBounds) -> float:
    """Return the largest belief in D that an insider can reach if the noise is as small as the canaries prove.

    The mu of a round is then the lower bound in `bounds`.
    """
    if bounds.mu_lower == 0:
        return claim.prior
    return derive_guarantee(claim.with_noise(bounds.mu_claimed / bounds.mu_lower)).belief_bound


def _interim_analyses(
    opened: _Opened, whole: int, claim: Claim, confidence: float, is_over: bool
) -> tuple[InterimAnalysis, ...]:
    """Return the declared analyses that are due after `whole` complete rounds.

    The last analysis is made when training is over.
    """
    declared = declared_looks(claim.rounds)
    passed = [look for look in declared[:-1] if look <= whole] + ([whole] if is_over and whole > 0 else [])
    shared, at_level = (1 - error / len(declared) for error in (1 - confidence, FAMILY_LEVEL))
    return tuple(
        InterimAnalysis(
            look, _certified(opened, look, claim, shared), _certified(opened, look, claim, at_level).is_violated
        )
        for look in dict.fromkeys(passed)
    )


def _certified(rounds: _Opened, number: int, claim: Claim, confidence: float) -> CanaryEpsilonBounds:
    """Return the lower bounds on the privacy loss that the first `number` complete rounds prove.

    `rounds` holds the scores, coins and decoys of all complete rounds.
    """
    scores, coins, decoys = (round[:number] for round in rounds)
    is_out_sent = claim.adjacency.relation is Relation.REPLACE
    return certify(scores, coins == 1, claim, confidence, decoys=() if is_out_sent else decoys)


def _shift(rounds: int, stored_guarantee: StoredGuarantee, claim: Claim, level: float) -> float:
    """Return the smallest mu of one round that an analysis after `rounds` rounds detects with probability 0.9."""
    decoys = 0 if claim.adjacency.relation is Relation.REPLACE else DECOYS
    is_in = rounds * stored_guarantee.canaries // 2
    out = rounds * (stored_guarantee.canaries + decoys) - is_in
    return detectable_shift(is_in, out, 1 / stored_guarantee.terms.noise_multiplier, level, DETECTION_POWER)


def _weights(rounds: list[StoredRound]) -> Floats:
    """Return each canary's smallest weight over the rounds, relative to the heaviest client.

    A weight that is not known counts as 1.
    """
    weights_by_round = [[1.0 if note.weight is None else note.weight for note in round.present] for round in rounds]
    return np.asarray(np.min(weights_by_round, axis=0))


def _dilution(
    rounds: list[StoredRound],
    opened_rounds: _Opened,
    stored_guarantee: StoredGuarantee,
    bounds: CanaryEpsilonBounds,
    smallest_weight: float,
) -> OtherClientsVariance:
    """Return the variance that the updates of other clients add to the scores of canaries.

    Its unit is the square of the sensitivity to the client with the largest weight. `smallest_weight` is a canary's
    weight divided by this largest weight. An unknown number of other clients is taken as 0.
    """
    is_replaced = stored_guarantee.terms.adjacency.relation is Relation.REPLACE
    squared_spreads = [
        squared_spread(round.others or 0, stored_guarantee.canaries, round.size, is_replaced)
        for round in rounds
        if round.size
    ]
    tosses = opened_rounds[1][: len(rounds)].ravel()
    decoys = 0 if is_replaced else DECOYS * len(rounds)
    tosses = np.append(tosses, np.zeros(decoys))
    sizes = (smallest_weight * root_sum_of_squared_deviations(tosses), tosses.size - 2)
    squared = sum(squared_spreads) / max(1, len(squared_spreads))
    mu_full, low = (bounds.mu / smallest_weight, bounds.mu_lower / smallest_weight) if smallest_weight else (0.0, 0.0)
    return other_clients_variance(squared, bounds.mu_claimed, mu_full, low, sizes)
