"""Reconstruct images from observed updates: from a first dense layer, by gradient descent, or by regression.

The regression uses images of other people. Gradient descent needs labels, which are first inferred from the gradient of
the last bias.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.errors import require
from fl_audit.learning.pass_budgets import CACHE_BUDGET
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.value_checks import require_number

_BREAKS = (2.667, 1.6, 1.142)
"""Divisors b: after iterations / b steps the step size falls to a tenth, as in the code of Geiping et al. 2020."""


@dataclass(frozen=True)
class DescentSettings:
    """Settings of the search for images by gradient descent: steps, learning rate, smoothness, starts, time."""

    iterations: int = 1000  # number of steps of Adam, at least 1
    step: float = 0.1  # initial learning rate of Adam, positive
    smoothness: float = 0.01  # weight of the total variation in the objective, at least 0
    restarts: int = 1  # number of random starts, of which the best fit is used, at least 1
    seconds: float = math.inf  # time limit of the search, positive; with it results depend on the machine's speed

    def __post_init__(self) -> None:
        for name in ("iterations", "restarts"):
            require_number(f"{name} are", getattr(self, name), "whole numbers from 1")
        require_number("step is", self.step, "positive numbers")
        require_number("smoothness is", self.smoothness, "numbers from 0")
        require_number("seconds are", self.seconds, "positive numbers")


USUAL = DescentSettings()


def total_variation(pictures: Tensor) -> Tensor:
    """Return the anisotropic total variation of images (..., height, width), averaged over all pixels and images."""
    down = pictures.diff(dim=-2).abs().mean()
    across = pictures.diff(dim=-1).abs().mean()
    return down + across


def images_by_descent(
    update_function: UpdateFunction,
    tensor: Tensor,
    labels: Tensor,
    draw: np.random.Generator,
    descent: DescentSettings,
    on_step: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Return images whose updates match the observed ones as closely as a search by gradient descent can.

    The images are float32 (owners, images, *shape), from 0 to 1, an owner's images in the order of its labels.

    Source: Geiping et al. 2020, "Inverting gradients: how easy is it to break privacy in federated learning?", Eq. (4).
    The search minimises one minus the cosine between the images' update and the observed one, plus a weighted total
    variation of the images. It uses Adam on the signs of the gradient, and clamps pixels to [0, 1]. The weight, the
    step size and its decay are those of the authors' code.

    Shapes: `tensor` (owners, parameters), `labels` (owners, images).
    """
    started = time.monotonic()
    best_images = None

    def objective(pictures: Tensor, labels: Tensor, tensor: Tensor) -> Tensor:
        update = update_function.of(pictures, labels)
        # The norm of an update of zero has no gradient.
        lengths = torch.sqrt((update.square().sum() * tensor.square().sum()).clamp(min=1e-30))
        return 1 - torch.dot(update, tensor) / lengths + descent.smoothness * total_variation(pictures)

    together = max(1, CACHE_BUDGET // (labels.shape[1] * tensor.shape[1]))
    slopes, fits = (vmap(function, chunk_size=together) for function in (grad(objective), objective))
    shape = (*labels.shape, *update_function.model.feature_shape)
    for restart in range(descent.restarts):
        pictures = torch.from_numpy(draw.standard_normal(shape, dtype=np.float32)).to(tensor.device)
        for done in _steps(pictures, lambda now: slopes(now, labels, tensor), descent):
            on_step(restart * descent.iterations + done)
            if time.monotonic() - started > descent.seconds:
                break
        fit = fits(pictures, labels, tensor)
        best, smallest_fit = (pictures, fit) if best_images is None else best_images
        is_better = fit < smallest_fit
        best[is_better] = pictures[is_better]
        best_images = best, torch.minimum(fit, smallest_fit)
        if time.monotonic() - started > descent.seconds:
            break
    assert best_images is not None, "there is a start"
    return best_images[0]


def _steps(pictures: Tensor, slopes: Callable[[Tensor], Tensor], descent: DescentSettings) -> Iterator[int]:
    """Change images in place by steps of Adam, and yield the number of finished steps after each step.

    Only the signs of the gradients, which `slopes` returns, are used.
    """
    optimizer = torch.optim.Adam([pictures], lr=descent.step)
    breaks = [int(descent.iterations // share) for share in _BREAKS]
    falls = torch.optim.lr_scheduler.MultiStepLR(optimizer, breaks, gamma=0.1)
    for done in range(1, descent.iterations + 1):
        pictures.grad = slopes(pictures).sign_()
        optimizer.step()
        falls.step()
        pictures.clamp_(0, 1)
        yield done


MOST_OTHERS = 1000
"""Largest number of other people's images that the attacker uses."""


@dataclass(frozen=True)
class PopulationImages:
    """Images and labels of other people than the victims, which the attacker knows."""

    pictures: Tensor  # pixels of the images from 0 to 1, float32 (others, *shape)
    labels: Tensor  # classes of the images, int64 (others,)


def require_pictures(shape: tuple[int, ...], lowest: float, highest: float) -> None:
    """Raise `InputError` unless records are images of at least 7x7 pixels, with values from 0 to 1.

    Shapes: `shape` (height, width).
    """
    fits = len(shape) in (2, 3) and min(shape[-2:]) >= 7 and lowest >= 0 and highest <= 1
    problem = f"records have shape {shape} and numbers from {lowest:g} to {highest:g}"
    kinds = "(height, width) or (channels, height, width), of at least 7x7 pixels from 0 to 1"
    require(fits, f"{problem}: accepted are pictures, {kinds}")


def drawn_pictures(
    update_function: UpdateFunction,
    tensor: Tensor,
    count: int,
    noise: float,
    images: PopulationImages,
    draw: np.random.Generator,
    descent: DescentSettings = USUAL,
    on_step: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Return the attacker's reconstruction of the images of each owner, float32 (owners, count, *shape).

    With noise, images are estimated by regression on images of other people. Without noise, a single image is computed
    from the gradient of the first dense layer if the model permits it; otherwise gradient descent finds the images.

    Shapes: `tensor` (owners, parameters).
    """
    if noise > 0:
        chosen = _random_sets(images.labels[:MOST_OTHERS], count, draw)
        pictures = images.pictures[chosen]
        labels = images.labels[chosen]
        return _of_population(tensor, noise, pictures, update_function.of_many(pictures, labels))
    if count == 1 and update_function.schedule is None and reads_first_layer(update_function.model):
        return _of_first_layer(update_function.model, tensor)
    with torch.no_grad():
        labels = _inferred_labels(
            update_function, tensor, count, images.pictures[:MOST_OTHERS], images.labels[:MOST_OTHERS]
        )
        return images_by_descent(update_function, tensor, labels, draw, descent, on_step)


def _random_sets(labels: Tensor, count: int, draw: np.random.Generator) -> Tensor:
    """Draw as many random sets of images as there are images, and return the indices of their members.

    The shape is (images, count). Each set is sorted by label, because an update does not reveal the order of its
    records.
    """
    known_labels = labels.cpu().numpy()
    if count == 1:
        return torch.arange(len(known_labels), device=labels.device).unsqueeze(1)
    chosen = draw.random((len(known_labels), len(known_labels))).argsort(axis=1)[:, :count]
    ordered = np.take_along_axis(chosen, known_labels[chosen].argsort(axis=1, kind="stable"), axis=1)
    return torch.from_numpy(ordered).to(labels.device)


def reads_first_layer(model: StackedModel) -> bool:
    """Return whether the model is a chain of dense layers whose first layer has a bias.

    The update of a single record then reveals the record exactly (see `drawn_pictures`).
    """
    return model.chain is not None and model.chain[0].bias is not None


def _of_first_layer(model: StackedModel, tensor: Tensor) -> Tensor:
    """Return each owner's image from the first layer's gradient of its only record, (owners, 1, *shape).

    If d_k is the gradient of the bias of unit k, the gradient of the weights of unit k is d_k x, where x is the image
    (Geiping et al. 2020, Proposition 3.1). The result is the least squares solution for x.
    """
    assert model.chain is not None, "the model is a chain"
    weights = model.chain[0].weights(tensor)
    biases = model.chain[0].biases(tensor)
    assert biases is not None, "its first layer has a bias"
    biases = biases[:, 0]
    pictures = torch.einsum("ok,oki->oi", biases, weights) / biases.square().sum(1, keepdim=True).clamp(min=1e-30)
    return pictures.clamp(0, 1).reshape(len(tensor), 1, *model.feature_shape)


def _of_population(tensor: Tensor, noise: float, pictures: Tensor, updates: Tensor) -> Tensor:
    """Return an estimate of each owner's images from the owner's update, shape (owners, count, *shape).

    The estimate is mean(x) + Cov(x, u) (Cov(u) + noise^2 I)^-1 (seen - mean(u)), the best linear one (Gauss-Markov).
    Means and covariances are those of other people's images x and of the updates u of these images.
    """
    flat = pictures.flatten(1).double()
    centre = updates.mean(0)
    middle, apart = flat.mean(0), updates - centre  # float32, since they fill the memory for large models
    products = (apart @ apart.T).double()
    # Centred updates are linearly dependent. Without noise, a millionth of their size keeps the system solvable.
    ridge = len(apart) * noise**2 + 1e-6 * float(products.diagonal().mean())
    products.diagonal().add_(ridge)
    shares: Tensor = torch.linalg.solve(products, (apart @ (tensor - centre).T).double())
    mixture = middle + shares.T @ (flat - middle)
    return mixture.clamp(0, 1).float().reshape(len(tensor), *pictures.shape[1:])


def _inferred_labels(
    update_function: UpdateFunction, tensor: Tensor, count: int, like: Tensor, like_labels: Tensor
) -> Tensor:
    """Return the inferred classes of each owner's records, ascending, int64 (owners, count).

    Let p_k be the predicted probability of class k. The gradient of the last bias is the sum of p_k - [label is k] over
    records. So the number of records of each class follows from this gradient, with the population's mean of p_k in
    place of the unknown p_k (Zhao et al. 2020; Wainakh et al. 2022).
    """
    logits = update_function.model.logits(update_function.start.unsqueeze(0), like)[0]
    require_last_bias(update_function.model, logits.shape[1])
    chances = F.softmax(logits, dim=1).mean(0).double()
    missing = count * chances - tensor[:, -len(chances) :].double() / _weight(update_function, count, like, like_labels)
    positions = torch.zeros(len(tensor), count, dtype=torch.int64, device=tensor.device)
    for index in range(count):
        positions[:, index] = missing.argmax(dim=1)
        missing[torch.arange(len(tensor)), positions[:, index]] -= 1
    return positions.sort(dim=1).values


def require_last_bias(model: StackedModel, classes: int) -> None:
    """Raise `InputError` unless the last parameter of a model is a bias with one entry for each class.

    Labels are inferred from the gradient of this bias.
    """
    name = model.layout.names[-1]
    shape = model.layout.shapes[-1]
    problem = f"the last parameter of the model is {name} of shape {tuple(shape)}"
    require(shape == (classes,), f"{problem}: accepted for inferring labels is a bias of its {classes} classes")


def _weight(update_function: UpdateFunction, count: int, like: Tensor, like_labels: Tensor) -> float:
    """Return the mean factor by which a record's gradient is multiplied in an update of `count` records.

    The factor follows from the learning rate, the number of steps and clipping. The effect of clipping is estimated
    from records of the population, whose features and labels are `like` and `like_labels`.
    """
    schedule = update_function.schedule
    alone = 1.0 if schedule is None else schedule.learning_rate * len(update_function.batches) / count
    if update_function.clipping_norm is None:
        return alone
    clipped = 1 if schedule is None else count  # records whose contribution is clipped as one
    groups = min(100, len(like) // clipped)
    records, labels = (
        tensor[: groups * clipped].reshape(groups, clipped, *tensor.shape[1:]) for tensor in (like, like_labels)
    )
    lengths = replace(update_function, clipping_norm=None).of_many(records, labels).norm(dim=1)
    return alone * float((update_function.clipping_norm / lengths).clamp(max=1).mean())
