"""Noise that ends in a round that no trial plays keeps the audit of a strategy from being consistent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, Strategy

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.later_rounds import late_rounds_without_noise
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import opening_sentences
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialBudget
from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.verdict.verdict import Verdict

pytestmark = pytest.mark.usefixtures("small_working_directory")
_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)
_BUDGET = TrialBudget(pilot=40, stages=(400,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1)
_ROUNDS = 12


class _Ending(DifferentialPrivacyServerSideFixedClipping):
    """Flower's wrapper, whose noise is a hundredth after the fifth round."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        noise_multiplier = self.noise_multiplier
        self.noise_multiplier = noise_multiplier if server_round <= 5 else noise_multiplier / 100
        try:
            return super().aggregate_train(server_round, replies)
        finally:
            self.noise_multiplier = noise_multiplier


class _SpentBudget(DifferentialPrivacyServerSideFixedClipping):
    """Flower's wrapper, which keeps its model after the fifth round: its budget is spent."""

    _kept: ArrayRecord | None = None

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if server_round <= 5:
            self._kept = arrays
        return self._kept, metrics


def _wrapped(wrapper: type[Strategy]) -> Callable[[], Strategy]:
    return lambda: wrapper(FedAvg(fraction_evaluate=0.0), 1.0, 1.0, 4)  # type: ignore[call-arg]


def _audited(wrapper: type[Strategy], claim: StatedClaim, later_rounds: int = _ROUNDS) -> ClaimAudit:
    system = AuditedSystem(_wrapped(wrapper))
    return audit_system(system, claim, budget=_BUDGET, include=["removed"], later_rounds=later_rounds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrapper", "bare"),
    [(_Ending, tuple(range(6, 13))), (_SpentBudget, ()), (DifferentialPrivacyServerSideFixedClipping, ())],
)
def test_later_rounds_without_noise_leave_a_claim_open(wrapper: type[Strategy], bare: tuple[int, ...]) -> None:
    result = _audited(wrapper, _CLAIM)
    assert result.bare_rounds == bare
    assert result.verdict is (Verdict.INCONCLUSIVE if bare else Verdict.CONSISTENT)
    assert ("7 rounds from round 6 on" in opening_sentences(result)) is bool(bare)
    assert ("--rounds 6" in opening_sentences(result)) is bool(bare)


@pytest.mark.parametrize(
    ("scales", "released", "late"),
    [
        ([1.0] * 5 + [0.0] * 3, 8, (6, 7, 8)),
        ([1.0, 0.0, 1.0, 0.02], 4, (4,)),  # the second round is played by the trials
        ([1.0] * 8, 8, ()),
        ([1.0] * 5 + [0.0] * 3, 5, ()),  # a strategy whose budget is spent releases nothing, which is no lack of noise
        ([0.0] * 4, 4, ()),  # no noise at all is what the trials see
    ],
)
def test_rounds_without_noise_are_seen_by_a_few_longer_trials(
    scales: list[float], released: int, late: tuple[int, ...]
) -> None:
    """Twenty trials whose replies move the model by one value under D and by another under D'."""
    draws = np.random.default_rng(2)
    present = np.arange(20) % 2 == 0
    steps = np.array(scales)[:, None] * draws.standard_normal((20, len(scales), 3))
    steps += np.where(present, 1.5, 1.0)[:, None, None]
    steps[:, released:] = 0.0
    zeros = np.zeros((len(scales), 3))
    transcripts = [
        Transcript(trial_steps, zeros, zeros, zeros, zeros, contributed=True, has_release=True) for trial_steps in steps
    ]
    assert late_rounds_without_noise(transcripts, present, played=2) == late


def test_rounds_that_a_trial_does_not_reach_are_left_out() -> None:
    zeros = np.zeros((3, 2))
    steps = np.random.default_rng(2).standard_normal((20, 3, 2))
    steps[:, 2] = 1.0
    steps[7, 2] = np.nan
    transcripts = [
        Transcript(trial_steps, zeros, zeros, zeros, zeros, contributed=True, has_release=True) for trial_steps in steps
    ]
    assert late_rounds_without_noise(transcripts, np.ones(20, bool), played=1) == ()
    assert late_rounds_without_noise([*transcripts[:7], *transcripts[8:]], np.ones(19, bool), played=1) == (3,)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [6, _ROUNDS])
def test_rounds_without_noise_that_trials_play_break_the_claim(rounds: int) -> None:
    """The remedy that is offered, --rounds 6, and the whole training."""
    result = _audited(_Ending, replace(_CLAIM, rounds=rounds), later_rounds=0)
    assert result.verdict is Verdict.VIOLATED
    assert result.bare_rounds == ()
