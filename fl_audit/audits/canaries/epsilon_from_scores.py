"""Lower confidence bounds on a client's privacy loss, in one round and over the training, from scores of canaries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fl_audit.adjacency import Relation
from fl_audit.audits.canaries.bounds import one_run_bound
from fl_audit.audits.canaries.guessing_bounds import checked_scores
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.errors import InputError, require
from fl_audit.privacy.accounting import account
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.statistics.shift_bound import gaussian_slope


@dataclass(frozen=True)
class CanaryEpsilonBounds:
    """Lower bounds on mu and epsilon, for one round and for the whole training, from the scores of canaries."""

    canaries: int  # number of canaries
    rounds: int  # number of rounds in which the canaries were scored
    # Point estimate of the mu of Gaussian DP of a client in one round in which it takes part, at least 0: the
    # difference of the mean scores of canaries that are in and out, over their standard deviation.
    mu: float
    mu_lower: float  # lower confidence bound on this mu, at least 0
    mu_claimed: float  # the claimed mu of one round: 1 / noise multiplier
    epsilon_round: float  # lower bound on epsilon at `delta` of one round in which the client takes part
    # Epsilon at `delta` of the whole training, by the claimed accountant, if the noise of every round gives mu
    # `mu_lower`.
    epsilon_lower: float
    epsilon_claimed: float  # the claimed epsilon at `delta` of the whole training
    delta: float  # the delta of all epsilons here
    confidence: float  # probability with which the bounds hold, if the assumption of the method holds
    method: OneRunMethod  # method of the bounds; `method.assumption` states its assumption

    @property
    def is_violated(self) -> bool:
        """Whether the claim is refuted: the lower bound on the mu of a round exceeds the claimed mu."""
        return self.mu_lower > self.mu_claimed


def certify(
    scores: ArrayLike,
    coins: ArrayLike,
    claim: Claim,
    confidence: float = 0.95,
    method: OneRunMethod = OneRunMethod.SHIFT,
    decoys: ArrayLike = (),
    partial_scores: ArrayLike = (),
) -> CanaryEpsilonBounds:
    """Return lower bounds on the privacy loss of a training with Gaussian noise, from its canaries' scores and coins.

    Parameters
    ----------
    scores
        Inner product of the release with each canary's direction, shape (rounds, canaries), in the same unit in all
        rounds. Only rounds in which the canary's client took part are included.
    coins
        Whether each canary was in, bool, of the shape of `scores`.
    claim
        The privacy claim of the training. Its first event is the noisy sum of a round, with Gaussian noise, with or
        without sampling.
    confidence
        Confidence of the bounds, above 0.5 and below 1.
    method
        Any method but `steinke`, which gives no mu; it must be chosen before the scores are seen. The default `shift`
        assumes Gaussian noise and random directions.
    decoys
        Scores of random directions that nobody sent, for the method `shift` only. They are added to the scores of
        canaries that are out. Under the replacement relation there are no decoys, because something is sent for a
        canary that is out.
    partial_scores
        The share of a whole canary that each score contains if the canary is in, at least 0, of the shape of `scores`;
        1 by default. For the method `shift` only. Suppose that clients train with DP-SGD, and that k of s local steps
        sampled a canary record. Its share is then k / sqrt(s), its scores are in units of sqrt(s) canaries, and the
        resulting mu is that of one step.

    Raises
    ------
    InputError
        If shapes do not match, the claim's noise is not Gaussian, or a number is out of its range.
    """
    shape = np.shape(scores)
    require(len(shape) == 2, f"scores have shape {shape}: accepted is (rounds, canaries)")
    values, tossed = checked_scores(scores, coins)
    multiplier = claim.events[0].noise_multiplier
    if multiplier is None:
        raise InputError(f"the claim releases {claim.events[0]}: accepted are rounds with Gaussian noise")
    comparable = np.size(decoys) == 0 or claim.adjacency.relation is Relation.ADD_REMOVE
    require(comparable, f"decoys under {claim.adjacency}: accepted are none, since canaries that are out are sent too")
    decoy_scores = np.asarray(decoys, dtype=np.float64).ravel()
    whole = np.size(partial_scores) == 0
    inclusion = np.append(
        np.where(tossed, 1.0 if whole else np.reshape(partial_scores, -1), 0.0), np.zeros(decoy_scores.size)
    )
    estimate = gaussian_slope(inclusion, np.append(values, decoy_scores), confidence)
    mu_lower = estimate.low
    epsilon = gdp_epsilon(claim.delta, estimate.low)
    if whole or method is not OneRunMethod.SHIFT:
        require(whole, f"parts with {method}: accepted with shift alone")
        bound = one_run_bound(values, tossed, claim.delta, confidence, method, decoys=decoys)
        if bound.mu is None:
            raise InputError(f"method is {method}: accepted are those that bound mu")
        mu_lower = bound.mu
        epsilon = bound.epsilon
    return CanaryEpsilonBounds(
        canaries=shape[1],
        rounds=shape[0],
        mu=max(0.0, estimate.shift),
        mu_lower=mu_lower,
        mu_claimed=1 / multiplier,
        epsilon_round=epsilon,
        epsilon_lower=over_the_training(claim, mu_lower * multiplier),
        epsilon_claimed=over_the_training(claim, 1.0),
        delta=claim.delta,
        confidence=confidence,
        method=method,
    )


def over_the_training(claim: Claim, excess: float) -> float:
    """Return epsilon of the whole training, by the claimed accountant, if the noise differs from the claimed noise.

    The noise of each round is the claimed noise divided by `excess`.

    Parameters
    ----------
    claim
        The privacy claim of the training, with its delta and accountant.
    excess
        Factor by which the claimed mu of each round is multiplied, at least 0; for 0 the result is 0.
    """
    return 0.0 if excess == 0 else account(claim.with_noise(1 / excess).profile, claim.accountant, claim.delta)
