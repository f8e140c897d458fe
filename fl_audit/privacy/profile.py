"""What a training run promises: any composition of releases as one value that answers every question about it.

Arrays whose shapes do not fit, and numbers out of their range, raise `InputError`.
"""

import math
from dataclasses import dataclass

from scipy.special import expit, log_ndtr, logit, ndtri

from fl_audit.adjacency import Adjacency
from fl_audit.errors import require
from fl_audit.privacy import pld
from fl_audit.privacy.beliefs import Sensitivities, gaussian_log_odds_bound
from fl_audit.privacy.events import ReleaseEvent, exact_gaussian_mu
from fl_audit.privacy.gaussian import gdp_delta, gdp_epsilon, require_delta, require_epsilon
from fl_audit.privacy.scores import gaussian_advantage, require_prior

_CHEAP = 50_000
"""Grid points up to which a law is put on a finer grid for its quantiles."""


@dataclass(frozen=True)
class PrivacyProfile:
    """A composition of releases between neighbours, and the insider's belief before it sees any.

    Where every release is Gaussian without sampling, all answers are closed forms of
    mu = sqrt(sum of count (Delta/sigma)^2). Otherwise they come from a pessimistic privacy loss distribution (module
    `pld`): epsilon, delta, advantage and beliefs are never too small, the trade-off never too large, and `error` bounds
    what epsilon is above the truth.

    Epsilon, delta, advantage and trade-off hold for releases that are chosen adaptively, as long as the sensitivities
    are never larger than the events say, and for every coarser view of them. So do beliefs under
    `Sensitivities.ADAPTIVE`. Beliefs under `Sensitivities.FIXED` are those of an insider who sees the releases
    themselves, with sensitivities as large as the events say. Raises `InputError` if there is no event or the prior is
    out of its range.

    Examples
    --------
    >>> from fl_audit.privacy.events import GaussianRelease
    >>> release = GaussianRelease(sensitivity=1.0, sigma=9.952, count=30)
    >>> profile = PrivacyProfile((release,), Adjacency.ADD_REMOVE_RECORD)
    >>> round(profile.epsilon(0.001), 3), round(profile.advantage(), 3)
    (1.517, 0.217)
    >>> [round(profile.belief_at(0.001, sensitivities), 3) for sensitivities in Sensitivities]
    [0.864, 0.88]
    """

    events: tuple[ReleaseEvent, ...]  # what is released; at least one event
    adjacency: Adjacency  # how neighbours differ: the events' sensitivities refer to it
    prior: float = 0.5  # the insider's belief in the true data set before anything is seen, above 0 and below 1

    def __post_init__(self) -> None:
        require(len(self.events) > 0, "events are empty: accepted is at least one release")
        require_prior(self.prior)

    @property
    def gaussian_mu(self) -> float | None:
        """The Gaussian-DP parameter mu if every event is Gaussian noise without sampling, otherwise None."""
        each = [exact_gaussian_mu(event) for event in self.events]
        known = [mu for mu in each if mu is not None]
        return math.hypot(*known) if len(known) == len(each) else None

    @property
    def error(self) -> float:
        """How far `epsilon` can lie above the truth (at a delta smaller by 1e-12): 0 for closed forms."""
        return 0.0 if self.gaussian_mu is not None else self._curves.error

    @property
    def _curves(self) -> pld.LossCurves:
        return pld.loss_curves(self.events, self.adjacency)

    def resolves(self, delta: float) -> bool:
        """Return whether epsilon and beliefs at delta are read off closed forms or curves, not only bounded."""
        return self.gaussian_mu is not None or delta >= self._curves.smallest_delta

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with (epsilon, delta)-DP."""
        require_delta(delta)
        mu = self.gaussian_mu
        return gdp_epsilon(delta, mu) if mu is not None else self._curves.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta with (epsilon, delta)-DP."""
        require_epsilon(epsilon)
        mu = self.gaussian_mu
        return gdp_delta(epsilon, mu) if mu is not None else self._curves.delta(epsilon)

    def advantage(self) -> float:
        """Return the largest advantage of an insider with even prior odds: the total variation, delta(0)."""
        mu = self.gaussian_mu
        return gaussian_advantage(mu) if mu is not None else self._curves.delta(0.0)

    def belief_at(self, delta: float, sensitivities: Sensitivities) -> float:
        """Return the belief in the true data set that the insider passes with probability at most delta.

        Parameters
        ----------
        delta, sensitivities
            Above 0 and below 1; whether the rounds' sensitivities are fixed.
        """
        return float(expit(float(logit(self.prior)) + self._log_odds_at(delta, sensitivities)))

    def _log_odds_at(self, delta: float, sensitivities: Sensitivities) -> float:
        require_delta(delta)
        mu = self.gaussian_mu
        if mu is not None:
            return gaussian_log_odds_bound(mu, delta, sensitivities)
        curves = self._curves
        if sensitivities is Sensitivities.FIXED and curves.size <= _CHEAP:
            curves = pld.loss_curves(self.events, self.adjacency, pld.FINEST)
        return curves._log_odds_at(delta, sensitivities)

    def tradeoff(self, alpha: float) -> float:
        """Return the smallest type II error of a test whose type I error is alpha (Dong, Roth & Su 2022)."""
        require(0 <= alpha <= 1, f"alpha is {alpha}: accepted are numbers from 0 to 1")
        mu = self.gaussian_mu
        if mu is not None:
            return float(math.exp(log_ndtr(-float(ndtri(alpha)) - mu))) if alpha < 1 else 0.0
        return self._curves.tradeoff(alpha)
