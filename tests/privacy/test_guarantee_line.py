"""One line for a guarantee: every value stands in it, mu covers every claim, and all commands share the function."""

import math

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.local_training.composition import ComposedPrivacy
from fl_audit.app_audits.review.claims import StatedAppClaim, epsilon_words, guarantee_of_stated
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_delta, gdp_mu
from fl_audit.privacy.gdp_fit import gdp_fit
from fl_audit.privacy.guarantee import derive_guarantee, guarantee_of_all
from fl_audit.privacy.guarantee_line import GUARANTEE_NAMES, fit_of_all, guarantee_line, guarantee_values
from fl_audit.runs.comparison import rows


def claim_of(noise: float, rounds: int, rate: float, unit: str = "user") -> Claim:
    return Claim(f"add-remove-{unit}", gaussian_rounds(noise, rounds, rate), 1e-5)


def test_the_line_has_every_value_and_none_is_lost_in_json() -> None:
    guarantee = derive_guarantee(claim_of(4.0, 16, 1.0))
    values = guarantee_values(guarantee.epsilon, guarantee.claims)
    assert tuple(values) == GUARANTEE_NAMES == rows._OF_LINE
    assert (values["gdp_mu"], values["gdp_regret"]) == (pytest.approx(1.0), 0.0)
    line = guarantee_line(values)
    for phrase in (f"{guarantee.epsilon:.4g}", "1e-05", "by gdp", "add-remove-user", "a user", "mu 1 ", "regret of 0 "):
        assert phrase in line


def test_without_mu_or_a_finite_epsilon_the_line_invents_none() -> None:
    values = guarantee_values(math.inf, [claim_of(4.0, 16, 1.0)])
    assert "epsilon without bound" in guarantee_line(values)
    assert "mu" not in guarantee_line(values | {"gdp_mu": None, "gdp_regret": None})


def test_mu_of_clients_that_differ_covers_each_of_them() -> None:
    """The client with the largest epsilon at delta is not that with the largest mu at every delta."""
    sampled = claim_of(0.7, 10, 0.01)
    noise = 1 / (1.02 * gdp_mu(sampled.profile.epsilon(sampled.delta), sampled.delta))
    claims = (sampled, claim_of(noise, 1, 1.0))
    worst = guarantee_of_all(claims)
    fit = fit_of_all(guarantee_of_all(claims).claims)
    assert fit.mu > gdp_fit(worst.claim.profile).mu, "one of the other claims needs the larger mu"
    for claim in claims:
        for epsilon in np.linspace(0.0, worst.epsilon, 7).tolist():
            assert claim.profile.delta(epsilon) <= gdp_delta(epsilon, fit.mu) + 1e-9


def test_steps_of_users_are_said_to_be_about_users() -> None:
    steps = ((2.0, 0.1, 5),)
    units = {1: Adjacency.ADD_REMOVE_RECORD, 3: Adjacency.ADD_REMOVE_USER}
    for records, adjacency in units.items():
        claim = ComposedPrivacy(1.0, 1e-5, 1, steps, records).claim
        assert claim is not None
        assert claim.adjacency is adjacency
        assert claim.events == gaussian_rounds(2.0, 5, 0.1)
    assert ComposedPrivacy(math.inf, 1e-5, 1, steps).claim is None


def test_noise_that_an_app_names_has_a_mu_and_a_point_has_none() -> None:
    noise = StatedAppClaim(StatedClaim("replace-client", noise_multiplier=2.0), "here")
    guarantee = guarantee_of_stated(noise, rounds=16)
    assert guarantee is not None
    assert (guarantee["gdp_mu"], guarantee["gdp_regret"], guarantee["unit"]) == (pytest.approx(2.0), 0.0, "client")
    assert guarantee_line(guarantee) in epsilon_words(noise, 16)
    point = StatedAppClaim(StatedClaim("replace-client", epsilon=2.0), "here")
    assert guarantee_of_stated(point, rounds=16) is None
    assert "mu" not in epsilon_words(point, 16)
