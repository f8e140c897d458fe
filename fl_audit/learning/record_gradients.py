"""Lengths of the gradients of single records, and their products with vectors, in many trials.

Only two numbers of each gradient are needed, so a model of stacked layers does not have to form the gradients. One
forward and one backward pass give every layer its inputs and the gradients of the losses at its outputs. With them
||g||^2 follows as in a clipped sum, and <g, v> as well: the outputs of a layer are linear in its parameters, so <g, v>
is the product of the outputs' gradients with a Jacobian-vector product, the outputs of the layer for the same inputs
with v in place of its parameters; for a dense layer d^T V a. Both together take the time of a clipped sum. (A
forward-mode derivative along v takes as long by itself, and needs a derivative rule for all code of the model.) Other
models form gradients example by example.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning import stacked_model
from fl_audit.learning.microbatching import MicrobatchExamples
from fl_audit.learning.stacked_model import StackedModel


class RecordGradientSummary(NamedTuple):
    """Norms and inner products of the gradients of every record's loss, without clipping."""

    norms: Tensor  # lengths over all parameters together, at least 0, float32 (trials, n)
    products: Tensor  # inner products with one vector for each trial, float32 (trials, n); 0 where none was given


def record_gradients(
    model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, vectors: Tensor | None = None
) -> RecordGradientSummary:
    """Return ||g|| and <v, g>, g the gradient of one record's cross-entropy and v a vector of its trial.

    Raises `InputError` if shapes do not fit. The work is done in passes that fit the budgets of memory.

    Parameters
    ----------
    model
        The stacked model.
    models
        Weights of each trial, float32 (trials, parameters).
    features
        Features of the records, float32 (n, *shape), n may be 0.
    labels
        Classes of the records, int64 (n,).
    vectors
        One vector for each trial, finite, (trials, parameters), which is read in float32. None, where only the norms
        are wanted, spares the products, which are then 0. Norms have the relative error of float32 sums; that of
        products is relative to ||v|| ||g||, not to a product that may be far smaller.

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
        if model.fast:
            taped = model.backward(models[rows], MicrobatchExamples(features[some], labels[some]))
            with torch.no_grad():
                squares = [visit.layer.squared_norms(visit, signal)[0] for visit, signal in taped]
                norms[rows, some] = torch.stack(squares).sum(0).sqrt_()
                if vectors is not None:
                    taped[0][0].layer.frame.parameters = model.layout.views(vectors[rows].float())  # all layers' frame
                    each = [visit.layer.products(visit, signal) for visit, signal in taped]
                    products[rows, some] = torch.stack(each).sum(0)
            continue
        together = max(1, stacked_model.GRADIENT_BUDGET // models[rows].numel())
        for first in range(some.start, some.stop, together):
            part = slice(first, min(some.stop, first + together))
            gradients = model.example_gradients(models[rows], MicrobatchExamples(features[part], labels[part]))
            norms[rows, part] = torch.linalg.vector_norm(gradients, dim=2)
            if vectors is not None:
                products[rows, part] = torch.bmm(gradients, vectors[rows].float().unsqueeze(2)).squeeze(2)
    return RecordGradientSummary(norms, products)
