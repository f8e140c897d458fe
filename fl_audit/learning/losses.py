"""The loss that models are trained with: cross-entropy for classes, squared error for quantities."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def loss_of(outputs: Tensor, labels: Tensor, reduction: Literal["none", "sum", "mean"]) -> Tensor:
    """Return the loss of examples: the squared error where a model has one output, the cross-entropy otherwise.

    Parameters
    ----------
    outputs
        Outputs of a model, (n, classes), or (n, 1) if the labels are quantities.
    labels
        Classes of the examples, int64 (n,), or quantities, float32 (n,).
    reduction
        Whether the losses of the examples are returned as they are (n,), summed, or averaged.
    """
    if outputs.shape[-1] == 1:
        return F.mse_loss(outputs.squeeze(-1), labels.to(outputs.dtype), reduction=reduction)
    return F.cross_entropy(outputs, labels, reduction=reduction)
