"""What clients see of a round: the one place where the views differ.

Under `update` clients see the noised sum, and the models follow from it by the public optimizer. Under `model` they see
models alone, and the insider recovers the sum from successive ones. The server shows, the recorder keeps, the insider
reads and replay walks through what these functions say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require
from fl_audit.learning.optimizers import OptimizerState, inversion_error, recover_gradient, step
from fl_audit.mechanisms.law import ReleaseLaw
from fl_audit.protocol import Key, models_key


class View(StrEnum):
    """What clients see of a round: the noised sum, or only the model that follows from it."""

    UPDATE = "update"
    MODEL = "model"


_KEPT = {View.UPDATE: "releases", View.MODEL: "models"}

_BLURRED_FROM = 1e-3
"""Share of the noise's standard deviation above which the rounding of float32 models hides a recovered release."""


@dataclass(frozen=True)
class Seen:
    """What clients saw of one round.

    Parameters
    ----------
    models
        Successive models (worlds, parameters), oldest first. Under `update` theta_{i-1} alone; under `model` as many as
        determine the sum, theta_i last.
    release
        The noised sums r_i (worlds, parameters); None under `model`.
    """

    models: tuple[Tensor, ...]
    release: Tensor | None

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it by name, for a message."""
        named = {models_key(back): model for back, model in enumerate(reversed(self.models))}
        return named if self.release is None else named | {Key.RELEASE: self.release}

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "Seen":
        """Return what `tensors` named."""
        models = len(tensors) - (Key.RELEASE in tensors)
        return Seen(tuple(tensors[models_key(back)] for back in reversed(range(models))), tensors.get(Key.RELEASE))

    @property
    def start(self) -> Tensor:
        """Return theta_{i-1}, the models on which the clients worked."""
        return self.models[-1] if self.release is not None else self.models[-2]

    def sums(self, law: ReleaseLaw) -> Tensor:
        """Return the noised sums, recovered in float64 where only models were seen."""
        if self.release is not None:
            return self.release
        return recover_gradient(law.optimizer, list(self.models)) * law.denominator

    def rounding(self, law: ReleaseLaw) -> Tensor | None:
        """Return the root mean square of the rounding in recovered sums (worlds,); None where they were seen."""
        if self.release is not None:
            return None
        return inversion_error(
            law.optimizer, torch.maximum(self.models[-1].abs(), self.models[-2].abs()), law.denominator
        )


def require_view(view: View, law: ReleaseLaw) -> None:
    """Refuse a view under which the release cannot be told.

    Raises
    ------
    InputError
        If only models are seen and the optimizer cannot be inverted.
    """
    if view is View.MODEL:
        _ = law.optimizer.models_to_invert  # refuses Adam, which cannot be inverted


def is_blurred(share: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether the rounding of float32 models hides a release recovered from them.

    Parameters
    ----------
    share
        Rounding of the recovered sum over the standard deviation of its noise, at least 0; any shape.
    """
    return share > _BLURRED_FROM


def refuse_blurred(share: NDArray[np.float64]) -> None:
    """Refuse models from which the release cannot be recovered because their rounding hides it.

    Parameters
    ----------
    share
        As for `is_blurred`, one number per world that counts.

    Raises
    ------
    InputError
        If the release is hidden in any world.
    """
    worst = float(share.max(initial=0.0))
    require(
        not is_blurred(share).any(),
        "view is 'model', and the 32-bit numbers of the models hide the release: their rounding is "
        f"{worst:.2g} of the standard deviation of the noise, accepted is up to {_BLURRED_FROM:g}; raise the learning "
        "rate, or use view = 'update'",
    )


def show(view: View, law: ReleaseLaw, models: Sequence[Tensor], release: Tensor) -> Seen:
    """Return what clients see of a round.

    Parameters
    ----------
    view
        What they may see.
    law
        The release law.
    models
        Successive models, theta_i last, theta_{i-1} before it, and one more where there is one.
    release
        r_i.
    """
    match view:
        case View.UPDATE:
            return Seen((models[-2],), release)
        case View.MODEL:
            return Seen(tuple(models[-law.optimizer.models_to_invert :]), None)


def kept_of(view: View, release: Tensor, model: Tensor) -> Tensor:
    """Return what a run directory keeps of a round: as much as clients saw."""
    match view:
        case View.UPDATE:
            return release
        case View.MODEL:
            return model


def kept_name(view: View) -> str:
    """Return the name under which a run directory keeps the rounds."""
    return _KEPT[view]


def walk(
    view: View, law: ReleaseLaw, initial: Tensor, rounds: Sequence[Tensor]
) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Walk through the kept rounds of some worlds.

    Parameters
    ----------
    view, law
        As the game says.
    initial
        theta_0 (worlds, parameters).
    rounds
        What was kept of each round, in order.

    Yields
    ------
    tuple
        Up to three successive models, theta_i last and theta_{i-1} before it, and r_i. Under the view `update` the
        models follow from the releases by the public optimizer, under `model` the releases from the models.
    """
    models, state = [initial], OptimizerState()
    for kept in rounds:
        match view:
            case View.UPDATE:
                moved, state = step(law.optimizer, models[-1], kept, state, law.denominator)
                models, release = [*models[-2:], moved], kept
            case View.MODEL:
                models = [*models[-2:], kept]
                release = recover_gradient(law.optimizer, models) * law.denominator
        yield models, release
