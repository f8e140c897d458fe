"""The result of an audit, in one form for runs, strategies, apps, trainings, running federations and released models.

This is what an audit stores in `summary.json`, and what `sign`, `verify`, `gate` and the pages of audits read.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError, require
from fl_audit.package_versions import package_versions
from fl_audit.run_files import SCHEMA, read_json
from fl_audit.verdict.verdict import Verdict

_NO_RESULT = "holds no result of an audit: accepted is what an audit of fl-audit wrote"


class AuditedKind(StrEnum):
    """Kind of what was audited; the value stands in `summary.json`."""

    RUN = "run"  # a simulated federation
    STRATEGY = "strategy"  # somebody else's strategy
    APP = "app"  # somebody else's Flower app
    TRAINING = "training"  # a private training function
    FEDERATION = "federation"  # a running federation with canaries
    MODEL = "model"  # one released model, by its losses


@dataclass(frozen=True)
class AuditScope:
    """Scope of an audit: the rounds, tests and questions that it looked at, and those that it did not.

    Parameters
    ----------
    rounds
        Number of rounds that the claim covers; None if it is not known.
    played_rounds
        Number of these rounds that were played or observed; None if it is not known.
    made
        Names of the tests, scenarios or checks that were made.
    not_made
        Names of those that were not made, each with the reason.
    unseen
        What this audit could not look at, a phrase each.
    """

    rounds: int | None = None
    played_rounds: int | None = None
    made: tuple[str, ...] = ()
    not_made: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()

    @property
    def covers_all_rounds(self) -> bool | None:
        """Whether all rounds of the claim were played or observed; None if it is not known."""
        if self.rounds is None or self.played_rounds is None:
            return None
        return self.played_rounds >= self.rounds


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Parameters
    ----------
    kind
        Kind of what was audited.
    name
        Name of what was audited, such as the name of an app.
    verdict
        The verdict on the claim.
    headline
        The main result, as text of one or a few sentences.
    lines
        The findings on the first screen, as pairs of a subject and a text.
    guarantee
        Values of the claimed guarantee, keyed by `GUARANTEE_NAMES`; None if nothing is claimed, or nothing is known.
    scope
        What the audit looked at, and what it did not.
    warning
        Why the claim excludes little or nothing; None if it does not need a warning.
    versions
        Versions of the packages with which the audit was made, by name; by default those that are installed.
    bundle
        Hash of the app's bundle as Flower computes it (SHA-256, hexadecimal); None if no app was audited.
    numbers
        All further numbers of the audit, as JSON values by name.
    """

    kind: AuditedKind
    name: str
    verdict: Verdict
    headline: str
    lines: tuple[tuple[str, str], ...] = ()
    guarantee: Mapping[str, Any] | None = None
    scope: AuditScope = AuditScope()
    warning: str | None = None
    versions: Mapping[str, str] = field(default_factory=package_versions)
    bundle: str | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `summary.json`."""
        head = {
            "schema": SCHEMA,
            "kind": str(self.kind),
            "name": self.name,
            "verdict": str(self.verdict),
            "headline": self.headline,
            "lines": [list(line) for line in self.lines],
            "guarantee": None if self.guarantee is None else dict(self.guarantee),
            "checks": scope_json(self.scope),
            "warning": self.warning,
            "versions": dict(self.versions),
            "bundle": self.bundle,
        }
        return head | {name: value for name, value in self.numbers.items() if name not in head}


def scope_json(scope: AuditScope) -> dict[str, Any]:
    """Return a scope as JSON values: the entry `checks` of `summary.json`."""
    values = asdict(scope)
    return values | {"made": list(scope.made), "unseen": list(scope.unseen), "not_made": dict(scope.not_made)}


def result_of_json(values: Mapping[str, Any], name: str, source: str) -> AuditResult:
    """Return the result that the content of a `summary.json` describes.

    Parameters
    ----------
    values
        The content.
    name
        Name of what was audited, where the content has none, as that of a run.
    source
        Source of the content, for the error message.

    Raises
    ------
    InputError
        If the content is no result of an audit.
    """
    try:
        scope = dict(values["checks"])
        scope |= {key: tuple(scope[key]) for key in ("made", "unseen")}
        return AuditResult(
            kind=AuditedKind(values["kind"]),
            name=str(values.get("name") or name),
            verdict=Verdict(values["verdict"]),
            headline=str(values.get("headline") or ""),
            lines=tuple((str(subject), str(text)) for subject, text in values.get("lines") or ()),
            guarantee=values["guarantee"],
            scope=AuditScope(**scope),
            warning=values.get("warning"),
            versions=values.get("versions") or {},
            bundle=values.get("bundle"),
            numbers=values,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} {_NO_RESULT}") from error


def read_result(directory: Path) -> AuditResult:
    """Return the result that an audit stored in a directory; raise `InputError` if there is none."""
    path = directory / "summary.json"
    require(path.is_file(), f"{path} is missing: accepted is the directory of an audit that is finished")
    values = read_json(path)
    require(isinstance(values, dict), f"{path} {_NO_RESULT}")
    return result_of_json(values, directory.resolve().name, str(path))
