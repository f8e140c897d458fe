"""Trials whose truth is known, made up in numpy: no strategy is played."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_procedure import audit_claim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialBudget
from fl_audit.app_audits.claim_audit.transcript import Transcripts

Bits = NDArray[np.bool_]
Make = Callable[[Bits, np.random.Generator], Transcripts]
TENSORS = (("weight", slice(0, 2)), ("bias", slice(2, 3)))
SMALL = TrialBudget(pilot=100, stages=(400,), shares=(1.0,), fewest_tests=1, most_tests=1, deep=1)


def trials_of(
    steps: NDArray[np.float64],
    numbers: dict[str, NDArray[np.float64]] | None = None,
    refused: Bits | None = None,
    own_shares: NDArray[np.float64] | None = None,
) -> Transcripts:
    """Return trials with these steps (trials, rounds, 3) and numbers (trials,), whose difference is the first axis."""
    direction = np.zeros_like(steps)
    direction[:, :, 0] = 1.0
    names = tuple(numbers or {})
    columns = np.stack([numbers[name] for name in names], axis=1) if numbers else np.zeros((len(steps), 0))
    zeros = np.zeros_like(steps)
    refused = np.zeros(len(steps), dtype=bool) if refused is None else refused
    own_shares = zeros if own_shares is None else own_shares
    every = np.ones(len(steps), dtype=bool)
    return Transcripts(steps, steps, direction, zeros, own_shares, every, every, columns, names, refused, TENSORS)


def gaussian(mu: float, rounds: int = 1) -> Make:
    """Return trials of a Gaussian shift by mu spreads over all rounds together, on a grid: low bits would tell more."""

    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        steps = random.standard_normal((len(bits), rounds, 3))
        steps[:, :, 0] += bits[:, None] * mu / np.sqrt(rounds)
        return trials_of(np.rint(steps * 4096) / 4096)

    return make


def result_of(
    claim: StatedClaim, make: Make, seed: int = 0, budget: TrialBudget = SMALL, malformed: frozenset[str] = frozenset()
) -> ClaimAudit:
    """Put a claim on trial with trials of one kind."""
    random = np.random.default_rng(seed)

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, Bits]:
        bits = random.random(count) < 0.5
        return make(bits, random), bits

    return audit_claim(claim, ["kind"], play, malformed, lambda _: "it refused", budget)
