"""Refusals of claims and accounting: each names what is wrong."""

import math

import fl_audit as fa
from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, account, epsilon_of_mu
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    SampledGaussianRelease,
    gaussian_rounds,
    local_events,
)
from fl_audit.privacy.gaussian import combined_multiplier, gaussian_mu, gdp_delta
from fl_audit.privacy.guarantee import derive_guarantee, yeom_bound
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, mu_from_advantage, rho_alpha, rho_beta
from fl_audit.privacy.log_odds_distribution import TrueHypothesis, log_odds_distribution
from fl_audit.privacy.reconstruction_bounds import reconstruction_bound
from fl_audit.privacy.renyi import _rdp_mu
from fl_audit.privacy.targets import (
    AdvantageTarget,
    BeliefTarget,
    EpsilonTarget,
    NoiseMultiplierTarget,
    ReconstructionTarget,
)
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.privacy.test_privacy_calibration import unit
from tests.privacy.test_privacy_profile import FIXED, profile_of

_ADD_REMOVE = Adjacency.ADD_REMOVE_RECORD
_PLAIN = GaussianRelease(1.0, 1.0)
_SAMPLED = SampledGaussianRelease(1.0, 0.1, 3)


def _wrong(name: str, *numbers: float) -> list[tuple[float, str]]:
    """Return numbers that are refused under a name."""
    return [(number, f"{name} is {number}") for number in numbers]


REFUSALS = [
    # Unreachable and negative numbers are refused.
    Refusal(lambda: _rdp_mu(Accountant.RDP_CLASSIC, 0.11, 0.001), r"above 0\.111415"),
    Refusal(lambda: gdp_delta(-1.0, 1.0), "epsilon is -1"),
    Refusal(lambda: gdp_delta(1.0, -1.0), "mu is -1"),
    # Unreachable targets are refused.
    *refusals(
        lambda target: noise_multiplier_for(target, unit(Accountant.RDP_CLASSIC, 30, 0.001)),
        (BeliefTarget(0.5), "belief is 0.5"),
        (BeliefTarget(1.0), "belief is 1.0"),
        (BeliefTarget(0.501), "accepted by rdp-classic"),
        (EpsilonTarget(0.05), "accepted by rdp-classic"),
        (AdvantageTarget(0.001), "accepted by rdp-classic"),
    ),
    # Wrong numbers are named.
    Refusal(lambda: yeom_bound(-1.0), "epsilon is -1"),
    # Another word is refused.
    Refusal(
        lambda: fa.account(1.0, 3, 0.1, adjacency="replace-record", noise_over="norm"),
        r"^noise over is 'norm': .* sensitivity .*clipping-norm$",
    ),
    # Wrong numbers are named.
    *refusals(
        lambda factory: factory(),
        (lambda: GaussianRelease(0.0, 1.0), "sensitivity is 0.0"),
        (lambda: GaussianRelease(1.0, math.inf), "sigma is inf"),
        (lambda: GaussianRelease(1.0, 1.0, 0), "count is 0"),
        (lambda: SampledGaussianRelease(1.0, 0.0), "rate is 0.0"),
        (lambda: SampledGaussianRelease(1.0, 1.1), "rate is 1.1"),
        (lambda: SampledGaussianRelease(math.nan, 0.5), "multiplier is nan"),
        (lambda: LaplaceRelease(1.0, -1.0), "scale is -1.0"),
        (lambda: RandomizedResponse(0.0), "epsilon is 0.0"),
        (lambda: profile_of(), "events are empty"),
        (lambda: profile_of(GaussianRelease(1.0, 1.0)).belief_at(1.0, FIXED), "delta is 1.0"),
        (lambda: profile_of(GaussianRelease(1.0, 1.0)).tradeoff(1.5), "alpha is 1.5"),
    ),
    # Numbers of rounds.
    *refusals(
        lambda multiplier, rounds, delta: epsilon_of_mu(Accountant.GDP, gaussian_mu(multiplier, rounds), delta),
        (0.0, 1, 0.1, "multiplier is 0.0"),
        (math.nan, 1, 0.1, "multiplier is nan"),
        (1.0, 0, 0.1, "rounds is 0"),
    ),
    *refusals(
        lambda accountant, delta: epsilon_of_mu(accountant, 1.0, delta),
        *((accountant, delta, f"delta is {delta}") for accountant in Accountant for delta in (0.0, 1.0)),
    ),
    Refusal(combined_multiplier, "at least one"),
    *refusals(
        lambda wrong: combined_multiplier(1.0, wrong), *_wrong("noise multiplier", 0.0, -1.0, math.nan, math.inf)
    ),
    # Targets.
    *refusals(AdvantageTarget, *_wrong("advantage", 0.0, 1.0, -0.1, math.nan)),
    *refusals(EpsilonTarget, *_wrong("epsilon", 0.0, -1.0, math.inf, math.nan)),
    *refusals(NoiseMultiplierTarget, *_wrong("noise multiplier", 0.0, -1.0, math.inf, math.nan)),
    *refusals(
        ReconstructionTarget,
        (0.001, 1000, "reconstruction is 0.001: .* above 0.001"),
        (0.5, 1, "candidates is 1: .* from 2"),
        (1.0, "reconstruction is 1.0: .* below 1"),
    ),
    # Claims.
    *refusals(
        lambda rounds, delta, prior: unit(Accountant.GDP, rounds, delta, prior),
        (0, 0.1, 0.5, "rounds"),
        (1, 0.0, 0.5, "delta"),
        (1, 0.1, 1.0, "prior"),
    ),
    *refusals(
        lambda rate: unit(Accountant.PLD, 30, 0.001, sampling_rate=rate), *_wrong("sampling rate", 0.0, 1.1, math.nan)
    ),
    Refusal(
        lambda: reconstruction_bound(
            Claim("replace-record", gaussian_rounds(1.0, 5), 1e-3, accountant=Accountant.GDP, sensitivities="fixed"),
            0.1,
        ),
        "sensitivities are fixed",
    ),
    # Batches of clients.
    *refusals(
        lambda how: local_events(10, 5, 1, 1.0, **how),
        ({}, "^epochs is .*exactly one"),
        ({"epochs": 1, "steps": 1}, "^epochs is .*exactly one"),
        ({"epochs": 0}, "^epochs is 0"),
        ({"steps": 0}, "^steps is 0"),
    ),
    *refusals(
        lambda *numbers: local_events(*numbers, 1.0, steps=1),
        (0, 5, 1, "^records is 0: .* 1 to 1e15$"),
        (10, 0, 1, "^batch is 0: .* 1 to 1e15$"),
        (10, 5, 0, "^rounds is 0: .* 1 to 1e15$"),
    ),
    # Log-odds, beliefs and scores.
    Refusal(lambda: log_odds_distribution((), Adjacency.ADD_REMOVE_RECORD, TrueHypothesis.PRESENT), "events are empty"),
    *refusals(
        lambda rate: log_odds_distribution(
            gaussian_rounds(1.0, 2, rate), Adjacency.ADD_REMOVE_RECORD, TrueHypothesis.PRESENT
        ).quantile(1.5),
        (1.0, r"^probability is 1\.5: .* 0 to 1$"),
        (0.5, r"^probability is 1\.5: .* 0 to 1$"),
    ),
    *refusals(
        lambda belief: epsilon_from_belief(belief, 0.5),
        *((belief, f"belief is {belief}: .*above the prior 0.5") for belief in (0.5, 0.4, 1.0, math.nan)),
    ),
    Refusal(lambda: rho_beta(1.0, 0.0), r"prior is 0\.0"),
    Refusal(lambda: mu_from_advantage(1.0), r"advantage is 1\.0"),
    Refusal(lambda: rho_alpha(1.0, 2.0), r"delta is 2\.0"),
    # What an accountant has no answer for.
    Refusal(
        lambda: noise_multiplier_for(BeliefTarget(0.9), unit(Accountant.RDP, 30, 0.001)),
        "^accountant is rdp: .*rdp-classic, pld",
    ),
    *refusals(
        lambda target: noise_multiplier_for(target, unit(Accountant.GDP, 30, 0.001, sampling_rate=0.1)),
        *(
            (target, r"^gdp .*30 x Poisson-sampled Gaussian release \(sampling rate 0.1\)")
            for target in (BeliefTarget(0.9), EpsilonTarget(1.0), AdvantageTarget(0.2))
        ),
    ),
    Refusal(
        lambda: derive_guarantee(unit(Accountant.GDP, 30, 0.001, sampling_rate=0.1)),
        "^gdp .*30 x Poisson-sampled Gaussian release",
    ),
    *refusals(
        lambda accountant, relation, *events: account(PrivacyProfile(events, relation), accountant, 1e-5),
        (Accountant.GDP, _ADD_REMOVE, _PLAIN, _SAMPLED, "^gdp .*3 x Poisson-sampled Gaussian release"),
        (
            Accountant.GDP,
            Adjacency.REPLACE_RECORD,
            SampledGaussianRelease(1.0, 0.5, 2, seen=True),
            r"^gdp .* \(sampling rate 0\.5, participation seen\)$",
        ),
        *(
            (name, *rest)
            for name in (Accountant.RDP, Accountant.RDP_CLASSIC)
            for rest in (
                (
                    _ADD_REMOVE,
                    _PLAIN,
                    LaplaceRelease(1.0, 2.0, 3),
                    rf"^{name} .*not for 3 x Laplace release \(sensitivity 1, scale 2\)",
                ),
                (
                    _ADD_REMOVE,
                    _PLAIN,
                    RandomizedResponse(0.5),
                    rf"^{name} .*not for 1 x randomized response \(epsilon 0.5\)",
                ),
                (Adjacency.REPLACE_RECORD, _SAMPLED, f"^{name} .*Poisson-sampled Gaussian release"),
            )
        ),
    ),
]

test_it_is_refused = refusal_test(REFUSALS)
