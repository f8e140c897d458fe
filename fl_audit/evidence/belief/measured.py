"""What the insider measured in a run, held against what was claimed: the one input of every test of the verdict."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fl_audit.adversaries.residuals import Residuals
from fl_audit.arrays import Flags, Floats
from fl_audit.errors import require
from fl_audit.evidence.belief.innovations import innovations
from fl_audit.evidence.belief.noise_excess import without_excess

MOST_SAMPLED = 2**23  # most values of the sample that are looked at one by one: of more, only some worlds are

_FEWEST_SAMPLED = 40


@dataclass(frozen=True, eq=False)
class Measured:
    """A run as the insider measured it, with the secret bits that the challenger reveals afterwards.

    Raises
    ------
    InputError
        If shapes disagree or a number is out of its range.
    """

    members: Flags  # whether D was used, bool (worlds,): the column of the differing unit in the run's membership
    increments: Floats  # what each round added to the log-odds of D against D', float64 (worlds, rounds), finite
    # ||f_i(D) - f_i(D')|| that the insider computed, float64 (worlds, rounds), finite and at least 0.
    sensitivity: Floats
    sigma: Floats  # the standard deviation of the noise that the claim states, float64 (worlds, rounds), positive
    noise_multiplier: float  # z of the claim, positive: it allows no sensitivity above sigma / z
    # What was measured of the noise, of shape (worlds, rounds), opened: with the true side alone. None where nothing
    # was.
    residuals: Residuals | None = None
    # The noise along the record's direction as normal scores under the true hypothesis, float64 (worlds, rounds), NaN
    # without information; None where it follows from the increments, which are Gaussian there.
    scores: Floats | None = None
    # The most that sqrt(sum of (sensitivity / sigma)^2) over the rounds of a world may be by the claim, positive and
    # finite; None where the claim says nothing of a whole run. It is more than the rounds' own limits say where noise
    # is correlated over rounds, or a unit takes part in some of them only.
    largest_mu: float | None = None

    def __post_init__(self) -> None:
        shape = self.increments.shape
        require(len(shape) == 2 and min(shape) > 0, f"increments have shape {shape}: accepted is (worlds, rounds)")
        seen = {"sensitivities": self.sensitivity.shape, "noise scales": self.sigma.shape}
        if self.residuals is not None:
            seen["residuals"] = self.residuals.total.shape
            sides = self.residuals.layout.sides
            require(sides == 1, f"the residuals have {sides} sides: accepted is 1, once the secrets are opened")
        for name, found in seen.items():
            require(found == shape, f"{name} have shape {found}: accepted is {shape}, that of the increments")
        positive = bool(np.all(np.isfinite(self.sigma) & (self.sigma > 0)))
        require(positive, "a claimed noise scale is not positive and finite: accepted are positive finite numbers")
        self._require_finite()
        z = self.noise_multiplier
        require(0 < z < np.inf, f"noise multiplier is {z}: accepted are positive finite numbers")
        mu = self.largest_mu
        require(mu is None or 0 < mu < np.inf, f"largest mu is {mu}: accepted are positive finite numbers")

    def _require_finite(self) -> None:
        """Refuse what would make a test come to nothing: only what stands for itself being unknown may be NaN."""
        numbers = {"increments": self.increments, "sensitivities": self.sensitivity}
        unknown: dict[str, Floats] = {} if self.scores is None else {"scores": self.scores}
        if (seen := self.residuals) is not None:
            numbers |= {"sums of squares": seen.total, "sums of squares of tensors": seen.squares}
            unknown |= {"projections": seen.projections, "noise along gradients": seen.gradient}
            unknown |= {"sums of classes": seen.strides, "the sample": seen.sample, "low bits": seen.low_bits}
        for name, values in numbers.items():
            require(bool(np.isfinite(values).all()), f"{name} are not all finite: accepted are finite numbers")
        for name, values in unknown.items():
            require(not bool(np.isinf(values).any()), f"{name} hold infinity: accepted are finite numbers, or NaN")

    @property
    def worlds(self) -> int:
        """Number of worlds."""
        return int(self.increments.shape[0])

    @property
    def rounds(self) -> int:
        """Number of rounds of a world."""
        return int(self.increments.shape[1])

    @cached_property
    def innovations(self) -> Floats:
        """The noise along the record's direction over the claimed noise, (worlds, rounds); NaN without information."""
        if self.scores is not None:
            return self.scores
        return innovations(self.increments, self.sensitivity / self.sigma, self.members)

    @cached_property
    def used_innovations(self) -> Floats:
        """All innovations that there are, in one row."""
        return self.innovations[~np.isnan(self.innovations)]

    @cached_property
    def projections(self) -> Floats | None:
        """The noise along the public directions over the claimed noise, (worlds, rounds, J); None if not measured."""
        if self.residuals is None or self.residuals.projections.shape[-1] == 0:
            return None
        if np.isnan(self.residuals.projections).any():
            return None
        return self.residuals.projections / self.sigma[..., None]

    @cached_property
    def sampled_worlds(self) -> Flags:
        """The worlds whose sample is looked at, bool (worlds,): evenly spaced ones where all are too many for memory.

        Worlds in which rounding hides the noise are left out.
        """
        if self.residuals is None or self.residuals.sample.shape[-1] == 0:
            return np.zeros(self.worlds, dtype=np.bool_)
        values = self.residuals.sample[:, :, 0]
        known = np.flatnonzero(~np.isnan(values).any(axis=(1, 2)))
        step = max(1, -(-known.size // max(_FEWEST_SAMPLED, MOST_SAMPLED // values[0].size)))
        return np.isin(np.arange(self.worlds), known[::step])

    @cached_property
    def sample(self) -> Floats | None:
        """The noise over the claimed noise at the sampled coordinates of `sampled_worlds`; None if not measured.

        Of shape (sampled worlds, rounds, S). Under the claim these are independent N(0, 1).
        """
        seen = self.sampled_worlds
        return self.residuals.sample[seen, :, 0] if self.residuals is not None and seen.any() else None

    @cached_property
    def even_sample(self) -> Floats | None:
        """The sample with noise above the claim brought down to it, for tests of shape and dependence.

        Of honest noise little is changed: see `without_excess`.
        """
        if self.sample is None or self.residuals is None:
            return None
        return without_excess(self.sample, [tensor for _, tensor in self.residuals.places])
