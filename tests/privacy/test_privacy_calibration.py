import math
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import SMALLEST_SAMPLED_NOISE, noise_multiplier_for, noise_multiplier_for_all
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import RandomizedResponse, gaussian_rounds
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget, NoiseMultiplierTarget, Target
from tests.builders.refusals import assert_refused
from tests.privacy.passing import belief_survival

ACCOUNTANTS = st.sampled_from(list(Accountant))


def unit(
    accountant: Accountant, rounds: int, delta: float, prior: float = 0.5, sampling_rate: float = 1.0, **changes: Any
) -> Claim:
    """Return a claim at unit noise."""
    fields = {"adjacency": Adjacency.ADD_REMOVE_RECORD} | changes
    return Claim(
        events=gaussian_rounds(1.0, rounds, sampling_rate), delta=delta, prior=prior, accountant=accountant, **fields
    )


def kept_by(target: Target, claim: Claim) -> Guarantee:
    return derive_guarantee(claim.with_noise(noise_multiplier_for(target, claim)))


def make_guarantee(target: Target, accountant: Accountant, rounds: int, delta: float, prior: float = 0.5) -> Guarantee:
    return kept_by(target, unit(accountant, rounds, delta, prior))


@pytest.mark.parametrize(("delta", "mu", "advantage"), [(0.001, 0.5504, 0.2168), (0.01, 0.6536, 0.2562)])
def test_the_papers_setting(delta: float, mu: float, advantage: float) -> None:
    guarantee = make_guarantee(BeliefTarget(0.9), Accountant.RDP_CLASSIC, 30, delta)
    assert guarantee.mu == pytest.approx(mu, abs=5e-5)
    assert guarantee.noise_multiplier == pytest.approx(math.sqrt(30) / guarantee.mu, rel=1e-12)
    assert guarantee.advantage_bound_exact == pytest.approx(advantage, abs=5e-5)
    assert guarantee.belief_bound == pytest.approx(0.9, abs=1e-12)


@given(st.floats(0.2, 20), st.floats(-10, -0.8), st.integers(1, 1000), ACCOUNTANTS)
@settings(derandomize=True)
def test_epsilon_is_kept_and_not_wasted(eps: float, exponent: float, rounds: int, accountant: Accountant) -> None:
    delta = 10.0**exponent
    if accountant in (Accountant.RDP_CLASSIC, Accountant.RDP):
        eps -= math.log(delta) / 62
    guarantee = make_guarantee(EpsilonTarget(eps), accountant, rounds, delta)
    assert guarantee.epsilon <= eps
    assert guarantee.epsilon == pytest.approx(eps, rel=1e-6 if accountant is Accountant.PLD else 1e-9)
    assert derive_guarantee(guarantee.claim.with_noise(0.999)).epsilon > eps


@given(st.floats(0.05, 0.8), st.floats(0.1, 0.95), st.floats(-6, -0.5), ACCOUNTANTS)
@settings(derandomize=True)
def test_belief_is_kept_with_any_prior(prior: float, share: float, exponent: float, accountant: Accountant) -> None:
    belief = prior + (1 - prior) * share
    delta = 10.0**exponent
    try:
        guarantee = make_guarantee(BeliefTarget(belief), accountant, 30, delta, prior)
    except InputError as refusal:
        assert accountant in (Accountant.RDP_CLASSIC, Accountant.RDP)
        expected_error = rf"^belief is {belief:.6g}: .*rdp-classic .*above 0\.|^accountant is rdp: .*rdp-classic"
        assert re.search(expected_error, str(refusal))  # noqa: PT017
        return
    assert guarantee.belief_bound == pytest.approx(belief, abs=1e-9)


@given(st.floats(0.02, 0.9), st.floats(-6, -0.5))
@settings(derandomize=True)
def test_advantage_is_kept_in_truth(advantage: float, exponent: float) -> None:
    delta = 10.0**exponent
    exact = make_guarantee(AdvantageTarget(advantage), Accountant.GDP, 30, delta)
    assert exact.advantage_bound_exact == pytest.approx(advantage, rel=1e-9)
    try:
        classic = make_guarantee(AdvantageTarget(advantage), Accountant.RDP_CLASSIC, 30, delta)
    except InputError as refusal:
        assert "accepted by rdp-classic" in str(refusal)  # noqa: PT017
        return
    assert classic.rho_alpha is not None
    assert max(classic.advantage_bound_exact, classic.rho_alpha) <= advantage * (1 + 1e-12)
    assert max(classic.advantage_bound_exact, classic.rho_alpha) == pytest.approx(advantage, rel=1e-9)


@pytest.mark.parametrize("accountant", [Accountant.GDP, Accountant.PLD, Accountant.RDP])
def test_only_the_papers_accountant_has_its_score(accountant: Accountant) -> None:
    """The others keep an advantage by the exact one alone: no noise is spent on a score that is no bound there."""
    guarantee = make_guarantee(AdvantageTarget(0.2), accountant, 30, 1e-3)
    assert guarantee.rho_alpha is None
    assert guarantee.advantage_bound == guarantee.advantage_bound_exact == pytest.approx(0.2, rel=1e-9)
    assert "rho_alpha" not in str(guarantee)


def test_small_advantages_need_more_noise_than_eq_6_asks() -> None:
    guarantee = make_guarantee(AdvantageTarget(0.035), Accountant.RDP_CLASSIC, 30, 0.001)
    assert guarantee.advantage_bound_exact == pytest.approx(0.035, rel=1e-9)
    assert guarantee.rho_alpha is not None
    assert guarantee.rho_alpha < 0.035


def test_noise_multiplier_passes_through() -> None:
    assert noise_multiplier_for(NoiseMultiplierTarget(7.25), unit(Accountant.GDP, 30, 0.01)) == 7.25


def test_noise_for_several_claims_is_the_largest_although_another_is_missed_by_more() -> None:
    """At the noise of the first claim the second has the larger epsilon, and the third needs more noise."""
    target = EpsilonTarget(1.0)
    settings_of_claims = ((1, 0.001), (200, 0.05), (1, 1.0))
    claims = [unit(Accountant.RDP, rounds, 1e-5, sampling_rate=rate) for rounds, rate in settings_of_claims]
    assert noise_multiplier_for_all(target, claims) == noise_multiplier_for(target, claims[-1])


def test_gdp_needs_less_noise_than_classic_for_the_same_belief() -> None:
    classic = noise_multiplier_for(BeliefTarget(0.9), unit(Accountant.RDP_CLASSIC, 30, 0.001))
    assert noise_multiplier_for(BeliefTarget(0.9), unit(Accountant.GDP, 30, 0.001)) < classic


SAMPLED = [Accountant.RDP_CLASSIC, Accountant.RDP, Accountant.PLD]


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("accountant", SAMPLED)
@pytest.mark.parametrize(("rate", "rounds", "delta"), [(0.01, 500, 1e-5), (0.2, 30, 1e-3)])
def test_epsilon_is_kept_and_not_wasted_with_sampling(
    accountant: Accountant, rate: float, rounds: int, delta: float
) -> None:
    tolerance = 1e-3 if accountant is Accountant.PLD else 1e-6
    for eps in (1.0, 8.0):
        claim = unit(accountant, rounds, delta, sampling_rate=rate)
        guarantee = kept_by(EpsilonTarget(eps), claim)
        assert guarantee.sampling_rate == rate
        assert guarantee.epsilon <= eps
        assert guarantee.epsilon == pytest.approx(eps, rel=tolerance)
        again = noise_multiplier_for(EpsilonTarget(guarantee.epsilon), claim)
        assert again == pytest.approx(guarantee.noise_multiplier, rel=tolerance)


def test_tighter_accountants_need_less_noise_with_sampling() -> None:
    noises = [noise_multiplier_for(EpsilonTarget(2.0), unit(name, 100, 1e-5, sampling_rate=0.05)) for name in SAMPLED]
    assert noises == sorted(noises, reverse=True)
    plain = noise_multiplier_for(EpsilonTarget(2.0), unit(Accountant.PLD, 100, 1e-5))
    assert noises[-1] < plain


@pytest.mark.long
@pytest.mark.parametrize("sensitivities", list(SignalToNoiseAdaptivity))
def test_belief_and_advantage_are_kept_with_sampling(sensitivities: SignalToNoiseAdaptivity) -> None:
    for accountant in (Accountant.PLD, Accountant.RDP_CLASSIC):
        claim = unit(accountant, 40, 1e-3, 0.4, 0.3, sensitivities=sensitivities)
        guarantee = kept_by(BeliefTarget(0.85), claim)
        assert 0.849 < guarantee.belief_bound <= 0.85 + 1e-12
        assert belief_survival(guarantee.claim.profile, 0.85 + 1e-9, sensitivities) <= 1e-3 * (1 + 2e-3)
    for accountant in SAMPLED:
        guarantee = kept_by(AdvantageTarget(0.15), unit(accountant, 40, 1e-3, sampling_rate=0.3))
        assert guarantee.advantage_bound_exact <= 0.15
        assert max(guarantee.advantage_bound_exact, guarantee.rho_alpha or 0.0) == pytest.approx(0.15, rel=1e-3)


@pytest.mark.parametrize(
    ("target", "name"), [(BeliefTarget(0.51), "belief is 0.51"), (AdvantageTarget(0.001), "advantage is 0.001")]
)
@pytest.mark.parametrize("sampling_rate", [1.0, 0.1])
def test_a_target_below_what_is_reported_without_release_is_named(
    target: Target, name: str, sampling_rate: float
) -> None:
    """The limit in the message is the smallest target that can be kept."""
    claim = unit(Accountant.RDP_CLASSIC, 30, 0.001, sampling_rate=sampling_rate)
    error = assert_refused(rf"^{name}: .*rdp-classic at delta 0\.001 .* above 0\.", noise_multiplier_for, target, claim)
    limit = float(str(error).partition("above ")[2].partition(",")[0])
    noise_multiplier_for(type(target)(1.001 * limit), claim)


def test_belief_bounds_of_all_accountants_hold() -> None:
    for rate in (1.0, 0.2):
        for accountant in Accountant:
            if rate < 1 and accountant is Accountant.GDP:
                continue
            claimed = derive_guarantee(unit(accountant, 30, 0.01, 0.3, rate).with_noise(3.0))
            distribution = claimed.claim.profile
            assert belief_survival(
                distribution, claimed.belief_bound + 1e-9, SignalToNoiseAdaptivity.ADAPTIVE
            ) <= 0.01 * (1 + 1e-6)
            assert belief_survival(
                distribution, claimed.belief_bound_fixed + 1e-9, SignalToNoiseAdaptivity.FIXED
            ) <= 0.01 * (1 + 2e-3)
            assert claimed.belief_bound_fixed <= claimed.belief_bound


@pytest.mark.parametrize(
    ("belief", "delta", "fixed", "adaptive", "classic"),
    [(0.9, 0.001, 8.506, 9.097, 9.952), (0.75, 0.01, 12.68, 14.16, 15.98)],
)
def test_noise_for_adaptive_sensitivities_lies_between_that_for_fixed_ones_and_the_classic(
    belief: float, delta: float, fixed: float, adaptive: float, classic: float
) -> None:
    noise_multipliers = [
        noise_multiplier_for(BeliefTarget(belief), unit(accountant, 30, delta, sensitivities=sensitivities))
        for accountant, sensitivities in (
            (Accountant.GDP, SignalToNoiseAdaptivity.FIXED),
            (Accountant.GDP, SignalToNoiseAdaptivity.ADAPTIVE),
            (Accountant.PLD, SignalToNoiseAdaptivity.ADAPTIVE),
            (Accountant.RDP_CLASSIC, SignalToNoiseAdaptivity.ADAPTIVE),
        )
    ]
    assert noise_multipliers == pytest.approx(
        [fixed, adaptive, adaptive, classic], abs=5e-3 if belief == 0.75 else 5e-4
    )


ALONE = [
    (AdvantageTarget(0.8), Accountant.PLD, 5, 0.004, 0.001),
    (EpsilonTarget(1.0), Accountant.PLD, 5, 0.004, 0.1),
    (BeliefTarget(0.9), Accountant.PLD, 5, 0.004, 0.1),
]


@pytest.mark.long
@pytest.mark.parametrize(("target", "accountant", "rounds", "rate", "delta"), ALONE)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_CLIENT])
def test_sampling_alone_may_keep_a_guarantee(
    target: Target, accountant: Accountant, rounds: int, rate: float, delta: float, adjacency: Adjacency
) -> None:
    claim = unit(accountant, rounds, delta, sampling_rate=rate, adjacency=adjacency)
    assert noise_multiplier_for(target, claim) == SMALLEST_SAMPLED_NOISE
    # Even less noise keeps it: what is released without the unit tells nothing, and it is seldom there.
    assert claim.participation == pytest.approx(1 - (1 - rate) ** rounds, rel=1e-12)
    bare = derive_guarantee(claim.with_noise(1e-4))
    assert bare.advantage_bound_exact == pytest.approx(claim.participation, rel=1e-3)
    match target:
        case AdvantageTarget(advantage):
            assert bare.advantage_bound_exact <= advantage
        case EpsilonTarget(epsilon):
            assert bare.epsilon <= epsilon
        case BeliefTarget(belief):
            assert bare.belief_bound <= belief


@pytest.mark.long
def test_a_guarantee_that_sampling_alone_nearly_keeps_is_calibrated() -> None:
    guarantee = kept_by(AdvantageTarget(0.5), unit(Accountant.RDP_CLASSIC, 10, 0.001, sampling_rate=0.01))
    assert guarantee.rho_alpha == pytest.approx(0.5, rel=1e-6)
    claim = unit(Accountant.PLD, 10, 0.001, sampling_rate=0.01)
    guarantee = kept_by(AdvantageTarget(claim.participation * 0.9), claim)
    assert guarantee.noise_multiplier is not None
    assert guarantee.noise_multiplier > 0.1
    assert guarantee.advantage_bound_exact == pytest.approx(claim.participation * 0.9, rel=1e-3)


def test_only_gaussian_noise_is_calibrated() -> None:
    response = RandomizedResponse(0.1, 3)
    assert_refused(
        "no noise to be scaled",
        lambda: noise_multiplier_for(
            EpsilonTarget(1.0), Claim(Adjacency.REPLACE_RECORD, (response,), 1e-5, 0.5, Accountant.PLD)
        ),
    )
    events = (*gaussian_rounds(1.0, 30), response)
    claim = Claim(Adjacency.REPLACE_RECORD, events, 1e-5, 0.5, Accountant.PLD)
    guarantee = kept_by(EpsilonTarget(1.0), claim)
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-3)
    assert guarantee.claim.events[1] == response
    alone = noise_multiplier_for(EpsilonTarget(1.0), unit(Accountant.PLD, 30, 1e-5))
    assert guarantee.noise_multiplier is not None
    assert guarantee.noise_multiplier > alone
    assert math.isinf(guarantee.mu)


def test_calibration_is_quick() -> None:
    started = time.process_time()
    for target in (BeliefTarget(0.9), EpsilonTarget(1.7), AdvantageTarget(0.2)):
        noise_multiplier_for(target, unit(Accountant.GDP, 30, 1e-5))
    assert time.process_time() - started < 1
    started = time.process_time()
    noise_multiplier_for(BeliefTarget(0.9), unit(Accountant.PLD, 30, 1e-5, sampling_rate=0.013))
    assert time.process_time() - started < 20
    started = time.process_time()
    noise_multiplier_for(EpsilonTarget(1.7), unit(Accountant.PLD, 30, 1e-5))
    assert time.process_time() - started < 5
