"""The setting in which honest runs were called violated: sensitivities under global scaling that follow the secret."""

import numpy as np
import pytest
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.statistics.shift_bound import gaussian_shift
from fl_audit.verdict.judging import judge
from fl_audit.verdict.verdict import Verdict
from tests.validation.synthetic_noise import OddFeature, play_odd_feature

pytestmark = pytest.mark.long


@pytest.mark.parametrize("mu", [3.0, 5.0])
def test_honest_runs_are_not_violated_where_sensitivities_follow_the_secret(mu: float) -> None:
    """100 honest runs with each mu: at most the binomial bound (1e-4) of 0.1 %, and 5 % for the lower bound."""
    setting = OddFeature(trials=20, mu=mu)
    guarantee = derive_guarantee(
        Claim(
            Adjacency.REPLACE_RECORD,
            gaussian_rounds(setting.noise_multiplier, setting.rounds),
            0.01,
            0.5,
            Accountant.GDP,
        )
    )
    rng = np.random.default_rng(int(mu))
    judgements = [judge(play_odd_feature(rng, setting), guarantee, 0.95) for _ in range(100)]
    assert sum(judgement.verdict is Verdict.VIOLATED for judgement in judgements) <= binom.ppf(1 - 1e-4, 100, 0.001)
    assert sum(judgement.epsilon_lower_bound > guarantee.epsilon for judgement in judgements) <= binom.ppf(
        1 - 1e-4, 100, 0.05
    )


def test_whoever_takes_the_final_log_odds_for_normal_refutes_a_guarantee_that_is_kept() -> None:
    measured = play_odd_feature(np.random.default_rng(1), OddFeature(trials=400, mu=5.0))
    final = measured.increments.sum(axis=1)
    bound = gdp_epsilon(0.01, gaussian_shift(final[measured.members], final[~measured.members], 0.999).low)
    assert bound > gdp_epsilon(0.01, 5.0)
