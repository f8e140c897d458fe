"""A site's policy on audits: a TOML file of its own ceilings, and the form of an answer to one of its rules."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from fl_audit.adjacency import Unit
from fl_audit.errors import InputError, require
from fl_audit.ordinary_files import read_text_file
from fl_audit.runs.config_errors import first_problem
from fl_audit.verdict.audit_result import AuditedKind
from fl_audit.verdict.verdict import Verdict

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
    """Kinds of audits that are accepted: run, strategy, app, training, federation, model; left out, any."""
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


class ModelRules(_Section):
    """Section [model]: ceilings of one released model, as `fl-audit release` measured it."""

    checkpoints: _Names = ()
    """Accepted files of models, by their SHA-256; left out, any."""
    largest_epsilon_star: _Positive | None = None
    """Largest Epsilon*; of few losses its interval has to lie below."""
    largest_lower_bound: _Positive | None = None
    """Largest lower bound on epsilon that the losses may show."""
    largest_outstanding_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest share of members that the loss attack may find with 1 % false alarms."""


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
    model: ModelRules = Field(default_factory=ModelRules)
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


_RULES = (
    "claim.largest-epsilon",
    "claim.largest-delta",
    "claim.units",
    "audit.verdicts",
    "audit.kinds",
    "audit.all-rounds",
    "audit.required-checks",
    "audit.versions",
    "signatures.by",
    "signatures.fewest",
    "signatures.largest-age-days",
    "app.bundles",
    "model.checkpoints",
    "model.largest-epsilon-star",
    "model.largest-lower-bound",
    "model.largest-outstanding-share",
)
"""Names of the rules that a result answers."""


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
    wrong = [
        name
        for name in (*policy.signatures.by, *policy.app.bundles, *policy.model.checkpoints)
        if not _DIGEST.fullmatch(name)
    ]
    require(not wrong, f"{path}: {wrong} is no digest: accepted are 64 hexadecimal digits, of keys after 'SHA256:'")
    return policy


def answers_json(answers: Mapping[str, tuple[RuleAnswer, ...]]) -> dict[str, Any]:
    """Return the answers for each result, by its path, as JSON values."""
    return {
        name: [{"rule": answer.rule, "standing": str(answer.standing), "text": answer.text} for answer in rule_answers]
        for name, rule_answers in answers.items()
    }
