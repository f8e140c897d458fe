"""The power of canaries behind the updates of others, against trainings whose truth is known."""

import numpy as np
import pytest
from scipy.stats import binom

from fl_audit.array_types import Floats
from fl_audit.audits.canaries.other_clients_variance import OtherClientsVariance, other_clients_variance, squared_spread
from fl_audit.statistics.shift_bound import detectable_shift, gaussian_shift, root_sum_of_squared_deviations
from fl_audit.verdict.declared_tests import FAMILY_LEVEL

pytestmark = pytest.mark.long

CANARIES = 4
DIRECTIONS = 24
ROUNDS = 40
SIZE = 400
OTHERS = 12
TRAININGS = 200


def training(added: float, other_clients: int, number: int) -> tuple[Floats, Floats]:
    """Return scores of canaries that are in, and of all that are out, where all others send one and the same update."""
    draw = np.random.default_rng((5, number))
    along = draw.standard_normal((ROUNDS, DIRECTIONS, SIZE))
    along /= np.linalg.norm(along, axis=-1, keepdims=True)
    coins = np.zeros((ROUNDS, DIRECTIONS))
    coins[:, :CANARIES] = draw.random((ROUNDS, CANARIES)) < 0.5
    sums = np.einsum("rk,rkd->rd", coins, along) + added * draw.standard_normal((ROUNDS, SIZE))
    sums[:, 0] += other_clients
    scores = np.einsum("rkd,rd->rk", along, sums)
    return scores[coins == 1], scores[coins == 0]


def share_found(added: float, other_clients: int) -> float:
    detections = [
        gaussian_shift(*training(added, other_clients, number), 1 - FAMILY_LEVEL).low > 1 for number in range(TRAININGS)
    ]
    return float(np.mean(detections))


def test_the_limit_is_found_in_nine_of_ten_trainings_also_behind_others() -> None:
    """Binomial bounds at 1e-4 on either side; what was the limit without others is hardly found behind them."""
    half = ROUNDS * CANARIES // 2
    mu = detectable_shift(half, ROUNDS * DIRECTIONS - half, 1.0, FAMILY_LEVEL)
    hidden = OtherClientsVariance(np.sqrt(squared_spread(OTHERS, CANARIES, SIZE, is_replaced=False)), is_seen=False)
    limit = hidden.true_mu(mu)
    assert 1.5 < mu < 1.6 < 3.5 < limit
    low, high = binom.ppf([1e-4, 1 - 1e-4], TRAININGS, 0.9) / TRAININGS
    assert low <= share_found(1 / limit, OTHERS) <= high
    assert low <= share_found(1 / mu, 0) <= high
    assert share_found(1 / mu, OTHERS) < 0.25
    assert hidden.measured_mu(limit) == pytest.approx(mu, rel=1e-12)


def test_without_others_nothing_is_diluted_and_where_they_spread_too_far_nothing_is_found() -> None:
    clear = OtherClientsVariance(0.0, is_seen=False)
    assert clear.true_mu(1.4) == pytest.approx(1.4, rel=1e-12)
    assert clear.measured_mu(1.4) == pytest.approx(1.4, rel=1e-12)
    far = OtherClientsVariance(np.sqrt(squared_spread(20, CANARIES, SIZE, is_replaced=False)), is_seen=False)
    assert far.true_mu(1.4) == np.inf
    assert share_found(0.0, 20) < 0.01
    # A client that is replaced moves the sum by twice as much, and every canary is sent.
    assert squared_spread(20, 4, 400, is_replaced=True) == pytest.approx((20**2 + 4) / 400 / 4)


@pytest.mark.parametrize(
    ("other_clients", "added", "minimum_count", "maximum_count"), [(0, 1.0, 0, 4), (8, 1.0, 0, 4), (80, 0.0, 195, 200)]
)
def test_canaries_that_stand_out_less_than_the_noise_and_others_explain_are_seen(
    other_clients: int, added: float, minimum_count: int, maximum_count: int
) -> None:
    """In at most 1 of 1,000 honest trainings: 5 and more of 200 are an accident of 3 in 1,000,000."""
    alarm_count = 0
    squared = squared_spread(other_clients if added else 0, CANARIES, SIZE, is_replaced=False)
    for number in range(TRAININGS):
        member, out = training(added, other_clients, number)
        estimate = gaussian_shift(member, out, 0.95)
        indicators = np.append(np.ones(member.size), np.zeros(out.size))
        sizes = root_sum_of_squared_deviations(indicators), indicators.size - 2
        variance_estimate = other_clients_variance(squared, 1.0, estimate.shift, estimate.low, sizes)
        alarm_count += variance_estimate.is_seen
        assert variance_estimate.is_seen or variance_estimate.spread == np.sqrt(squared)
        if variance_estimate.is_seen and estimate.low:
            assert variance_estimate.measured_mu(1.0) == pytest.approx(estimate.low, rel=1e-9)
    assert minimum_count <= alarm_count <= maximum_count
