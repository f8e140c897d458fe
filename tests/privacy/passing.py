"""The probability that log-odds, or a belief, are passed: the inverse questions to the bounds of the library."""

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, logit, ndtr

from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.pld import FINEST, MISPLACED_MASS, PrivacyCurve, PrivacyCurvePair, loss_curves


def gaussian_passing_probability(mu: float, log_odds: float, sensitivities: SignalToNoiseAdaptivity) -> float:
    """Return the largest probability, if D was used, that the log-odds of D pass a threshold under Gaussian noise.

    Fixed sensitivities: Phi(mu/2 - t/mu). Adaptive ones: ln Phi(-a) - ln Phi(-(a + mu)) = t solved for
    a = Phi^-1(1 - p); the left side grows with a, and exceeds mu a + mu^2/2 where a is not negative.
    """
    if mu == 0:
        return float(log_odds < 0)
    if sensitivities is SignalToNoiseAdaptivity.FIXED:
        return float(ndtr(mu / 2 - log_odds / mu))

    def excess(a: float) -> float:
        return float(log_ndtr(-a) - log_ndtr(-(a + mu))) - log_odds

    high = max(0.0, log_odds / mu - mu / 2)
    if log_odds <= 0 or excess(-40.0) > 0:
        return 1.0
    return float(ndtr(-brentq(excess, -40.0, high, xtol=1e-14, rtol=1e-14) if excess(high) > 0 else -high))


def passing_probability(curves: PrivacyCurvePair, loss: float) -> float:
    """Return the smallest delta(eps) / (1 - e^(eps - loss)): a bound on P(L > loss) for adaptively chosen releases."""

    def of_one(curve: PrivacyCurve) -> float:
        below = curve.losses < loss
        return float(np.min(curve.deltas[below] / -np.expm1(curve.losses[below] - loss), initial=1.0))

    return max(of_one(curve) for curve in curves.curves)


def survival(curves: PrivacyCurvePair, loss: float) -> float:
    """Return a bound on P(L > loss) where the distribution of every loss is fixed, never too small."""

    def bound(misplaced: float) -> float:
        threshold = loss - curves.slack(misplaced)
        tail_masses = (
            curve.infinity + float(np.sum(curve.probabilities[curve.losses > threshold])) for curve in curves.curves
        )
        return min(1.0, max(tail_masses) + misplaced)

    at_most = bound(MISPLACED_MASS)
    return min(at_most, bound(max(MISPLACED_MASS, at_most * 1e-3)), passing_probability(curves, loss))


def belief_survival(profile: PrivacyProfile, belief: float, sensitivities: SignalToNoiseAdaptivity) -> float:
    """Return a bound on the probability that the posterior belief in the true data set passes a belief."""
    log_odds = float(logit(belief) - logit(profile.prior))
    if profile.gaussian_mu is not None:
        return gaussian_passing_probability(profile.gaussian_mu, log_odds, sensitivities)
    curves = loss_curves(profile.events, profile.adjacency)
    if sensitivities is SignalToNoiseAdaptivity.ADAPTIVE:
        return passing_probability(curves, log_odds)
    is_cheap = curves.size <= 50_000
    return survival(loss_curves(profile.events, profile.adjacency, FINEST) if is_cheap else curves, log_odds)
