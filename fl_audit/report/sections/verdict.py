"""The verdict: what became of the promise, which test broke it, and what a verdict covers."""

import math
from dataclasses import dataclass
from typing import Any, assert_never

from fl_audit.evidence.belief.family import TestName
from fl_audit.evidence.belief.noise_estimate import BREACH
from fl_audit.evidence.belief.verdict import Judgement, Verdict, judge, judge_scores, unjudged
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Section
from fl_audit.report.test_words import (
    OF_NOISE,
    breach_in_short,
    detection_text,
    limit_text,
    measured_text,
    other_breaches,
    promised_text,
    scope_text,
    strongest,
    unjudged_scope,
)
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import capital, duration, number_text, one_in, plural, uncapital, whole_sentence

SECRET_SEED = "the challenger's secret"


@dataclass(frozen=True)
class VerdictNumbers:
    """The verdict.

    Parameters
    ----------
    verdict
        The verdict.
    scope
        What it covers, in words.
    judgement
        What it rests on; None where there was nothing to judge.
    words
        How the report speaks of what D and D' differ in.
    seconds_needed
        How long the worlds that would find a breach of 1.5 times the promise take at the speed of this run; None where
        its speed was not noted or no number of worlds would do.
    promised
        The promised epsilon; infinite where nothing was promised.
    detection
        How large a breach would have been found, in words.
    """

    verdict: Verdict
    scope: str
    judgement: Judgement | None
    words: UnitWords
    seconds_needed: float | None = None
    promised: float = math.inf
    detection: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the entries `verdict` and `scope`."""
        return {"verdict": str(self.verdict), "scope": self.scope}


@dataclass(frozen=True)
class Banner:
    """The verdict in a word, a line below it, and what it rests on."""

    word: str
    line: str
    basis: str = ""


def _measure(run: FinishedRun, _: Findings) -> VerdictNumbers:
    facts, promise = run.facts, run.facts.guarantee
    scores, targets = run.insider_scores, run.target_scores
    if promise is None or (scores is None and targets is None and not run.has_insider):
        return VerdictNumbers(unjudged(promise), unjudged_scope(promise), None, facts.words)
    said = (promise, facts.confidence)
    if targets is not None:
        found = judge_scores(targets.members, targets.nonmembers, *said)
    elif scores is not None:
        found = judge_scores(scores[run.bits], scores[~run.bits], *said)
    else:
        found = judge(run.measured, *said)
    needed = _seconds_needed(found, run)
    scope = scope_text(found, promise, facts.neighbour, SECRET_SEED, facts.words)
    detection = detection_text(found, promise, facts.words)
    return VerdictNumbers(found.verdict, scope, found, facts.words, needed, promise.epsilon, detection)


def _seconds_needed(found: Judgement, run: FinishedRun) -> float | None:
    speed, setup = run.timing.worlds_per_second, run.timing.setup_seconds
    if found.worlds_needed is None or not speed:
        return None
    return found.worlds_needed / speed + (setup or 0.0)


def banner(numbers: VerdictNumbers) -> Banner:
    """Return the large line of the verdict and the smaller lines below it."""
    found, words = numbers.judgement, numbers.words
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert found is not None, "only what was judged is violated"
            line = f"{breach_in_short(strongest(found), words)} {other_breaches(found, words)}".strip()
            return Banner("Violated", line, _level(found))
        case Verdict.CONSISTENT:
            assert found is not None, "only what was judged is consistent"
            line = f"None of {plural(len(found.tests), 'test')} contradicts the promise."
            return Banner("Consistent", f"{line} {_limits(found, words)}".strip(), _level(found))
        case Verdict.INCONCLUSIVE:
            assert found is not None, "only what was judged is inconclusive"
            why = "The trials cannot tell" if found.worlds_needed is None else "Too few trials to tell"
            line = f"{why}: {_too_little(numbers)}"
            return Banner("Inconclusive", f"{line} {worlds_needed_text(numbers)}", numbers.detection)
        case Verdict.NO_PROMISE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
            return Banner("No promise", line)
        case Verdict.NOT_AUDITED:
            return Banner("Not audited", "No insider took part; nothing was held against the promise.")
        case _:
            assert_never(numbers.verdict)


def judges_scores(found: Judgement) -> bool:
    """Whether nothing but scores was judged, by a bound that assumes nothing: its limit is the most it can show."""
    return any(test.name == TestName.SCORES for test in found.tests)


def _too_little(numbers: VerdictNumbers) -> str:
    """Return what an inconclusive run could have found, as what follows `Too few trials to tell`."""
    found = numbers.judgement
    assert found is not None, "only what was judged is inconclusive"
    if judges_scores(found) and found.limit_of_detection <= numbers.promised:
        most, promised = number_text(found.limit_of_detection, 3), number_text(numbers.promised, 3)
        return f"so few could show an epsilon of {most} at most, and {promised} is promised, so no breach can be seen."
    if not math.isfinite(found.limit_of_detection):
        return "no breach could have been found where it matters most, and none was elsewhere."
    return "only a gross breach could have been found, and none was."


def worlds_needed_text(numbers: VerdictNumbers) -> str:
    """Return how many worlds, and how much time, would find a breach of 1.5 times the promise, in a sentence."""
    found = numbers.judgement
    if found is None or found.worlds_needed is None:
        return "No number of worlds would find a breach here: choose another neighbour."
    time = "" if numbers.seconds_needed is None else f", about {duration(numbers.seconds_needed)} here,"
    if judges_scores(found):
        at_least = f"It takes {plural(found.worlds_needed, 'world')} at least"
        return f"{at_least}{time} to show one of {BREACH:g} times the promise."
    return f"{plural(found.worlds_needed, 'world')}{time} would find one of {BREACH:g} times the promise."


def _level(found: Judgement) -> str:
    tests = f"any of {plural(len(found.tests), 'test')}" if len(found.tests) > 1 else "this test"
    return f"A promise that is kept fails {tests} in at most {one_in(found.level)} audits."


def _limits(found: Judgement, words: UnitWords) -> str:
    """Return which breach would have been found: of the noise in total and along the record, or by scores."""
    by_name = {test.name: limit_text(test, words) for test in found.tests}
    total, along = by_name.get(TestName.NOISE_TOTAL), by_name.get(TestName.NOISE_ALONG_RECORD)
    if total and along:
        one = f"{capital(total)} would have been found"
        return f"{one}; in the one direction in which the two data sets differ, {along}."
    if along:
        return f"{capital(along)} would have been found."
    return whole_sentence(f"So many worlds could show {by_name[TestName.SCORES]}") if TestName.SCORES in by_name else ""


def _sentence(numbers: VerdictNumbers, _: RunContents) -> str:
    """Return what broke the promise: a report on a broken promise opens with it."""
    if numbers.judgement is None or not numbers.judgement.broken:
        return ""
    worst = strongest(numbers.judgement)
    short = uncapital(breach_in_short(worst, numbers.words))
    if worst.name not in OF_NOISE:
        return f"The promise was broken: {short}"
    measured, promised = measured_text(worst, numbers.words), promised_text(worst, numbers.words)
    return f"The promise was broken: {short} We measured {measured}; the promise was {promised}."


def _closing(numbers: VerdictNumbers, contents: RunContents) -> str:
    """Return the verdict and what it does not cover, in a few sentences."""
    found = numbers.judgement
    where = "this one example and this run only; it is no proof for other people's data or other attacks"
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert found is not None, "only what was judged is violated"
            text = (
                f"Our verdict: broken. Where a promise is kept, so clear a sign comes up in at most "
                f"{one_in(found.level)} audits. The verdict is about this one example and this run; it does not say "
                "how much more others could learn."
            )
        case Verdict.CONSISTENT:
            assert found is not None, "only what was judged is consistent"
            limits = f"{_limits(found, numbers.words)} " if _limits(found, numbers.words) else ""
            text = f"Our verdict: nothing we saw contradicts the promise. {limits}That covers {where}."
        case Verdict.INCONCLUSIVE:
            text = (
                f"Our verdict is open: {_too_little(numbers)} {worlds_needed_text(numbers)} Even that covers {where}."
            )
        case Verdict.NO_PROMISE if contents.facts.game.randomiser is not None:
            return (
                "There was no promise of the training to test, so there is no verdict. What protects the records in "
                "these models is what their owners did to them, and no more."
            )
        case Verdict.NO_PROMISE:
            return (
                "There was no promise to test, so there is no verdict. These models must not pass for protected ones."
            )
        case Verdict.NOT_AUDITED:
            text = "We came to no verdict: no insider took part, so nothing was held against the promise."
        case _:
            assert_never(numbers.verdict)
    if contents.facts.is_private_release:
        return text
    return f"{text} The models of this run are test pieces and must not be handed out: their noise depends on the data."


VERDICT = Section(
    numbers=VerdictNumbers, keys=("verdict", "scope"), measure=_measure, sentence=_sentence, closing=_closing
)
