"""Randomised response: what an insider can tell of bits that are told truly with a known probability.

Two coins: a bit is kept with probability rho, otherwise a fair coin takes its place (Warner 1965; Eq. (1) of Bernau et
al. 2019). So it is told truly with probability (1 + rho) / 2 = e^epsilon / (1 + e^epsilon), and rho = tanh(epsilon/2).
Arrays whose shapes do not fit, and numbers out of their range, raise `InputError`.
"""

from scipy.special import bdtrc, expit

from fl_audit.privacy.gaussian import require_epsilon, require_whole


def truth_probability(epsilon: float) -> float:
    """Return the probability with which a bit is told truly, e^epsilon / (1 + e^epsilon), for epsilon from 0."""
    require_epsilon(epsilon)
    return float(expit(epsilon))


def response_advantage(epsilon: float, differing: int) -> float:
    """Return the advantage of an insider who sees one randomised record and knows the two that it can come from.

    Of the d bits in which the records differ, a number B that is binomial (d, p), p the probability of the truth,
    agrees with the true record; the log-odds are epsilon (2 B - d). The insider guesses the record with more
    agreements, so its advantage, the total variation, is P(B > d/2) - P(B < d/2). For one bit and for two it is
    tanh(epsilon/2).

    Parameters
    ----------
    epsilon, differing
        Epsilon of one bit, from 0, and d, the number of bits in which the two records differ, from 1.
    """
    require_whole(differing=differing)
    truth = truth_probability(epsilon)
    # Even where half of the bits agree: that outcome is as probable under both records, and tells nothing.
    return float(bdtrc(differing // 2, differing, truth) - bdtrc(differing // 2, differing, 1 - truth))
