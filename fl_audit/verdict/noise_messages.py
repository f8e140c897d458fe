"""Define message templates for tests of the noise, of its dependence on the secret, and of attack scores.

Each template is a tuple with the fields of `fl_audit.verdict.verdict_messages.TestMessageTemplates`, in their order.
"""

from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.remedies import BLIND, CLIPPED, LESS, NEIGHBOURS, NORMAL, REUSE, SCALE

NOISE_WORDS: dict[TestName, tuple[str, str, str, str, str, str]] = {
    TestName.NOISE_TOTAL: (
        "noise where it does not hide the {one}",
        "There is less noise than was claimed",
        "{measured:times} times the claimed noise over all parameters",
        "the claimed noise or more",
        LESS,
        NEIGHBOURS,
    ),
    TestName.NOISE_ALONG_RECORD: (
        "noise where it hides the {one}",
        "There is less noise than was claimed, just where it has to hide the {one}",
        "{measured:times} times the claimed noise where it hides the {one}",
        "the claimed noise or more",
        LESS,
        NEIGHBOURS,
    ),
    TestName.NOISE_TENSOR: (
        "noise on each part of the model",
        "A part of the model gets less noise than was claimed",
        "{measured:times} times the claimed noise on {place}",
        "the claimed noise on each of {places:count} tensors, coordinates and directions",
        f"{LESS} on the part that shows it least, {{best_limit:percent}} on the one that shows it best",
        f"{SCALE}every tensor and every coordinate of the model gets it.",
    ),
    TestName.NOISE_ROUND: (
        "noise in single rounds",
        "A round has less noise than was claimed",
        "{measured:times} times the claimed noise in {place}",
        "the claimed noise in every round of every trial",
        f"{LESS} in any round of any trial, {{best_limit:percent}} in a round of all trials",
        f"{SCALE}every round gets it.",
    ),
    TestName.SHAPE: ("shape of the noise", "The noise does not have the claimed distribution", "", "", "", NORMAL),
    TestName.DRIFT_ALONG_RECORD: (
        "shift where it hides the {one}",
        "The released sums are shifted just so that they give the {one} away",
        "noise where it hides the {one} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round",
        "See whether every contribution is clipped, and counted once, before noise is added.",
    ),
    TestName.DRIFT_ALONG_GRADIENTS: (
        "shift along {others}",
        "The released sums are not made as was claimed: clipping or scaling differs",
        "noise along {others} with a mean of {measured:signed} claimed standard deviations",
        "a mean of 0",
        "a mean of {limit:number} standard deviations in every round",
        CLIPPED,
    ),
    TestName.REPEATED_NOISE: ("the same noise used twice", "The same noise was used more than once", "", "", "", REUSE),
    TestName.CORRELATED_NOISE: (
        "correlations of the noise",
        "Noise depends on other noise of the run",
        "",
        "",
        "",
        REUSE,
    ),
    TestName.SENSITIVITY: (
        "sensitivities within the claim",
        "The {one} made a larger difference than the guarantee allows for",
        "a largest sensitivity of {measured:number} times the claimed one, in {place}",
        "at most the claimed one",
        "any sensitivity above the claim that occurred",
        "See whether every contribution is clipped to the norm that the noise is scaled to.",
    ),
    TestName.DISTINGUISHER: (
        "rule learned to tell the two data sets apart",
        "The noise depends on the secret: a rule learned on some trials tells others apart",
        "a learned rule that ranks {measured:percent} of pairs of unseen trials rightly",
        "{claimed:percent}, as guessing does",
        "a rule that ranks {limit:percent} rightly",
        BLIND,
    ),
    TestName.SCORES: (
        "epsilon that the insider's scores certify",
        "The insider told the two data sets apart more often than the guarantee allows",
        "scores that certify an epsilon of at least {measured:number} at delta {delta:number}",
        "an epsilon of at most {claimed:number}",
        "",
        "Look for what is released beside the noised sum, and at the noise that is really added.",
    ),
    TestName.CANDIDATES: (
        "first guesses of the {one} among the candidates",
        "The attacker named the right {one} more often than the guarantee allows",
        "the right one of the candidates in {measured:percent} of {trials:count} trials",
        "at most {claimed:percent}",
        "a share of {limit:percent}",
        "Look for what is released beside the noised sum, and at the noise that is really added.",
    ),
    TestName.CANARIES: (
        "epsilon that the canaries certify",
        "The canaries stand out from the noise more than the guarantee allows",
        "canaries that certify an epsilon of at least {measured:number} at delta {delta:number}",
        "an epsilon of at most {claimed:number}",
        "noise that leaves an epsilon of {limit:number}",
        "Look at the noise that is really added in a round, and at what accountants carry from round to round.",
    ),
}
"""Message templates by test."""

LOOK_WORDS: dict[str, tuple[str, str, str]] = {
    "distance": (
        "a distribution that is {measured:percent} off the claimed one at its worst{at_place}",
        "the claimed distribution",
        "a distribution {limit:percent} off the claimed one over all parameters",
    ),
    "tails": (
        "{measured:percent} of the noise beyond {deviations:number} standard deviations",
        "{claimed:percent}",
        "{limit:percent} less beyond {deviations:number} standard deviations",
    ),
    "even-sizes": (
        "sizes of rounds{with_place} that vary {measured:times} times as much as those of independent noise",
        "the variation of independent noise",
        "sizes of rounds that vary {limit:percent} less than those of independent noise",
    ),
    "carried-sizes": (
        "a correlation of {measured:signed} between the size of a round and that {place}",
        "no correlation",
        "a correlation of {limit:number} between the sizes of rounds",
    ),
    "used-twice": (
        "a largest cosine of {measured:number} among {pairs:count} pairs of noise vectors, between {place}",
        "independent noise, which hardly ever passes {claimed:number}",
        "noise that was used twice, also where it is altered up to a cosine of {limit:number}",
    ),
    "equal-values": (
        "{measured:count} pairs of noise values that agree to {close:number} standard deviations",
        "about {claimed:count}",
        "copies that make up {limit:percent} of the noise looked at",
    ),
    "all-trials": (
        "sums over trials with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all trials that makes up {limit:percent} of the variance",
    ),
    "all-rounds": (
        "sums over rounds with {measured:times} times the variance of independent noise",
        "the variance of independent noise",
        "noise in common to all rounds that makes up {limit:percent} of the variance",
    ),
    "two-places": (
        "a largest correlation of {measured:number}, between {place}",
        "no correlation between {places:count} coordinates",
        "two coordinates with a correlation of {limit:number}",
    ),
    "all-places": (
        "a correlation of {measured:number} between coordinates, on average over {pairs:count} pairs",
        "{claimed:number}, as independent noise has by chance",
        "a correlation of {limit:number} between all coordinates",
    ),
    "next-round": (
        "a correlation of {measured:signed} between the noise of rounds in a row",
        "no correlation",
        "a correlation of {limit:number} between rounds in a row",
    ),
}
"""Templates of what was measured, what was claimed and the limit, for each question of a test that asks several."""
