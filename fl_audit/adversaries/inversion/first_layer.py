"""The picture that a first dense layer writes down: every row of its gradient is a multiple of the picture."""

import torch
from torch import Tensor

from fl_audit.learning.stacked import StackedModel


def reads_first_layer(model: StackedModel) -> bool:
    """Return whether the model is a chain of dense layers whose first one has a bias."""
    return model.chain is not None and model.chain[0].bias is not None


def of_first_layer(model: StackedModel, seen: Tensor) -> Tensor:
    """Return the one picture behind every update, float32 (owners, 1, *shape), in the box of pixels from 0 to 1.

    Parameters
    ----------
    model
        A model for which `reads_first_layer` holds.
    seen
        Gradients of one record each, (owners, parameters), of any length.

    Notes
    -----
    With d_k the gradient of the bias of unit k, the gradient of its weights is d_k x (Geiping et al. 2020, Proposition
    3.1). Under noise each unit says so less clearly the smaller d_k is, so x is their least squares: sum of d_k times
    the gradient of the weights, over the sum of d_k^2. An update of zero gives black.
    """
    assert model.chain is not None, "the model is a chain"
    weights, biases = model.chain[0].weights(seen), model.chain[0].biases(seen)
    assert biases is not None, "its first layer has a bias"
    biases = biases[:, 0]
    pictures = torch.einsum("ok,oki->oi", biases, weights) / biases.square().sum(1, keepdim=True).clamp(min=1e-30)
    return pictures.clamp(0, 1).reshape(len(seen), 1, *model.feature_shape)
