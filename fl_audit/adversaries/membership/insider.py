"""What the insider of the membership game can tell of every target: exact log-odds, of all targets at once.

For each target there is an insider of its own, who knows all records, who of the other targets is in, and who of them
takes part in which round. It subtracts what the others add to a release, and what is left is x = n + b s g: the noise n
of law N(0, sigma^2 I), the target's clipped gradient g, its coin b and whether it takes part, s. Nothing but <x, g>
matters, and <x, g> = <n, g> + b s ||g||^2. So a simulation that knows the noise plays all insiders of a world in one
pass over the records.

Summed over rounds, the log-odds of a target are the logarithm of the likelihood ratio of all releases, whatever the
models did between them. Insiders of one world see the same noise: their log-odds are not independent. Arrays whose
shapes do not fit, and numbers out of their range, raise `InputError`.
"""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike

from fl_audit.arrays import Flags, Floats
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.weighing import mixed_log_odds
from fl_audit.privacy.events import require_sampling_rate


def _signal_to_noise(norms: ArrayLike, clipping_norm: float | None, sigma: ArrayLike) -> Floats:
    """Return mu = min(||g||, C) / sigma of every target in one round, at least 0, float64 (worlds, targets).

    Given all rounds before, the increment of a target that is known to take part is N(+-mu^2/2, mu^2), + if it is in.
    """
    return _clipped(_checked(norms, "norms"), clipping_norm) / _checked_sigma(sigma, len(np.asarray(norms)))


def _noise_along(products: ArrayLike, norms: ArrayLike, sigma: ArrayLike) -> Floats:
    """Return <n, h> / (||h|| sigma), the noise along every target's contribution, float64 (worlds, targets).

    Given all rounds before it is N(0, 1) if the noise has the claimed law, whoever takes part: h follows from them. It
    is NaN where h is 0, which has no direction.
    """
    along, lengths = _checked(products, "products"), _checked(norms, "norms")
    scale = _checked_sigma(sigma, len(along))
    found: Floats = np.divide(along, lengths, out=np.full(along.shape, np.nan), where=lengths > 0) / scale
    return found


def increments(
    products: ArrayLike,
    norms: ArrayLike,
    clipping_norm: float | None,
    sigma: ArrayLike,
    is_in: Flags,
    takes_part: Flags | None = None,
    sampling_rate: float = 1.0,
    sees_participation: bool = False,
) -> Floats:
    """Return what one round adds to the log-odds of "in" against "out" for every target, float64 (worlds, targets).

    Natural logarithms. With l = (<x, g> - ||g||^2/2) / sigma^2 the log-odds of being in the sum: l where the target
    takes part and 0 where it does not, if that is known; otherwise log((1 - q) + q e^l), which is at least log(1 - q).
    A gradient of zero adds nothing. Raises `InputError` also if records are sampled and `takes_part` is missing.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; the mixture as in
    `fl_audit.mechanisms.weighing`.

    Parameters
    ----------
    products, norms
        <n, h> and ||h||, n the noise of the world's release (the release less the true sum of clipped gradients) and h
        the target's gradient before clipping; finite, (worlds, targets). See `fl_audit.learning.record_gradients`.
    clipping_norm, sigma
        C, positive, or None for no clipping; noise standard deviation of each world, positive, shape (worlds,). Without
        noise the insider is certain as soon as a target takes part, and there are no finite log-odds: 0 is refused.
    is_in, takes_part
        Which targets are in, and which take part in the round if they are in, bool (worlds, targets); None is all of
        them. Coins of targets that are out count: under seen participation the insider is shown them too.
    sampling_rate, sees_participation
        q, with which each target takes part by a secret coin, above 0 and up to 1, and whether the insider is shown
        which do. At 1 there is no secret: a target that does not take part, say because its client is not in a public
        cohort, is known not to.
    """
    shape = np.shape(products)
    require_sampling_rate(sampling_rate)
    is_told = takes_part is not None or sampling_rate == 1
    require(is_told, f"sampling rate is {sampling_rate} and nothing says who takes part: accepted is bool {shape}")
    part = _checked_flags(np.ones(shape, dtype=np.bool_) if takes_part is None else takes_part, "takes_part", shape)
    in_sum = _checked_flags(is_in, "is_in", shape) & part
    log_odds = _log_odds_of_the_sum(products, norms, clipping_norm, sigma, in_sum)
    if sampling_rate < 1 and not sees_participation:
        return np.asarray(mixed_log_odds(torch.from_numpy(log_odds), sampling_rate).numpy(), dtype=np.float64)
    return np.where(part, log_odds, 0.0)


def _log_odds_of_the_sum(
    products: ArrayLike, norms: ArrayLike, clipping_norm: float | None, sigma: ArrayLike, in_sum: Flags
) -> Floats:
    """Return the log-odds of a target's being in the sum against its being out: (<n, g> +- ||g||^2/2) / sigma^2."""
    along, lengths = _checked(products, "products"), _checked(norms, "norms")
    require(lengths.shape == along.shape, f"norms have shape {lengths.shape}: accepted is {along.shape}, the products'")
    scale = _checked_sigma(sigma, len(along))
    clipped = _clipped(lengths, clipping_norm)
    factor = np.divide(clipped, lengths, out=np.ones(along.shape), where=lengths > 0)
    found = factor * along / scale / scale + np.where(in_sum, 0.5, -0.5) * np.square(clipped / scale)
    return np.asarray(found, dtype=np.float64)


def _clipped(lengths: Floats, clipping_norm: float | None) -> Floats:
    bound = math.inf if clipping_norm is None else clipping_norm
    require(bound > 0, f"clipping norm is {clipping_norm}: accepted are positive numbers, or None for no clipping")
    require(bool((lengths >= 0).all()), f"norms go down to {lengths.min(initial=0.0)}: accepted are numbers from 0")
    return np.minimum(lengths, bound)


def _checked(values: ArrayLike, name: str) -> Floats:
    """Return numbers of all worlds and targets as float64, or refuse them."""
    found = np.asarray(values, dtype=np.float64)
    require(found.ndim == 2, f"{name} have shape {found.shape}: accepted is (worlds, targets)")
    require(bool(np.isfinite(found).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return found


def _checked_sigma(sigma: ArrayLike, worlds: int) -> Floats:
    """Return the noise of each world as a column, or refuse it."""
    scale = np.asarray(sigma, dtype=np.float64)
    require(scale.shape == (worlds,), f"sigma has shape {scale.shape}: accepted is ({worlds},), one for each world")
    positive = np.isfinite(scale) & (scale > 0)
    if not positive.all():
        world = int(np.argmin(positive))
        raise InputError(f"sigma is {scale[world]} in world {world}: accepted are positive numbers")
    return scale[:, np.newaxis]


def _checked_flags(flags: Flags, name: str, shape: tuple[int, ...]) -> Flags:
    found = np.asarray(flags)
    accepted = found.dtype == np.bool_ and found.shape == shape
    require(accepted, f"{name} is {found.dtype} of shape {found.shape}: accepted is bool {shape}, as the products")
    return found
