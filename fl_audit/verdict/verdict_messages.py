"""Define the message templates of all tests of a guarantee, and put test results into words for a report."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fl_audit.array_types import finite
from fl_audit.report.formatting import UnitWords, capital, number_text, one_in, percent, times
from fl_audit.verdict.declared_tests import OF_NOISE, NotTestedReason, TestName, TestResult, leading_first
from fl_audit.verdict.opened_secret_messages import MORE_WORDS
from fl_audit.verdict.remedies import BLIND, CLIPPED, LESS, NEIGHBOURS, NORMAL, PRECISE, REUSE, SCALE
from fl_audit.verdict.signal_messages import SIGNAL_WORDS
from fl_audit.verdict.verdict import VerdictDetails


@dataclass(frozen=True)
class TestMessageTemplates:
    """Message templates of one test, with fields such as "{measured:percent}" and "{one}", the word for the unit."""

    __test__ = False  # it is no test of pytest's

    title: str  # title of the test
    breach: str  # the breach that a failed test has found, for a reader who does not know the test
    measured: str  # the measured value
    claimed: str  # the claimed value
    limit: str  # the smallest breach that is found in 9 of 10 runs
    remedy: str  # where to look for the cause of a breach


TEST_WORDS: dict[TestName, TestMessageTemplates] = {
    TestName.NOISE_TOTAL: TestMessageTemplates(
        "noise where it does not hide the {one}",
        "There is less noise than was claimed",
        "{measured:times} times the claimed noise over all parameters",
        "the claimed noise or more", LESS, NEIGHBOURS,
    ),
    TestName.NOISE_ALONG_RECORD: TestMessageTemplates(
        "noise where it hides the {one}",
        "There is less noise than was claimed, just where it has to hide the {one}",
        "{measured:times} times the claimed noise where it hides the {one}",
        "the claimed noise or more", LESS, NEIGHBOURS,
    ),
    TestName.NOISE_TENSOR: TestMessageTemplates(
        "noise on each parameter tensor",
        "A part of the model gets less noise than was claimed",
        "{measured:times} times the claimed noise on the tensor '{place}'",
        "the claimed noise on each of {places:count} tensors",
        f"{LESS} on the tensor that shows it least, {{best_limit:percent}} on the one that shows it best",
        f"{SCALE}every tensor of the model gets it.",
    ),
    TestName.NOISE_PLACE: TestMessageTemplates(
        "noise on single coordinates and classes of them",
        "A few coordinates of the model get less noise than was claimed",
        "{measured:times} times the claimed noise at {place}",
        "the claimed noise at each of {places:count} places",
        f"{LESS} at any one of them, {{best_limit:percent}} at the best",
        f"{SCALE}every coordinate of the model gets it.",
    ),
    TestName.NOISE_ROUND: TestMessageTemplates(
        "noise in single rounds",
        "A round has less noise than was claimed",
        "{measured:times} times the claimed noise in {place}",
        "the claimed noise in every round of every trial",
        f"{LESS} in any round of any trial, {{best_limit:percent}} in a round of all trials",
        f"{SCALE}every round gets it.",
    ),
    TestName.SHAPE: TestMessageTemplates(
        "shape of the noise",
        "The noise is not normal, as was claimed",
        "a distribution that is {measured:percent} off the normal one at its worst{at_place}",
        "the normal distribution",
        "a distribution {limit:percent} off the normal one over all parameters", NORMAL,
    ),
    TestName.TAILS: TestMessageTemplates(
        "tails of the noise",
        "The noise has other tails than the normal noise that was claimed",
        "{measured:percent} of the noise beyond {deviations:number} standard deviations",
        "{claimed:percent}",
        "{limit:percent} more or less than that", NORMAL,
    ),
    TestName.SUPPORT: TestMessageTemplates(
        "largest noise",
        "The noise never leaves a range that normal noise leaves, or leaves it too far",
        "a largest noise of {measured:number} standard deviations among {values:count}",
        "about {claimed:number}",
        "noise that is cut off anywhere below {limit:number} standard deviations", NORMAL,
    ),
    TestName.SHAPE_ALONG_RECORD: TestMessageTemplates(
        "shape of the noise where it hides the {one}",
        "The noise is not normal just where it has to hide the {one}",
        "a distribution that is {measured:percent} off the normal one at its worst, {beyond:percent} beyond 3 standard "
        "deviations and a largest of {largest:number}",
        "the normal distribution",
        "a distribution {limit:percent} off the normal one", NORMAL,
    ),
    TestName.DRIFT_ALONG_RECORD: TestMessageTemplates(
        "shift where it hides the {one}",
        "The released sums are shifted just so that they give the {one} away",
        "noise where it hides the {one} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round",
        "See whether every contribution is clipped, and counted once, before noise is added.",
    ),
    TestName.DRIFT_ALONG_GRADIENTS: TestMessageTemplates(
        "shift along {others}",
        "The released sums are not made as was claimed: clipping or scaling differs",
        "noise along {others} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round", CLIPPED,
    ),
    TestName.REPEATED_NOISE: TestMessageTemplates(
        "the same noise used twice",
        "The same noise was used more than once",
        "a largest cosine of {measured:number} among {pairs:count} pairs of noise vectors, between {place}",
        "independent noise, which hardly ever passes {claimed:number}",
        "noise that was used twice, also where it is altered up to a cosine of {limit:number}", REUSE,
    ),
    TestName.EQUAL_VALUES: TestMessageTemplates(
        "equal values of the noise",
        "Noise was copied from one place of the run to another",
        "{measured:count} pairs of noise values that agree to {close:number} standard deviations",
        "about {claimed:count}",
        "copies that make up {limit:percent} of the noise looked at", REUSE,
    ),
    TestName.COPIED_PLACES: TestMessageTemplates(
        "copies between coordinates",
        "Coordinates of the model share noise that should be independent",
        "a largest correlation of {measured:number}, between {place}",
        "no correlation between {places:count} coordinates",
        "two coordinates with a correlation of {limit:number}", REUSE,
    ),
    TestName.JOINT_PLACES: TestMessageTemplates(
        "dependence between coordinates",
        "The coordinates of the noise depend on each other",
        "a correlation of {measured:number} between coordinates, on average over {pairs:count} pairs",
        "{claimed:number}, as independent noise has by chance",
        "a correlation of {limit:number} between all coordinates", REUSE,
    ),
    TestName.SHIFTED_COPIES: TestMessageTemplates(
        "copies at a shift",
        "Noise comes back later, or beside its place",
        "a correlation of {measured:signed} with itself shifted by {place}",
        "no correlation at any of {shifts:count} shifts",
        "a correlation of {limit:number} at any shift", REUSE,
    ),
    TestName.SHARED_OVER_TRIALS: TestMessageTemplates(
        "noise that trials have in common",
        "Repetitions of the training share noise that should be independent",
        "sums over trials with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all trials that makes up {limit:percent} of the variance", REUSE,
    ),
    TestName.SHARED_OVER_ROUNDS: TestMessageTemplates(
        "noise that rounds have in common",
        "The rounds share noise that should be independent",
        "sums over rounds with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all rounds that makes up {limit:percent} of the variance", REUSE,
    ),
    TestName.SERIAL_CORRELATION: TestMessageTemplates(
        "dependence of consecutive rounds",
        "The noise of one round tells something of the next",
        "a correlation of {measured:signed} between the noise of rounds in a row",
        "no correlation",
        "a correlation of {limit:number} between rounds in a row", REUSE,
    ),
    TestName.LOW_BITS: TestMessageTemplates(
        "low bits of the noise",
        "The noise has too few digits to hide what lies below them",
        "low bits of the {place} with an agreement of {measured:percent}, where 100 % is all alike",
        "an agreement of 0 %, as the low bits of continuous noise have but for chance",
        "noise with 11 significant bits in {limit:percent} of the coordinates looked at", PRECISE,
    ),
    TestName.GRID: TestMessageTemplates(
        "grid of the noise",
        "The noise lies on a grid, between whose points nothing is hidden",
        "noise that lies to {measured:percent} on a grid of {step:number} standard deviations {place}",
        "noise on no grid",
        "noise of which {limit:percent} lies on any grid from {finest:number} standard deviations up", PRECISE,
    ),
    TestName.SENSITIVITY: TestMessageTemplates(
        "sensitivities within the claim",
        "The {one} made a larger difference than the guarantee allows for",
        "a largest sensitivity of {measured:number} times the claimed one, in {place}",
        "at most the claimed one",
        "any sensitivity above the claim that occurred",
        "See whether every contribution is clipped to the norm that the noise is scaled to.",
    ),
    TestName.SECRET_TOTAL: TestMessageTemplates(
        "noise {there} against noise {not_there}",
        "The noise depends on the secret: its size alone tells the two data sets apart",
        "{measured:times} times as much noise {there} as {not_there}",
        "the same noise with either",
        "noise {limit:percent} larger with one than with the other", BLIND,
    ),
    TestName.SECRET_PLACE: TestMessageTemplates(
        "noise {there} against noise {not_there}, part by part",
        "The noise of a part of the model depends on the secret",
        "{measured:times} times as much noise {there} as {not_there} on {place}",
        "the same noise with either on each of {places:count} parts",
        "noise {limit:percent} larger with one than with the other", BLIND,
    ),
    TestName.SECRET_ALONG_RECORD: TestMessageTemplates(
        "noise where it hides the {one}, {there} against {not_there}",
        "The noise depends on the secret, just where it has to hide the {one}",
        "{measured:times} times as much noise {there} as {not_there}, just where it has to hide the {one}",
        "the same noise with either",
        "noise {limit:percent} larger with one than with the other", BLIND,
    ),
    TestName.DISTINGUISHER: TestMessageTemplates(
        "rule learned to tell the two data sets apart",
        "The noise depends on the secret: a rule learned on some trials tells others apart",
        "a learned rule that ranks {measured:percent} of pairs of unseen trials rightly",
        "{claimed:percent}, as guessing does",
        "a rule that ranks {limit:percent} rightly", BLIND,
    ),
    TestName.SCORES: TestMessageTemplates(
        "epsilon that the insider's scores certify",
        "The insider told the two data sets apart more often than the guarantee allows",
        "scores that certify an epsilon of at least {measured:number} at delta {delta:number}",
        "an epsilon of at most {claimed:number}",
        "",
        "Look for what is released beside the noised sum, and at the noise that is really added.",
    ),
    TestName.CANDIDATES: TestMessageTemplates(
        "first guesses of the {one} among the candidates",
        "The attacker named the right {one} more often than the guarantee allows",
        "the right one of the candidates in {measured:percent} of {trials:count} trials",
        "at most {claimed:percent}",
        "a share of {limit:percent}",
        "Look for what is released beside the noised sum, and at the noise that is really added.",
    ),
    TestName.CANARIES: TestMessageTemplates(
        "epsilon that the canaries certify",
        "The canaries stand out from the noise more than the guarantee allows",
        "canaries that certify an epsilon of at least {measured:number} at delta {delta:number}",
        "an epsilon of at most {claimed:number}",
        "noise that leaves an epsilon of {limit:number}",
        "Look at the noise that is really added in a round, and at what accountants carry from round to round.",
    ),
    **{name: TestMessageTemplates(*parts) for name, parts in (SIGNAL_WORDS | MORE_WORDS).items()},
}  # fmt: skip
"""Message templates by test."""

MISSING_WORDS = {
    NotTestedReason.NOT_MEASURED: (
        "The noise was not measured everywhere: the model or what clients see does not allow it."
    ),
    NotTestedReason.NO_DIFFERENCE: "D and D' differed by less than a billionth of the noise in every round.",
    NotTestedReason.NO_OTHER_DIRECTION: "No direction but that in which D and D' differ is left.",
    NotTestedReason.NO_DIRECTIONS: "The model has too few parameters to project the noise.",
    NotTestedReason.NO_NOISE: "There is no noise at the places looked at.",
    NotTestedReason.MORE_NOISE: (
        "There is more noise than was claimed, which breaks no guarantee and hides its shape here."
    ),
    NotTestedReason.NO_SHARED_SUM: "The contributions that D and D' share are 0 in every round.",
    NotTestedReason.ONE_TRIAL: "There is one trial: no other can share its noise.",
    NotTestedReason.ONE_ROUND: "There is one round: none follows it.",
    NotTestedReason.ONE_SIDE: "All trials hold the same data set.",
    NotTestedReason.TOO_FEW: "There are too few trials, rounds or parameters to tell anything from chance.",
    NotTestedReason.ROUNDING: "The rounding of 32-bit numbers hides so fine a structure.",
    NotTestedReason.SCORES_ALONE: "What the insider sees has no distribution that it could weigh exactly: its scores "
    "alone are judged.",
    NotTestedReason.TARGETS_ALONE: (
        "Of many targets the log-odds alone are kept, and in each trial the noise along one target."
    ),
    NotTestedReason.NOT_OPENED: "Nothing was kept that could be opened, or the challenger's directory was not read.",
    NotTestedReason.NOT_SAMPLED: "Everybody takes part in every round, or a public order says who does.",
    NotTestedReason.NO_SHARES: "No client adds a share of the noise.",
    NotTestedReason.UNOPENED_SHARES: "The clients' shares of the noise were not opened.",
    NotTestedReason.NO_BITS: "The clipping norm is fixed: there are no quantile bits.",
    NotTestedReason.CANDIDATES_ALONE: (
        "Which of many candidates was in is guessed here: how often that is right is judged."
    ),
}
"""Sentence for each reason why a test was not made."""
_PLACES = {"standard-noise": "noise over the claimed one"}  # places whose names need other words in a report


class _Number(float):
    """A float with named formats (percent, times, signed, count) for use in message templates."""

    def __format__(self, way: str) -> str:
        value = float(self)
        match way:
            case "percent":
                return percent(value)
            case "times":
                return times(value)
            case "signed":
                return f"{value:+.3f}"
            case "count":
                return f"{value:,.0f}"
            case _:
                return number_text(value, 3)


@dataclass(frozen=True)
class TestMessage:
    """Put the result of one test into words."""

    test: TestResult  # the result of the test in numbers
    unit: UnitWords  # the report's words for the protected unit

    @cached_property
    def words(self) -> TestMessageTemplates:
        """Messages of the test with its numbers filled in.

        One message names the smallest breach that the test would find in 9 of 10 runs. It is empty if this limit is
        unknown (NaN), and "nothing" if it is infinite.
        """
        test = self.test
        numbers = {"measured": test.measured, "claimed": test.claimed, "limit": test.limit, **test.more}
        names = vars(self.unit) | {name: _Number(value) for name, value in numbers.items()}
        names |= {
            "place": _PLACES.get(test.place, test.place),
            "at_place": f", on '{test.place}'" if test.place else "",
            "with_place": f" ({test.place})" if test.place else "",
            "at_epsilon": _consequence(test),
        }
        limit = {} if math.isfinite(test.limit) else {"limit": "" if math.isnan(test.limit) else "nothing"}
        templates = vars(TEST_WORDS[test.name]) | limit
        return TestMessageTemplates(**{part: template.format(**names) for part, template in templates.items()})

    @property
    def title(self) -> str:
        """Title of the test, beginning with a capital letter."""
        return title_of(self.test.name, self.unit)

    @property
    def sentence(self) -> str:
        """A sentence on the breach that a failed test found, with the measured and the claimed value."""
        if self.test.name not in OF_NOISE:
            words = self.words
            return f"{words.breach}: we measured {words.measured}; the guarantee was {words.claimed}."
        where = {
            TestName.NOISE_TOTAL: "",
            TestName.NOISE_ALONG_RECORD: f", just where it has to hide the {self.unit.one}",
            TestName.NOISE_TENSOR: f", on the tensor '{self.test.place}'",
        }
        share = "half" if abs(self.test.statistic - 0.5) < 0.005 else percent(self.test.statistic)
        return f"The noise is {share} of what was claimed{where[self.test.name]}."

    @property
    def kind(self) -> str:
        """A string that is equal for tests that find the same kind of breach; a report names each kind once."""
        if self.test.name.is_about_secret:
            return "secret"
        return "noise" if self.test.name.startswith("noise") else self.words.remedy

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this test in `summary.json` as a dictionary."""
        test, words = self.test, self.words
        found = {"statistic": finite(test.statistic), "p_value": finite(test.p_value), "level": test.level}
        said = {"measured": words.measured, "claimed": words.claimed, "limit": words.limit}
        return {"name": str(test.name)} | found | said | {"where": test.place, "violated": test.violated}


def _consequence(test: TestResult) -> str:
    """Return a clause such as ": epsilon is 3.2 then, where 2 is claimed with Poisson amplification".

    The first epsilon is the one for the sampling that the test found. Empty if the test result contains no such
    epsilon.
    """
    if "epsilon" not in test.more:
        return ""
    real, claimed = (number_text(test.more[name], 3) for name in ("epsilon", "claimed"))
    return f": epsilon is {real} then, where {claimed} is claimed with Poisson amplification"


def title_of(name: TestName, unit: UnitWords) -> str:
    """Return the title of a test, beginning with a capital letter.

    Parameters
    ----------
    name
        Name of the test.
    unit
        Words with which the report names the protected unit, such as a record.
    """
    return capital(TEST_WORDS[name].title.format(**vars(unit)))


def broken_tests(found: VerdictDetails | None, unit: UnitWords) -> list[TestMessage]:
    """Return the failed tests in words, the clearest failure first; the list is empty if nothing was tested.

    Parameters
    ----------
    found
        Results of all tests of the run; None if nothing was tested.
    unit
        Words with which the report names the protected unit, such as a record.
    """
    return [] if found is None else [TestMessage(test, unit) for test in leading_first(found.broken)]


def p_text(p_value: float) -> str:
    """Return a p-value as text with two significant digits, or "under 1e-300" if it is smaller than that."""
    return f"{p_value:.2g}" if p_value >= 1e-300 else "under 1e-300"


def p_as_chance(p_value: float) -> str:
    """Return a p-value in words such as "1 in 2,000"; values under 1e-9 give an upper bound."""
    return f"< {one_in(1e-9)}" if p_value < 1e-9 else one_in(float(f"{p_value:.1g}"))
