"""Norms of the gradients of users or single records, and their inner products with vectors, in many trials.

The gradient of a user is the sum of the gradients of the user's records; a record without a named user is a user with
one record. Only two numbers of each gradient g are needed, so a model of stacked layers, which compute all trials at
once, does not have to compute the gradients. One forward and one backward pass give every layer its inputs and the
gradients d of the losses at its outputs. The norm ||g||^2 is computed from inputs and d as for a clipped sum. The inner
product <g, v> with a vector v is computed from inputs and d, too, because a layer's outputs are linear in its
parameters: <g, v> is the inner product of d with the outputs that the layer would give if v were its parameters. For a
dense layer with inputs a, where V is the matrix of the entries of v, it is d^T V a. Norms and inner products together
take as long as a clipped sum. (A forward-mode derivative along v takes as long for the inner products alone, and needs
a derivative rule for all code of the model.) For other models, per-example gradients are computed.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.layers import LayerCall
from fl_audit.learning.microbatching import GroupedRecords, Microbatch
from fl_audit.learning.pass_budgets import slices
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.unit_norms import unit_norms


class GradientNormsAndProducts(NamedTuple):
    """Norms of unclipped gradients of users or records, and their inner products with a given vector per trial."""

    norms: Tensor  # norms, in that of the model, over all parameters together, float32 (trials, users)
    products: Tensor  # inner products with the vector of the trial, float32 (trials, users); 0 if there are no vectors


def gradient_norms_and_products(
    model: StackedModel,
    models: Tensor,
    features: Tensor,
    labels: Tensor,
    vectors: Tensor | None = None,
    users: Tensor | None = None,
) -> GradientNormsAndProducts:
    """Return ||g|| and <v, g> for each user and trial, where g is the sum of the user's gradients of cross-entropy.

    Raises `InputError` if shapes do not match.

    Shapes: `models` (trials, parameters), `features` (n, *shape), `labels` (n,), `vectors` (trials, parameters),
    `users` (n,).

    `vectors`: The error of a product is relative to ||v|| ||g||, which may be far larger than the product.

    `users`: The records of each user are adjacent, and the users of the result are in the same order; None if each
    record is a user.

    Examples
    --------
    >>> model = StackedModel(torch.nn.Linear(2, 2, bias=False), (2,))
    >>> records, labels, vector = torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> norms, products = gradient_norms_and_products(model, torch.zeros(1, 4), records, labels, vector)
    >>> round(float(norms), 4), round(float(products), 4)  # of the gradient (-3, -4, 3, 4) / 2
    (3.5355, -1.5)
    """
    _check_shapes(model, models, features, labels, vectors)
    records = GroupedRecords.of(features, labels, users)
    norms = [models.new_zeros(len(models), 0)]
    products = [models.new_zeros(len(models), 0)]
    model.forget()
    for block in records.blocks(model.examples_per_pass):
        passes = [
            _of_pass(
                model, models[rows], block.grouped_microbatch(rows), None if vectors is None else vectors[rows].float()
            )
            for rows in slices(len(models), model.trials_per_pass(block.width))
        ]
        norms.append(torch.cat([of_pass.norms for of_pass in passes]))
        products.append(torch.cat([of_pass.products for of_pass in passes]))
    joined = GradientNormsAndProducts(torch.cat(norms, dim=1), torch.cat(products, dim=1))
    if records.user_order is None:
        return joined
    original_order = torch.argsort(records.user_order)
    return GradientNormsAndProducts(joined.norms[:, original_order], joined.products[:, original_order])


def _check_shapes(
    model: StackedModel, models: Tensor, features: Tensor, labels: Tensor, vectors: Tensor | None
) -> None:
    size = model.layout.size
    fits = models.dim() == 2 and models.shape[1] == size
    require(fits, f"models have shape {tuple(models.shape)}: accepted is (trials, {size}), as the model has parameters")
    counts = f"{len(features)} features and {len(labels)} labels"
    require(len(features) == len(labels), f"{counts}: accepted are equally many")
    shape = tuple((models if vectors is None else vectors).shape)
    accepted = tuple(models.shape)
    require(shape == accepted, f"vectors have shape {shape}: accepted is {accepted}, one for each model")


def _of_pass(
    model: StackedModel, models: Tensor, microbatch: Microbatch, vectors: Tensor | None
) -> GradientNormsAndProducts:
    """Return the norms and products of all users of one pass."""
    if model.is_fast_when_clipping:
        return _of_layers(model, model.backward(models, microbatch), microbatch, vectors)
    norms = list[Tensor]()
    products = list[Tensor]()
    for part_of_pass in model.generic_parts(len(models), microbatch):
        gradients = model.user_gradients(models, part_of_pass)
        norms.append(torch.linalg.vector_norm(gradients, ord=model.norm.order, dim=2))
        products.append(
            torch.zeros_like(norms[-1]) if vectors is None else torch.bmm(gradients, vectors.unsqueeze(2)).squeeze(2)
        )
    return GradientNormsAndProducts(torch.cat(norms, dim=1), torch.cat(products, dim=1))


def _of_layers(
    model: StackedModel, calls: list[tuple[LayerCall, Tensor]], microbatch: Microbatch, vectors: Tensor | None
) -> GradientNormsAndProducts:
    """Return the norms and products of all users of a pass from the recorded calls of its stacked layers."""
    with torch.no_grad():
        squares = torch.stack([unit_norms(microbatch, call, signal).squares for call, signal in calls]).sum(0)
        norms = squares.clamp_(min=0.0).sqrt_().float()
        if vectors is None:
            return GradientNormsAndProducts(norms, torch.zeros_like(norms))
        products = gradient_products(model, calls, vectors)
        return GradientNormsAndProducts(
            norms, products if microbatch.groups is None else microbatch.groups.summed(products)
        )


def gradient_products(model: StackedModel, calls: list[tuple[LayerCall, Tensor]], vectors: Tensor) -> Tensor:
    """Return the inner product of each example's gradient with its trial's vector, float32 (trials, examples).

    Shapes: `vectors` (trials, parameters).

    `model`: As a side effect, the vectors take the place of the layers' current parameters.
    """
    calls[0][0].layer.frame.parameters = model.layout.views(vectors)  # all layers share this frame
    return torch.stack([call.layer.products(call, signal) for call, signal in calls]).sum(0)
