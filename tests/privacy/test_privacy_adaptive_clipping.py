"""Sum and bit of adaptive clipping as one Gaussian release: closed forms and the product distribution itself."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.gaussian import combined_multiplier


def test_both_releases_compose_to_the_combined_one() -> None:
    two = PrivacyProfile((GaussianRelease(1.0, 1.3), GaussianRelease(0.5, 2.0)), Adjacency.ADD_REMOVE_CLIENT)
    one = PrivacyProfile((GaussianRelease(1.0, combined_multiplier(1.3, 4.0)),), Adjacency.ADD_REMOVE_CLIENT)
    assert two.epsilon(1e-5) == pytest.approx(one.epsilon(1e-5), rel=1e-12)


def test_the_papers_form() -> None:
    """Andrew et al. 2021, theorem 1: z_sum = (z^-2 - (2 sigma_b)^-2)^(-1/2)."""
    z, sigma_bit = 1.1, 5.0
    z_bit = sigma_bit / Adjacency.ADD_REMOVE_CLIENT.sensitivity_of_sum(0.5)
    z_sum = (z**-2 - (2 * sigma_bit) ** -2) ** -0.5
    assert z_bit == 10.0
    assert combined_multiplier(z_sum, z_bit) == pytest.approx(z, rel=1e-14)
    assert combined_multiplier(3.0) == 3.0


def test_under_sampling_both_are_one_release() -> None:
    """The log-odds of (sum, bit) under one coin have the distribution of those of one release; false alarm rate
    1e-4.
    """
    rng, runs, q, z_sum, z_bit = np.random.default_rng(3), 100_000, 0.3, 1.2, 2.5
    coins = rng.random((2, runs)) < q
    ells = []
    for z in (z_sum, z_bit):
        seen = coins[0] / z + rng.standard_normal(runs)
        ells.append(seen / z - 0.5 / z**2)
    both = np.log1p(q * np.expm1(np.sum(ells, axis=0)))
    z = combined_multiplier(z_sum, z_bit)
    one = np.log1p(q * np.expm1((coins[1] / z + rng.standard_normal(runs)) / z - 0.5 / z**2))
    assert kstest(both, one).pvalue > 1e-4


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least one"):
        combined_multiplier()
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="noise multiplier is"):
            combined_multiplier(1.0, wrong)
