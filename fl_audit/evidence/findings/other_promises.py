"""What other promises would cost: the noise that it takes to let nobody become surer than this or that."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from fl_audit.errors import InputError
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import guarantee
from fl_audit.privacy.targets import BeliefTarget

BELIEFS = (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


_FOR_BELIEFS = {Accountant.RDP: Accountant.RDP_CLASSIC}
"""Who accounts for a belief where the run's own accountant bounds none."""


@dataclass(frozen=True)
class OtherPromise:
    """What one promise takes."""

    belief: float  # nobody becomes surer than this, but for a chance of delta
    epsilon: float  # what it amounts to at the delta of the run
    noise_multiplier: float  # the noise that keeps it


@dataclass(frozen=True)
class OtherPromises:
    """What is promised, of which others are looked at when the report is drawn."""

    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return no entry: all of it follows from the promise."""
        return {}

    @property
    def accountant(self) -> Accountant:
        """Who accounts for the other promises."""
        return _FOR_BELIEFS.get(self.claim.accountant, self.claim.accountant)

    @property
    def each(self) -> tuple[OtherPromise, ...]:
        """The promises that can be kept by noise, the surest insider last."""
        return _promises(replace(self.claim, accountant=self.accountant))


@lru_cache(maxsize=8)
def _promises(claim: Claim) -> tuple[OtherPromise, ...]:
    found = []
    for belief in BELIEFS:
        if belief <= claim.prior:
            continue
        try:
            promise = guarantee(claim.with_noise(noise_multiplier_for(BeliefTarget(belief), claim)))
        except InputError:
            continue
        if promise.noise_multiplier is not None:
            found.append(OtherPromise(belief, promise.epsilon, promise.noise_multiplier))
    return tuple(found)


def measure_other_promises(run: FinishedRun, _: Findings) -> OtherPromises | None:
    """Return the promise whose alternatives can be looked at; None where that takes too long."""
    promise = run.facts.guarantee
    if promise is None or promise.noise_multiplier is None:
        return None
    # A loss distribution of sampled releases takes seconds for each promise.
    slow = promise.accountant is Accountant.PLD and promise.claim.profile.gaussian_mu is None
    return None if slow else OtherPromises(promise.claim)
