import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg
from scipy.stats import norm

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.black_box import AuditedSystem
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit, StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import next_step_words, opening_sentences
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialBudget
from fl_audit.app_audits.claim_audit.trial_results import in_app_result, strategy_result
from fl_audit.verdict.verdict import Verdict, with_doubt


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (2.0, 3), (0.5, 2)])
def test_limits_of_gaussian_noise_lie_on_its_privacy_curve(multiplier: float, rounds: int) -> None:
    # delta(epsilon) of a Gaussian mechanism: Balle & Wang 2018, theorem 5, here written out.
    mu = math.sqrt(rounds) / multiplier
    limits = StatedClaim("add-remove-client", noise_multiplier=multiplier, rounds=rounds).limits
    for epsilon, delta in limits:
        distribution = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert distribution == pytest.approx(delta, rel=1e-6)
    assert limits[-1].epsilon == 0
    assert limits[-1].delta == pytest.approx(2 * norm.cdf(mu / 2) - 1)


def test_a_pair_is_its_only_limit_whatever_the_rounds() -> None:
    assert StatedClaim("replace-client", epsilon=2.0, delta=1e-3, rounds=7).limits == (EpsilonDeltaLimit(2.0, 1e-3),)


def test_success_is_that_of_the_best_rule() -> None:
    gaussian = StatedClaim("add-remove-client", noise_multiplier=0.5)
    assert gaussian.success == pytest.approx(norm.cdf(1.0))
    # Randomised response tells the truth with probability e^epsilon / (1 + e^epsilon).
    pure = StatedClaim("add-remove-client", epsilon=1.5, delta=0.0)
    assert pure.success == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert StatedClaim("add-remove-client", epsilon=0.0, delta=0.2).success == pytest.approx(0.6)


# --- The result of trials, as it is stored: what was not played is never consistent


CLAIM = StatedClaim("add-remove-client", epsilon=1.0, rounds=2)


@pytest.mark.parametrize(
    ("verdict", "rounds", "expected"),
    [
        (Verdict.CONSISTENT, 2, Verdict.CONSISTENT),
        (Verdict.CONSISTENT, None, Verdict.CONSISTENT),
        (Verdict.CONSISTENT, 3, Verdict.INCONCLUSIVE),
        (Verdict.VIOLATED, 3, Verdict.VIOLATED),
    ],
)
def test_rounds_that_no_trial_plays_are_never_consistent(
    verdict: Verdict, rounds: int | None, expected: Verdict
) -> None:
    result = in_app_result("app", ClaimAudit(CLAIM, verdict, (), (), 0), (), rounds, (), ())
    assert result.verdict is expected
    assert (result.scope.rounds, result.scope.played_rounds) == (rounds, 2)
    assert ("2 of its 3 rounds" in result.headline) is (verdict is not expected)


def test_a_strategy_whose_rounds_nobody_named_has_no_claim_about_a_training() -> None:
    audit = ClaimAudit(CLAIM, Verdict.CONSISTENT, (), (), 0)
    assert strategy_result("mine", audit, ()).scope.covers_all_rounds is None
    assert strategy_result("mine", audit, (), rounds=2).scope.covers_all_rounds is True


# --- The advice after an audit of other people's code removes what left it open; it is no general call for more trials


@pytest.mark.parametrize(
    ("verdict", "open_parts", "remedy"),
    [
        (Verdict.CONSISTENT, {}, "whenever its code"),
        (Verdict.CONSISTENT, {"untried": ("removed",)}, "raise --minutes"),
        (Verdict.INCONCLUSIVE, {"unplayed": ("removed",)}, "raise --minutes"),
        (Verdict.INCONCLUSIVE, {"bare_rounds": (6, 7)}, "--rounds 6"),
        (Verdict.INCONCLUSIVE, {"silent": ("removed",)}, "keeps trials from being played"),
        (Verdict.INCONCLUSIVE, {"refused": ("removed",)}, "keeps trials from being played"),
    ],
)
def test_each_cause_has_a_remedy_of_its_own(verdict: Verdict, open_parts: dict[str, Any], remedy: str) -> None:
    claim = StatedClaim(Adjacency.ADD_REMOVE_CLIENT, noise_multiplier=1.0)
    words = next_step_words(ClaimAudit(claim, verdict, (), (), 40, **open_parts))
    assert remedy in words
    assert "Play more" not in words


# --- A verdict agrees with the readings beside it


STRATEGY = """
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg


def wrapped(clients):
    plain = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    return DifferentialPrivacyServerSideFixedClipping(
        plain, noise_multiplier={multiplier}, clipping_norm=1.0, num_sampled_clients=clients)
"""


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("is_doubted", [True, False])
def test_a_doubt_makes_a_consistent_verdict_inconclusive_and_changes_no_other(
    verdict: Verdict, is_doubted: bool
) -> None:
    is_changed = is_doubted and verdict is Verdict.CONSISTENT
    assert with_doubt(verdict, is_doubted) is (Verdict.INCONCLUSIVE if is_changed else verdict)


@pytest.mark.long
@pytest.mark.parametrize(("multiplier", "verdict", "status"), [(1.0, "inconclusive", 0), (0.1, "violated", 4)])
def test_a_quick_audit_with_too_little_noise_is_not_consistent(
    multiplier: float, verdict: str, status: int, tmp_path: Path
) -> None:
    """Epsilon 1 at delta .001 allows mu .39; multiplier 1 has mu 1, of which quick trials see too little."""
    (tmp_path / "quick_strategy.py").write_text(STRATEGY.format(multiplier=multiplier))
    claim = ["--claim-epsilon", "1", "--claim-delta", "1e-3", "--adjacency", "add-remove-client"]
    words = ["strategy", "quick_strategy:wrapped", *claim, "--quick", "--include", "removed"]
    command = [sys.executable, "-m", "fl_audit.cli.main", *words, "--fail-on-violation", "--json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(result.stdout)["verdict"] == verdict, result.stderr
    assert result.returncode == status


# --- Strategies that release nothing in trials, and honest ones that skip some rounds


TWO_ROUNDS = StatedClaim("add-remove-client", noise_multiplier=1.0, rounds=2)


class Waiting(FedAvg):
    """A mean without noise, as soon as there are 25 replies."""

    least = 25

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        return super().aggregate_train(server_round, replies) if len(replies) >= self.least else (None, None)


class Skipping(Waiting):
    """Skips three of ten rounds by lot, and has noise enough in the others."""

    least = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if np.random.random() < 0.3:  # noqa: NPY002  # seeded for every trial
            return None, None
        noisy = {name: _noisy(array.numpy()) for name, array in arrays.items()}
        return ArrayRecord({name: Array(value) for name, value in noisy.items()}), metrics


def _noisy(value: Any) -> Any:
    """Add noise of half again what is claimed, on a grid: low bits would tell more."""
    return np.rint((value + np.random.normal(0, 0.375, value.shape)) * 4096) / 4096  # noqa: NPY002


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "expected_verdict"), [(Waiting, Verdict.INCONCLUSIVE), (Skipping, Verdict.CONSISTENT)]
)
def test_who_releases_nothing_is_not_called_consistent(strategy: type[FedAvg], expected_verdict: Verdict) -> None:
    system = AuditedSystem(lambda: strategy(fraction_evaluate=0.0), is_clipped=False)
    budget = TrialBudget(
        pilot=40, stages=(200,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1, scout=40, passing_scenarios=1
    )
    result = audit_system(system, TWO_ROUNDS, budget=budget, include=["removed"])
    assert result.verdict is expected_verdict
    assert bool(result.silent) is ("released" in opening_sentences(result)) is (strategy is Waiting)
