"""What a trial found, in words and as JSON values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.laboratory.claim import Limit
from fl_audit.laboratory.noise import NoiseReading, noise_reading
from fl_audit.laboratory.trial import Attempt, Refusal, Trial


@dataclass(frozen=True)
class Finding:
    """What fresh games of one kind said.

    Parameters
    ----------
    attempt
        The games.
    words
        What happens in this kind of game.
    mend
        What usually mends such a leak.
    noise
        The reading of the noise, if it looks Gaussian.
    claimed_success
        The largest share of right guesses that the claim allows.
    """

    attempt: Attempt
    words: str
    mend: str
    noise: NoiseReading | None
    claimed_success: float

    @property
    def sentence(self) -> str:
        """What was found, in one or two sentences."""
        attempt = self.attempt
        limit = attempt.lead.limit
        told = (
            f"{attempt.lead.kind} ({self.words}): looking at {attempt.lead.group}, {attempt.right} of "
            f"{attempt.games} games were guessed right ({attempt.right / attempt.games:.1%}; the claim allows "
            f"{self.claimed_success:.1%})."
        )
        if not attempt.is_broken:
            return f"{told} Epsilon is at least {attempt.bound:.2f} at delta {limit.delta:.3g}: no contradiction."
        return (
            f"{told} With {attempt.confidence:.1%} confidence epsilon is at least {attempt.bound:.2f} at delta "
            f"{limit.delta:.3g}; the claim allows {limit.epsilon:.2f} there."
        )


def findings(trial: Trial, words: Mapping[str, str], mends: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what every tried lead came to, the worst first.

    Parameters
    ----------
    trial
        The trial.
    words
        What happens in a kind of game, by its name.
    mends
        What usually mends a leak, by the name of the kind.
    """
    success = trial.claim.success
    return tuple(
        Finding(
            attempt,
            words[attempt.lead.kind],
            mends[attempt.lead.kind],
            noise_reading(trial.claim, attempt),
            success,
        )
        for attempt in trial.attempts
    )


def opening(trial: Trial) -> str:
    """Return what became of the claim, in one sentence."""
    broken = sum(attempt.is_broken for attempt in trial.attempts)
    match trial.verdict:
        case Verdict.VIOLATED:
            ways = "one kind of game" if broken == 1 else f"{broken} kinds of games"
            return f"Violated: {ways} told more than the claim allows ({trial.claim.words})."
        case Verdict.CONSISTENT:
            return (
                f"Consistent: no game told more than the claim allows ({trial.claim.words}). This is no proof: it "
                "covers the games that were played, at their numbers."
            )
        case Verdict.INCONCLUSIVE if not trial.attempts:
            return f"Inconclusive: no kind of game could be played to its end ({trial.claim.words})."
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_PROMISE:
            return (
                f"Inconclusive: even games without a single error could not have refuted so weak a claim "
                f"({trial.claim.words}) with these numbers of games."
            )
        case _:
            assert_never(trial.verdict)


def refusal_words(refusal: Refusal) -> str:
    """Return a sentence about what the mechanism refused."""
    shares = f"{refusal.share_present:.0%} of games with D and {refusal.share_absent:.0%} with D'"
    if refusal.is_allowed:
        return f"{refusal.kind}: refused in {shares}, as it may ({refusal.said})."
    return f"{refusal.kind}: an ordinary input was refused in {shares} ({refusal.said})."


def trial_json(trial: Trial, found: tuple[Finding, ...], limits: tuple[Limit, ...]) -> dict[str, Any]:
    """Return a trial as JSON values, with the keys that the command promises.

    `lower_bound` is the bound of the worst game, at the delta of the part of the claim that it was held against.
    """
    worst = trial.worst
    return {
        "verdict": str(trial.verdict),
        "lower_bound": None if worst is None else _finite(worst.bound),
        "claim": {
            "words": trial.claim.words,
            "adjacency": str(trial.claim.adjacency),
            "rounds": trial.claim.rounds,
            "limits": [{"epsilon": limit.epsilon, "delta": limit.delta} for limit in limits],
        },
        "game": None if worst is None else worst.lead.kind,
        "findings": [_finding_json(finding) for finding in found],
        "refusals": [
            {
                "game": refusal.kind,
                "said": refusal.said,
                "share_present": refusal.share_present,
                "share_absent": refusal.share_absent,
                "allowed": refusal.is_allowed,
            }
            for refusal in trial.refusals
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    attempt, reading = finding.attempt, finding.noise
    return {
        "game": attempt.lead.kind,
        "words": finding.words,
        "told_by": attempt.lead.group,
        "broken": attempt.is_broken,
        "lower_bound": _finite(attempt.bound),
        "claimed_epsilon": attempt.lead.limit.epsilon,
        "delta": attempt.lead.limit.delta,
        "confidence": attempt.confidence,
        "method": str(attempt.lead.method),
        "ceiling": _finite(attempt.ceiling),
        "games": attempt.games,
        "right": attempt.right,
        "claimed_success": finding.claimed_success,
        "transcript": list(attempt.lines),
        "if_gaussian": None
        if reading is None
        else {
            "mu": reading.mu,
            "mu_low": reading.mu_low,
            "claimed_mu": reading.claimed_mu,
            "shift": reading.shift,
            "spread": reading.spread,
            "p_value_normal": reading.p_value,
        },
        "usual_mend": finding.mend,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
