"""Tests of clients that change their noised contributions: they are not accused, and breaches under them are found."""

from pathlib import Path
from typing import Any

import pytest

from fl_audit.verdict.exact_questions import ExactAnswer, ExactQuestion
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict
from tests.validation.client_post_processing import (
    ClientRule,
    by_rule,
    clients_changing,
    of_another_training,
    pushed_by_the_secret,
    rounded_at_random,
    with_half_of_the_sum,
    with_remainder,
    without_some_noise,
)
from tests.validation.opened_breaches import DISTRIBUTED
from tests.validation.post_processing import RULES
from tests.verdict.test_post_processing import LOCAL, step_of, verdict_of

PRIVATE: dict[str, dict[str, Any]] = {
    "training": {"strategy": "dp-sgd-clients", "local-steps": 1, "local-batch": 100, "rounds": 2},
    "privacy": {"adjacency": "add-remove-record", "noise": "inside-training"},
}
NOISES = {"shares": DISTRIBUTED, "local": LOCAL}


def sent_of(finding: VerdictFinding) -> ExactAnswer:
    return step_of(finding, ExactQuestion.CONTRIBUTIONS)


def is_found_in_the_sum(finding: VerdictFinding) -> bool:
    return finding.verdict is Verdict.VIOLATED and not step_of(finding, ExactQuestion.SUM).is_kept


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rule", RULES)
def test_changes_after_a_client_s_noise_are_named_and_not_accused(rule: str, noise: str, tmp_path: Path) -> None:
    """A client may change what has its own claimed noise; a sum of changed shares has another distribution."""
    finding = verdict_of(tmp_path, None, client_app=clients_changing(by_rule(RULES[rule])), **NOISES[noise])
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert sent_of(finding).hides_noise
    assert sent_of(finding).is_open is (noise == "shares")


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rule", RULES)
def test_too_little_noise_is_found_under_every_change_of_a_client(rule: str, noise: str, tmp_path: Path) -> None:
    app = clients_changing(by_rule(RULES[rule]), 0.7)
    assert is_found_in_the_sum(verdict_of(tmp_path, None, client_app=app, **NOISES[noise]))


@pytest.mark.long
def test_changes_after_private_training_are_told_from_too_little_noise(tmp_path: Path) -> None:
    rule = by_rule(RULES["clamped at 4 deviations"])
    apps = {share: clients_changing(rule, share) for share in (1.0, 0.7)}
    honest, broken = (
        verdict_of(tmp_path / str(share), None, trials=8, batch=8, client_app=app, **PRIVATE)
        for share, app in apps.items()
    )
    assert honest.verdict is Verdict.INCONCLUSIVE
    assert sent_of(honest).hides_noise
    assert not sent_of(honest).is_open
    assert is_found_in_the_sum(broken)


@pytest.mark.parametrize("rule", [rounded_at_random, with_remainder], ids=["random", "remainder"])
def test_rules_that_no_replay_repeats_are_named_and_too_little_noise_is_found(rule: ClientRule, tmp_path: Path) -> None:
    honest = verdict_of(tmp_path / "honest", None, client_app=clients_changing(rule), **LOCAL)
    assert honest.verdict is Verdict.INCONCLUSIVE
    assert sent_of(honest).is_open
    broken = verdict_of(tmp_path / "broken", None, client_app=clients_changing(rule, 0.7), **LOCAL)
    assert is_found_in_the_sum(broken)


def test_a_push_by_the_secret_is_found_in_what_a_client_sends(tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, None, client_app=clients_changing(pushed_by_the_secret), **LOCAL)
    assert finding.verdict is Verdict.VIOLATED
    assert not sent_of(finding).is_kept


@pytest.mark.parametrize("rule", [with_half_of_the_sum, without_some_noise], ids=["half of the sum", "less noise"])
def test_what_follows_more_than_the_noised_contribution_is_found(rule: ClientRule, tmp_path: Path) -> None:
    assert is_found_in_the_sum(verdict_of(tmp_path, None, client_app=clients_changing(rule), **LOCAL))


def test_an_app_that_changes_nothing_is_tested_as_ever(tmp_path: Path) -> None:
    app = clients_changing(lambda reply: reply.noised)
    finding = verdict_of(tmp_path / "own", None, client_app=app, **LOCAL)
    ours = verdict_of(tmp_path / "ours", None, **LOCAL)
    assert sent_of(finding) == sent_of(ours)
    assert not sent_of(finding).hides_noise
    assert finding.judged.tests == ours.judged.tests


def test_an_app_with_a_training_of_its_own_is_named_and_not_accused(tmp_path: Path) -> None:
    finding = verdict_of(tmp_path, None, client_app=of_another_training(RULES["bfloat16"]), **LOCAL)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert sent_of(finding).is_open
