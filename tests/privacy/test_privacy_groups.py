"""Groups of units, and one Gaussian parameter for a whole profile."""

import math

import pytest
from dp_accounting import DpEvent, GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.privacy.accounting import PrivacyProfile, group_epsilon
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.gdp_fit import gdp_fit


def profile_of(noise: float, rounds: int, rate: float = 1.0) -> PrivacyProfile:
    return PrivacyProfile(gaussian_rounds(noise, rounds, rate), Adjacency.ADD_REMOVE_RECORD)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_group_under_gaussian_noise_is_one_unit_with_as_much_less_noise(size: int) -> None:
    together = profile_of(3.0 / size, 5).epsilon(1e-4)
    assert group_epsilon(profile_of(3.0, 5), size, 1e-4) == pytest.approx(together, rel=1e-9)


def test_a_group_under_sampled_noise_has_what_the_lemma_says() -> None:
    unit = profile_of(2.0, 20, 0.1)
    delta = 1e-5
    assert group_epsilon(unit, 1, delta) == unit.epsilon(delta)
    computed_epsilon = group_epsilon(unit, 3, delta)
    epsilon = computed_epsilon / 3
    assert unit.delta(epsilon) * math.expm1(computed_epsilon) / math.expm1(epsilon) <= delta * (1 + 1e-6)
    assert computed_epsilon > group_epsilon(unit, 2, delta) > unit.epsilon(delta)


def test_the_fit_of_gaussian_noise_is_exact() -> None:
    assert gdp_fit(profile_of(4.0, 16)) == (pytest.approx(1.0), 0.0)


def test_the_fit_of_sampled_noise_is_that_of_gdpnum() -> None:
    # gdpnum 0.1.0 gives these for noise 9.4, rate 0.328 and 2,000 steps.
    fit = gdp_fit(profile_of(9.4, 2000, 0.328))
    assert fit.mu == pytest.approx(1.5685621993, abs=5e-4)
    assert fit.regret == pytest.approx(0.0010208130697, abs=1e-4)


def test_few_sampled_rounds_are_no_gaussian_and_the_regret_says_so() -> None:
    assert gdp_fit(profile_of(1.0, 1, 0.05)).regret > 0.01


@pytest.mark.parametrize(("noise", "rounds", "rate"), [(0.3, 200, 0.9), (0.02, 10, 0.5), (0.5, 100, 0.5)])
def test_mu_covers_profiles_that_hardly_hide_anything(noise: float, rounds: int, rate: float) -> None:
    """Their epsilons are in the hundreds or thousands, and no exponential of them is a number."""
    profile = profile_of(noise, rounds, rate)
    mu = gdp_fit(profile).mu
    assert mu < math.sqrt(rounds) / noise, "that of a unit in every round"
    for delta in (1e-7, 1e-5, 1e-3, 0.1, 0.5):
        assert gdp_delta(profile.epsilon(delta), mu) >= 0.999 * delta


def test_without_noise_to_speak_of_there_is_no_mu() -> None:
    fit = gdp_fit(profile_of(1e-9, 3, 0.01))
    assert (fit.mu, fit.regret) == (math.inf, 1.0)
    assert fit.to_json() == {"gdp_mu": None, "gdp_regret": 1.0}


# --- The guarantee for users as units is that of dp-accounting for the same mechanism


ROUNDS = 12
NOISE = 1.3
DELTA = 1e-4


@pytest.mark.long
@pytest.mark.parametrize(
    ("adjacency", "relation", "rate"),
    [
        (Adjacency.ADD_REMOVE_USER, NeighboringRelation.ADD_OR_REMOVE_ONE, 1.0),
        (Adjacency.ADD_REMOVE_USER, NeighboringRelation.ADD_OR_REMOVE_ONE, 0.1),
        (Adjacency.REPLACE_USER, NeighboringRelation.REPLACE_ONE, 1.0),
    ],
)
def test_epsilon_of_users_equals_dp_accounting(
    adjacency: Adjacency, relation: NeighboringRelation, rate: float
) -> None:
    assert adjacency.unit is Unit.USER
    ours = PrivacyProfile(gaussian_rounds(NOISE, ROUNDS, rate), adjacency).epsilon(DELTA)
    # There noise is counted over the clipping norm, here over the sensitivity: twice that where a user is replaced.
    event: DpEvent = GaussianDpEvent(NOISE * adjacency.sensitivity_of_sum(1.0))
    accountant = PLDAccountant(relation)
    accountant.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event), ROUNDS)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_user_is_claimed_what_a_record_is_under_the_same_noise(rate: float) -> None:
    for relation in ("add-remove", "replace"):
        record, user = (
            PrivacyProfile(gaussian_rounds(NOISE, ROUNDS, rate), Adjacency(f"{relation}-{unit}")).epsilon(DELTA)
            for unit in ("record", "user")
        )
        assert record == user
