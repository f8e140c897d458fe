"""How probable it is that a belief is passed: the inverse question to `PrivacyProfile.belief_at`."""

from scipy.special import logit

from fl_audit.privacy import pld
from fl_audit.privacy.beliefs import Sensitivities, gaussian_passing_probability
from fl_audit.privacy.profile import PrivacyProfile

_CHEAP = 50_000


def belief_survival(profile: PrivacyProfile, belief: float, sensitivities: Sensitivities) -> float:
    """Return a bound on the probability that the posterior belief in the true data set passes a belief."""
    log_odds = float(logit(belief) - logit(profile.prior))
    if profile.gaussian_mu is not None:
        return gaussian_passing_probability(profile.gaussian_mu, log_odds, sensitivities)
    curves = pld.loss_curves(profile.events, profile.adjacency)
    if sensitivities is Sensitivities.ADAPTIVE:
        return curves.passing_probability(log_odds)
    if curves.size <= _CHEAP:
        curves = pld.loss_curves(profile.events, profile.adjacency, pld.FINEST)
    return curves.survival(log_odds)
