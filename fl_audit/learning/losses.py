"""The loss that models are trained with: cross-entropy for classes, squared error for quantities."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fl_audit.value_checks import require_number


@dataclass(frozen=True)
class TrainingLoss:
    """Public constants of the cross-entropy of a record in training; by default it is the plain cross-entropy.

    With class weights w, smoothing s, label y and probabilities p of K classes, the loss of a record is the sum over k
    of -t_k log p_k, where t_k = (1 - s) w_y [k = y] + s w_k / K.

    The loss of several records is the sum of their losses, or the sum divided by their number. Torch's own mean divides
    by the sum of the records' weights instead, so that the gradient of a record would depend on the other records.

    Source: Szegedy et al. 2016, "Rethinking the inception architecture for computer vision", section 7, with weights
    as in `torch.nn.functional.cross_entropy`.

    Raises `InputError` if a constant is out of range.
    """

    class_weights: tuple[float, ...] = ()  # weight w_k of each class, positive and finite; empty if all are 1
    label_smoothing: float = 0.0  # share s of the label that is spread evenly over all classes, from 0 to below 1

    def __post_init__(self) -> None:
        for weight in self.class_weights:
            require_number("class weight is", weight, "positive finite numbers")
        require_number("label smoothing is", self.label_smoothing, "numbers from 0 to below 1")

    @property
    def is_plain(self) -> bool:
        """Whether this is the cross-entropy without weights and smoothing."""
        return self == PLAIN_LOSS


PLAIN_LOSS = TrainingLoss()
"""The cross-entropy without weights and smoothing, which membership audits and Epsilon* measure records by."""


def loss_of(
    outputs: Tensor, labels: Tensor, reduction: Literal["none", "sum", "mean"], loss: TrainingLoss = PLAIN_LOSS
) -> Tensor:
    """Return the loss of examples: the squared error where a model has one output, the cross-entropy otherwise.

    Parameters
    ----------
    outputs
        Outputs of a model, (n, classes), or (n, 1) if the labels are quantities.
    labels
        Classes of the examples, int64 (n,), or quantities, float32 (n,).
    reduction
        Whether the losses of the examples are returned as they are (n,), summed, or averaged.
    loss
        Class weights and label smoothing of the cross-entropy; without effect on the squared error.
    """
    if outputs.shape[-1] == 1:
        return F.mse_loss(outputs.squeeze(-1), labels.to(outputs.dtype), reduction=reduction)
    if loss.is_plain:
        return F.cross_entropy(outputs, labels, reduction=reduction)
    weights = _weights(loss, outputs.dtype, outputs.device)
    losses = F.cross_entropy(outputs, labels, weights, reduction="none", label_smoothing=loss.label_smoothing)
    if reduction == "sum":
        return losses.sum()
    return losses.mean() if reduction == "mean" else losses


def label_targets(labels: Tensor, classes: int, dtype: torch.dtype, loss: TrainingLoss) -> Tensor:
    """Return the targets t of records, in the type `dtype`, (..., classes), for which -sum_k t_k log p_k is the loss.

    Parameters
    ----------
    labels
        Classes of the records, int64 (...).
    classes
        Number of classes, at least 2.
    dtype
        Type of the targets.
    loss
        Class weights and label smoothing.
    """
    targets = F.one_hot(labels, classes).to(dtype)
    if loss.is_plain:
        return targets
    weights = _weights(loss, dtype, targets.device)
    by_class = 1.0 if weights is None else weights
    own_shares = targets * (by_class * (1 - loss.label_smoothing))
    return own_shares + by_class * (loss.label_smoothing / classes)


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the losses of n examples under every model, (trials, n).

    Parameters
    ----------
    logits
        Outputs of the models: logits of the examples, (trials, n, classes), or quantities, (trials, n, 1).
    labels
        Classes of the examples, int64 (n,), or quantities, float32 (n,).
    """
    losses = loss_of(logits.flatten(0, 1), labels.repeat(len(logits)), "none")
    return losses.reshape(len(logits), len(labels))


def _weights(loss: TrainingLoss, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """Return the class weights, (classes,), or None without any.

    They are not kept: a tensor that is made within a transform of `torch.func` belongs to that transform.
    """
    return torch.tensor(loss.class_weights, dtype=dtype, device=device) if loss.class_weights else None
