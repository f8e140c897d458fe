"""Which noise a release gets.

Each noise knows three things: how to apply itself to a sum, what it tells the accountant (`Mechanism.events` asks it
for its multiplier), and how much of it an adversary faces who knows a part of it (`effective_noise_multiplier`). What
was seen under two hypotheses is weighed in `likelihood_ratio`. Numbers out of their range raise `InputError`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.gaussian import require_positive
from fl_audit.privacy.matrices import StrategyKind
from fl_audit.privacy.names import NoiseScaling as NoiseScaling
from fl_audit.randomness import Purpose, generator

SENSITIVITY_FLOOR = 1e-4
"""Share of the clipping norm under which local noise stops shrinking: below it float32 rounding, not noise, would hide
the record."""


@dataclass(frozen=True)
class CentralGaussian:
    """The server adds N(0, sigma_i^2 I) to the sum, sigma_i = z Delta_i."""

    multiplier: float  # z, noise standard deviation in units of the sensitivity; positive and finite
    scaling: NoiseScaling = NoiseScaling.GLOBAL  # whether Delta_i is the local or the global sensitivity
    kind: Literal["central"] = "central"

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)


@dataclass(frozen=True)
class _OfClients:
    multiplier: float
    clients: int

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)
        require(self.clients >= 2, f"clients is {self.clients}: accepted are 2 and more, for noise that clients add")


@dataclass(frozen=True)
class DistributedGaussian(_OfClients):
    """Every client adds an equal share of the noise to its contribution: N(0, sigma^2 / m I), sigma = z Delta.

    Nobody but the client knows its share. An insider knows its own, and so faces less noise than others do.
    """

    multiplier: float  # z, standard deviation of all shares together in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["distributed"] = "distributed"


@dataclass(frozen=True)
class LocalGaussian(_OfClients):
    """Every client adds all of the noise to its contribution: N(0, sigma^2 I), sigma = z Delta.

    The sum holds m times the variance. Even who sees a contribution by itself, as the server does, faces the noise that
    was claimed.
    """

    multiplier: float  # z, standard deviation of one client's noise in units of the sensitivity; positive and finite
    clients: int  # m, number of clients, at least 2
    kind: Literal["local"] = "local"


@dataclass(frozen=True)
class CorrelatedGaussian:
    """The server adds noise that is correlated over rounds: r_t = g_t + sum over s <= t of (C^-1)_ts z_s.

    The z_s are N(0, sigma^2 I) with sigma = z Delta, Delta the largest change of one round's sum, and C a
    lower-triangular matrix, so that the noise of later rounds takes back a part of that of earlier ones.

    Source: Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling";
    Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization".
    """

    multiplier: float  # z, standard deviation of the z_s in units of Delta; positive and finite
    matrix: StrategyKind  # which matrix C
    rounds: int  # k, its size, at least 1
    bands: int = 1  # bands of a banded C, from 1 (independent noise) to k; not used by the tree
    kind: Literal["correlated"] = "correlated"

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)
        require(1 <= self.bands <= self.rounds, f"bands is {self.bands}: accepted are 1 to {self.rounds}, the rounds")

    @property
    def rounds_needed(self) -> int:
        """How many rounds, the newest one included, the noise of the newest release is made of."""
        match self.matrix:
            case StrategyKind.BANDED:
                return self.bands
            case StrategyKind.TREE:
                return self.rounds
            case _:
                assert_never(self.matrix)


@dataclass(frozen=True)
class LocalDPSGD:
    """Every client adds N(0, (z C)^2 I) to the sum of clipped gradients in every step of its local training.

    It is a part of the contribution, and nobody adds any to the sum of contributions.
    """

    multiplier: float  # z, standard deviation of the noise of a step in units of the clipping norm; positive and finite
    kind: Literal["inside-training"] = "inside-training"

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.multiplier)


@dataclass(frozen=True)
class NoNoise:
    """The sum itself is released, and nothing is claimed."""

    kind: Literal["none"] = "none"


Noise = CentralGaussian | DistributedGaussian | LocalGaussian | CorrelatedGaussian | LocalDPSGD | NoNoise
"""The kinds of noise."""


def effective_noise_multiplier(noise: Noise, threat_model: ThreatModel) -> float:
    """Return the noise multiplier that an adversary faces: of what is left of the noise, less the shares it knows.

    z for central and correlated noise; with c known shares z sqrt((m - c) / m) for distributed noise and z sqrt(m - c)
    for local noise; for a server that sees single contributions z / sqrt(m) and z. z of a step for noise inside
    training, of which nobody but the client knows any. 0 without noise. Raises `InputError` if the adversary knows all
    the noise, or sits at a server that adds the noise itself.

    Parameters
    ----------
    noise, threat_model
        The noise, and from where the adversary looks.
    """
    match noise:
        case NoNoise():
            return 0.0
        case CentralGaussian(z) | CorrelatedGaussian(z):
            server = "adversary is 'server' and the server adds the noise, so it knows everything"
            accepted = "accepted with adversary = 'server' are noise = 'distributed' and 'local'"
            require(threat_model.adversary is Adversary.CLIENT, f"{server}: {accepted}")
            return z
        case DistributedGaussian(z, clients):
            return z * _left(clients, threat_model) / math.sqrt(clients)
        case LocalGaussian(z, clients):
            return z * _left(clients, threat_model)
        case LocalDPSGD(z):
            # The target's client noises its own steps: what others know of their own noise takes nothing from it.
            return z
        case _:
            assert_never(noise)


def _left(clients: int, threat_model: ThreatModel) -> float:
    """Return the square root of the number of shares that the adversary faces."""
    if threat_model.adversary is Adversary.SERVER:
        return 1.0
    known, found = threat_model.known_shares, f"colluders is {threat_model.colluders} and there are {clients} clients"
    accepted = f"accepted are 0 to {clients - 2}, for somebody else's noise must be left"
    require(known < clients, f"{found}: {accepted}")
    return math.sqrt(clients - known)


def noise_share(seed: int, trials: Sequence[int], server_round: int, size: int) -> Tensor:
    """Return the standard normal draws of one client, float32 (trials, size).

    Parameters
    ----------
    seed, trials, server_round, size
        The client's own secret seed; the numbers of the trials; the round; and the number of parameters.
    """
    draws = np.empty((len(trials), size), dtype=np.float32)
    for row, trial in enumerate(trials):
        source = generator(seed, Purpose.NOISE_SHARE, trial=trial, round=server_round)
        source.standard_normal(out=draws[row], dtype=np.float32)
    return torch.from_numpy(draws)


def add_noise(total: Tensor, standard_normals: Tensor, sigma: Floats) -> Tensor:
    """Return the noised sums, in the memory of the sums.

    Parameters
    ----------
    total, standard_normals, sigma
        Float32 sums (trials, parameters), which are written over; draws of the same shape; and the standard deviation
        of each trial (trials,).
    """
    return total.addcmul_(standard_normals, torch.from_numpy(sigma).float().unsqueeze(1))
