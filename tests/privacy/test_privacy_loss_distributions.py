"""Distributions of the privacy loss of one release keep all mass, and never place it at a smaller loss."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from fl_audit.privacy.loss_distributions import _GaussianLoss


@pytest.mark.parametrize("interval", [0.001, 0.01, 0.5])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("mu", "rate"), [(0.05, 0.001), (0.05, 0.3), (1.0, 0.4), (4.0, 0.01)])
def test_masses_sum_to_one_and_the_mean_loss_is_not_too_small(
    mu: float, rate: float, replaced: bool, reverse: bool, interval: float
) -> None:
    loss = _GaussianLoss(mu, rate, replaced)
    distribution = loss.masses(interval, reverse)
    assert distribution.probabilities.sum() + distribution.infinity == pytest.approx(1.0, abs=1e-14)
    # The exact mean, by quadrature over the outcomes of the release.
    x = np.linspace(-12.0 - mu, 12.0 + mu, 200_001)
    up, down = (mu / 2, -mu / 2) if replaced else (mu, 0.0)
    p = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, up)
    q = (1 - rate) * norm.pdf(x) + rate * norm.pdf(x, down)
    first, second = (q, p) if reverse else (p, q)
    mean = float(np.sum(first * np.log(first / second)) * (x[1] - x[0]))
    grid = (distribution.first + np.arange(distribution.probabilities.size)) * interval
    assert float(grid @ distribution.probabilities) >= mean - 1e-9
    assert math.isfinite(mean)
