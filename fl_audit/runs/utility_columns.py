"""Measures of the utility of a model, for modules that need only their names."""

from enum import StrEnum


class UtilityColumn(StrEnum):
    """A measure of a model's utility, which is a column of the run's table of trials."""

    ACCURACY = "accuracy"
    AUROC = "auroc"

    @property
    def column(self) -> str:
        """Name of the column in the table of trials, such as "test_accuracy"."""
        return f"test_{self}"
