"""Choice of the examples that each pass of a clipped sum processes.

There is a choice only if trials have their own samples or their own records.

If trials have samples of the same examples, there are two ways. In the first way, every trial processes all examples,
and examples outside of the trial's sample get weight 0. Then the first layer can compute all trials in one matrix
product. In the second way, every trial processes only its own sample, padded to the size of the largest sample with
examples of weight 0. This is less work, but no matrix product is shared.

If every trial has its own records, no matrix product can be shared anyway. Such records may be stored in a type that
takes less memory than float32, such as bytes for bits; each pass converts its own part.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fl_audit.learning.user_groups import UserGroups

GATHERED_BELOW = 0.4
"""Each trial processes only its own sample if the largest sample is at most this share of all examples.

Both ways cost the same at a share of 0.4 for the model 104-6-6-2, 0.55 for logistic regression, 0.9 for the CNN on
MNIST and 0.95 for 600-128-100, on one core.
"""


@dataclass(frozen=True)
class Microbatch:
    """Examples of one pass, that is, of one forward and backward computation for some trials."""

    # Features: (n, *shape) if all trials share the examples, or (trials, n, *shape) if each trial has its own.
    features: Tensor
    labels: Tensor  # classes of the examples, (n,) or (trials, n)
    sample_weights: Tensor | None = None  # float32 (trials, n): 1 for an example that counts, else 0; None if all do
    groups: UserGroups | None = None  # the examples grouped by user; None if each example is a user

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own examples; otherwise all trials share them."""
        return self.labels.dim() == 2

    @property
    def examples(self) -> int:
        """Number of examples per trial."""
        return self.labels.shape[-1]

    def merged(self, trials: int) -> tuple[Tensor, Tensor]:
        """Return the features for a stacked model, and the class for each of its outputs, (trials * n,).

        The features are (trials * n, *shape), or (n, *shape) if all trials share the n examples.
        """
        if self.is_own:
            return self.features.flatten(0, 1), self.labels.flatten()
        return self.features, self.labels.repeat(trials)

    def take(self, examples: slice) -> "Microbatch":
        """Return only the examples in a slice, for every trial, each as a user."""
        index = (slice(None), examples) if self.is_own else examples
        sample_weights = None if self.sample_weights is None else self.sample_weights[:, examples]
        return Microbatch(self.features[index], self.labels[index], sample_weights)

    def with_groups(self, groups: UserGroups) -> "Microbatch":
        """Return the same examples, grouped by user."""
        return replace(self, groups=groups)


@dataclass(frozen=True)
class ClippedSumPass:
    """One pass of a clipped sum: models, examples, and the clipping of the users' gradients."""

    models: Tensor  # parameters of the models of the pass, float32 (trials, parameters)
    microbatch: Microbatch  # examples of the pass
    # L2 norm to which each user's gradient is clipped, positive, or one for each trial, float64 (trials, 1); None for
    # no clipping.
    clipping_norm: float | Tensor | None
    slack: float = 0.0  # number added to each norm before clipping, at least 0; Opacus avoids a division by 0 with it


@dataclass(frozen=True)
class ClippedSumInputs(Microbatch):
    """All examples whose clipped gradients are summed.

    They are processed in parts, each in one pass (a forward and a backward computation).
    """

    # Indices of the examples that each trial processes, int64 (trials, width); None if each processes all.
    chosen: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, taking_part: Tensor | None) -> "ClippedSumInputs":
        """Return the examples of a clipped sum in the form that is cheaper to compute with.

        If a trial's sample contains more than the share `GATHERED_BELOW` of the examples, the result has all examples,
        with weights 0 and 1. Otherwise the result has only the sampled examples of each trial.

        Shapes: `features` (n, *shape), `labels` (n,), `taking_part` (trials, n).
        """
        if taking_part is None:
            return cls(features, labels)
        if not is_gathering_cheaper(taking_part):
            return cls(features, labels, taking_part.float())
        sample_weights, chosen = _gathered(taking_part)
        return cls(features, labels, sample_weights, chosen=chosen)

    @property
    def width(self) -> int:
        """Number of examples that each trial processes."""
        return self.labels.shape[-1] if self.chosen is None else self.chosen.shape[1]

    def microbatch(self, rows: slice, examples: slice) -> Microbatch:
        """Return the examples that one pass computes, with features as float32."""
        sample_weights = None if self.sample_weights is None else self.sample_weights[rows, examples]
        index = examples if self.chosen is None else self.chosen[rows, examples]
        if not self.is_own:
            return Microbatch(self.features[index].float(), self.labels[index], sample_weights)
        if self.chosen is None:
            return Microbatch(self.features[rows, examples].float(), self.labels[rows, examples], sample_weights)
        trials = torch.arange(len(self.labels), device=self.labels.device)[rows].unsqueeze(1)
        return Microbatch(self.features[trials, index].float(), self.labels[trials, index], sample_weights)


def is_gathering_cheaper(taking_part: Tensor) -> bool:
    """Return whether it is cheaper that each trial processes only its own sample, padded to the largest sample.

    Shapes: `taking_part` (trials, n).
    """
    return _largest_sample(taking_part) <= GATHERED_BELOW * taking_part.shape[1]


def _largest_sample(taking_part: Tensor) -> int:
    return int(taking_part.sum(1).max()) if taking_part.numel() else 0


def _gathered(taking_part: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the indices of the examples in each trial's padded sample, each (trials, largest sample).

    Weights are 1 for examples of the sample. Padding has weight 0 and index 0.
    """
    trials, examples = taking_part.nonzero(as_tuple=True)
    counts = taking_part.sum(1)
    columns = torch.arange(len(trials), device=trials.device) - (counts.cumsum(0) - counts)[trials]
    shape = (len(taking_part), _largest_sample(taking_part))
    chosen = torch.zeros(shape, dtype=torch.int64, device=taking_part.device)
    sample_weights = torch.zeros(shape, device=taking_part.device)
    chosen[trials, columns] = examples
    sample_weights[trials, columns] = 1.0
    return sample_weights, chosen
