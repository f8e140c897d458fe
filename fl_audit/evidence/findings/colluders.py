"""Noise that clients add: what is left of it, and of the promise, where clients tell each other their noise."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.finished_run import FinishedRun, RunFacts
from fl_audit.mechanisms.noise import InsideTraining, effective_noise_multiplier
from fl_audit.mechanisms.standpoint import Place, Standpoint
from fl_audit.privacy.accounting import account

MOST_POINTS = 25  # with more clients than this, epsilon is worked out for so many numbers of them


@dataclass(frozen=True)
class Left:
    """What is left of noise and promise against one adversary."""

    clients: int  # clients who put their noise together, the insider among them; 0 for the server, which knows none
    noise_multiplier: float  # the noise multiplier that it faces
    epsilon: float  # the epsilon that remains, at the delta of the promise and by its accountant

    def to_json(self) -> dict[str, Any]:
        """Return an entry of the list `colluders`."""
        return asdict(self) | {"epsilon": finite(self.epsilon)}


@dataclass(frozen=True)
class ColludersNumbers:
    """What is left against 1 to m - 1 clients, against the server, and against the run's own insider."""

    groups: tuple[Left, ...]
    server: Left
    here: Left

    def to_json(self) -> dict[str, Any]:
        """Return the entry `colluders`."""
        return {"colluders": {"groups": [one.to_json() for one in self.groups], "server": self.server.to_json()}}


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
    return ColludersNumbers(groups, _left(facts, Standpoint(Place.SERVER)), _left(facts, facts.game.standpoint))


def _left(facts: RunFacts, standpoint: Standpoint) -> Left:
    """Return what is left against whoever looks from a standpoint."""
    promise, law = facts.guarantee, facts.game.law
    assert promise is not None, "what was not promised does not shrink"
    claim = replace(promise.claim, events=law.events(facts.game.rounds, standpoint))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return Left(standpoint.known_shares, effective_noise_multiplier(law.noise, standpoint), epsilon)
