"""Measure the noise of releases, by statistics that an insider (an adversarial client) can compute.

The insider does not know the secret bit. It knows f(D) and f(D'), one of which is the sum in the release r. So it can
compute the noise of the release in all directions except the direction of f(D) - f(D'). Let e = r - (f(D) + f(D'))/2,
and let u be the unit vector of f(D) - f(D'). Then the residual w = e - <e, u> u has the distribution N(0, sigma^2 (I -
uu')) whether D or D' was used. The measurement returns sums, a few projections and a small sample, but never whole
vectors.

Noise with another distribution is first turned into values that are independent N(0, 1), by the kind of noise itself
(`MechanismNoise.standard_residuals`). That needs to know the sum before the noise, so only the measurements of sides
are made then: of `total` and the like nothing is left.

If each release is the sum of D or of D' plus fresh noise N(0, sigma^2 I), the measured values have the following
distributions, given all earlier releases. A side is a hypothesis, D or D', and the true side is the hypothesis that
holds.

* `total` / sigma^2 is chi-square with `total_freedom` degrees;
* `squares` / sigma^2 of a tensor is chi-square with its `freedom` degrees. The part of w in tensor g has the smaller
  variance sigma^2 (1 - ||u_g||^2) along u_g, the part of u in g. This direction is scaled to variance sigma^2, or left
  out if u lies almost wholly in g. Sums of different tensors are slightly dependent;
* `projections` / sigma are independent N(0, 1), over directions, rounds and trials;
* `gradient` / sigma is N(0, 1), independent over rounds and trials;
* the noise in `signal` of the true side is N(0, 1) along either direction, independent over rounds and trials;
* `low_bits` of the true side has mean 0 and variance `low_bits_count` / 2;
* `sample` of the true side is independent N(0, 1), over coordinates, rounds and trials. Every entry of `strides` of the
  true side is chi-square with as many degrees of freedom as its class has coordinates.

The sampled coordinates are fixed and public. A copy of noise from one coordinate to another is found only if both are
sampled. So the sample contains the first 32 coordinates, some multiples of 32, both ends of the model and of every
tensor, and the beginnings of the rows of the largest matrix.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Integers
from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.likelihood_ratio import ReleaseUnderHypotheses
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.verdict.noise_statistics import STRIDES, NoiseStatistics, stride_step

SAMPLE = 112  # coordinates in the sample, unless the model is smaller or has more tensors
RUN = 32  # length of the run of neighbours with which the sample begins
_FEW = 16

_LEAST_VARIANCE = 0.01
"""Smallest variance of w along u_g, over sigma^2, at which this direction is counted; below it rounding shows."""

_LOW_BITS_COORDINATES = 16
_SINGLE_BITS = 24
_SIGNIFICANT = 2.0**11
"""Half precision has 11 significant bits: with a mantissa in [1/2, 1), such numbers are whole multiples of 2^-11."""


@dataclass(frozen=True)
class NoiseMeasurer:
    """Measures the noise in a round's releases: in each tensor, along f(D) - f(D'), and along public directions."""

    layout: ParameterLayout  # positions of the parameter tensors
    # Orthonormal public directions, float32 (coordinates, J), on coordinates that are evenly spread over the
    # parameters.
    directions: Tensor
    noise: MechanismNoise  # kind of noise that is claimed
    # Whether the differing contribution may be absent under both hypotheses, so that this is a third hypothesis.
    with_neither: bool = False

    def measure(self, release: ReleaseUnderHypotheses, sigma: Tensor, distance: Tensor) -> NoiseStatistics:
        """Return the noise statistics of one round, for every trial of a batch.

        Parameters
        ----------
        release
            Releases and the sums f(D) and f(D') of every trial, float64 (trials, parameters).
        sigma
            Claimed scale of the noise, float64 (trials,): the standard deviation of Gaussian noise.
        distance
            Euclidean distance ||f(D) - f(D')||, float64 (trials,).
        """
        residual = release.residual
        difference = release.difference
        inverse = torch.where(distance > 0, 1 / distance, 0.0)
        columns = self.layout.slices().values()
        # Each tensor's part of <e, e>, <e, u> and <u, u>, (trials, tensors).
        power, towards, share = (
            torch.stack([_dot(tensor[:, column], other[:, column]) for column in columns], dim=1)
            for tensor, other in ((residual, residual), (residual, difference), (difference, difference))
        )
        towards = towards * inverse.unsqueeze(1)
        share = share * inverse.square().unsqueeze(1)
        along = towards.sum(dim=1)
        squares, freedom = self._by_tensor(power, towards, share, along)
        size = residual.shape[1]
        classes, bits = (slice(None, None, by) for by in (stride_step(size), max(1, size // _LOW_BITS_COORDINATES)))
        coordinates = sampled_places(self.layout)
        numbers = torch.tensor([number for number, _ in coordinates], device=residual.device)
        by_class, by_place, by_bit = (self._noises(release, columns) for columns in (classes, numbers, bits))
        width = sigma.unsqueeze(1)
        low_bits, low_bits_count = _low_bits(release.release[:, bits], by_bit, width)
        tensors = {
            # Without any noise, rounding may leave a slightly negative number.
            "total": (power.sum(dim=1) - along.square()).clamp(min=0.0),
            "total_freedom": size - (distance > 0).long(),
            "squares": squares,
            "freedom": freedom,
            "projections": self._projections(residual, difference, along, inverse),
            "gradient": _along_shared(release.shared, residual, difference, along, inverse),
            "signal": self._signal(release, along, sigma, distance)
            if self.noise.has_gaussian_llr
            else self._signal_of_residuals(release, sigma, distance),
            "grain": _grain(release, numbers) / sigma,
            "low_bits": low_bits,
            "low_bits_count": low_bits_count,
            "strides": torch.stack([_strided(self._residuals(noise, width)) for noise in by_class], dim=1),
            "sample": torch.stack([self._residuals(noise, width) for noise in by_place], dim=1),
        }
        arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
        measured = NoiseStatistics(self.layout.names, coordinates, self.layout.size, **arrays)
        return measured if self.noise.has_gaussian_llr else measured.without_hypothesis_fields()

    def _residuals(self, noise: Tensor, width: Tensor) -> Tensor:
        """Return noise as values that are N(0, 1) if it is as claimed; `width` is its claimed scale."""
        return self.noise.standard_residuals(noise / width)

    def _signal_of_residuals(self, release: ReleaseUnderHypotheses, sigma: Tensor, distance: Tensor) -> Tensor:
        """Return the field `signal` of `NoiseStatistics` where only standard residuals are N(0, 1) in all directions.

        The length of a contribution is that which shifts the residuals along it, if it is small beside the noise.
        """
        everywhere = slice(None)
        nothing = torch.full_like(distance, math.nan)
        contributions = [release.present, release.absent]
        columns = []
        for number, noise in enumerate(self._noises(release, everywhere)):
            residuals = self._residuals(noise, sigma.unsqueeze(1))
            along = torch.where(distance > 0, _dot(residuals, release.difference) / distance, math.nan)
            tensor = nothing
            length = torch.zeros_like(distance)
            if number < len(contributions):
                length = contributions[number].norm(dim=1)
                tensor = torch.where(length > 0, _dot(residuals, contributions[number]) / length, math.nan)
            columns.append(torch.stack([along, tensor, length * self.noise.residual_shift / sigma], dim=1))
        return torch.stack(columns, dim=1)

    def _signal(self, release: ReleaseUnderHypotheses, along: Tensor, sigma: Tensor, distance: Tensor) -> Tensor:
        """Return the field `signal` of `NoiseStatistics`, (trials, sides, kinds).

        The kinds are the noise along f(D) - f(D'), the noise along the side's own contribution, and the length of this
        contribution. Noise along a vector of length 0 is NaN. `along` is <e, u> of the module's docstring.
        """
        # Three inner products over all parameters suffice, because <e, u> and ||f(D) - f(D')|| are known.
        towards = _dot(release.residual, release.present)
        squares = [_dot(tensor, tensor) for tensor in (release.present, release.absent)]
        inner = (squares[0] + squares[1] - distance.square()) / 2
        columns = []
        for number, square in enumerate(squares):
            of_difference = along + (number - 0.5) * distance
            of_own = (towards - number * along * distance + (inner - square) / 2) / square.sqrt()
            columns.append([of_difference, torch.where(square > 0, of_own, math.nan), square.sqrt()])
        if self.with_neither:
            middle = along + (squares[0] - squares[1]) / (2 * distance)
            columns.append([middle, torch.full_like(along, math.nan), torch.zeros_like(along)])
        sides = torch.stack([torch.stack(side, dim=1) for side in columns], dim=1)
        sides[:, :, 0] = torch.where(distance.unsqueeze(1) > 0, sides[:, :, 0], math.nan)
        return sides / sigma.view(-1, 1, 1)

    def _noises(self, release: ReleaseUnderHypotheses, columns: slice | Tensor) -> list[Tensor]:
        """Return the noise of the release at some coordinates under each hypothesis, each (trials, coordinates).

        The hypotheses are D, D' and, if `with_neither`, that neither of the differing contributions is in the release.
        """
        tensor = release.release[:, columns] - release.shared[:, columns]
        tensors = [tensor - release.present[:, columns], tensor - release.absent[:, columns]]
        return [*tensors, tensor] if self.with_neither else tensors

    def _by_tensor(self, power: Tensor, towards: Tensor, share: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
        """Return the standardised sum of squares of each tensor and its degrees of freedom, both (trials, tensors).

        `power`, `towards` and `share` are the tensors' parts of <e, e>, <e, u> and <u, u>, and `along` is <e, u>, with
        e and u as in the module's docstring.
        """
        sizes = torch.tensor([slice.stop - slice.start for slice in self.layout.slices().values()], device=power.device)
        tensor = torch.where(share > 0, towards.square() / share, 0.0)
        remaining_share = 1 - share
        counts = (share > 0) & (remaining_share >= _LEAST_VARIANCE)
        missed = (tensor.sqrt() * towards.sign() - along.unsqueeze(1) * share.sqrt()).square() / remaining_share
        squares = (power - tensor).clamp(min=0.0) + torch.where(counts, missed, 0.0)
        return squares, sizes - ((share > 0) & ~counts).long()

    def _projections(self, residual: Tensor, difference: Tensor, along: Tensor, inverse: Tensor) -> Tensor:
        """Return the whitened projections V'w of the noise w on the public directions V, (trials, directions).

        Before whitening, the covariance is sigma^2 (I - bb'), where b = V'u and u is the unit vector along
        `difference`. `along` is the noise along u. `inverse` is 1 / ||f(D) - f(D')||, or 0 where this norm is 0.
        """
        raw = self._evenly_spaced_columns(residual).float() @ self.directions
        towards = (self._evenly_spaced_columns(difference).float() @ self.directions).double() * inverse.unsqueeze(1)
        tensor = raw.double() - along.unsqueeze(1) * towards
        stretch = (1 - _dot(towards, towards)).clamp(min=1e-12).rsqrt()
        # (I - bb')^(-1/2) = I + bb' t^2 / (1 + t), with t = (1 - b'b)^(-1/2)
        factor = _dot(towards, tensor) * stretch.square() / (1 + stretch)
        return tensor + factor.unsqueeze(1) * towards

    def _evenly_spaced_columns(self, vectors: Tensor) -> Tensor:
        """Return as many evenly spaced columns of `vectors` as the public directions have coordinates."""
        size = vectors.shape[1]
        rows = len(self.directions)
        if rows == size:
            return vectors
        return vectors[:, torch.arange(rows, device=vectors.device) * (size - 1) // (rows - 1)]


def _along_shared(shared: Tensor, residual: Tensor, difference: Tensor, along: Tensor, inverse: Tensor) -> Tensor:
    """Return the noise along s, the part of the sum that D and D' have in common, (trials,).

    Only the part of s that is orthogonal to f(D) - f(D') gives the direction. The noise is NaN if there is no such
    part. `along` is <e, u> of the module's docstring. `inverse` is 1 / ||f(D) - f(D')||, or 0 if there is no
    difference.
    """
    towards = _dot(shared, difference) * inverse
    size = _dot(shared, shared)
    tensor = size - towards.square()
    usable = tensor > 1e-6 * size
    value = (_dot(shared, residual) - towards * along) / tensor.clamp(min=1e-300).sqrt()
    return torch.where(usable, value, math.nan)


def _grain(release: ReleaseUnderHypotheses, numbers: Tensor) -> Tensor:
    """Return the float32 rounding step at the largest absolute value in each trial, (trials,).

    The values are the releases, and the part of the sums that D and D' share, at the coordinates `numbers`.
    """
    largest = torch.maximum(release.release[:, numbers].abs(), release.shared[:, numbers].abs()).amax(dim=1)
    return torch.ldexp(torch.ones_like(largest), _exponent(largest) - _SINGLE_BITS)


def _strided(noise: Tensor) -> Tensor:
    """Return the sums of squares over coordinates with equal index modulo STRIDES, (trials, STRIDES)."""
    trials, size = noise.shape
    padded = noise.new_zeros(trials, -(-size // STRIDES) * STRIDES)
    torch.mul(noise, noise, out=padded[:, :size])
    return padded.view(trials, -1, STRIDES).sum(dim=1)


def _low_bits(release: Tensor, noises: list[Tensor], width: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums of cosines that show whether low bits are uniform, and the numbers of summands.

    Both have the shape (trials, sides, kinds). A side is the noise under D or under D'. A kind is a number whose bits
    are tested: noise, noise divided by its width, or release. The phase of a cosine is made of the low bits of this
    number's mantissa; see `_phases`. A coordinate counts if float32 rounding keeps these bits, and if the noise is wide
    enough to make them uniform. Both conditions compare powers of two, so that numbers with equal exponents are treated
    alike.
    """
    sums = []
    counts = []
    for noise in noises:
        largest = _exponent(torch.maximum(release.abs(), (release - noise).abs()))
        fine = (_exponent(noise) >= _exponent(width) - 6) & (_exponent(noise) > largest - 10)
        coarse = (_exponent(release) <= _exponent(width) + 8) & (release != 0)
        phases = [_phases(noise, fine), _phases(noise / width, fine), _phases(release, coarse)]
        sums.append(torch.stack([total for total, _ in phases], dim=1))
        counts.append(torch.stack([count for _, count in phases], dim=1))
    return torch.stack(sums, dim=1), torch.stack(counts, dim=1)


def _phases(values: Tensor, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of cos(2 pi m 2^11) over the counted values, and the number of these values, both (trials,).

    Here m is the mantissa of a value. The sum is near 0 if the bits of the mantissa beyond the 11th are uniform.
    """
    steps = torch.frexp(values)[0] * _SIGNIFICANT
    waves = torch.cos(2 * math.pi * (steps - steps.round()).float()).double()
    return torch.where(tensor, waves, 0.0).sum(dim=1), tensor.sum(dim=1)


def _exponent(values: Tensor) -> Tensor:
    return torch.frexp(values)[1]


def _dot(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the inner product of each row of one matrix with the same row of the other."""
    # The product that `torch.einsum` makes too, without its parsing of each call.
    return torch.bmm(tensor.unsqueeze(1), other.unsqueeze(2)).flatten()


@lru_cache(maxsize=8)
def sampled_places(layout: ParameterLayout) -> tuple[tuple[int, str], ...]:
    """Return the model coordinates whose noise is sampled, in ascending order, as (flat index, tensor name).

    Examples
    --------
    >>> places = sampled_places(ParameterLayout(("weight", "bias"), ((10, 64), (10,))))
    >>> len(places), places[0], places[-1]
    (112, (0, 'weight'), (649, 'bias'))
    """
    slices = layout.slices()
    wanted_coordinates = np.concatenate(_wanted(layout))
    inside = wanted_coordinates[(wanted_coordinates >= 0) & (wanted_coordinates < layout.size)]
    firsts = np.sort(np.unique(inside, return_index=True)[1])
    chosen = np.sort(inside[firsts[: max(SAMPLE, len(slices))]])
    owners = np.searchsorted([slice_of_tensor.start for slice_of_tensor in slices.values()], chosen, side="right") - 1
    names = list(slices)
    return tuple((int(number), names[owner]) for number, owner in zip(chosen, owners, strict=True))


def _wanted(layout: ParameterLayout) -> list[Integers]:
    """Return groups of coordinates to sample, the most important first; some may repeat or lie outside the model."""
    size = layout.size
    long_slices = [slice for slice in layout.slices().values() if slice.stop > slice.start]
    room = max(1, SAMPLE // 4 // len(long_slices))
    ends = [_ends(slice_of_tensor.start, slice_of_tensor.stop, room) for slice_of_tensor in long_slices]
    largest = max(range(len(long_slices)), key=lambda at: long_slices[at].stop - long_slices[at].start)
    shape = [shape for shape in layout.shapes if np.prod(shape) > 0][largest]
    row = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return [
        np.array([slice_of_tensor.start for slice_of_tensor in long_slices]),
        np.arange(RUN),
        np.concatenate(ends),
        size - 1 - np.arange(_FEW),
        RUN * np.arange(1, 25),
        long_slices[largest].start + row * np.arange(_FEW),
        size // 2 + np.arange(_FEW // 2),
        np.linspace(0, size - 1, SAMPLE).astype(np.int64),
        np.arange(size)[: 2 * SAMPLE],
    ]


def _ends(start: int, stop: int, room: int) -> Integers:
    """Return the coordinates from `start` up to `stop`; if they are too many, only the first and the last of them.

    At most `room` coordinates are returned, or two if `room` is smaller.
    """
    if stop - start <= min(room, _FEW):
        return np.arange(start, stop)
    half = max(1, min(room, _FEW // 2) // 2)
    return np.concatenate([np.arange(start, start + half), np.arange(stop - half, stop)])
