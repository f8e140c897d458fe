import math

import pytest
from scipy.stats import norm

from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit, StatedClaim


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (2.0, 3), (0.5, 2)])
def test_limits_of_gaussian_noise_lie_on_its_privacy_curve(multiplier: float, rounds: int) -> None:
    # delta(epsilon) of a Gaussian mechanism: Balle & Wang 2018, theorem 5, here written out.
    mu = math.sqrt(rounds) / multiplier
    limits = StatedClaim("add-remove-client", noise_multiplier=multiplier, rounds=rounds).limits
    for epsilon, delta in limits:
        distribution = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert distribution == pytest.approx(delta, rel=1e-6)
    assert limits[-1].epsilon == 0
    assert limits[-1].delta == pytest.approx(2 * norm.cdf(mu / 2) - 1)


def test_a_pair_is_its_only_limit_whatever_the_rounds() -> None:
    assert StatedClaim("replace-client", epsilon=2.0, delta=1e-3, rounds=7).limits == (EpsilonDeltaLimit(2.0, 1e-3),)


def test_success_is_that_of_the_best_rule() -> None:
    gaussian = StatedClaim("add-remove-client", noise_multiplier=0.5)
    assert gaussian.success == pytest.approx(norm.cdf(1.0))
    # Randomised response tells the truth with probability e^epsilon / (1 + e^epsilon).
    pure = StatedClaim("add-remove-client", epsilon=1.5, delta=0.0)
    assert pure.success == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert StatedClaim("add-remove-client", epsilon=0.0, delta=0.2).success == pytest.approx(0.6)
