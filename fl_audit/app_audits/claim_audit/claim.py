"""Privacy claims about a mechanism, which black-box trials try to refute."""

from dataclasses import InitVar, dataclass
from math import expm1
from typing import NamedTuple

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.value_checks import choice, require_number

LESSONS = 20
"""Number of initial trials that are not evidence: the first half trains rules, the second half selects features."""
_DELTAS = (1e-5, 1e-3, 0.01, 0.05, 0.1)
"""The deltas at which a claim about Gaussian noise is tested, besides the delta at epsilon 0 (the total variation)."""


class EpsilonDeltaLimit(NamedTuple):
    """One inequality that a claim implies: the mechanism is (epsilon, delta)-DP for the stated epsilon and delta."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class StatedClaim:
    """A privacy claim about a mechanism, either by `epsilon` and `delta` or by `noise_multiplier`.

    `epsilon` with `delta` claims (epsilon, delta)-DP for all rounds together. `noise_multiplier` claims that D and D'
    are no easier to distinguish than after `rounds` rounds of a Gaussian mechanism with this ratio of noise to
    sensitivity.

    Raises
    ------
    InputError
        If a number is out of its range, the adjacency is unknown, or not exactly one of `epsilon` and
        `noise_multiplier` is given.

    Examples
    --------
    >>> StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5).limits
    (EpsilonDeltaLimit(epsilon=4.0, delta=1e-05),)
    """

    adjacency: Adjacency | str  # the relation between neighbours, or its name, such as `add-remove-client`
    epsilon: float | None = None  # from 0 to below 100; None for a claim by noise multiplier
    delta: float = 1e-5  # the delta for `epsilon`, at least 0 and below 1
    # Standard deviation of the noise over the sensitivity of the noised sum, above 0; None for a claim by epsilon.
    noise_multiplier: float | None = None
    rounds: int = 1  # number of rounds of the claim, and of every trial
    # The quantity that the given noise multiplier multiplies, or its name. Flower and Opacus quote noise over the
    # clipping norm; `noise_multiplier` is converted to noise over the sensitivity.
    noise_over: InitVar[MultiplierReference | str] = MultiplierReference.SENSITIVITY

    def __post_init__(self, reference: MultiplierReference | str) -> None:
        # Claims are equal if the adjacency was given by name or as a value.
        object.__setattr__(self, "adjacency", choice(Adjacency, "adjacency", self.adjacency))
        is_single = (self.epsilon is None) != (self.noise_multiplier is None)
        require(is_single, "a claim has either an epsilon or a noise multiplier: accepted is exactly one of them")
        require_number("delta is", self.delta, "numbers from 0 to below 1")
        if self.epsilon is not None:
            require_number("epsilon is", self.epsilon, "numbers from 0 to below 100")
        if self.noise_multiplier is not None:
            require_number("noise multiplier is", self.noise_multiplier, "numbers from 0.01 to 1000000")
            over = choice(MultiplierReference, "noise over", reference)
            noise = over.over_sensitivity(self.noise_multiplier, self.neighbours)
            object.__setattr__(self, "noise_multiplier", noise)
        require_number("rounds are", self.rounds, "whole numbers from 1")

    @property
    def neighbours(self) -> Adjacency:
        """The relation between neighbouring data sets, as an `Adjacency` rather than its name."""
        return Adjacency(self.adjacency)

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian DP over all rounds, for a claim by noise multiplier; None for a claim by epsilon."""

        if self.noise_multiplier is None:
            return None

        from fl_audit.privacy.gaussian import gaussian_mu  # noqa: PLC0415

        return gaussian_mu(self.noise_multiplier, self.rounds)

    @property
    def allowed_mu(self) -> float:
        """The largest mu of Gaussian DP that is compatible with the claim.

        Here mu is the shift of the release between D and D', divided by the standard deviation of Gaussian noise. A
        claimed delta below 1e-12 counts as 1e-12.
        """

        if self.mu is not None:
            return self.mu
        assert self.epsilon is not None

        from fl_audit.privacy.gaussian import gdp_mu  # noqa: PLC0415

        return gdp_mu(self.epsilon, max(self.delta, 1e-12))

    @property
    def limits(self) -> tuple[EpsilonDeltaLimit, ...]:
        """The (epsilon, delta) inequalities that follow from the claim; a violation of one of them refutes the claim.

        A claim that states epsilon has one inequality. A claim that states a noise multiplier has several, at different
        values of delta along its privacy curve.
        """

        if self.mu is None:
            assert self.epsilon is not None
            return (EpsilonDeltaLimit(self.epsilon, self.delta),)

        from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon  # noqa: PLC0415

        variation = gdp_delta(0.0, self.mu)
        curve = [EpsilonDeltaLimit(gdp_epsilon(delta, self.mu), delta) for delta in _DELTAS if delta < variation]
        # If the total variation rounds to 1, the inequality at epsilon 0 excludes nothing.
        return (*curve, EpsilonDeltaLimit(0.0, variation)) if variation < 1 else tuple(curve)

    @property
    def words(self) -> str:
        """The claim as a phrase: its epsilon and delta or its noise multiplier, its rounds, and its adjacency."""
        over = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        if self.epsilon is not None:
            return f"epsilon {self.epsilon:g} at delta {self.delta:g} over {over}, {self.adjacency}"
        times = "the clipping norm" if self.neighbours.sensitivity_of_sum(1.0) == 1 else "twice the clipping norm"
        noise = f"Gaussian noise with multiplier {self.noise_multiplier:g} (times {times})"
        return f"{noise} over {over}, {self.adjacency}"

    @property
    def success(self) -> float:
        """The largest probability of a right guess whether D or D' was used, under the claim and at prior 1/2."""
        from fl_audit.privacy.gaussian import gdp_delta  # noqa: PLC0415

        if self.mu is not None:
            return (1 + gdp_delta(0.0, self.mu)) / 2
        assert self.epsilon is not None
        # The error rates of the best rule lie on both lines of (epsilon, delta)-DP: Kairouz et al. 2015, Eq. (4).
        odds = expm1(self.epsilon)
        return (1 + (odds + 2 * self.delta) / (odds + 2)) / 2
