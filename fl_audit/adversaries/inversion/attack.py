"""The best drawing for what was seen: by the first layer, by descent, or with the help of other people's pictures."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_audit.adversaries.inversion.descent import USUAL, Descent, descended
from fl_audit.adversaries.inversion.first_layer import of_first_layer, reads_first_layer
from fl_audit.adversaries.inversion.labels import inferred_labels
from fl_audit.adversaries.inversion.population import of_population
from fl_audit.adversaries.inversion.shared import SharedUpdate
from fl_audit.errors import require

MOST_OTHERS = 1000
"""Of so many other people's pictures the attacker works out the updates, which it holds at once."""


@dataclass(frozen=True)
class OtherPictures:
    """Pictures of the population that the attacker has, and their labels; the true ones are not among them."""

    pictures: Tensor  # float32 (others, *shape), from 0 to 1
    labels: Tensor  # int64 (others,)


def require_pictures(shape: tuple[int, ...], least: float, most: float) -> None:
    """Refuse records that are no pictures.

    Parameters
    ----------
    shape
        Shape of one record.
    least, most
        The range of its numbers.

    Raises
    ------
    InputError
        If they have no height and width of 7 pixels and more, or numbers outside 0 to 1.
    """
    require(
        len(shape) in (2, 3) and min(shape[-2:]) >= 7 and least >= 0 and most <= 1,
        f"records have shape {shape} and numbers from {least:g} to {most:g}: accepted are pictures, (height, width) or "
        "(channels, height, width), of at least 7x7 pixels from 0 to 1",
    )


def drawn_pictures(
    shared: SharedUpdate,
    seen: Tensor,
    count: int,
    noise: float,
    others: OtherPictures,
    draw: np.random.Generator,
    descent: Descent = USUAL,
    on_step: Callable[[int], None] = lambda done: None,
) -> Tensor:
    """Return what an attacker draws of the pictures of every owner, float32 (owners, count, *shape).

    Without noise a first dense layer writes a single picture down, and elsewhere descent finds pictures; what noise
    hides is filled in from others.

    Parameters
    ----------
    shared
        How pictures become updates.
    seen
        What was seen of each owner, float32 (owners, parameters).
    count
        How many pictures each owner shared, at least 1.
    noise
        Standard deviation of the noise in each coordinate, from 0.
    others
        What the attacker has, at least `count` pictures.
    draw, descent, on_step
        As for `descended`.
    """
    if noise > 0:
        chosen = _together(others.labels[:MOST_OTHERS], count, draw)
        pictures, labels = others.pictures[chosen], others.labels[chosen]
        return of_population(seen, noise, pictures, shared.of_many(pictures, labels))
    if noise == 0 and count == 1 and shared.schedule is None and reads_first_layer(shared.model):
        return of_first_layer(shared.model, seen)
    with torch.no_grad():
        labels = inferred_labels(shared, seen, count, others.pictures[:MOST_OTHERS], others.labels[:MOST_OTHERS])
        return descended(shared, seen, labels, draw, descent, on_step)


def _together(labels: Tensor, count: int, draw: np.random.Generator) -> Tensor:
    """Return which other pictures might be an owner's, (as many owners as pictures, count), in the order of labels.

    An update does not tell the order of its records. In that of their labels, the same place of two owners looks alike.
    """
    known = labels.cpu().numpy()
    if count == 1:
        return torch.arange(len(known), device=labels.device).unsqueeze(1)
    chosen = draw.random((len(known), len(known))).argsort(axis=1)[:, :count]
    ordered = np.take_along_axis(chosen, known[chosen].argsort(axis=1, kind="stable"), axis=1)
    return torch.from_numpy(ordered).to(labels.device)
