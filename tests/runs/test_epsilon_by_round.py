"""Epsilon after every round is exact for each noise, and training ends before the round that exceeds a budget."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.mechanism_noise import AccountedRounds
from fl_audit.mechanisms.noises.registry import names_of_noises
from fl_audit.mechanisms.participations.everybody import Everybody
from fl_audit.mechanisms.participations.rotating_cohorts import RotatingCohorts
from fl_audit.privacy.accounting_enums import StrategyMatrixKind
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.privacy.strategy_matrices import inverse, strategy_matrix
from fl_audit.runs.epsilon_by_round import rounds_within
from tests.builders.refusals import assert_refused
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings

ROUNDS = 6
NOISES: dict[str, dict[str, dict[str, Any]]] = {
    **{name: {} for name in names_of_noises()},
    "inside-training": {
        "training": {"strategy": "dp-sgd-clients", "local-batch": 10, "learning-rate": None},
        "privacy": {"adjacency": "add-remove-record", "accountant": "pld"},
        "audit": {"insider": False},
    },
}


def plan_of(noise: str, **overrides: dict[str, Any]) -> RunPlan:
    """Return the plan of six rounds with a noise multiplier of 2."""
    privacy = {"belief": None, "noise-multiplier": 2.0, "sensitivity": None, "noise": noise, "accountant": None}
    sections = {"training": {"rounds": ROUNDS}, "privacy": privacy}
    return small_plan(**changed_settings(changed_settings(sections, NOISES[noise]), overrides))


@pytest.mark.parametrize("noise", NOISES)
def test_epsilon_grows_to_that_of_the_guarantee(noise: str) -> None:
    plan = plan_of(noise)
    spent = [plan.epsilon_after(rounds) for rounds in range(ROUNDS + 1)]
    assert spent[0] == 0
    assert spent[-1] == plan.stated_guarantee.epsilon
    assert all(np.diff(spent) >= 0)
    if noise in ("central", "local", "distributed"):
        z = plan.effective_noise_multiplier
        delta = plan.stated_guarantee.delta
        assert spent[1:] == pytest.approx([gdp_epsilon(delta, np.sqrt(k) / z) for k in range(1, ROUNDS + 1)])


def test_sampled_rounds_compose() -> None:
    """The first rounds of a sampled training spend what a training of as many rounds spends."""
    sampled = {"sampling-rate": 0.3}
    long = plan_of("central", training=sampled, privacy={"accountant": "pld"})
    short = plan_of("central", training=sampled | {"rounds": 2}, privacy={"accountant": "pld"})
    assert long.epsilon_after(2) == short.stated_guarantee.epsilon < long.stated_guarantee.epsilon


@pytest.mark.parametrize("separation", [1, 3])
@pytest.mark.parametrize(("kind", "bands"), [(StrategyMatrixKind.TREE, 1), (StrategyMatrixKind.BANDED, 3)])
def test_the_first_rounds_of_correlated_noise_are_accounted_as_their_marginal_distribution(
    kind: StrategyMatrixKind, bands: int, separation: int
) -> None:
    """The mu of the first t releases follows from the covariance of their noise, for the worst pattern of rounds."""
    rounds, z = 7, 1.5
    noise = CorrelatedGaussian(z, kind, rounds, bands)
    everybody = Everybody()
    participation = everybody if separation == 1 else RotatingCohorts(size=1, clients=separation)
    covariance = inverse(strategy_matrix(kind, rounds, bands))
    covariance = z**2 * covariance @ covariance.T
    for count in range(1, rounds + 1):
        precision = np.linalg.inv(covariance[:count, :count])
        patterns = [
            np.isin(np.arange(count), chosen).astype(float)
            for size in range(1, count + 1)
            for chosen in combinations(range(count), size)
            if all(later - earlier >= separation for earlier, later in pairwise(chosen))
        ]
        # Contributions may point anywhere: entries of the Gram matrix count by their size.
        largest = max(pattern @ np.abs(precision) @ pattern for pattern in patterns)
        ((event,),) = noise.events_of_each(AccountedRounds(count, z, participation, seen=False))
        assert 1 / event.noise_multiplier**2 == pytest.approx(largest)
    named = "accepted are 1 to 7"
    assert_refused(named, lambda: noise.events_of_each(AccountedRounds(rounds + 1, z, participation, seen=False)))


@given(st.floats(1, 100), st.integers(1, 60))
def test_the_budget_is_kept_and_used_up(budget: float, rounds: int) -> None:
    allowed_rounds = rounds_within(budget, rounds, lambda number: number**1.5)
    assert 1 <= allowed_rounds <= rounds
    assert allowed_rounds**1.5 <= budget
    assert allowed_rounds == rounds or (allowed_rounds + 1) ** 1.5 > budget


@pytest.mark.parametrize("noise", ["central", "banded"])
def test_training_ends_before_the_round_that_exceeds_the_budget(noise: str) -> None:
    whole = plan_of(noise)
    budget = whole.epsilon_after(4) * 1.001
    plan = plan_of(noise, privacy={"stop-at-epsilon": budget})
    assert plan.federation.rounds < ROUNDS
    assert plan.stated_guarantee.epsilon <= budget
    assert plan.federation.mechanism.noise_multiplier == whole.federation.mechanism.noise_multiplier
    if noise == "central":
        assert plan.federation.rounds == 4
    named = "first round alone spends"
    assert_refused(named, lambda: plan_of(noise, privacy={"stop-at-epsilon": whole.epsilon_after(1) / 2}))


def test_the_table_of_releases_has_the_epsilon_of_each(tmp_path: Path) -> None:
    plan = plan_of("central", audit={"trials": 2})
    plan = plan_of("central", audit={"trials": 2}, privacy={"stop-at-epsilon": plan.epsilon_after(3)})
    contents = run_locally(plan, tmp_path / "run")
    expected = [plan.epsilon_after(number) for number in range(4)]
    assert contents.releases["epsilon"].tolist() == expected * 2
    again = run_locally(plan, tmp_path / "run", resume=True)
    assert again.summary["guarantee"]["epsilon"] == expected[-1]
