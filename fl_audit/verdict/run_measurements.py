"""The insider's noise measurements of a run, relative to the claim, as the input of every test.

The insider is an adversary among the clients. More noise than claimed violates nothing. For tests of shape and
dependence, the excess noise is therefore scaled down to the claim. Without scaling, these tests would fail if noise is
above the claim in some trials, rounds, tensors or coordinates. Such noise is a mixture of scales, which is not normal,
and its correlations have another distribution. Scaling changes honest noise little.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, ndtri, stdtr

from fl_audit.array_types import Flags, Floats
from fl_audit.errors import require
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.value_checks import require_number
from fl_audit.verdict.declared_tests import NotTestedReason, if_known, only_if
from fl_audit.verdict.log_odds_innovations import SMALLEST_SIGNAL, innovations
from fl_audit.verdict.noise_statistics import NoiseStatistics
from fl_audit.verdict.opened_secrets import OpenedSecrets

MOST_SAMPLED = 2**23  # most sampled values that are tested one by one; of larger samples, only some trials are tested

EVIDENT = 1e-6  # significance level at which noise counts as more than was claimed

_FEWEST_SAMPLED = 40
_FEWEST = 30
_PASSES = 30


@dataclass(frozen=True, eq=False)
class NoiseMeasurements:
    """The noise measurements of a run, with the secret bits that the challenger revealed afterwards.

    Raises
    ------
    InputError
        If shapes disagree or a number is out of its range.
    """

    members: Flags  # whether D was used, bool (trials,): the column of the differing unit in the run's membership
    increments: Floats  # increment of each round to the log-odds of D against D', float64 (trials, rounds), finite
    sensitivity: Floats  # ||f_i(D) - f_i(D')|| that the insider computed, float64 (trials, rounds), finite, at least 0
    sigma: Floats  # the scale of the noise that the claim states, float64 (trials, rounds), positive
    noise_multiplier: float  # z of the claim, positive: it allows no sensitivity above sigma / z
    # Noise statistics, (trials, rounds), with the true side only; None where there are none.
    residuals: NoiseStatistics | None = None
    # The noise along f(D) - f(D') as normal scores under the true hypothesis, float64 (trials, rounds), NaN where D and
    # D' hardly differ. None where the scores follow from the increments.
    scores: Floats | None = None
    # Largest value of sqrt(sum of (sensitivity / sigma)^2) over the rounds of a trial that the claim allows, positive
    # and finite; None where the claim limits only single rounds. It differs from what the limits of the rounds imply
    # where noise is correlated over rounds, or a unit takes part in only some of them.
    largest_mu: float | None = None
    # Largest norm of the target's contribution to a round that the claim allows, over the noise. None where it differs
    # between rounds, as for noise that is scaled to f(D) - f(D'); the norm of the real contribution is used then.
    claimed_length: float | None = None
    noise_kind: MechanismNoise = field(kw_only=True)  # kind of noise, by which residuals are read
    opened: OpenedSecrets | None = (
        None  # values that the challenger opened besides the bits; None where nobody kept them
    )

    def __post_init__(self) -> None:
        shape = self.increments.shape
        require(len(shape) == 2 and min(shape) > 0, f"increments have shape {shape}: accepted is (trials, rounds)")
        shapes = {"sensitivities": self.sensitivity.shape, "noise scales": self.sigma.shape}
        if self.residuals is not None:
            shapes["residuals"] = self.residuals.total.shape
            sides = self.residuals.layout.sides
            require(sides == 1, f"the residuals have {sides} sides: accepted is 1, once the secrets are opened")
        for name, field_shape in shapes.items():
            require(
                field_shape == shape, f"{name} have shape {field_shape}: accepted is {shape}, that of the increments"
            )
        positive = bool(np.all(np.isfinite(self.sigma) & (self.sigma > 0)))
        require(positive, "a claimed noise scale is not positive and finite: accepted are positive finite numbers")
        # Values that would make a test meaningless are refused: NaN is accepted only where it means unknown.
        numbers = {"increments": self.increments, "sensitivities": self.sensitivity}
        unknown: dict[str, Floats] = {} if self.scores is None else {"scores": self.scores}
        if (noise := self.residuals) is not None:
            numbers |= {"sums of squares": noise.total, "sums of squares of tensors": noise.squares}
            unknown |= {"projections": noise.projections, "noise along gradients": noise.gradient}
            unknown |= {"sums of classes": noise.strides, "the sample": noise.sample, "low bits": noise.low_bits}
        for name, values in numbers.items():
            require(bool(np.isfinite(values).all()), f"{name} are not all finite: accepted are finite numbers")
        for name, values in unknown.items():
            require(not bool(np.isinf(values).any()), f"{name} hold infinity: accepted are finite numbers, or NaN")
        numbers_given = {"noise multiplier": self.noise_multiplier, "largest mu": self.largest_mu}
        numbers_given["claimed length"] = self.claimed_length
        for name, number in numbers_given.items():
            if number is not None:
                require_number(f"{name} is", number, "positive finite numbers")

    @property
    def trials(self) -> int:
        """Number of trials in the run."""
        return int(self.increments.shape[0])

    @property
    def rounds(self) -> int:
        """Number of rounds in each trial."""
        return int(self.increments.shape[1])

    @cached_property
    def innovations(self) -> Floats:
        """Noise along f(D) - f(D'), divided by the claimed standard deviation; NaN where D and D' hardly differ.

        The shape is (trials, rounds).
        """
        if self.scores is not None:
            return self.scores
        return innovations(self.increments, self.sensitivity / self.sigma, self.members)

    @cached_property
    def used_innovations(self) -> Floats:
        """All standardised increments of the log-odds (innovations) that are not NaN, as a flat array."""
        return self.innovations[~np.isnan(self.innovations)]

    @property
    def _opened(self) -> Floats | None:
        """Noise along f(D) - f(D'), noise along the target's contribution, and the length of this contribution.

        The shape is (trials, rounds, 3), in claimed standard deviations. None if they were not measured.
        """
        residuals = self.residuals
        return None if residuals is None or np.isnan(residuals.signal[..., :2]).all() else residuals.signal[..., 0, :]

    @cached_property
    def own_length(self) -> Floats:
        """Length of the target unit's contribution, divided by the claimed standard deviation, (trials, rounds).

        It is 0 in rounds without a contribution. If it was not measured, half of ||f(D) - f(D')|| is used instead.
        """
        if self._opened is None:
            lengths = np.where(np.isnan(self.innovations), 0.0, self.sensitivity / self.sigma / 2)
        else:
            lengths = np.where(np.isnan(self._opened[..., 1]), 0.0, self._opened[..., 2])
        return np.where(lengths < SMALLEST_SIGNAL, 0.0, lengths)

    @cached_property
    def own_noise(self) -> Floats:
        """Noise along the target unit's contribution, divided by the claimed standard deviation, (trials, rounds).

        A value is NaN in rounds without a contribution. If noise along the contribution was not measured, the noise
        along f(D) - f(D') is used instead, with the opposite sign in trials with D'.
        """
        towards = np.where(self.members, 1.0, -1.0)[:, None] * self.innovations
        along = towards if self._opened is None else self._opened[..., 1]
        return np.where(self.own_length > 0, along, np.nan)

    @property
    def target_noise(self) -> Floats:
        """Noise along the target unit's contribution, as in `own_noise`, (trials, rounds).

        In rounds in which the unit contributes nothing, it is the noise along f(D) - f(D').
        """
        return np.where(np.isnan(self.own_noise), self.innovations, self.own_noise)

    @cached_property
    def excess(self) -> Floats:
        """Factor by which the noise orthogonal to f(D) - f(D') significantly exceeds the claim, (trials, rounds).

        Measured noise is compared with claimed noise four times: in a single round of a trial, in a trial, in a round
        of all trials, and in the whole run. The factor is the product of the significant ratios, or 1 if there is none.
        """
        excess_found: Floats = np.ones(self.increments.shape)
        if self.residuals is None or not self.residuals.total_freedom.any():
            return excess_found
        freedom = self.residuals.total_freedom.astype(np.float64)
        squares = np.maximum(0.0, self.residuals.total) / self.sigma**2
        for axes in ((), (1,), (0,), (0, 1)):
            sums, counts = (
                (of / by).sum(axis=axes, keepdims=True) for of, by in ((squares, excess_found**2), (freedom, 1.0))
            )
            louder = (counts > 0) & (chdtrc(np.maximum(counts, 1), sums) < EVIDENT / sums.size)
            excess_found = excess_found * np.where(louder, np.sqrt(sums / np.maximum(counts, 1)), 1.0)
        return excess_found

    @property
    def noise(self) -> NoiseStatistics:
        """The noise statistics; raises `TestNotApplicableError` if none were measured."""
        return if_known(self.residuals, NotTestedReason.NOT_MEASURED)

    @cached_property
    def sampled_trials(self) -> Flags:
        """Mask of the trials whose noise at the sampled coordinates is tested, bool (trials,).

        Trials in which rounding hides the noise are left out. If the others need too much memory, evenly spaced ones
        are taken.
        """
        if self.residuals is None or self.residuals.sample.shape[-1] == 0:
            return np.zeros(self.trials, dtype=np.bool_)
        values = self.residuals.sample[:, :, 0]
        known_trials = np.flatnonzero(~np.isnan(values).any(axis=(1, 2)))
        step = max(1, -(-known_trials.size // max(_FEWEST_SAMPLED, MOST_SAMPLED // values[0].size)))
        return np.isin(np.arange(self.trials), known_trials[::step])

    @cached_property
    def sample(self) -> Floats:
        """Noise at the sampled coordinates, divided by the claimed standard deviation.

        It is N(0, 1) and independent if the claim holds. The shape is (trials of `sampled_trials`, rounds,
        coordinates). Raises `TestNotApplicableError` if no noise was sampled.
        """
        only_if(bool(self.sampled_trials.any()), NotTestedReason.NOT_MEASURED)
        return self.noise.sample[self.sampled_trials, :, 0]

    @property
    def tensor_of_coordinates(self) -> list[str]:
        """Name of the parameter tensor to which each sampled coordinate belongs."""
        return [tensor for _, tensor in self.noise.places]

    @cached_property
    def even_sample(self) -> Floats:
        """The sampled noise, divided by scales so that it is nowhere larger than claimed; in the shape of `sample`.

        A scale is the ratio of measured to claimed noise. There are four kinds of scales: of tensors, of single rounds
        of single trials, of tensors in single rounds, and of coordinates. If the scales of one kind differ by more than
        chance explains, the values are divided by these scales. Values whose noise is clearly below the claim are not
        divided. At the end, every tensor whose scale is still above 1 is divided by this scale. For a single round of a
        trial, each value is scaled by the other values of the round, and mapped to the scale of N(0, 1).
        """
        return _without_excess(self.sample, self.tensor_of_coordinates)


def _without_excess(sample: Floats, owners: list[str]) -> Floats:
    """Return the sampled noise without significant excess over the claim, as `NoiseMeasurements.even_sample` describes.

    `owners` has the name of each sampled coordinate's tensor.
    """
    names, which = np.unique(owners, return_inverse=True)
    groups = np.eye(names.size)[which]
    sizes = groups.sum(axis=0)
    trials, rounds, size = sample.shape
    squares = np.square(sample)
    # For each partition into parts: function for the mean squares of the parts, their numbers of values, and the part
    # of every sampled coordinate.
    families: tuple[tuple[Callable[[Floats], Floats], Floats, NDArray[np.intp] | None], ...] = (
        (lambda values: (values.mean(axis=(0, 1)) @ groups / sizes)[None, None], trials * rounds * sizes, which),
        (lambda values: values.mean(axis=2, keepdims=True), np.array([float(size)]), None),
        (lambda values: (values.mean(axis=0) @ groups / sizes)[None], trials * sizes, which),
        (lambda values: values.mean(axis=(0, 1), keepdims=True), np.array([float(trials * rounds)]), None),
    )
    scales: list[Floats] = [np.ones((1, 1, 1))] * len(families)
    for _ in range(_PASSES):
        before = list(scales)
        for at, (mean_of, freedom, element) in enumerate(families):
            other_scales = math.prod(
                (scale for number, scale in enumerate(scales) if number != at), start=np.ones((1, 1, 1))
            )
            scale_found = _scale(mean_of(squares if np.all(other_scales == 1) else squares / other_scales), freedom)
            scales[at] = scale_found if element is None or scale_found.size == 1 else scale_found[..., element]
        passes = zip(before, scales, strict=True)
        if all(
            first_scale.shape == second_scale.shape and np.allclose(first_scale, second_scale, 1e-3)
            for first_scale, second_scale in passes
        ):
            break
    cells = scales.pop(1)
    product_of_scales = math.prod(scales, start=np.ones((1, 1, 1)))
    even = sample / np.sqrt(product_of_scales)
    if cells.size > 1:
        even = np.where(cells == 1, even, _studentized(even))
    level = np.sqrt((np.square(even).mean(axis=(0, 1)) @ groups / sizes)[which])
    return np.asarray(even / np.maximum(1.0, level))


def _scale(means: Floats, freedom: Floats) -> Floats:
    """Return the factors by which squared noise is divided, so that groups of values have equal scales.

    A factor is the mean square of its group, or 1 if this mean is clearly below the claim. If chance explains the
    differences of the means, one factor 1 of shape (1, 1, 1) is returned. Cube roots of means are compared (Wilson and
    Hilferty 1931).
    """
    counts = np.broadcast_to(freedom, means.shape)
    if counts.min() < _FEWEST or means.size < 2:
        return np.ones((1, 1, 1))
    roots = np.cbrt(means) + 2 / (9 * counts)
    weights = 9 * counts / 2
    spread = float(np.sum(weights * (roots - np.average(roots, weights=weights)) ** 2))
    if chdtrc(means.size - 1, spread) > EVIDENT:
        return np.ones((1, 1, 1))
    return np.where(chdtr(counts, counts * means) < EVIDENT, 1.0, means)


def _studentized(values: Floats) -> Floats:
    """Return values in units of the spread of the other values in their trial and round, as N(0, 1) scores.

    For normal noise, a value divided by the root mean square of the others has Student's t distribution. The quotient
    is mapped to the N(0, 1) quantile of the same probability.
    """
    size = values.shape[2]
    other_squares = (np.square(values).sum(axis=2, keepdims=True) - np.square(values)) / (size - 1)
    t = values / np.sqrt(np.maximum(other_squares, 1e-300))
    return np.asarray(np.sign(t) * -ndtri(stdtr(size - 1, -np.abs(t))))
