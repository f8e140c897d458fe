"""The differential identifiability adversary of Bernau et al. 2021 (Algorithm 1), in the log domain and in all worlds.

It knows every record but one, sees each release, and weighs D against its neighbour D'. Beside that it measures the
noise (`noise_meter`). Its step is a pure function of public values: it holds no state, so two steps of it can run at
the same time.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.adversaries.noise_meter import Meter, Residuals, join
from fl_audit.game.game import Game
from fl_audit.game.seen import Seen, is_blurred, refuse_blurred
from fl_audit.mechanisms.weighing import Hypotheses, gaussian_log_odds


@dataclass(frozen=True)
class Observation:
    """What one round tells the insider.

    Parameters
    ----------
    increment
        Increment of the log-odds of D against D' per world, float64 (worlds,).
    local_sensitivity
        ||f_i(D) - f_i(D')|| per world, float64 (worlds,).
    residuals
        What was measured of the noise.
    """

    increment: NDArray[np.float64]
    local_sensitivity: NDArray[np.float64]
    residuals: Residuals


def observe(game: Game, seen: Seen, batch_worlds: int | None = None) -> Observation:
    """Weigh what was seen of a round, and measure its noise.

    Parameters
    ----------
    game
        The game, with D and D'.
    seen
        What clients saw.
    batch_worlds
        World count of the original batch, when only its first worlds are weighed again; see `StackedModel.clipped_sum`.

    Returns
    -------
    Observation
        A round in which D and D' do not differ adds nothing to the log-odds.

    Raises
    ------
    InputError
        If only models were seen, and their rounding exceeds a thousandth of sigma in a world where D and D' differ.

    Notes
    -----
    Source: Bernau et al. 2021, Lemma 1 and Algorithm 1, for a Gaussian release and written as the logarithm of the
    likelihood ratio.
    """
    law = game.public.law
    release, rounding = seen.sums(law), seen.rounding(law)
    found = weigh(game, game.hypotheses(seen.start, batch_worlds), release)
    if rounding is None:
        return found
    share = rounding.cpu().numpy() / law.noise_scale(found.local_sensitivity)
    refuse_blurred(share[found.local_sensitivity > 0])
    # Noise that is scaled to no difference at all may be smaller than rounding: there it tells nothing.
    return replace(found, residuals=found.residuals.of_recovered(is_blurred(share)))


def weigh(game: Game, hypotheses: Hypotheses, release: Tensor) -> Observation:
    """Weigh noised sums under two hypotheses.

    Parameters
    ----------
    game
        The game: its release law names the noise.
    hypotheses
        What the sums are made of under D and under D'.
    release
        r_i; float32 or float64 (worlds, parameters).
    """
    sensitivity = hypotheses.sensitivity
    sigma = torch.from_numpy(game.public.law.noise_scale(sensitivity)).to(release.device)
    distance = torch.from_numpy(sensitivity).to(release.device)
    meter = Meter(game.model.layout, game.directions)
    increments, residuals = [], []
    for part in hypotheses.against(release):
        agreement = (part.residual * part.difference).sum(dim=1)
        increments.append(gaussian_log_odds(part, agreement, sigma[part.rows], hypotheses.weight))
        residuals.append(meter.measure(part, sigma[part.rows], distance[part.rows]))
    return Observation(torch.cat(increments).cpu().numpy(), sensitivity, join(residuals, axis=0))
