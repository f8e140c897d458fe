"""The text of a claim, and its accounting, which needs no learning."""

import json
import math
import re
from importlib.metadata import version
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

import fl_audit as fa
import fl_audit.privacy
from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import MultiplierReference, NoiseDistribution
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import (
    GaussianRelease,
    LaplaceRelease,
    RandomizedResponse,
    ReleaseEvent,
    SampledGaussianRelease,
    gaussian_rounds,
)
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.stated_releases import StatedReleases, terms_of_json
from tests.builders.refusals import assert_refused


def claim_of(*events: ReleaseEvent, adjacency: Adjacency = Adjacency.REPLACE_RECORD) -> Claim:
    return Claim(adjacency, events, 1e-5, 0.5, Accountant.PLD)


@pytest.mark.parametrize(
    ("adjacency", "epsilon"),
    [
        (Adjacency.ADD_REMOVE_RECORD, 0.718),
        (Adjacency.REPLACE_RECORD, 0.344),
        (Adjacency.ADD_REMOVE_CLIENT, 0.718),
        (Adjacency.REPLACE_CLIENT, 0.344),
    ],
)
def test_the_adjacency_decides_what_sampling_gains(adjacency: Adjacency, epsilon: float) -> None:
    guarantee = derive_guarantee(claim_of(*gaussian_rounds(1.0, 100, 0.01), adjacency=adjacency))
    assert guarantee.epsilon == pytest.approx(epsilon, abs=5e-4)
    assert guarantee.adjacency is adjacency


def test_noise_is_that_of_the_gaussian_events() -> None:
    events = (SampledGaussianRelease(2.0, 0.1, 30), GaussianRelease(0.5, 4.0, 30), RandomizedResponse(0.2, 4))
    claim = claim_of(*events)
    assert (claim.noise_multiplier, claim.rounds, claim.sampling_rate) == (2.0, 30, 0.1)
    louder = claim.with_noise(3.0)
    assert louder.events == (SampledGaussianRelease(6.0, 0.1, 30), GaussianRelease(0.5, 12.0, 30), events[2])
    assert [event.count for event in claim.with_rounds(60).events] == [60, 60, 8]
    assert claim_of(LaplaceRelease(1.0, 2.0)).noise_multiplier is None
    assert_refused("noise multiplier is", claim.with_noise, 0.0)
    assert_refused("count is 0", claim.with_rounds, 0)


def test_the_distribution_is_that_of_the_noise_that_is_scaled() -> None:
    gaussian = GaussianRelease(1.0, 4.0)
    laplace = LaplaceRelease(1.0, 2.0)
    response = RandomizedResponse(0.2)
    expected = {
        (gaussian,): NoiseDistribution.GAUSSIAN,
        (laplace, gaussian): NoiseDistribution.GAUSSIAN,
        (response, laplace): NoiseDistribution.LAPLACE,
        (response,): NoiseDistribution.NONE,
    }
    assert {events: claim_of(*events).distribution for events in expected} == expected


def test_participation_and_the_insider_who_sees_it() -> None:
    sampled = claim_of(SampledGaussianRelease(2.0, 0.1, 30), SampledGaussianRelease(1.0, 0.2, 5))
    assert sampled.participation == pytest.approx(1 - 0.9**30 * 0.8**5)
    assert sampled.full_participation_mu == pytest.approx(math.sqrt(30 / 4 + 5))
    assert claim_of(SampledGaussianRelease(2.0, 0.1), GaussianRelease(1.0, 1.0)).participation == 1
    assert claim_of(LaplaceRelease(1.0, 1.0)).full_participation_mu == math.inf


def test_the_belief_bound_follows_who_chooses_the_sensitivities() -> None:
    events = gaussian_rounds(9.097, 30)
    guarantees = {
        kind: derive_guarantee(Claim(Adjacency.REPLACE_RECORD, events, 0.001, 0.5, Accountant.GDP, kind))
        for kind in SignalToNoiseAdaptivity
    }
    adaptive = guarantees[SignalToNoiseAdaptivity.ADAPTIVE]
    fixed = guarantees[SignalToNoiseAdaptivity.FIXED]
    assert adaptive.belief_bound == pytest.approx(0.9, abs=1e-4)
    assert fixed.belief_bound == fixed.belief_bound_fixed == adaptive.belief_bound_fixed < adaptive.belief_bound
    assert adaptive.epsilon == fixed.epsilon
    unnamed = derive_guarantee(Claim(Adjacency.REPLACE_RECORD, events, 0.001, 0.5, Accountant.GDP))
    assert unnamed == adaptive


def test_belief_bounds_follow_the_prior() -> None:
    def log_odds(prior: float, accountant: Accountant) -> float:
        events = gaussian_rounds(2.0, 10, 1.0 if accountant is Accountant.GDP else 0.3)
        bound = derive_guarantee(Claim(Adjacency.REPLACE_RECORD, events, 0.01, prior, accountant)).belief_bound
        return math.log(bound / (1 - bound)) - math.log(prior / (1 - prior))

    for accountant in (Accountant.GDP, Accountant.PLD):
        assert log_odds(0.1, accountant) == pytest.approx(log_odds(0.5, accountant), rel=1e-9)


def test_a_claim_is_the_same_however_its_parts_are_named() -> None:
    claim = fa.Claim("replace-record", list(fa.gaussian_rounds(9.0, 30)), 0.001, accountant="gdp")
    assert claim == Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(9.0, 30), 0.001, 0.5, Accountant.GDP)
    assert claim == fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30), 0.001)
    assert fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30, 0.1), 0.001).accountant is Accountant.PLD
    assert fa.Claim("replace-record", [fa.LaplaceRelease(1.0, 2.0)], 0.001).accountant is Accountant.PLD


@pytest.mark.parametrize(
    ("wrong", "expected_message"),
    [
        ({"adjacency": "replace"}, "adjacency is 'replace': .* add-remove-record, replace-record"),
        ({"adjacency": None}, "adjacency is None: .* add-remove-record"),
        ({"accountant": "moments"}, "accountant is 'moments': .* rdp-classic, rdp, pld and gdp"),
        ({"sensitivities": "local"}, "sensitivities is 'local': .* fixed and adaptive"),
        ({"delta": "small"}, "delta is 'small': .*above 0 and below 1"),
        ({"delta": 0}, "delta is 0: accepted"),
        ({"prior": 1}, "prior is 1: accepted"),
        ({"events": (1,)}, "event is 1: .* GaussianRelease"),
        ({"events": ()}, "events are empty"),
    ],
)
def test_a_wrong_claim_is_refused_when_it_is_made(wrong: dict[str, Any], expected_message: str) -> None:
    fields = {"adjacency": "replace-record", "events": fa.gaussian_rounds(1.0, 3), "delta": 0.1} | wrong
    assert_refused(f"^{expected_message}", fa.Claim, **fields)


def test_claims_and_guarantees_are_one_readable_line() -> None:
    claim = fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30), 0.001)
    patterns = (r"30 x Gaussian .*sensitivity 1, sigma 9\)", "replace-record", r"delta 0\.001", r"prior 0\.5", "gdp")
    assert re.fullmatch(", .*".join(patterns), str(claim))
    assert claim._repr_html_() == f"<p>{claim}</p>"
    assert re.match(r"epsilon 1\.713 .*delta 0\.001 .*gdp, .*replace-record, noise", str(fa.derive_guarantee(claim)))
    assert "\n" not in str(fa.derive_guarantee(claim))
    assert fa.__version__ == version("fl-audit")


# --- Noise multipliers over the sensitivity and over the clipping norm, as dp-accounting quotes them


RELATIONS = {
    Adjacency.REPLACE_RECORD: NeighboringRelation.REPLACE_ONE,
    Adjacency.ADD_REMOVE_RECORD: NeighboringRelation.ADD_OR_REMOVE_ONE,
}


def theirs(over_clipping_norm: float, rounds: int, rate: float, adjacency: Adjacency) -> float:
    """Return epsilon at delta 1e-5 by dp-accounting."""
    release = GaussianDpEvent(over_clipping_norm)
    event = release if rate == 1 else PoissonSampledDpEvent(rate, release)
    accountant = PLDAccountant(neighboring_relation=RELATIONS[adjacency])
    return float(accountant.compose(SelfComposedDpEvent(event, rounds)).get_epsilon(1e-5))


@pytest.mark.long
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(("noise", "rounds", "rate"), [(1.0, 100, 0.01), (5.0, 10, 1.0)])
def test_both_readings_are_those_of_dp_accounting(noise: float, rounds: int, rate: float, adjacency: Adjacency) -> None:
    copied = fa.account(
        noise, rounds, 1e-5, adjacency=adjacency, sampling_rate=rate, accountant="pld", noise_over="clipping-norm"
    )
    assert copied.epsilon == pytest.approx(theirs(noise, rounds, rate, adjacency), rel=1e-3)
    assert copied.noise_over_clipping_norm == pytest.approx(noise)
    own_reading = fa.account(noise, rounds, 1e-5, adjacency=adjacency, sampling_rate=rate, accountant="pld")
    assert own_reading.noise_over_clipping_norm is not None
    assert own_reading.epsilon == pytest.approx(
        theirs(own_reading.noise_over_clipping_norm, rounds, rate, adjacency), rel=1e-3
    )


def test_a_multiplier_that_is_copied_is_not_understated() -> None:
    """2.6 times: z = 1, q = .01, 100 rounds, delta 1e-5, a record is replaced."""
    options = {"adjacency": "replace-record", "sampling_rate": 0.01}
    own_epsilon, copied = (
        fa.account(1.0, 100, 1e-5, noise_over=over, **options).epsilon for over in MultiplierReference
    )
    assert (own_epsilon, copied) == (pytest.approx(0.344, abs=5e-4), pytest.approx(0.895, abs=5e-4))


def test_what_is_calibrated_is_told_in_both_readings() -> None:
    guarantee = fa.calibrate(30, 1e-3, adjacency="replace-record", belief=0.9)
    assert guarantee.noise_over_clipping_norm == 2 * (guarantee.noise_multiplier or 0.0)
    again = fa.account(
        guarantee.noise_over_clipping_norm, 30, 1e-3, adjacency="replace-record", noise_over="clipping-norm"
    )
    assert again.belief_bound == pytest.approx(0.9, rel=1e-9)
    for text in (repr(guarantee), str(guarantee), guarantee._repr_html_()):
        assert "sensitivity (2 x clipping norm" in text
    assert "sensitivity (the clipping norm)" in repr(fa.account(1, 1, 0.1, adjacency="add-remove-client"))


def test_terms_and_claims_of_others_keep_noise_over_the_sensitivity() -> None:
    terms = StatedReleases("replace-client", 1.0, 3, noise_over="clipping-norm")
    assert terms == StatedReleases("replace-client", 0.5, 3)
    assert terms_of_json(json.loads(json.dumps(terms.to_json())), "here") == terms
    claim = StatedClaim("replace-client", noise_multiplier=1.0, noise_over="clipping-norm")
    assert claim == StatedClaim("replace-client", noise_multiplier=0.5)
    assert claim.mu == 2.0
    assert re.search(r"multiplier 0\.5 .*twice the clipping norm", claim.words)
    plain = StatedClaim("add-remove-client", noise_multiplier=1.0, noise_over="clipping-norm")
    assert plain == StatedClaim("add-remove-client", noise_multiplier=1.0)
