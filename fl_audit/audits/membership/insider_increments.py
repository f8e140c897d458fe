"""Increments of an insider's log-odds of membership from one round, for all targets of all trials at once.

The increments follow from inner products of the release's noise n with the targets' gradients, and from the gradients'
norms.
"""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import InputError, require
from fl_audit.mechanisms.likelihood_ratio import mixed_llr
from fl_audit.privacy.events import require_sampling_rate


def signal_to_noise(norms: ArrayLike, clipping_norm: float | None, sigma: ArrayLike) -> Floats:
    """Return mu = min(||g||, C) / sigma of each target in one round, at least 0, float64 (trials, targets).

    Given all earlier rounds, the log-odds of a target that takes part grow by N(mu^2/2, mu^2) if it is in, and by
    N(-mu^2/2, mu^2) if it is out.

    Shapes: `norms` (trials, targets), `sigma` (trials,).
    """
    return _clipped(_checked(norms, "norms"), clipping_norm) / _checked_sigma(sigma, len(np.asarray(norms)))


def noise_along_targets(products: ArrayLike, norms: ArrayLike, sigma: ArrayLike) -> Floats:
    """Return <n, h> / (||h|| sigma), the noise along each target's contribution h, float64 (trials, targets).

    Given all earlier rounds, the result is N(0, 1) if the noise n is as claimed. It is NaN where h is 0.

    Shapes: `products` (trials, targets), `norms` (trials, targets), `sigma` (trials,).
    """
    along = _checked(products, "products")
    lengths = _checked(norms, "norms")
    ratio = np.divide(along, lengths, out=np.full(along.shape, np.nan), where=lengths > 0)
    return np.asarray(ratio / _checked_sigma(sigma, len(along)), dtype=np.float64)


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
    """Return the increment of one round to each target's log-odds of "in" against "out".

    The increment is in nats, float64, shape (trials, targets). Let l = (<x, g> - ||g||^2/2) / sigma^2 be the log-odds
    that the target is in the sum, where x is the release minus all other contributions, and g is the target's clipped
    gradient. If the insider knows whether the target takes part, the increment is l if it does and 0 if not. Otherwise
    it is log((1 - q) + q e^l), which is at least log(1 - q). A gradient of zero adds nothing.

    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target. The mixture log((1 - q) + q e^l) is that of
    `fl_audit.mechanisms.likelihood_ratio`.

    Shapes: `products` (trials, targets), `norms` (trials, targets), `sigma` (trials,), `is_in` (trials, targets),
    `takes_part` (trials, targets).

    `products`: Here n is the noise of the trial's release, and h is the target's gradient before clipping.

    `takes_part`: If the insider sees participation, this includes the coins of targets that are out.

    `sampling_rate`: If it is 1, the insider knows of each target whether it takes part.
    """
    shape = np.shape(products)
    require_sampling_rate(sampling_rate)
    is_told = takes_part is not None or sampling_rate == 1
    require(is_told, f"sampling rate is {sampling_rate} and nothing says who takes part: accepted is bool {shape}")
    participation = _checked_flags(
        np.ones(shape, dtype=np.bool_) if takes_part is None else takes_part, "takes_part", shape
    )
    in_sum = _checked_flags(is_in, "is_in", shape) & participation
    along = _checked(products, "products")
    lengths = _checked(norms, "norms")
    require(lengths.shape == along.shape, f"norms have shape {lengths.shape}: accepted is {along.shape}, the products'")
    scale = _checked_sigma(sigma, len(along))
    clipped = _clipped(lengths, clipping_norm)
    factor = np.divide(clipped, lengths, out=np.ones(along.shape), where=lengths > 0)
    # Log-odds that a target is in the sum: (<n, g> +- ||g||^2/2) / sigma^2.
    log_odds = factor * along / scale / scale + np.where(in_sum, 0.5, -0.5) * np.square(clipped / scale)
    if sampling_rate < 1 and not sees_participation:
        return np.asarray(mixed_llr(torch.from_numpy(log_odds), sampling_rate).numpy(), dtype=np.float64)
    return np.where(participation, log_odds, 0.0)


def _clipped(lengths: Floats, clipping_norm: float | None) -> Floats:
    bound = math.inf if clipping_norm is None else clipping_norm
    require(bound > 0, f"clipping norm is {clipping_norm}: accepted are positive numbers, or None for no clipping")
    require(bool((lengths >= 0).all()), f"norms go down to {lengths.min(initial=0.0)}: accepted are numbers from 0")
    return np.minimum(lengths, bound)


def _checked(values: ArrayLike, name: str) -> Floats:
    """Return values as float64 (trials, targets); raise `InputError` if they do not fit or are not finite."""
    array = np.asarray(values, dtype=np.float64)
    require(array.ndim == 2, f"{name} have shape {array.shape}: accepted is (trials, targets)")
    require(bool(np.isfinite(array).all()), f"{name} contain NaN or infinity: accepted are finite numbers")
    return array


def _checked_sigma(sigma: ArrayLike, trials: int) -> Floats:
    """Return the noise scale of each trial, (trials, 1); raise `InputError` if one is not positive and finite."""
    scale = np.asarray(sigma, dtype=np.float64)
    require(scale.shape == (trials,), f"sigma has shape {scale.shape}: accepted is ({trials},), one for each trial")
    positive = np.isfinite(scale) & (scale > 0)
    if not positive.all():
        trial = int(np.argmin(positive))
        raise InputError(f"sigma is {scale[trial]} in trial {trial}: accepted are positive numbers")
    return scale[:, np.newaxis]


def _checked_flags(flags: Flags, name: str, shape: tuple[int, ...]) -> Flags:
    array = np.asarray(flags)
    accepted = array.dtype == np.bool_ and array.shape == shape
    require(accepted, f"{name} is {array.dtype} of shape {array.shape}: accepted is bool {shape}, as the products")
    return array
