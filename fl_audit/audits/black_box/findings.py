"""Turn the result of a black-box audit into sentences for a report and into JSON values.

The findings include an estimate of the noise scale if the noise looks Gaussian.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, assert_never

from fl_audit.array_types import finite
from fl_audit.audits.black_box.claim_audit import ClaimAudit, DistinguisherTest, IncompleteTrials, NotRefutingReason
from fl_audit.audits.black_box.distinguishers import least_shift
from fl_audit.audits.black_box.gaussian_noise_estimate import GaussianNoiseEstimate, noise_reading
from fl_audit.verdict.verdict import Verdict

TOO_FEW = "too few trials to refute the claim"  # a reason why a scenario has no result, a key of `not_tried`
_LONGEST = 160  # largest number of characters of an error message that are shown
_MOST_KINDS = 3  # largest number of scenarios that are named for one error message; the others are only counted


@dataclass(frozen=True)
class ScenarioFinding:
    """The result of testing one distinguisher on fresh trials of its scenario, with texts for the report."""

    attempt: DistinguisherTest  # the test
    words: str  # description of the scenario
    usual_fix: str  # the usual fix for a leak in this scenario, used if the cause is unknown
    noise: GaussianNoiseEstimate | None  # the estimated noise; None if the noise does not look Gaussian
    claimed_success: float  # the largest probability of a right guess that the claim allows, from 0.5 to 1
    proviso: str = ""  # a sentence on when the update of this scenario can occur; empty if every client can send it

    @property
    def sentence(self) -> str:
        """The result of the test in one or two sentences, with the number of right guesses and the proven bound."""
        attempt, said = self.attempt, _trials_words(self.attempt)
        told = (
            f"{attempt.distinguisher.kind} ({self.words}): looking at {attempt.distinguisher.group}, {attempt.right} "
            "of "
            f"{attempt.trials} trials were guessed right ({attempt.right / attempt.trials:.1%}; the claim allows "
            f"{self.claimed_success:.1%}). {said[:1].upper()}{said[1:]}"
        ).strip()
        if not attempt.is_broken:
            return f"{told} {self.shown[0].upper()}{self.shown[1:]}: no contradiction."
        return f"{told} With {attempt.confidence:.1%} confidence {self.shown}; {self.allowed}."

    @property
    def shown(self) -> str:
        """A clause on what the trials prove, for the (epsilon, delta)-DP inequality that was tested.

        At epsilon > 0, the clause gives a lower bound on epsilon at this delta. At epsilon = 0, it says whether more
        trials can be guessed right than the claim allows.
        """
        limit = self.attempt.distinguisher.limit
        if limit.epsilon > 0:
            return f"epsilon is at least {self.attempt.bound:.2f} at delta {limit.delta:.3g}"
        if self.attempt.bound > 0:
            return f"more than {self.claimed_success:.1%} of trials can be told"
        return f"no more than {self.claimed_success:.1%} of trials were told for certain"

    @property
    def allowed(self) -> str:
        """A clause with the value that the claim allows for epsilon or for the share of right guesses.

        It follows the text of `shown`, which has the value that the trials prove.
        """
        epsilon = self.attempt.distinguisher.limit.epsilon
        return f"the claim allows {epsilon:.2f} there" if epsilon > 0 else "the claim allows no more than that"

    @property
    def cause(self) -> str:
        """The likely cause why trials with D and with D' can be distinguished, in one or more sentences."""
        said, noise = [self.attempt.cause.words], self.noise
        if noise is not None and self._is_short:
            what = "an update far beyond the clipping norm changes" if self.proviso else "one of them can change"
            short = f"There is {noise.ratio:.1f} times too little noise for what {what}"
            said.append(f"{short} (mu {noise.mu:.2f}, claimed {noise.claimed_mu:.2f}).")
        if not any(said):
            said.append(f"What told is {self.attempt.distinguisher.group}.")
        if self._is_short or not self.attempt.cause.words:
            said.append(self.proviso)
        return " ".join(filter(None, said))

    @property
    def fix(self) -> str:
        """The fix for the likely cause, in one or more sentences.

        The usual fix for the scenario is added if there is too little noise, and used alone if no fix is known.
        """
        known = self.attempt.cause.fix
        return " ".join(filter(None, (known, self.usual_fix if self._is_short or not known else "")))

    @property
    def _is_short(self) -> bool:
        """Whether a confidence bound, which assumes Gaussian noise, shows less noise than claimed."""
        return self.noise is not None and self.noise.ratio > 1 and self.noise.mu_low > self.noise.claimed_mu


def findings(
    result: ClaimAudit, words: Mapping[str, str], fixes: Mapping[str, str], provisos: Mapping[str, str] | None = None
) -> tuple[ScenarioFinding, ...]:
    """Return one finding for each tested distinguisher.

    Findings that refute the claim come first, ordered by scenario from plain to special. The others follow in the order
    of the result.

    Parameters
    ----------
    result
        Result of the audit.
    words
        Description of each scenario, keyed by its name, in the order from plain to special.
    fixes
        Usual fix for a leak in each scenario, keyed by the name of the scenario.
    provisos
        A sentence on when a scenario's update can occur, keyed by the name of the scenario. It is given for scenarios
        with updates that only some clients can send. None if there are no such scenarios.
    """
    claim, order = result.claim, list(words)
    ranked = sorted(
        result.attempts, key=lambda one: (not one.is_broken, order.index(one.distinguisher.kind) * one.is_broken)
    )
    kinds = [(one, words[one.distinguisher.kind], fixes[one.distinguisher.kind]) for one in ranked]
    given = provisos or {}
    return tuple(
        ScenarioFinding(one, said, fix, noise_reading(claim, one), claim.success, given.get(one.distinguisher.kind, ""))
        for one, said, fix in kinds
    )


def opening(result: ClaimAudit) -> str:
    """Return the sentences that begin a report: on the verdict, on untested scenarios, and on a floating-point leak."""
    verdict = result.verdict if result.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) else Verdict.INCONCLUSIVE
    said = f"{str(verdict).capitalize()}: {claim_words(result)}"
    return " ".join(part for part in (said, untried_words(result), floating_words(result)) if part)


def not_tried(result: ClaimAudit) -> dict[str, tuple[str, ...]]:
    """Return the names of the scenarios without a result, keyed by the reason as a phrase.

    Only reasons with at least one scenario are keys.
    """
    tried = {attempt.distinguisher.kind for attempt in result.attempts}
    weak = [one.distinguisher.kind for one in result.attempts if one.ceiling <= one.distinguisher.limit.epsilon]
    found = {
        "the time ran out before any of their trials": result.unplayed,
        "the time ran out before fresh trials": result.untried,
        "they seemed to tell, and the budget had no fresh trials for them": result.passed_over,
        "no model was released, or what differs never arrived": result.silent,
        "every trial was refused": result.refused,
    }
    left = dict[str, tuple[str, ...]]()
    for why, kinds in found.items():
        left[why] = tuple(kind for kind in kinds if kind not in tried)
        tried |= {*kinds}  # of several reasons the first is named
    left[TOO_FEW] = tuple(weak) if result.verdict is Verdict.CONSISTENT else ()
    return {why: kinds for why, kinds in left.items() if kinds}


def untried_words(result: ClaimAudit, most: int = 3) -> str:
    """Return a sentence that names the scenarios without a result and the reasons; empty if all have results.

    Parameters
    ----------
    result
        Result of the audit.
    most
        Largest number of scenarios that are named for each reason; the others are only counted.
    """
    said = []
    for why, kinds in not_tried(result).items():
        more = f" and {len(kinds) - most} more" if len(kinds) > most else ""
        said.append(", ".join(f"'{kind}'" for kind in kinds[:most]) + f"{more} ({why})")
    return f"Not tried: {'; '.join(said)}." if said else ""


def floating_words(result: ClaimAudit) -> str:
    """Return sentences on a leak of floating-point arithmetic; empty if there is none.

    There is such a leak if the low bits of the release refute the claim and nothing else in the same scenario does.
    """
    attempt = result.floating
    if attempt is None or not attempt.is_broken:
        return ""
    # If more than the low bits reveals the secret in the same trials, rounding would fix nothing.
    if any(one.is_broken and one.distinguisher.kind == attempt.distinguisher.kind for one in result.attempts):
        return ""
    return (
        "Floating-point leak: the low bits of the release tell more than the claim allows "
        f"({attempt.distinguisher.kind}: "
        f"{attempt.right} of {attempt.trials} trials guessed right, where {result.claim.success:.1%} are allowed). A "
        "claim about real numbers does not cover this, so it does not count in the verdict; rounding the release to a "
        "fixed grid, of a thousandth of the noise, fixes it."
    )


def _trials_words(attempt: DistinguisherTest) -> str:
    """Return a clause on the share of a test's trials that were valid, i.e. could be evidence; empty if all were."""
    if attempt.share_of_trials == 1:
        return ""
    return (
        f"a model was released, and what differs had arrived, in no more than {attempt.share_of_trials:.0%} of "
        f"{attempt.trials} trials, and the others say nothing of the claim."
    )


def could_find(result: ClaimAudit) -> float:
    """Return the limit of detection: the smallest lack of Gaussian noise that nine of ten audits find, as a factor.

    A factor of 2 means that the noise is half of what is claimed. The result is at least 1, and infinite if no lack of
    noise would be found with these numbers of trials.
    """
    reaches = [
        least_shift(attempt.distinguisher.limit, int(attempt.share_of_trials * attempt.trials), 1 - attempt.confidence)
        for attempt in result.attempts
    ]
    return max(1.0, min(reaches, default=math.inf) / max(result.claim.allowed_mu, 1e-300))


_NOT_COVERED = {
    NotRefutingReason.SHARES: "the others reply something else each time to the same model, which may be such shares",
    NotRefutingReason.SHARES_OUTSIDE: "modifiers of the others add something else each time to what is held still",
}


def claim_words(result: ClaimAudit) -> str:
    """Return the text that follows the verdict: the claim, what the trials showed, and the strongest evidence."""
    return " ".join(part for part in (_claim_words(result), evidence_words(result)) if part)


def evidence_words(result: ClaimAudit) -> str:
    """Return a sentence on the strongest evidence of an inconclusive audit; empty if there is none.

    It is also empty if the verdict is `violated` or `consistent`, or if an adversary who knows the other clients'
    replies refutes the claim.
    """
    if result.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) or result.knowing is not None or not result.attempts:
        return ""
    readings = [(one, noise_reading(result.claim, one)) for one in result.attempts]
    # Most of all counts how far the noise falls short for certain, if it is Gaussian, and then how many were told.
    attempt, noise = max(readings, key=lambda one: (one[1].mu_low if one[1] else 0.0, one[0].right / one[0].trials))
    said = (
        f"The strongest evidence: {attempt.right} of {attempt.trials} trials of the kind "
        f"'{attempt.distinguisher.kind}' were "
        f"guessed right, where the claim allows {result.claim.success:.1%}"
    )
    if noise is None:
        return f"{said}."
    return f"{said}; if the noise is Gaussian, mu is {noise.mu:.3g}, and the claim allows {noise.claimed_mu:.3g}."


def _claim_words(result: ClaimAudit) -> str:
    broken = sum(attempt.is_broken for attempt in result.attempts)
    match result.verdict:
        case Verdict.VIOLATED:
            ways = "one scenario" if broken == 1 else f"{broken} scenarios"
            return f"{ways} told more than the claim allows ({result.claim.words})."
        case Verdict.CONSISTENT:
            so_far, ratio = "as far as tried, " if not_tried(result) else "", could_find(result)
            reach = "These numbers of trials could find mechanisms without noise at best."
            if math.isfinite(ratio):
                often = f"Nine of ten such audits find noise that is {ratio:.2g} times too small, where they look"
                reach = f"{often}; a smaller lack may pass."
            return (
                f"{so_far}no trial told more than the claim allows ({result.claim.words}). This is no proof: it covers "
                f"the trials that were played, at their numbers. {reach}"
            )
        case Verdict.INCONCLUSIVE if (result.untried or result.unplayed) and not result.attempts:
            return f"there was no time for the trials that try the distinguishers ({result.claim.words})."
        case Verdict.INCONCLUSIVE if result.untried or result.unplayed:
            return f"the time was over before enough trials were played ({result.claim.words})."
        case Verdict.INCONCLUSIVE if result.silent and not result.attempts:
            never = "no model was released, or what differs never arrived"
            return f"{never}, in any scenario: nothing was audited ({result.claim.words}). {result.hindrance}".strip()
        case Verdict.INCONCLUSIVE if result.knowing is not None:
            return (
                f"an observer who knows what all others sent guesses more trials than the claim allows "
                f"({result.claim.words}): {result.knowing.right} of {result.knowing.trials}. Nobody else did. This "
                "refutes the claim where the server alone adds noise, and not where clients add shares of it: "
                f"{_NOT_COVERED[result.not_covered]}."
            )
        case Verdict.INCONCLUSIVE if any(attempt.share_of_trials < 1 for attempt in result.attempts):
            least = min(result.attempts, key=lambda attempt: attempt.share_of_trials)
            said = f"too few trials count ({result.claim.words}): {_trials_words(least)}"
            return f"{said} {result.hindrance}".strip()
        case Verdict.INCONCLUSIVE if not result.attempts:
            return f"no scenario could be played to its end ({result.claim.words}). {result.hindrance}".strip()
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_GUARANTEE:
            return (
                f"even trials without a single error could not have refuted so weak a claim "
                f"({result.claim.words}) with these numbers of trials."
            )
        case _:
            assert_never(result.verdict)


def refusal_words(refusals: Sequence[IncompleteTrials]) -> tuple[str, ...]:
    """Return sentences on the trials that the mechanism ended with an error, one sentence for each error message.

    Parameters
    ----------
    refusals
        One entry for each scenario with such trials, in the order of the scenarios.
    """
    alike = dict[tuple[str, bool], list[IncompleteTrials]]()
    for refusal in refusals:
        alike.setdefault((_beginning(refusal.said), refusal.is_allowed), []).append(refusal)
    return tuple(_refused_alike(some) for some in alike.values())


def _refused_alike(refusals: Sequence[IncompleteTrials]) -> str:
    kinds, first = [one.kind for one in refusals], refusals[0]
    with_it, without = (
        _share_words([getattr(one, name) for one in refusals]) for name in ("share_present", "share_absent")
    )
    shares = f"refused in {with_it} of trials with D and {without} with D'"
    told = f"{shares}, as it may" if first.is_allowed else f"an ordinary input was {shares}"
    more = f" and {len(kinds) - _MOST_KINDS} more" if len(kinds) > _MOST_KINDS else ""
    return f"{', '.join(kinds[:_MOST_KINDS])}{more}: {told} ({_beginning(first.said)})."


def _beginning(said: str) -> str:
    """Return an error message, cut to at most 160 characters."""
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST].rstrip()} ..."


def _share_words(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"


def result_json(result: ClaimAudit, found: tuple[ScenarioFinding, ...]) -> dict[str, Any]:
    """Return the result of an audit as a dict of JSON values, as the file `verdict.json` stores it.

    `lower_bound` is the bound of the test with the strongest evidence, at the delta of the inequality that it tested.

    Parameters
    ----------
    result
        Result of the audit.
    found
        Findings of this result, from `findings`.
    """
    worst, claim = result.worst, result.claim
    claimed = {
        "words": claim.words, "adjacency": str(claim.adjacency), "unit": str(claim.neighbours.unit),
        "rounds": claim.rounds, "limits": [limit._asdict() for limit in claim.limits],
        # A claim by noise is Gaussian without error; one point of a curve has no mu.
        "gdp_mu": claim.mu, "gdp_regret": None if claim.mu is None else 0.0,
    }  # fmt: skip
    return {
        "verdict": str(result.verdict),
        "lower_bound": None if worst is None else finite(worst.bound),
        "claim": claimed,
        "trial": None if worst is None else worst.distinguisher.kind,
        "findings": [_finding_json(finding) for finding in found],
        "could_find_times_too_little_noise": finite(could_find(result)),
        "floating_point": floating_words(result) or None,
        **{name: list(getattr(result, name)) for name in ("unplayed", "untried", "passed_over", "silent")},
        "not_tried": {why: list(kinds) for why, kinds in not_tried(result).items()},
        "lower_bound_knowing_others": None if result.knowing is None else finite(result.knowing.bound),
        "knowing_others_refutes_nothing": None if result.knowing is None else str(result.not_covered),
        "refusals": [
            dict(zip(("trial", "said", "share_present", "share_absent", "allowed"), astuple(one), strict=True))
            for one in result.refusals
        ],
    }


def _finding_json(finding: ScenarioFinding) -> dict[str, Any]:
    attempt, reading = finding.attempt, finding.noise
    gaussian = None
    if reading is not None:
        numbers = {name: getattr(reading, name) for name in ("mu", "mu_low", "claimed_mu", "shift", "spread")}
        gaussian = numbers | {"p_value_normal": reading.p_value}
    return {
        "trial": attempt.distinguisher.kind,
        "words": finding.words,
        "told_by": attempt.distinguisher.group,
        "cause": finding.cause if attempt.is_broken else None,
        "broken": attempt.is_broken,
        "lower_bound": finite(attempt.bound),
        "claimed_epsilon": attempt.distinguisher.limit.epsilon,
        "delta": attempt.distinguisher.limit.delta,
        "confidence": attempt.confidence,
        "method": str(attempt.distinguisher.method),
        "ceiling": finite(attempt.ceiling),
        **{name: getattr(attempt, name) for name in ("trials", "share_of_trials", "right")},
        "claimed_success": finding.claimed_success,
        "transcript": list(attempt.lines),
        "if_gaussian": gaussian,
        "usual_fix": finding.fix,
    }
