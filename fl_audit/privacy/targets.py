"""What a user asks for: a belief, an advantage, an epsilon or the noise itself."""

import math
from dataclasses import dataclass

from fl_audit.errors import require
from fl_audit.privacy.gaussian import gaussian_mu
from fl_audit.privacy.scores import require_advantage


@dataclass(frozen=True)
class BeliefTarget:
    """With probability 1 - delta the insider's belief in the true D stays at or under `belief` (prior < belief < 1)."""

    belief: float


@dataclass(frozen=True)
class AdvantageTarget:
    """The insider's advantage, 2 P(right guess) - 1 under equal priors, stays at or under `advantage` (0 to 1)."""

    advantage: float

    def __post_init__(self) -> None:
        require_advantage(self.advantage)


@dataclass(frozen=True)
class EpsilonTarget:
    """The accountant reports at most `epsilon`, positive and finite."""

    epsilon: float

    def __post_init__(self) -> None:
        accepted = self.epsilon > 0 and math.isfinite(self.epsilon)
        require(accepted, f"epsilon is {self.epsilon}: accepted are positive finite numbers")


@dataclass(frozen=True)
class NoiseMultiplierTarget:
    """The noise multiplier itself, positive and finite: nothing is calibrated."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        gaussian_mu(self.noise_multiplier, 1)


Target = BeliefTarget | AdvantageTarget | EpsilonTarget | NoiseMultiplierTarget
"""What a user asks for; exactly one of the four."""
