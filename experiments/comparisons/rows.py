"""What a comparison shows of each finished run, read from its summary."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fl_audit.errors import InputError
from fl_audit.stored_json import read_summary


@dataclass(frozen=True)
class Row:
    """One run; None stands where it has no such number.

    Parameters
    ----------
    run
        Name of its directory.
    verdict
        What became of the promise.
    belief
        The promise: nobody becomes surer than this, but for a chance of delta.
    epsilon, delta
        The same promise as differential privacy.
    noise_multiplier
        Of its noise.
    shown
        Lower bound on epsilon, with the confidence of that run.
    advantage, advantage_bound
        The insider's advantage, and the largest that the promise allows.
    accuracy
        Mean accuracy on test records.
    epsilon_star
        Mean Epsilon* of the released models.
    attack
        The largest lower bound on epsilon that a membership attack gave.
    """

    run: str
    verdict: str
    belief: float | None
    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    shown: float | None
    advantage: float | None
    advantage_bound: float | None
    accuracy: float | None
    epsilon_star: float | None
    attack: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self)


def rows(directories: Sequence[Path]) -> list[Row]:
    """Return a row for every run.

    Parameters
    ----------
    directories
        Of finished runs, at least two and all different.

    Raises
    ------
    InputError
        If there are fewer, one is named twice, or one has no summary.
    """
    if len(directories) < 2:
        raise InputError(f"{len(directories)} run to compare: accepted are at least two directories of runs")
    seen = set[Path]()
    for directory in directories:
        place = directory.resolve()
        if place in seen:
            raise InputError(f"{directory} is named twice: accepted are different runs")
        seen.add(place)
    names = _names(directories)
    return [_row(name, read_summary(directory)) for name, directory in zip(names, directories, strict=True)]


def _names(directories: Sequence[Path]) -> list[str]:
    """Return the last part of every directory, or all of it where two end alike."""
    ends = [directory.resolve().name for directory in directories]
    return [end if ends.count(end) == 1 else str(directory) for end, directory in zip(ends, directories, strict=True)]


def _row(name: str, summary: Mapping[str, Any]) -> Row:
    def of(section: str, key: str) -> float | None:
        value = (summary.get(section) or {}).get(key)
        return float(value) if isinstance(value, (int, float)) else None

    return Row(
        run=name,
        verdict=str(summary.get("verdict")),
        belief=of("guarantee", "belief_bound"),
        epsilon=of("guarantee", "epsilon"),
        delta=of("guarantee", "delta"),
        noise_multiplier=of("guarantee", "noise_multiplier"),
        shown=of("empirical_epsilon", "lower_bound"),
        advantage=of("insider", "advantage"),
        advantage_bound=of("guarantee", "advantage_bound_exact"),
        accuracy=of("utility", "test_accuracy"),
        epsilon_star=of("epsilon_star", "mean"),
        attack=_largest_attack(summary),
    )


def _largest_attack(summary: Mapping[str, Any]) -> float | None:
    """Return the largest lower bound among the membership attacks, None if none gave one."""
    by_name = (summary.get("attacks") or {}).get("by_name") or {}
    bounds = [(found.get("lower_bound") or {}).get("epsilon") for found in by_name.values()]
    known = [float(bound) for bound in bounds if isinstance(bound, (int, float))]
    return max(known, default=None)
