"""Describe the result of a black-box audit in sentences: the verdict, untested scenarios, and trials with errors."""

import math
from collections.abc import Sequence
from typing import assert_never

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    OthersNoiseShareReason,
    TrialErrorShares,
    broken_estimates,
)
from fl_audit.app_audits.claim_audit.distinguishers import least_shift
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.verdict.verdict import Verdict

TOO_FEW = "too few trials to refute the claim"  # a reason why a scenario has no result, a key of `not_tried`
_LONGEST = 160  # largest number of characters of an error message that are shown
_MOST_KINDS = 3  # largest number of scenarios that are named for one error message; the others are only counted


def opening_sentences(claim_audit: ClaimAudit) -> str:
    """Return the sentences that begin a report: on the verdict, on untested scenarios, and on a floating-point leak."""
    verdict = (
        claim_audit.verdict if claim_audit.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) else Verdict.INCONCLUSIVE
    )
    text = f"{str(verdict).capitalize()}: {claim_words(claim_audit)}"
    later = "" if verdict is Verdict.INCONCLUSIVE else bare_rounds_words(claim_audit)
    return " ".join(
        phrase for phrase in (text, later, untried_words(claim_audit), floating_words(claim_audit)) if phrase
    )


def bare_rounds_words(claim_audit: ClaimAudit) -> str:
    """Return a sentence on rounds without noise after those that trials play; empty if there are none."""
    if not claim_audit.bare_rounds:
        return ""
    first = claim_audit.bare_rounds[0]
    count = len(claim_audit.bare_rounds)
    which = f"round {first}" if count == 1 else f"{count} rounds from round {first} on"
    return (
        f"In {which} the strategy releases with less than a tenth of the noise of its first round, and trials play "
        f"{claim_audit.claim.rounds} of them: --rounds {first} has them play the first that lacks it."
    )


def claim_warning(claim: StatedClaim) -> str | None:
    """Return a warning if a claim excludes nothing that a person could object to, else None."""
    epsilon = gdp_epsilon(claim.delta, claim.allowed_mu) if claim.epsilon is None else claim.epsilon
    return weak_claim_warning(epsilon, claim.delta, claim.neighbours)


def not_tried(claim_audit: ClaimAudit) -> dict[str, tuple[str, ...]]:
    """Return the names of the scenarios without a result, keyed by the reason as a phrase.

    Reasons without a scenario are left out.
    """
    tried = {attempt.distinguisher.kind for attempt in claim_audit.attempts}
    weak = [
        attempt.distinguisher.kind
        for attempt in claim_audit.attempts
        if attempt.ceiling <= attempt.distinguisher.limit.epsilon
    ]
    untried = {
        "the time ran out before any of their trials": claim_audit.unplayed,
        "the time ran out before fresh trials": claim_audit.untried,
        "they seemed to tell more than the claim allows, and the budget had no fresh trials for them": tuple(
            kind for kind in claim_audit.passed_over if kind not in claim_audit.passed_over_within
        ),
        "their few trials were within the claim, and the budget had no fresh trials for them": (
            claim_audit.passed_over_within
        ),
        "no model was released, or what differs never arrived": claim_audit.silent,
        "every trial was refused": claim_audit.refused,
    }
    remaining = dict[str, tuple[str, ...]]()
    for why, kinds in untried.items():
        remaining[why] = tuple(kind for kind in kinds if kind not in tried)
        tried |= {*kinds}  # only the first of several reasons is named
    remaining[TOO_FEW] = tuple(weak) if claim_audit.verdict is Verdict.CONSISTENT else ()
    return {why: kinds for why, kinds in remaining.items() if kinds}


def next_step_words(claim_audit: ClaimAudit) -> str:
    """Return advice for the step after an audit that did not refute the claim, which removes what left it open."""
    is_short = bool(claim_audit.untried or claim_audit.unplayed)
    more_time = "Give it more time, so that every scenario is played: raise --minutes."
    if is_short and claim_audit.verdict is Verdict.CONSISTENT:
        return more_time
    if claim_audit.verdict is Verdict.CONSISTENT:
        return "Audit it again whenever its code, its model or its number of clients changes."
    if claim_audit.verdict is Verdict.INCONCLUSIVE:
        return _step_to_decide(claim_audit, more_time if is_short else "")
    return _MORE_TRIALS


_MORE_TRIALS = "Name a smaller claim, or raise the number of trials: leave out --quick."


def _step_to_decide(claim_audit: ClaimAudit, more_time: str) -> str:
    """Return advice that removes what left an audit open; `more_time` is what to do if time ran out, or empty."""
    if claim_audit.bare_rounds:
        return f"Have trials play the rounds without noise: --rounds {claim_audit.bare_rounds[0]}."
    if broken_estimates(claim_audit.attempts):
        return "Decide between the two readings by more trials: leave out --quick, and raise --minutes."
    if more_time:
        return more_time
    if claim_audit.knowing is not None:
        return "Say who adds the noise: if the server does, the claim is refuted for this observer."
    if claim_audit.silent or claim_audit.refused or not claim_audit.attempts:
        return "Repair what keeps trials from being played, which is named above, and audit it again."
    return _MORE_TRIALS


def untried_words(claim_audit: ClaimAudit, largest: int = 3) -> str:
    """Return a sentence that names the scenarios without a result and the reasons; empty if all have results."""
    phrases = []
    for why, kinds in not_tried(claim_audit).items():
        suffix = f" and {len(kinds) - largest} more" if len(kinds) > largest else ""
        phrases.append(", ".join(f"'{kind}'" for kind in kinds[:largest]) + f"{suffix} ({why})")
    return f"Not tried: {'; '.join(phrases)}." if phrases else ""


def floating_words(claim_audit: ClaimAudit) -> str:
    """Return sentences on a leak of floating-point arithmetic; empty if there is none.

    A leak is found if the low bits of the release refute the claim, and nothing else in the same scenario refutes it.
    """
    attempt = claim_audit.floating
    if attempt is None or not attempt.is_broken:
        return ""
    # Rounding fixes nothing if other values reveal the secret in the same scenario.
    if any(
        other_attempt.is_broken and other_attempt.distinguisher.kind == attempt.distinguisher.kind
        for other_attempt in claim_audit.attempts
    ):
        return ""
    return (
        "Floating-point leak: the low bits of the release tell more than the claim allows "
        f"({attempt.distinguisher.kind}: "
        f"{attempt.right} of {attempt.trials} trials guessed right, where {claim_audit.claim.success:.1%} are "
        "allowed). A "
        "claim about real numbers does not cover this, so it does not count in the verdict; rounding the release to a "
        "fixed grid, of a thousandth of the noise, fixes it."
    )


def trials_words(test: DistinguisherTest) -> str:
    """Return a clause that says which share of a test's trials could give evidence; empty if all trials could."""
    share = test.share_of_trials
    if share == 1:
        return ""
    # The share is the smaller one of trials with D and with D': where it is 0, one of the two cases never came about.
    if share == 0:
        return (
            f"in one of the two cases, with the target or without it, none of the {test.trials} trials released a "
            "model after what differs had arrived."
        )
    return (
        f"a model was released, and what differs had arrived, in no more than {share:.0%} of {test.trials} trials, "
        "and the others say nothing of the claim."
    )


def limit_of_detection(claim_audit: ClaimAudit) -> float:
    """Return the limit of detection: the smallest shortage of Gaussian noise that nine of ten audits find, as a factor.

    The factor is claimed noise over real noise. It is at least 1; for example, 2 means that half of the claimed noise
    is missing. The result is infinite if no shortage would be found with these numbers of trials.
    """
    reaches = [
        least_shift(attempt.distinguisher.limit, int(attempt.share_of_trials * attempt.trials), 1 - attempt.confidence)
        for attempt in claim_audit.attempts
    ]
    return max(1.0, min(reaches, default=math.inf) / max(claim_audit.claim.allowed_mu, 1e-300))


_NOT_COVERED = {
    OthersNoiseShareReason.SHARES: (
        "the others reply something else each time to the same model, which may be such shares"
    ),
    OthersNoiseShareReason.SHARES_OUTSIDE: "modifiers of the others add something else each time to what is held still",
}


def claim_words(claim_audit: ClaimAudit) -> str:
    """Return the text that follows the verdict: the claim, what the trials showed, and the strongest evidence."""
    return " ".join(phrase for phrase in (_claim_words(claim_audit), evidence_words(claim_audit)) if phrase)


def evidence_words(claim_audit: ClaimAudit) -> str:
    """Return a sentence on the strongest evidence of an inconclusive audit; empty if there is none.

    It is also empty if the verdict is `violated` or `consistent`, or if an adversary who knows the other clients'
    replies refutes the claim.
    """
    if (
        claim_audit.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT)
        or claim_audit.knowing is not None
        or not claim_audit.attempts
    ):
        return ""
    # The proven lack of Gaussian noise comes first, then the share of right guesses.
    attempt = max(
        claim_audit.attempts,
        key=lambda attempt: (attempt.noise.mu_low if attempt.noise else 0.0, attempt.right / attempt.trials),
    )
    noise = attempt.noise
    text = (
        f"The strongest evidence: {attempt.right} of {attempt.trials} trials of the kind "
        f"'{attempt.distinguisher.kind}' were "
        f"guessed right, where the claim allows {claim_audit.claim.success:.1%}"
    )
    if noise is None:
        return f"{text}."
    return f"{text}; if the noise is Gaussian, mu is {noise.mu:.3g}, and the claim allows {noise.claimed_mu:.3g}."


def _claim_words(claim_audit: ClaimAudit) -> str:
    broken = sum(attempt.is_broken for attempt in claim_audit.attempts)
    match claim_audit.verdict:
        case Verdict.VIOLATED:
            ways = "one scenario" if broken == 1 else f"{broken} scenarios"
            return f"{ways} told more than the claim allows ({claim_audit.claim.words})."
        case Verdict.CONSISTENT:
            so_far = "as far as tried, " if not_tried(claim_audit) else ""
            ratio = limit_of_detection(claim_audit)
            reach = "These numbers of trials could find mechanisms without noise at best."
            if math.isfinite(ratio):
                often = f"Nine of ten such audits find noise that is {ratio:.2g} times too small, where they look"
                reach = f"{often}; a smaller lack may pass."
            return (
                f"{so_far}no trial told more than the claim allows ({claim_audit.claim.words}). This is no proof: "
                "it covers "
                f"the trials that were played, at their numbers. {reach}"
            )
        case Verdict.INCONCLUSIVE if claim_audit.bare_rounds:
            return (
                f"the claim ({claim_audit.claim.words}) is not kept by later rounds. {bare_rounds_words(claim_audit)}"
            )
        case Verdict.INCONCLUSIVE if disagreeing := broken_estimates(claim_audit.attempts):
            return (
                "two readings disagree: no trial was guessed better than the claim allows "
                f"({claim_audit.claim.words}), and "
                f"the noise of {len(disagreeing)} of {len(claim_audit.attempts)} distinguishers is too small "
                "for it, if "
                "it is Gaussian. More trials decide it: a larger budget, or more time."
            )
        case Verdict.INCONCLUSIVE if (claim_audit.untried or claim_audit.unplayed) and not claim_audit.attempts:
            return f"there was no time for the trials that try the distinguishers ({claim_audit.claim.words})."
        case Verdict.INCONCLUSIVE if claim_audit.untried or claim_audit.unplayed:
            return f"the time was over before enough trials were played ({claim_audit.claim.words})."
        case Verdict.INCONCLUSIVE if claim_audit.silent and not claim_audit.attempts:
            never = "no model was released, or what differs never arrived"
            unplayed = f"{never}, in any scenario: nothing was audited ({claim_audit.claim.words}). "
            return (unplayed + claim_audit.hindrance).strip()
        case Verdict.INCONCLUSIVE if claim_audit.knowing is not None:
            return (
                f"an observer who knows what all others sent guesses more trials than the claim allows "
                f"({claim_audit.claim.words}): {claim_audit.knowing.right} of {claim_audit.knowing.trials}. "
                "Nobody else did. This "
                "refutes the claim where the server alone adds noise, and not where clients add shares of it: "
                f"{_NOT_COVERED[claim_audit.not_covered]}."
            )
        case Verdict.INCONCLUSIVE if any(attempt.share_of_trials < 1 for attempt in claim_audit.attempts):
            test = min(claim_audit.attempts, key=lambda attempt: attempt.share_of_trials)
            text = f"too few trials count ({claim_audit.claim.words}): {trials_words(test)}"
            return f"{text} {claim_audit.hindrance}".strip()
        case Verdict.INCONCLUSIVE if not claim_audit.attempts:
            return (
                f"no scenario could be played to its end ({claim_audit.claim.words}). {claim_audit.hindrance}".strip()
            )
        case Verdict.INCONCLUSIVE | Verdict.NOT_AUDITED | Verdict.NO_GUARANTEE:
            return (
                f"even trials without a single error could not have refuted so weak a claim "
                f"({claim_audit.claim.words}) with these numbers of trials."
            )
        case _:
            assert_never(claim_audit.verdict)


def refusal_words(refusals: Sequence[TrialErrorShares]) -> tuple[str, ...]:
    """Return sentences on trials in which the mechanism raised an error, one sentence for each error message."""
    alike = dict[tuple[str, bool], list[TrialErrorShares]]()
    for refusal in refusals:
        alike.setdefault((_beginning(refusal.said), refusal.is_allowed), []).append(refusal)
    return tuple(_refused_alike(shares) for shares in alike.values())


def _refused_alike(refusals: Sequence[TrialErrorShares]) -> str:
    kinds = [refusal.kind for refusal in refusals]
    first = refusals[0]
    with_it, without = (
        _share_words([getattr(refusal, name) for refusal in refusals]) for name in ("share_present", "share_absent")
    )
    shares = f"refused in {with_it} of trials with D and {without} with D'"
    text = f"{shares}, as it may" if first.is_allowed else f"an ordinary input was {shares}"
    suffix = f" and {len(kinds) - _MOST_KINDS} more" if len(kinds) > _MOST_KINDS else ""
    return f"{', '.join(kinds[:_MOST_KINDS])}{suffix}: {text} ({_beginning(first.said)})."


def _beginning(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} ..."


def _share_words(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"
