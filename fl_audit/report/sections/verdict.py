"""The verdict: whether what the insider saw contradicts the promise, and what that covers."""

import math
from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.verdict import Verdict, VerdictResult, judge, unjudged
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Section
from fl_audit.report.wording import number_text, one_in, plural


@dataclass(frozen=True)
class VerdictNumbers:
    """The verdict.

    Parameters
    ----------
    verdict
        The verdict.
    scope
        What it covers, in words.
    result
        What it rests on; None where there was nothing to judge.
    worlds
        Number of trials.
    """

    verdict: Verdict
    scope: str
    result: VerdictResult | None
    worlds: int

    def to_json(self) -> dict[str, Any]:
        """Return the entries `verdict` and `scope`."""
        return {"verdict": str(self.verdict), "scope": self.scope}

    @property
    def could_show_breach(self) -> bool:
        """Whether the run had worlds enough to show any breach, that is, whether its limit of detection is finite."""
        return self.result is not None and math.isfinite(self.result.limit_of_detection)


@dataclass(frozen=True)
class Banner:
    """The verdict in a word, a line below it, and what it rests on."""

    word: str
    line: str
    basis: str


def _measure(run: FinishedRun, _: Findings) -> VerdictNumbers:
    facts, promise = run.facts, run.facts.guarantee
    if promise is None or not run.has_insider:
        verdict, scope = unjudged(promise)
        return VerdictNumbers(verdict, scope, None, run.worlds)
    result = judge(
        run.log_odds[run.bits],
        run.log_odds[~run.bits],
        promise,
        facts.confidence,
        facts.neighbour,
        "which only the challenger knows",
        facts.scaling,
    )
    return VerdictNumbers(result.verdict, result.scope, result, run.worlds)


def banner(numbers: VerdictNumbers) -> Banner:
    """Return the large line of the verdict and the smaller lines below it."""
    result = numbers.result
    basis = (
        ""
        if result is None
        else f"Method: {result.method}, at level {number_text(result.violation_level)}. Assumption: {result.assumption}"
    )
    match numbers.verdict:
        case Verdict.VIOLATED:
            return Banner("Violated", "What the insider learned contradicts the promise.", basis)
        case Verdict.CONSISTENT:
            blind = "" if numbers.could_show_breach else " But no breach could have shown: too few worlds."
            return Banner("Consistent", f"Nothing the insider learned contradicts the promise.{blind}", basis)
        case Verdict.NO_PROMISE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
            return Banner("No promise", line, basis)
        case Verdict.NOT_AUDITED:
            line = "No insider took part; nothing was held against the promise."
            return Banner("Not audited", line, basis)


def _closing(numbers: VerdictNumbers, contents: RunContents) -> str:
    """Return the verdict and what it does not cover, in a few sentences."""
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert numbers.result is not None
            text = (
                "Our verdict: the promise was broken. The insider learned more than it allows; where the promise is "
                f"kept, so clear a sign has a chance of at most {one_in(numbers.result.violation_level)}. The "
                "verdict is about this one example and this run; it does not say how much more others could learn."
            )
        case Verdict.CONSISTENT:
            text = f"Our verdict: nothing we saw contradicts the promise. {_not_covered(numbers)}"
        case Verdict.NO_PROMISE:
            return (
                "There was no promise to test, so there is no verdict. These models must not pass for protected ones."
            )
        case Verdict.NOT_AUDITED:
            text = "We came to no verdict: no insider took part, so nothing was held against the promise."
    if contents.facts.is_private_release:
        return text
    return f"{text} The models of this run are test pieces and must not be handed out: their noise depends on the data."


def _not_covered(numbers: VerdictNumbers) -> str:
    where = "That covers this one example and this run only; it is no proof for other people's data or other attacks"
    if not numbers.could_show_breach:
        return f"{where}, and with so few trials no breach could have shown."
    return f"{where}, nor against leaks too small to show in {plural(numbers.worlds, 'trial')}."


VERDICT = Section(numbers=VerdictNumbers, keys=("verdict", "scope"), measure=_measure, closing=_closing)
