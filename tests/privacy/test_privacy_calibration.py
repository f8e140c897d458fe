import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import (
    AdvantageTarget,
    BeliefTarget,
    EpsilonTarget,
    Guarantee,
    NoiseMultiplierTarget,
    Target,
    guarantee,
    noise_multiplier_for,
)

ACCOUNTANTS = st.sampled_from(list(Accountant))


def promise(target: Target, accountant: Accountant, rounds: int, delta: float, prior: float = 0.5) -> Guarantee:
    return guarantee(accountant, noise_multiplier_for(target, accountant, rounds, delta, prior), rounds, delta, prior)


@pytest.mark.parametrize(("delta", "mu", "advantage"), [(0.001, 0.5504, 0.2168), (0.01, 0.6536, 0.2562)])
def test_the_papers_setting(delta: float, mu: float, advantage: float) -> None:
    kept = promise(BeliefTarget(0.9), Accountant.RDP_CLASSIC, 30, delta)
    assert kept.mu == pytest.approx(mu, abs=5e-5)
    assert kept.mu == pytest.approx(math.sqrt(30) / kept.noise_multiplier, rel=1e-12)
    assert kept.advantage_bound_exact == pytest.approx(advantage, abs=5e-5)
    assert kept.belief_bound == pytest.approx(0.9, abs=1e-12)


@given(st.floats(0.2, 20), st.floats(-10, -0.8), st.integers(1, 1000), ACCOUNTANTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_epsilon_is_kept_and_not_wasted(eps: float, exponent: float, rounds: int, accountant: Accountant) -> None:
    delta = 10.0**exponent
    if accountant is Accountant.RDP_CLASSIC:
        eps -= math.log(delta) / 62
    kept = promise(EpsilonTarget(eps), accountant, rounds, delta)
    assert kept.epsilon <= eps
    assert kept.epsilon == pytest.approx(eps, rel=1e-9)
    assert guarantee(accountant, kept.noise_multiplier * 0.999, rounds, delta).epsilon > eps


@given(st.floats(0.05, 0.8), st.floats(0.1, 0.95), st.floats(-6, -0.5), ACCOUNTANTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_belief_is_kept_with_any_prior(prior: float, share: float, exponent: float, accountant: Accountant) -> None:
    belief, delta = prior + (1 - prior) * share, 10.0**exponent
    try:
        kept = promise(BeliefTarget(belief), accountant, 30, delta, prior)
    except InputError as refusal:
        assert accountant is Accountant.RDP_CLASSIC
        assert "accepted by rdp-classic" in str(refusal)  # noqa: PT017
        return
    assert kept.belief_bound == pytest.approx(belief, abs=1e-9)


@given(st.floats(0.02, 0.9), st.floats(-6, -0.5))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_advantage_is_kept_in_truth(advantage: float, exponent: float) -> None:
    delta = 10.0**exponent
    exact = promise(AdvantageTarget(advantage), Accountant.GDP, 30, delta)
    assert exact.advantage_bound_exact == pytest.approx(advantage, rel=1e-9)
    try:
        classic = promise(AdvantageTarget(advantage), Accountant.RDP_CLASSIC, 30, delta)
    except InputError as refusal:
        assert "accepted by rdp-classic" in str(refusal)  # noqa: PT017
        return
    assert classic.advantage_bound_exact <= advantage * (1 + 1e-12)
    assert classic.advantage_bound <= advantage * (1 + 1e-12)
    tightest = max(classic.advantage_bound_exact, classic.advantage_bound)
    assert tightest == pytest.approx(advantage, rel=1e-9)


def test_small_advantages_need_more_noise_than_eq_6_asks() -> None:
    kept = promise(AdvantageTarget(0.035), Accountant.RDP_CLASSIC, 30, 0.001)
    assert kept.advantage_bound_exact == pytest.approx(0.035, rel=1e-9)
    assert kept.advantage_bound < 0.035


def test_noise_multiplier_passes_through() -> None:
    assert noise_multiplier_for(NoiseMultiplierTarget(7.25), Accountant.GDP, 30, 0.01) == 7.25


def test_gdp_needs_less_noise_than_classic_for_the_same_belief() -> None:
    classic = noise_multiplier_for(BeliefTarget(0.9), Accountant.RDP_CLASSIC, 30, 0.001)
    assert noise_multiplier_for(BeliefTarget(0.9), Accountant.GDP, 30, 0.001) < classic


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (BeliefTarget(0.5), "belief is 0.5"),
        (BeliefTarget(1.0), "belief is 1.0"),
        (BeliefTarget(0.501), "accepted by rdp-classic"),
        (EpsilonTarget(0.05), "accepted by rdp-classic"),
        (AdvantageTarget(0.001), "accepted by rdp-classic"),
    ],
)
def test_unreachable_targets_are_refused(target: Target, said: str) -> None:
    with pytest.raises(InputError, match=said):
        noise_multiplier_for(target, Accountant.RDP_CLASSIC, 30, 0.001)


def test_wrong_targets_are_refused_when_made() -> None:
    for advantage in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(InputError, match="advantage is"):
            AdvantageTarget(advantage)
    for number in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="epsilon is"):
            EpsilonTarget(number)
        with pytest.raises(InputError, match="noise multiplier is"):
            NoiseMultiplierTarget(number)


def test_wrong_surroundings_are_refused() -> None:
    for rounds, delta, prior, said in ((0, 0.1, 0.5, "rounds"), (1, 0.0, 0.5, "delta"), (1, 0.1, 1.0, "prior")):
        with pytest.raises(InputError, match=said):
            noise_multiplier_for(NoiseMultiplierTarget(1.0), Accountant.GDP, rounds, delta, prior)
        with pytest.raises(InputError, match=said):
            guarantee(Accountant.GDP, 1.0, rounds, delta, prior)
