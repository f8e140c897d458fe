"""The guarantee for users as units is that of dp-accounting for the same mechanism."""

import pytest
from dp_accounting import DpEvent, GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import gaussian_rounds

ROUNDS, NOISE, DELTA = 12, 1.3, 1e-4


@pytest.mark.long
@pytest.mark.parametrize(("adjacency", "relation", "rate"), [
    (Adjacency.ADD_REMOVE_USER, NeighboringRelation.ADD_OR_REMOVE_ONE, 1.0),
    (Adjacency.ADD_REMOVE_USER, NeighboringRelation.ADD_OR_REMOVE_ONE, 0.1),
    (Adjacency.REPLACE_USER, NeighboringRelation.REPLACE_ONE, 1.0),
])  # fmt: skip
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
