"""Examples of the passes of a clipped sum when trials have their own samples or records.

With samples, there are two ways. Either every trial processes all examples, and those outside its sample get the weight
0; the first layer can then still compute all trials in one product. Or every trial processes only its own examples,
gathered and padded to the size of the largest sample with examples of weight 0; this is less work, but no product is
shared.

If every trial has its own records, no product can be shared anyway. Such records may be stored in a type that takes
less memory than float32, such as bytes for bits; they are converted pass by pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

GATHERED_BELOW = 0.4
"""Samples are gathered if the largest of them is at most this share of all examples. Both ways cost the same at a share
of 0.4 (104-6-6-2), 0.55 (logistic), 0.9 (the CNN on MNIST) and 0.95 (600-128-100), on one core."""


@dataclass(frozen=True)
class MicrobatchExamples:
    """The examples of one pass."""

    # Features of the examples, shared by all trials, (n, *shape), or each trial's own, (trials, n, *shape).
    features: Tensor
    labels: Tensor  # classes of the examples, (n,) or (trials, n)
    counted: Tensor | None = None  # float32 (trials, n), 1 where an example counts, else 0; None if all count

    @property
    def is_own(self) -> bool:
        """Whether each trial has its own examples."""
        return self.labels.dim() == 2

    @property
    def examples(self) -> int:
        """Number of examples per trial."""
        return self.labels.shape[-1]

    def merged(self, trials: int) -> tuple[Tensor, Tensor]:
        """Return the features in the layout of a stacked model's input, and the labels of its outputs."""
        if self.is_own:
            return self.features.flatten(0, 1), self.labels.flatten()
        return self.features, self.labels.repeat(trials)

    def take(self, some: slice) -> "MicrobatchExamples":
        """Return a slice of every trial's examples."""
        place = (slice(None), some) if self.is_own else some
        counted = None if self.counted is None else self.counted[:, some]
        return MicrobatchExamples(self.features[place], self.labels[place], counted)


@dataclass(frozen=True)
class ClippedSumExamples(MicrobatchExamples):
    """All examples of a clipped sum, from which those of each pass are taken."""

    # Int64 (trials, width), indices of the examples that each trial works on; None if each works on all.
    chosen: Tensor | None = None

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, taking_part: Tensor | None) -> "ClippedSumExamples":
        """Return the examples for the cheaper of the two ways of the module docstring: masked or gathered samples.

        Parameters
        ----------
        features
            Features of all examples, as in `MicrobatchExamples`.
        labels
            Classes of all examples, as in `MicrobatchExamples`.
        taking_part
            Whether each example is in each trial's sample, bool (trials, n); None if all are.
        """
        if taking_part is None:
            return cls(features, labels)
        largest = int(taking_part.sum(1).max()) if taking_part.numel() else 0
        if largest > GATHERED_BELOW * labels.shape[-1]:
            return cls(features, labels, taking_part.float())
        return cls(features, labels, *_gathered(taking_part, largest))

    @property
    def width(self) -> int:
        """Number of examples that each trial processes."""
        return self.labels.shape[-1] if self.chosen is None else self.chosen.shape[1]

    def portion(self, rows: slice, some: slice) -> MicrobatchExamples:
        """Return the examples of one pass, with float32 features.

        Parameters
        ----------
        rows
            The trials of the pass.
        some
            The slice of each trial's examples.
        """
        counted = None if self.counted is None else self.counted[rows, some]
        index = some if self.chosen is None else self.chosen[rows, some]
        if not self.is_own:
            return MicrobatchExamples(self.features[index].float(), self.labels[index], counted)
        if self.chosen is None:
            return MicrobatchExamples(self.features[rows, some].float(), self.labels[rows, some], counted)
        trials = torch.arange(len(self.labels), device=self.labels.device)[rows].unsqueeze(1)
        return MicrobatchExamples(self.features[trials, index].float(), self.labels[trials, index], counted)


def _gathered(taking_part: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Return a mask of valid entries, and each trial's sample as ascending indices, padded with the index 0."""
    trials, examples = taking_part.nonzero(as_tuple=True)
    counts = taking_part.sum(1)
    place = torch.arange(len(trials), device=trials.device) - (counts.cumsum(0) - counts)[trials]
    chosen = torch.zeros(len(taking_part), largest, dtype=torch.int64, device=taking_part.device)
    counted = torch.zeros(len(taking_part), largest, device=taking_part.device)
    chosen[trials, place] = examples
    counted[trials, place] = 1.0
    return counted, chosen
