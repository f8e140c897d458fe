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


def one_target(belief: float | None, advantage: float | None, epsilon: float | None, mark: str = "") -> Target:
    """Return the one target that is given.

    Parameters
    ----------
    belief, advantage, epsilon
        Values of the targets, of which exactly one is not None.
    mark
        What stands before the names where they were typed, for the message.

    Raises
    ------
    InputError
        If none or several are given, or the value is out of its range.

    Examples
    --------
    >>> one_target(0.9, None, None)
    BeliefTarget(belief=0.9)
    """
    given = {f"{mark}belief": belief, f"{mark}advantage": advantage, f"{mark}epsilon": epsilon}
    named = [name for name, value in given.items() if value is not None]
    require(
        len(named) == 1, f"{' and '.join(named) or 'no target'} given: accepted is exactly one of {', '.join(given)}"
    )
    if belief is not None:
        return BeliefTarget(belief)
    if advantage is not None:
        return AdvantageTarget(advantage)
    assert epsilon is not None, "one of three is given"
    return EpsilonTarget(epsilon)
