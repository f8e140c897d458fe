"""Noise multipliers over the sensitivity and over the clipping norm, as dp-accounting quotes them."""

import json
import re

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

import fl_audit as fa
from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.privacy.stated_releases import StatedReleases, terms_of_json

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
    own = fa.account(noise, rounds, 1e-5, adjacency=adjacency, sampling_rate=rate, accountant="pld")
    assert own.noise_over_clipping_norm is not None
    assert own.epsilon == pytest.approx(theirs(own.noise_over_clipping_norm, rounds, rate, adjacency), rel=1e-3)


def test_a_multiplier_that_is_copied_is_not_understated() -> None:
    """2.6 times: z = 1, q = .01, 100 rounds, delta 1e-5, a record is replaced."""
    how = {"adjacency": "replace-record", "sampling_rate": 0.01}
    own, copied = (fa.account(1.0, 100, 1e-5, noise_over=over, **how).epsilon for over in MultiplierReference)
    assert (own, copied) == (pytest.approx(0.344, abs=5e-4), pytest.approx(0.895, abs=5e-4))


def test_what_is_calibrated_is_told_in_both_readings() -> None:
    kept = fa.calibrate(30, 1e-3, adjacency="replace-record", belief=0.9)
    assert kept.noise_over_clipping_norm == 2 * (kept.noise_multiplier or 0.0)
    again = fa.account(kept.noise_over_clipping_norm, 30, 1e-3, adjacency="replace-record", noise_over="clipping-norm")
    assert again.belief_bound == pytest.approx(0.9, rel=1e-9)
    for said in (repr(kept), str(kept), kept._repr_html_()):
        assert "sensitivity (2 x clipping norm" in said
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
