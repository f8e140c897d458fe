"""The differential identifiability adversary of Bernau et al. 2021 (Algorithm 1), in the log domain and in all worlds.

It knows every record but one, sees each release, and weighs D against its neighbour D'. Its step is a pure function of
public values: it holds no state, so two steps of it can run at the same time.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.errors import require
from fl_audit.game import Game, local_sensitivity
from fl_audit.learning.optimizers import inversion_error, recover_gradient
from fl_audit.learning.portions import cached_rows

_TOLERATED_ROUNDING = 1e-3
"""Share of sigma up to which the rounding of float32 models may blur a recovered release."""


@dataclass(frozen=True)
class RoundEvidence:
    """What one round tells the insider.

    Parameters
    ----------
    log_odds
        Increment of the log-odds of D against D' per world, float64 (worlds,).
    local_sensitivity
        ||f_i(D) - f_i(D')|| per world, float64 (worlds,).
    """

    log_odds: NDArray[np.float64]
    local_sensitivity: NDArray[np.float64]


def weigh_release(game: Game, models: Tensor, release: Tensor, batch_worlds: int | None = None) -> RoundEvidence:
    """Weigh one released sum: L_i - L_{i-1} = <r_i - (f(D) + f(D'))/2, f(D) - f(D')> / sigma_i^2.

    Parameters
    ----------
    game
        The game, with D and D'.
    models
        theta_{i-1}, the models on which the clients computed their gradients; float32 (worlds, parameters).
    release
        r_i, the noised sums; float32 or float64 (worlds, parameters).
    batch_worlds
        Size of the batch that the worlds are the first of, where only these are weighed again; see
        `StackedModel.clipped_sum`.

    Returns
    -------
    RoundEvidence
        Increments and sensitivities; a round in which D and D' do not differ adds nothing.

    Notes
    -----
    Source: Bernau et al. 2021, Lemma 1 and Algorithm 1, for a Gaussian release and written as the logarithm of the
    likelihood ratio. The two sums differ in one or two gradients only, so their difference is formed from these and
    never from two large sums.
    """
    shared = game.clipped_sum(models, game.common, batch_worlds)
    present, absent = game.differing_gradients(models, batch_worlds)
    sensitivity = local_sensitivity(present, absent)
    sigma = game.public.law.noise_scale(sensitivity)
    parts = (release, shared, present, absent)
    agreements = [_agreement(*(part[rows].double() for part in parts)) for rows in cached_rows(*models.shape)]
    agreement = torch.cat(agreements).cpu().numpy()
    return RoundEvidence(log_odds=agreement / sigma**2, local_sensitivity=sensitivity)


def _agreement(release: Tensor, shared: Tensor, present: Tensor, absent: Tensor) -> Tensor:
    """Return <r - (f(D) + f(D'))/2, f(D) - f(D')> per world; `shared` is the part that both sums hold."""
    middle = shared + (present + absent) / 2
    return ((release - middle) * (present - absent)).sum(dim=1)


def weigh_models(game: Game, models: list[Tensor], batch_worlds: int | None = None) -> RoundEvidence:
    """Weigh a round of which only models are seen: recover the release from them, then weigh it.

    Parameters
    ----------
    game
        The game; its optimizer must be invertible.
    models
        Successive models, oldest first: theta_{i-1} and theta_i last, before them what momentum needs.
    batch_worlds
        As for `weigh_release`.

    Raises
    ------
    InputError
        If the rounding of the models exceeds a thousandth of sigma in a world where D and D' differ.
    """
    law = game.public.law
    release = recover_gradient(law.optimizer, models) * law.denominator
    evidence = weigh_release(game, models[-2], release, batch_worlds)
    sigma = law.noise_scale(evidence.local_sensitivity)
    rounding = inversion_error(law.optimizer, torch.maximum(models[-1].abs(), models[-2].abs()), law.denominator)
    share = np.where(evidence.local_sensitivity > 0, rounding.cpu().numpy() / sigma, 0.0)
    worst = float(share.max())
    require(
        worst <= _TOLERATED_ROUNDING,
        f"view is 'model' and float32 models hide the release: their rounding is {worst:.2g} of sigma in one world, "
        f"accepted is up to {_TOLERATED_ROUNDING:g}; raise the learning rate or use view 'update'",
    )
    return evidence
