"""Define message templates for tests of released sums: how often they contain the target, and whether they are shifted.

Each template is a tuple with the fields of `fl_audit.verdict.verdict_messages.TestMessageTemplates`, in their order.
"""

from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.remedies import CLIPPED, LESS, ONCE, SCALE

SIGNAL_WORDS: dict[TestName, tuple[str, str, str, str, str, str]] = {
    TestName.NOISE_TRIAL: (
        "noise where it hides the {one}, in single trials",
        "A training has less noise than was claimed, just where it has to hide the {one}",
        "{measured:times} times the claimed noise where it hides the {one} in {place}",
        "the claimed noise in every trial, in every round, and in sums over the rounds",
        f"{LESS} in any trial, {{best_limit:percent}} in the one that shows it best",
        f"{SCALE}every training gets it.",
    ),
    TestName.SIGNAL: (
        "how often the {one} counts",
        "The {one} counts more often than once in the released sums",
        "a {one} that counts {measured:number} times",
        "one that counts once",
        "a {one} that counts {limit:number} times in every round",
        ONCE,
    ),
    TestName.SIGNAL_ROUND: (
        "how often the {one} counts, in single rounds",
        "In one round the {one} counts more often than once, or the sum is pushed as the secret says",
        "a shift of {measured:signed} standard deviations of its mean in {place}",
        "no shift in any of {looks:count} looks at rounds",
        "a {one} that counts {limit:number} times in any one round",
        ONCE,
    ),
    TestName.SIGNAL_TRIAL: (
        "how often the {one} counts, in single trials",
        "In some trainings the {one} counts more often than once, or the sum is pushed",
        "a largest shift of {measured:signed} standard deviations, in {place}, and shifts that vary {spread:number} "
        "times as much as chance makes them",
        "no shift in any of {looks:count} looks at trials",
        "a {one} that counts {limit:number} times in any one trial",
        ONCE,
    ),
    TestName.DRIFT_PLACE: (
        "shift away from the {one}, {there} and {not_there}",
        "The released sums are shifted where the {one} has no part in them",
        "means of {measured:number} standard deviations on {place}",
        "about 1, as means of independent noise have by chance",
        "a mean of {limit:number} claimed standard deviations at any of {places:count} coordinates in every round, or "
        "of {in_all:number} at all of them",
        CLIPPED,
    ),
}
"""Message templates by test."""
