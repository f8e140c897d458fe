"""The text of a claim, and its accounting, which needs no learning."""

import math
import re
from importlib.metadata import version
from typing import Any

import pytest

import fl_audit as fa
import fl_audit.privacy
from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import NoiseDistribution
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
    with pytest.raises(InputError, match="noise multiplier is"):
        claim.with_noise(0.0)
    with pytest.raises(InputError, match="count is 0"):
        claim.with_rounds(0)


def test_the_distribution_is_that_of_the_noise_that_is_scaled() -> None:
    gaussian, laplace, response = GaussianRelease(1.0, 4.0), LaplaceRelease(1.0, 2.0), RandomizedResponse(0.2)
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
    adaptive, fixed = guarantees[SignalToNoiseAdaptivity.ADAPTIVE], guarantees[SignalToNoiseAdaptivity.FIXED]
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


def test_wrong_claims_are_refused() -> None:
    for change, said in (
        ({"events": ()}, "events are empty"),
        ({"delta": 0.0}, "delta is 0"),
        ({"prior": 1}, "prior is 1"),
    ):
        named = {"events": gaussian_rounds(1.0, 3), "delta": 0.1, "prior": 0.5} | change
        with pytest.raises(InputError, match=said):
            Claim(Adjacency.REPLACE_RECORD, accountant=Accountant.GDP, **named)  # type: ignore[arg-type]


def test_a_claim_is_the_same_however_its_parts_are_named() -> None:
    named = fa.Claim("replace-record", list(fa.gaussian_rounds(9.0, 30)), 0.001, accountant="gdp")
    assert named == Claim(Adjacency.REPLACE_RECORD, gaussian_rounds(9.0, 30), 0.001, 0.5, Accountant.GDP)
    assert named == fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30), 0.001)
    assert fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30, 0.1), 0.001).accountant is Accountant.PLD
    assert fa.Claim("replace-record", [fa.LaplaceRelease(1.0, 2.0)], 0.001).accountant is Accountant.PLD


@pytest.mark.parametrize(
    ("wrong", "said"),
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
def test_a_wrong_claim_is_refused_when_it_is_made(wrong: dict[str, Any], said: str) -> None:
    parts = {"adjacency": "replace-record", "events": fa.gaussian_rounds(1.0, 3), "delta": 0.1} | wrong
    with pytest.raises(fa.InputError) as caught:
        fa.Claim(**parts)
    assert re.match(said, str(caught.value))
    assert "\n" not in str(caught.value)


def test_claims_and_guarantees_are_one_readable_line() -> None:
    claim = fa.Claim("replace-record", fa.gaussian_rounds(9.0, 30), 0.001)
    parts = (r"30 x Gaussian .*sensitivity 1, sigma 9\)", "replace-record", r"delta 0\.001", r"prior 0\.5", "gdp")
    assert re.fullmatch(", .*".join(parts), str(claim))
    assert claim._repr_html_() == f"<p>{claim}</p>"
    assert re.match(r"epsilon 1\.713 .*delta 0\.001 .*gdp, .*replace-record, noise", str(fa.derive_guarantee(claim)))
    assert "\n" not in str(fa.derive_guarantee(claim))
    assert fa.__version__ == version("fl-audit")
