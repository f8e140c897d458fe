"""The tests of a promise in words: one table of what each asks, measured, would have found, and what to do about it.

Evidence returns numbers; whoever shows a test reads it here.
"""

import math
from dataclasses import dataclass

from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, TestName, TestResult
from fl_audit.evidence.belief.noise_estimate import (
    BREACH,
    epsilon_at,
    law_in_words,
)
from fl_audit.evidence.belief.verdict import Judgement, depends_on_secret
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.report.units import UnitWords
from fl_audit.report.wording import capital, number_text, percent, plural, times

OF_NOISE = (TestName.NOISE_TOTAL, TestName.NOISE_ALONG_RECORD, TestName.NOISE_TENSOR)
"""The tests whose statistic is the measured over the promised noise."""

_SCALE = "Hold the standard deviation that is really added against noise multiplier times sensitivity, and see whether "
_NEIGHBOURS = f"{_SCALE}the sensitivity is that of the neighbours named in the promise."
_REUSE = "See where the noise comes from: every round, world and tensor needs draws of its own, from a fresh state."
_NORMAL = "See how the noise is drawn: it must be normal, neither cut off nor replaced by another law."
_PRECISE = "Draw and add the noise in float32 or more, and round nothing before it is added."
_BLIND = "Look for what reads the data before it sets the scale of the noise: the noise may not depend on them."
_CLIPPED = "See whether every contribution is clipped, and what the sum is divided by."


@dataclass(frozen=True)
class TestWords:
    """What is said of one test. Texts are templates over the numbers of a `TestResult` and the words for the unit.

    Parameters
    ----------
    title
        What it looks at.
    breach
        What it has found where the promise is broken, for a reader who does not know the test.
    measured, promised
        What was measured, and what the claim says of it.
    limit
        What would have been found in 9 of 10 runs.
    remedy
        Where to look for the cause.
    """

    __test__ = False  # it is no test of pytest's

    title: str
    breach: str
    measured: str
    promised: str
    limit: str
    remedy: str


_LESS = "noise {limit:percent} below the promise"
_WORDS: dict[TestName, TestWords] = {
    TestName.NOISE_TOTAL: TestWords(
        "noise in all directions but the {one}'s",
        "There is less noise than was promised",
        "{measured:times} times the claimed noise over all parameters",
        "the claimed noise or more", _LESS, _NEIGHBOURS,
    ),
    TestName.NOISE_ALONG_RECORD: TestWords(
        "noise along {direction}",
        "There is less noise than was promised, just where it has to hide the {one}",
        "{measured:times} times the claimed noise along {direction}",
        "the claimed noise or more", _LESS, _NEIGHBOURS,
    ),
    TestName.NOISE_TENSOR: TestWords(
        "noise on each parameter tensor",
        "A part of the model gets less noise than was promised",
        "{measured:times} times the claimed noise on the tensor '{place}'",
        "the claimed noise on each of {places:count} tensors",
        f"{_LESS} on the tensor that shows it least, {{best_limit:percent}} on the one that shows it best",
        f"{_SCALE}every tensor of the model gets it.",
    ),
    TestName.NOISE_PLACE: TestWords(
        "noise on single coordinates and classes of them",
        "A few coordinates of the model get less noise than was promised",
        "{measured:times} times the claimed noise at {place}",
        "the claimed noise at each of {places:count} places",
        f"{_LESS} at any one of them, {{best_limit:percent}} at the best",
        f"{_SCALE}every coordinate of the model gets it.",
    ),
    TestName.NOISE_ROUND: TestWords(
        "noise in single rounds",
        "A round has less noise than was promised",
        "{measured:times} times the claimed noise in {place}",
        "the claimed noise in every round of every world",
        f"{_LESS} in any round of any world, {{best_limit:percent}} in a round of all worlds",
        f"{_SCALE}every round gets it.",
    ),
    TestName.SHAPE: TestWords(
        "shape of the noise",
        "The noise is not normal, as was promised",
        "a distribution that is {measured:percent} off the normal one at its worst{at_place}",
        "the normal distribution",
        "a distribution {limit:percent} off the normal one", _NORMAL,
    ),
    TestName.TAILS: TestWords(
        "tails of the noise",
        "The noise has other tails than the normal noise that was promised",
        "{measured:percent} of the noise beyond {deviations:number} standard deviations",
        "{promised:percent}",
        "{limit:percent} more or less than that", _NORMAL,
    ),
    TestName.SUPPORT: TestWords(
        "largest noise",
        "The noise never leaves a range that normal noise leaves, or leaves it too far",
        "a largest noise of {measured:number} standard deviations among {values:count}",
        "about {promised:number}",
        "noise that is cut off anywhere below {limit:number} standard deviations", _NORMAL,
    ),
    TestName.SHAPE_ALONG_RECORD: TestWords(
        "shape of the noise along {direction}",
        "The noise is not normal just where it has to hide the {one}",
        "a distribution that is {measured:percent} off the normal one at its worst, {beyond:percent} beyond 3 standard "
        "deviations and a largest of {largest:number}",
        "the normal distribution",
        "a distribution {limit:percent} off the normal one", _NORMAL,
    ),
    TestName.DRIFT_ALONG_RECORD: TestWords(
        "shift along {direction}",
        "The released sums are shifted in the direction that gives the {one} away",
        "noise along {direction} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round",
        "See whether every contribution is clipped, and counted once, before noise is added.",
    ),
    TestName.DRIFT_ALONG_GRADIENTS: TestWords(
        "shift along {others}",
        "The released sums are not made as was promised: clipping or scaling differs",
        "noise along {others} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round", _CLIPPED,
    ),
    TestName.REPEATED_NOISE: TestWords(
        "the same noise used twice",
        "The same noise was used more than once",
        "a largest cosine of {measured:number} among {pairs:count} pairs of noise vectors, between {place}",
        "independent noise, which hardly ever passes {promised:number}",
        "noise that was used twice, also where it is altered up to a cosine of {limit:number}", _REUSE,
    ),
    TestName.EQUAL_VALUES: TestWords(
        "equal values of the noise",
        "Noise was copied from one place of the run to another",
        "{measured:count} pairs of noise values that agree to {close:number} standard deviations",
        "about {promised:count}",
        "copies that make up {limit:percent} of the noise looked at", _REUSE,
    ),
    TestName.COPIED_PLACES: TestWords(
        "copies between coordinates",
        "Coordinates of the model share noise that should be independent",
        "a largest correlation of {measured:number}, between {place}",
        "no correlation between {places:count} coordinates",
        "two coordinates with a correlation of {limit:number}", _REUSE,
    ),
    TestName.JOINT_PLACES: TestWords(
        "dependence between coordinates",
        "The coordinates of the noise depend on each other",
        "a correlation of {measured:number} between coordinates, on average over {pairs:count} pairs",
        "{promised:number}, as independent noise has by chance",
        "a correlation of {limit:number} between all coordinates", _REUSE,
    ),
    TestName.SHIFTED_COPIES: TestWords(
        "copies at a shift",
        "Noise comes back later, or beside its place",
        "a correlation of {measured:signed} with itself shifted by {place}",
        "no correlation at any of {shifts:count} shifts",
        "a correlation of {limit:number} at any shift", _REUSE,
    ),
    TestName.SHARED_OVER_WORLDS: TestWords(
        "noise that worlds have in common",
        "Repetitions of the training share noise that should be independent",
        "sums over worlds with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all worlds that makes up {limit:percent} of the variance", _REUSE,
    ),
    TestName.SHARED_OVER_ROUNDS: TestWords(
        "noise that rounds have in common",
        "The rounds share noise that should be independent",
        "sums over rounds with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all rounds that makes up {limit:percent} of the variance", _REUSE,
    ),
    TestName.SERIAL_CORRELATION: TestWords(
        "dependence of consecutive rounds",
        "The noise of one round tells something of the next",
        "a correlation of {measured:signed} between the noise of rounds in a row",
        "no correlation",
        "a correlation of {limit:number} between rounds in a row", _REUSE,
    ),
    TestName.LOW_BITS: TestWords(
        "low bits of the noise",
        "The noise has too few digits to hide what lies below them",
        "low bits of the {place} that agree to {measured:percent}",
        "low bits that agree to 0 %, as those of continuous noise do",
        "noise with 11 significant bits in {limit:percent} of the coordinates looked at", _PRECISE,
    ),
    TestName.GRID: TestWords(
        "grid of the noise",
        "The noise lies on a grid, between whose points nothing is hidden",
        "noise that lies to {measured:percent} on a grid of {step:number} standard deviations {place}",
        "noise on no grid",
        "noise of which {limit:percent} lies on any grid from {finest:number} standard deviations up", _PRECISE,
    ),
    TestName.SENSITIVITY: TestWords(
        "sensitivities within the claim",
        "The {one} made a larger difference than the promise allows for",
        "a largest sensitivity of {measured:number} times the claimed one, in {place}",
        "at most the claimed one",
        "any sensitivity above the claim that occurred",
        "See whether every contribution is clipped to the norm that the noise is scaled to.",
    ),
    TestName.SECRET_TOTAL: TestWords(
        "noise with D against noise with D'",
        "The noise depends on the secret: its size alone tells the two data sets apart",
        "{measured:times} times as much noise with D as with D'",
        "the same noise with either",
        "noise {limit:percent} larger with one than with the other", _BLIND,
    ),
    TestName.SECRET_PLACE: TestWords(
        "noise with D against noise with D', part by part",
        "The noise of a part of the model depends on the secret",
        "{measured:times} times as much noise with D as with D' on {place}",
        "the same noise with either on each of {places:count} parts",
        "noise {limit:percent} larger with one than with the other", _BLIND,
    ),
    TestName.SECRET_ALONG_RECORD: TestWords(
        "noise along {direction}, with D against D'",
        "The noise depends on the secret, just where it has to hide the {one}",
        "{measured:times} times as much noise with D as with D' along {direction}",
        "the same noise with either",
        "noise {limit:percent} larger with one than with the other", _BLIND,
    ),
    TestName.DISTINGUISHER: TestWords(
        "learned distinguisher of D and D'",
        "The noise depends on the secret: a rule learned on some worlds tells others apart",
        "a learned rule that ranks {measured:percent} of pairs of unseen worlds rightly",
        "{promised:percent}, as guessing does",
        "a rule that ranks {limit:percent} rightly", _BLIND,
    ),
    TestName.SCORES: TestWords(
        "epsilon that the insider's scores certify",
        "The insider told the two data sets apart more often than the promise allows",
        "scores that certify an epsilon of at least {measured:number} at delta {delta:number}",
        "an epsilon of at most {promised:number}",
        "an epsilon of {limit:number} at most, and only with scores that separate perfectly",
        "Look for what is released beside the noised sum, and at the noise that is really added.",
    ),
}  # fmt: skip

_MISSING = {
    Missing.NOT_MEASURED: "The noise was not measured everywhere: the model or what clients see does not let it.",
    Missing.NO_DIFFERENCE: "D and D' differed by less than a billionth of the noise in every round.",
    Missing.NO_OTHER_DIRECTION: "No direction but that in which D and D' differ is left.",
    Missing.NO_DIRECTIONS: "The model has too few parameters to project the noise.",
    Missing.NO_NOISE: "There is no noise at the places looked at.",
    Missing.MORE_NOISE: "There is more noise than was promised, which breaks no promise and hides its shape here.",
    Missing.NO_SHARED_SUM: "The contributions that D and D' share are 0 in every round.",
    Missing.ONE_WORLD: "There is one world: no other can share its noise.",
    Missing.ONE_ROUND: "There is one round: none follows it.",
    Missing.ONE_SIDE: "All worlds hold the same data set.",
    Missing.TOO_FEW: "There are too few worlds, rounds or parameters to tell anything from chance.",
    Missing.ROUNDING: "The rounding of 32-bit numbers hides so fine a structure.",
    Missing.SCORES_ALONE: "What the insider sees has no law that it could weigh exactly: its scores alone are judged.",
}


class _Number(float):
    """A number that a template formats by the name of a way to write it."""

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


def _filled(template: str, test: TestResult, words: UnitWords) -> str:
    numbers = {"measured": test.measured, "promised": test.promised, "limit": test.limit, **test.more}
    at_place = f", on '{test.place}'" if test.place else ""
    return template.format(
        **{name: _Number(value) for name, value in numbers.items()},
        place=test.place, at_place=at_place, one=words.one, direction=words.direction, others=words.others,
    )  # fmt: skip


def title_of(name: TestName, words: UnitWords) -> str:
    """Return the name of a test in words."""
    return capital(_WORDS[name].title.format(direction=words.direction, one=words.one, others=words.others))


def why_missing(reason: Missing) -> str:
    """Return why a test has nothing to say about a run, in a sentence."""
    return _MISSING[reason]


def measured_text(test: TestResult, words: UnitWords) -> str:
    """Return what was measured, in a phrase."""
    return _filled(_WORDS[test.name].measured, test, words)


def promised_text(test: TestResult, words: UnitWords) -> str:
    """Return what the claim says of it, in a phrase."""
    return _filled(_WORDS[test.name].promised, test, words)


def limit_text(test: TestResult, words: UnitWords) -> str:
    """Return what would have been found in 9 of 10 runs, in a phrase; nothing where no size can be said."""
    return "" if math.isnan(test.limit) else _filled(_WORDS[test.name].limit, test, words)


def breach(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found, in a phrase without numbers."""
    return _WORDS[test.name].breach.format(one=words.one)


def breach_text(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found, with what was measured and what was promised, in a sentence."""
    said = f"we measured {measured_text(test, words)}; the promise was {promised_text(test, words)}."
    return f"{breach(test, words)}: {said}"


def breach_in_short(test: TestResult, words: UnitWords) -> str:
    """Return what a broken test has found with its number and the promised one, as short as it can be said."""
    if test.name not in OF_NOISE:
        return breach_text(test, words)
    where = {
        TestName.NOISE_TOTAL: "",
        TestName.NOISE_ALONG_RECORD: f", just where it has to hide the {words.one}",
        TestName.NOISE_TENSOR: f", on the tensor '{test.place}'",
    }
    share = "half" if abs(test.statistic - 0.5) < 0.005 else percent(test.statistic)
    return f"The noise is {share} of what was promised{where[test.name]}."


def strongest(found: Judgement) -> TestResult:
    """Return the broken test to lead with: one that says the noise depends on the secret, else the least likely one.

    Noise that depends on the secret is no matter of degree, so it comes first even where another test is clearer.
    """
    about_secret = [test for test in found.broken if test.name.is_about_secret]
    missing = [test for test in found.broken if test.name in OF_NOISE]
    first = about_secret if about_secret and not missing else found.broken
    return min(first, key=lambda test: test.p_value / test.level)


def remedy(test: TestResult) -> str:
    """Return where to look for the cause of a broken test, in a sentence."""
    return _WORDS[test.name].remedy


def excess_text(found: Judgement, guarantee: Guarantee) -> str:
    """Return what noise above the promise costs, in sentences; nothing where there is none beyond doubt.

    Nothing either where the noise depends on the secret: such a surplus is not harmless.
    """
    excess = found.noise.excess
    if excess is None or depends_on_secret(found):
        return ""
    return (
        f"The noise is {times(excess.ratio)} times ({times(excess.low)} to {times(excess.high)}) what was promised. "
        f"That alone breaks no promise, and it gives accuracy away: with {percent(1 - 1 / excess.ratio)} less noise "
        f"the promise would still be kept. What is really added keeps an epsilon of {excess.kept:.4g} instead of "
        f"{excess.promised:.4g}, both by the {law_in_words(guarantee.claim)} at delta {guarantee.delta:g}."
    )


def detection_text(found: Judgement, guarantee: Guarantee, words: UnitWords) -> str:
    """Return how large a breach of epsilon would have been found, and with how many worlds, in sentences."""
    if found.tests and found.tests[0].name is TestName.SCORES:
        return f"So many worlds could show {limit_text(found.tests[0], words)}."
    if found.worlds_needed is None:
        return "D and D' hardly differed in any round, so no breach of epsilon could have been found there."
    kept = epsilon_at(guarantee.claim, 1.0)
    said = (
        "Along the direction in which D and D' differ, noise so small that epsilon is "
        f"{found.limit_of_detection:.3g} would have been found with probability {DETECTION_POWER:g}, where the claimed "
        f"noise keeps {kept:.3g} ({law_in_words(guarantee.claim)}, delta {guarantee.delta:g}) and "
        f"{guarantee.epsilon:.3g} is promised."
    )
    worlds = plural(found.worlds_needed, "world")
    if found.conclusive:
        return f"{said} {worlds} would be enough to find a breach of {BREACH:g} times the promise."
    more = f"{worlds} with as many rounds would find one of {BREACH:g} times the promise."
    return f"{said} That is too little to tell: {more}"


def scope_text(found: Judgement, guarantee: Guarantee, neighbour: str, seed: str, words: UnitWords) -> str:
    """Return what a verdict covers and what not, in sentences."""
    return (
        f"A verdict covers this pair of neighbouring training sets ({neighbour}) and this seed ({seed}) only; other "
        f"neighbours, other data and other seeds were not tried. {detection_text(found, guarantee, words)} A smaller "
        "breach may pass."
    )


def unjudged_scope(guarantee: Guarantee | None) -> str:
    """Return the scope of a run without the insider, in sentences."""
    rest = "What was measured of the released models, from their outputs and losses, is no test of a promise."
    if guarantee is None:
        return f"The models were trained without clipping and noise: nothing was promised. {rest}"
    return f"No insider took part, so nothing was held against the promise. {rest}"
