"""The tests of a promise in words: their names, what a broken one has found, and where to look for its cause."""

from fl_audit.evidence.belief.family import TestName, TestResult
from fl_audit.evidence.belief.verdict import Judgement
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import capital, percent, uncapital

OF_NOISE = (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TENSOR)
"""The tests whose statistic is the measured over the promised noise."""

_BREACHES = {
    TestName.NOISE_TOTAL: "There is less noise than was promised",
    TestName.NOISE_ALONG_RECORD: "There is less noise than was promised, just where it has to hide the {unit}",
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
    return f"{breach(test, words)}: we measured {test.measured}; the promise was {test.promised}."


def breach(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found, in a phrase without numbers."""
    return _BREACHES[TestName(test.name)].format(unit=words.one)


def breach_in_short(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found with its number and the promised one, as short as it can be said."""
    if test.name not in OF_NOISE:
        return breach_text(test, words)
    where = {
        TestName.NOISE_TOTAL: "",
        TestName.NOISE_ALONG_RECORD: f", just where it has to hide the {words.one}",
        TestName.NOISE_TENSOR: f", on the {test.where}",
    }
    return f"The noise is {_share(test.statistic)} of what was promised{where[TestName(test.name)]}."


def _share(ratio: float) -> str:
    return "half" if abs(ratio - 0.5) < 0.005 else percent(ratio)


def strongest(found: Judgement) -> TestResult:
    """Return the broken test that a kept promise explains least."""
    return min(found.broken, key=lambda test: test.p_value / test.level)


def other_breaches(found: Judgement, words: UnitWords) -> str:
    """Return what the other broken tests have found, in a sentence; nothing where there is one."""
    others = [uncapital(breach(test, words)) for test in found.broken if test is not strongest(found)]
    return f"Also: {'; '.join(others)}." if others else ""


def remedy(test: TestResult) -> str:
    """Return where to look for the cause of a broken test, in a sentence."""
    return _REMEDIES[TestName(test.name)]


_SCALE = "Hold the standard deviation that is really added against noise multiplier times sensitivity, and see whether "
_REUSE = "See where the noise comes from: every round, world and tensor needs draws of its own, from a fresh state."
_REMEDIES = {
    TestName.NOISE_TOTAL: f"{_SCALE}the sensitivity is that of the neighbours named in the promise.",
    TestName.NOISE_ALONG_RECORD: f"{_SCALE}the sensitivity is that of the neighbours named in the promise.",
    TestName.NOISE_TENSOR: f"{_SCALE}every tensor of the model gets it.",
    TestName.DRIFT_ALONG_RECORD: "See whether every contribution is clipped, and counted once, before noise is added.",
    TestName.DRIFT_ALONG_GRADIENTS: "See whether every contribution is clipped, and what the sum is divided by.",
    TestName.REPEATED_NOISE: _REUSE,
    TestName.SHARED_OVER_WORLDS: _REUSE,
    TestName.SHARED_OVER_ROUNDS: _REUSE,
    TestName.SERIAL_CORRELATION: _REUSE,
    TestName.LOW_BITS: "Draw and add the noise in float32 or more, and round nothing before it is added.",
    TestName.SENSITIVITY: "See whether every contribution is clipped to the norm that the noise is scaled to.",
    TestName.SCORES: "Look for what is released beside the noised sum, and at the noise that is really added.",
}


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
