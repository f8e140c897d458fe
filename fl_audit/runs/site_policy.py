"""A site's policy on audits: a TOML file of its own ceilings, and the rules that hold signed results against it."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from fl_audit.adjacency import Unit
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.privacy.ledger import composed_epsilon, read_ledger
from fl_audit.runs.config_errors import first_problem
from fl_audit.runs.signed_statement import STATEMENTS, VerifiedStatement, verify
from fl_audit.verdict.audit_result import AuditedKind, AuditResult, read_result
from fl_audit.verdict.verdict import Verdict
from fl_audit.words import plural

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Names = Annotated[tuple[str, ...], Strict(False)]
_DIGEST = re.compile(r"(SHA256:)?[0-9a-f]{64}")


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=lambda name: name.replace("_", "-")
    )


class ClaimRules(_Section):
    """Section [claim]: ceilings of one training's guarantee."""

    largest_epsilon: _Positive | None = None
    """Largest epsilon of one training."""
    largest_delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Largest delta at which that epsilon may hold."""
    units: Annotated[tuple[Annotated[Unit, Strict(False)], ...], Strict(False)] = ()
    """Units that the guarantee may protect: record, user, client; left out, any."""


class AuditRules(_Section):
    """Section [audit]: what an audit has to be."""

    verdicts: Annotated[tuple[Annotated[Verdict, Strict(False)], ...], Strict(False)] = ()
    """Verdicts that are accepted; left out, any."""
    kinds: Annotated[tuple[Annotated[AuditedKind, Strict(False)], ...], Strict(False)] = ()
    """Kinds of audits that are accepted: run, strategy, app, training, federation; left out, any."""
    all_rounds: bool = False
    """Whether all rounds of the claim have to be played or observed."""
    required_checks: _Names = ()
    """Names of tests, scenarios or checks that have to be made."""
    versions: Annotated[dict[str, str], Strict(False)] = Field(default_factory=dict)
    """Smallest accepted versions of packages, by name."""


class SignatureRules(_Section):
    """Section [signatures]: who has to sign, and when."""

    by: _Names = ()
    """Fingerprints of the keys that all have to sign, as `fl-audit sign` prints them."""
    fewest: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of keys that have to sign at least."""
    largest_age_days: _Positive | None = None
    """Days since the latest signature, at most."""


class AppRules(_Section):
    """Section [app]: which apps are accepted."""

    bundles: _Names = ()
    """Accepted bundles, by the hash that Flower computes (SHA-256); left out, any."""


class LedgerRules(_Section):
    """Section [ledger]: what all trainings of the site may spend together."""

    file: str
    """Path of the ledger, relative to the policy."""
    largest_epsilon: _Positive
    """Largest epsilon of all trainings together."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """Delta of that epsilon."""
    digest: str | None = None
    """Digest of an entry that the ledger has to contain, so that an older ledger is found."""


class SitePolicy(_Section):
    """The policy of a site. What a result does not say fails, unless the rule stands in `allow-unknown`."""

    claim: ClaimRules = Field(default_factory=ClaimRules)
    audit: AuditRules = Field(default_factory=AuditRules)
    signatures: SignatureRules = Field(default_factory=SignatureRules)
    app: AppRules = Field(default_factory=AppRules)
    ledger: LedgerRules | None = None
    allow_unknown: _Names = ()
    """Names of rules that a result may leave open, such as "app.bundles"."""


class RuleStanding(StrEnum):
    """Standing of a result to a rule of a policy."""

    MET = "met"
    BROKEN = "broken"
    UNKNOWN = "not known"
    ALLOWED = "not known, as the policy allows"


@dataclass(frozen=True)
class RuleAnswer:
    """Standing of a result to one rule, with the value that decided it."""

    rule: str  # name of the rule, as `section.key`
    standing: RuleStanding
    text: str  # the value, and what is accepted

    @property
    def is_passed(self) -> bool:
        """Whether the rule does not stop the result."""
        return self.standing in (RuleStanding.MET, RuleStanding.ALLOWED)


def read_policy(path: Path) -> SitePolicy:
    """Return the policy in a TOML file; raise `InputError`, in one line, if it is none."""
    require(path.exists(), f"policy {path} is missing: accepted is a TOML file")
    try:
        values = tomllib.loads(read_text_file(path))
    except (OSError, ValueError) as error:
        raise InputError(f"policy {path} cannot be read: {error}") from error
    try:
        policy = SitePolicy.model_validate(values)
    except ValidationError as error:
        problem = first_problem(error, SitePolicy, "it is required").replace("configuration ", "policy ", 1)
        raise InputError(f"{path}: {problem}") from None
    unknown = [name for name in policy.allow_unknown if name not in _RULES]
    require(not unknown, f"{path}: policy allow-unknown is {unknown}: accepted are {', '.join(_RULES)}")
    wrong = [name for name in (*policy.signatures.by, *policy.app.bundles) if not _DIGEST.fullmatch(name)]
    require(not wrong, f"{path}: {wrong} is no digest: accepted are 64 hexadecimal digits, of keys after 'SHA256:'")
    return policy


_RULES = (
    "claim.largest-epsilon", "claim.largest-delta", "claim.units", "audit.verdicts", "audit.kinds", "audit.all-rounds",
    "audit.required-checks", "audit.versions", "signatures.by", "signatures.fewest", "signatures.largest-age-days",
    "app.bundles",
)  # fmt: skip
"""Names of the rules that a result answers."""


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
        *_claim_answers(policy.claim, result),
        *_audit_answers(policy.audit, _with_versions(result, statements)),
        *_signature_answers(policy.signatures, statements, now or datetime.now(UTC)),
        *_app_answers(policy.app, result),
    ]
    differing = [statement for statement in statements if not statement.agrees]
    if differing:
        # Whatever the files say now is not what was signed.
        names = differing[0].edited + differing[0].missing + differing[0].added
        text = f"{', '.join(names[:3])} changed since {differing[0].key} signed"
        answers.insert(0, RuleAnswer("signatures.files", RuleStanding.BROKEN, text))
    return tuple(_allowed(policy, answer) for answer in answers)


def judge_ledger(policy: SitePolicy, place: Path) -> tuple[RuleAnswer, ...]:
    """Return how the site's ledger stands to the policy, whose folder is `place`; empty if the policy names none."""
    rules = policy.ledger
    if rules is None:
        return ()
    path = place / rules.file
    if not path.is_file():
        return (RuleAnswer("ledger.file", RuleStanding.UNKNOWN, f"{path} is missing"),)
    trainings = read_ledger(path)
    epsilon = composed_epsilon(trainings, rules.delta).epsilon
    text = f"{plural(len(trainings), 'training')} spent epsilon {epsilon:.4g} at delta {rules.delta:g}"
    answers = [_answer("ledger.largest-epsilon", epsilon <= rules.largest_epsilon, text, f"{rules.largest_epsilon:g}")]
    if rules.digest is not None:
        is_there = any(training.digest == rules.digest for training in trainings)
        text = f"the ledger {'has' if is_there else 'lacks'} the entry {rules.digest[:12]}..."
        answers.append(_answer("ledger.digest", is_there, text, "a ledger with it"))
    return tuple(answers)


def _claim_answers(rules: ClaimRules, result: AuditResult) -> Iterator[RuleAnswer]:
    guarantee = result.guarantee or {}
    is_claimed = result.verdict is not Verdict.NO_GUARANTEE
    for name, limit in (("epsilon", rules.largest_epsilon), ("delta", rules.largest_delta)):
        if limit is None:
            continue
        rule, value = f"claim.largest-{name}", guarantee.get(name)
        accepted = f"at most {limit:g}"
        if name == "epsilon" and result.scope.rounds is None:
            text = f"for how many rounds epsilon is claimed is not said: accepted is {accepted}"
            yield RuleAnswer(rule, RuleStanding.UNKNOWN, text)
        elif not is_claimed:
            yield RuleAnswer(rule, RuleStanding.BROKEN, f"nothing is claimed: accepted is {accepted}")
        elif name == "epsilon" and name in guarantee and value is None and "delta" in guarantee:
            yield RuleAnswer(rule, RuleStanding.BROKEN, f"epsilon is without bound: accepted is {accepted}")
        else:
            yield _known(rule, value, lambda number, limit=limit: float(number) <= limit, f"{name} is", accepted)
    if rules.units:
        accepted = " or ".join(rules.units)
        yield _known("claim.units", guarantee.get("unit"), lambda unit: unit in rules.units, "the unit is", accepted)


def _audit_answers(rules: AuditRules, result: AuditResult) -> Iterator[RuleAnswer]:
    scope = result.scope
    if rules.verdicts:
        is_met = result.verdict in rules.verdicts
        yield _answer("audit.verdicts", is_met, f"the verdict is {result.verdict}", " or ".join(rules.verdicts))
    if rules.kinds:
        is_met = result.kind in rules.kinds
        yield _answer("audit.kinds", is_met, f"audited was a {result.kind}", " or ".join(rules.kinds))
    if rules.all_rounds:
        counted = f"{scope.played_rounds} of {scope.rounds} rounds were played or observed"
        if scope.covers_all_rounds is None:
            yield RuleAnswer("audit.all-rounds", RuleStanding.UNKNOWN, "how many rounds were played is not said")
        else:
            yield _answer("audit.all-rounds", scope.covers_all_rounds, counted, "all rounds")
    for check in rules.required_checks:
        reason = scope.not_made.get(check)
        if check in scope.made:
            yield RuleAnswer("audit.required-checks", RuleStanding.MET, f"{check} was made")
        elif reason is None:
            yield RuleAnswer("audit.required-checks", RuleStanding.UNKNOWN, f"{check} is not named by this audit")
        else:
            yield RuleAnswer("audit.required-checks", RuleStanding.BROKEN, f"{check} was not made: {reason}")
    for package, least in rules.versions.items():
        version, accepted = result.versions.get(package), f"{least} or newer"
        yield _known(
            "audit.versions", version, lambda text, least=least: _numbers(text) >= _numbers(least), package, accepted
        )


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
        accepted = " or ".join(rules.bundles)
        yield _known("app.bundles", result.bundle, lambda bundle: bundle in rules.bundles, "the bundle is", accepted)


def _answer(rule: str, is_met: bool, text: str, accepted: str) -> RuleAnswer:
    if is_met:
        return RuleAnswer(rule, RuleStanding.MET, text)
    return RuleAnswer(rule, RuleStanding.BROKEN, f"{text}: accepted is {accepted}")


def _known(rule: str, value: Any, is_met: Any, words: str, accepted: str) -> RuleAnswer:
    """Return the answer to a rule about a value, which the result may not name."""
    if value is None:
        return RuleAnswer(rule, RuleStanding.UNKNOWN, f"{words} not said: accepted is {accepted}")
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return _answer(rule, bool(is_met(value)), f"{words} {shown}", accepted)


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


def answers_json(answers: Mapping[str, tuple[RuleAnswer, ...]]) -> dict[str, Any]:
    """Return the answers for each result, by its path, as JSON values."""
    return {
        place: [{"rule": one.rule, "standing": str(one.standing), "text": one.text} for one in some]
        for place, some in answers.items()
    }
