"""What commands and configurations name of runs and sweeps: modules that only name it need nothing else."""

from enum import StrEnum


class Engine(StrEnum):
    """Where the clients run."""

    RAY = "ray"
    LOCAL = "local"


class Utility(StrEnum):
    """What a model is good for: a column of the run's worlds."""

    ACCURACY = "accuracy"
    AUROC = "auroc"

    @property
    def column(self) -> str:
        """Its column."""
        return f"test_{self}"
