"""Claims of papers: each claim is a range for a number, whose confidence interval decides whether the claim holds."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from enum import StrEnum
from math import ceil, hypot, inf, isfinite, nan
from pathlib import Path
from typing import Any

from fl_audit.array_types import finite
from fl_audit.statistics.interval_estimates import IntervalEstimate


class ClaimVerdict(StrEnum):
    """The verdict on a claim: it holds, fails, is undecided or cannot be tested.

    It is about a sentence of a paper, and not about a privacy guarantee, of which `Verdict` speaks.
    """

    HOLDS = "holds on our data"
    FAILS = "does not hold on our data"
    OPEN = "not decided"
    UNTESTED = "cannot be tested"


_MOST_TRIALS = 10_000_000
_USUAL_NARROWS = 0.5
NOTHING = IntervalEstimate(nan, nan, nan)
"""The number of a claim that is not tested."""


@dataclass(frozen=True)
class PaperClaim:
    """A statement of a paper, expressed as a range in which a measured number must lie."""

    section: str  # section of the paper
    statement: str  # the statement, in our words
    where: str = ""  # data set or setting on which it was tested
    quantity: str = ""  # name of the measured number
    # The measured number with its interval, which has width 0 for a closed form.
    interval: IntervalEstimate = NOTHING
    lowest: float = -inf  # smallest number that agrees with the claim
    highest: float = inf  # largest number that agrees with the claim
    trials: int = 0  # trials, models or samples of each run behind the number; 0 for a closed form
    why: str = ""  # why it cannot be tested; empty if it can
    # The width of the interval falls as (number of trials)^-narrows; it is 1 for a measured share of 0 or 1.
    narrows: float = _USUAL_NARROWS
    # Why it does not hold on our data, as further experiments showed: a sentence by the beginning of `where`.
    explanations: tuple[tuple[str, str], ...] = ()
    # Claims on which this one rests. If a premise fails, this claim cannot be tested; an undecided
    # premise changes nothing.
    premises: "tuple[PaperClaim, ...]" = ()

    def on(self, where: str, interval: IntervalEstimate, trials: int = 0, **details: Any) -> "PaperClaim":
        """Return the claim with the number that was measured on a data set or setting, and with further fields."""
        return replace(self, where=where, interval=interval, trials=trials, **details)

    @property
    def second_look(self) -> str:
        """The explanation of why it does not hold; empty if it holds, or if there is none."""
        if self.verdict is not ClaimVerdict.FAILS:
            return ""
        return next((text for where, text in self.explanations if self.where.startswith(where)), "")

    @property
    def untestable(self) -> str:
        """The reason why the claim cannot be tested; empty if it can."""
        failed = [premise for premise in self.premises if premise.verdict is ClaimVerdict.FAILS]
        return self.why or "; ".join(
            f"not so: {claim.statement} ({claim.quantity} {claim.interval.value:.3f}, {claim.interval.low:.3f} to "
            f"{claim.interval.high:.3f}, where {claim.range_text} would count)"
            for claim in failed
        )

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the interval of the measured number lies in the range that the claim predicts.

        HOLDS: it does. FAILS: it lies wholly outside. OPEN: it overlaps the range only in part, or is infinite.
        UNTESTED: the claim cannot be tested.
        """
        low = self.interval.low
        high = self.interval.high
        if self.untestable:
            return ClaimVerdict.UNTESTED
        if not (isfinite(low) and isfinite(high)):
            return ClaimVerdict.OPEN
        if self.lowest <= low and high <= self.highest:
            return ClaimVerdict.HOLDS
        return ClaimVerdict.FAILS if high < self.lowest or low > self.highest else ClaimVerdict.OPEN

    @property
    def trials_to_decide(self) -> int | None:
        """Number of trials per run that would decide an undecided claim if the estimate stays, or None.

        It is None if the claim is decided or untested, if the interval is unknown, or if at most ten million trials
        would not decide the claim.
        """
        value = self.interval.value
        low = self.interval.low
        high = self.interval.high
        if self.verdict is not ClaimVerdict.OPEN or not self.trials or not (isfinite(low) and isfinite(high)):
            return None
        if value < self.lowest:
            gaps = [(high - value, self.lowest - value)]
        elif value > self.highest:
            gaps = [(value - low, value - self.highest)]
        else:
            gaps = [(value - low, value - self.lowest), (high - value, self.highest - value)]
        if any(reach > 0 and gap <= 0 for reach, gap in gaps):
            return None
        factor = max(reach / gap for reach, gap in gaps if reach > 0)
        trials = ceil(self.trials * factor ** (1 / self.narrows))
        return trials if trials <= _MOST_TRIALS else None

    @property
    def range_text(self) -> str:
        """The range of numbers that agree with the claim, as text such as "at least 0.5"."""
        if self.why:
            return "no range"
        if self.lowest == -inf:
            return f"at most {self.highest:g}"
        return f"at least {self.lowest:g}" if self.highest == inf else f"{self.lowest:g} to {self.highest:g}"

    @property
    def note(self) -> str:
        """One line on the claim: its verdict, its statement, and its range or the reason why it cannot be tested.

        If the claim is undecided, the number of trials that would decide it follows, if known. The remark `second_look`
        comes last, if there is one.
        """
        if why := self.untestable:
            return f"{self.verdict}: {self.statement}; {why}"
        trials_to_decide = self.trials_to_decide
        decided = "" if trials_to_decide is None else f"; about {trials_to_decide:,} trials would decide"
        look = f"; {self.second_look}" if self.second_look else ""
        return f"{self.verdict}: {self.statement}; claimed: {self.range_text}{decided}{look}"

    def to_json(self) -> Mapping[str, Any]:
        """Return the claim as values for JSON, by name; infinite and missing numbers are None.

        `narrows` is left out if it has its usual value.
        """
        texts = {name: value for name, value in asdict(self).items() if isinstance(value, str)}
        texts["second_look"] = self.second_look
        ends = zip(("measured", "low", "high"), astuple(self.interval), strict=True)
        numbers = {name: finite(float(value)) for name, value in ends}
        details = {"claimed": self.range_text, "verdict": str(self.verdict), "trials_to_decide": self.trials_to_decide}
        unusual = {} if self.narrows == _USUAL_NARROWS else {"narrows": self.narrows}
        return texts | {"why": self.untestable} | numbers | details | {"trials": self.trials} | unusual


def read_claims(module: str) -> dict[str, PaperClaim]:
    """Return the claims of a paper's text, without numbers, from the table `claims.toml` beside a module.

    `module`: The `__file__` of the module.
    """
    tables = tomllib.loads(Path(module).with_name("claims.toml").read_text(encoding="utf-8"))
    return {key: _claim_of(**table) for key, table in tables.items()}


def _claim_of(fails: Sequence[Mapping[str, str]] = (), untested: str = "", **fields: Any) -> PaperClaim:
    explanations = tuple((look.get("where", ""), f"{look['cause']}: {look['why']}") for look in fails)
    return PaperClaim(**fields, why=untested, explanations=explanations)


def untested(claims: Mapping[str, PaperClaim]) -> list[PaperClaim]:
    """Return the claims that cannot be tested, whatever data are there."""
    return [claim for claim in claims.values() if claim.why]


def exact(value: float) -> IntervalEstimate:
    """Return an interval of width 0 for a number that is known exactly."""
    return IntervalEstimate(value, value, value)


def counted(claims: Sequence[PaperClaim]) -> Mapping[ClaimVerdict, int]:
    """Return the number of claims with each verdict, keyed by the verdict."""
    return {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in ClaimVerdict}


def difference(estimate: IntervalEstimate, other_estimate: IntervalEstimate) -> IntervalEstimate:
    """Return the difference of two independent numbers with its square-and-add interval (Newcombe 1998, method 10)."""
    value = estimate.value - other_estimate.value
    low = value - hypot(estimate.value - estimate.low, other_estimate.high - other_estimate.value)
    return IntervalEstimate(
        value, low, value + hypot(estimate.high - estimate.value, other_estimate.value - other_estimate.low)
    )


def said_of(verdict: ClaimVerdict, count: int) -> str:
    """Return a verdict as the end of a sentence whose subject is a number of claims, such as "hold on our data"."""
    several = {
        ClaimVerdict.HOLDS: "hold on our data",
        ClaimVerdict.FAILS: "do not hold on our data",
        ClaimVerdict.OPEN: "are not decided",
    }
    verdict_text = "is not decided" if verdict is ClaimVerdict.OPEN else str(verdict)
    return verdict_text if count == 1 else several.get(verdict, verdict_text)


def verdicts_said(claims: Sequence[PaperClaim]) -> str:
    """Return a sentence on how many claims hold, fail, are undecided, and cannot be tested."""
    count = counted(claims)
    tested = len(claims) - count[ClaimVerdict.UNTESTED]
    untested = count[ClaimVerdict.UNTESTED]
    suffix = f"; {untested} more cannot be tested" if untested else ""

    def told(verdict: ClaimVerdict) -> str:
        return f"{count[verdict]} {said_of(verdict, count[verdict])}"

    return (
        f"Of {tested} claims of the text that can be tested, {told(ClaimVerdict.HOLDS)}, "
        f"{told(ClaimVerdict.FAILS).removesuffix(' hold on our data')} and {told(ClaimVerdict.OPEN)}{suffix}."
    )
