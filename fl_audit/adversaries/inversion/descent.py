"""Gradient inversion by descent: the pictures whose update points where the update points that was seen.

Numbers out of their range raise `InputError`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from fl_audit.adversaries.inversion.shared import SharedUpdate
from fl_audit.errors import require
from fl_audit.learning.stacked import CACHE_BUDGET

_BREAKS = (2.667, 1.6, 1.142)
"""At these parts of the iterations the step falls to a tenth, as in the authors' code."""


@dataclass(frozen=True)
class Descent:
    """How long and how far is searched."""

    iterations: int = 1000  # steps of Adam, at least 1
    step: float = 0.1  # of each pixel, in the first three eighths; positive
    smoothness: float = 0.01  # weight of the total variation, from 0
    restarts: int = 1  # from how many starts, of which the one counts that fits best; at least 1
    # When the search ends wherever it is, positive; results then depend on the speed of the machine.
    seconds: float = math.inf

    def __post_init__(self) -> None:
        for name in ("iterations", "restarts"):
            count = getattr(self, name)
            require(count >= 1, f"{name} are {count}: accepted are whole numbers from 1")
        require(self.step > 0, f"step is {self.step}: accepted are positive numbers")
        require(self.smoothness >= 0, f"smoothness is {self.smoothness}: accepted are numbers from 0")
        require(self.seconds > 0, f"seconds are {self.seconds}: accepted are positive numbers")


USUAL = Descent()


def total_variation(pictures: Tensor) -> Tensor:
    """Return the mean change from pixel to pixel, down plus across, of pictures (..., height, width)."""
    down, across = pictures.diff(dim=-2).abs().mean(), pictures.diff(dim=-1).abs().mean()
    return down + across


def descended(
    shared: SharedUpdate,
    seen: Tensor,
    labels: Tensor,
    draw: np.random.Generator,
    descent: Descent = USUAL,
    on_step: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Return pictures whose updates are those that were seen, as nearly as the search finds them.

    They are float32 (owners, pictures, *shape), from 0 to 1, an owner's pictures in the order of its labels.

    Source: Geiping et al. 2020, "Inverting gradients: how easy is it to break privacy in federated learning?", Eq. (4):
    one less the cosine of both updates, plus total variation, by Adam on the signs of the gradient, in the box of
    pixels. Weight, step and its fall are those of the authors' code.

    Parameters
    ----------
    shared, seen, labels
        How pictures become updates; what each owner shared, float32 (owners, parameters); and what its pictures show,
        int64 (owners, pictures).
    draw, descent
        Draws the starts; how long and how far is searched.
    on_step
        Is told how many iterations of all starts are done.
    """
    started, best, fit = time.monotonic(), None, None
    objective = _objective(shared, descent.smoothness)
    together = max(1, CACHE_BUDGET // (labels.shape[1] * seen.shape[1]))
    slopes, fits = (vmap(found, chunk_size=together) for found in (grad(objective), objective))
    shape = (*labels.shape, *shared.model.feature_shape)
    for restart in range(descent.restarts):
        pictures = torch.from_numpy(draw.standard_normal(shape, dtype=np.float32)).to(seen.device)
        optimizer = torch.optim.Adam([pictures], lr=descent.step)
        breaks = [int(descent.iterations // part) for part in _BREAKS]
        falls = torch.optim.lr_scheduler.MultiStepLR(optimizer, breaks, gamma=0.1)
        for iteration in range(descent.iterations):
            pictures.grad = slopes(pictures, labels, seen).sign_()
            optimizer.step()
            falls.step()
            pictures.clamp_(0, 1)
            on_step(restart * descent.iterations + iteration + 1)
            if time.monotonic() - started > descent.seconds:
                break
        found = fits(pictures, labels, seen)
        if best is None or fit is None:
            best, fit = pictures, found
        else:
            is_better = found < fit
            best[is_better], fit = pictures[is_better], torch.minimum(found, fit)
        if time.monotonic() - started > descent.seconds:
            break
    assert best is not None, "there is a start"
    return best


def _objective(shared: SharedUpdate, smoothness: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def objective(pictures: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
        update = shared.of(pictures, labels)
        # The norm of an update of zero has no gradient.
        lengths = torch.sqrt((update.square().sum() * seen.square().sum()).clamp(min=1e-30))
        return 1 - torch.dot(update, seen) / lengths + smoothness * total_variation(pictures)

    return objective
