"""The differential identifiability adversary of Bernau et al. 2021 (Algorithm 1), in the log domain and in all worlds.

It knows every record but one, sees each release, and weighs D against its neighbour D'. Beside that it measures the
noise (`noise_meter`). Its step is a pure function of public values: it holds no state, so two steps of it can run at
the same time.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fl_audit.adversaries.noise_meter import Meter
from fl_audit.adversaries.residuals import Residuals, join
from fl_audit.arrays import Floats
from fl_audit.game.game import Game
from fl_audit.game.hypotheses import question_of
from fl_audit.game.seen import SeenRound, is_blurred, refuse_blurred
from fl_audit.mechanisms.weighing import Hypotheses, weigh_gaussian


@dataclass(frozen=True)
class Observation:
    """What one round tells the insider."""

    increment: Floats  # increment of the log-odds of D against D' per world, float64 (worlds,)
    local_sensitivity: Floats  # ||f_i(D) - f_i(D')|| per world, float64 (worlds,)
    # The noise along the difference of D and D' as normal scores, under D and under D', float64 (worlds, 2); see
    # `fl_audit.mechanisms.weighing.Weighed`.
    scores: Floats
    residuals: Residuals  # what was measured of the noise


def observe(game: Game, seen: SeenRound, batch_worlds: int | None = None) -> Observation:
    """Weigh what was seen of a round, and measure its noise.

    A round in which D and D' do not differ adds nothing to the log-odds.

    Source: Bernau et al. 2021, Lemma 1 and Algorithm 1, for a Gaussian release and written as the logarithm of the
    likelihood ratio.

    Raises `InputError` if only models were seen, and their rounding exceeds a thousandth of sigma in a world where D
    and D' differ.

    Parameters
    ----------
    game, seen
        The game, with D and D', and what clients saw.
    batch_worlds
        World count of the original batch, when only its first worlds are weighed again; see `StackedModel.clipped_sum`.
    """
    law, rounding = game.public.law, seen.rounding(game.public.law)
    question = question_of(game, seen, batch_worlds)
    found = weigh(game, question.hypotheses, question.observed, seen.around.norms_array)
    if rounding is None:
        return found
    share = rounding.cpu().numpy() / law.noise_scale(found.local_sensitivity, game.public.standpoint)
    refuse_blurred(share[found.local_sensitivity > 0])
    # Noise that is scaled to no difference at all may be smaller than rounding: there it tells nothing.
    return replace(found, residuals=found.residuals.of_recovered(is_blurred(share)))


def weigh(game: Game, hypotheses: Hypotheses, release: Tensor, norms: Floats | None = None) -> Observation:
    """Weigh noised sums under two hypotheses.

    Parameters
    ----------
    game, hypotheses
        The game, whose release law names the noise, and what the sums are made of under D and under D'.
    release, norms
        r_i, float32 or float64 (worlds, parameters); the clipping norms of the round where they are adaptive, float64
        (worlds,).
    """
    sensitivity = hypotheses.sensitivity
    scale = game.public.law.noise_scale(sensitivity, game.public.standpoint, norms)
    sigma = torch.from_numpy(scale).to(release.device)
    distance = torch.from_numpy(sensitivity).to(release.device)
    meter = Meter(game.model.layout, game.directions, with_neither=game.public.is_secretly_sampled)
    weighed, residuals = [], []
    for part in hypotheses.against(release):
        rows, agreement = part.rows, (part.residual * part.difference).sum(dim=1)
        weighed.append(weigh_gaussian(part, agreement, sigma[rows], distance[rows], hypotheses))
        residuals.append(meter.measure(part, sigma[rows], distance[rows]))
    increment, scores = (torch.cat([getattr(one, name) for one in weighed]) for name in ("log_odds", "scores"))
    measured = join(residuals, axis=0)
    if not game.offers_meter:
        measured = measured.of_sides()
    return Observation(increment.cpu().numpy(), sensitivity, scores.cpu().numpy(), measured)
