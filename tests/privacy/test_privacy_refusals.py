"""Refusals of claims and accounting: each names what is wrong."""

import math

import fl_audit as fa
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.events import GaussianRelease, LaplaceRelease, RandomizedResponse, SampledGaussianRelease
from fl_audit.privacy.gaussian import gdp_delta
from fl_audit.privacy.guarantee import yeom_bound
from fl_audit.privacy.renyi import _rdp_mu
from fl_audit.privacy.targets import AdvantageTarget, BeliefTarget, EpsilonTarget
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.privacy.test_privacy_calibration import unit
from tests.privacy.test_privacy_profile import FIXED, profile_of

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
        lambda made: made(),
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
]

test_it_is_refused = refusal_test(REFUSALS)
