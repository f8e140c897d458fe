"""Known pitfalls (mistakes) of local DP-SGD: the name, the severity and the fix of each."""

from enum import StrEnum
from typing import NamedTuple

from fl_audit.report.template_files import template_texts

LEVEL = 1e-7
"""Level of each statistical test: less than one honest training in a million is accused."""


class Severity(StrEnum):
    """Severity of a pitfall: its consequence for the privacy claim.

    A training has several pitfalls of different severity, and one `Verdict` that follows from the worst.
    """

    BREAKS = "breaks the claim"
    DOUBT = "leaves the claim in doubt"
    BESIDE = "leaves beside the model, which the claim does not cover"
    NOTE = "costs no privacy"


class Pitfall(StrEnum):
    """Known mistakes in local DP-SGD, by name."""

    FRESH_ACCOUNTANT = "fresh accountant"
    CLAIMED_EPSILON = "claimed epsilon"
    EARLY_EPSILON = "epsilon before the last step"
    LARGE_DELTA = "large delta"
    UNCOUNTED_STEPS = "uncounted steps"
    UNTAKEN_STEPS = "counted steps not taken"
    WRONG_RATE = "wrong sampling rate"
    WRONG_NOISE_COUNTED = "wrong noise multiplier counted"
    NO_POISSON = "no Poisson sampling"
    OTHER_LOADER = "another loader"
    FIXED_SAMPLE = "repeated samples"
    REPEATED_BATCH = "several steps on a batch"
    ACCUMULATION = "accumulated batches"
    PARTIAL_BATCH = "last partial batch"
    EMPTY_SKIPPED = "empty batches skipped"
    CUT_BATCH = "batches cut"
    BATCH_CLIPPING = "batches clipped as one"
    PRIVATE_SIZE = "private size"
    BATCH_NORM = "batch normalisation"
    COUPLED = "coupled records"
    OVER_NORM = "sensitivity above the clipping norm"
    LAYER_CLIPPING = "per-layer clipping"
    NO_NOISE = "no noise"
    SMALL_NOISE = "too little noise"
    NOISE_DISTRIBUTION = "noise of another distribution"
    SEEDED_NOISE = "seeded noise"
    NOISE_FOLLOWS = "noise that follows the records"
    SHARED_NOISE = "the same noise at several clients"
    REPEATED_NOISE = "repeated noise"
    TRAINED_BEFORE = "trained without privacy first"
    UNWRAPPED = "steps of the unwrapped optimizer"
    OUTSIDE_OPTIMIZER = "another optimizer"
    MOVED_OUTSIDE = "weights moved outside of the engine"
    FROZEN_MOVED = "frozen weights moved"
    BUFFERS = "buffers that follow the data"
    UNKNOWN_TENSORS = "other tensors sent"
    BARE_OUTPUT = "output beside the private steps"
    CHOSEN_EPOCH = "choice among epochs"
    PRIVATE_SCHEDULE = "steps that follow the data"
    PRIVATE_RATE = "learning rate that follows the data"
    EXACT_COUNT = "exact counts"
    CLEAR_METRICS = "metrics in the clear"
    CLEAR_EVALUATION = "evaluation in the clear"


_WEAKER_SEVERITIES = {
    Pitfall.UNTAKEN_STEPS: Severity.NOTE,
    Pitfall.MOVED_OUTSIDE: Severity.DOUBT,
    Pitfall.FROZEN_MOVED: Severity.DOUBT,
    Pitfall.BUFFERS: Severity.DOUBT,
    Pitfall.UNKNOWN_TENSORS: Severity.DOUBT,
    Pitfall.CHOSEN_EPOCH: Severity.DOUBT,
    Pitfall.EXACT_COUNT: Severity.BESIDE,
    Pitfall.CLEAR_METRICS: Severity.BESIDE,
    Pitfall.CLEAR_EVALUATION: Severity.BESIDE,
}
"""Severity of each pitfall that does not break the claim."""


def severity_of(pitfall: Pitfall) -> Severity:
    """Return the severity of a pitfall."""
    return _WEAKER_SEVERITIES.get(pitfall, Severity.BREAKS)


class FoundPitfall(NamedTuple):
    """A pitfall that was found in a training, with the observation that shows it."""

    pitfall: Pitfall
    observation: str  # the observation, as a sentence without a full stop

    @property
    def weight(self) -> Severity:
        """Severity of the pitfall: its consequence for the privacy claim."""
        return severity_of(self.pitfall)

    @property
    def fix(self) -> str:
        """Instruction that fixes the pitfall."""
        return template_texts("pitfall_fixes.md")[self.pitfall]
