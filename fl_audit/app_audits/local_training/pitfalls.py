"""Known pitfalls (mistakes) of local DP-SGD, with the name, the severity and the fix of each."""

from enum import StrEnum
from typing import NamedTuple

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


class SeverityAndFix(NamedTuple):
    """Severity of a pitfall, and the instruction that fixes it."""

    weight: Severity
    fix: str


_B, _D, _L, _N = Severity.BREAKS, Severity.DOUBT, Severity.BESIDE, Severity.NOTE
ABOUT: dict[Pitfall, SeverityAndFix] = {
    Pitfall.FRESH_ACCOUNTANT: SeverityAndFix(
        _B,
        "Keep the accountant of a client over all rounds: store accountant.state_dict() in context.state, and load it.",
    ),
    Pitfall.CLAIMED_EPSILON: SeverityAndFix(
        _B, "State the composed epsilon, or add noise until it is the claimed one."
    ),
    Pitfall.EARLY_EPSILON: SeverityAndFix(_B, "Ask for epsilon after the last step."),
    Pitfall.LARGE_DELTA: SeverityAndFix(_B, "Choose delta well below 1 over the number of records."),
    Pitfall.UNCOUNTED_STEPS: SeverityAndFix(
        _B, "Leave optimizer.step_hook as the engine attached it, or count every step."
    ),
    Pitfall.UNTAKEN_STEPS: SeverityAndFix(_N, "Count a step only where one is taken."),
    Pitfall.WRONG_RATE: SeverityAndFix(_B, "Count every step with the rate of the sampler that drew its batch."),
    Pitfall.WRONG_NOISE_COUNTED: SeverityAndFix(_B, "Count every step with the noise multiplier that it had."),
    Pitfall.NO_POISSON: SeverityAndFix(
        _B, "Leave poisson_sampling=True, or account without amplification by sampling."
    ),
    Pitfall.OTHER_LOADER: SeverityAndFix(_B, "Iterate over the loader that make_private returned."),
    Pitfall.FIXED_SAMPLE: SeverityAndFix(_B, "Draw every sample afresh: seed no generator of the loader."),
    Pitfall.REPEATED_BATCH: SeverityAndFix(_B, "Take one step on every sample."),
    Pitfall.ACCUMULATION: SeverityAndFix(
        _B, "Use BatchMemoryManager for large batches: it keeps to one sample a step."
    ),
    Pitfall.PARTIAL_BATCH: SeverityAndFix(_B, "Sample by Poisson, or drop the last partial batch."),
    Pitfall.EMPTY_SKIPPED: SeverityAndFix(_B, "Take the step of an empty sample too: it adds noise alone."),
    Pitfall.CUT_BATCH: SeverityAndFix(_B, "Use all records of a sample; BatchMemoryManager bounds the memory."),
    Pitfall.BATCH_CLIPPING: SeverityAndFix(_B, "Clip the gradient of every record by itself."),
    Pitfall.PRIVATE_SIZE: SeverityAndFix(
        _B, "Fix rate, steps and expected batch by a public number of records, and not by len(dataset)."
    ),
    Pitfall.BATCH_NORM: SeverityAndFix(_B, "Replace it by GroupNorm, as ModuleValidator.fix does."),
    Pitfall.COUPLED: SeverityAndFix(
        _B, "Let no layer, loss or preprocessing mix the records of a batch or of the data set."
    ),
    Pitfall.OVER_NORM: SeverityAndFix(
        _B, "Clip the gradient of every record to the norm that the noise is for, and apply nothing beside their sum."
    ),
    Pitfall.LAYER_CLIPPING: SeverityAndFix(
        _B, "Clip all tensors together, or make the noise for the root of the sum of squares of their norms."
    ),
    Pitfall.NO_NOISE: SeverityAndFix(_B, "Add the noise that is claimed."),
    Pitfall.SMALL_NOISE: SeverityAndFix(
        _B, "Add noise of the claimed multiplier times the clipping norm to every sum."
    ),
    Pitfall.NOISE_DISTRIBUTION: SeverityAndFix(_B, "Draw Gaussian noise: the accountant knows no other."),
    Pitfall.SEEDED_NOISE: SeverityAndFix(_B, "Seed no generator that noise is drawn from, or use secure_mode=True."),
    Pitfall.NOISE_FOLLOWS: SeverityAndFix(
        _B,
        "Add noise of a fixed scale to the sum, and divide both by a fixed number and not by the size of the sample.",
    ),
    Pitfall.SHARED_NOISE: SeverityAndFix(
        _B, "Let every client draw noise from a generator of its own that nobody seeds."
    ),
    Pitfall.REPEATED_NOISE: SeverityAndFix(_B, "Draw noise afresh in every step."),
    Pitfall.TRAINED_BEFORE: SeverityAndFix(_B, "Train private data through the engine from the first step on."),
    Pitfall.UNWRAPPED: SeverityAndFix(_B, "Call step of the optimizer that make_private returned."),
    Pitfall.OUTSIDE_OPTIMIZER: SeverityAndFix(
        _B, "Give all parameters that train on private data to one private optimizer."
    ),
    Pitfall.MOVED_OUTSIDE: SeverityAndFix(
        _D, "Move weights by steps of the engine alone, or show what else they come from."
    ),
    Pitfall.FROZEN_MOVED: SeverityAndFix(_D, "Leave frozen weights as they are, or train them through the engine."),
    Pitfall.BUFFERS: SeverityAndFix(_D, "Send parameters alone, or use layers without running statistics."),
    Pitfall.UNKNOWN_TENSORS: SeverityAndFix(_D, "Send the private model, and nothing beside it."),
    Pitfall.BARE_OUTPUT: SeverityAndFix(
        _B, "Let nothing leave but what follows from private steps and public data; drop this, or noise and count it."
    ),
    Pitfall.CHOSEN_EPOCH: SeverityAndFix(_D, "Send the weights after the last step, or choose by public data."),
    Pitfall.PRIVATE_SCHEDULE: SeverityAndFix(_B, "Fix the number of steps before the training."),
    Pitfall.PRIVATE_RATE: SeverityAndFix(
        _B, "Let the learning rate follow the number of steps, and no loss of private data."
    ),
    Pitfall.EXACT_COUNT: SeverityAndFix(
        _L, "Report a public number, such as 1, or a noised count that the accountant knows."
    ),
    Pitfall.CLEAR_METRICS: SeverityAndFix(_L, "Report no number that follows private records, or a noised one."),
    Pitfall.CLEAR_EVALUATION: SeverityAndFix(_L, "Evaluate on public data, or report noised numbers."),
}
"""The weight and fix of every pitfall."""


class FoundPitfall(NamedTuple):
    """A pitfall that was found in a training, with the observation that shows it."""

    pitfall: Pitfall
    seen: str  # the observation, as a sentence without a full stop

    @property
    def weight(self) -> Severity:
        """Severity of the pitfall: its consequence for the privacy claim."""
        return ABOUT[self.pitfall].weight

    @property
    def fix(self) -> str:
        """Instruction that fixes the pitfall."""
        return ABOUT[self.pitfall].fix
