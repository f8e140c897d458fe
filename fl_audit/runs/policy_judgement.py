"""Hold the result of an audit, and the ledger of a site, against the site's policy: an answer to each rule."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fl_audit.privacy.ledger import composed_epsilon, read_ledger
from fl_audit.runs.signed_statement import STATEMENTS, VerifiedStatement, verify
from fl_audit.runs.site_policy import (
    AppRules,
    AuditRules,
    ClaimRules,
    ModelRules,
    RuleAnswer,
    RuleStanding,
    SignatureRules,
    SitePolicy,
)
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, read_result
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import plural


def judge_result(policy: SitePolicy, directory: Path, now: datetime | None = None) -> tuple[RuleAnswer, ...]:
    """Return how the result of an audit stands to each rule of a policy that applies.

    Parameters
    ----------
    policy
        The policy.
    directory
        Directory of the audit.
    now
        Time by which the age of signatures is counted; None for the present.

    Raises
    ------
    InputError
        If the directory holds no result of an audit, or a statement in it was edited.
    """
    result = read_result(directory)
    statements = verify(directory) if (directory / STATEMENTS).exists() else ()
    answers = [
        *_value_answers(policy, _with_versions(result, statements)),
        *_signature_answers(policy.signatures, statements, now or datetime.now(UTC)),
    ]
    differing = [statement for statement in statements if not statement.agrees]
    if differing:
        # Whatever the files say now is not what was signed.
        names = differing[0].edited + differing[0].missing + differing[0].added
        text = f"{', '.join(names[:3])} changed since {differing[0].key} signed"
        answers.insert(0, RuleAnswer("signatures.files", RuleStanding.BROKEN, text))
    return tuple(_allowed(policy, answer) for answer in answers)


def judge_values(policy: SitePolicy, result: AuditResult) -> tuple[RuleAnswer, ...]:
    """Return how a result stands to the rules about its values: all but those about signatures and the ledger."""
    return tuple(_allowed(policy, answer) for answer in _value_answers(policy, result))


def _value_answers(policy: SitePolicy, result: AuditResult) -> tuple[RuleAnswer, ...]:
    return (
        *_claim_answers(policy.claim, result),
        *_audit_answers(policy.audit, result),
        *_app_answers(policy.app, result),
        *_model_answers(policy.model, result),
    )


def judge_ledger(policy: SitePolicy, directory: Path) -> tuple[RuleAnswer, ...]:
    """Return how the site's ledger stands to the policy, which is in `directory`; empty if the policy names none."""
    rules = policy.ledger
    if rules is None:
        return ()
    path = directory / rules.file
    if not path.is_file():
        return (RuleAnswer("ledger.file", RuleStanding.UNKNOWN, f"{path} is missing"),)
    trainings = read_ledger(path)
    epsilon = composed_epsilon(trainings, rules.delta).epsilon
    count = sum(training.trainings for training in trainings)
    text = f"{plural(count, 'training')} spent epsilon {epsilon:.4g} at delta {rules.delta:g}"
    answers = [_answer("ledger.largest-epsilon", epsilon <= rules.largest_epsilon, text, f"{rules.largest_epsilon:g}")]
    if rules.digest is not None:
        is_there = any(training.digest == rules.digest for training in trainings)
        text = f"the ledger {'has' if is_there else 'lacks'} the entry {rules.digest[:12]}..."
        answers.append(_answer("ledger.digest", is_there, text, "a ledger with it"))
    return tuple(answers)


def _claim_answers(rules: ClaimRules, result: AuditResult) -> Iterator[RuleAnswer]:
    guarantee = result.guarantee or {}
    # The claim about a released model is about its whole training.
    is_whole = result.scope.rounds is not None or result.kind is AuditedKind.MODEL
    for name, limit in (("epsilon", rules.largest_epsilon), ("delta", rules.largest_delta)):
        if limit is None:
            continue
        rule = f"claim.largest-{name}"
        accepted = f"accepted is at most {limit:g}"
        if result.verdict is Verdict.NO_GUARANTEE and (is_whole or name == "delta"):
            yield RuleAnswer(rule, RuleStanding.BROKEN, f"nothing is claimed: {accepted}")
        elif name == "epsilon" and not is_whole:
            text = f"for how many rounds epsilon is claimed is not said: {accepted}"
            yield RuleAnswer(rule, RuleStanding.UNKNOWN, text)
        elif name == "epsilon" and guarantee.get(name, 0.0) is None and "delta" in guarantee:
            yield RuleAnswer(rule, RuleStanding.BROKEN, f"epsilon is without bound: {accepted}")
        else:
            yield _at_most(rule, guarantee.get(name), limit, f"{name} is")
    if rules.units:
        yield _among("claim.units", guarantee.get("unit"), rules.units, "the unit is")


def _audit_answers(rules: AuditRules, result: AuditResult) -> Iterator[RuleAnswer]:
    scope = result.scope
    if rules.verdicts:
        is_met = result.verdict in rules.verdicts
        yield _answer("audit.verdicts", is_met, f"the verdict is {result.verdict}", " or ".join(rules.verdicts))
    if rules.kinds:
        is_met = result.kind in rules.kinds
        yield _answer("audit.kinds", is_met, f"audited was a {result.kind}", " or ".join(rules.kinds))
    if rules.all_rounds:
        rounds_text = f"{scope.played_rounds} of {scope.rounds} rounds were played or observed"
        if scope.covers_all_rounds is None:
            yield RuleAnswer("audit.all-rounds", RuleStanding.UNKNOWN, "how many rounds were played is not said")
        else:
            yield _answer("audit.all-rounds", scope.covers_all_rounds, rounds_text, "all rounds")
    for check in rules.required_checks:
        reason = scope.not_made.get(check)
        if check in scope.made:
            yield RuleAnswer("audit.required-checks", RuleStanding.MET, f"{check} was made")
        elif reason is None:
            yield RuleAnswer("audit.required-checks", RuleStanding.UNKNOWN, f"{check} is not named by this audit")
        else:
            yield RuleAnswer("audit.required-checks", RuleStanding.BROKEN, f"{check} was not made: {reason}")
    for package, oldest_version in rules.versions.items():
        version = result.versions.get(package)
        accepted = f"{oldest_version} or newer"
        if version is None:
            yield RuleAnswer("audit.versions", RuleStanding.UNKNOWN, f"{package} not said: accepted is {accepted}")
        else:
            is_met = _numbers(version) >= _numbers(oldest_version)
            yield _answer("audit.versions", is_met, f"{package} {version}", accepted)


def _signature_answers(
    rules: SignatureRules, statements: tuple[VerifiedStatement, ...], now: datetime
) -> Iterator[RuleAnswer]:
    keys = dict.fromkeys(statement.key for statement in statements if statement.agrees)
    for key in rules.by:
        text = f"{key} {'signed' if key in keys else 'did not sign'}"
        yield _answer("signatures.by", key in keys, text, "its signature")
    if rules.fewest:
        is_met = len(keys) >= rules.fewest
        yield _answer("signatures.fewest", is_met, f"{plural(len(keys), 'key')} signed", f"{rules.fewest} and more")
    if rules.largest_age_days is not None:
        times = [statement.statement["predicate"]["signed"] for statement in statements if statement.agrees]
        accepted = f"at most {rules.largest_age_days:g} days"
        if not times:
            yield RuleAnswer("signatures.largest-age-days", RuleStanding.UNKNOWN, f"not signed: accepted is {accepted}")
            return
        age = now - max(map(datetime.fromisoformat, times))
        is_met = timedelta() <= age <= timedelta(days=rules.largest_age_days)
        days = age / timedelta(days=1)
        yield _answer("signatures.largest-age-days", is_met, f"signed {days:.1f} days ago", accepted)


def _app_answers(rules: AppRules, result: AuditResult) -> Iterator[RuleAnswer]:
    if rules.bundles:
        yield _among("app.bundles", result.bundle, rules.bundles, "the bundle is")


def _model_answers(rules: ModelRules, result: AuditResult) -> Iterator[RuleAnswer]:
    numbers = result.numbers if result.kind is AuditedKind.MODEL else {}
    if rules.checkpoints:
        digest = (numbers.get("model") or {}).get("sha256")
        yield _among("model.checkpoints", digest, rules.checkpoints, "the model's file is")
    star = numbers.get("epsilon_star") or {}
    if (limit := rules.largest_epsilon_star) is not None:
        rule = "model.largest-epsilon-star"
        # Of few losses only an interval is known: its upper end has to lie below.
        value = star["interval"][1] if star.get("is_lower_bound") else star.get("value")
        if star and value is None and not star.get("is_lower_bound"):
            yield RuleAnswer(rule, RuleStanding.BROKEN, f"Epsilon* is without bound: accepted is at most {limit:g}")
        else:
            yield _at_most(rule, value, limit, "Epsilon* is")
    if (limit := rules.largest_lower_bound) is not None:
        yield _at_most("model.largest-lower-bound", numbers.get("epsilon_at_least"), limit, "the losses show epsilon")
    if (limit := rules.largest_outstanding_share) is not None:
        share = (numbers.get("outstanding") or {}).get("share")
        yield _at_most("model.largest-outstanding-share", share, limit, "the share of members that stand out is")


def _answer(rule: str, is_met: bool, text: str, accepted: str) -> RuleAnswer:
    if is_met:
        return RuleAnswer(rule, RuleStanding.MET, text)
    return RuleAnswer(rule, RuleStanding.BROKEN, f"{text}: accepted is {accepted}")


def _at_most(rule: str, value: object, limit: float, words: str) -> RuleAnswer:
    """Return the answer to a ceiling of a number, which the result may not name."""
    accepted = f"at most {limit:g}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return RuleAnswer(rule, RuleStanding.UNKNOWN, f"{words} not said: accepted is {accepted}")
    return _answer(rule, value <= limit, f"{words} {value:.4g}", accepted)


def _among(rule: str, value: object, accepted: Sequence[str], words: str) -> RuleAnswer:
    """Return the answer to a list of accepted names, of which the result may name none."""
    names = " or ".join(accepted)
    if value is None:
        return RuleAnswer(rule, RuleStanding.UNKNOWN, f"{words} not said: accepted is {names}")
    return _answer(rule, value in accepted, f"{words} {value}", names)


def _allowed(policy: SitePolicy, answer: RuleAnswer) -> RuleAnswer:
    is_allowed = answer.standing is RuleStanding.UNKNOWN and answer.rule in policy.allow_unknown
    return RuleAnswer(answer.rule, RuleStanding.ALLOWED, answer.text) if is_allowed else answer


def _with_versions(result: AuditResult, statements: tuple[VerifiedStatement, ...]) -> AuditResult:
    """Return the result with the versions in its latest statement, where it has none itself, as that of a run."""
    if result.versions or not statements:
        return result
    return replace(result, versions=statements[-1].statement["predicate"].get("versions") or {})


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version's release part, such as (1, 42, 0) of "1.42.0rc1"."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release.group().split("."))) if release else ()
