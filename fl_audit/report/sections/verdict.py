"""The verdict: what became of the promise, which test broke it, and what a verdict covers."""

from dataclasses import dataclass
from typing import Any

from fl_audit.evidence.belief.family import TestName, TestResult
from fl_audit.evidence.belief.verdict import Judgement, Verdict, judge, judge_scores, unjudged
from fl_audit.report.contents import Findings, RunContents
from fl_audit.report.finished_run import FinishedRun
from fl_audit.report.section import Section
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import capital, one_in, plural, whole_sentence

SECRET_SEED = "the challenger's secret"
_OF_MANY_TARGETS = (
    "In the game of membership the log-odds of one target a world are judged: all targets of a world share its noise."
)


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
    """

    verdict: Verdict
    scope: str
    judgement: Judgement | None
    words: UnitWords

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
        return VerdictNumbers(*unjudged(promise), None, facts.words)
    said = (promise, facts.confidence, facts.neighbour, SECRET_SEED)
    if targets is not None:
        found = judge_scores(targets.members, targets.nonmembers, *said, _OF_MANY_TARGETS)
    elif scores is not None:
        found = judge_scores(scores[run.bits], scores[~run.bits], *said)
    else:
        found = judge(run.measured, *said)
    return VerdictNumbers(found.verdict, found.scope, found, facts.words)


def banner(numbers: VerdictNumbers) -> Banner:
    """Return the large line of the verdict and the smaller lines below it."""
    found = numbers.judgement
    match numbers.verdict:
        case Verdict.VIOLATED:
            assert found is not None, "only what was judged is violated"
            return Banner(
                "Violated", f"{_broken(found, numbers.words)} {_others(found, numbers.words)}".strip(), _level(found)
            )
        case Verdict.CONSISTENT:
            assert found is not None, "only what was judged is consistent"
            line = f"None of {plural(len(found.tests), 'test')} contradicts the promise."
            return Banner("Consistent", f"{line} {_limits(found)}".strip(), _level(found))
        case Verdict.INCONCLUSIVE:
            assert found is not None, "only what was judged is inconclusive"
            line = "Nothing contradicts the promise, but these trials are too few to tell."
            return Banner("Inconclusive", f"{line} {found.limit_text}", _level(found))
        case Verdict.NO_PROMISE:
            line = "These models were trained without clipping and noise; there is nothing to hold them to."
            return Banner("No promise", line)
        case Verdict.NOT_AUDITED:
            return Banner("Not audited", "No insider took part; nothing was held against the promise.")


_BREACHES = {
    TestName.NOISE_TOTAL: "There is less noise than was promised",
    TestName.NOISE_ALONG_RECORD: "There is less noise than was promised just where it has to hide the {unit}",
    TestName.NOISE_TENSOR: "A part of the model gets less noise than was promised",
    TestName.DRIFT_ALONG_RECORD: "The released sums are shifted in the direction that gives the {unit} away",
    TestName.DRIFT_ALONG_GRADIENTS: "The released sums are not made as was promised: clipping or scaling differs",
    TestName.REPEATED_NOISE: "The same noise was used more than once",
    TestName.SHARED_OVER_WORLDS: "Repetitions of the training share noise that should be independent",
    TestName.SHARED_OVER_ROUNDS: "The rounds share noise that should be independent",
    TestName.SERIAL_CORRELATION: "The noise of one round tells something of the next",
    TestName.LOW_BITS: "The noise has too few digits to hide what lies below them",
    TestName.SENSITIVITY: "The {unit} made a larger difference than the promise allows for",
    TestName.SCORES: "The insider told the two data sets apart more often than the promise allows",
}
"""What each test has found where it breaks the promise, for a reader who does not know the test."""


def breach_text(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found, with what was measured and what was promised, in a sentence."""
    return f"{_breach(test, words)}: we measured {test.measured}; the promise was {test.promised}."


def _breach(test: TestResult, words: UnitWords) -> str:
    return _BREACHES[TestName(test.name)].format(unit=words.one)


def _strongest(found: Judgement) -> TestResult:
    """Return the broken test that a kept promise explains least."""
    return min(found.broken, key=lambda test: test.p_value / test.level)


def _broken(found: Judgement, words: UnitWords) -> str:
    return breach_text(_strongest(found), words)


def _others(found: Judgement, words: UnitWords) -> str:
    others = [_breach(test, words) for test in found.broken if test is not _strongest(found)]
    return f"Also: {'. '.join(others)}." if others else ""


def _level(found: Judgement) -> str:
    tests = f"any of {plural(len(found.tests), 'test')}" if len(found.tests) > 1 else "this test"
    return f"A promise that is kept fails {tests} in at most {one_in(found.level)} audits."


def _limits(found: Judgement) -> str:
    """Return which breach would have been found: of the noise in total, or else along the record, or by scores."""
    by_name = {test.name: test.limit for test in found.tests if test.limit}
    first = (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.SCORES)
    limit = next((by_name[name] for name in first if name in by_name), "")
    return whole_sentence(limit)


def _sentence(numbers: VerdictNumbers, _: RunContents) -> str:
    """Return what broke the promise: a report on a broken promise opens with it."""
    if numbers.judgement is None or not numbers.judgement.broken:
        return ""
    return f"The promise was broken. {_broken(numbers.judgement, numbers.words)}"


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
            limits = f"{_limits(found)} " if _limits(found) else ""
            text = f"Our verdict: nothing we saw contradicts the promise. {limits}That covers {where}."
        case Verdict.INCONCLUSIVE:
            text = (
                "Our verdict is open: nothing we saw contradicts the promise, but with so few trials only a gross "
                f"breach would have shown. Even that covers {where}."
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
    if contents.facts.is_private_release:
        return text
    return f"{text} The models of this run are test pieces and must not be handed out: their noise depends on the data."


def title_of(name: str, words: UnitWords) -> str:
    """Return the name of a test in words."""
    return capital(_TITLES[TestName(name)].format(direction=words.direction, one=words.one, others=words.others))


_TITLES = {
    TestName.NOISE_TOTAL: "noise in all directions but the {one}'s",
    TestName.NOISE_ALONG_RECORD: "noise along {direction}",
    TestName.NOISE_TENSOR: "noise on each parameter tensor",
    TestName.DRIFT_ALONG_RECORD: "shift along {direction}",
    TestName.DRIFT_ALONG_GRADIENTS: "shift along {others}",
    TestName.REPEATED_NOISE: "the same noise used twice",
    TestName.SHARED_OVER_WORLDS: "noise that worlds have in common",
    TestName.SHARED_OVER_ROUNDS: "noise that rounds have in common",
    TestName.SERIAL_CORRELATION: "dependence of consecutive rounds",
    TestName.LOW_BITS: "low bits of the noise",
    TestName.SENSITIVITY: "sensitivities within the claim",
    TestName.SCORES: "epsilon that the insider's scores certify",
}


VERDICT = Section(
    numbers=VerdictNumbers, keys=("verdict", "scope"), measure=_measure, sentence=_sentence, closing=_closing
)
