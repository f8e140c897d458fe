"""Describe the result of a black-box audit in sentences: the verdict, untested scenarios, and trials with errors.

The sentences on the verdict, the evidence and the next step stand in the template `claim_audit.md`.
"""

import math
from collections.abc import Sequence

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import (
    ClaimAudit,
    DistinguisherTest,
    TrialErrorShares,
    broken_estimates,
    numbers_of_trials,
)
from fl_audit.app_audits.claim_audit.distinguishers import least_shift
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.report.guarantee_warnings import weak_claim_warning
from fl_audit.report.template_files import template_lines, template_texts
from fl_audit.verdict.verdict import Verdict

TOO_FEW = "too few trials to refute the claim"  # a reason why a scenario has no result, a key of `not_tried`
_LONGEST = 160  # largest number of characters of an error message that are shown
_MOST_KINDS = 3  # largest number of scenarios that are named for one error message; the others are only counted


def opening_sentences(claim_audit: ClaimAudit) -> str:
    """Return the sentences that begin a report: on the verdict, on untested scenarios, and on a floating-point leak."""
    verdict = (
        claim_audit.verdict if claim_audit.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) else Verdict.INCONCLUSIVE
    )
    later = "" if verdict is Verdict.INCONCLUSIVE else _texts(claim_audit).get("bare-rounds", "")
    sentences = (
        f"{str(verdict).capitalize()}: {claim_words(claim_audit)}",
        later,
        untried_words(claim_audit),
        floating_words(claim_audit),
    )
    return " ".join(filter(None, sentences))


def claim_warning(claim: StatedClaim) -> str | None:
    """Return a warning if a claim excludes nothing that a person could object to, else None."""
    epsilon = gdp_epsilon(claim.delta, claim.allowed_mu) if claim.epsilon is None else claim.epsilon
    return weak_claim_warning(epsilon, claim.delta, claim.neighbours)


def not_tried(claim_audit: ClaimAudit) -> dict[str, tuple[str, ...]]:
    """Return the names of the scenarios without a result, keyed by the reason as a phrase.

    Reasons without a scenario are left out.
    """
    tried = {test.distinguisher.kind for test in claim_audit.tests}
    weak = [test.distinguisher.kind for test in claim_audit.tests if test.ceiling <= test.distinguisher.limit.epsilon]
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


def untried_words(claim_audit: ClaimAudit, largest: int = 3) -> str:
    """Return a sentence that names the scenarios without a result and the reasons; empty if all have results."""
    phrases = []
    for why, kinds in not_tried(claim_audit).items():
        suffix = f" and {len(kinds) - largest} more" if len(kinds) > largest else ""
        phrases.append(", ".join(f"'{kind}'" for kind in kinds[:largest]) + f"{suffix} ({why})")
    return f"Not tried: {'; '.join(phrases)}." if phrases else ""


def trials_words(test: DistinguisherTest) -> str:
    """Return a clause that says which share of a test's trials could give evidence; empty if all trials could."""
    share = test.share_of_trials
    return "" if share == 1 else template_lines("uncounted_trials.md", share=share, trials=test.trials)[0]


def limit_of_detection(claim_audit: ClaimAudit) -> float:
    """Return the limit of detection: the smallest shortage of Gaussian noise that nine of ten audits find, as a factor.

    The factor is claimed noise over real noise. It is at least 1; for example, 2 means that half of the claimed noise
    is missing. The result is infinite if no shortage would be found with these numbers of trials.
    """
    reaches = [
        least_shift(test.distinguisher.limit, int(test.share_of_trials * test.trials), 1 - test.confidence)
        for test in claim_audit.tests
    ]
    return max(1.0, min(reaches, default=math.inf) / max(claim_audit.claim.allowed_mu, 1e-300))


def claim_words(claim_audit: ClaimAudit) -> str:
    """Return the text that follows the verdict: the claim, what the trials showed, and the strongest evidence."""
    texts = _texts(claim_audit)
    return " ".join(texts[name] for name in ("claim", "evidence") if name in texts)


def floating_words(claim_audit: ClaimAudit) -> str:
    """Return sentences on a leak of floating-point arithmetic; empty if there is none."""
    return _texts(claim_audit).get("floating", "")


def numbers_of_trials_words(claim_audit: ClaimAudit) -> str:
    """Return sentences on numbers that only clients of the trials are known to report; empty if none tells much."""
    return _texts(claim_audit).get("of-trials", "")


def next_step_words(claim_audit: ClaimAudit) -> str:
    """Return advice for the step after an audit that did not refute the claim, which removes what left it open."""
    return _texts(claim_audit)["next"]


def _texts(claim_audit: ClaimAudit) -> dict[str, str]:
    tests = claim_audit.tests
    is_consistent = claim_audit.verdict is Verdict.CONSISTENT
    fewest_counted = min(tests, key=lambda test: test.share_of_trials, default=None)
    return template_texts(
        "claim_audit.md",
        audit=claim_audit,
        claim=claim_audit.claim.words,
        verdict=claim_audit.verdict,
        success=claim_audit.claim.success,
        broken=sum(test.refutes_claim for test in tests),
        disagreeing=len(broken_estimates(tests)),
        has_untried=bool(not_tried(claim_audit)),
        is_short=bool(claim_audit.untried or claim_audit.unplayed),
        too_small=limit_of_detection(claim_audit) if is_consistent else math.inf,
        invalid="" if fewest_counted is None else trials_words(fewest_counted),
        hindrance=claim_audit.hindrance,
        evidence=_strongest_evidence(claim_audit),
        numbers_of_trials=", ".join(numbers_of_trials(tests)),
        leak=_leak_of_low_bits(claim_audit),
        played_rounds=claim_audit.claim.rounds,
        first_bare=claim_audit.bare_rounds[0] if claim_audit.bare_rounds else None,
    )


def _strongest_evidence(claim_audit: ClaimAudit) -> DistinguisherTest | None:
    """Return the test with the strongest evidence; None if the verdict, or an adversary who knows more, says enough."""
    is_decided = claim_audit.verdict in (Verdict.VIOLATED, Verdict.CONSISTENT) or numbers_of_trials(claim_audit.tests)
    if is_decided or claim_audit.knowing is not None or not claim_audit.tests:
        return None
    # The proven lack of Gaussian noise comes first, then the share of right guesses.
    return max(claim_audit.tests, key=lambda test: (test.noise.mu_low if test.noise else 0.0, test.right / test.trials))


def _leak_of_low_bits(claim_audit: ClaimAudit) -> DistinguisherTest | None:
    """Return the test by which the low bits of the release refute the claim.

    None if they do not, or if something else refutes it in the same scenario: rounding fixes nothing then.
    """
    test = claim_audit.floating
    if test is None or not test.is_broken:
        return None
    broken_kinds = {test.distinguisher.kind for test in claim_audit.tests if test.is_broken}
    return None if test.distinguisher.kind in broken_kinds else test


def refusal_words(refusals: Sequence[TrialErrorShares]) -> tuple[str, ...]:
    """Return sentences on trials in which the mechanism raised an error, one sentence for each error message."""
    alike = dict[tuple[str, bool], list[TrialErrorShares]]()
    for refusal in refusals:
        alike.setdefault((_beginning(refusal.error), refusal.is_allowed), []).append(refusal)
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
    return f"{', '.join(kinds[:_MOST_KINDS])}{suffix}: {text} ({_beginning(first.error)})."


def _beginning(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} ..."


def _share_words(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"
