"""The same training without privacy, beside which a report shows what privacy costs in accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unprotected:
    """What the same training without clipping and noise is worth.

    Parameters
    ----------
    run
        Name of that run's directory.
    worlds
        Number of its worlds, at least 1.
    rounds
        Numbers of its releases that were evaluated, from 0, the initial model.
    accuracy
        Mean accuracy of each on test records, 0 to 1; as many.
    """

    run: str
    worlds: int
    rounds: tuple[int, ...]
    accuracy: tuple[float, ...]

    @property
    def final(self) -> float:
        """Mean accuracy of the last release."""
        return self.accuracy[-1]

    def to_json(self) -> dict[str, Any]:
        """Return the value as JSON values."""
        return {
            "run": self.run,
            "worlds": self.worlds,
            "rounds": list(self.rounds),
            "accuracy": list(self.accuracy),
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Unprotected":
        """Return what `to_json` wrote.

        Raises
        ------
        KeyError, TypeError, ValueError
            If it is something else.
        """
        rounds, accuracy = tuple(map(int, values["rounds"])), tuple(map(float, values["accuracy"]))
        if not rounds or len(rounds) != len(accuracy):
            raise ValueError("rounds and accuracy differ in number")
        return cls(str(values["run"]), int(values["worlds"]), rounds, accuracy)
