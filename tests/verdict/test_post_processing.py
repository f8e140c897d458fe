"""Tests of changes after correct noise: they are told apart and never accused, and breaches under them are found."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fl_audit.runs.engine_names import Engine
from fl_audit.runs.replay import replay
from fl_audit.runs.run import HONEST, ClientAppAndStrategy, run_audit
from fl_audit.strategies.noised_sums import _exchanged, _moved_within
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.verdict.exact_questions import ExactAnswer, ExactQuestion
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from tests.validation import post_processing
from tests.validation.engine_runs import breach_plan
from tests.validation.opened_breaches import ADAPTIVE, SAMPLED, LastBitOfRelease
from tests.validation.post_processing import RULES, with_rule

MEMBERSHIP: dict[str, dict[str, Any]] = {
    "audit": {"kind": "membership", "targets": 20}, "privacy": {"adjacency": "add-remove-record"},
}  # fmt: skip
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "models are seen": {"training": {"learning-rate": 100.0}, "audit": {"view": "model"}},
    "correlated noise": {"privacy": {"noise": "tree", "accountant": "pld"}},
    "momentum": {"training": {"optimizer": "momentum"}},
    "sampled": SAMPLED,
    "adaptive": ADAPTIVE,
    "noise that follows D and D'": {"privacy": {"sensitivity": "local"}},
    "membership": MEMBERSHIP,
}


def verdict_of(
    place: Path, strategy: type[TrialBatchStrategy] | None, trials: int = 40, batch: int = 40, **changes: dict[str, Any]
) -> VerdictFinding:
    settings: dict[str, dict[str, Any]] = {
        "training": {"rounds": 5}, "audit": {"trials": trials},
        "run": {"trials-per-batch": batch, "keep-releases": 2},
    }  # fmt: skip
    plan = breach_plan(3, **{name: settings.get(name, {}) | changes.get(name, {}) for name in {*settings, *changes}})
    parties = HONEST if strategy is None else ClientAppAndStrategy(strategy=strategy)
    contents = run_audit(plan, place / "run", Engine.LOCAL, parties=parties, with_report=False)
    found = contents.find(VerdictFinding)
    assert found is not None
    return found


def step_of(found: VerdictFinding) -> ExactAnswer:
    return next(answer for answer in found.judged.exact if answer.question is ExactQuestion.STEP)


@pytest.mark.parametrize("name", RULES)
def test_changes_after_correct_noise_are_not_accused(name: str, tmp_path: Path) -> None:
    found = verdict_of(tmp_path, with_rule(RULES[name]))
    assert found.verdict is not Verdict.VIOLATED
    assert "after the noise" in step_of(found).text


def test_a_step_that_changes_nothing_changes_nothing(tmp_path: Path) -> None:
    runs = {"own": with_rule(lambda noised, sigma: noised), "ours": None}
    found = [verdict_of(tmp_path / name, strategy) for name, strategy in runs.items()]
    assert replace(found[0], seconds_needed=None) == replace(found[1], seconds_needed=None)
    for table in ("trials", "rounds", "residuals"):
        own, ours = (pd.read_parquet(tmp_path / name / "run" / f"{table}.parquet") for name in runs)
        pd.testing.assert_frame_equal(own, ours, check_exact=True)


@pytest.mark.parametrize("name", RULES)
def test_too_little_noise_is_found_under_every_change(name: str, tmp_path: Path) -> None:
    found = verdict_of(tmp_path, with_rule(RULES[name], 0.7))
    assert found.verdict is Verdict.VIOLATED
    assert not step_of(found).is_asked


@pytest.mark.parametrize("strategy", [post_processing.RoundedBySecret, post_processing.TargetPushed, LastBitOfRelease])
def test_changes_that_follow_the_secret_are_found(strategy: type[TrialBatchStrategy], tmp_path: Path) -> None:
    """The last bit of one number is found too, which no test of the noise sees."""
    found = verdict_of(tmp_path, strategy, trials=60, batch=60)
    assert found.verdict is Verdict.VIOLATED
    assert not step_of(found).is_kept


def test_a_rule_of_its_own_for_every_trial_is_not_called_the_secret(tmp_path: Path) -> None:
    found = verdict_of(tmp_path, post_processing.DitheredByTrial, trials=60, batch=60)
    assert step_of(found).is_kept
    assert not step_of(found).is_asked


def test_a_sum_that_is_clamped_before_the_noise_is_no_post_processing(tmp_path: Path) -> None:
    assert not step_of(verdict_of(tmp_path, post_processing.ClampedBefore)).is_asked


def test_what_rounding_leaves_over_may_be_carried_into_the_next_round(tmp_path: Path) -> None:
    found = verdict_of(tmp_path, post_processing.WithState)
    assert found.verdict is not Verdict.VIOLATED
    assert step_of(found).is_asked


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_mechanism_may_be_post_processed(variant: str, tmp_path: Path) -> None:
    """Projection changes the length of noise, and the log-odds of the stored releases are those of the run."""
    found = verdict_of(tmp_path, with_rule(RULES["projected to a length"]), **VARIANTS[variant])
    assert found.verdict is not Verdict.VIOLATED
    assert "after the noise" in step_of(found).text
    if variant != "membership":
        agreement = replay(tmp_path / "run").agreement(tmp_path / "run")
        assert agreement is not None
        assert agreement.agrees


def test_one_secret_in_every_batch_leaves_the_verdict_open(tmp_path: Path) -> None:
    """Trials that are played alone cannot show whether a change depends on the secret."""
    found = verdict_of(tmp_path, with_rule(RULES["projected to a length"]), trials=4, batch=1)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert step_of(found).is_open


def test_exchanged_trials_stand_in_the_places_of_other_secrets() -> None:
    secrets = np.array([[1], [0], [0], [1], [1]])
    order, has_secrets = _exchanged(secrets)
    assert has_secrets
    assert sorted(order.tolist()) == list(range(5))
    assert (secrets[order.numpy()] != secrets).sum() == 4
    assert not _exchanged(np.ones((3, 2), dtype=np.int64))[1]


def test_few_trials_of_a_side_cannot_show_that_a_rule_follows_the_secret() -> None:
    secrets = np.arange(40)[:, None] % 2
    order = _moved_within(secrets)
    assert order is not None
    np.testing.assert_array_equal(secrets[order.numpy()], secrets)
    assert (order.numpy() != np.arange(40)).all()
    assert _moved_within(secrets[:31]) is None
    assert _moved_within(np.hstack([secrets, secrets])) is None
