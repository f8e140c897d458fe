"""Norms of per-record gradients, and their inner products with vectors, in many trials.

Only two numbers of each gradient g are needed, so a model of stacked layers, which compute all trials at once, does not
have to compute the gradients. One forward and one backward pass give every layer its inputs and the gradients d of the
losses at its outputs. The norm ||g||^2 is computed from inputs and d as for a clipped sum. The inner product <g, v>
with a vector v is computed from inputs and d, too, because a layer's outputs are linear in its parameters: <g, v> is
the inner product of d with the outputs that the layer would give if v were its parameters. For a dense layer with
inputs a, where V is the matrix of the entries of v, it is d^T V a. Norms and inner products together take as long as a
clipped sum. (A forward-mode derivative along v takes as long for the inner products alone, and needs a derivative rule
for all code of the model.) For other models, per-example gradients are computed.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning import pass_budgets
from fl_audit.learning.layers import LayerCall
from fl_audit.learning.microbatching import Microbatch
from fl_audit.learning.stacked_model import StackedModel


class GradientNormsAndProducts(NamedTuple):
    """Norms of unclipped per-record gradients, and their inner products with a given vector per trial."""

    norms: Tensor  # L2 norms over all parameters together, float32 (trials, n)
    products: Tensor  # inner products with the vector of the trial, float32 (trials, n); 0 if there are no vectors


def record_gradients(
    model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, vectors: Tensor | None = None
) -> GradientNormsAndProducts:
    """Return ||g|| and <v, g> for each record and trial, where g is the gradient of the record's cross-entropy.

    Raises `InputError` if shapes do not match.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `vectors` (trials, parameters).

    `vectors`: The error of a product is relative to ||v|| ||g||, which may be far larger than the product.

    Examples
    --------
    >>> model = StackedModel(torch.nn.Linear(2, 2, bias=False), (2,))
    >>> records, labels = torch.tensor([[3.0, 4.0]]), torch.tensor([0])
    >>> found = record_gradients(model, torch.zeros(1, 4), records, labels, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    >>> round(float(found.norms), 4), round(float(found.products), 4)  # of the gradient (-3, -4, 3, 4) / 2
    (3.5355, -1.5)
    """
    size = model.layout.size
    fits = models.dim() == 2 and models.shape[1] == size
    require(fits, f"models have shape {tuple(models.shape)}: accepted is (trials, {size}), as the model has parameters")
    found = f"{len(features)} features and {len(labels)} labels"
    require(len(features) == len(labels), f"{found}: accepted are equally many")
    given, accepted = tuple((models if vectors is None else vectors).shape), tuple(models.shape)
    require(given == accepted, f"vectors have shape {given}: accepted is {accepted}, one for each model")
    norms, products = (models.new_zeros(len(models), len(labels)) for _ in range(2))
    for rows, some in model.passes(len(models), len(labels)):
        portion, along = Microbatch(features[some], labels[some]), None if vectors is None else vectors[rows].float()
        if model.fast:
            taped = model.backward(models[rows], portion)
            with torch.no_grad():
                squares = [visit.layer.squared_norms(visit, signal)[0] for visit, signal in taped]
                norms[rows, some] = torch.stack(squares).sum(0).sqrt_()
                if along is not None:
                    products[rows, some] = gradient_products(model, taped, along)
            continue
        together = max(1, pass_budgets.GRADIENT_BUDGET // models[rows].numel())
        for part in pass_budgets.slices(portion.examples, together):
            gradients = model.example_gradients(models[rows], portion.take(part))
            norms[rows, some][:, part] = torch.linalg.vector_norm(gradients, dim=2)
            if along is not None:
                products[rows, some][:, part] = torch.bmm(gradients, along.unsqueeze(2)).squeeze(2)
    return GradientNormsAndProducts(norms, products)


def gradient_products(model: StackedModel, taped: list[tuple[LayerCall, Tensor]], vectors: Tensor) -> Tensor:
    """Return the inner product of each example's gradient with its trial's vector, float32 (trials, examples).

    Shapes: `vectors` (trials, parameters).

    `model`: As a side effect, the vectors take the place of the layers' current parameters.
    """
    taped[0][0].layer.frame.parameters = model.layout.views(vectors)  # all layers share this frame
    return torch.stack([visit.layer.products(visit, signal) for visit, signal in taped]).sum(0)
