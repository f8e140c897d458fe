"""The claim: one value with all that a guarantee refers to (adjacency, releases, delta, prior and accountant).

Calibration, guarantees, figures and the command line take only this value, so noise cannot be calibrated under one
adjacency and reported under another.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, get_args

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy import defaults
from fl_audit.privacy.accounting import Accountant, PrivacyProfile, exact_accountant
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.privacy.events import ReleaseEvent, _with_scaled_noise, full_participation_mu
from fl_audit.privacy.gaussian import require_delta
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity, require_prior
from fl_audit.value_checks import choice
from fl_audit.words import name_list


@dataclass(frozen=True)
class Claim:
    """Statement of what a mechanism guarantees: its releases, the adjacency, delta, and how epsilon is computed.

    Raises `InputError` if there is no event, an event of an unsupported type, an unknown name, or a number out of
    range.

    Parameters
    ----------
    adjacency
        The adjacency, or its name, such as `replace-record`; the sensitivities of the events refer to it.
    events
        The release events of the whole training, at least one; the first event describes the rounds.
    delta
        Delta of (epsilon, delta)-DP, and the probability with which a belief may exceed its bound; above 0 and below 1.
    prior
        The adversary's prior belief in the true training set, above 0 and below 1.
    accountant
        The accountant of epsilon and the belief bound, or its name. Default is the exact one (`exact_accountant`).
    sensitivities
        FIXED if the rounds' sensitivities are fixed in advance, as with noise scaled to the local sensitivity.
        ADAPTIVE, the weaker assumption, holds for every training. Only belief bounds depend on this choice.

    Examples
    --------
    >>> from fl_audit.privacy.events import gaussian_rounds
    >>> claim = Claim("replace-record", gaussian_rounds(1.0, 30), 0.001)
    >>> print(claim.with_noise(9.0))
    30 x Gaussian release (sensitivity 1, sigma 9), neighbours by replace-record, at delta 0.001, prior 0.5, by gdp
    """

    adjacency: Adjacency
    events: tuple[ReleaseEvent, ...]
    delta: float
    prior: float = defaults.PRIOR
    accountant: Accountant = defaults.ACCOUNTANT  # type: ignore[assignment]  # filled in when the claim is made
    sensitivities: SignalToNoiseAdaptivity = defaults.SENSITIVITIES

    if TYPE_CHECKING:  # Arguments may have wider types than the claim's fields.

        def __init__(
            self,
            adjacency: Adjacency | str,
            events: Iterable[ReleaseEvent],
            delta: float,
            prior: float = ...,
            accountant: Accountant | str | None = ...,
            sensitivities: SignalToNoiseAdaptivity | str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        events = tuple(self.events) if isinstance(self.events, Iterable) else (self.events,)
        accepted = name_list(kind.__name__ for kind in get_args(ReleaseEvent))
        for event in events:
            require(isinstance(event, ReleaseEvent), f"event is {event!r}: accepted are {accepted}")
        require(len(events) > 0, "events are empty: accepted is at least one release")
        require_delta(self.delta)
        require_prior(self.prior)
        exact = self.accountant is None
        fixed = {
            "adjacency": choice(Adjacency, "adjacency", self.adjacency),
            "events": events,
            "accountant": exact_accountant(events) if exact else choice(Accountant, "accountant", self.accountant),
            "sensitivities": choice(SignalToNoiseAdaptivity, "sensitivities", self.sensitivities),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)  # so that a claim is the same however its parts were named

    def __str__(self) -> str:
        released = " and ".join(str(event) for event in self.events)
        sensitivities = "" if self.sensitivities is defaults.SENSITIVITIES else f", {self.sensitivities} sensitivities"
        description = (
            f"neighbours by {self.adjacency}, at delta {self.delta:g}, prior {self.prior:g}, by {self.accountant}"
        )
        return f"{released}, {description}{sensitivities}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"

    @property
    def profile(self) -> PrivacyProfile:
        """Privacy profile of all releases together, from which epsilon, delta and bounds are computed."""
        return PrivacyProfile(self.events, self.adjacency, self.prior)

    @property
    def noise_multiplier(self) -> float | None:
        """Noise multiplier z of the first event with Gaussian noise; None if no event has Gaussian noise."""
        return next((event.noise_multiplier for event in self.events if event.noise_multiplier is not None), None)

    @property
    def noise_over_sensitivity(self) -> float | None:
        """Scale of the noise over the sensitivity, of the first event with Gaussian noise, or else with other noise.

        None if no event has noise.
        """
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        ratios = (event.noise_over_sensitivity for event in self.events)
        return next((ratio for ratio in ratios if ratio is not None), None)

    @property
    def distribution(self) -> NoiseDistribution:
        """Distribution of the noise that `noise_over_sensitivity` is about; NONE if no event has noise."""
        if self.noise_multiplier is not None:
            return NoiseDistribution.GAUSSIAN
        noises = (event.distribution for event in self.events if event.noise_over_sensitivity is not None)
        return next(noises, NoiseDistribution.NONE)

    @property
    def rounds(self) -> int:
        """Number of rounds, which is the count of the first event."""
        return self.events[0].count

    @property
    def sampling_rate(self) -> float:
        """Probability with which the differing unit participates in a release of the first event.

        It is 1 without sampling.
        """
        return self.events[0].sampling_rate

    @property
    def participation(self) -> float:
        """Probability with which the differing unit participates in at least one release."""
        rates = [(event.count, event.sampling_rate) for event in self.events]
        return -math.expm1(sum(count * (-math.inf if rate == 1 else math.log1p(-rate)) for count, rate in rates))

    @property
    def full_participation_mu(self) -> float:
        """Gaussian-DP parameter mu of a unit that participates in every release.

        Infinite if an event has other than Gaussian noise.
        """
        mus = [full_participation_mu(event) for event in self.events]
        return math.hypot(*(math.inf if mu is None else mu for mu in mus))

    def with_noise(self, factor: float) -> "Claim":
        """Return the claim with all Gaussian noise multiplied by a positive factor; other events do not change.

        Without Gaussian noise, all other noise is multiplied. For a claim with noise multiplier 1, the factor is the
        new noise multiplier.
        """
        return replace(self, events=_with_scaled_noise(self.events, factor))

    def with_rounds(self, rounds: int) -> "Claim":
        """Return the claim for `rounds` rounds, at least 1.

        The claim's first event is counted once a round. The counts of all further events are scaled in proportion.
        """
        counts = [max(1, round(event.count * rounds / self.rounds)) for event in self.events[1:]]
        events = zip(self.events, [rounds, *counts], strict=True)
        return replace(self, events=tuple(replace(event, count=count) for event, count in events))
