"""Answers of the annex for a data-protection officer to questions of others, each as far as the run tested it."""

from fl_audit.plurals import plural
from fl_audit.privacy.defaults import CANDIDATES
from fl_audit.report.guarantee_warnings import is_weak_guarantee
from fl_audit.report.report_elements import ReportContents
from fl_audit.verdict.claim_standing import ClaimStanding, standing_of_claim
from fl_audit.verdict.declared_tests import OF_OPENED, TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import VerdictDetails

Answer = tuple[str, str, str]
"""A question, whether it is answered, and where the answer is or why there is none."""
ANSWERED, OPERATOR, UNKNOWN = "answered here", "declared by the operator", "not known"
_IN_PART, _OPEN, _WEAK = "answered in part", "left open by the verdict", "answered here: next to nothing is assured"
_NOTHING_CLAIMED = "nothing is claimed, so nothing limits it"
_INDIRECT = {
    TestName.CANARIES: "how far canaries stand out of the noise",
    TestName.SCORES: "the scores of an attack",
    TestName.CANDIDATES: "how often an attack names the right candidate",
}
"""For each test that does not measure the noise itself, the values that it judges instead."""


def nist_answers(contents: ReportContents) -> tuple[Answer, ...]:
    """Return an answer for each topic of NIST SP 800-226 (March 2025), the parts of a guarantee."""
    claimed, has_claim = _claimed(contents), contents.plan.guarantee is not None
    rounds = "epsilon is for all rounds of this training together" if has_claim else _NOTHING_CLAIMED
    return (
        ("Epsilon and delta, and what they mean", claimed, "in the lines from Epsilon and delta on, above"),
        ("The unit of privacy", OPERATOR, "whether one unit is one person is for the operator to say"),
        (
            "How neighbours differ",
            ANSWERED if has_claim else UNKNOWN,
            "in the line on the unit that is protected, above",
        ),
        ("The mechanism and its implementation", *_mechanism(contents)),
        ("The trust model", OPERATOR, "the configuration says who adds the noise and what the attacker sees"),
        ("Composition over rounds", claimed, rounds),
        (
            "Composition over trainings",
            OPERATOR,
            "other trainings with the same data add to epsilon; fl-audit account --ledger adds them up",
        ),
        ("Accuracy", ANSWERED, "on the first page: the share of new cases for which the model is right"),
        ("Bias against groups", UNKNOWN, "accuracy is that of all test records together"),
        ("Side channels", UNKNOWN, "neither the digits of the noise nor the time of a step were tested"),
        ("Security and access control", UNKNOWN, "that only released models leave the server was not looked at"),
        ("The collection of the data", UNKNOWN, "an audit begins with the records that it is given"),
    )


def questions_of_anonymity(contents: ReportContents) -> tuple[Answer, ...]:
    """Return answers to the three questions about anonymous data of Opinion 05/2014 and EDPB Opinion 28/2024."""
    guarantee, claimed = contents.plan.guarantee, _claimed(contents)
    by_bound = by_belief = limits = _NOTHING_CLAIMED
    if guarantee is not None:
        names = guarantee.reconstruction_bound(1 / CANDIDATES) is not None
        by_bound = f"by the line on {CANDIDATES:,} equally likely, a bound" if names else "no bound is known here"
        by_belief = "by the bounds on belief and advantage"
        limits = "the bounds limit what the training tells about one person"
    measured = "a reconstruction audit, which is a run of its own, measures how often an attacker succeeds"
    if contents.plan.federation.audit == "reconstruction":
        measured = "how often an attacker succeeded is measured in this run"
    scope = claimed == ANSWERED
    return (
        ("Singling out: can somebody be isolated in the data?", claimed, f"{by_bound}; {measured}"),
        (
            "Linkability: can two records be tied to one person?",
            f"{claimed}, for one training" if scope else claimed,
            f"{by_belief}; what other publications about a person add is not known",
        ),
        (
            "Inference: can a value be deduced of somebody?",
            f"{claimed}, for what the training adds" if scope else claimed,
            f"{limits}; what holds for people of a kind can be deduced of a person who was not in the data too",
        ),
    )


def _claimed(contents: ReportContents) -> str:
    """Return the answer to a question that the claimed limits answer, if they hold."""
    if contents.plan.guarantee is None:
        return UNKNOWN
    standing = standing_of_claim(contents)
    if standing is not ClaimStanding.HELD:
        return str(standing)
    return _WEAK if is_weak_guarantee(contents.guarantee) else ANSWERED


def _judgement(contents: ReportContents) -> VerdictDetails | None:
    numbers = contents.find(VerdictFinding)
    return None if numbers is None else numbers.judgement


def _mechanism(contents: ReportContents) -> tuple[str, str]:
    found, standing = _judgement(contents), standing_of_claim(contents)
    if found is None:
        is_claimed = contents.plan.guarantee is not None
        return UNKNOWN, "no test was made" + ("" if is_claimed else ": nothing is claimed that could be tested")
    made = {test.name for test in found.tests}
    told = [f"by the verdict, from {plural(len(made), 'test')}"]
    if found.not_offered:
        told.append(f"{plural(len(found.not_offered), 'other test')} could not be made on this run")
    indirect = [words for name, words in _INDIRECT.items() if name in made]
    if indirect and made <= {*_INDIRECT, *OF_OPENED}:
        told.append(f"the noise itself was not measured, only {indirect[0]}")
    follows = any(name.is_about_secret for name in made)
    if not follows:
        told.append("whether the noise depends on the data was not tested")
    if standing is ClaimStanding.REFUTED:
        answer = str(standing)
    elif standing is ClaimStanding.UNCONFIRMED:
        answer = _OPEN
    else:
        answer = ANSWERED if follows else _IN_PART
    return answer, "; ".join(told)
