"""Names of engines, measures of utility and exit statuses, for modules that need only these names."""

from enum import StrEnum

WRONG_INPUT, STOPPED, VIOLATED, OVER_BUDGET = 2, 3, 4, 5
"""Exit statuses: nothing was written; the finished part is kept; the verdict, where a violation is a failure; a
training that would exceed its site's budget.
"""


class Engine(StrEnum):
    """The engine that runs the clients: Flower's simulation on Ray, or threads of this process ("local")."""

    RAY = "ray"
    LOCAL = "local"


class UtilityColumn(StrEnum):
    """A measure of a model's utility, which is a column of the run's table of trials."""

    ACCURACY = "accuracy"
    AUROC = "auroc"

    @property
    def column(self) -> str:
        """Name of the column in the table of trials, such as "test_accuracy"."""
        return f"test_{self}"
