"""Define message templates for the tests of opened values, and for further tests of the noise.

After a run, the challenger opens values such as who took part. Each template is a tuple with the fields of
`fl_audit.verdict.verdict_messages.TestMessageTemplates`, in their order.
"""

from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.remedies import LESS, SAMPLER

MORE_WORDS: dict[TestName, tuple[str, str, str, str, str, str]] = {
    TestName.TARGET_TURNS: (
        "how often the {one} takes part",
        "The {one} does not take part as was claimed",
        "participation in {measured:percent} of {draws:count} rounds{with_place}{at_epsilon}",
        "participation in {claimed:percent}, on its own",
        "a rate that is {limit:percent} higher or lower",
        SAMPLER,
    ),
    TestName.UNIT_TURNS: (
        "how often every other one takes part",
        "Others do not take part as was claimed",
        "participation in {measured:percent} of the rounds, of {place}{at_epsilon}",
        "participation in {claimed:percent}, on its own",
        "a rate that is {limit:percent} higher or lower",
        SAMPLER,
    ),
    TestName.SAMPLE_SIZES: (
        "sizes of samples",
        "Samples are not drawn as the accountant assumes, which is Poisson sampling",
        "sizes that vary {measured:times} times as much as those of Poisson samples{at_epsilon}",
        "the variation of Poisson samples",
        "sizes that vary {limit:percent} more or less",
        SAMPLER,
    ),
    TestName.EVEN_TURNS: (
        "turns of units in a trial",
        "Rounds of a trial do not sample independently of each other, as the accountant assumes",
        "a variation of {place} of {measured:times} times that of Poisson samples{at_epsilon}",
        "the variation of Poisson samples",
        "a variation that is {limit:percent} larger or smaller",
        SAMPLER,
    ),
    TestName.SHARED_SAMPLES: (
        "samples that trials have in common",
        "Trials do not sample independently of each other",
        "a variation of {place} of {measured:times} times that of Poisson samples",
        "the variation of Poisson samples",
        "a variation that is {limit:percent} larger or smaller",
        SAMPLER,
    ),
    TestName.SHARE_PAIRS: (
        "shares of the noise of different clients",
        "Shares of the noise are copies of each other: who knows one knows others",
        "a correlation of {measured:number} between the shares of {place}",
        "independent shares",
        "shares with a correlation of {limit:number}",
        "Let every client draw its share from a seed of its own, which nobody else knows.",
    ),
    TestName.BIT_NOISE: (
        "noise of the quantile bits",
        "The bits behind the adaptive clipping norm do not get the noise that was claimed",
        "{measured:times} times the claimed noise of the bits, with a mean of {shift:signed}; what tells is {place}",
        "independent normal noise of the claimed size",
        f"{LESS}, or a mean of {{shift_limit:number}} standard deviations",
        "Draw noise for the bits anew in every round, as large as the clipping settings say.",
    ),
    TestName.EXACT_STEPS: (
        "steps that follow from what is released",
        "What clients see is not what the public rule makes of the release",
        "{measured:count} of {rounds:count} rounds in which the step differs{with_place}",
        "none, to the last bit",
        "any step that differs in any bit",
        "Look for what changes the model, the learning rate or the clipping norm beside the public rule.",
    ),
}
"""Message templates by test."""
