"""The promise: what it stands for, what others would cost, what colluding clients and adaptive clipping leave of it."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fl_audit.errors import InputError
from fl_audit.evidence.findings.found import Findings, json_of
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.evidence.run_tables import NORM_COLUMN
from fl_audit.mechanisms.clipping import AdaptiveClipping
from fl_audit.mechanisms.noise import InsideTraining, effective_noise_multiplier
from fl_audit.mechanisms.standpoint import Place, Standpoint
from fl_audit.privacy.accounting import Accountant, account
from fl_audit.privacy.calibration import noise_multiplier_for
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.targets import BeliefTarget

_PROMISED = (
    "epsilon", "delta", "noise_multiplier", "belief_bound", "belief_bound_fixed", "advantage_bound",
    "advantage_bound_exact", "accountant", "adjacency",
)  # fmt: skip


@dataclass(frozen=True)
class PromiseNumbers:
    """What was promised."""

    guarantee: Guarantee | None  # the promise; None where nothing was promised
    rounds: int  # k, number of releases after the initial model
    # Probability with which a unit takes part in a round, or a record in a step of its client's private training.
    sampling_rate: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `guarantee`; what was not promised is None."""
        promise = self.guarantee
        promised = {name: None if promise is None else getattr(promise, name) for name in _PROMISED}
        return {"guarantee": json_of(promised | {"rounds": self.rounds, "sampling_rate": self.sampling_rate})}


def measure_promise(run: FinishedRun, _: Findings) -> PromiseNumbers:
    """Return what was promised."""
    promise = run.facts.guarantee
    rate = run.facts.game.law.sampling_rate if promise is None else promise.sampling_rate
    return PromiseNumbers(promise, run.facts.game.rounds, rate)


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


MOST_POINTS = 25  # with more clients than this, epsilon is worked out for so many numbers of them


@dataclass(frozen=True)
class Left:
    """What is left of noise and promise against one adversary."""

    clients: int  # clients who put their noise together, the insider among them; 0 for the server, which knows none
    noise_multiplier: float  # the noise multiplier that it faces
    epsilon: float  # the epsilon that remains, at the delta of the promise and by its accountant


@dataclass(frozen=True)
class ColludersNumbers:
    """What is left against 1 to m - 1 clients, and against the server."""

    groups: tuple[Left, ...]
    server: Left

    def to_json(self) -> dict[str, Any]:
        """Return the entry `colluders`."""
        return {"colluders": json_of(self)}


def measure_colluders(run: FinishedRun, _: Findings) -> ColludersNumbers | None:
    """Return what colluders leave of the noise; None where clients add none."""
    facts = run.facts
    law = facts.game.law
    # Noise inside a client's own training protects its records alone: nothing is left of it or taken off it.
    if not facts.has_promise or not law.clients_add_noise or isinstance(law.noise, InsideTraining):
        return None
    most = facts.game.clients - 1
    counts = np.unique(np.linspace(1, most, min(most, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(facts, Standpoint(colluders=int(count) - 1)) for count in counts)
    return ColludersNumbers(groups, _left(facts, Standpoint(Place.SERVER)))


def _left(facts: RunFacts, standpoint: Standpoint) -> Left:
    """Return what is left against whoever looks from a standpoint."""
    promise, law = facts.guarantee, facts.game.law
    assert promise is not None, "what was not promised does not shrink"
    claim = replace(promise.claim, events=law.events(facts.game.rounds, standpoint))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return Left(standpoint.known_shares, effective_noise_multiplier(law.noise, standpoint), epsilon)


@dataclass(frozen=True)
class ClippingNumbers:
    """What adaptive clipping did."""

    # `first_norm`, `last_norm`: that of the first round, and the median over worlds of that of the last one.
    first_norm: float
    last_norm: float
    # Noise multipliers of the sum of updates, of the count of those within the norm, and of both releases together.
    sum_noise_multiplier: float
    count_noise_multiplier: float
    noise_multiplier: float

    def to_json(self) -> dict[str, Any]:
        """Return the entry `clipping`."""
        return {"clipping": json_of(self)}


def measure_clipping(run: FinishedRun, _: Findings) -> ClippingNumbers | None:
    """Return what adaptive clipping did; None where the norm is fixed."""
    law, rounds = run.facts.game.law, run.tables.rounds
    if not isinstance(law.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z, standpoint = run.facts.faced_multiplier, run.facts.game.standpoint
    return ClippingNumbers(
        first_norm=law.clipping_norm,
        last_norm=float(last.median()),
        sum_noise_multiplier=z,
        count_noise_multiplier=z * law.clipping.bit_noise,
        noise_multiplier=law.promised_multiplier(standpoint),
    )
