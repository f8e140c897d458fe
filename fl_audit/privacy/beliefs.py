"""How sure the insider may become under Gaussian noise: the belief that it passes with probability at most delta.

L are the log-odds of D against D' after all rounds, and every statement holds with D and D' exchanged. How far the tail
of L reaches depends on who chooses the sensitivities of the rounds:

* Where every round has a fixed signal-to-noise ratio, L is normal with mean mu^2/2 and variance mu^2 under D, so that
  its quantiles are exact.
* Where a round's sensitivity follows from what was released before, mu^2 bounds the sum of the rounds' squared ratios,
  but L need not be normal: a federation whose sensitivity vanishes once L is high passes a threshold more often. What
  composition still gives is the trade-off of a Gaussian release with parameter mu (Dong, Roth & Su 2022, theorem 3.2):
  an event of probability delta under D has probability at least Phi(-(mu + Phi^-1(1 - delta))) under D'. The event
  {L > t} is e^t times as probable under D as under D' at least, and both together bound its probability. The same bound
  is the smallest delta(eps) / (1 - e^(eps - t)) over all eps below t, because delta(eps) = E[(1 - e^(eps - L))+ | D].

Arrays whose shapes do not fit, and numbers out of their range, raise `InputError`.
"""

import math
from typing import assert_never

from scipy.special import expit, log_ndtr, logit, ndtri, ndtri_exp

from fl_audit.privacy.gaussian import require_delta, require_mu
from fl_audit.privacy.names import Sensitivities as Sensitivities
from fl_audit.privacy.scores import epsilon_from_belief, require_prior


def gaussian_log_odds_bound(mu: float, delta: float, sensitivities: Sensitivities) -> float:
    """Return the log-odds of the true data set that the insider passes with probability at most delta.

    FIXED: mu^2/2 + mu Phi^-1(1 - delta), which is passed with probability exactly delta. ADAPTIVE:
    ln(delta / Phi(-(mu + Phi^-1(1 - delta)))), from the trade-off (see the module), at least as large.

    In nats; the prior log-odds are not included.

    Parameters
    ----------
    mu, delta, sensitivities
        Gaussian-DP parameter of all rounds, at least 0, finite; probability of passing the bound, above 0 and below 1;
        and whether the rounds' sensitivities are fixed.

    Examples
    --------
    >>> round(gaussian_log_odds_bound(0.5504, 0.001, Sensitivities.FIXED), 3)
    1.852
    >>> round(gaussian_log_odds_bound(0.5504, 0.001, Sensitivities.ADAPTIVE), 3)
    1.995
    """
    require_mu(mu)
    require_delta(delta)
    quantile = -float(ndtri(delta))
    match sensitivities:
        case Sensitivities.FIXED:
            return mu * mu / 2 + mu * quantile
        case Sensitivities.ADAPTIVE:
            return max(0.0, math.log(delta) - float(log_ndtr(-(mu + quantile))))
        case _:
            assert_never(sensitivities)


def gaussian_belief_bound(mu: float, delta: float, sensitivities: Sensitivities, prior: float = 0.5) -> float:
    """Return the belief in the true data set that the insider passes with probability at most delta.

    The sigmoid of the prior log-odds plus `gaussian_log_odds_bound`.

    Parameters
    ----------
    mu, delta, sensitivities
        As for `gaussian_log_odds_bound`.
    prior
        Belief in the true data set before anything is seen, above 0 and below 1.
    """
    require_prior(prior)
    return float(expit(logit(prior) + gaussian_log_odds_bound(mu, delta, sensitivities)))


def mu_from_belief(belief: float, delta: float, sensitivities: Sensitivities, prior: float = 0.5) -> float:
    """Return the largest mu whose `gaussian_belief_bound` is at most the belief.

    With l = logit(belief) - logit(prior): FIXED is the positive root of mu^2/2 + mu Phi^-1(1 - delta) = l; ADAPTIVE is
    Phi^-1(1 - delta e^-l) - Phi^-1(1 - delta). (epsilon, delta)-DP with epsilon = l does not suffice: by `gdp` at delta
    .001 it leaves P(belief > .9) = .0052.

    Parameters
    ----------
    belief
        Above the prior and below 1; it is passed with probability at most delta.
    delta, sensitivities, prior
        As for `gaussian_belief_bound`.

    Examples
    --------
    >>> round(math.sqrt(30) / mu_from_belief(0.9, 0.001, Sensitivities.FIXED), 3)
    8.506
    >>> round(math.sqrt(30) / mu_from_belief(0.9, 0.001, Sensitivities.ADAPTIVE), 3)
    9.097
    """
    require_delta(delta)
    log_odds = epsilon_from_belief(belief, prior)
    quantile = -float(ndtri(delta))
    match sensitivities:
        case Sensitivities.FIXED:
            root = math.hypot(quantile, math.sqrt(2 * log_odds))
            return 2 * log_odds / (quantile + root) if quantile > 0 else root - quantile
        case Sensitivities.ADAPTIVE:
            return -float(ndtri_exp(math.log(delta) - log_odds)) - quantile
        case _:
            assert_never(sensitivities)
