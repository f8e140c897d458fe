"""Names of the metrics of a model on test records, for modules that need only their names."""

from collections.abc import Sequence
from enum import StrEnum

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

    @property
    def classes(self) -> int | None:
        """Number of classes that the metric needs; None for any number."""
        return 2 if self in (Metric.AUROC, Metric.AVERAGE_PRECISION) else None

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share of records, which is written as a percentage."""
        return self in (Metric.ACCURACY, Metric.BALANCED_ACCURACY)


def metric_title(metric: str) -> str:
    """Return a metric in words; of a user's own, `package.module:function`, the name of the function."""
    if metric == Metric.AUROC:
        return "AUROC"
    return metric.replace("-", " ") if metric in list(Metric) else title_of_named(metric)


def metric_column(metric: str) -> str:
    """Return the column of a metric in the tables of trials and releases, such as `test_accuracy`.

    Examples
    --------
    >>> metric_column("average-precision"), metric_column("my_metrics:specificity")
    ('test_average_precision', 'test_specificity')
    """
    return f"test_{title_of_named(metric).replace('-', '_')}"


def is_share(metric: str) -> bool:
    """Return whether a metric is a share of records, which is written as a percentage."""
    return metric in list(Metric) and Metric(metric).is_share


def metrics_of_task(classes: int, largest_class: float, is_audit: bool) -> tuple[str, ...]:
    """Return the metrics that suit a classification, the headline first.

    The headline is the accuracy, and of unbalanced labels the AUROC of two classes, or the balanced accuracy of more.

    Parameters
    ----------
    classes
        Number of classes, at least 2.
    largest_class
        Share of the most frequent class among the test records, 0 to 1.
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
    of_ranking = (Metric.AUROC, Metric.AVERAGE_PRECISION) if classes == 2 else (Metric.BALANCED_ACCURACY,)
    headline = of_ranking[0] if largest_class >= UNBALANCED else Metric.ACCURACY
    other_metrics = (Metric.ACCURACY,) if is_audit else (Metric.ACCURACY, *of_ranking, Metric.LOSS)
    return tuple(dict.fromkeys((headline, *other_metrics)))


def columns_of(metrics: Sequence[str]) -> dict[str, str]:
    """Return the column of each metric, keyed by metric; accuracy is always among them."""
    return {metric: metric_column(metric) for metric in dict.fromkeys((*metrics, Metric.ACCURACY))}


def metric_text(metric: str, value: float | None) -> str:
    """Return a metric of a model as text: as a percentage if it is a share of records, else with three digits."""
    return percent(value) if is_share(metric) else number_text(value, 3)
