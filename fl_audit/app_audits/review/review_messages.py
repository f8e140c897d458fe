"""The texts of a review: the headline, the lines of the first screen, and the whole review as JSON values."""

from dataclasses import asdict
from typing import Any

from fl_audit.app_audits.black_box.scenario import ModelKind
from fl_audit.app_audits.black_box.scenario_texts import scenario_texts
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.claim_audit.claim_audit_messages import (
    claim_words,
    not_tried,
    opening_sentences,
    untried_words,
)
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, numbers_of_trials
from fl_audit.app_audits.claim_audit.trial_results import DistinguisherFinding, findings, result_json
from fl_audit.app_audits.local_training.assessment_messages import assessment_json, report_lines, training_claim_warning
from fl_audit.app_audits.local_training.assessment_messages import headline as headline_of_clients
from fl_audit.app_audits.review.claims import epsilon_words, guarantee_of_stated, stated_claim_warning, training_doubt
from fl_audit.app_audits.review.privacy_mentions import mentions_phrase
from fl_audit.app_audits.review.review_result import ReviewResult, has_edges_of_flower_alone, refutes
from fl_audit.app_audits.review.scenario_groups import (
    ScenarioGroup,
    SideChannelResult,
    broken_tests,
    group_of_test,
    of_mechanism,
    tests_of_metrics,
)
from fl_audit.report.template_files import template_texts
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import capital, percent, uncapital


def found_in(claim_audit: ClaimAudit) -> tuple[DistinguisherFinding, ...]:
    """Return the findings of an audit's tests, each with the conditions of its trials and a usual fix."""
    groups = list(ScenarioGroup)
    # Faults of the mechanism lead, then numbers that are seen to be released, and last what only unusual replies would
    # show. Sorting is stable, so each of them keeps its order.
    ranked = sorted(
        findings(claim_audit, scenario_texts()),
        key=lambda finding: (
            not finding.test.refutes_claim,
            groups.index(group_of_test(finding.test)),
            not finding.test.is_beside_model,
        ),
    )
    return tuple(ranked)


def headline(review: ReviewResult) -> str:
    """Return the main message of a review, in a few sentences."""
    first = [f"{capital(review.count_fault)}."] if review.count_fault else []
    if review.starts.repeats:
        first = [f"Violated: {review.starts.repeats}.", *first, "The trials, which renew the noise:"]
    after = [f"{capital(sentence)}." for sentence in (*review.early, *review.weaker)]
    return " ".join((*first, _headline_of_verdict(review), *after))


def _headline_of_verdict(review: ReviewResult) -> str:
    trials = _headline_of_trials(review)
    if review.unseen:
        trials = f"Inconclusive: {review.unseen[0]}. The trials without it: {trials}"
    if review.inside is None:
        return trials
    inside = headline_of_clients(review.inside)
    about = f"Of clients as units: {trials}"
    return f"{inside} {about}" if review.inside.trainings.is_private else trials


def _headline_of_trials(review: ReviewResult) -> str:
    if review.app_claim.claim is None:
        return f"{_texts(review)['no-claim']} {untried_words(review.result)}".strip()
    if has_edges_of_flower_alone(review.app_claim, review.result):
        return _headline_of_edges(review)
    numbers = "" if review.result.verdict is Verdict.VIOLATED else _texts(review).get("numbers", "")
    return f"{numbers} Of the model: {_headline_of_model(review)}" if numbers else _headline_of_model(review)


def _headline_of_model(review: ReviewResult) -> str:
    causes = [finding.cause for finding in found_in(review.result) if finding.test.refutes_claim]
    doubt = training_doubt(review.app_claim, review.rounds, review.played_rounds)
    if doubt and review.verdict is not Verdict.VIOLATED:
        trials = f"The trials alone: {opening_sentences(review.result)}"
        return f"Inconclusive as to the whole training: {doubt} {trials}"
    aside = "" if review.beside is None else untried_words(review.beside)
    remarks = aside and f"Beside the model: {aside}", doubt and f"And {doubt}"
    return " ".join(phrase for phrase in (opening_sentences(review.result), *causes[:1], *remarks) if phrase)


def _headline_of_edges(review: ReviewResult) -> str:
    """Return the message on a wrapper of Flower whose noise and clipping are as claimed, and which leaks otherwise."""
    doubt = training_doubt(review.app_claim, review.rounds, review.played_rounds)
    text = _texts(review)["flower"]
    return f"{text} And {doubt}" if doubt else text


def _edge_words(review: ReviewResult) -> str:
    """Return the names of the scenarios with unusual replies that refuted the claim, with shares of right guesses."""
    tests = broken_tests(review.result, ScenarioGroup.EDGES)
    best = {test.distinguisher.kind: test for test in reversed(tests)}
    return ", ".join(
        f"'{name}' (told apart in {percent(test.right / test.trials)} of trials)" for name, test in best.items()
    )


def _texts(review: ReviewResult) -> dict[str, str]:
    """Return the fixed texts on a review, by name."""
    tests = review.result.tests
    beside = broken_tests(review.result, ScenarioGroup.BESIDE)
    of_metrics = tests_of_metrics(review.beside)
    is_number_of_model_audit = any(test.is_beside_model for test in beside)
    numbers = [test.distinguisher.group for test in beside if test.is_beside_model]
    numbers += [test.distinguisher.group for test in of_metrics if test.refutes_claim]
    is_of_flower_alone = has_edges_of_flower_alone(review.app_claim, review.result)
    played = _played_scenarios(review)
    return template_texts(
        "review.md",
        review=review,
        verdict=review.verdict,
        reach=claim_words(of_mechanism(review.result)) if is_of_flower_alone else "",
        numbers=", ".join(dict.fromkeys(numbers)),
        numbers_of_trials=", ".join(numbers_of_trials(of_metrics)),
        is_refuted=is_number_of_model_audit or any(refutes(test, review.result.claim) for test in of_metrics),
        has_unequal=any(not test.is_beside_model for test in beside),
        edges=_edge_words(review),
        guessed=max((test.right / test.trials for test in tests), default=None),
        claim=epsilon_words(review.app_claim, review.rounds),
        claim_source=review.app_claim.source,
        mentions=mentions_phrase(review.of_records),
        uses_own_model=any(BY_NAME[name].model is ModelKind.OWN for name in played),
        played=len(played),
        most_trials=max((test.trials for test in tests), default=0),
        untried={leak.aside: _untried_words(leak) for leak in review.leaks},
        ours=[leak.aside for leak in review.leaks if leak.is_of_trials_alone],
    )


def _played_scenarios(review: ReviewResult) -> list[str]:
    return [name for name in review.kinds if name not in review.result.unplayed]


def report_lines_of_review(review: ReviewResult) -> tuple[tuple[str, str], ...]:
    """Return the lines of a review's first screen, each as (subject, text)."""
    app_claim = review.app_claim
    texts = _texts(review)
    broken = [finding for finding in found_in(review.result) if finding.test.refutes_claim]
    lost = {finding.test.distinguisher.kind for finding in broken}
    lost |= {refusal.kind for refusal in review.result.refusals if not refusal.is_allowed}
    # A scenario is listed as holding only if it was tested and not broken in all its environments.
    lost |= {name for names in not_tried(review.result).values() for name in names}
    gone = {BY_NAME[name].plain_name for name in lost}
    holds = [
        name
        for name in dict.fromkeys(BY_NAME[name].plain_name for name in _played_scenarios(review))
        if name not in gone
    ]
    warning = stated_claim_warning(app_claim, review.rounds)
    lines = [("Claim", texts["claim"]), *([] if warning is None else [("Warning", f"{warning}.")])]
    lines.append(("Played", texts["played"]))
    if app_claim.claim is not None:
        lines.append(("No contradiction", ", ".join(holds) or "in no scenario"))
        is_edge = has_edges_of_flower_alone(app_claim, review.result)
        by = [] if is_edge else [(finding.scenario.words, finding.test) for finding in broken]
        broken_words = [
            f"{test.distinguisher.kind} ({words}): told apart in {percent(test.right / test.trials)} of trials"
            for words, test in by
        ]
        lines.append(("Broken by", "; ".join(broken_words) or "no scenario"))
        text = untried_words(review.result, largest=max(len(review.kinds), 1)).removeprefix("Not tried: ")
        lines += [("Not tried", text)] if text else []
    leaks = "; ".join(texts[f"leak of {leak.aside}"] for leak in review.leaks)
    lines.append(("Beside the model", texts["nothing-beside"] if review.beside is None else leaks))
    lines += [("Not loaded", f"{capital(reason)}.") for reason in review.unseen]
    lines += [("Number of clients", f"{capital(review.count_fault)}.")] if review.count_fault else []
    lines.append(("Fresh starts", review.starts.words))
    lines += [("Begins early", f"{capital(sentence)}.") for sentence in review.early]
    lines += [("Note", f"{capital(remark)}.") for remark in review.remarks]
    if review.app_claim.is_of_flower and broken_tests(review.result, ScenarioGroup.EDGES):
        lines.append(("Known edges of Flower's wrapper", texts["edges"]))
    not_seen = ("Not seen", f"{texts['unseen']}.")
    if review.inside is None:
        return (*lines, *_uninspected_clients(review), not_seen)
    weakness = training_claim_warning(review.inside.trainings)
    lines += [] if weakness is None else [("Inside clients, warning", f"{weakness}.")]
    lines += [(f"Inside clients, {uncapital(about)}", text) for about, text in report_lines(review.inside)]
    return (*lines, not_seen)


def unseen_of_review(review: ReviewResult) -> str:
    """Return a phrase on what no review sees; less if clients were inspected."""
    return _texts(review)["unseen"]


def _uninspected_clients(review: ReviewResult) -> tuple[tuple[str, str], ...]:
    """Return one line, as a heading and a text, with the reason why clients could not be inspected.

    The result is empty if no inspection was tried.
    """
    return (("Inside clients", f"not seen: {review.inside_unseen}."),) if review.inside_unseen else ()


def _untried_words(side_channel: SideChannelResult) -> str:
    """Return why scenarios on a side channel have no result; empty if all have one."""
    return "; ".join(f"{', '.join(map(repr, names))} ({reason})" for reason, names in side_channel.untried.items())


def review_json(review: ReviewResult) -> dict[str, Any]:
    """Return a review as a dictionary of JSON values, keyed by field name."""
    result = review.result
    claim = review.app_claim.claim
    return {
        "app": review.app,
        "verdict": str(review.verdict),
        "claimed": None if claim is None else epsilon_words(review.app_claim, review.rounds),
        "guarantee": guarantee_of_stated(review.app_claim, review.rounds),
        "source": review.app_claim.source,
        "warning": stated_claim_warning(review.app_claim, review.rounds),
        "rounds": review.rounds,
        "played_rounds": review.played_rounds,
        "nodes": review.nodes,
        "asked": review.asked,
        "parameters": review.parameters,
        "kinds": list(review.kinds),
        "model": result_json(result, found_in(result)),
        "beside": None if review.beside is None else result_json(review.beside, found_in(review.beside)),
        "leaks": {
            str(leak.aside): {"played": leak.is_played, "trials": leak.trials, "share": leak.share, "by": leak.by}
            for leak in review.leaks
        },
        "of_records": [asdict(record) for record in review.of_records],
        "inside": _inside_json(review),
        "remarks": list(review.remarks),
        "repeated_noise": review.starts.repeats,
        "not_loaded": list(review.unseen),
    }


def _inside_json(review: ReviewResult) -> dict[str, Any] | None:
    if review.inside is not None:
        return assessment_json(review.inside)
    return {"unseen": review.inside_unseen} if review.inside_unseen else None
