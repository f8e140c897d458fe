"""Log-likelihood ratios of releases with Gaussian noise, and the noise along the difference of D and D' as scores."""

import math

import torch
from scipy.special import ndtri_exp
from torch import Tensor

from fl_audit.mechanisms.likelihood_ratio import Hypotheses, ReleaseLlrs, ReleaseUnderHypotheses, mixed_llr


def gaussian_llr(
    release: ReleaseUnderHypotheses, sigma: Tensor, distance: Tensor, hypotheses: Hypotheses
) -> ReleaseLlrs:
    """Return the log-likelihood ratios and normal scores of releases with noise N(0, sigma^2 I).

    If the differing unit always participates, the ratio is <r - (f(D) + f(D'))/2, f(D) - f(D')> / sigma^2 for the
    release r (Bernau et al. 2021, Lemma 1). If it participates with probability q, the ratio is h(l) - h(l') with h(x)
    = log((1 - q) + q e^x). Here l is the log-likelihood ratio of a sum that contains the unit's contribution under D,
    against a sum without the unit. Likewise l' is the ratio for the unit's contribution under D'.

    Shapes: `sigma` (rows,), `distance` (rows,).
    """
    agreement = (release.residual * release.difference).sum(dim=1)
    weight = hypotheses.weight
    sides = None if hypotheses.sides is None else [side[release.rows] for side in hypotheses.sides]
    along = agreement / (sigma * distance)
    if weight == 1:
        half = distance / (2 * sigma)
        scores = torch.stack([along - half, along + half], dim=1)
        plain = agreement / sigma.square()
        return ReleaseLlrs(plain if sides is None else plain + sides[0] - sides[1], scores)
    residual = release.release - release.shared
    contributions = (release.present, release.absent)
    llrs = [
        ((residual - contribution / 2) * contribution).sum(dim=1) / sigma.square() for contribution in contributions
    ]
    if sides is not None:
        llrs = [llr + side for llr, side in zip(llrs, sides, strict=True)]
    means = [(contribution * release.difference).sum(dim=1) / (sigma * distance) for contribution in contributions]
    position = along + (means[0] + means[1]) / 2
    scores = torch.stack([_normal_score(position, mean, weight) for mean in means], dim=1)
    return ReleaseLlrs(mixed_llr(llrs[0], weight) - mixed_llr(llrs[1], weight), scores)


def _normal_score(position: Tensor, mean: Tensor, weight: float) -> Tensor:
    """Return Phi^-1(F(`position`)) for the distribution function F of the mixture (1 - q) N(0, 1) + q N(`mean`, 1).

    `weight` is q. The smaller tail is used, for accuracy.
    """
    lower, upper = (
        torch.logaddexp(
            math.log1p(-weight) + torch.special.log_ndtr(sign * position),
            math.log(weight) + torch.special.log_ndtr(sign * (position - mean)),
        )
        for sign in (1, -1)
    )
    smaller = torch.minimum(lower, upper).cpu().numpy()
    score = torch.from_numpy(ndtri_exp(smaller)).to(position.device)
    return torch.where(lower <= upper, score, -score)
