"""The limit of detection of canaries: it agrees with what they find, and check states it as the verdict does."""

from math import isfinite, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_audit.audits.canaries.canary_detection_limit import CanaryDetectionLimit, canary_detection_limit
from fl_audit.audits.canaries.epsilon_from_scores import certify
from fl_audit.audits.canaries.other_clients_variance import OtherClientsVariance
from fl_audit.audits.page.engineer_part import facts_of
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.privacy.stated_releases import StatedReleases
from fl_audit.runs.config import parse_config
from fl_audit.runs.planned_run_check import check_json, check_plan
from fl_audit.runs.planning import plan_run
from fl_audit.verdict.declared_tests import DETECTION_POWER, FAMILY_LEVEL
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.noise_estimate import breach_ratio
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import number_text
from tests.builders.runs import run_locally
from tests.builders.settings import small_settings

ROUNDS = 40
CLAIM: Claim = StatedReleases("add-remove-client", noise_multiplier=1.0, rounds=ROUNDS).claim(1e-3)


def limit_of(canaries: int, spread: float) -> CanaryDetectionLimit:
    number = ROUNDS * canaries
    return canary_detection_limit((sqrt(number) / 2, number), ROUNDS, OtherClientsVariance(spread, False), CLAIM, 1.0)


@pytest.mark.long
def test_the_breach_that_is_found_in_nine_of_ten_trainings_is_found_so_often() -> None:
    """With 400 trainings, a share of .9 is measured within .06 except once in 10,000 times."""
    canaries = 6
    spread = 0.2
    random = np.random.default_rng(3)
    detections = 0
    needed = limit_of(canaries, spread).rounds_needed
    assert needed is not None
    noise = breach_ratio(derive_guarantee(CLAIM))
    for _ in range(400):
        coins = random.random((needed, canaries)) < 0.5
        scores = coins + np.hypot(noise, spread) * random.standard_normal(coins.shape)
        detections += certify(scores, coins, CLAIM, 1 - FAMILY_LEVEL).is_violated
    assert detections / 400 == pytest.approx(DETECTION_POWER, abs=0.06)


@given(canaries=st.integers(2, 40), spread=st.floats(0, 1))
def test_more_canaries_and_fewer_others_never_make_it_worse(canaries: int, spread: float) -> None:
    fewer = limit_of(canaries, spread)
    doubled_limit = limit_of(2 * canaries, spread / 2)
    assert doubled_limit.limit_of_detection <= fewer.limit_of_detection * (1 + 1e-9)
    if fewer.rounds_needed is not None:
        assert doubled_limit.rounds_needed is not None
        assert doubled_limit.rounds_needed <= fewer.rounds_needed
        assert fewer.conclusive == (fewer.rounds_needed <= ROUNDS)


def test_what_others_send_can_hide_a_breach_from_any_number_of_canaries() -> None:
    ratio = breach_ratio(derive_guarantee(CLAIM))
    spread = sqrt(1 - ratio**2)  # with this, 1.5 times the guarantee shows as what is claimed
    assert limit_of(10**4, 1.01 * spread).rounds_needed is None
    assert limit_of(10**4, 0.9 * spread).rounds_needed is not None


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("clients", "verdict"), [(4, "consistent"), (40, "inconclusive")])
def test_check_says_what_the_verdict_says_afterwards(clients: int, verdict: str, tmp_path: Path) -> None:
    settings = small_settings(
        data={"name": "digits", "clients": clients, "records": 200},
        training={
            "strategy": "dp-fedavg",
            "rounds": ROUNDS,
            "learning-rate": None,
            "local-epochs": 1,
            "local-learning-rate": 0.1,
        },
        privacy={"noise-multiplier": 1.0, "belief": None, "sensitivity": None},
        audit={"kind": "canaries", "canaries": 40, "trials": 1},
    )
    plan = plan_run(parse_config(settings))
    planned = check_plan(plan, with_probe=False)
    assert planned.canaries is not None
    finding = run_locally(plan, tmp_path / "run").find(VerdictFinding)
    assert finding is not None
    assert str(finding.verdict) == verdict
    assert planned.is_conclusive == (verdict == "consistent")
    limits = check_json(planned)["limits"]
    assert (limits["rounds_needed"] is None) == (clients == 40)
    if isfinite(planned.canaries.limit_of_detection):
        assert planned.canaries.limit_of_detection == pytest.approx(finding.judged.limit_of_detection, rel=0.05)


def test_a_bound_above_the_claim_that_chance_explains_is_said_to_be_so(tmp_path: Path) -> None:
    """At 95 % confidence one honest training in 20 shows more than is claimed: with this seed, this one does."""
    settings = small_settings(
        data={"name": "digits", "clients": 4, "records": 60},
        training={
            "strategy": "dp-fedavg",
            "rounds": 20,
            "learning-rate": None,
            "local-epochs": 1,
            "local-learning-rate": 0.1,
        },
        privacy={"noise-multiplier": 1.0, "belief": None, "sensitivity": None},
        audit={"kind": "canaries", "canaries": 10, "trials": 1},
        run={"seed": 12},
    )
    contents = run_locally(plan_run(parse_config(settings)), tmp_path / "run")
    finding = contents.find(VerdictFinding)
    assert finding is not None
    assert finding.judged.epsilon_lower_bound > finding.claimed
    assert finding.verdict is not Verdict.VIOLATED
    note = next(fact.note for fact in facts_of(contents) if fact.name.startswith("Epsilon shown"))
    assert number_text(finding.judged.epsilon_lower_bound_at_level, 3) in note
    assert "1 in 20" in note
