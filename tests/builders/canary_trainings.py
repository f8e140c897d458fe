"""Trainings with canary clients, drawn without vectors, and what their canaries certify.

DP-FedAvg with 50 clients, 100 rounds, noise multiplier 1 and 5000 parameters: every round each canary client tosses a
coin and sends a random direction of norm C or nothing; the other clients send updates of norm C, unrelated or in
agreement, which count as noise along the canaries' directions. The noise is as claimed: a round has mu = 1.

Only inner products matter, so directions are drawn by their Gram matrix, which is a Wishart matrix (Bartlett 1933): a
training takes milliseconds, with the distribution of directions of 5000 numbers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Flags, Floats
from fl_audit.audits.canaries.epsilon_from_scores import certify
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds

CONFIDENCE = 0.95
NEEDED = {1: 0.67, 4: 0.81, 10: 0.88}
"""Share of the true mu of a round that the given numbers of canary clients must certify on average."""
_DELTA, _ALARM = 1e-5, 1e-3


@dataclass(frozen=True)
class Training:
    """The setting of a training with canaries."""

    canaries: int  # clients whose coin decides in every round, at least 1
    agreement: float = 0.0  # cosine between the updates of any two other clients, from 0 to 1
    rounds: int = 100  # number of rounds
    clients: int = 50  # number of clients
    dimension: int = 5000  # number of parameters
    noise_multiplier: float = 1.0  # noise multiplier of the training
    decoys: int = 20  # number of directions in a round that no client sent

    @property
    def claim(self) -> Claim:
        """The claim of the training."""
        events = gaussian_rounds(self.noise_multiplier, self.rounds)
        return Claim(Adjacency.ADD_REMOVE_CLIENT, events, _DELTA, 0.5, Accountant.GDP)

    def scores(self, draw: np.random.Generator) -> tuple[Floats, Flags, Floats]:
        """Draw scores and coins, shape (rounds, canaries), and scores of decoys, of one training."""
        directions = self.canaries + self.decoys
        dimension = self.dimension
        frame = np.tril(draw.normal(size=(self.rounds, directions, directions)), -1)
        along = np.arange(directions)
        frame[:, along, along] = np.sqrt(draw.chisquare(dimension - along, size=(self.rounds, directions)))
        frame /= np.linalg.norm(frame, axis=2, keepdims=True)
        other_clients = self.clients - self.canaries
        length = np.sqrt(other_clients + other_clients * (other_clients - 1) * self.agreement)
        projections = draw.normal(size=(self.rounds, directions))
        beyond = draw.chisquare(dimension - directions, size=(self.rounds, 1))
        coins = draw.random((self.rounds, self.canaries)) < 0.5
        observed_sums = self.noise_multiplier * draw.normal(size=projections.shape)
        observed_sums += length * projections / np.sqrt((projections**2).sum(axis=1, keepdims=True) + beyond)
        observed_sums += np.einsum("tc,tcd->td", coins.astype(float), frame[:, : self.canaries])
        scores = np.einsum("tcd,td->tc", frame, observed_sums)
        return scores[:, : self.canaries], coins, scores[:, self.canaries :]


class CanaryLine(NamedTuple):
    """The certificates of canary clients by one method."""

    training: Training  # the setting
    method: str  # by name
    share: float  # mean lower bound of a round's mu over the truth
    runs: int  # number of trainings
    held: int  # number of trainings whose bound held
    epsilon: float  # mean epsilon over the training
    needed: float | None  # requirement on `share`; None where there is none

    def problems(self) -> list[str]:
        """Return the contradictions to the claims."""
        name = f"{self.training.canaries} canary clients by {self.method}"
        contradictions = []
        if self.held < binom.ppf(_ALARM, self.runs, CONFIDENCE):
            contradictions.append(f"{name}: {self.held} of {self.runs} bounds hold")
        if self.needed is not None and self.share < self.needed:
            contradictions.append(f"{name}: {self.share:.3f} of the truth is certified, {self.needed} needed")
        return contradictions


def study(training: Training, runs: int, seed: int = 0) -> list[CanaryLine]:
    """Return the certificates of the canaries of a training, by every method that knows mu."""
    methods = {
        "trade-off": (OneRunMethod.TRADE_OFF, False),
        "shift": (OneRunMethod.SHIFT, False),
        "shift, decoys": (OneRunMethod.SHIFT, True),
    }
    claim = training.claim
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for run in range(runs):
        scores, coins, unsent = training.scores(np.random.default_rng((seed, training.canaries, run)))
        for name, (method, with_decoys) in methods.items():
            one = certify(scores, coins, claim, CONFIDENCE, method, unsent if with_decoys else ())
            found[name].append((one.mu_lower, one.epsilon_lower))
    lines = []
    for name, numbers in found.items():
        mu, epsilon = np.array(numbers).T * np.array([[training.noise_multiplier], [1.0]])
        needed = NEEDED.get(training.canaries) if name == "shift, decoys" and training.agreement == 0 else None
        held = int((mu <= 1).sum())
        lines.append(CanaryLine(training, name, float(mu.mean()), runs, held, float(epsilon.mean()), needed))
    return lines
