import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.events import SampledGaussianRelease
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget, NoiseMultiplierTarget, Target

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
    if accountant in (Accountant.RDP_CLASSIC, Accountant.RDP):
        eps -= math.log(delta) / 62
    kept = promise(EpsilonTarget(eps), accountant, rounds, delta)
    assert kept.epsilon <= eps
    assert kept.epsilon == pytest.approx(eps, rel=1e-6 if accountant is Accountant.PLD else 1e-9)
    assert guarantee(accountant, kept.noise_multiplier * 0.999, rounds, delta).epsilon > eps


@given(st.floats(0.05, 0.8), st.floats(0.1, 0.95), st.floats(-6, -0.5), ACCOUNTANTS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_belief_is_kept_with_any_prior(prior: float, share: float, exponent: float, accountant: Accountant) -> None:
    belief, delta = prior + (1 - prior) * share, 10.0**exponent
    try:
        kept = promise(BeliefTarget(belief), accountant, 30, delta, prior)
    except InputError as refusal:
        assert accountant in (Accountant.RDP_CLASSIC, Accountant.RDP)
        assert "accepted by rdp-classic" in str(refusal) or "its conversion bounds no belief" in str(refusal)  # noqa: PT017
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


SAMPLED = [Accountant.RDP_CLASSIC, Accountant.RDP, Accountant.PLD]


@pytest.mark.parametrize("accountant", SAMPLED)
@pytest.mark.parametrize(("rate", "rounds", "delta"), [(0.01, 500, 1e-5), (0.2, 30, 1e-3)])
def test_epsilon_is_kept_and_not_wasted_with_sampling(
    accountant: Accountant, rate: float, rounds: int, delta: float
) -> None:
    tolerance = 1e-3 if accountant is Accountant.PLD else 1e-6
    for eps in (1.0, 8.0):
        noise = noise_multiplier_for(EpsilonTarget(eps), accountant, rounds, delta, sampling_rate=rate)
        kept = guarantee(accountant, noise, rounds, delta, sampling_rate=rate)
        assert kept.sampling_rate == rate
        assert kept.epsilon <= eps
        assert kept.epsilon == pytest.approx(eps, rel=tolerance)
        again = noise_multiplier_for(EpsilonTarget(kept.epsilon), accountant, rounds, delta, sampling_rate=rate)
        assert again == pytest.approx(noise, rel=tolerance)


def test_tighter_accountants_need_less_noise_with_sampling() -> None:
    noises = [noise_multiplier_for(EpsilonTarget(2.0), name, 100, 1e-5, sampling_rate=0.05) for name in SAMPLED]
    assert noises == sorted(noises, reverse=True)
    plain = noise_multiplier_for(EpsilonTarget(2.0), Accountant.PLD, 100, 1e-5)
    assert noises[-1] < plain


def test_belief_and_advantage_are_kept_with_sampling() -> None:
    for accountant in (Accountant.PLD, Accountant.RDP_CLASSIC):
        noise = noise_multiplier_for(BeliefTarget(0.85), accountant, 40, 1e-3, prior=0.4, sampling_rate=0.3)
        kept = guarantee(accountant, noise, 40, 1e-3, prior=0.4, sampling_rate=0.3)
        assert 0.849 < kept.belief_bound <= 0.85 + 1e-12
        law = PrivacyProfile((SampledGaussianRelease(noise, 0.3, 40),), prior=0.4)
        assert law.belief_survival(0.85 + 1e-9) <= 1e-3
    for accountant in SAMPLED:
        noise = noise_multiplier_for(AdvantageTarget(0.15), accountant, 40, 1e-3, sampling_rate=0.3)
        kept = guarantee(accountant, noise, 40, 1e-3, sampling_rate=0.3)
        assert kept.advantage_bound_exact <= 0.15
        assert max(kept.advantage_bound_exact, kept.advantage_bound) == pytest.approx(0.15, rel=1e-3)


def test_rdp_refuses_a_belief_and_gdp_refuses_sampling() -> None:
    with pytest.raises(InputError, match=r"^accountant is rdp: .*rdp-classic, pld"):
        noise_multiplier_for(BeliefTarget(0.9), Accountant.RDP, 30, 0.001)
    for target in (BeliefTarget(0.9), EpsilonTarget(1.0), AdvantageTarget(0.2)):
        with pytest.raises(InputError, match=r"^gdp .*30 x Poisson-sampled Gaussian release \(sampling rate 0.1\)"):
            noise_multiplier_for(target, Accountant.GDP, 30, 0.001, sampling_rate=0.1)
    with pytest.raises(InputError, match=r"^gdp .*30 x Poisson-sampled Gaussian release"):
        guarantee(Accountant.GDP, 1.0, 30, 0.001, sampling_rate=0.1)
    for rate in (0.0, 1.1, math.nan):
        with pytest.raises(InputError, match="sampling rate is"):
            guarantee(Accountant.PLD, 1.0, 30, 0.001, sampling_rate=rate)


def test_belief_bounds_of_all_accountants_hold() -> None:
    for rate in (1.0, 0.2):
        law = PrivacyProfile((SampledGaussianRelease(3.0, rate, 30),), prior=0.3)
        for accountant in Accountant:
            if rate < 1 and accountant is Accountant.GDP:
                continue
            bound = guarantee(accountant, 3.0, 30, 0.01, prior=0.3, sampling_rate=rate).belief_bound
            assert law.belief_survival(bound + 1e-9) <= 0.01 * (1 + 1e-9)


def test_sampled_pld_calibration_is_quick() -> None:
    started = time.perf_counter()
    noise_multiplier_for(BeliefTarget(0.9), Accountant.PLD, 30, 1e-5, sampling_rate=0.013)
    assert time.perf_counter() - started < 20
    started = time.perf_counter()
    noise_multiplier_for(EpsilonTarget(1.7), Accountant.PLD, 30, 1e-5)
    assert time.perf_counter() - started < 5
