"""Per-example gradients by a plain loop of float64 backward passes: slow, and without anything that is tested."""

import copy
import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@lru_cache(maxsize=4)
def _in_double(template: nn.Module) -> nn.Module:
    """Return a copy; all its parameters are set anew in every trial."""
    return copy.deepcopy(template).double().eval().requires_grad_(True)


def example_gradients(template: nn.Module, models: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Return every example's gradient in every trial, float64 (trials, n, parameters)."""
    module = _in_double(template)
    parameters = list(module.parameters())
    features = features.double()
    rows = torch.zeros(len(models), len(labels), models.shape[1], dtype=torch.float64)
    for trial, model in enumerate(models):
        nn.utils.vector_to_parameters(model.double(), parameters)
        for index in range(len(labels)):
            logits = module(features[index : index + 1])
            loss = -F.log_softmax(logits, dim=1)[0, labels[index]]
            parameter_gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            rows[trial, index] = torch.cat(
                [
                    (torch.zeros_like(value) if gradient is None else gradient).reshape(-1)
                    for gradient, value in zip(parameter_gradients, parameters, strict=True)
                ]
            )
    return rows


def record_gradients(
    module: nn.Module,
    features: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    call: Callable[[nn.Module, Tensor], Tensor] = lambda module, record: module(record),
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Tensor:
    """Return every record's gradient of what a module trains, float64 (n, parameters), on the module as it is.

    The weights of its trained parameters may be others, and so may the loss and the way in which it is called.
    """
    module = copy.deepcopy(module).double().eval()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if weights is not None:
        nn.utils.vector_to_parameters(weights.double(), trained)
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for feature, label in zip(features.double(), labels, strict=True):
            gradients = torch.autograd.grad(loss(call(module, feature[None]), label[None]), trained)
            rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    return torch.stack(rows)


def clip_and_sum(gradients: Tensor, clipping_norm: float) -> Tensor:
    """Return sum_e g_e min(1, C / ||g_e||) per trial, float64 (trials, parameters)."""
    total = torch.zeros(gradients.shape[0], gradients.shape[2], dtype=torch.float64)
    for trial, rows in enumerate(gradients):
        for gradient in rows:
            norm = float(gradient.norm())
            total[trial] += gradient if norm <= clipping_norm else gradient * (clipping_norm / norm)
    return total


def assert_close(computed_sum: Tensor, truth: Tensor, smallest_scale: float = 1.0) -> None:
    """Float32 sums agree with float64 ones to 2e-5 of the largest entry, or of `least` where that is larger."""
    assert computed_sum.dtype == torch.float32
    assert computed_sum.shape == truth.shape
    assert float((computed_sum.double() - truth).abs().max()) <= 2e-5 * max(smallest_scale, float(truth.abs().max()))
