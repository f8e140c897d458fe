"""Identifiability scores of a guarantee (Bernau et al. 2021), and bounds on the adversary's belief for Gaussian noise.

`rho_beta` and `rho_alpha` are the paper's functions of epsilon and delta (theorems 2 and 3). `gaussian_advantage` and
`mu_from_advantage` are exact for a Gaussian composition with parameter mu. Functions raise `InputError` for numbers out
of range.

**Belief bounds.** Let L be the adversary's log-odds of D against D' after all rounds, and t a threshold. Every
statement also holds with D and D' exchanged. The tail of L depends on how the sensitivities of the rounds are chosen:

* If every round has a fixed signal-to-noise ratio, L is normal with mean mu^2/2 and variance mu^2 under D, so its
  quantiles are exact.
* If a round's sensitivity depends on earlier releases, mu^2 only bounds the sum of the rounds' squared ratios, and L
  need not be normal. For example, if the sensitivity vanishes as soon as L is high, L exceeds a threshold more often.
  Two facts together bound the probability of the event {L > t}. First, composition still gives the trade-off function
  of a Gaussian release with parameter mu (Dong, Roth & Su 2022, theorem 3.2): an event of probability delta under D has
  probability at least Phi(-(mu + Phi^-1(1 - delta))) under D'. Second, {L > t} is at least e^t times as probable under
  D as under D'. The same bound is the smallest delta(eps) / (1 - e^(eps - t)) over all eps below t, because delta(eps)
  = E[(1 - e^(eps - L))+ | D].
"""

import math
from typing import assert_never

from scipy.special import bdtrc, erf, erfinv, expit, log_ndtr, logit, ndtri, ndtri_exp

from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import SignalToNoiseAdaptivity as SignalToNoiseAdaptivity
from fl_audit.privacy.gaussian import require_delta, require_epsilon, require_mu, require_whole
from fl_audit.value_checks import in_percent, require_number

_SQRT2 = math.sqrt(2.0)


def require_prior(prior: float) -> None:
    """Check that the adversary's prior belief in D is above 0 and below 1; raise `InputError` otherwise."""
    require_number("prior is", prior, "numbers above 0 and below 1")


def _require_belief(belief: float, prior: float) -> None:
    require_prior(prior)
    meant = in_percent(belief) if belief > 100 * prior else ""
    accepted = f"accepted are numbers above the prior {prior} and below 1{meant}"
    require(prior < belief < 1, f"belief is {belief}: {accepted}")


def require_advantage(advantage: float) -> None:
    """Check that the advantage is above 0 and below 1; raise `InputError` otherwise."""
    accepted = f"accepted are numbers above 0 and below 1{in_percent(advantage)}"
    require(0 < advantage < 1, f"advantage is {advantage}: {accepted}")


def rho_beta(epsilon: float, prior: float = 0.5) -> float:
    """Return the bound on the adversary's posterior belief in D: sigmoid(epsilon + logit(prior)).

    Source: Bernau et al. 2021, theorem 2 (there with prior 1/2). With epsilon by `rdp-classic`, the belief exceeds the
    bound with probability at most delta. Under (epsilon, delta)-DP alone, this probability may be larger than delta.

    Parameters
    ----------
    epsilon
        Epsilon of the guarantee, at least 0 and finite.
    prior
        The prior belief in D, above 0 and below 1.

    Examples
    --------
    >>> round(rho_beta(2.2), 2)
    0.9
    """
    require_epsilon(epsilon)
    require_prior(prior)
    return float(expit(epsilon + logit(prior)))


def epsilon_from_belief(belief: float, prior: float = 0.5) -> float:
    """Return logit(belief) - logit(prior), the epsilon for which `rho_beta` equals a belief.

    Source: Bernau et al. 2021, Eq. (5).

    Parameters
    ----------
    belief
        The posterior belief, above the prior and below 1.
    prior
        The prior belief in D, above 0 and below 1.

    Examples
    --------
    >>> round(epsilon_from_belief(0.9), 4)
    2.1972
    """
    _require_belief(belief, prior)
    return float(logit(belief) - logit(prior))


def _classic_scale(delta: float) -> float:
    """Return the noise multiplier for epsilon 1, sqrt(2 ln(1.25/delta)), by Eq. (1) of Bernau et al. 2021."""
    return math.sqrt(2 * math.log(1.25 / delta))


def rho_alpha(epsilon: float, delta: float) -> float:
    """Return the bound of Bernau et al. 2021 on the adversary's advantage, 2 Phi(eps / (2 sqrt(2 ln(1.25/delta)))) - 1.

    The bound is the paper's theorem 3, and holds for noise calibrated by the paper's Eq. (1), sigma = Delta sqrt(2
    ln(1.25/delta)) / eps, where Delta is the sensitivity. The bound does **not** hold for noise calibrated by a tight
    accountant such as `gdp`: this noise is smaller, so the true advantage is larger. Under `rdp-classic` it is slightly
    violated at small epsilon (about .20 to .45 at delta .001).

    Parameters
    ----------
    epsilon
        Epsilon of the guarantee, at least 0 and finite.
    delta
        Delta of the guarantee, above 0 and below 1.

    Examples
    --------
    >>> round(rho_alpha(2.2, 0.001), 2)
    0.23
    """
    require_epsilon(epsilon)
    require_delta(delta)
    return float(erf(epsilon / (2 * _SQRT2 * _classic_scale(delta))))


def epsilon_from_advantage(advantage: float, delta: float) -> float:
    """Return the epsilon for which `rho_alpha` equals an advantage.

    It is 2 sqrt(2 ln(1.25/delta)) Phi^-1((advantage + 1) / 2). This is Eq. (6) of Bernau et al. 2021 with an additional
    factor 2, which is needed to invert the paper's theorem 3. Where theorem 3 does not hold (see `rho_alpha`), noise
    for this epsilon may allow a larger advantage.

    Parameters
    ----------
    advantage
        The adversary's advantage, above 0 and below 1.
    delta
        Delta of the guarantee, above 0 and below 1.
    """
    require_advantage(advantage)
    require_delta(delta)
    return 2 * _SQRT2 * _classic_scale(delta) * float(erfinv(advantage))


def gaussian_advantage(mu: float) -> float:
    """Return the largest advantage of an adversary against a Gaussian composition, 2 Phi(mu/2) - 1 = delta(0).

    It is the total variation distance between N(-mu^2/2, mu^2) and N(mu^2/2, mu^2), where `mu`, at least 0, is the
    Gaussian-DP parameter.

    Examples
    --------
    >>> round(gaussian_advantage(0.5504), 4)
    0.2168
    """
    require_mu(mu)
    return float(erf(mu / (2 * _SQRT2)))


def mu_from_advantage(advantage: float) -> float:
    """Return the mu for which `gaussian_advantage` equals `advantage`, which must be above 0 and below 1."""
    require_advantage(advantage)
    return 2 * _SQRT2 * float(erfinv(advantage))


def truth_probability(epsilon: float) -> float:
    """Return the probability with which randomised response reports the true bit, e^epsilon / (1 + e^epsilon).

    Equivalently, the bit is kept with probability rho = tanh(epsilon/2) and otherwise replaced by a fair coin flip
    (Warner 1965; Eq. (1) of Bernau et al. 2019). Epsilon is at least 0.
    """
    require_epsilon(epsilon)
    return float(expit(epsilon))


def response_advantage(epsilon: float, differing: int) -> float:
    """Return the advantage of an adversary that sees a randomised record and knows two possible originals.

    Of d differing bits, a binomial number B agrees with the true record. Each bit agrees with probability
    `truth_probability`. The log-odds are epsilon (2 B - d). The advantage, 2 P(right guess) - 1 with equal priors, is
    P(B > d/2) - P(B < d/2). For d = 1 and d = 2 it is tanh(epsilon/2).

    Parameters
    ----------
    epsilon
        Epsilon of the randomised response of one bit, from 0.
    differing
        Number d of bits in which the two records differ, from 1.
    """
    require_whole(differing=differing)
    truth = truth_probability(epsilon)
    # For even d, the outcome that half of the bits agree is equally probable under both records and cancels.
    return float(bdtrc(differing // 2, differing, truth) - bdtrc(differing // 2, differing, 1 - truth))


def gaussian_log_odds_bound(mu: float, delta: float, adaptivity: SignalToNoiseAdaptivity) -> float:
    """Return a bound, in nats, on the adversary's log-odds of the true training set.

    The log-odds exceed the bound with probability at most delta. For FIXED sensitivities the bound is mu^2/2 + mu
    Phi^-1(1 - delta), which is exceeded with probability exactly delta. For ADAPTIVE sensitivities it is ln(delta /
    Phi(-(mu + Phi^-1(1 - delta)))), which is at least as large (see the module). The prior log-odds are not included.

    Parameters
    ----------
    mu
        Gaussian-DP parameter of all rounds, at least 0 and finite.
    delta
        Probability of exceeding the bound, above 0 and below 1.
    adaptivity
        Whether the rounds' sensitivities are fixed in advance or may depend on earlier releases.

    Examples
    --------
    >>> round(gaussian_log_odds_bound(0.5504, 0.001, SignalToNoiseAdaptivity.FIXED), 3)
    1.852
    >>> round(gaussian_log_odds_bound(0.5504, 0.001, SignalToNoiseAdaptivity.ADAPTIVE), 3)
    1.995
    """
    require_mu(mu)
    require_delta(delta)
    quantile = -float(ndtri(delta))
    match adaptivity:
        case SignalToNoiseAdaptivity.FIXED:
            return mu * mu / 2 + mu * quantile
        case SignalToNoiseAdaptivity.ADAPTIVE:
            return max(0.0, math.log(delta) - float(log_ndtr(-(mu + quantile))))
        case _:
            assert_never(adaptivity)


def gaussian_belief_bound(mu: float, delta: float, adaptivity: SignalToNoiseAdaptivity, prior: float = 0.5) -> float:
    """Return a bound on the adversary's belief in the true training set, exceeded with probability at most delta.

    It is the sigmoid of the prior log-odds plus `gaussian_log_odds_bound`.

    Parameters
    ----------
    mu
        Gaussian-DP parameter of all rounds, at least 0 and finite.
    delta
        Probability of exceeding the bound, above 0 and below 1.
    adaptivity
        Whether the rounds' sensitivities are fixed in advance or may depend on earlier releases.
    prior
        Prior belief in the true training set, above 0 and below 1.
    """
    require_prior(prior)
    return float(expit(logit(prior) + gaussian_log_odds_bound(mu, delta, adaptivity)))


def mu_from_belief(belief: float, delta: float, adaptivity: SignalToNoiseAdaptivity, prior: float = 0.5) -> float:
    """Return the largest Gaussian-DP parameter mu for which `gaussian_belief_bound` is at most `belief`.

    Let l = logit(belief) - logit(prior). For FIXED sensitivities, mu is the positive root of mu^2/2 + mu Phi^-1(1 -
    delta) = l. For ADAPTIVE, it is Phi^-1(1 - delta e^-l) - Phi^-1(1 - delta). (epsilon, delta)-DP with epsilon = l
    does not suffice: by `gdp` at delta .001, P(belief > .9) is still .0052.

    Parameters
    ----------
    belief
        Belief that the adversary may exceed with probability at most delta; above the prior and below 1.
    delta
        Probability of exceeding the belief, above 0 and below 1.
    adaptivity
        Whether the rounds' sensitivities are fixed in advance or may depend on earlier releases.
    prior
        Prior belief in the true training set, above 0 and below 1.

    Examples
    --------
    >>> round(math.sqrt(30) / mu_from_belief(0.9, 0.001, SignalToNoiseAdaptivity.FIXED), 3)
    8.506
    >>> round(math.sqrt(30) / mu_from_belief(0.9, 0.001, SignalToNoiseAdaptivity.ADAPTIVE), 3)
    9.097
    """
    require_delta(delta)
    log_odds = epsilon_from_belief(belief, prior)
    quantile = -float(ndtri(delta))
    match adaptivity:
        case SignalToNoiseAdaptivity.FIXED:
            root = math.hypot(quantile, math.sqrt(2 * log_odds))
            return 2 * log_odds / (quantile + root) if quantile > 0 else root - quantile
        case SignalToNoiseAdaptivity.ADAPTIVE:
            return -float(ndtri_exp(math.log(delta) - log_odds)) - quantile
        case _:
            assert_never(adaptivity)
