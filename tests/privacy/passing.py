"""How probable it is that a belief is passed: the inverse question to `PrivacyProfile.belief_at`."""

from scipy.special import logit

from fl_audit.privacy.beliefs import Sensitivities
from fl_audit.privacy.profile import PrivacyProfile


def belief_survival(profile: PrivacyProfile, belief: float, sensitivities: Sensitivities) -> float:
    """Return a bound on the probability that the posterior belief in the true data set passes a belief."""
    return profile.passing_probability(float(logit(belief) - logit(profile.prior)), sensitivities)
