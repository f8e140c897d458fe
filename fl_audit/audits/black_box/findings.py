"""What a trial found, in words and as JSON values, and a reading of noise that looks Gaussian, marked as such."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, assert_never

import numpy as np
from scipy.stats import normaltest

from fl_audit.arrays import Floats, finite
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.leads import least_shift
from fl_audit.audits.black_box.trial import Attempt, Refusal, Trial, Unrefuted
from fl_audit.statistics.levels import READING_LEVEL
from fl_audit.statistics.readings import Read, read
from fl_audit.statistics.shift import ShiftEstimate, gaussian_shift
from fl_audit.verdict.verdict import Verdict

TOO_FEW = "too few games to refute the claim"  # a reason for which nothing is known of a kind of game
_MOST_KINDS = 3  # kinds of games that are named where many refused alike; the others are counted
_NORMAL_LEVEL = 0.01  # a residual whose test of normality has a smaller p-value gets no reading


@dataclass(frozen=True)
class NoiseReading:
    """What was released along the differing contribution, if its noise is Gaussian."""

    shift: float  # by how much D is ahead of D', in the model's units
    spread: float  # standard deviation of the noise there
    mu: float  # shift over spread, the parameter of a Gaussian mechanism of this strength
    mu_low: float  # its lower bound
    confidence: float  # of the bound, if the noise is Gaussian
    claimed_mu: float  # the largest shift over spread that the claim leaves room for, had the noise been Gaussian
    p_value: float  # of the test of normality
    # The lower bound at the level of readings: whoever tells no more than is claimed passes the claim so rarely.
    mu_low_at_level: float = 0.0

    @property
    def reading(self) -> Read:
        """How it stands to the claim."""
        return read((self.mu_low, math.inf), self.claimed_mu, wide=lambda _: (self.mu_low_at_level, math.inf), sides=1)

    @property
    def ratio(self) -> float:
        """How many times too little noise there is: 1 or less where there is enough."""
        return self.mu / max(self.claimed_mu, 1e-300)

    @property
    def words(self) -> str:
        """The reading in one sentence, with what it rests on."""
        return (
            f"If the noise is Gaussian (its test has p = {self.p_value:.2g}): shift {self.shift:.3g} over noise of "
            f"{self.spread:.3g} is mu {self.mu:.2f}, at least {self.mu_low:.2f} with {self.confidence:.0%} confidence; "
            f"the claim allows {self.claimed_mu:.2f}: {self.reading.reading}."
        )


@dataclass(frozen=True)
class Finding:
    """What fresh games of one kind said."""

    attempt: Attempt  # the games
    words: str  # what happens in this kind of game
    usual_mend: str  # what usually mends what this kind of game shows, where nothing is known of the cause
    noise: NoiseReading | None  # the reading of the noise, if it looks Gaussian
    claimed_success: float  # the largest share of right guesses that the claim allows
    proviso: str = ""  # on what it depends whether such an update can come, as a sentence; empty for an ordinary one

    @property
    def sentence(self) -> str:
        """What was found, in one or two sentences."""
        attempt, said = self.attempt, _games_words(self.attempt)
        told = (
            f"{attempt.lead.kind} ({self.words}): looking at {attempt.lead.group}, {attempt.right} of "
            f"{attempt.games} games were guessed right ({attempt.right / attempt.games:.1%}; the claim allows "
            f"{self.claimed_success:.1%}). {said[:1].upper()}{said[1:]}"
        ).strip()
        if not attempt.is_broken:
            return f"{told} {self.shown[0].upper()}{self.shown[1:]}: no contradiction."
        return f"{told} With {attempt.confidence:.1%} confidence {self.shown}; {self.allowed}."

    @property
    def shown(self) -> str:
        """What is certain of the games."""
        limit = self.attempt.lead.limit
        if limit.epsilon > 0:
            return f"epsilon is at least {self.attempt.bound:.2f} at delta {limit.delta:.3g}"
        if self.attempt.bound > 0:
            return f"more than {self.claimed_success:.1%} of games can be told"
        return f"no more than {self.claimed_success:.1%} of games were told for certain"

    @property
    def allowed(self) -> str:
        """What the claim allows in the place of that."""
        epsilon = self.attempt.lead.limit.epsilon
        return f"the claim allows {epsilon:.2f} there" if epsilon > 0 else "the claim allows no more than that"

    @property
    def cause(self) -> str:
        """Why games were told, in a sentence or two."""
        said, noise = [self.attempt.cause.words], self.noise
        if noise is not None and self._is_short:
            what = "an update far beyond the clipping norm changes" if self.proviso else "one of them can change"
            short = f"There is {noise.ratio:.1f} times too little noise for what {what}"
            said.append(f"{short} (mu {noise.mu:.2f}, claimed {noise.claimed_mu:.2f}).")
        if not any(said):
            said.append(f"What told is {self.attempt.lead.group}.")
        if self._is_short or not self.attempt.cause.words:
            said.append(self.proviso)
        return " ".join(filter(None, said))

    @property
    def mend(self) -> str:
        """What mends the cause, or usually mends such a leak where no cause is known."""
        known = self.attempt.cause.mend
        return " ".join(filter(None, (known, self.usual_mend if self._is_short or not known else "")))

    @property
    def _is_short(self) -> bool:
        """Whether there is less noise than is claimed, for certain if it is Gaussian."""
        return self.noise is not None and self.noise.ratio > 1 and self.noise.mu_low > self.noise.claimed_mu


def findings(
    trial: Trial, words: Mapping[str, str], mends: Mapping[str, str], provisos: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return what every tried lead came to: first those that break the claim, the plainest kind of game first.

    Parameters
    ----------
    trial, words, mends
        The trial; what happens in a kind of game, and what usually mends a leak, by its name, plainest kinds first.
    provisos
        By the names of kinds that send what not every client can send: on what it depends whether it can come; None for
        no such kinds.
    """
    claim, order = trial.claim, list(words)
    ranked = sorted(trial.attempts, key=lambda one: (not one.is_broken, order.index(one.lead.kind) * one.is_broken))
    kinds = [(one, words[one.lead.kind], mends[one.lead.kind]) for one in ranked]
    given = provisos or {}
    return tuple(
        Finding(one, said, mend, _noise_reading(claim, one), claim.success, given.get(one.lead.kind, ""))
        for one, said, mend in kinds
    )


def opening(trial: Trial) -> str:
    """Return what became of the claim, in one sentence, and whether floating-point arithmetic tells in another one."""
    verdict = trial.verdict if trial.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) else Verdict.INCONCLUSIVE
    said = f"{str(verdict).capitalize()}: {claim_words(trial)}"
    return " ".join(part for part in (said, untried_words(trial), floating_words(trial)) if part)


def not_tried(trial: Trial) -> dict[str, tuple[str, ...]]:
    """Return the kinds of games that nothing is known of, by why that is so."""
    tried = {attempt.lead.kind for attempt in trial.attempts}
    weak = [one.lead.kind for one in trial.attempts if one.ceiling <= one.lead.limit.epsilon]
    found = {
        "the time ran out before any of their games": trial.unplayed,
        "the time ran out before fresh games": trial.untried,
        "they seemed to tell, and the budget had no fresh games for them": trial.passed_over,
        "no model was released, or what differs never arrived": trial.silent,
        "every game was refused": trial.refused,
    }
    left = dict[str, tuple[str, ...]]()
    for why, kinds in found.items():
        left[why] = tuple(kind for kind in kinds if kind not in tried)
        tried |= {*kinds}  # of several reasons the first is named
    left[TOO_FEW] = tuple(weak) if trial.verdict is Verdict.CONSISTENT else ()
    return {why: kinds for why, kinds in left.items() if kinds}


def untried_words(trial: Trial, most: int = 3) -> str:
    """Return what was not tried, and why, in a sentence; empty if all was.

    Parameters
    ----------
    trial, most
        The trial, and how many kinds of games are named for each reason; the others are counted.
    """
    said = []
    for why, kinds in not_tried(trial).items():
        more = f" and {len(kinds) - most} more" if len(kinds) > most else ""
        said.append(", ".join(f"'{kind}'" for kind in kinds[:most]) + f"{more} ({why})")
    return f"Not tried: {'; '.join(said)}." if said else ""


def floating_words(trial: Trial) -> str:
    """Return what the low bits alone tell beyond the claim, in two sentences; empty where they do not."""
    attempt = trial.floating
    if attempt is None or not attempt.is_broken:
        return ""
    # Where more than the low bits tells in the same games, rounding would mend nothing.
    if any(one.is_broken and one.lead.kind == attempt.lead.kind for one in trial.attempts):
        return ""
    return (
        f"Floating-point leak: the low bits of the release tell more than the claim allows ({attempt.lead.kind}: "
        f"{attempt.right} of {attempt.games} games guessed right, where {trial.claim.success:.1%} are allowed). A "
        "claim about real numbers does not cover this, so it does not count in the verdict; rounding the release to a "
        "fixed grid, of a thousandth of the noise, mends it."
    )


def _games_words(attempt: Attempt) -> str:
    """Return in how many games of an attempt a claim could be broken, as the rest of a sentence; empty if in all."""
    if attempt.share_of_games == 1:
        return ""
    return (
        f"a model was released, and what differs had arrived, in no more than {attempt.share_of_games:.0%} of "
        f"{attempt.games} games, and the others say nothing of the claim."
    )


def could_find(trial: Trial) -> float:
    """Return how many times too little Gaussian noise the games mostly find, in the kinds that were followed farthest.

    At least 1; infinite where these numbers of games find none.
    """
    reaches = [
        least_shift(attempt.lead.limit, int(attempt.share_of_games * attempt.games), 1 - attempt.confidence)
        for attempt in trial.attempts
    ]
    return max(1.0, min(reaches, default=math.inf) / max(trial.claim.allowed_mu, 1e-300))


_UNREFUTED = {
    Unrefuted.SHARES: "the others reply something else each time to the same model, which may be such shares",
    Unrefuted.SHARES_OUTSIDE: "modifiers of the others add something else each time to what is held still",
}


def claim_words(trial: Trial) -> str:
    """Return what became of the claim, in a sentence that goes on after the verdict, and the strongest evidence."""
    return " ".join(part for part in (_claim_words(trial), evidence_words(trial)) if part)


def evidence_words(trial: Trial) -> str:
    """Return the strongest evidence of a trial that decides nothing, in a sentence; empty where it decides."""
    if trial.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) or trial.knowing is not None or not trial.attempts:
        return ""
    readings = [(one, _noise_reading(trial.claim, one)) for one in trial.attempts]
    # Most of all counts how far the noise falls short for certain, if it is Gaussian, and then how many were told.
    attempt, noise = max(readings, key=lambda one: (one[1].mu_low if one[1] else 0.0, one[0].right / one[0].games))
    said = (
        f"The strongest evidence: {attempt.right} of {attempt.games} games of the kind '{attempt.lead.kind}' were "
        f"guessed right, where the claim allows {trial.claim.success:.1%}"
    )
    if noise is None:
        return f"{said}."
    return f"{said}; if the noise is Gaussian, mu is {noise.mu:.3g}, and the claim allows {noise.claimed_mu:.3g}."


def _claim_words(trial: Trial) -> str:
    broken = sum(attempt.is_broken for attempt in trial.attempts)
    match trial.verdict:
        case Verdict.VIOLATED:
            ways = "one kind of game" if broken == 1 else f"{broken} kinds of games"
            return f"{ways} told more than the claim allows ({trial.claim.words})."
        case Verdict.CONSISTENT:
            so_far, ratio = "as far as tried, " if not_tried(trial) else "", could_find(trial)
            reach = "These numbers of games could find mechanisms without noise at best."
            if math.isfinite(ratio):
                often = f"Nine of ten such audits find noise that is {ratio:.2g} times too small, where they look"
                reach = f"{often}; a smaller lack may pass."
            return (
                f"{so_far}no game told more than the claim allows ({trial.claim.words}). This is no proof: it covers "
                f"the games that were played, at their numbers. {reach}"
            )
        case Verdict.INCONCLUSIVE if (trial.untried or trial.unplayed) and not trial.attempts:
            return f"there was no time for the games that try the leads ({trial.claim.words})."
        case Verdict.INCONCLUSIVE if trial.untried or trial.unplayed:
            return f"the time was over before enough games were played ({trial.claim.words})."
        case Verdict.INCONCLUSIVE if trial.silent and not trial.attempts:
            never = "no model was released, or what differs never arrived"
            return f"{never}, in any kind of game: nothing was audited ({trial.claim.words}). {trial.hindrance}".strip()
        case Verdict.INCONCLUSIVE if trial.knowing is not None:
            return (
                f"an observer who knows what all others sent guesses more games than the claim allows "
                f"({trial.claim.words}): {trial.knowing.right} of {trial.knowing.games}. Nobody else did. This "
                "refutes the claim where the server alone adds noise, and not where clients add shares of it: "
                f"{_UNREFUTED[trial.unrefuted]}."
            )
        case Verdict.INCONCLUSIVE if any(attempt.share_of_games < 1 for attempt in trial.attempts):
            least = min(trial.attempts, key=lambda attempt: attempt.share_of_games)
            said = f"too few games count ({trial.claim.words}): {_games_words(least)}"
            return f"{said} {trial.hindrance}".strip()
        case Verdict.INCONCLUSIVE if not trial.attempts:
            return f"no kind of game could be played to its end ({trial.claim.words})."
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_PROMISE:
            return (
                f"even games without a single error could not have refuted so weak a claim "
                f"({trial.claim.words}) with these numbers of games."
            )
        case _:
            assert_never(trial.verdict)


def refusal_words(refusals: Sequence[Refusal]) -> tuple[str, ...]:
    """Return what the mechanism refused: one sentence for all kinds of games in which it said the same.

    Parameters
    ----------
    refusals
        What was refused, in the order of the kinds of games.
    """
    alike = dict[tuple[str, bool], list[Refusal]]()
    for refusal in refusals:
        alike.setdefault((refusal.said, refusal.is_allowed), []).append(refusal)
    return tuple(_refused_alike(some) for some in alike.values())


def _refused_alike(refusals: Sequence[Refusal]) -> str:
    kinds, first = [one.kind for one in refusals], refusals[0]
    with_it, without = (
        _share_words([getattr(one, name) for one in refusals]) for name in ("share_present", "share_absent")
    )
    shares = f"refused in {with_it} of games with D and {without} with D'"
    told = f"{shares}, as it may" if first.is_allowed else f"an ordinary input was {shares}"
    more = f" and {len(kinds) - _MOST_KINDS} more" if len(kinds) > _MOST_KINDS else ""
    return f"{', '.join(kinds[:_MOST_KINDS])}{more}: {told} ({first.said})."


def _share_words(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"


def trial_json(trial: Trial, found: tuple[Finding, ...]) -> dict[str, Any]:
    """Return a trial as JSON values, with the keys that the command promises.

    `lower_bound` is the bound of the worst game, at the delta of the part of the claim that it was held against.

    Parameters
    ----------
    trial, found
        A claim and the games that were played about it, and what they showed.
    """
    worst, claim = trial.worst, trial.claim
    limits = [limit._asdict() for limit in claim.limits]
    return {
        "verdict": str(trial.verdict),
        "lower_bound": None if worst is None else finite(worst.bound),
        "claim": {"words": claim.words, "adjacency": str(claim.adjacency), "rounds": claim.rounds, "limits": limits},
        "game": None if worst is None else worst.lead.kind,
        "findings": [_finding_json(finding) for finding in found],
        "could_find_times_too_little_noise": finite(could_find(trial)),
        "floating_point": floating_words(trial) or None,
        **{name: list(getattr(trial, name)) for name in ("unplayed", "untried", "passed_over", "silent")},
        "not_tried": {why: list(kinds) for why, kinds in not_tried(trial).items()},
        "lower_bound_knowing_others": None if trial.knowing is None else finite(trial.knowing.bound),
        "knowing_others_refutes_nothing": None if trial.knowing is None else str(trial.unrefuted),
        "refusals": [
            dict(zip(("game", "said", "share_present", "share_absent", "allowed"), astuple(one), strict=True))
            for one in trial.refusals
        ],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    attempt, reading = finding.attempt, finding.noise
    gaussian = None
    if reading is not None:
        numbers = {name: getattr(reading, name) for name in ("mu", "mu_low", "claimed_mu", "shift", "spread")}
        gaussian = numbers | {"p_value_normal": reading.p_value}
    return {
        "game": attempt.lead.kind,
        "words": finding.words,
        "told_by": attempt.lead.group,
        "cause": finding.cause if attempt.is_broken else None,
        "broken": attempt.is_broken,
        "lower_bound": finite(attempt.bound),
        "claimed_epsilon": attempt.lead.limit.epsilon,
        "delta": attempt.lead.limit.delta,
        "confidence": attempt.confidence,
        "method": str(attempt.lead.method),
        "ceiling": finite(attempt.ceiling),
        **{name: getattr(attempt, name) for name in ("games", "share_of_games", "right")},
        "claimed_success": finding.claimed_success,
        "transcript": list(attempt.lines),
        "if_gaussian": gaussian,
        "usual_mend": finding.mend,
    }


def _noise_reading(claim: StatedClaim, attempt: Attempt, confidence: float = 0.95) -> NoiseReading | None:
    """Return the reading of the noise in the games of an attempt; None where it is not Gaussian."""
    one, zero = attempt.along[attempt.present], attempt.along[~attempt.present]
    if min(one.size, zero.size) < 20:
        return None
    residual = np.concatenate([one - one.mean(), zero - zero.mean()])
    p_value = float(normaltest(residual).pvalue) if np.ptp(residual) > 0 else 0.0
    if not p_value >= _NORMAL_LEVEL:
        return None
    estimate, at_level = (strength(one, zero, sure) for sure in (confidence, 1 - READING_LEVEL))
    return NoiseReading(
        shift=float(abs(one.mean() - zero.mean())), spread=float(residual.std(ddof=2)), mu=estimate.shift,
        mu_low=estimate.low, confidence=confidence, claimed_mu=claim.allowed_mu, p_value=p_value,
        mu_low_at_level=at_level.low,
    )  # fmt: skip


def strength(one: Floats, zero: Floats, confidence: float) -> ShiftEstimate:
    """Return the shift over spread of normal releases under D and D', whichever is ahead.

    Parameters
    ----------
    one, zero, confidence
        What was released under D and under D', shapes (n1,) and (n0,); of the lower bound, 0.5 or more, below 1. As the
        releases say which is ahead, each way has half of the rest.
    """
    sign = 1.0 if one.mean() >= zero.mean() else -1.0
    return gaussian_shift(sign * one, sign * zero, (1 + confidence) / 2)
