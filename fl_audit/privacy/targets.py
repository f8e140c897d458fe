"""Privacy targets of calibration: belief, advantage, epsilon, reconstruction, or noise multiplier."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from fl_audit.errors import require
from fl_audit.privacy import defaults
from fl_audit.privacy.gaussian import gaussian_mu
from fl_audit.privacy.identifiability_bounds import require_advantage
from fl_audit.value_checks import require_number
from fl_audit.words import name_list


@dataclass(frozen=True)
class BeliefTarget:
    """Target of calibration: the adversary's belief in the true training set is at most `belief`.

    The belief may exceed this limit with probability at most delta of the claim.
    """

    belief: float  # above the prior and below 1


@dataclass(frozen=True)
class AdvantageTarget:
    """Target of calibration: the adversary's advantage, 2 P(right guess) - 1 at equal priors, is <= `advantage`."""

    advantage: float

    def __post_init__(self) -> None:
        require_advantage(self.advantage)


@dataclass(frozen=True)
class EpsilonTarget:
    """Target of calibration: the accountant's epsilon is at most `epsilon`, which is positive and at most 1e100."""

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon is", self.epsilon, "positive finite numbers to 1e100")


@dataclass(frozen=True)
class ReconstructionTarget:
    """Target of calibration: a reconstruction attack succeeds with a probability of at most `probability`.

    The attacker picks one of `candidates` records, which are equally likely without any release. Singling out a person
    by a description that fits one person in `candidates` has the same bound.
    """

    probability: float  # above `chance` and below 1
    candidates: int = defaults.CANDIDATES  # number of equally likely records, a whole number from 2

    def __post_init__(self) -> None:
        require_number("candidates is", self.candidates, "whole numbers from 2")
        accepted = f"accepted are numbers above {self.chance:g}, which is chance, and below 1"
        require(self.chance < self.probability < 1, f"reconstruction is {self.probability}: {accepted}")

    @property
    def chance(self) -> float:
        """Success probability of the attacker without any release: 1 / `candidates`."""
        return 1 / self.candidates


@dataclass(frozen=True)
class NoiseMultiplierTarget:
    """Target of calibration: a given noise multiplier, positive and finite, so that nothing needs to be calibrated."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        gaussian_mu(self.noise_multiplier, 1)


Target = BeliefTarget | AdvantageTarget | EpsilonTarget | ReconstructionTarget | NoiseMultiplierTarget
"""A target of calibration; users give exactly one."""

TARGETS: Final[Mapping[str, Callable[..., Target]]] = {
    "belief": BeliefTarget,
    "epsilon": EpsilonTarget,
    "advantage": AdvantageTarget,
    "reconstruction": ReconstructionTarget,
    "noise-multiplier": NoiseMultiplierTarget,
}
"""Target classes, keyed by their names on the command line, in Python and in configuration files."""

DETAILS: Final = {"candidates": "reconstruction"}
"""Additional settings that belong to a single target, with the name of that target."""


def one_target(target_values: Mapping[str, float | None], mark: str = "") -> Target:
    """Return the one privacy target among the given values.

    Raises `InputError` if no target or several targets are given, if a value is out of range, or if a detail belongs to
    a target that is not given, such as `candidates` without `reconstruction`.

    Parameters
    ----------
    target_values
        Values by name (of `TARGETS` and `DETAILS`), with exactly one target; None for a value that is not given.
    mark
        Prefix of the names in error messages, such as "--" for command-line options.

    Examples
    --------
    >>> one_target({"belief": 0.9})
    BeliefTarget(belief=0.9)
    >>> one_target({"reconstruction": 0.5, "candidates": 10})
    ReconstructionTarget(probability=0.5, candidates=10)
    """
    values = {name: value for name, value in target_values.items() if value is not None}
    named_targets, offered = (
        [mark + name for name in TARGETS if name in mapping] for mapping in (values, target_values)
    )
    accepted = f"accepted is exactly one of {name_list(offered, 'or')}"
    require(len(named_targets) == 1, f"{' and '.join(named_targets) or 'no target'} given: {accepted}")
    for detail, value in values.items():
        require_number(f"{detail} is", value)
    name = named_targets[0].removeprefix(mark)
    details = {}
    for detail in DETAILS.keys() & values.keys():
        require(DETAILS[detail] == name, f"{mark}{detail} needs {mark}{DETAILS[detail]}, which is left out")
        details[detail.replace("-", "_")] = values[detail]
    return TARGETS[name](values[name], **details)
