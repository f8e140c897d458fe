"""What a training run promises: any composition of releases as one value that answers every question about it."""

import math
from dataclasses import dataclass

from scipy.special import expit, log_ndtr, logit, ndtr, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy import pld
from fl_audit.privacy.events import ReleaseEvent, gaussian_mu_squared
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon, require_delta, require_epsilon
from fl_audit.privacy.scores import gaussian_advantage, gaussian_belief_bound, require_prior


@dataclass(frozen=True)
class PrivacyProfile:
    """A composition of releases under one neighbouring relation, and the insider's belief before it sees any.

    Formal guarantees. Where every release is Gaussian without sampling, all answers are closed forms of
    mu = sqrt(sum of count (Delta/sigma)^2). Otherwise they come from a pessimistic privacy loss distribution (module
    `pld`): epsilon, delta, advantage and beliefs are never too small, the trade-off never too large, and `error` bounds
    what epsilon is above the truth. The releases may be chosen adaptively, as long as the sensitivities hold.

    The law of the final belief is that of an insider who sees the releases themselves. (A coarser view can pass a given
    belief more often than delta; its epsilon, delta, advantage and trade-off are never worse.)

    Parameters
    ----------
    events
        What is released; at least one event.
    relation
        How neighbours differ: the events' sensitivities refer to it.
    prior
        The insider's belief in D before anything is seen, above 0 and below 1.

    Raises
    ------
    InputError
        If there is no event or the prior is out of its range.

    Examples
    --------
    >>> from fl_audit.privacy.events import GaussianRelease
    >>> profile = PrivacyProfile.of(GaussianRelease(sensitivity=1.0, sigma=9.952, count=30))
    >>> round(profile.epsilon(0.001), 3), round(profile.advantage(), 3), round(profile.belief_bound(0.999), 3)
    (1.517, 0.217, 0.864)
    """

    events: tuple[ReleaseEvent, ...]
    relation: Adjacency = Adjacency.ADD_REMOVE_RECORD
    prior: float = 0.5

    def __post_init__(self) -> None:
        require(len(self.events) > 0, "events are empty: accepted is at least one release")
        require_prior(self.prior)

    @classmethod
    def of(cls, *events: ReleaseEvent) -> "PrivacyProfile":
        """Return the profile of events under add-or-remove and even prior odds."""
        return cls(events)

    @property
    def gaussian_mu(self) -> float | None:
        """The Gaussian-DP parameter mu if every event is Gaussian noise without sampling, otherwise None."""
        squares = [gaussian_mu_squared(event) for event in self.events]
        known = [square for square in squares if square is not None]
        return math.sqrt(math.fsum(known)) if len(known) == len(squares) else None

    @property
    def error(self) -> float:
        """How far `epsilon` can lie above the truth (at a delta smaller by 1e-12): 0 for closed forms."""
        return 0.0 if self.gaussian_mu is not None else self._curves.error

    @property
    def _curves(self) -> pld.LossCurves:
        return pld.loss_curves(self.events, self.relation)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with (epsilon, delta)-DP.

        Raises
        ------
        InputError
            If delta is not above 0 and below 1, or under what the loss distribution resolves.
        """
        require_delta(delta)
        mu = self.gaussian_mu
        return gdp_epsilon(delta, mu) if mu is not None else self._curves.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta with (epsilon, delta)-DP.

        Raises
        ------
        InputError
            If epsilon is negative or not finite.
        """
        require_epsilon(epsilon)
        mu = self.gaussian_mu
        return gdp_delta(epsilon, mu) if mu is not None else self._curves.delta(epsilon)

    def advantage(self) -> float:
        """Return the largest advantage of an insider with even prior odds: the total variation, delta(0)."""
        mu = self.gaussian_mu
        return gaussian_advantage(mu) if mu is not None else self._curves.delta(0.0)

    def belief_bound(self, confidence: float) -> float:
        """Return the belief in the true D that is exceeded with probability at most 1 - confidence.

        The quantile of the law of the log-odds L, the prior included; see `belief_at` for tiny probabilities.

        Raises
        ------
        InputError
            If the confidence is not above 0 and below 1, or closer to 1 than the loss distribution resolves.
        """
        require(0 < confidence < 1, f"confidence is {confidence}: accepted are numbers above 0 and below 1")
        return self.belief_at(1 - confidence)

    def belief_at(self, delta: float) -> float:
        """Return the belief in the true D that is exceeded with probability at most delta: `belief_bound(1 - delta)`.

        Raises
        ------
        InputError
            If delta is not above 0 and below 1, or under what the loss distribution resolves.
        """
        require_delta(delta)
        mu = self.gaussian_mu
        if mu is not None:
            return gaussian_belief_bound(mu, delta, self.prior)
        return float(expit(float(logit(self.prior)) + self._curves.quantile(delta)))

    def belief_survival(self, belief: float) -> float:
        """Return P(posterior belief in D > belief | D), a bound on it where the loss distribution is on a grid.

        Raises
        ------
        InputError
            If the belief is not above 0 and below 1.
        """
        require(0 < belief < 1, f"belief is {belief}: accepted are numbers above 0 and below 1")
        log_odds = float(logit(belief) - logit(self.prior))
        mu = self.gaussian_mu
        if mu is not None:
            return float(ndtr(mu / 2 - log_odds / mu))
        return self._curves.survival(log_odds)

    def tradeoff(self, alpha: float) -> float:
        """Return the smallest type II error of a test whose type I error is alpha (Dong, Roth & Su 2022).

        Raises
        ------
        InputError
            If alpha is not in [0, 1].
        """
        require(0 <= alpha <= 1, f"alpha is {alpha}: accepted are numbers from 0 to 1")
        mu = self.gaussian_mu
        if mu is not None:
            return float(math.exp(log_ndtr(-float(ndtri(alpha)) - mu))) if alpha < 1 else 0.0
        return self._curves.tradeoff(alpha)

    def compose(self, other: "PrivacyProfile") -> "PrivacyProfile":
        """Return the profile of both sets of releases.

        Raises
        ------
        InputError
            If relations or priors differ.
        """
        same = (self.relation, self.prior) == (other.relation, other.prior)
        require(
            same,
            f"profiles under {self.relation} with prior {self.prior} and under {other.relation} with prior "
            f"{other.prior}: accepted are profiles with the same relation and prior",
        )
        return PrivacyProfile(self.events + other.events, self.relation, self.prior)
