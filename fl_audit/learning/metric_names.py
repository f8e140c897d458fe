"""Names of the metrics of a model on test records, for modules that need only their names."""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from fl_audit.user_modules import title_of_named
from fl_audit.words import number_text, percent

UNBALANCED = 0.8
"""Share of the most frequent class from which labels count as unbalanced."""


class Metric(StrEnum):
    """A metric of a model's outputs on test records."""

    ACCURACY = "accuracy"
    BALANCED_ACCURACY = "balanced-accuracy"
    AUROC = "auroc"
    AVERAGE_PRECISION = "average-precision"
    LOSS = "loss"
    RMSE = "rmse"
    R2 = "r2"

    def suits(self, classes: int) -> bool:
        """Return whether the metric is defined for a number of classes, or for quantities if the number is 1."""
        match self:
            case Metric.AUROC | Metric.AVERAGE_PRECISION:
                return classes == 2
            case Metric.ACCURACY | Metric.BALANCED_ACCURACY:
                return classes > 1
            case Metric.RMSE | Metric.R2:
                return classes == 1
            case Metric.LOSS:
                return True
            case _:
                assert_never(self)

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share of records, which is written as a percentage."""
        return self in (Metric.ACCURACY, Metric.BALANCED_ACCURACY)

    @property
    def is_smaller_better(self) -> bool:
        """Whether a smaller value is a better model."""
        return self in (Metric.LOSS, Metric.RMSE)


_TITLES = {Metric.AUROC: "AUROC", Metric.RMSE: "RMSE", Metric.R2: "R²"}


def metric_title(metric: str) -> str:
    """Return a metric in words; of a user's own, `package.module:function`, the name of the function."""
    if metric in list(_TITLES):
        return _TITLES[Metric(metric)]
    return metric.replace("-", " ") if metric in list(Metric) else title_of_named(metric)


def metric_column(metric: str) -> str:
    """Return the column of a metric in the tables of trials and releases, such as `test_accuracy`.

    Examples
    --------
    >>> metric_column("average-precision"), metric_column("my_metrics:specificity")
    ('test_average_precision', 'test_specificity')
    """
    return f"test_{title_of_named(metric).replace('-', '_')}"


WORST_CLIENT = "train_worst_client"
"""Column of the headline on the training records of the client for which a model is worst."""


CLIENT_CLASSES = "classes"
"""Column of the table of clients: number of classes among a client's records."""


def training_column(metric: str) -> str:
    """Return the column of a metric on training records, such as `train_accuracy`."""
    return metric_column(metric).replace("test_", "train_", 1)


def is_share(metric: str) -> bool:
    """Return whether a metric is a share of records, which is written as a percentage."""
    return metric in list(Metric) and Metric(metric).is_share


def is_smaller_better(metric: str) -> bool:
    """Return whether a smaller value of a metric is a better model; of a user's own a larger one is."""
    return metric in list(Metric) and Metric(metric).is_smaller_better


def metrics_of_task(classes: int, largest_class: float, is_audit: bool) -> tuple[str, ...]:
    """Return the metrics that suit the labels, the headline first.

    The headline is the accuracy, and of unbalanced labels the AUROC of two classes, or the balanced accuracy of more.
    Of quantities it is the root of the mean squared error.

    Parameters
    ----------
    classes
        Number of classes, at least 2; 1 for quantities.
    largest_class
        Share of the most frequent class among the test records, 0 to 1; ignored for quantities.
    is_audit
        Whether many trainings are repeated to audit them: then no more than accuracy and headline are computed in every
        round, so that an audit does not take longer.

    Examples
    --------
    >>> [str(metric) for metric in metrics_of_task(2, 0.94, is_audit=False)]
    ['auroc', 'accuracy', 'average-precision', 'loss']
    >>> [str(metric) for metric in metrics_of_task(10, 0.1, is_audit=True)]
    ['accuracy']
    """
    if classes == 1:
        return (Metric.RMSE, Metric.R2) if is_audit else (Metric.RMSE, Metric.R2, Metric.LOSS)
    of_ranking = (Metric.AUROC, Metric.AVERAGE_PRECISION) if classes == 2 else (Metric.BALANCED_ACCURACY,)
    headline = of_ranking[0] if largest_class >= UNBALANCED else Metric.ACCURACY
    other_metrics = (Metric.ACCURACY,) if is_audit else (Metric.ACCURACY, *of_ranking, Metric.LOSS)
    return tuple(dict.fromkeys((headline, *other_metrics)))


def columns_of(metrics: Sequence[str]) -> dict[str, str]:
    """Return the column of each metric, keyed by metric; accuracy is always among them, NaN for quantities."""
    return {metric: metric_column(metric) for metric in dict.fromkeys((*metrics, Metric.ACCURACY))}


def metric_text(metric: str, value: float | None) -> str:
    """Return a metric of a model as text: as a percentage if it is a share of records, else with three digits."""
    return percent(value) if is_share(metric) else number_text(value, 3)
