"""What commands and configurations name of runs and sweeps: modules that only name it need nothing else."""

from enum import StrEnum

WRONG_INPUT, STOPPED, VIOLATED, OVER_BUDGET = 2, 3, 4, 5
"""Exit statuses: nothing was written; what was finished is kept; the verdict, where a violation is to be a failure; a
training that would pass its site's budget."""


class Engine(StrEnum):
    """Where the clients run."""

    RAY = "ray"
    LOCAL = "local"


class Utility(StrEnum):
    """What a model is good for: a column of the run's trials."""

    ACCURACY = "accuracy"
    AUROC = "auroc"

    @property
    def column(self) -> str:
        """Its column."""
        return f"test_{self}"
